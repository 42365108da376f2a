package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	"glasshouse/backend/model"
)

// chat reads answers of Chat Completions.
type chat struct {
	assembly
	slots   map[int64]*piece // calls by the index of the server
	newest  *piece           // the call that got the last piece
	id      string
	served  string
	finish  string
	refused bool
	usage   model.Usage
	details details
	closed  bool // the server said that nothing follows
}

func newChat(from string, each func(model.Delta)) *chat {
	return &chat{assembly: assembly{from: from, each: each}, slots: map[int64]*piece{}}
}

func (c *chat) event(e event) (bool, error) {
	if len(e.data) == 0 {
		return false, nil
	}
	if e.name == "error" {
		f := parseFailure(e.data)
		if !f.explicit {
			f = parseReason(e.data)
		}
		return false, f
	}
	var chunk openai.ChatCompletionChunk
	if err := json.Unmarshal(e.data, &chunk); err != nil {
		return false, protocol("the server sent an event that is no piece of an answer: %v", err)
	}
	if present(json.RawMessage(chunk.JSON.ExtraFields["error"].Raw())) || chunk.JSON.Object.Raw() == `"error"` {
		return false, parseFailure(e.data)
	}
	c.head(chunk.ID, chunk.Model, chunk.Usage)
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		if raw := json.RawMessage(choice.JSON.ExtraFields["error"].Raw()); present(raw) {
			return false, parseReason(raw)
		}
		if err := c.delta(choice.Delta); err != nil {
			return false, err
		}
		if r := choice.FinishReason; r != "" {
			c.finish = r
		}
	}
	return false, nil
}

func (c *chat) whole(body []byte) error {
	var all openai.ChatCompletion
	if err := json.Unmarshal(body, &all); err != nil {
		return protocol("the server sent what is no answer: %v", err)
	}
	if len(all.Choices) == 0 {
		return protocol("the server sent JSON that is no answer: is the address right?")
	}
	c.head(all.ID, all.Model, all.Usage)
	choice := all.Choices[0]
	// The message has the form of a delta but for the calls' indexes.
	var d openai.ChatCompletionChunkChoiceDelta
	if err := json.Unmarshal([]byte(choice.Message.RawJSON()), &d); err != nil {
		return protocol("the server sent an answer without a message: %v", err)
	}
	c.finish = choice.FinishReason
	return c.delta(d)
}

func (c *chat) head(id, served string, u openai.CompletionUsage) {
	if c.id == "" {
		c.id = id
	}
	if c.served == "" {
		c.served = served
	}
	if !u.JSON.PromptTokens.Valid() && !u.JSON.CompletionTokens.Valid() {
		return
	}
	in, out := u.PromptTokensDetails, u.CompletionTokensDetails
	cached := in.CachedTokens
	if !in.JSON.CachedTokens.Valid() {
		cached = number(u.JSON.ExtraFields["prompt_cache_hit_tokens"]) // DeepSeek
	}
	output := tokens(u.CompletionTokens)
	if r := tokens(out.ReasoningTokens); r > 0 && tokens(u.TotalTokens) == tokens(u.PromptTokens)+output+r {
		output += r // xAI counts them beside the rest
	}
	c.usage = usage(u.PromptTokens, cached, in.CacheWriteTokens, output, out.ReasoningTokens)
}

func number(f respjson.Field) int64 {
	var n float64
	if json.Unmarshal([]byte(f.Raw()), &n) != nil {
		return 0
	}
	return tokens(int64(min(max(n, 0), 1<<40)))
}

func (c *chat) delta(d openai.ChatCompletionChunkChoiceDelta) error {
	if err := c.thought(d.JSON.ExtraFields); err != nil {
		return err
	}
	if raw := d.JSON.Content.Raw(); strings.HasPrefix(raw, "[") {
		if err := c.pieces(raw); err != nil {
			return err
		}
	} else if d.JSON.Content.Valid() {
		if err := c.add(model.KindText, "", d.Content); err != nil {
			return err
		}
	}
	if d.JSON.Refusal.Valid() && d.Refusal != "" {
		c.refused = true
		if err := c.add(model.KindText, "", d.Refusal); err != nil {
			return err
		}
	}
	before := len(c.parts) // calls from here on are of this delta
	for _, t := range d.ToolCalls {
		if err := c.toolCall(t, before); err != nil {
			return err
		}
	}
	return nil
}

// thought reads what a delta holds of one. Servers send the same text in up to three
// places.
func (c *chat) thought(extra map[string]respjson.Field) error {
	text, err := c.moreDetails(extra["reasoning_details"])
	if err != nil {
		return err
	}
	under := ""
	for _, field := range []string{"reasoning_content", "reasoning"} {
		var s string
		if json.Unmarshal([]byte(extra[field].Raw()), &s) == nil && s != "" {
			text, under = s, field
			break
		}
	}
	return c.add(model.KindThought, under, text)
}

