package anthropic

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

// seen is what a server got.
type seen struct {
	mu     sync.Mutex
	path   []string
	header []http.Header
	body   [][]byte
}

// take keeps a request and says how many there were with it.
func (s *seen) take(r *http.Request) int {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path, s.header, s.body = append(s.path, r.Method+" "+r.URL.Path), append(s.header, r.Header), append(s.body, b)
	return len(s.body)
}

// serve answers each request with a stream and keeps what came.
func serve(t *testing.T, streams ...[]byte) (*httptest.Server, *seen) {
	t.Helper()
	got := &seen{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := got.take(r)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Request-Id", "req_011")
		_, _ = w.Write(streams[min(n, len(streams))-1])
	}))
	t.Cleanup(s.Close)
	return s, got
}

func open(cfg model.Config, key string) model.Client {
	if cfg.Model == "" {
		cfg.Model = testModel
	}
	return New(cfg, key, wire.NewClient(wire.Options{Key: key}))
}

func none(model.Delta) {}

func user(text string) model.Message {
	return model.Message{Role: model.RoleUser, Parts: []model.Part{{Kind: model.KindText, Text: text}}}
}

func says(parts ...model.Part) model.Message {
	return model.Message{Role: model.RoleAssistant, Parts: parts}
}

func text(s string) model.Part { return model.Part{Kind: model.KindText, Text: s} }

func calls(id, tool, args string) model.Part {
	return model.Part{Kind: model.KindCall, Call: &model.Call{ID: id, Tool: tool, Args: args}}
}

func results(all ...model.Result) model.Message {
	m := model.Message{Role: model.RoleTool}
	for _, r := range all {
		m.Parts = append(m.Parts, model.Part{Kind: model.KindResult, Result: &r})
	}
	return m
}

func thought(from, raw string) model.Part {
	return model.Part{Kind: model.KindThought, Text: "shown", Opaque: json.RawMessage(raw), From: from}
}

const mine = "anthropic:" + testModel

// Small pictures that say what they are.
var pictures = map[string][]byte{
	"png":  append([]byte("\x89PNG\r\n\x1a\n"), "png"...),
	"jpeg": append([]byte("\xff\xd8\xff\xe0"), "jpeg"...),
	"gif":  []byte("GIF89a gif"),
	"webp": []byte("RIFF\x00\x00\x00\x00WEBPVP8 webp"),
	"bmp":  []byte("BM bmp"),
	"html": []byte("<html>"),
}

func picture(kind, mime string) model.Image {
	return model.Image{Sha256: kind, Mime: mime, Size: int64(len(pictures[kind]))}
}

func pictureBytes(_ context.Context, i model.Image) ([]byte, error) {
	if b, ok := pictures[i.Sha256]; ok {
		return b, nil
	}
	return nil, errors.New("no such artefact")
}

var tools = []model.Tool{
	{Name: "exec", Description: "Runs a command.", Schema: json.RawMessage(`{"type":"object","required":["argv"],"properties":{"argv":{"type":"array","items":{"type":"string"}},"cwd":{"type":"string","description":"a <folder> & more"}},"additionalProperties":false,"$defs":{"z":{},"a":{}}}`)},
	{Name: "browser_click", Schema: json.RawMessage(`{"properties":{"ref":{"type":"string"}}}`)},
	{Name: "plan"},
}

