package modeltest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

const job = `
chunk: 5
answers:
  - think: "Two files at once: größer is schneller."
    say: I read both.
    calls:
      - {tool: read, args: {path: a.txt}}
      - {tool: read, args: {path: "b ${i}.txt"}, id: mine}
  - expect: {has: [alpha, beta], has_not: [gamma], results: 2, roles: [user, assistant, tool]}
    capture: {ref: 'beta \[(\w+)\]'}
    calls: [{tool: read, args: {path: "${ref}"}}]
  - expect: {matches: ["^third"], tools: [read], all: [I read both.]}
    say: Done with ${ref}.
`

func TestClientsOfTheMakers(t *testing.T) {
	each(t, job, modeltest.Options{Key: key}, func(t *testing.T, srv *modeltest.Server, c talker, stream bool) {
		c.user("read them")
		ans, err := c.ask(stream)
		a := must(t, ans, err)
		if a.Text != "I read both." || len(a.Calls) != 2 || !sameJSON(a.Calls[0].Args, `{"path":"a.txt"}`) || a.Calls[1].ID != "mine" || !sameJSON(a.Calls[1].Args, `{"path":"b 1.txt"}`) {
			t.Fatalf("%+v", a)
		}
		sum := a.Usage
		c.result(a.Calls[0].ID, "alpha "+strings.Repeat("text ", 2000))
		c.result(a.Calls[1].ID, "beta [e7]")
		ans, err = c.ask(stream)
		a = must(t, ans, err)
		if len(a.Calls) != 1 || !sameJSON(a.Calls[0].Args, `{"path":"e7"}`) {
			t.Fatalf("%+v", a)
		}
		sum = sum.Plus(a.Usage)
		c.result(a.Calls[0].ID, "third")
		ans, err = c.ask(stream)
		a = must(t, ans, err)
		if a.Text != "Done with e7." || len(a.Calls) != 0 {
			t.Fatalf("%+v", a)
		}
		// All but the newest was read before.
		if a.Usage.CacheRead < 2000 || a.Usage.Input+a.Usage.CacheWrite > 1000 {
			t.Errorf("the cache was not reported: %+v", a.Usage)
		}
		sum = sum.Plus(a.Usage)
		want := srv.Usage()
		if srv.Requests()[0].Format == model.FormatMessages {
			want.Reasoning = 0 // the format does not tell
		}
		if sum != want {
			t.Errorf("the client counted %+v, the server %+v", sum, want)
		}
		if f := srv.Faults(); len(f) > 0 {
			t.Errorf("faults: %v", f)
		}
		if srv.Left() != 0 || srv.Captured("ref") != "e7" {
			t.Errorf("left %d, captured %q", srv.Left(), srv.Captured("ref"))
		}
		for _, r := range srv.Requests() {
			if !r.Whole || !strings.Contains(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), key) {
				t.Errorf("request %d: whole %v, headers %v", r.Number, r.Whole, r.Header)
			}
		}
		// There is no fourth.
		c.user("more")
		if _, err := c.ask(stream); err == nil {
			t.Error("an answer came after the last")
		}
		if f := srv.Faults(); len(f) != 1 || f[0].Kind != "script" {
			t.Errorf("faults: %v", f)
		}
	})
}

func TestFailuresInTheFormatsOwnWords(t *testing.T) {
	kinds := []string{"auth", "quota", "rate", "busy", "server", "too_long", "invalid", "not_found"}
	script := "answers:\n"
	for _, k := range kinds {
		script += "  - fail: {kind: " + k + ", retry_after: \"7\"}\n"
	}
	script += "  - fail: {status: 418, body: '{\"odd\": true}'}\n"
	each(t, script, modeltest.Options{}, func(t *testing.T, srv *modeltest.Server, c talker, stream bool) {
		c.user("hello")
		for _, k := range kinds {
			_, err := c.ask(stream)
			if err == nil {
				t.Fatalf("%s: no error", k)
			}
			status, text := c.status(err)
			if status < 400 {
				t.Errorf("%s: %v", k, err)
			}
			if k == "auth" && (status != 401 || !strings.Contains(text, key)) {
				t.Errorf("the key is not quoted: %d %s", status, text)
			}
			if k == "rate" && status != 429 {
				t.Errorf("rate: %d", status)
			}
		}
		if _, err := c.ask(stream); err == nil {
			t.Fatal("no error")
		} else if status, _ := c.status(err); status != 418 {
			t.Errorf("status %d", status)
		}
		if f := srv.Faults(); len(f) > 0 {
			t.Errorf("what the script wants is no fault: %v", f)
		}
	})
}

