package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"glasshouse/backend/model"
)

// responses is OpenAI's Responses, used without the server's memory: it keeps no
// answer, so all of a conversation comes with each request.
type responses struct{ parser }

func (responses) format() model.Format     { return model.FormatResponses }
func (responses) key(h http.Header) string { return bearer(h) }

func (c responses) parse(_ http.Header, body []byte) (*Asked, *refusal) {
	return reading(func() *Asked {
		o := c.object(body, "request", "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
			"max_output_tokens", "reasoning", "include", "store", "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user",
			"temperature", "top_p", "truncation", "text", "service_tier", "previous_response_id", "background", "max_tool_calls")
		a := &Asked{Format: model.FormatResponses, Model: c.text(c.need(o, "model", ""), "model")}
		if a.Model == "" {
			c.refuse("model", "Missing required parameter: 'model'.")
		}
		if v := o["previous_response_id"]; !isNull(v) {
			panic(&refusal{kind: "invalid", param: "previous_response_id", code: "previous_response_not_found", message: "Previous response with id '" + c.text(v, "previous_response_id") + "' not found."})
		}
		if v, ok := o["stream"]; ok {
			a.Stream = c.bool(v, "stream")
		}
		if v, ok := o["max_output_tokens"]; ok && !isNull(v) {
			if a.MaxOutput = c.number(v, "max_output_tokens"); a.MaxOutput < 16 {
				c.refuse("max_output_tokens", "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.", a.MaxOutput)
			}
		}
		if v, ok := o["reasoning"]; ok && !isNull(v) {
			r := c.object(v, "reasoning", "effort", "summary")
			if e := r["effort"]; !isNull(e) {
				if a.Effort = c.text(e, "reasoning.effort"); !slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, a.Effort) {
					c.refuse("reasoning.effort", "Invalid value: '%s'", a.Effort)
				}
			}
		}
		if v, ok := o["include"]; ok && !isNull(v) {
			for _, x := range c.list(v, "include") {
				if s := c.text(x, "include"); s != "reasoning.encrypted_content" {
					c.refuse("include", "Invalid value: '%s'", s)
				}
			}
		}
		c.tools(a, o)
		if v := o["instructions"]; !isNull(v) {
			if s := c.text(v, "instructions"); s != "" {
				a.system(s)
			}
		}
		c.input(a, c.need(o, "input", ""))
		return a
	})
}

func (c responses) tools(a *Asked, o object) {
	if v := o["tools"]; !isNull(v) {
		for i, raw := range c.list(v, "tools") {
			at := fmt.Sprintf("tools[%d]", i)
			f := c.object(raw, at, "type", "name", "description", "parameters", "strict")
			if typ := c.text(c.need(f, "type", at), at+".type"); typ != "function" {
				c.refuse(at+".type", "Invalid value: '%s'", typ)
			}
			c.function(a, f, at)
		}
	}
	if v, ok := o["tool_choice"]; ok {
		a.Quiet = c.choice(v)
		if len(a.Tools) == 0 && !isText(v) {
			c.refuse("tool_choice", "Tool choice names a tool and 'tools' holds none.")
		}
		a.Quiet = a.Quiet && len(a.Tools) > 0
	}
}

