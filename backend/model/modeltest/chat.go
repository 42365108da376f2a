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

// chat is OpenAI's Chat Completions, with thoughts as its compatible servers send them
// (reasoning_content).
type chat struct {
	parser
	like string // as of Script
}

func (chat) format() model.Format     { return model.FormatChat }
func (chat) key(h http.Header) string { return bearer(h) }

var openAIName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func (c chat) parse(_ http.Header, body []byte) (*Asked, *refusal) {
	return reading(func() *Asked {
		o := c.object(body, "request", "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "max_tokens",
			"max_completion_tokens", "temperature", "top_p", "reasoning_effort", "store", "metadata", "prompt_cache_key", "prompt_cache_retention",
			"user", "safety_identifier", "seed", "stop", "n", "response_format", "service_tier", "verbosity", "frequency_penalty", "presence_penalty")
		a := &Asked{Format: model.FormatChat, Model: c.text(c.need(o, "model", ""), "model")}
		c.ownWay(o)
		if a.Model == "" {
			c.refuse("model", "you must provide a model parameter")
		}
		if v, ok := o["stream"]; ok {
			a.Stream = c.bool(v, "stream")
		}
		if _, ok := o["stream_options"]; ok && !a.Stream {
			c.refuse("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
		}
		for _, k := range []string{"max_tokens", "max_completion_tokens"} {
			if v, ok := o[k]; ok {
				if a.MaxOutput != 0 {
					c.refuse(k, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
				}
				if a.MaxOutput = c.number(v, k); a.MaxOutput < 1 {
					c.refuse(k, "%s is too small: %d", k, a.MaxOutput)
				}
			}
		}
		if v, ok := o["reasoning_effort"]; ok {
			if a.Effort = c.text(v, "reasoning_effort"); !slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, a.Effort) {
				c.refuse("reasoning_effort", "Invalid value: '%s'", a.Effort)
			}
		}
		c.tools(a, o)
		messages := c.list(c.need(o, "messages", ""), "messages")
		if len(messages) == 0 {
			c.refuse("messages", "[] is too short - 'messages'")
		}
		var waiting []string // calls without a result so far
		for i, raw := range messages {
			waiting = c.message(a, raw, fmt.Sprintf("messages[%d]", i), waiting)
		}
		if len(waiting) > 0 {
			c.unanswered(waiting)
		}
		if len(a.Entries) == 0 || a.Entries[len(a.Entries)-1].Role == "assistant" {
			c.refuse("messages", "the last message must be one of the user or a tool")
		}
		return a
	})
}

func (c chat) unanswered(ids []string) {
	c.refuse("messages", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(ids, ", "))
}

func (c chat) tools(a *Asked, o object) {
	raw, declared := o["tools"]
	if declared {
		l := c.list(raw, "tools")
		if len(l) == 0 {
			c.refuse("tools", "[] is too short - 'tools'")
		}
		for i, raw := range l {
			at := fmt.Sprintf("tools[%d]", i)
			t := c.object(raw, at, "type", "function")
			if typ := c.text(c.need(t, "type", at), at+".type"); typ != "function" {
				c.refuse(at+".type", "Invalid value: '%s'", typ)
			}
			f := c.object(c.need(t, "function", at), at+".function", "name", "description", "parameters", "strict")
			c.function(a, f, at+".function")
		}
	}
	for _, k := range []string{"tool_choice", "parallel_tool_calls"} {
		if _, ok := o[k]; ok && !declared {
			c.refuse(k, "'%s' is only allowed when 'tools' are specified", k)
		}
	}
	if v, ok := o["tool_choice"]; ok {
		a.Quiet = c.choice(v)
	}
}

// function is one of a tool's, for both formats of OpenAI.
func (p parser) function(a *Asked, f object, at string) {
	name := p.text(p.need(f, "name", at), at+".name")
	if !openAIName.MatchString(name) {
		p.refuse(at+".name", "Invalid '%s.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", at)
	}
	if slices.Contains(a.Tools, name) {
		p.refuse(at+".name", "the tool name '%s' is there twice", name)
	}
	description, schema := "", json.RawMessage(`{"type":"object","properties":{}}`)
	if v, ok := f["description"]; ok && !isNull(v) {
		description = p.text(v, at+".description")
	}
	if v, ok := f["parameters"]; ok && !isNull(v) {
		schema = v
		p.schema(v, at+".parameters", name)
	}
	if v, ok := f["strict"]; ok && !isNull(v) && p.bool(v, at+".strict") {
		p.strictSchema(schema, at+".parameters", name)
	}
	a.tool(name, description, schema)
}

// strictSchema holds a schema to what strict functions need, at its top.
func (p parser) strictSchema(raw json.RawMessage, at, name string) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		More       any                        `json:"additionalProperties"`
	}
	_ = json.Unmarshal(raw, &s)
	if s.More != false {
		p.refuse(at, "Invalid schema for function '%s': In context=(), 'additionalProperties' is required to be supplied and to be false.", name)
	}
	for k := range s.Properties {
		if !slices.Contains(s.Required, k) {
			p.refuse(at, "Invalid schema for function '%s': In context=(), 'required' is required to be supplied and to be an array including every key in properties. Missing '%s'.", name, k)
		}
	}
}