func TestBrokenStreams(t *testing.T) {
	for name, script := range map[string]string{
		"events":    "answers: [{say: \"a long text that is never heard to its end\", cut: {after_events: 4}}]",
		"bytes":     "answers: [{say: \"a long text that is never heard to its end\", cut: {after_bytes: 100}}]",
		"closed":    "answers: [{say: \"a long text that is never heard to its end\", cut: {after_events: 4, how: close}}]",
		"mid error": "answers: [{say: \"a long text that is never heard to its end\", mid_error: {kind: busy, after_events: 4}}]",
	} {
		t.Run(name, func(t *testing.T) {
			each(t, script, modeltest.Options{}, func(t *testing.T, srv *modeltest.Server, c talker, stream bool) {
				c.user("hello")
				if _, err := c.ask(stream); err == nil {
					t.Error("a broken answer was taken for a whole one")
				}
				if srv.Usage() != (model.Usage{}) || srv.Requests()[0].Whole {
					t.Errorf("it counts as answered: %+v", srv.Usage())
				}
			})
		})
	}
}

// post sends a body as it is.
func post(t *testing.T, srv *modeltest.Server, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", srv.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if path == "/messages" {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const (
	chatTool     = `"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}]`
	respTool     = `"tools":[{"type":"function","name":"read","parameters":{"type":"object"}}]`
	messagesTool = `"tools":[{"name":"read","input_schema":{"type":"object"}}]`
)