// input reads the items. What the model said in one answer becomes one entry.
func (c responses) input(a *Asked, raw json.RawMessage) {
	if isText(raw) {
		c.say(a, a.begin("user"), raw, "input", false)
		return
	}
	items := c.list(raw, "input")
	if len(items) == 0 {
		c.refuse("input", "Missing required parameter: 'input'.")
	}
	var waiting []string
	entry := func(role string) *Entry {
		if n := len(a.Entries); n > 0 && a.Entries[n-1].Role == role && role != "user" {
			return &a.Entries[n-1]
		}
		return a.begin(role)
	}
	thought := "" // the reasoning item that waits for what follows from it
	for i, raw := range items {
		at := fmt.Sprintf("input[%d]", i)
		o := c.object(raw, at, "type", "role", "content", "id", "status", "call_id", "name", "arguments", "output", "summary", "encrypted_content", "phase")
		typ := "message"
		if v, ok := o["type"]; ok {
			typ = c.text(v, at+".type")
		}
		role := ""
		if typ == "message" {
			role = c.text(c.need(o, "role", at), at+".role")
		}
		ours := typ == "reasoning" || typ == "function_call" || role == "assistant"
		if thought != "" && !ours {
			c.refuse(at, "Item '%s' of type 'reasoning' was provided without its required following item.", thought)
		}
		if typ != "reasoning" {
			thought = ""
		}
		if typ == "message" && len(waiting) > 0 {
			c.refuse("input", "No tool output found for function call %s.", waiting[0])
		}
		switch {
		case typ == "message" && (role == "system" || role == "developer"):
			s := Entry{Role: "system"}
			c.say(&Asked{}, &s, o["content"], at+".content", false)
			a.system(s.Text)
		case role == "user":
			c.say(a, entry("user"), o["content"], at+".content", false)
		case role == "assistant":
			c.say(a, entry("assistant"), o["content"], at+".content", true)
		case typ == "message":
			c.refuse(at+".role", "Invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'.", role)
		case typ == "reasoning":
			thought = c.reasoning(a, entry("assistant"), o, at)
		case typ == "function_call":
			id := c.text(c.need(o, "call_id", at), at+".call_id")
			if v, ok := o["id"]; ok && !strings.HasPrefix(c.text(v, at+".id"), "fc") {
				c.refuse(at+".id", "Invalid '%s.id': '%s'. Expected an ID that begins with 'fc'.", at, c.text(v, at+".id"))
			}
			name, args := c.text(c.need(o, "name", at), at+".name"), c.text(c.need(o, "arguments", at), at+".arguments")
			if !openAIName.MatchString(name) || id == "" || len(id) > 64 || slices.Contains(waiting, id) {
				c.refuse(at, "%s: a function call with the name '%s' and the call_id '%s'", at, name, id)
			}
			waiting = append(waiting, id)
			a.call(entry("assistant"), id, name, args)
		case typ == "function_call_output":
			id := c.text(c.need(o, "call_id", at), at+".call_id")
			j := slices.Index(waiting, id)
			if j < 0 {
				c.refuse("input", "No tool call found for function call output with call_id %s.", id)
			}
			waiting = slices.Delete(waiting, j, j+1)
			c.output(a, entry("tool"), id, c.need(o, "output", at), at+".output")
		default:
			c.refuse(at+".type", "Invalid value: '%s'.", typ)
		}
	}
	switch n := len(a.Entries); {
	case thought != "":
		c.refuse("input", "Item '%s' of type 'reasoning' was provided without its required following item.", thought)
	case len(waiting) > 0:
		c.refuse("input", "No tool output found for function call %s.", waiting[0])
	case n == 0 || a.Entries[n-1].Role == "assistant":
		c.refuse("input", "the last item must be one of the user or an output")
	}
}

func (c responses) reasoning(a *Asked, e *Entry, o object, at string) string {
	id := c.text(c.need(o, "id", at), at+".id")
	if !strings.HasPrefix(id, "rs_") {
		c.refuse(at+".id", "Invalid '%s.id': '%s'. Expected an ID that begins with 'rs'.", at, id)
	}
	thought := ""
	for i, raw := range c.list(c.need(o, "summary", at), at+".summary") {
		at := fmt.Sprintf("%s.summary[%d]", at, i)
		s := c.object(raw, at, "type", "text")
		if typ := c.text(c.need(s, "type", at), at+".type"); typ != "summary_text" {
			c.refuse(at+".type", "Invalid value: '%s'.", typ)
		}
		thought += c.text(c.need(s, "text", at), at+".text")
	}
	v := o["encrypted_content"]
	if isNull(v) {
		panic(&refusal{kind: "not_found", param: at, message: "Item with id '" + id + "' not found. Items are not persisted when `store` is set to false."})
	}
	if c.text(v, at+".encrypted_content") != seal(thought) {
		panic(&refusal{kind: "invalid", param: at, code: "invalid_encrypted_content", message: "The encrypted content for item " + id + " could not be verified."})
	}
	a.thought(e, thought)
	return id
}

