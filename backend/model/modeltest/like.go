package modeltest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// likes are the servers whose ways of Chat Completions can be taken on.
var likes = []string{"openai", "deepseek", "mistral", "gemini", "openrouter", "ollama"}

// unsignedCall is what Gemini takes in place of the signature of a call that another
// model made.
const unsignedCall = "skip_thought_signature_validator"

// schemaWord is one of a schema's that Gemini does not know.
var schemaWord = regexp.MustCompile(`"(additionalProperties|propertyNames|uniqueItems|maxProperties|exclusiveMinimum|\$schema|oneOf|const)":`)

var nine = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// said is what the rules of these servers look at in a message.
type said struct {
	Role      string
	Content   json.RawMessage
	Thought   *string  `json:"reasoning_content"`
	Details   []detail `json:"reasoning_details"`
	ToolCalls []struct {
		ID    string
		Extra struct {
			Google struct {
				Signature string `json:"thought_signature"`
			}
		} `json:"extra_content"`
	} `json:"tool_calls"`
}

// detail is one of OpenRouter's reasoning_details.
type detail struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Format    string `json:"format"`
	Index     int    `json:"index"`
}

// ownWay refuses what the server that this one is like does not take.
func (c chat) ownWay(o object) {
	var ms []said
	if json.Unmarshal(o["messages"], &ms) != nil {
		return // that is told by who reads it whole
	}
	_, tools := o["tools"]
	switch c.like {
	case "openai":
		if _, ok := o["max_tokens"]; ok {
			c.refuse("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
		}
	case "mistral":
		for _, k := range []string{"stream_options", "max_completion_tokens", "reasoning_effort", "store"} {
			if _, ok := o[k]; ok {
				c.refuse(k, `{"detail":[{"type":"extra_forbidden","loc":["body","%s"],"msg":"Extra inputs are not permitted"}]}`, k)
			}
		}
	}
	if c.like == "gemini" && schemaWord.Match(o["tools"]) {
		c.refuse("tools", `Invalid JSON payload received. Unknown name "%s" at 'tools[0].function_declarations[0].parameters': Cannot find field.`, schemaWord.FindSubmatch(o["tools"])[1])
	}
	before := ""
	for i, x := range ms {
		switch c.like {
		case "deepseek":
			if len(x.ToolCalls) > 0 && tools && (x.Thought == nil || *x.Thought == "" || isNull(x.Content)) {
				c.refuse("messages", "The `reasoning_content` in the thinking mode must be passed back to the API.")
			}
		case "mistral":
			if x.Role == "user" && before == "tool" {
				c.refuse("messages", "Unexpected role 'user' after role 'tool'")
			}
			for _, k := range x.ToolCalls {
				if !nine.MatchString(k.ID) {
					c.refuse("messages", "Tool call id was %s but must be a-z, A-Z, 0-9, with a length of 9.", k.ID)
				}
			}
		case "gemini":
			if len(x.ToolCalls) > 0 {
				if k := x.ToolCalls[0]; k.Extra.Google.Signature != seal(k.ID) && k.Extra.Google.Signature != unsignedCall {
					c.refuse("messages", "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly. Additional data, position %d.", i)
				}
			}
		case "openrouter":
			for _, d := range x.Details {
				if d.Signature != seal(d.Text) {
					c.refuse("messages", "messages.%d.content.0: Invalid `signature` in `thinking` block", i)
				}
			}
			for _, k := range x.ToolCalls {
				if strings.HasPrefix(k.ID, "thought_") && len(x.Details) == 0 {
					c.refuse("messages", "messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.", i)
				}
			}
		}
		before = x.Role
	}
}

// callID is a new one.
func (c chat) callID(request, n int, thought bool) string {
	switch {
	case c.like == "mistral":
		return fmt.Sprintf("m%05dx%02d", request%100000, n%100)
	case c.like == "openrouter" && thought:
		return fmt.Sprintf("thought_%d_%d", request, n)
	}
	return fmt.Sprintf("call_%d_%d", request, n)
}

// thoughtDeltas are the pieces of a thought, in the form of the server.
func (c chat) thoughtDeltas(think string, chunk int) (out []m) {
	if think == "" {
		return nil
	}
	details := func(d detail) []detail {
		d.Type, d.Format = "reasoning.text", "anthropic-claude-v1"
		return []detail{d}
	}
	for _, p := range pieces(think, chunk) {
		switch c.like {
		case "openai", "mistral", "gemini": // theirs are not shown
		case "openrouter":
			out = append(out, m{"reasoning": p, "reasoning_details": details(detail{Text: p})})
		case "ollama":
			out = append(out, m{"reasoning": p})
		default:
			out = append(out, m{"reasoning_content": p})
		}
	}
	if c.like == "openrouter" {
		out = append(out, m{"reasoning_details": details(detail{Signature: seal(think)})})
	}
	return out
}

// callsWhole: calls come in one piece each.
func (c chat) callsWhole() bool {
	return c.like == "mistral" || c.like == "gemini" || c.like == "ollama"
}

// wholeCalls are the deltas of calls that come in one piece, each of which Gemini and
// Ollama give the same number.
func (c chat) wholeCalls(r *reply) (out []m) {
	if !c.callsWhole() {
		return nil
	}
	var all []m
	for i, k := range r.calls {
		x := m{"index": i, "id": k.id, "type": "function", "function": m{"name": k.tool, "arguments": k.args}}
		if c.like == "gemini" && i == 0 {
			x["extra_content"] = m{"google": m{"thought_signature": seal(k.id)}}
		}
		if c.like != "mistral" {
			x["index"] = 0
			out = append(out, m{"tool_calls": []m{x}})
		}
		all = append(all, x)
	}
	if c.like == "mistral" && len(all) > 0 {
		out = append(out, m{"tool_calls": all})
	}
	return out
}