// conversations and how they are asked; each has a golden request.
func conversations() map[string]struct {
	cfg model.Config
	r   model.Request
} {
	type c = struct {
		cfg model.Config
		r   model.Request
	}
	loop := []model.Message{
		user("Make the tests pass."),
		says(thought(mine, `{"type":"thinking","thinking":"First <look> & \"see\".","signature":"c2ln"}`), text("I look."), calls("toolu_1", "exec", `{"argv":["go","test"]}`), calls("toolu_2", "plan", "")),
		results(
			model.Result{ID: "toolu_1", Tool: "exec", Text: "FAIL: TestA", Failed: true},
			model.Result{ID: "toolu_2", Tool: "plan", Text: "noted", Images: []model.Image{picture("png", "image/png"), picture("jpeg", "image/jpeg")}}),
		says(thought(mine, `{"type":"redacted_thinking","data":"ZGF0YQ=="}`), calls("toolu_3", "browser_click", `{"ref": "e1"}`)),
		results(model.Result{ID: "toolu_3", Tool: "browser_click", Text: "clicked"}),
		user("Also the docs, please."),
	}
	return map[string]c{
		"plain":                {r: model.Request{System: "You work in a glass house.", Messages: []model.Message{user("Hello")}, Tools: tools}},
		"bare":                 {r: model.Request{Messages: []model.Message{user("Hello")}, MaxOutput: 300}},
		"tools_without_system": {r: model.Request{Messages: []model.Message{user("Hello")}, Tools: tools[:1]}},
		"loop":                 {r: model.Request{System: "S", Messages: loop, Tools: tools, Bytes: pictureBytes}},
		"loop_thinking":        {cfg: model.Config{Effort: "low"}, r: model.Request{System: "S", Messages: loop, Tools: tools, Bytes: pictureBytes}},
		"quiet":                {cfg: model.Config{Effort: "high", Model: "claude-opus-5-5"}, r: model.Request{System: "S", Messages: loop[:3], Tools: tools, Quiet: true, MaxOutput: 1000}},
		"text_only":            {cfg: model.Config{TextOnly: true}, r: model.Request{Messages: loop[:3], Tools: tools, Bytes: pictureBytes}},
		"pictures": {r: model.Request{Bytes: pictureBytes, Messages: []model.Message{{Role: model.RoleUser, Parts: []model.Part{
			{Kind: model.KindImage, Image: new(picture("gif", "image/gif"))},
			{Kind: model.KindImage, Image: new(picture("webp", "image/webp"))},
			{Kind: model.KindImage, Image: new(picture("jpeg", "image/png"))}, // it is what its bytes say
			{Kind: model.KindImage, Image: new(picture("bmp", "image/bmp"))},
			{Kind: model.KindImage, Image: new(picture("html", "image/png"))},
			{Kind: model.KindImage, Image: &model.Image{Sha256: "gone", Mime: "image/png", Size: 5}},
			{Kind: model.KindImage, Image: &model.Image{Sha256: "png", Mime: "image/png", Size: 50 << 20}},
			{Kind: model.KindImage, Image: new(picture("png", "image/png"))},
		}}}}},
		// A conversation that other models began.
		"foreign": {cfg: model.Config{Effort: "medium"}, r: model.Request{Tools: tools, Messages: []model.Message{
			user("Hi"),
			says(thought("openai-responses:gpt", `{"type":"reasoning","encrypted_content":"x"}`), thought("anthropic:claude-other", `{"type":"thinking","thinking":"t","signature":"s"}`),
				thought(mine, `{"type":"thinking","thinking":"unsigned"}`), thought(mine, `nonsense`), thought(mine, ``),
				calls("call|1:ä", "exec", `{"argv":["a"]}`), calls("0", "made.up tool!", `not JSON "at all`), calls("0", "plan", `[1,2]`), calls("", "plan", `null`), calls("ok", "exec", " {\"n\": 12345678901234567890.5, \"b\": 1, \"a\": 2} ")),
			results(
				model.Result{ID: "call|1:ä", Tool: "exec", Text: "one"}, model.Result{ID: "0", Tool: "made.up tool!", Text: "no such tool", Failed: true},
				model.Result{ID: "0", Tool: "plan", Text: "no object", Failed: true}, model.Result{ID: "", Tool: "plan", Text: "four"}, model.Result{ID: "ok", Tool: "exec", Text: "five"}),
			says(calls("0", "plan", "{}")),
			results(model.Result{ID: "0", Tool: "plan", Text: "again the same id"}),
		}}},
		// What the server would refuse.
		"edges": {r: model.Request{System: " \n", Tools: tools, Messages: []model.Message{
			says(text("I was here first.")),
			says(text("And again."), text(""), text(" \t")),
			user(""),
			user("\n"),
			says(thought(mine, `{"type":"thinking","thinking":"only a thought","signature":"c2ln"}`)),
			user("one"),
			user("two \xff"),
			says(calls("a", "exec", ""), calls("b", "exec", "")),
			results(model.Result{ID: "b", Tool: "exec", Text: " "}, model.Result{ID: "zz", Tool: "exec", Text: "of no call"}),
			user("three"),
			says(text("done"), thought(mine, `{"type":"thinking","thinking":"trailing","signature":"c2ln"}`)),
		}}},
		"nothing":          {r: model.Request{}},
		"calls_at_the_end": {r: model.Request{Tools: tools, Messages: []model.Message{user("go"), says(calls("a", "exec", ""))}}},
	}
}

