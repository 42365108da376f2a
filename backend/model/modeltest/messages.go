package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"glasshouse/backend/model"
)

// messages is Anthropic's Messages.
type messages struct{ parser }

func (messages) format() model.Format { return model.FormatMessages }

func (messages) key(h http.Header) string {
	if k := h.Get("X-Api-Key"); k != "" {
		return k
	}
	return bearer(h)
}

var (
	messagesTool = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	messagesID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// messagesState is what is known while a request is read.
type messagesState struct {
	*Asked
	marks    int
	thinking bool // thoughts must come back within a turn
	calls    []string
}

func (c messages) parse(h http.Header, body []byte) (*Asked, *refusal) { return c.read(h, body, true) }

// read takes also what is counted only, which has no max_tokens.
func (c messages) read(h http.Header, body []byte, answer bool) (*Asked, *refusal) {
	return reading(func() *Asked {
		if h.Get("Anthropic-Version") == "" {
			c.refuse("", "anthropic-version: header is required")
		}
		o := c.object(body, "request", "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "thinking", "temperature", "top_p",
			"top_k", "stop_sequences", "metadata", "service_tier", "output_config", "cache_control")
		a := &messagesState{Asked: &Asked{Format: model.FormatMessages, Model: c.text(c.need(o, "model", ""), "model")}}
		if a.Model == "" {
			c.refuse("model", "model: String should have at least 1 character")
		}
		if answer {
			if a.MaxOutput = c.number(c.need(o, "max_tokens", ""), "max_tokens"); a.MaxOutput < 1 {
				c.refuse("max_tokens", "max_tokens: must be greater than or equal to 1")
			}
		}
		if v, ok := o["stream"]; ok {
			a.Stream = c.bool(v, "stream")
		}
		if v, ok := o["thinking"]; ok {
			c.thinking(a, v)
		}
		if v, ok := o["output_config"]; ok {
			if e := c.object(v, "output_config", "effort", "format")["effort"]; !isNull(e) {
				if a.Effort = c.text(e, "output_config.effort"); !slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, a.Effort) {
					c.refuse("output_config.effort", "output_config.effort: Input should be 'low', 'medium', 'high' or 'max'")
				}
			}
		}
		c.tools(a, o)
		if v, ok := o["system"]; ok && isText(v) {
			if s := c.text(v, "system"); s != "" {
				a.system(s)
			}
		} else if ok {
			for i, raw := range c.list(v, "system") {
				at := fmt.Sprintf("system.%d", i)
				b := c.object(raw, at, "type", "text", "cache_control")
				if typ := c.text(c.need(b, "type", at), at+".type"); typ != "text" {
					c.refuse(at, "%s.type: Input should be 'text'", at)
				}
				s := c.text(c.need(b, "text", at), at+".text")
				c.solid(s, at)
				a.system(s)
				c.mark(a, b, at)
			}
		}
		c.conversation(a, c.list(c.need(o, "messages", ""), "messages"))
		if v := o["cache_control"]; !isNull(v) {
			c.mark(a, o, "request")
		}
		return a.Asked
	})
}

func (c messages) thinking(a *messagesState, raw json.RawMessage) {
	o := c.object(raw, "thinking", "type", "budget_tokens", "display")
	switch typ := c.text(c.need(o, "type", "thinking"), "thinking.type"); typ {
	case "enabled":
		a.thinking = true
		if n := c.number(c.need(o, "budget_tokens", "thinking"), "thinking.budget_tokens"); n < 1024 || a.MaxOutput > 0 && n >= a.MaxOutput {
			c.refuse("thinking", "`max_tokens` must be greater than `thinking.budget_tokens`, which must be greater than or equal to 1024")
		}
	case "disabled", "adaptive":
		if !isNull(o["budget_tokens"]) {
			c.refuse("thinking", "thinking.%s.budget_tokens: Extra inputs are not permitted", typ)
		}
	default:
		c.refuse("thinking", "thinking: Input tag '%s' found using 'type' does not match any of the expected tags: 'disabled', 'enabled', 'adaptive'", typ)
	}
}

// mark notes a cache_control.
func (c messages) mark(a *messagesState, o object, at string) {
	v, ok := o["cache_control"]
	if !ok || isNull(v) {
		return
	}
	cc := c.object(v, at+".cache_control", "type", "ttl")
	if typ := c.text(c.need(cc, "type", at), at+".cache_control.type"); typ != "ephemeral" {
		c.refuse(at, "%s.cache_control: Input tag '%s' does not match 'ephemeral'", at, typ)
	}
	if a.marks++; a.marks > 4 {
		c.refuse(at, "A maximum of 4 blocks with cache_control may be provided. Found %d.", a.marks)
	}
	a.Asked.mark()
}

