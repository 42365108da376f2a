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

const responsesFrom = "openai-responses:some-model"

func TestResponsesAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		want   model.Answer
		deltas []model.Delta
	}{
		"text": {
			model.Answer{Parts: []model.Part{text("Grüße, Welt 🌍")}, Stop: model.StopEnd, Served: "gpt-x-2026", ID: "resp_1", Usage: model.Usage{Input: 86, CacheRead: 1920, Output: 300, Reasoning: 256}},
			[]model.Delta{{Kind: model.KindText, Text: "Grüße, "}, {Kind: model.KindText, Text: "Welt 🌍"}}},
		"calls": {
			model.Answer{Parts: []model.Part{
				{Kind: model.KindThought, Text: "First the test.\n\nThen the fix.", From: responsesFrom,
					Opaque: json.RawMessage(`{"id":"rs_1","summary":["First the test.","Then the fix."],"encrypted_content":"gAAAAB-sealed"}`)},
				{Kind: model.KindText, Text: "I look.", From: responsesFrom, Opaque: json.RawMessage(`{"phase":"commentary"}`)},
				call("call_A", "file_read", `{"path":"a"}`), call("call_B", "exec", ""),
			}, Stop: model.StopCalls, Served: "gpt-x", ID: "resp_2", Usage: model.Usage{Input: 32, CacheWrite: 8, Output: 60, Reasoning: 20}},
			[]model.Delta{{Kind: model.KindThought, Text: "First the test."}, {Kind: model.KindThought, Text: "\n\n"}, {Kind: model.KindThought, Text: "Then the fix."},
				{Kind: model.KindCall, Tool: "file_read", Text: `{"path":`}, {Kind: model.KindCall, Text: `"a"}`}, {Kind: model.KindCall, Tool: "exec"}}},
		"refusal": {
			model.Answer{Parts: []model.Part{text("I cannot do that.")}, Stop: model.StopRefused, Served: "m", ID: "resp_3", Usage: model.Usage{Input: 1, Output: 2}},
			[]model.Delta{{Kind: model.KindText, Text: "I cannot do that."}}},
		"length": {
			model.Answer{Parts: []model.Part{text("half")}, Stop: model.StopLength, Served: "m", ID: "resp_4", Usage: model.Usage{Input: 1, Output: 16}},
			[]model.Delta{{Kind: model.KindText, Text: "half"}}},
		"filter": {model.Answer{Stop: model.StopRefused, Served: "m", ID: "resp_5", Usage: model.Usage{Input: 1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			body := string(fixture(t, "responses/"+name+".sse"))
			for form, b := range map[string]string{
				"as it is": body,
				"CRLF":     strings.ReplaceAll(body, "\n", "\r\n"),
				"comments": strings.ReplaceAll(body, "event: ", ": keep-alive\n\nevent:"),
				"no names": strings.ReplaceAll(body, "event: ", "id: "),
				"unknown":  "event: response.future\ndata: {\"type\":\"response.future\",\"delta\":[1],\"response\":7,\"item\":\"x\"}\n\n" + body + "garbage",
			} {
				got, ds, err := askFixture(t, model.FormatResponses, []byte(b))
				if err != nil {
					t.Errorf("%s: %v", form, err)
					continue
				}
				if !reflect.DeepEqual(got, c.want) {
					t.Errorf("%s:\n got %s\nwant %s", form, asJSON(t, got), asJSON(t, c.want))
				}
				if !reflect.DeepEqual(ds, c.deltas) {
					t.Errorf("%s: deltas\n got %v\nwant %v", form, ds, c.deltas)
				}
			}
		})
	}
}

// completed makes a stream whose only event is the end.
func completed(response string) []byte {
	return []byte("event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":" + response + "}\n\n")
}

