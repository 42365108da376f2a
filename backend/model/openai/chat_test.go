package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"glasshouse/backend/model"
)

const chatFrom = "openai-chat:some-model"

func text(s string) model.Part { return model.Part{Kind: model.KindText, Text: s} }

func call(id, tool, args string) model.Part {
	return model.Part{Kind: model.KindCall, Call: &model.Call{ID: id, Tool: tool, Args: args}}
}

func thought(field, s string) model.Part {
	return model.Part{Kind: model.KindThought, Text: s, Opaque: json.RawMessage(fmt.Sprintf(`{"field":%q}`, field)), From: chatFrom}
}

// detailed is a thought that also came in the server's own form.
func detailed(field, s string, details ...string) model.Part {
	p := thought(field, s)
	p.Opaque = json.RawMessage(fmt.Sprintf(`{"field":%q,"details":[%s]}`, field, strings.Join(details, ",")))
	if field == "" {
		p.Opaque = json.RawMessage(fmt.Sprintf(`{"details":[%s]}`, strings.Join(details, ",")))
	}
	return p
}

func TestChatAnswers(t *testing.T) {
	for name, want := range map[string]model.Answer{
		"text": {Parts: []model.Part{text("Grüße, Welt 🌍")}, Stop: model.StopEnd, Served: "gpt-x-2026", ID: "chatcmpl-1",
			Usage: model.Usage{Input: 86, CacheRead: 1920, Output: 300, Reasoning: 256}},
		"reasoning_content": {Parts: []model.Part{thought("reasoning_content", "The test comes first."), text("I run it."), call("call_00_a", "exec", `{"argv":["true"]}`)},
			Stop: model.StopCalls, Served: "deepseek-x", ID: "d1", Usage: model.Usage{Input: 54, CacheRead: 256, Output: 83, Reasoning: 40}},
		"reasoning": {Parts: []model.Part{detailed("reasoning", "Let me see.", `{"index":0,"text":"Let me see.","type":"reasoning.text"}`), text("Done.")}, Stop: model.StopEnd, Served: "vendor/model", ID: "gen-1",
			Usage: model.Usage{Input: 3, CacheRead: 4, CacheWrite: 3, Output: 20, Reasoning: 7}},
		"reasoning_both": {Parts: []model.Part{thought("reasoning_content", "Hm."), text("Yes.")}, Stop: model.StopEnd, Served: "m", ID: "o1"},
		"parallel": {Parts: []model.Part{call("call_A", "file_read", `{"path":"a"}`), call("call_B", "exec", `{"argv":["ls"]}`)}, Stop: model.StopCalls, Served: "m", ID: "c",
			Usage: model.Usage{Input: 50, Output: 30}},
		"refusal":     {Parts: []model.Part{text("I cannot do that.")}, Stop: model.StopRefused, Served: "m", ID: "r"},
		"filter":      {Parts: []model.Part{text("Well")}, Stop: model.StopRefused, Served: "m", ID: "f"},
		"length":      {Parts: []model.Part{call("c1", "file_write", `{"text":"half of`)}, Stop: model.StopLength, Served: "m", ID: "l", Usage: model.Usage{Input: 5, Output: 8192}},
		"usage_every": {Parts: []model.Part{text("abc")}, Stop: model.StopEnd, Served: "m", ID: "u", Usage: model.Usage{Input: 7, Output: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			body := fixture(t, "chat/"+name+".sse")
			forms := map[string][]byte{
				"as it is": body,
				"CRLF":     []byte(strings.ReplaceAll(string(body), "\n", "\r\n")),
				"CR":       []byte(strings.ReplaceAll(string(body), "\n", "\r")),
				"BOM":      append([]byte("\ufeff"), body...),
				"comments": []byte(strings.ReplaceAll(string(body), "data: ", ": keep-alive\n\n:\ndata:")),
				"unknown":  []byte(strings.ReplaceAll(string(body), "data: {", "id: 7\nretry: 10\nfuture: x\ndata: {\"new\":[]}\n\nevent: chunk\ndata: {")),
				"no DONE":  []byte(strings.ReplaceAll(string(body), "data: [DONE]\n\n", "")),
				"bare end": []byte(strings.ReplaceAll(string(body), "data: [DONE]\n\n", "data: [DONE]")),
			}
			for form, b := range forms {
				got, deltas, err := askFixture(t, model.FormatChat, b)
				if err != nil {
					t.Errorf("%s: %v", form, err)
					continue
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\n got %s\nwant %s", form, asJSON(t, got), asJSON(t, want))
				}
				checkDeltas(t, got, deltas)
			}
		})
	}
}