func TestRequests(t *testing.T) {
	for name, c := range conversations() {
		t.Run(name, func(t *testing.T) {
			s, got := serve(t, fixture(t, "text.sse"))
			c.cfg.BaseURL = s.URL
			m := open(c.cfg, "sk-0123456789")
			for range 3 { // the same question is the same bytes, or no cache would know it
				if _, err := m.Answer(t.Context(), c.r, none); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range got.path {
				if p != "POST /v1/messages" {
					t.Errorf("asked %s", p)
				}
			}
			if !bytes.Equal(got.body[0], got.body[1]) || !bytes.Equal(got.body[0], got.body[2]) {
				t.Errorf("the bytes differ:\n%s\n%s\n%s", got.body[0], got.body[1], got.body[2])
			}
			var in bytes.Buffer
			if err := json.Indent(&in, got.body[0], "", "\t"); err != nil {
				t.Fatal(err)
			}
			in.WriteByte('\n')
			golden(t, filepath.Join("requests", name+".json"), in.Bytes())
			sane(t, got.body[0])
		})
	}
	files, _ := filepath.Glob("testdata/requests/*.json")
	for _, f := range files {
		if _, ok := conversations()[strings.TrimSuffix(filepath.Base(f), ".json")]; !ok {
			t.Errorf("%s belongs to no conversation", f)
		}
	}
}

// sane checks what the server demands of any request.
func sane(t *testing.T, body []byte) {
	t.Helper()
	type block struct {
		Type      string          `json:"type"`
		Text      *string         `json:"text"`
		ID        string          `json:"id"`
		ToolUseID string          `json:"tool_use_id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		Content   []block         `json:"content"`
	}
	var q struct {
		Stream   bool  `json:"stream"`
		Most     int64 `json:"max_tokens"`
		Thinking struct {
			Budget int64 `json:"budget_tokens"`
		} `json:"thinking"`
		Messages []struct {
			Role    string  `json:"role"`
			Content []block `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		t.Fatal(err)
	}
	if !q.Stream || q.Most <= 0 || q.Thinking.Budget >= q.Most || q.Thinking.Budget != 0 && q.Thinking.Budget < 1024 {
		t.Errorf("stream %v, max_tokens %d, budget %d", q.Stream, q.Most, q.Thinking.Budget)
	}
	if n := bytes.Count(body, []byte(`"cache_control"`)); n < 1 || n > 4 {
		t.Errorf("%d marks", n)
	}
	if len(q.Messages) == 0 || q.Messages[len(q.Messages)-1].Role != "user" {
		t.Fatal("it does not end with the user")
	}
	ids := map[string]bool{}
	var waiting []string
	for i, m := range q.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			t.Errorf("message %d is of %s with %d blocks", i, m.Role, len(m.Content))
		}
		other := false
		for _, b := range m.Content {
			for _, b := range append(b.Content, b) {
				if b.Type == "text" && (b.Text == nil || strings.TrimSpace(*b.Text) == "") {
					t.Errorf("message %d: empty text", i)
				}
			}
			switch b.Type {
			case "tool_use":
				if !idForm.MatchString(b.ID) || ids[b.ID] || !nameForm.MatchString(b.Name) || len(b.Input) == 0 || b.Input[0] != '{' {
					t.Errorf("message %d: call %+v", i, b)
				}
				ids[b.ID] = true
				waiting = append(waiting, b.ID)
			case "tool_result":
				if other || len(waiting) == 0 || waiting[0] != b.ToolUseID || len(b.Content) == 0 {
					t.Errorf("message %d: result of %q, while %q wait", i, b.ToolUseID, waiting)
				} else {
					waiting = waiting[1:]
				}
			default:
				other = true
			}
		}
		if m.Role == "user" && len(waiting) > 0 {
			t.Errorf("message %d: %q have no result", i, waiting)
		}
	}
}