// keepDetails puts the details to the answer's first thought, or makes one for what is
// all sealed.
func (c *chat) keepDetails() {
	if len(c.details.all) == 0 {
		return
	}
	i := slices.IndexFunc(c.parts, func(p *piece) bool { return p.kind == model.KindThought })
	if i < 0 {
		i = 0
		c.parts = slices.Insert(c.parts, 0, &piece{kind: model.KindThought})
	}
	c.parts[i].details = &c.details
}

// pieces reads a content that is a list, as Mistral's models that think send it.
func (c *chat) pieces(raw string) error {
	type piece struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	var list []piece
	if json.Unmarshal([]byte(raw), &list) != nil {
		return protocol("the server sent a text of a form that is not known")
	}
	for _, p := range list {
		switch p.Type {
		case "text":
			if err := c.add(model.KindText, "", p.Text); err != nil {
				return err
			}
		case "thinking":
			var inner []piece
			if json.Unmarshal(p.Thinking, &inner) != nil {
				continue
			}
			for _, q := range inner {
				if err := c.add(model.KindThought, "", q.Text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// toolCall takes a piece of a call; parts from before on began in the same delta.
func (c *chat) toolCall(t openai.ChatCompletionChunkChoiceDeltaToolCall, before int) error {
	args := t.Function.Arguments
	if raw := t.Function.JSON.Arguments.Raw(); strings.HasPrefix(raw, "{") {
		args = raw // an object where a string should be
	} else if !t.Function.JSON.Arguments.Valid() {
		args = ""
	}
	p := c.slot(t, args, before)
	if p == nil {
		var err error
		if p, err = c.call(); err != nil {
			return err
		}
		if t.JSON.Index.Valid() {
			c.slots[t.Index] = p
		}
	}
	c.newest = p
	if p.id == "" && t.ID != "" {
		p.id = t.ID
		if err := c.grow(len(t.ID)); err != nil {
			return err
		}
	}
	// A name comes in pieces, or whole again with every piece of the arguments.
	if name := t.Function.Name; name != "" && len(p.text) == 0 && string(p.tool) != name {
		p.tool = append(p.tool, name...)
		if err := c.grow(len(name)); err != nil {
			return err
		}
	}
	if raw := t.JSON.ExtraFields["extra_content"].Raw(); p.extra == nil && present(json.RawMessage(raw)) {
		p.extra = json.RawMessage(valid(raw))
		if err := c.grow(len(raw)); err != nil {
			return err
		}
	}
	return c.args(p, args)
}

// slot finds the call that a piece goes on with, or nil when it begins one. The index
// says so, unless a server gives every call the same one or none at all; then the id
// and the name do: a piece without a name always goes on with what was there.
func (c *chat) slot(t openai.ChatCompletionChunkChoiceDeltaToolCall, args string, before int) *piece {
	name := t.Function.Name
	if t.JSON.Index.Valid() {
		p := c.slots[t.Index]
		if p == nil || name != "" && c.begins(p, t.ID, name, args, before) {
			return nil
		}
		return p
	}
	p := c.newest
	if t.ID != "" {
		for _, q := range c.parts {
			if q.kind == model.KindCall && q.id == t.ID {
				p = q
			}
		}
	}
	if p == nil || name != "" && c.begins(p, t.ID, name, args, before) {
		return nil
	}
	return p
}

// begins reports whether a piece with a name begins a call of its own, although it looks
// as if it went on with p.
func (c *chat) begins(p *piece, id, name, args string, before int) bool {
	if id != "" && p.id != "" && id != p.id {
		return true
	}
	for _, q := range c.parts[before:] {
		if q == p {
			return true // two entries of one delta are two calls
		}
	}
	if len(p.text) == 0 {
		return false // the name comes in pieces, or again with the first arguments
	}
	return string(p.tool) != name || args != "" && json.Valid(p.text)
}

func (c *chat) last() { c.closed = true }

func (c *chat) end() (model.Answer, error) {
	// Some gateways leave out why an answer ended; that it did is said by the last word.
	if c.finish == "" && (!c.closed || len(c.parts) == 0) {
		return model.Answer{}, cutOff()
	}
	c.keepDetails()
	a := model.Answer{Parts: c.done(), Usage: c.usage, Served: valid(c.served), ID: valid(c.id), Stop: model.StopEnd}
	if c.calls > 0 {
		a.Stop = model.StopCalls
	}
	switch strings.ToLower(c.finish) {
	case "length", "max_tokens", "model_length":
		a.Stop = model.StopLength
	case "content_filter", "refusal", "safety", "sensitive":
		a.Stop = model.StopRefused
	case "error", "network_error":
		return model.Answer{}, &failure{text: "the server broke the answer off without a reason"}
	case "insufficient_system_resource":
		return model.Answer{}, &failure{code: c.finish, text: "the server broke the answer off: it lacks resources just now"}
	default:
		if c.refused && c.calls == 0 {
			a.Stop = model.StopRefused
		}
	}
	return a, nil
}