// choice reports whether no tool may be called.
func (p parser) choice(raw json.RawMessage) bool {
	if !isText(raw) {
		p.object(raw, "tool_choice", "type", "function", "name", "mode", "tools")
		return false
	}
	switch v := p.text(raw, "tool_choice"); v {
	case "none":
		return true
	case "auto", "required":
	default:
		p.refuse("tool_choice", "Invalid value: '%s'. Supported values are: 'none', 'auto', and 'required'.", v)
	}
	return false
}

// message reads one and returns which calls have no result after it.
func (c chat) message(a *Asked, raw json.RawMessage, at string, waiting []string) []string {
	o := c.object(raw, at, append(c.thoughtKeys(), "role", "content", "name", "tool_calls", "tool_call_id", "refusal")...)
	role := c.text(c.need(o, "role", at), at+".role")
	if role != "tool" && len(waiting) > 0 {
		c.unanswered(waiting)
	}
	if role != "tool" && o["tool_call_id"] != nil || role != "assistant" && (o["tool_calls"] != nil || o["reasoning_content"] != nil || o["refusal"] != nil) {
		c.refuse(at, "%s holds what a message of the role '%s' cannot", at, role)
	}
	if role != "assistant" && isNull(o["content"]) {
		c.refuse(at+".content", "Invalid value for 'content': expected a string, got null.")
	}
	switch role {
	case "system", "developer":
		if len(a.Entries) > 0 {
			c.refuse(at, "System message must be at the beginning.")
		}
		s := Entry{Role: "system"}
		c.content(&Asked{}, &s, o["content"], at+".content", false)
		a.system(s.Text)
	case "user":
		c.content(a, a.begin("user"), o["content"], at+".content", true)
	case "assistant":
		return c.assistant(a, o, at)
	case "tool":
		id := c.text(c.need(o, "tool_call_id", at), at+".tool_call_id")
		i := slices.Index(waiting, id)
		if i < 0 {
			c.refuse(at, "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'. (%s)", id)
		}
		e := &a.Entries[len(a.Entries)-1]
		if e.Role != "tool" {
			e = a.begin("tool")
		}
		r := Entry{Role: "result"}
		c.content(&Asked{}, &r, o["content"], at+".content", false)
		a.result(e, id, r.Text, false)
		return slices.Delete(waiting, i, i+1)
	default:
		c.refuse(at+".role", "Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", role)
	}
	return nil
}

// content reads a text or a list of parts.
func (c chat) content(a *Asked, e *Entry, raw json.RawMessage, at string, pictures bool) {
	if isText(raw) {
		s := c.text(raw, at)
		if s == "" {
			c.refuse(at, "%s is empty", at)
		}
		a.text(e, s)
		return
	}
	parts := c.list(raw, at)
	if len(parts) == 0 {
		c.refuse(at, "[] is too short - '%s'", at)
	}
	for i, raw := range parts {
		at := fmt.Sprintf("%s[%d]", at, i)
		o := c.object(raw, at, "type", "text", "image_url")
		switch typ := c.text(c.need(o, "type", at), at+".type"); {
		case typ == "text":
			s := c.text(c.need(o, "text", at), at+".text")
			if s == "" {
				c.refuse(at, "%s.text is empty", at)
			}
			a.text(e, s)
		case typ == "image_url" && pictures:
			u := c.object(c.need(o, "image_url", at), at+".image_url", "url", "detail")
			a.image(e, c.pictureURL(c.text(c.need(u, "url", at), at+".image_url.url"), at))
		default:
			c.refuse(at+".type", "Invalid value: '%s' is no content of a message of the role '%s'.", typ, e.Role)
		}
	}
}

func (c chat) assistant(a *Asked, o object, at string) (waiting []string) {
	e := a.begin("assistant")
	for _, k := range []string{"reasoning_content", "reasoning"} {
		if v, ok := o[k]; ok && !isNull(v) {
			a.thought(e, c.text(v, at+"."+k))
		}
	}
	var own said
	_ = json.Unmarshal(o["reasoning_details"], &own.Details) // none, where it has none
	for _, d := range own.Details {
		a.thought(e, d.Text)
	}
	if v := o["content"]; !isNull(v) && string(v) != `""` {
		c.content(a, e, v, at+".content", false)
	}
	if v := o["refusal"]; !isNull(v) {
		a.text(e, c.text(v, at+".refusal"))
	}
	raw, ok := o["tool_calls"]
	if !ok {
		if e.Text == "" {
			c.refuse(at+".content", "Invalid value for 'content': expected a string, got null.")
		}
		return nil
	}
	calls := c.list(raw, at+".tool_calls")
	if len(calls) == 0 {
		c.refuse(at+".tool_calls", "[] is too short - '%s.tool_calls'", at)
	}
	for i, raw := range calls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		t := c.object(raw, at, "id", "type", "function", "extra_content")
		id := c.text(c.need(t, "id", at), at+".id")
		if typ := c.text(c.need(t, "type", at), at+".type"); typ != "function" || id == "" || len(id) > 64 {
			c.refuse(at, "%s: type '%s', id '%s'", at, typ, id)
		}
		f := c.object(c.need(t, "function", at), at+".function", "name", "arguments")
		name, args := c.text(c.need(f, "name", at), at+".function.name"), c.text(c.need(f, "arguments", at), at+".function.arguments")
		if !openAIName.MatchString(name) {
			c.refuse(at+".function.name", "string does not match pattern '^[a-zA-Z0-9_-]+$'")
		}
		// Some compatible servers put the arguments into their template as an object.
		if !isObject(args) {
			c.refuse(at+".function.arguments", "invalid tool call arguments: no JSON object")
		}
		if slices.Contains(waiting, id) {
			c.refuse(at+".id", "the id '%s' is there twice", id)
		}
		waiting = append(waiting, id)
		a.call(e, id, name, args)
	}
	return waiting
}