// say reads a text or a list of parts.
func (c responses) say(a *Asked, e *Entry, raw json.RawMessage, at string, answer bool) {
	if isNull(raw) {
		c.refuse(at, "Missing required parameter: '%s'.", at)
	}
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
		o := c.object(raw, at, "type", "text", "image_url", "detail", "annotations", "refusal", "logprobs")
		typ := c.text(c.need(o, "type", at), at+".type")
		switch {
		case answer && typ == "output_text" || !answer && typ == "input_text":
			s := c.text(c.need(o, "text", at), at+".text")
			if s == "" {
				c.refuse(at, "%s.text is empty", at)
			}
			a.text(e, s)
		case answer && typ == "refusal":
			a.text(e, c.text(c.need(o, "refusal", at), at+".refusal"))
		case e.Role != "assistant" && e.Role != "system" && typ == "input_image":
			a.image(e, c.pictureURL(c.text(c.need(o, "image_url", at), at+".image_url"), at))
		case answer:
			c.refuse(at, "Invalid value: '%s'. Supported values are: 'output_text' and 'refusal'.", typ)
		default:
			c.refuse(at, "Invalid value: '%s'. Supported values are: 'input_text' and 'input_image'.", typ)
		}
	}
}

// output reads a result, which may hold pictures.
func (c responses) output(a *Asked, e *Entry, id string, raw json.RawMessage, at string) {
	r, b := Entry{Role: "result"}, &Asked{}
	c.say(b, &r, raw, at, false)
	a.result(e, id, r.Text, false)
	for range r.Images {
		e.Images++
		a.images++
	}
	if r.Images > 0 {
		a.canon.line("images", string(b.canon.b))
	}
}

func (responses) usage(u model.Usage) m {
	in := u.Input + u.CacheRead + u.CacheWrite
	return m{"input_tokens": in, "input_tokens_details": m{"cached_tokens": u.CacheRead, "cache_write_tokens": 0}, "output_tokens": u.Output,
		"output_tokens_details": m{"reasoning_tokens": u.Reasoning}, "total_tokens": in + u.Output}
}

// response is the object at the beginning (no output yet) and at the end of an answer.
func (c responses) response(r *reply, status string, output []m) m {
	x := m{"id": r.id, "object": "response", "created_at": created, "status": status, "model": r.served, "error": nil, "incomplete_details": nil,
		"instructions": nil, "metadata": m{}, "output": output, "parallel_tool_calls": true, "store": false, "temperature": 1, "top_p": 1,
		"tool_choice": "auto", "tools": []m{}, "usage": nil}
	if status == "in_progress" {
		x["output"] = []m{}
		return x
	}
	x["usage"] = c.usage(r.usage)
	if status == "incomplete" {
		reason := "max_output_tokens"
		if r.stop == model.StopRefused {
			reason = "content_filter"
		}
		x["incomplete_details"] = m{"reason": reason}
	}
	return x
}

func (responses) status(r *reply) string {
	if r.stop == model.StopLength || r.stop == model.StopRefused {
		return "incomplete"
	}
	return "completed"
}