// A growing conversation begins with the bytes that the server has kept.
func TestMarksReachWhatTheLastRequestHad(t *testing.T) {
	s, got := serve(t, fixture(t, "text.sse"))
	m := open(model.Config{BaseURL: s.URL}, "")
	r := model.Request{System: "S", Tools: tools, Messages: []model.Message{user("go")}}
	for i := range 4 {
		if _, err := m.Answer(t.Context(), r, none); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("toolu_%d", i)
		r.Messages = append(r.Messages, says(calls(id, "exec", `{"argv":["x"]}`)), results(model.Result{ID: id, Tool: "exec", Text: fmt.Sprintf("result %d", i)}))
	}
	const mark = `,"cache_control":{"type":"ephemeral"}`
	bare := func(b []byte) string {
		_, messages, _ := strings.Cut(string(b), `"messages":`)
		messages, _, _ = strings.Cut(messages, `,"model":`)
		return messages
	}
	for i := 1; i < len(got.body); i++ {
		before, now := bare(got.body[i-1]), bare(got.body[i])
		// All up to the last mark of the request before is there again, and marked.
		kept := before[:strings.LastIndex(before, mark)]
		kept = strings.ReplaceAll(kept, mark, "")
		at := strings.Index(now, mark)
		if at < 0 || strings.ReplaceAll(now[:at], mark, "") != kept {
			t.Errorf("request %d is marked first behind\n%s\nthe one before it was marked last behind\n%s", i, now[:max(at, 0)], kept)
		}
		if n := strings.Count(now, mark); n != 2 {
			t.Errorf("request %d has %d marks in its messages", i, n)
		}
	}
}

