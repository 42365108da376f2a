package openai

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"glasshouse/backend/model"
)

func FuzzChat(f *testing.F)      { fuzz(f, model.FormatChat, "chat") }
func FuzzResponses(f *testing.F) { fuzz(f, model.FormatResponses, "responses") }

// Whatever a server sends, the answer keeps the contract or the error has a kind.
func fuzz(f *testing.F, format model.Format, folder string) {
	names, err := filepath.Glob(filepath.Join("testdata", folder, "*.sse"))
	if err != nil || len(names) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"id":"w","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}`))
	f.Add([]byte(`{"id":"w","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`))
	// Short ones, which a fuzzer changes more to the point.
	for _, d := range []string{`{"content":"a"}`, `{"reasoning":"a"}`, `{"refusal":"a"}`, `{"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":"{}"}}]}`,
		`{"tool_calls":[{"id":"a","function":{"name":"b"}},{"id":"a","function":{"name":"c","arguments":"1"}}]}`, `{"content":[{"type":"text","text":"a"}]}`} {
		f.Add([]byte(`data: {"choices":[{"delta":` + d + `,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}` + "\n\n"))
	}
	for _, o := range []string{`{"type":"message","content":[{"type":"refusal","refusal":"a"}]}`, `{"type":"reasoning","encrypted_content":"a"}`, `{"type":"function_call","call_id":"a","name":"b","arguments":{}}`} {
		f.Add([]byte(`data: {"type":"response.done","response":{"status":"incomplete","output":[` + o + `]}}` + "\n\n"))
		f.Add([]byte(`data: {"type":"response.output_item.done","item":` + o + "}\n\ndata: {\"type\":\"response.completed\"}\n\n"))
	}
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"x\",\"arguments\":{}}}]},\"finish_reason\":\"stop\"}]}\r\rdata:[DONE]"))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decode(t.Context(), bytes.NewReader(body), newReader(format, func(d model.Delta) {
			if !utf8.ValidString(d.Text) || !utf8.ValidString(d.Tool) || d.Text == "" && d.Tool == "" && d.Kind != model.KindCall {
				t.Errorf("told %#v", d)
			}
		}))
		b, err2 := decode(t.Context(), iotest.OneByteReader(bytes.NewReader(body)), newReader(format, nil))
		if !reflect.DeepEqual(a, b) || (err == nil) != (err2 == nil) {
			t.Errorf("in one piece %v, %v; in bytes %v, %v", a, err, b, err2)
		}
		if err != nil {
			var e *model.Error
			var fl *failure
			switch {
			case errors.As(err, &e):
			case errors.As(err, &fl):
				e = fl.error(200, nil, "")
			default:
				t.Fatalf("error %T: %v", err, err)
			}
			if e.Kind == "" || e.Message == "" || !utf8.ValidString(e.Message) || e.RetryAfter < 0 {
				t.Errorf("%#v", e)
			}
			return
		}
		checkAnswer(t, a)
	})
}

func checkAnswer(t *testing.T, a model.Answer) {
	t.Helper()
	size, ids := 0, map[string]bool{}
	for _, p := range a.Parts {
		size += len(p.Text)
		if !utf8.ValidString(p.Text) || (p.Opaque == nil) != (p.From == "") {
			t.Errorf("part %#v", p)
		}
		switch p.Kind {
		case model.KindCall:
			c := p.Call
			size += len(c.Args) + len(c.Tool)
			if ids[c.ID] || c.ID == "" || !utf8.ValidString(c.ID+c.Args+c.Tool) {
				t.Errorf("call %#v", c)
			}
			ids[c.ID] = true
		case model.KindText, model.KindThought:
			if p.Text == "" && p.Opaque == nil {
				t.Errorf("an empty part: %#v", p)
			}
		default:
			t.Errorf("a part of kind %q", p.Kind)
		}
	}
	// Bytes that are no UTF-8 grow to three each.
	if size > 3*maxAnswer {
		t.Errorf("an answer of %d bytes", size)
	}
	u := a.Usage
	if u.Input < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.Output < 0 || u.Reasoning < 0 || u.Reasoning > u.Output {
		t.Errorf("usage %+v", u)
	}
	switch a.Stop {
	case model.StopEnd, model.StopLength, model.StopRefused:
	case model.StopCalls:
		if len(ids) == 0 {
			t.Error("it waits for calls and has none")
		}
	default:
		t.Errorf("stop %q", a.Stop)
	}
	if !utf8.ValidString(a.Served + a.ID) {
		t.Errorf("served %q, id %q", a.Served, a.ID)
	}
}