func TestStrict(t *testing.T) {
	call := `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}]}`
	use := `{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"read","input":{}}]}`
	for _, c := range []struct{ name, path, body, want string }{
		{"good", "/chat/completions", `{"model":"x",` + chatTool + `,"messages":[{"role":"user","content":"a"},` + call + `,{"role":"tool","tool_call_id":"c1","content":"r"}]}`, ""},
		{"no model", "/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, "model"},
		{"role", "/chat/completions", `{"model":"x","messages":[{"role":"robot","content":"a"}]}`, "Invalid value: 'robot'"},
		{"orphan", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"},{"role":"tool","tool_call_id":"c1","content":"r"}]}`, "preceding message"},
		{"missing", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"},` + call + `,{"role":"user","content":"b"}]}`, "c1"},
		{"missing at the end", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"},` + call + `]}`, "c1"},
		{"twice", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"},` + call + `,{"role":"tool","tool_call_id":"c1","content":"r"},{"role":"tool","tool_call_id":"c1","content":"r"}]}`, "preceding"},
		{"arguments", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"},` + strings.Replace(call, `"{}"`, `"{oops"`, 1) + `,{"role":"tool","tool_call_id":"c1","content":"r"}]}`, "arguments"},
		{"empty", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":""}]}`, "empty"},
		{"no tools", "/chat/completions", `{"model":"x","tools":[],"messages":[{"role":"user","content":"a"}]}`, "too short"},
		{"choice alone", "/chat/completions", `{"model":"x","tool_choice":"none","messages":[{"role":"user","content":"a"}]}`, "only allowed"},
		{"schema", "/chat/completions", `{"model":"x","tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"a":{"type":"strin"}}}}}],"messages":[{"role":"user","content":"a"}]}`, "Invalid schema"},
		{"tool name", "/chat/completions", `{"model":"x","tools":[{"type":"function","function":{"name":"a.b"}}],"messages":[{"role":"user","content":"a"}]}`, "pattern"},
		{"unknown", "/chat/completions", `{"model":"x","colour":1,"messages":[{"role":"user","content":"a"}]}`, "colour"},
		{"answer last", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, "last message"},

		{"good", "/responses", `{"model":"x",` + respTool + `,"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c1","name":"read","arguments":"{oops"},{"type":"function_call_output","call_id":"c1","output":"r"}]}`, ""},
		{"orphan", "/responses", `{"model":"x","input":[{"role":"user","content":"a"},{"type":"function_call_output","call_id":"c1","output":"r"}]}`, "No tool call found"},
		{"missing", "/responses", `{"model":"x","input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c1","name":"read","arguments":"{}"}]}`, "No tool output found"},
		{"foreign thought", "/responses", `{"model":"x","input":[{"role":"user","content":"a"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"zzz"},{"role":"assistant","content":"b"},{"role":"user","content":"a"}]}`, "could not be verified"},
		{"thought alone", "/responses", `{"model":"x","input":[{"role":"user","content":"a"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"` + modeltest.Seal("") + `"},{"role":"user","content":"a"}]}`, "without its required following item"},
		{"unkept thought", "/responses", `{"model":"x","input":[{"role":"user","content":"a"},{"type":"reasoning","id":"rs_1","summary":[]},{"role":"assistant","content":"b"},{"role":"user","content":"a"}]}`, "not found"},
		{"input text of the assistant", "/responses", `{"model":"x","input":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"input_text","text":"b"}]},{"role":"user","content":"a"}]}`, "output_text"},
		{"few tokens", "/responses", `{"model":"x","max_output_tokens":5,"input":"a"}`, "16"},
		{"before", "/responses", `{"model":"x","previous_response_id":"r1","input":"a"}`, "not found"},
		{"strict schema", "/responses", `{"model":"x","tools":[{"type":"function","name":"read","strict":true,"parameters":{"type":"object"}}],"input":"a"}`, "additionalProperties"},

		{"good", "/messages", `{"model":"x","max_tokens":9,` + messagesTool + `,"messages":[{"role":"user","content":"a"},` + use + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r"},{"type":"text","text":"b"}]}]}`, ""},
		{"no max_tokens", "/messages", `{"model":"x","messages":[{"role":"user","content":"a"}]}`, "max_tokens: Field required"},
		{"orphan", "/messages", `{"model":"x","max_tokens":9,` + messagesTool + `,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r"}]}]}`, "unexpected `tool_use_id`"},
		{"missing", "/messages", `{"model":"x","max_tokens":9,` + messagesTool + `,"messages":[{"role":"user","content":"a"},` + use + `,{"role":"user","content":"b"}]}`, "without `tool_result`"},
		{"order", "/messages", `{"model":"x","max_tokens":9,` + messagesTool + `,"messages":[{"role":"user","content":"a"},` + use + `,{"role":"user","content":[{"type":"text","text":"b"},{"type":"tool_result","tool_use_id":"c1","content":"r"}]}]}`, "tool_result"},
		{"no tools", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},` + use + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r"}]}]}`, "must define tools"},
		{"alternate", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`, "alternate"},
		{"first", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"assistant","content":"a"},{"role":"user","content":"b"}]}`, "first message"},
		{"last", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, "prefill"},
		{"empty", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":""}]}]}`, "non-empty"},
		{"blank", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":" \n"}]}]}`, "non-whitespace"},
		{"system role", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"system","content":"a"}]}`, "Unexpected role"},
		{"foreign thought", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"zzz"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`, "signature"},
		{"lost thought", "/messages", `{"model":"x","max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":1024},` + messagesTool + `,"messages":[{"role":"user","content":"a"},` + use + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r"}]}]}`, "must start with a thinking block"},
		{"five marks", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},`, 5), ",") + `]}]}`, "maximum of 4"},
		{"input", "/messages", `{"model":"x","max_tokens":9,` + messagesTool + `,"messages":[{"role":"user","content":"a"},` + strings.Replace(use, `"input":{}`, `"input":"{}"`, 1) + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r"}]}]}`, "dictionary"},
		{"unknown", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a","name":"b"}]}`, "Extra inputs"},
		{"picture", "/messages", `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGVsbG8="}}]}]}`, "appears to be"},
	} {
		t.Run(strings.Trim(c.path, "/")+"/"+c.name, func(t *testing.T) {
			srv := modeltest.Text(t, "answers: [{say: fine}]")
			status, body := post(t, srv, c.path, c.body)
			if c.want == "" {
				if status != 200 || len(srv.Faults()) > 0 {
					t.Fatalf("%d %s %v", status, body, srv.Faults())
				}
				return
			}
			var e struct {
				Error struct {
					Message string `json:"message"`
					Type    string `json:"type"`
				} `json:"error"`
			}
			if err := json.Unmarshal([]byte(body), &e); err != nil || status < 400 || e.Error.Type == "" {
				t.Fatalf("%d %s", status, body)
			}
			if !strings.Contains(e.Error.Message, c.want) {
				t.Errorf("it says %q, not %q", e.Error.Message, c.want)
			}
			if f := srv.Faults(); len(f) != 1 || f[0].Kind != "refused" {
				t.Errorf("faults: %v", f)
			}
			if srv.Left() != 1 {
				t.Error("a refused request took an answer")
			}
		})
	}
}

func TestSummaryPlainAndKeyed(t *testing.T) {
	srv := modeltest.Text(t, `
summary: In short.
plain: I am here.
keyed:
  - match: {has: [weather]}
    times: 1
    say: Rain.
answers: [{say: first}, {say: second}]
`)
	tooled := func(extra, text string) string {
		return `{"model":"x","max_tokens":99,` + messagesTool + extra + `,"messages":[{"role":"user","content":"` + text + `"}]}`
	}
	for _, c := range []struct{ path, body, want string }{
		{"/messages", tooled("", "a"), "first"},
		{"/messages", tooled(`,"tool_choice":{"type":"none"}`, "sum up"), "In short."},
		{"/chat/completions", `{"model":"x",` + chatTool + `,"tool_choice":"none","messages":[{"role":"user","content":"a"}]}`, "In short."},
		{"/responses", `{"model":"x",` + respTool + `,"tool_choice":"none","input":"a"}`, "In short."},
		{"/responses", `{"model":"x","input":"a"}`, "I am here."},
		{"/messages", tooled("", "the weather"), "Rain."},
		{"/messages", tooled("", "the weather"), "second"},
	} {
		if status, body := post(t, srv, c.path, c.body); status != 200 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, not %q", c.path, status, body, c.want)
		}
	}
	if f := srv.Faults(); len(f) > 0 {
		t.Error(f)
	}
}

func TestUnmetExpectationIsRefusedAndKept(t *testing.T) {
	srv := modeltest.Text(t, "answers:\n  - say: first\n  - expect: {has: [apples], system: [orchard]}\n    say: second\n")
	body := `{"model":"x","messages":[{"role":"user","content":"pears"}]}`
	if status, _ := post(t, srv, "/chat/completions", body); status != 200 {
		t.Fatal(status)
	}
	status, text := post(t, srv, "/chat/completions", body)
	f := srv.Faults()
	if status != 400 || len(f) != 1 || f[0].Kind != "expect" || f[0].Request != 2 || !strings.Contains(text, "line 3") || !strings.Contains(f[0].Text, "apples") {
		t.Errorf("%d %s %v", status, text, f)
	}
}

func TestContextAndKey(t *testing.T) {
	srv := modeltest.Text(t, "context: 1000\nanswers: [{say: a}]", modeltest.Options{Key: key, Record: filepath.Join(t.TempDir(), "rec")})
	c := talkers(srv)[model.FormatMessages]
	c.user(strings.Repeat("word ", 1000))
	_, err := c.ask(true)
	if err == nil {
		t.Fatal("no error")
	}
	if status, text := c.status(err); status != 400 || !strings.Contains(text, "prompt is too long") {
		t.Error(status, text)
	}
	// Without the key it says which one came.
	status, text := post(t, srv, "/chat/completions", `{}`)
	if f := srv.Faults(); status != 401 || len(f) != 2 || f[0].Kind != "too_long" || f[1].Kind != "auth" {
		t.Error(status, text, f)
	}
}

func TestReplay(t *testing.T) {
	srv := modeltest.Text(t, "replay: true\nanswers: [{say: first}, {say: second}]")
	ask := func(text string) string {
		_, body := post(t, srv, "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"`+text+`"}]}`)
		return body
	}
	if a, b, c := ask("a"), ask("a"), ask("b"); !strings.Contains(a, "first") || !strings.Contains(b, "first") || !strings.Contains(c, "second") {
		t.Error(a, b, c)
	}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	srv := modeltest.Text(t, "answers: [{say: hello}]", modeltest.Options{Record: dir})
	post(t, srv, "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"}]}`)
	srv.Close()
	in, err1 := os.ReadFile(filepath.Join(dir, "0001.request.json"))
	out, err2 := os.ReadFile(filepath.Join(dir, "0001.reply.txt"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(in, []byte(`"content": "a"`)) || !bytes.Contains(out, []byte("hello")) {
		t.Errorf("%s\n%s", in, out)
	}
}

func TestStalledStreamEndsWithItsClient(t *testing.T) {
	srv := modeltest.Text(t, "answers: [{say: a long text that stops, stall: true}]")
	req, err := http.NewRequest("POST", srv.URL()+"/chat/completions", strings.NewReader(`{"model":"x","stream":true,"messages":[{"role":"user","content":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if _, err := io.ReadFull(resp.Body, b); err != nil {
		t.Fatal(err)
	}
	if srv.Conns() != 1 {
		t.Errorf("%d connections", srv.Conns())
	}
	resp.Body.Close()
	for end := time.Now().Add(time.Minute); srv.Conns() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are left", srv.Conns())
		}
	}
}

func TestHeldStreamGoesOnWhenItIsTold(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	srv := modeltest.Text(t, "chunk: 4\nanswers: [{say: the first half and the second half, hold: [{after_events: 5, file: "+gate+"}]}]")
	resp, err := http.Post(srv.URL()+"/chat/completions", "application/json", strings.NewReader(`{"model":"x","stream":true,"messages":[{"role":"user","content":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	events := 0
	for events < 5 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	if r := srv.Requests()[0]; events != 5 || r.Whole {
		t.Errorf("%d events, whole %v", events, r.Whole)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	if r := srv.Requests()[0]; events < 10 || !r.Whole {
		t.Errorf("%d events, whole %v", events, r.Whole)
	}
}

func TestScriptsAreDecodedStrictly(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"answers:\n  - say: a\n    sya: b\n", "line 3"},
		{"answers:\n  - say: a\n  - calls: [{tool: x, raw: '{', args: {a: 1}}]\n", "line 3"},
		{"answers:\n  - fail: {kind: odd}\n", "line 2: there is no failure"},
		{"answers:\n  - capture: {a: '('}\n", "capture a"},
		{"answers:\n  - {say: a, cut: {after_events: 1}, stall: true}\n", "one of fail"},
		{"answers:\n  - {say: a, stall: {after: 1}}\n", "stall is true or"},
		{"answers:\n  - {say: a, hold: [{after_events: 1}]}\n", "hold needs"},
		{"answers: []\n---\nanswers: []\n", "second document"},
	} {
		_, err := modeltest.Parse("s.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "s.yaml: ") {
			t.Errorf("%q: %v, not %q", c.text, err, c.want)
		}
	}
}