func (c messages) tools(a *messagesState, o object) {
	if v, ok := o["tools"]; ok {
		for i, raw := range c.list(v, "tools") {
			at := fmt.Sprintf("tools.%d", i)
			t := c.object(raw, at, "name", "description", "input_schema", "cache_control", "type", "strict")
			name := c.text(c.need(t, "name", at), at+".name")
			if !messagesTool.MatchString(name) {
				c.refuse(at, "%s.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", at)
			}
			if slices.Contains(a.Tools, name) {
				c.refuse("tools", "tools: Tool names must be unique.")
			}
			description, schema := "", c.need(t, "input_schema", at)
			if v, ok := t["description"]; ok {
				description = c.text(v, at+".description")
			}
			if why := schemaFault(schema); why != "" {
				c.refuse(at, "%s.input_schema: %s", at, why)
			}
			a.tool(name, description, schema)
			c.mark(a, t, at)
		}
	}
	if v, ok := o["tool_choice"]; ok {
		if len(a.Tools) == 0 {
			c.refuse("tool_choice", "tool_choice may only be specified while providing tools.")
		}
		t := c.object(v, "tool_choice", "type", "name", "disable_parallel_tool_use")
		switch typ := c.text(c.need(t, "type", "tool_choice"), "tool_choice.type"); typ {
		case "none":
			a.Quiet = true
		case "auto":
		case "any", "tool":
			if a.thinking {
				c.refuse("tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")
			}
		default:
			c.refuse("tool_choice", "tool_choice: Input tag '%s' does not match any of the expected tags", typ)
		}
	}
}

// solid refuses text of nothing but blanks.
func (c messages) solid(s, at string) {
	if s == "" {
		c.refuse(at, "messages: text content blocks must be non-empty")
	}
	if strings.TrimSpace(s) == "" {
		c.refuse(at, "messages: text content blocks must contain non-whitespace text")
	}
}

