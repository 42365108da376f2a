package anthropic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

const testKey = "sk-ant-0123456789abcdef"

var hello = model.Request{System: "S", Messages: []model.Message{user("Hello")}}

// Nothing of the environment gets into a request, whatever it holds.
func TestEnvironmentIsNotRead(t *testing.T) {
	const canary = "canary-0123456789"
	for _, name := range []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_WEBHOOK_SIGNING_KEY", "ANTHROPIC_WORKSPACE_ID", "ANTHROPIC_ORGANIZATION_ID",
		"ANTHROPIC_SERVICE_ACCOUNT_ID", "ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_IDENTITY_TOKEN", "ANTHROPIC_IDENTITY_TOKEN_FILE", "ANTHROPIC_MODEL", "ANTHROPIC_SCOPE",
	} {
		t.Setenv(name, canary)
	}
	t.Setenv("ANTHROPIC_CONFIG_DIR", t.TempDir())
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Canary: "+canary)
	t.Setenv("ANTHROPIC_OPEN_TELEMETRY", "true")
	t.Setenv("ANTHROPIC_OPEN_TELEMETRY_PROPAGATION", "true")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server of the environment was asked") }))
	defer elsewhere.Close()
	t.Setenv("ANTHROPIC_BASE_URL", elsewhere.URL)

	for _, key := range []string{"", testKey} {
		s, got := serve(t, fixture(t, "text.sse"))
		if _, err := open(model.Config{BaseURL: s.URL}, key).Answer(t.Context(), hello, none); err != nil {
			t.Fatal(err)
		}
		h := got.header[0]
		all := fmt.Sprint(got.path, h, string(got.body[0]))
		if strings.Contains(all, canary) {
			t.Errorf("the environment got in: %s", all)
		}
		var names []string
		for name := range h {
			names = append(names, name)
		}
		slices.Sort(names)
		want := []string{"Accept", "Anthropic-Version", "Content-Length", "Content-Type", "User-Agent"}
		if key != "" {
			want = []string{"Accept", "Anthropic-Version", "Authorization", "Content-Length", "Content-Type", "User-Agent", "X-Api-Key"}
			if h.Get("X-Api-Key") != key || h.Get("Authorization") != "Bearer "+key {
				t.Errorf("keys: %q, %q", h.Get("X-Api-Key"), h.Get("Authorization"))
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("with key %q the headers are %v, want %v", key, names, want)
		}
		if n := strings.Count(all, testKey); key != "" && n != 2 {
			t.Errorf("the key is there %d times: %s", n, all)
		}
	}
}

// catch keeps a request that was to go to a real server.
type catch struct{ got *http.Request }

func (c *catch) RoundTrip(r *http.Request) (*http.Response, error) {
	c.got = r
	return nil, errors.New("caught")
}

func TestAddresses(t *testing.T) {
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/")
	for base, want := range map[string]string{
		"":                             "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com":    "https://api.anthropic.com/v1/messages",
		"http://127.0.0.1:8080":        "http://127.0.0.1:8080/v1/messages",
		"http://127.0.0.1:8080/":       "http://127.0.0.1:8080/v1/messages",
		"http://127.0.0.1:8080/v1":     "http://127.0.0.1:8080/v1/messages",
		"http://127.0.0.1:8080/v1/":    "http://127.0.0.1:8080/v1/messages",
		"https://gate.test/claude/v1/": "https://gate.test/claude/v1/messages",
		"https://gate.test/anthropic":  "https://gate.test/anthropic/v1/messages",
	} {
		c := &catch{}
		_, err := New(model.Config{Model: testModel, BaseURL: base}, testKey, &http.Client{Transport: c}).Answer(t.Context(), hello, none)
		if err == nil || c.got == nil || c.got.URL.String() != want {
			t.Errorf("%q: asked %v, %v", base, c.got, err)
			continue
		}
		// Its own servers are given the key once, as their library does it.
		if own := strings.Contains(want, "api.anthropic.com"); (c.got.Header.Get("X-Api-Key") == "") != own || c.got.Header.Get("Authorization") != "Bearer "+testKey {
			t.Errorf("%q: %v", base, c.got.Header)
		}
	}
}