func (c responses) items(r *reply) (out []m) {
	if r.think != "" {
		i := m{"id": fmt.Sprintf("rs_%d", r.n), "type": "reasoning", "summary": []m{{"type": "summary_text", "text": r.think}}}
		if r.sealed {
			i["encrypted_content"] = seal(r.think)
		}
		out = append(out, i)
	}
	if r.say != "" {
		out = append(out, m{"id": fmt.Sprintf("msg_%d", r.n), "type": "message", "role": "assistant", "status": "completed",
			"content": []m{{"type": "output_text", "text": r.say, "annotations": []m{}, "logprobs": []m{}}}})
	}
	for _, k := range r.calls {
		out = append(out, m{"id": k.item, "type": "function_call", "status": "completed", "call_id": k.id, "name": k.tool, "arguments": k.args})
	}
	return out
}

func (c responses) whole(r *reply) []byte {
	items := c.items(r)
	if items == nil {
		items = []m{}
	}
	return js(c.response(r, c.status(r), items))
}

func (c responses) stream(r *reply, chunk int) (out []frame) {
	seq := 0
	send := func(typ string, x m) {
		x["type"], x["sequence_number"] = typ, seq
		seq++
		out = append(out, frame{event: typ, data: js(x)})
	}
	send("response.created", m{"response": c.response(r, "in_progress", nil)})
	send("response.in_progress", m{"response": c.response(r, "in_progress", nil)})
	items := c.items(r)
	for i, item := range items {
		at := func(x m) m {
			x["output_index"], x["item_id"] = i, item["id"]
			return x
		}
		begun := m{}
		for k, v := range item {
			begun[k] = v
		}
		if _, ok := begun["status"]; ok {
			begun["status"] = "in_progress"
		}
		switch item["type"] {
		case "reasoning":
			begun["summary"] = []m{}
			delete(begun, "encrypted_content")
			send("response.output_item.added", m{"output_index": i, "item": begun})
			send("response.reasoning_summary_part.added", at(m{"summary_index": 0, "part": m{"type": "summary_text", "text": ""}}))
			for _, p := range pieces(r.think, chunk) {
				send("response.reasoning_summary_text.delta", at(m{"summary_index": 0, "delta": p}))
			}
			send("response.reasoning_summary_text.done", at(m{"summary_index": 0, "text": r.think}))
			send("response.reasoning_summary_part.done", at(m{"summary_index": 0, "part": m{"type": "summary_text", "text": r.think}}))
		case "message":
			begun["content"] = []m{}
			send("response.output_item.added", m{"output_index": i, "item": begun})
			send("response.content_part.added", at(m{"content_index": 0, "part": m{"type": "output_text", "text": "", "annotations": []m{}, "logprobs": []m{}}}))
			for _, p := range pieces(r.say, chunk) {
				send("response.output_text.delta", at(m{"content_index": 0, "delta": p, "logprobs": []m{}}))
			}
			send("response.output_text.done", at(m{"content_index": 0, "text": r.say, "logprobs": []m{}}))
			send("response.content_part.done", at(m{"content_index": 0, "part": m{"type": "output_text", "text": r.say, "annotations": []m{}, "logprobs": []m{}}}))
		case "function_call":
			args := item["arguments"].(string)
			begun["arguments"] = ""
			send("response.output_item.added", m{"output_index": i, "item": begun})
			for _, p := range pieces(args, chunk) {
				send("response.function_call_arguments.delta", at(m{"delta": p}))
			}
			send("response.function_call_arguments.done", at(m{"arguments": args, "name": item["name"]}))
		}
		send("response.output_item.done", m{"output_index": i, "item": item})
	}
	if items == nil {
		items = []m{}
	}
	status := c.status(r)
	send("response."+status, m{"response": c.response(r, status, items)})
	return out
}

func (responses) failure(f failure) (int, []byte) {
	status, e := openAIFailure(f)
	return status, js(m{"error": e})
}

func (responses) midError(f failure) []frame {
	_, e := openAIFailure(f)
	code := e["code"]
	if code == nil {
		code = "server_error"
	}
	return []frame{{event: "error", data: js(m{"type": "error", "code": code, "message": e["message"], "param": nil, "sequence_number": 99})}}
}