func (c chat) finish(s model.Stop) string {
	switch s {
	case model.StopCalls:
		if c.like == "ollama" {
			return "stop"
		}
		return "tool_calls"
	case model.StopLength:
		return "length"
	case model.StopRefused:
		return "content_filter"
	}
	return "stop"
}

func (chat) usage(u model.Usage) m {
	in := u.Input + u.CacheRead + u.CacheWrite
	return m{"prompt_tokens": in, "completion_tokens": u.Output, "total_tokens": in + u.Output,
		"prompt_tokens_details":     m{"cached_tokens": u.CacheRead},
		"completion_tokens_details": m{"reasoning_tokens": u.Reasoning}}
}

// thoughtKeys are the names of a message's thoughts.
func (c chat) thoughtKeys() []string {
	switch c.like {
	case "openai", "mistral":
		return nil
	case "openrouter":
		return []string{"reasoning", "reasoning_details", "reasoning_content"}
	case "ollama":
		return []string{"reasoning"}
	}
	return []string{"reasoning_content"}
}

func (c chat) whole(r *reply) []byte {
	msg := m{"role": "assistant", "content": nil, "refusal": nil}
	if r.say != "" {
		msg["content"] = r.say
	}
	if r.think != "" {
		msg["reasoning_content"] = r.think
	}
	var calls []m
	for _, k := range r.calls {
		calls = append(calls, m{"id": k.id, "type": "function", "function": m{"name": k.tool, "arguments": k.args}})
	}
	if calls != nil {
		msg["tool_calls"] = calls
	}
	return js(m{"id": r.id, "object": "chat.completion", "created": created, "model": r.served, "usage": c.usage(r.usage),
		"choices": []m{{"index": 0, "message": msg, "finish_reason": c.finish(r.stop), "logprobs": nil}}})
}

// created is when all answers were: nothing depends on it.
const created = 1700000000

func (c chat) stream(r *reply, chunk int) (out []frame) {
	send := func(choices []m, usage any) {
		x := m{"id": r.id, "object": "chat.completion.chunk", "created": created, "model": r.served, "choices": choices}
		if r.withUsage {
			x["usage"] = usage
		}
		out = append(out, frame{data: js(x)})
	}
	delta := func(d m) { send([]m{{"index": 0, "delta": d, "finish_reason": nil}}, nil) }
	delta(m{"role": "assistant", "content": ""})
	if c.like == "openrouter" {
		out = append([]frame{{comment: "OPENROUTER PROCESSING"}}, out...)
	}
	for _, d := range c.thoughtDeltas(r.think, chunk) {
		delta(d)
	}
	for _, p := range pieces(r.say, chunk) {
		delta(m{"content": p})
	}
	for _, d := range c.wholeCalls(r) {
		delta(d)
	}
	for i, k := range r.calls {
		if c.callsWhole() {
			break
		}
		delta(m{"tool_calls": []m{{"index": i, "id": k.id, "type": "function", "function": m{"name": k.tool, "arguments": ""}}}})
		for _, p := range pieces(k.args, chunk) {
			delta(m{"tool_calls": []m{{"index": i, "function": m{"arguments": p}}}})
		}
	}
	end, last := []m{{"index": 0, "delta": m{}, "finish_reason": c.finish(r.stop)}}, any(nil)
	if c.like == "mistral" { // it tells without being asked
		r.withUsage, last = true, c.usage(r.usage)
	}
	send(end, last)
	if r.withUsage && last == nil {
		send([]m{}, c.usage(r.usage))
	}
	return append(out, frame{data: []byte("[DONE]")})
}

func (c chat) failure(f failure) (int, []byte) {
	status, e := openAIFailure(f)
	switch c.like {
	case "gemini":
		return status, js([]m{{"error": m{"code": status, "message": e["message"], "status": "INVALID_ARGUMENT"}}})
	case "mistral":
		return status, js(m{"object": "error", "message": e["message"], "type": e["type"], "param": nil, "code": nil})
	}
	return status, js(m{"error": e})
}

func (c chat) midError(f failure) []frame {
	_, b := c.failure(f)
	return []frame{{data: b}}
}