func TestAnswerNamesTheRequest(t *testing.T) {
	s, _ := serve(t, fixture(t, "text.sse"))
	a, err := open(model.Config{BaseURL: s.URL}, "").Answer(t.Context(), hello, nil)
	if err != nil || a.ID != "req_011" || a.Served != "claude-test-1-20260101" || len(a.Parts) != 1 || a.Parts[0].Text != "Hello, wörld ✓ 😀\n" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestRefusals(t *testing.T) {
	said := func(kind, message string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_body"}`, kind, message)
	}
	for _, c := range []struct {
		status int
		body   string
		kind   model.ErrorKind
		text   string
	}{
		{529, said("overloaded_error", "Overloaded"), model.ErrBusy, "Overloaded"},
		{429, said("rate_limit_error", "This request would exceed your rate limit"), model.ErrRate, "rate limit"},
		{500, said("api_error", "Internal server error"), model.ErrServer, "Internal"},
		{504, said("timeout_error", "too slow"), model.ErrTimeout, "slow"},
		{400, said("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), model.ErrTooLong, "210000"},
		{400, said("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"), model.ErrTooLong, "190000"},
		{400, said("invalid_request_error", "messages: text content blocks must be non-empty"), model.ErrInvalid, "non-empty"},
		{400, said("invalid_request_error", "Your credit balance is too low to access the API."), model.ErrQuota, "credit"},
		{401, said("authentication_error", "invalid x-api-key "+testKey), model.ErrAuth, "invalid x-api-key [key]"},
		{403, said("permission_error", "not yours"), model.ErrAuth, "yours"},
		{402, said("billing_error", "pay"), model.ErrQuota, "pay"},
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"limit","details":{"error_code":"enforced_spend_limit_reached"}}}`, model.ErrQuota, "limit"},
		{404, said("not_found_error", "model: claude-9"), model.ErrNotFound, "claude-9"},
		{413, said("request_too_large", "Request exceeds the maximum size"), model.ErrTooLong, "maximum"},
		{418, said("an_error_of_tomorrow", "teapot"), model.ErrInvalid, "teapot"},
		{400, said("api_error", "odd"), model.ErrInvalid, "odd"},
		// What others send.
		{400, `{"error":{"message":"this model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}`, model.ErrTooLong, "8192"},
		{404, `{"error":"model 'x' not found"}`, model.ErrNotFound, "model 'x' not found"},
		{422, `{"detail":[{"loc":["body"],"msg":"bad"}]}`, model.ErrInvalid, "bad"},
		{503, `{"message":"loading the model"}`, model.ErrBusy, "loading"},
		{502, "<html><body>Bad Gateway " + testKey + "</body></html>", model.ErrServer, "web page"},
		{500, "", model.ErrServer, "Internal Server Error"},
		{500, `{"error":{"type":"` + strings.Repeat("x", 5000) + `","message":"` + strings.Repeat("long ", 2000) + `"}}`, model.ErrServer, "[…]"},
		{307, "", model.ErrNotFound, "base_url"},
	} {
		var asked int
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Request-Id", "req_head")
			w.Header().Set("Retry-After", "7")
			w.Header().Set("X-Should-Retry", "true") // the library must not
			w.Header().Set("Location", "http://192.0.2.1/")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		_, err := open(model.Config{BaseURL: s.URL}, testKey).Answer(t.Context(), hello, none)
		s.Close()
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != c.kind || e.Status != c.status || !strings.Contains(e.Message, c.text) || e.RequestID != "req_head" {
			t.Errorf("%d %.80s: got %v, %+v; want %s", c.status, c.body, err, e, c.kind)
			continue
		}
		if strings.Contains(fmt.Sprintf("%+v", *e), testKey) || len(e.Message) > wire.MaxMessage {
			t.Errorf("%d %.80s: %d bytes, %+v", c.status, c.body, len(e.Message), *e)
		}
		if c.status != 307 && e.RetryAfter != 7*time.Second {
			t.Errorf("%d: wait %s", c.status, e.RetryAfter)
		}
		if asked != 1 {
			t.Errorf("%d: asked %d times in one attempt", c.status, asked)
		}
	}
}

func TestWhatIsNoStream(t *testing.T) {
	for _, c := range []struct {
		typ, body string
		kind      model.ErrorKind
		text      string
	}{
		{"text/html", "<html>log in to the network</html>", model.ErrProtocol, "web page"},
		{"application/json", `{"type":"message","content":[{"type":"text","text":"whole"}]}`, model.ErrProtocol, "application/json"},
		{"application/json", `{"type":"error","error":{"type":"overloaded_error","message":"busy ` + testKey + `"}}`, model.ErrBusy, "busy [key]"},
		{"text/event-stream", "", model.ErrNetwork, "before the answer was whole"},
		{"text/event-stream", "data: {}\n\n", model.ErrNetwork, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.typ)
			w.Header().Set("Request-Id", "req_head")
			_, _ = io.WriteString(w, c.body)
		}))
		_, err := open(model.Config{BaseURL: s.URL}, testKey).Answer(t.Context(), hello, none)
		s.Close()
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Message, c.text) || strings.Contains(e.Message, testKey) {
			t.Errorf("%s %s: %v", c.typ, c.body, err)
		}
	}
}