func (c messages) conversation(a *messagesState, list []json.RawMessage) {
	if len(list) == 0 {
		c.refuse("messages", "messages: at least one message is required")
	}
	before, turn := "", 0 // turn: the first entry after the last message of the person's own
	for i, raw := range list {
		at := fmt.Sprintf("messages.%d", i)
		o := c.object(raw, at, "role", "content")
		role := c.text(c.need(o, "role", at), at+".role")
		switch {
		case role != "user" && role != "assistant":
			c.refuse(at, "messages: Unexpected role \"%s\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.", role)
		case i == 0 && role != "user":
			c.refuse("messages", "messages: first message must use the \"user\" role")
		case role == before:
			c.refuse("messages", "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"%s\" roles in a row", role)
		}
		before = role
		content := c.need(o, "content", at)
		if isText(content) {
			content = js([]m{{"type": "text", "text": c.text(content, at)}})
		}
		blocks := c.list(content, at+".content")
		if len(blocks) == 0 {
			c.refuse(at, "%s: all messages must have non-empty content", at)
		}
		if role == "user" {
			if !c.user(a, blocks, at) {
				turn = len(a.Entries)
			}
			continue
		}
		c.assistant(a, blocks, at, i == len(list)-1)
	}
	if len(a.calls) > 0 {
		c.unanswered(a)
	}
	if before != "user" {
		c.refuse("messages", "This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	// What was thought before the first call of a turn must come back with it while the
	// turn lasts; later answers of it may have called without a thought.
	for _, e := range a.Entries[turn:] {
		if e.Role != "assistant" {
			continue
		}
		if a.thinking && len(e.Calls) > 0 && e.Thought == "" {
			c.refuse("messages", "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.")
		}
		break
	}
}

func (c messages) unanswered(a *messagesState) {
	c.refuse("messages", "`tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", strings.Join(a.calls, ", "))
}

// user reads a message of the user and reports whether results were in it.
func (c messages) user(a *messagesState, blocks []json.RawMessage, at string) bool {
	var e *Entry
	results := false
	for i, raw := range blocks {
		at := fmt.Sprintf("%s.content.%d", at, i)
		o := c.object(raw, at, "type", "text", "source", "cache_control", "tool_use_id", "content", "is_error", "citations")
		typ := c.text(c.need(o, "type", at), at+".type")
		role := "user"
		if typ == "tool_result" {
			role = "tool"
			if e != nil && e.Role == "user" {
				c.refuse(at, "%s: `tool_result` blocks must come before all other content", at)
			}
			results = true
		} else if len(a.calls) > 0 {
			c.unanswered(a)
		}
		if e == nil || e.Role != role {
			e = a.begin(role)
		}
		switch typ {
		case "text":
			s := c.text(c.need(o, "text", at), at+".text")
			c.solid(s, at)
			a.text(e, s)
		case "image":
			a.image(e, c.source(c.need(o, "source", at), at))
		case "tool_result":
			c.result(a, e, o, at)
		default:
			c.refuse(at, "%s: Input tag '%s' found using 'type' does not match any of the expected tags", at, typ)
		}
		c.mark(a, o, at)
	}
	if len(a.calls) > 0 {
		c.unanswered(a)
	}
	return results
}

func (c messages) source(raw json.RawMessage, at string) []byte {
	o := c.object(raw, at+".source", "type", "media_type", "data")
	if typ := c.text(c.need(o, "type", at), at+".source.type"); typ != "base64" {
		c.refuse(at, "%s.source: only base64 is served here, not '%s'", at, typ)
	}
	return c.picture(c.text(c.need(o, "media_type", at), at+".media_type"), c.text(c.need(o, "data", at), at+".data"), at)
}

func (c messages) result(a *messagesState, e *Entry, o object, at string) {
	id := c.text(c.need(o, "tool_use_id", at), at+".tool_use_id")
	i := slices.Index(a.calls, id)
	if i < 0 {
		c.refuse(at, "%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at, id)
	}
	a.calls = slices.Delete(a.calls, i, i+1)
	failed := false
	if v, ok := o["is_error"]; ok {
		failed = c.bool(v, at+".is_error")
	}
	text := ""
	images := [][]byte{}
	if v, ok := o["content"]; ok && isText(v) {
		text = c.text(v, at)
	} else if ok {
		for j, raw := range c.list(v, at+".content") {
			at := fmt.Sprintf("%s.content.%d", at, j)
			b := c.object(raw, at, "type", "text", "source", "cache_control")
			switch typ := c.text(c.need(b, "type", at), at+".type"); typ {
			case "text":
				s := c.text(c.need(b, "text", at), at+".text")
				c.solid(s, at)
				text += s
			case "image":
				images = append(images, c.source(c.need(b, "source", at), at))
			default:
				c.refuse(at, "%s: a result holds no '%s'", at, typ)
			}
		}
	}
	if failed && strings.TrimSpace(text) == "" {
		c.refuse(at, "%s: content cannot be empty if `is_error` is true", at)
	}
	a.result(e, id, text, failed)
	for _, b := range images {
		a.image(e, b)
	}
}

func (c messages) assistant(a *messagesState, blocks []json.RawMessage, at string, last bool) {
	e := a.begin("assistant")
	for i, raw := range blocks {
		at := fmt.Sprintf("%s.content.%d", at, i)
		o := c.object(raw, at, "type", "text", "thinking", "signature", "data", "id", "name", "input", "cache_control", "citations")
		switch typ := c.text(c.need(o, "type", at), at+".type"); typ {
		case "text":
			s := c.text(c.need(o, "text", at), at+".text")
			c.solid(s, at)
			a.text(e, s)
		case "thinking":
			s := c.text(c.need(o, "thinking", at), at+".thinking")
			if c.text(c.need(o, "signature", at), at+".signature") != seal(s) {
				c.refuse(at, "%s: Invalid `signature` in `thinking` block", at)
			}
			if !isNull(o["cache_control"]) {
				c.refuse(at, "%s.cache_control: Extra inputs are not permitted", at)
			}
			a.thought(e, s)
		case "tool_use":
			id, name := c.text(c.need(o, "id", at), at+".id"), c.text(c.need(o, "name", at), at+".name")
			input := c.need(o, "input", at)
			switch {
			case !messagesID.MatchString(id):
				c.refuse(at, "%s.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
			case slices.Contains(a.calls, id):
				c.refuse("messages", "messages: `tool_use` ids must be unique")
			case !messagesTool.MatchString(name):
				c.refuse(at, "%s.name: String should match pattern", at)
			case !isObject(string(input)):
				c.refuse(at, "%s.input: Input should be a valid dictionary", at)
			case len(a.Tools) == 0:
				c.refuse("tools", "Requests which include `tool_use` or `tool_result` blocks must define tools.")
			}
			a.calls = append(a.calls, id)
			a.call(e, id, name, string(input))
		default:
			c.refuse(at, "%s: Input tag '%s' found using 'type' does not match any of the expected tags", at, typ)
		}
		c.mark(a, o, at)
	}
}

func (messages) finish(s model.Stop) string {
	switch s {
	case model.StopCalls:
		return "tool_use"
	case model.StopLength:
		return "max_tokens"
	case model.StopRefused:
		return "refusal"
	}
	return "end_turn"
}

func (messages) usage(u model.Usage, output int64) m {
	return m{"input_tokens": u.Input, "cache_read_input_tokens": u.CacheRead, "cache_creation_input_tokens": u.CacheWrite, "output_tokens": output}
}

// object of a tool's arguments: a real server's is always one; what a script gives raw
// and is none reaches the client only in a stream, piece by piece.
func (c messages) blocks(r *reply) (out []m) {
	if r.think != "" {
		out = append(out, m{"type": "thinking", "thinking": r.think, "signature": seal(r.think)})
	}
	if r.say != "" {
		out = append(out, m{"type": "text", "text": r.say})
	}
	for _, k := range r.calls {
		var input any = m{}
		if isObject(k.args) {
			input = json.RawMessage(k.args)
		}
		out = append(out, m{"type": "tool_use", "id": k.id, "name": k.tool, "input": input})
	}
	return out
}

func (c messages) whole(r *reply) []byte {
	blocks := c.blocks(r)
	if blocks == nil {
		blocks = []m{}
	}
	return js(m{"id": r.id, "type": "message", "role": "assistant", "model": r.served, "content": blocks, "stop_reason": c.finish(r.stop), "stop_sequence": nil,
		"usage": c.usage(r.usage, r.usage.Output)})
}

func (c messages) stream(r *reply, chunk int) (out []frame) {
	send := func(typ string, x m) {
		x["type"] = typ
		out = append(out, frame{event: typ, data: js(x)})
	}
	send("message_start", m{"message": m{"id": r.id, "type": "message", "role": "assistant", "model": r.served, "content": []m{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": c.usage(r.usage, 1)}})
	call := 0
	for i, b := range c.blocks(r) {
		delta := func(d m) { send("content_block_delta", m{"index": i, "delta": d}) }
		switch b["type"] {
		case "thinking":
			send("content_block_start", m{"index": i, "content_block": m{"type": "thinking", "thinking": "", "signature": ""}})
			for _, p := range pieces(r.think, chunk) {
				delta(m{"type": "thinking_delta", "thinking": p})
			}
			delta(m{"type": "signature_delta", "signature": b["signature"]})
		case "text":
			send("content_block_start", m{"index": i, "content_block": m{"type": "text", "text": ""}})
			for _, p := range pieces(r.say, chunk) {
				delta(m{"type": "text_delta", "text": p})
			}
		case "tool_use":
			k := r.calls[call]
			call++
			send("content_block_start", m{"index": i, "content_block": m{"type": "tool_use", "id": k.id, "name": k.tool, "input": m{}}})
			delta(m{"type": "input_json_delta", "partial_json": ""})
			for _, p := range pieces(k.args, chunk) {
				delta(m{"type": "input_json_delta", "partial_json": p})
			}
		}
		send("content_block_stop", m{"index": i})
		if i == 0 {
			send("ping", m{})
		}
	}
	send("message_delta", m{"delta": m{"stop_reason": c.finish(r.stop), "stop_sequence": nil}, "usage": c.usage(r.usage, r.usage.Output)})
	send("message_stop", m{})
	return out
}

func (messages) failure(f failure) (status int, body []byte) {
	var typ, text string
	switch f.kind {
	case "auth":
		status, typ, text = 401, "authentication_error", "invalid x-api-key: "+f.key
	case "quota":
		status, typ, text = 400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."
	case "rate":
		status, typ, text = 429, "rate_limit_error", "This request would exceed your organization's rate limit of 30,000 input tokens per minute."
	case "busy":
		status, typ, text = 529, "overloaded_error", "Overloaded"
	case "server":
		status, typ, text = 500, "api_error", "Internal server error"
	case "too_long":
		status, typ, text = 400, "invalid_request_error", fmt.Sprintf("prompt is too long: %d tokens > %d maximum", f.tokens, f.limit)
	case "not_found":
		status, typ, text = 404, "not_found_error", "model: "+f.model
	default:
		status, typ, text = 400, "invalid_request_error", "The request is not valid."
	}
	if f.message != "" {
		text = f.message
	}
	return status, js(m{"type": "error", "error": m{"type": typ, "message": text}, "request_id": f.request})
}

func (c messages) midError(f failure) []frame {
	_, b := c.failure(f)
	return []frame{{event: "error", data: b}}
}