// checkDeltas: what was told of an answer is the answer, in its order.
func checkDeltas(t *testing.T, a model.Answer, ds []model.Delta) {
	t.Helper()
	var told, want [3]string // texts, thoughts, calls
	at := map[model.Kind]int{model.KindText: 0, model.KindThought: 1, model.KindCall: 2}
	tools := []string{}
	for _, d := range ds {
		told[at[d.Kind]] += d.Text
		if d.Tool != "" {
			tools = append(tools, d.Tool)
		}
	}
	calls := 0
	for _, p := range a.Parts {
		if p.Kind == model.KindCall {
			want[2] += p.Call.Args
			calls++
			continue
		}
		want[at[p.Kind]] += p.Text
	}
	if told[0] != want[0] || told[1] != want[1] || len(told[2]) != len(want[2]) || len(tools) != calls {
		t.Errorf("told %q, the answer is %q; tools %q of %d calls", told, want, tools, calls)
	}
}

// chunks makes a stream of deltas and ends it.
func chunks(finish string, deltas ...string) []byte {
	var b strings.Builder
	for _, d := range deltas {
		fmt.Fprintf(&b, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", d)
	}
	fmt.Fprintf(&b, "data: {\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\ndata: [DONE]\n\n", finish)
	return []byte(b.String())
}

func calls(list string) string { return `{"tool_calls":[` + list + `]}` }

// Servers send calls in many ways.
func TestChatCallsOfManyServers(t *testing.T) {
	back := func(p model.Part, opaque string) model.Part {
		p.Opaque, p.From = json.RawMessage(opaque), chatFrom
		return p
	}
	for name, c := range map[string]struct {
		deltas []string
		finish string
		want   []model.Part
	}{
		"whole calls in one delta": {[]string{calls(`{"index":0,"id":"a1","type":"function","function":{"name":"x","arguments":"{\"n\":1}"}},{"index":1,"id":"a2","function":{"name":"y","arguments":"{}"}}`)}, "tool_calls",
			[]model.Part{call("a1", "x", `{"n":1}`), call("a2", "y", "{}")}},
		"finish reason stop":        {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}`)}, "stop", []model.Part{call("a1", "x", "{}")}},
		"no index, whole":           {[]string{calls(`{"id":"a1","function":{"name":"x","arguments":"{}"}},{"id":"a2","function":{"name":"x","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}"), call("a2", "x", "{}")}},
		"no index, in pieces":       {[]string{calls(`{"id":"a1","function":{"name":"x","arguments":""}}`), calls(`{"function":{"arguments":"{\"a\""}}`), calls(`{"function":{"arguments":":1}"}}`), calls(`{"id":"a2","function":{"name":"y","arguments":""}}`), calls(`{"function":{"arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", `{"a":1}`), call("a2", "y", "{}")}},
		"no index, no id":           {[]string{calls(`{"function":{"name":"x","arguments":"{}"}}`), calls(`{"function":{"name":"y","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("call_1", "x", "{}"), call("call_2", "y", "{}")}},
		"no index, id repeated":     {[]string{calls(`{"id":"a1","function":{"name":"x","arguments":""}}`), calls(`{"id":"a1","function":{"arguments":"{"}}`), calls(`{"id":"a1","function":{"arguments":"}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}")}},
		"id in the first piece":     {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x"}}`), calls(`{"index":0,"id":"","function":{"arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}")}},
		"id and name in all":        {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":""}}`), calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{\"a\":"}}`), calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"1}"}}`)}, "tool_calls", []model.Part{call("a1", "x", `{"a":1}`)}},
		"another id in each piece":  {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":""}}`), calls(`{"index":0,"id":"b7","function":{"arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}")}},
		"name in pieces":            {[]string{calls(`{"index":0,"id":"a1","function":{"name":"file_"}}`), calls(`{"index":0,"function":{"name":"read"}}`), calls(`{"index":0,"function":{"arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "file_read", "{}")}},
		"no arguments":              {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x"}}`), calls(`{"index":1,"id":"a2","function":{"name":"y","arguments":null}}`)}, "tool_calls", []model.Part{call("a1", "x", ""), call("a2", "y", "")}},
		"arguments as an object":    {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":{"a":[1, 2]}}}`)}, "tool_calls", []model.Part{call("a1", "x", `{"a":[1, 2]}`)}},
		"all of index 0":            {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}`), calls(`{"index":0,"id":"a2","function":{"name":"x","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}"), call("a2", "x", "{}")}},
		"all of index 0, in pieces": {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x"}}`), calls(`{"index":0,"id":"a2","function":{"name":"x"}}`), calls(`{"index":0,"function":{"arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", ""), call("a2", "x", "{}")}},
		"all of index 0, no id":     {[]string{calls(`{"index":0,"function":{"name":"x","arguments":"{}"}}`), calls(`{"index":0,"function":{"name":"x","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("call_1", "x", "{}"), call("call_2", "x", "{}")}},
		"index 0 in one delta":      {[]string{calls(`{"index":0,"function":{"name":"x"}},{"index":0,"function":{"name":"y"}}`)}, "tool_calls", []model.Part{call("call_1", "x", ""), call("call_2", "y", "")}},
		"the same id twice":         {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}`), calls(`{"index":1,"id":"a1","function":{"name":"y","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}"), back(call("a1_2", "y", "{}"), `{"id":"a1"}`)}},
		"an id that is taken":       {[]string{calls(`{"index":0,"id":"call_2","function":{"name":"x","arguments":"{}"}}`), calls(`{"index":1,"function":{"name":"y","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("call_2", "x", "{}"), call("call_2_2", "y", "{}")}},
		"an id with spaces":         {[]string{calls(`{"index":0,"id":"a b","function":{"name":"x","arguments":"{}"}}`)}, "tool_calls", []model.Part{back(call("call_1", "x", "{}"), `{"id":"a b"}`)}},
		"an odd id":                 {[]string{calls(`{"index":0,"id":"functions.exec:0","function":{"name":"x","arguments":"{}"}}`)}, "tool_calls", []model.Part{call("functions.exec:0", "x", "{}")}},
		"far and negative indexes":  {[]string{calls(`{"index":9007199254740991,"id":"a1","function":{"name":"x","arguments":"{"}},{"index":-5,"id":"a2","function":{"name":"y","arguments":"{}"}}`), calls(`{"index":9007199254740991,"function":{"arguments":"}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}"), call("a2", "y", "{}")}},
		"index as a string":         {[]string{calls(`{"index":"1","id":"a1","function":{"name":"x","arguments":"{"}}`), calls(`{"index":"1","function":{"arguments":"}"}}`)}, "tool_calls", []model.Part{call("a1", "x", "{}")}},
		"a signature":               {[]string{calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}}`)}, "tool_calls", []model.Part{back(call("a1", "x", "{}"), `{"extra_content":{"google":{"thought_signature":"c2ln"}}}`)}},
		"text between":              {[]string{`{"content":"one"}`, calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}`), `{"content":"two"}`}, "tool_calls", []model.Part{text("one"), call("a1", "x", "{}"), text("two")}},
		"a list of pieces":          {[]string{`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`, `{"content":[{"type":"text","text":"yes"},{"type":"future"}]}`}, "stop", []model.Part{{Kind: model.KindThought, Text: "hm"}, text("yes")}},
		"nothing at all":            {[]string{`{}`, `{"content":null,"tool_calls":null}`, `{"tool_calls":[]}`}, "tool_calls", nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, ds, err := askFixture(t, model.FormatChat, chunks(c.finish, c.deltas...))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a.Parts, c.want) {
				t.Errorf("\n got %s\nwant %s", asJSON(t, a.Parts), asJSON(t, c.want))
			}
			wantStop := model.StopEnd
			if len(a.Calls()) > 0 {
				wantStop = model.StopCalls
			}
			if a.Stop != wantStop {
				t.Errorf("stop %q, want %q", a.Stop, wantStop)
			}
			checkDeltas(t, a, ds)
		})
	}
}

func TestChatFinishReasons(t *testing.T) {
	for finish, want := range map[string]model.Stop{"stop": model.StopEnd, "eos": model.StopEnd, "length": model.StopLength, "MAX_TOKENS": model.StopLength,
		"content_filter": model.StopRefused, "sensitive": model.StopRefused, "tool_calls": model.StopEnd} {
		a, _, err := askFixture(t, model.FormatChat, chunks(finish, `{"content":"x"}`))
		if err != nil || a.Stop != want {
			t.Errorf("%s: stop %q, error %v; want %q", finish, a.Stop, err, want)
		}
	}
	for finish, want := range map[string]model.ErrorKind{"error": model.ErrServer, "network_error": model.ErrServer, "insufficient_system_resource": model.ErrBusy} {
		_, _, err := askFixture(t, model.FormatChat, chunks(finish, `{"content":"x"}`))
		if e := modelError(t, err); e.Kind != want {
			t.Errorf("%s: %v, want %s", finish, err, want)
		}
	}
}

func TestChatUsage(t *testing.T) {
	for raw, want := range map[string]model.Usage{
		`null`: {}, `{}`: {}, `"many"`: {}, `{"prompt_tokens":null}`: {},
		`{"prompt_tokens":10,"completion_tokens":5}`:                                                                                                 {Input: 10, Output: 5},
		`{"prompt_tokens":"10","completion_tokens":"5"}`:                                                                                             {Input: 10, Output: 5},
		`{"prompt_tokens":-10,"completion_tokens":-5,"prompt_tokens_details":{"cached_tokens":-1}}`:                                                  {},
		`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":11},"completion_tokens_details":{"reasoning_tokens":6}}`: {CacheRead: 10, Output: 5, Reasoning: 5},
		`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":null,"completion_tokens_details":null}`:                                   {Input: 10, Output: 5},
		`{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}`:                          {Input: 32, Output: 103, Reasoning: 94},
		`{"prompt_tokens":1e300,"completion_tokens":9}`:                                                                                              {Input: 1 << 40, Output: 9},
	} {
		body := fmt.Sprintf("data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":%s}\n\ndata: [DONE]\n\n", raw)
		a, _, err := askFixture(t, model.FormatChat, []byte(body))
		if err != nil || a.Usage != want {
			t.Errorf("%s: %+v, %v; want %+v", raw, a.Usage, err, want)
		}
	}
}

// An answer that comes at once, although a stream was asked for.
func TestChatWithoutAStream(t *testing.T) {
	const whole = `  {"id":"w","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Look:","reasoning_content":"hm","tool_calls":[
		{"id":"a1","type":"function","function":{"name":"x","arguments":"{}"}},{"id":"a2","type":"function","function":{"name":"x","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(whole))
	})
	a, ds, err := ask(t, config(model.FormatChat, s.URL), hello())
	if err != nil {
		t.Fatal(err)
	}
	want := model.Answer{Parts: []model.Part{thought("reasoning_content", "hm"), text("Look:"), call("a1", "x", "{}"), call("a2", "x", `{"a":1}`)},
		Stop: model.StopCalls, Usage: model.Usage{Input: 3, Output: 4}, Served: "m", ID: "w"}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("\n got %s\nwant %s", asJSON(t, a), asJSON(t, want))
	}
	checkDeltas(t, a, ds)
}

func TestTheRequestsIDStandsInForTheAnswers(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "req_7")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	})
	a, _, err := ask(t, config(model.FormatChat, s.URL), hello())
	if err != nil || a.ID != "req_7" {
		t.Errorf("id %q, error %v", a.ID, err)
	}
}