// The connection breaks at any byte: what was told counts for nothing.
func TestConnectionCutAnywhere(t *testing.T) {
	stream := fixture(t, "thinking.sse")
	var n int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", fmt.Sprint(len(stream)))
		_, _ = w.Write(stream[:n])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	m := open(model.Config{BaseURL: s.URL}, "")
	for n = 0; n < len(stream); n += 7 {
		a, err := m.Answer(t.Context(), hello, none)
		if model.KindOf(err) != model.ErrNetwork || len(a.Parts) != 0 {
			t.Fatalf("after %d bytes: %+v, %v", n, a, err)
		}
	}
}

func TestMidStreamErrorNamesTheRequest(t *testing.T) {
	s, got := serve(t, fixture(t, "overloaded.sse"))
	var told string
	_, err := open(model.Config{BaseURL: s.URL}, "").Answer(t.Context(), hello, func(d model.Delta) { told += d.Text })
	var e *model.Error
	if !errors.As(err, &e) || e.Kind != model.ErrBusy || e.RequestID != "req_011" || e.Status != 0 || told != "I am about to" || len(got.body) != 1 {
		t.Errorf("%+v, told %q, asked %d times", e, told, len(got.body))
	}
}

func TestCancelEndsTheConnection(t *testing.T) {
	cause := errors.New("the person said stop")
	for _, when := range []string{"before the header", "in mid-stream"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			_, _ = io.Copy(io.Discard, r.Body)
			if when == "before the header" {
				cancel(cause)
			} else {
				w.Header().Set("Content-Type", "text/event-stream")
				before, _, _ := bytes.Cut(fixture(t, "overloaded.sse"), []byte("event: error"))
				_, _ = w.Write(before)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}))
		_, err := open(model.Config{BaseURL: s.URL}, "").Answer(ctx, hello, func(model.Delta) { cancel(cause) })
		if err != cause {
			t.Errorf("%s: %v", when, err)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s: the server still has its connection", when)
		}
		s.Close()
	}
}

func TestDeadContextAsksNobody(t *testing.T) {
	s, got := serve(t, fixture(t, "text.sse"))
	cause := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := open(model.Config{BaseURL: s.URL}, "").Answer(ctx, hello, none); err != cause || len(got.body) != 0 {
		t.Errorf("%v, asked %d times", err, len(got.body))
	}
}

func TestTooMuchEndsTheConnection(t *testing.T) {
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, begun+event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"write","input":{}}}`))
		piece := event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"`+strings.Repeat("a", 1<<20)+`"}}`)
		for {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	if _, err := open(model.Config{BaseURL: s.URL}, "").Answer(t.Context(), hello, none); model.KindOf(err) != model.ErrProtocol {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the server still sends")
	}
}

func TestBadKeyIsNotShown(t *testing.T) {
	bad := "sk-with\nline-0123456789"
	s, got := serve(t, fixture(t, "text.sse"))
	_, err := open(model.Config{BaseURL: s.URL}, bad).Answer(t.Context(), hello, none)
	if err == nil || strings.Contains(err.Error(), "0123456789") || len(got.body) != 0 {
		t.Errorf("%v, asked %d times", err, len(got.body))
	}
}

func TestFromManyGoroutines(t *testing.T) {
	s, _ := serve(t, fixture(t, "thinking.sse"))
	m := open(model.Config{BaseURL: s.URL, Effort: "low"}, testKey)
	c := conversations()["foreign"]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if a, err := m.Answer(context.WithoutCancel(t.Context()), c.r, none); err != nil || a.Stop != model.StopCalls {
					t.Errorf("%+v, %v", a, err)
				}
			}
		})
	}
	wg.Wait()
}

// Behind Retry, as it is used.
func TestWithRetry(t *testing.T) {
	var n int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("Content-Type", "text/event-stream")
		switch n {
		case 1:
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		case 2:
			_, _ = w.Write(fixture(t, "overloaded.sse"))
		case 3:
			_, _ = w.Write(bytes.TrimSuffix(fixture(t, "text.sse"), []byte("\n")))
		default:
			_, _ = w.Write(fixture(t, "text.sse"))
		}
	}))
	defer s.Close()
	var failed []model.ErrorKind
	r := &model.Retry{Client: open(model.Config{BaseURL: s.URL}, ""), Sleep: func(context.Context, time.Duration) error { return nil },
		Notify: func(f model.Failed) { failed = append(failed, f.Err.Kind) }}
	a, err := r.Answer(t.Context(), hello, none)
	if err != nil || a.Attempts != 4 || !slices.Equal(failed, []model.ErrorKind{model.ErrBusy, model.ErrBusy, model.ErrNetwork}) {
		t.Errorf("%+v after %v, %v", a, failed, err)
	}
}