func TestThoughtsGoBackAsTheyCame(t *testing.T) {
	for _, name := range []string{"thinking.sse", "redacted.sse"} {
		s, got := serve(t, fixture(t, name), fixture(t, "text.sse"))
		m := open(model.Config{BaseURL: s.URL, Effort: "low"}, "")
		r := model.Request{Tools: tools, Messages: []model.Message{user("go")}}
		a, err := m.Answer(t.Context(), r, none)
		if err != nil {
			t.Fatal(err)
		}
		// As the log keeps it.
		kept, err := json.Marshal(a.Parts)
		if err != nil {
			t.Fatal(err)
		}
		var parts []model.Part
		if err := json.Unmarshal(kept, &parts); err != nil {
			t.Fatal(err)
		}
		r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Parts: parts})
		if c := a.Calls(); len(c) > 0 {
			r.Messages = append(r.Messages, results(model.Result{ID: c[0].ID, Tool: c[0].Tool, Text: "ok"}))
		} else {
			r.Messages = append(r.Messages, user("and now?"))
		}
		if _, err := m.Answer(t.Context(), r, none); err != nil {
			t.Fatal(err)
		}
		var q struct {
			Messages []struct{ Content []map[string]any }
		}
		if err := json.Unmarshal(got.body[1], &q); err != nil {
			t.Fatal(err)
		}
		var back []string
		for _, b := range q.Messages[1].Content {
			delete(b, "cache_control")
			back = append(back, fmt.Sprint(b))
		}
		want := map[string][]string{
			"thinking.sse": {
				fmt.Sprint(map[string]any{"type": "thinking", "thinking": `The test fails; I read it <first> & "then".`, "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"}),
				fmt.Sprint(map[string]any{"type": "tool_use", "id": "toolu_01A", "name": "exec", "input": map[string]any{"argv": []any{"go", "test"}}}),
			},
			"redacted.sse": {
				fmt.Sprint(map[string]any{"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}),
				fmt.Sprint(map[string]any{"type": "thinking", "thinking": "", "signature": "sig-of-nothing-shown"}),
				fmt.Sprint(map[string]any{"type": "text", "text": "Done."}),
			},
		}[name]
		if !slices.Equal(back, want) {
			t.Errorf("%s went back as\n%s\nwant\n%s", name, strings.Join(back, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestEffort(t *testing.T) {
	for _, c := range []struct {
		model, effort string
		most          int
		want          string
	}{
		{"claude-sonnet-4-5", "low", 8192, `{"type":"enabled","budget_tokens":2048}`},
		{"claude-sonnet-4-5", "medium", 32000, `{"type":"enabled","budget_tokens":8192}`},
		{"claude-sonnet-4-5", "high", 64000, `{"type":"enabled","budget_tokens":24576}`},
		{"claude-sonnet-4-5", "high", 8192, `{"type":"enabled","budget_tokens":6144}`},
		{"claude-sonnet-4-5", "high", 1300, ``}, // no room beside an answer
		{"claude-sonnet-4-5", "", 8192, ``},
		{"claude-opus-4-8", "", 8192, ``},
		{"claude-opus-4-8", "high", 1000, `{"type":"adaptive","display":"summarized"} {"effort":"high"}`},
		{"qwen3-coder", "low", 8192, `{"type":"enabled","budget_tokens":2048}`},
	} {
		q, _, err := (&client{cfg: model.Config{Model: c.model, Effort: c.effort}}).request(t.Context(), model.Request{MaxOutput: c.most, Messages: []model.Message{user("x")}})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Thinking, Output_config map[string]any
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		var want struct{ thinking, output map[string]any }
		d := json.NewDecoder(strings.NewReader(c.want))
		_ = d.Decode(&want.thinking)
		_ = d.Decode(&want.output)
		if !maps.Equal(got.Thinking, want.thinking) || !maps.Equal(got.Output_config, want.output) {
			t.Errorf("%s with effort %q and %d tokens: %v, %v; want %s", c.model, c.effort, c.most, got.Thinking, got.Output_config, c.want)
		}
	}
}

func TestChoosesItself(t *testing.T) {
	for name, want := range map[string]bool{
		"claude-opus-5-5": true, "claude-sonnet-5": true, "claude-fable-5-2": true, "claude-opus-4-6": true, "claude-opus-4-8": true, "us.anthropic.claude-opus-4-6-v1": true,
		"anthropic/claude-sonnet-4.6": true, "claude-mythos-preview": true, "Claude-Haiku-5-5": true, "claude-opus-10": true,
		"claude-sonnet-4-5-20250929": false, "claude-haiku-4-5": false, "claude-sonnet-4-20250514": false, "claude-3-7-sonnet-20250219": false, "anthropic.claude-3-7-sonnet-20250219-v1:0": false,
		"claude-sonnet-4@20250514": false, "qwen3-coder": false, "glm-5": false, "": false,
	} {
		if got := choosesItself(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// With thinking on, a turn that another model began with calls would be refused.
func TestNoThinkingInATurnThatBeganWithout(t *testing.T) {
	c := &client{cfg: model.Config{Model: "claude-sonnet-4-5", Effort: "low"}}
	own := thought(c.from(), `{"type":"thinking","thinking":"t","signature":"s"}`)
	ok := func(i int) model.Message { return results(model.Result{ID: fmt.Sprint(i), Tool: "exec", Text: "ok"}) }
	call := func(i int) model.Part { return calls(fmt.Sprint(i), "exec", "") }
	for name, k := range map[string]struct {
		messages []model.Message
		want     bool
	}{
		"own":                      {[]model.Message{user("a"), says(own, call(1)), ok(1)}, true},
		"own, later without":       {[]model.Message{user("a"), says(own, call(1)), ok(1), says(call(2)), ok(2)}, true},
		"another's":                {[]model.Message{user("a"), says(call(1)), ok(1)}, false},
		"another's, then own":      {[]model.Message{user("a"), says(call(1)), ok(1), says(own, call(2)), ok(2)}, false},
		"another's, then the user": {[]model.Message{user("a"), says(call(1)), ok(1), says(text("done")), user("b")}, true},
		"another's text":           {[]model.Message{user("a"), says(text("done")), user("b")}, true},
	} {
		q, _, err := c.request(t.Context(), model.Request{Tools: tools, Messages: k.messages})
		if err != nil || (q.Thinking.OfEnabled != nil) != k.want {
			t.Errorf("%s: thinks %v, %v", name, q.Thinking.OfEnabled != nil, err)
		}
	}
}

func TestToolNames(t *testing.T) {
	long := strings.Repeat("x", 100)
	n := newNames([]model.Tool{{Name: "a.b"}, {Name: "a_b"}, {Name: "a b"}, {Name: long}, {Name: long + "y"}, {Name: "ä"}})
	got := map[string]string{}
	for _, name := range []string{"a.b", "a_b", "a b", long, long + "y", "ä", "made up", ""} {
		w := n.wire(name)
		if !nameForm.MatchString(w) || got[w] != "" || n.ours(w) != name || n.wire(name) != w {
			t.Errorf("%q is %q, which is %q", name, w, n.ours(w))
		}
		got[w] = name
	}
	if n.wire("a_b") != "a_b" {
		t.Errorf("a name that fits became %q", n.wire("a_b"))
	}
	// What the model calls by the wire's name is ours again.
	s, _ := serve(t, []byte(begun+event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"fs_read","input":{}}}`)+ending))
	a, err := open(model.Config{BaseURL: s.URL}, "").Answer(t.Context(), model.Request{Tools: []model.Tool{{Name: "fs.read"}}, Messages: []model.Message{user("x")}}, none)
	if err != nil || len(a.Calls()) != 1 || a.Calls()[0].Tool != "fs.read" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestReadingPicturesEndsWithTheQuestion(t *testing.T) {
	cause := errors.New("the person said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := open(model.Config{BaseURL: "http://127.0.0.1:1"}, "").Answer(ctx, model.Request{
		Messages: []model.Message{{Role: model.RoleUser, Parts: []model.Part{{Kind: model.KindImage, Image: new(picture("png", "image/png"))}}}},
		Bytes: func(context.Context, model.Image) ([]byte, error) {
			cancel(cause)
			return nil, ctx.Err()
		},
	}, none)
	if err != cause {
		t.Errorf("got %v", err)
	}
}

func TestPicturesAreWholeOnTheWire(t *testing.T) {
	raw, err := os.ReadFile("testdata/requests/pictures.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"png", "gif", "webp", "jpeg"} {
		if !bytes.Contains(raw, []byte(base64.StdEncoding.EncodeToString(pictures[kind]))) || !bytes.Contains(raw, []byte("image/"+kind)) {
			t.Errorf("%s is missing", kind)
		}
	}
	for _, kind := range []string{"bmp", "html"} {
		if bytes.Contains(raw, []byte(base64.StdEncoding.EncodeToString(pictures[kind]))) {
			t.Errorf("%s was sent", kind)
		}
	}
}