func TestResponsesItems(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		want   []model.Part
		stop   model.Stop
	}{
		"text of several pieces": {`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}`, []model.Part{text("ab")}, model.StopEnd},
		"text and refusal":       {`{"type":"message","content":[{"type":"output_text","text":"a "},{"type":"refusal","refusal":"no"}]}`, []model.Part{text("a no")}, model.StopRefused},
		"thoughts themselves":    {`{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}`, []model.Part{{Kind: model.KindThought, Text: "hm"}}, model.StopEnd},
		"a sealed thought": {`{"type":"reasoning","id":"r","summary":[],"encrypted_content":"x"},{"type":"reasoning","id":"s","summary":[],"encrypted_content":"y"}`,
			[]model.Part{{Kind: model.KindThought, From: responsesFrom, Opaque: json.RawMessage(`{"id":"r","encrypted_content":"x"}`)}, {Kind: model.KindThought, From: responsesFrom, Opaque: json.RawMessage(`{"id":"s","encrypted_content":"y"}`)}}, model.StopEnd},
		"an empty thought":    {`{"type":"reasoning","id":"r","summary":[]}`, nil, model.StopEnd},
		"no call id":          {`{"type":"function_call","id":"fc_1","name":"x","arguments":"{}"},{"type":"function_call","name":"x","arguments":"{}"}`, []model.Part{call("fc_1", "x", "{}"), call("call_2", "x", "{}")}, model.StopCalls},
		"object arguments":    {`{"type":"function_call","call_id":"a","name":"x","arguments":{"a":1}}`, []model.Part{call("a", "x", `{"a":1}`)}, model.StopCalls},
		"kinds not asked for": {`{"type":"web_search_call","id":"w","status":"completed"},{"type":"future","x":1},7,null,"s"`, nil, model.StopEnd},
	} {
		a, _, err := askFixture(t, model.FormatResponses, completed(`{"id":"r","status":"completed","model":"m","output":[`+c.output+`]}`))
		if err != nil || !reflect.DeepEqual(a.Parts, c.want) || a.Stop != c.stop {
			t.Errorf("%s: stop %q, error %v\n got %s\nwant %s", name, a.Stop, err, asJSON(t, a.Parts), asJSON(t, c.want))
		}
	}
}

func TestResponsesWithoutAStream(t *testing.T) {
	body := `{"id":"w","object":"response","status":"completed","error":null,"model":"m","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":3,"output_tokens":4}}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
	a, _, err := ask(t, config(model.FormatResponses, s.URL), hello())
	want := model.Answer{Parts: []model.Part{text("x")}, Stop: model.StopEnd, Usage: model.Usage{Input: 3, Output: 4}, Served: "m", ID: "w"}
	if err != nil || !reflect.DeepEqual(a, want) {
		t.Errorf("error %v\n got %s\nwant %s", err, asJSON(t, a), asJSON(t, want))
	}
}

func TestResponsesFailures(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind model.ErrorKind
		text string
		wait string
	}{
		"failed":         {string(fixture(t, "responses/failed.sse")), model.ErrRate, "Rate limit reached", "1.898s"},
		"error":          {string(fixture(t, "responses/error.sse")), model.ErrTooLong, "context window", "0s"},
		"error, nested":  {"data: {\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"code\":\"server_is_overloaded\",\"message\":\"busy\"}}\n\n", model.ErrBusy, "busy", "0s"},
		"error, bare":    {"event: error\ndata: {\"message\":\"no more money\",\"code\":\"insufficient_quota\"}\n\n", model.ErrQuota, "no more money", "0s"},
		"no reason":      {"data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}\n\n", model.ErrServer, "without a reason", "0s"},
		"no type":        {"data: {\"error\":{\"message\":\"boom\"}}\n\n", model.ErrServer, "boom", "0s"},
		"whole, failed":  {`{"object":"response","status":"failed","error":{"code":"server_error","message":"boom"},"output":[]}`, model.ErrServer, "boom", "0s"},
		"whole, put off": {`{"object":"response","status":"queued","error":null,"output":[]}`, model.ErrProtocol, "queued", "0s"},
		"not an answer":  {`{"hello":"world"}`, model.ErrProtocol, "is the address right", "0s"},
	} {
		_, _, err := askFixture(t, model.FormatResponses, []byte(c.body))
		e := modelError(t, err)
		if e.Kind != c.kind || !strings.Contains(e.Message, c.text) || fmt.Sprint(e.RetryAfter) != c.wait || e.Status != 0 {
			t.Errorf("%s: %+v, want %s %q after %s", name, e, c.kind, c.text, c.wait)
		}
	}
}
