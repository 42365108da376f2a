package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

const testKey = "sk-test-0123456789abcdef"

// asked is a request as the server got it.
type asked struct {
	method, path, query string
	header              http.Header
	body                []byte
}

// server answers every request with h and keeps what it was asked.
type server struct {
	*httptest.Server
	mu  sync.Mutex
	got []asked
}

func serve(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, asked{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Clone(), body})
		s.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) asked(t *testing.T) asked {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) != 1 {
		t.Fatalf("the server was asked %d times, want once", len(s.got))
	}
	return s.got[0]
}

// stream answers with the bytes of a stream, in one orderly response.
func stream(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = w.Write(body)
	}
}

func fixture(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func config(f model.Format, base string) model.Config {
	return model.Config{Name: "m", Format: f, Model: "some-model", BaseURL: base}
}

func hello() model.Request {
	return model.Request{Messages: []model.Message{{Role: model.RoleUser, Parts: []model.Part{{Kind: model.KindText, Text: "hello"}}}}}
}

// ask makes one attempt at a server and returns what each was told, too.
func ask(t *testing.T, cfg model.Config, r model.Request) (model.Answer, []model.Delta, error) {
	t.Helper()
	hc := wire.NewClient(wire.Options{Key: testKey})
	t.Cleanup(hc.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ds []model.Delta
	a, err := New(cfg, testKey, hc).Answer(ctx, r, func(d model.Delta) { ds = append(ds, d) })
	return a, ds, err
}

func askFixture(t *testing.T, f model.Format, body []byte) (model.Answer, []model.Delta, error) {
	t.Helper()
	s := serve(t, stream(body))
	return ask(t, config(f, s.URL+"/v1"), hello())
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func modelError(t *testing.T, err error) *model.Error {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T %v, want a *model.Error", err, err)
	}
	return e
}

// Whatever the environment says, a request goes to the configured address with the
// configured key and nothing else.
func TestNothingComesFromTheEnvironment(t *testing.T) {
	trap := serve(t, stream(fixture(t, "chat/text.sse")))
	for k, v := range map[string]string{
		"OPENAI_API_KEY": "sk-environment", "OPENAI_BASE_URL": trap.URL, "OPENAI_ADMIN_KEY": "sk-admin-environment",
		"OPENAI_ORG_ID": "org-environment", "OPENAI_PROJECT_ID": "proj-environment", "OPENAI_WEBHOOK_SECRET": "whsec-environment",
		"OPENAI_CUSTOM_HEADERS": "X-Environment: yes", "OPENAI_ORGANIZATION": "org-environment", "OPENAI_PROJECT": "proj-environment",
		"AWS_BEARER_TOKEN_BEDROCK": "aws-environment", "AZURE_OPENAI_API_KEY": "azure-environment",
	} {
		t.Setenv(k, v)
	}
	for _, f := range []struct {
		format  model.Format
		fixture string
		path    string
	}{{model.FormatChat, "chat/text.sse", "/base/v1/chat/completions"}, {model.FormatResponses, "responses/text.sse", "/base/v1/responses"}} {
		for _, key := range []string{testKey, ""} {
			s := serve(t, stream(fixture(t, f.fixture)))
			hc := wire.NewClient(wire.Options{Key: key})
			if _, err := New(config(f.format, s.URL+"/base/v1"), key, hc).Answer(t.Context(), hello(), nil); err != nil {
				t.Fatal(err)
			}
			hc.CloseIdleConnections()
			got := s.asked(t)
			if got.method != "POST" || got.path != f.path || got.query != "" {
				t.Errorf("%s: asked %s %s?%s, want POST %s", f.format, got.method, got.path, got.query, f.path)
			}
			want := "Bearer " + key
			if auth, there := got.header["Authorization"]; key == "" && there || key != "" && (len(auth) != 1 || auth[0] != want) {
				t.Errorf("%s, key %q: Authorization is %q", f.format, key, auth)
			}
			all := asJSON(t, got.header) + string(got.body)
			for _, word := range []string{"environment", "stainless", "openai-organization", "openai-project"} {
				if strings.Contains(strings.ToLower(all), word) {
					t.Errorf("%s: the request holds %q:\n%s", f.format, word, all)
				}
			}
			for name := range got.header {
				switch name {
				case "Authorization", "Content-Type", "Content-Length", "Accept", "Accept-Encoding", "User-Agent":
				default:
					t.Errorf("%s: the request has the header %s, which nobody asked for", f.format, name)
				}
			}
		}
	}
	if len(trap.got) > 0 {
		t.Error("the address of the environment was asked")
	}
}

// rerouted sends what is meant for the provider to a test server.
type rerouted struct {
	to   string
	seen *string
}

func (r rerouted) RoundTrip(req *http.Request) (*http.Response, error) {
	*r.seen = req.URL.String()
	q := req.Clone(req.Context())
	q.URL.Scheme, q.URL.Host, q.Host = "http", strings.TrimPrefix(r.to, "http://"), ""
	return http.DefaultTransport.RoundTrip(q)
}

func TestTheUsualAddressIsTheProviders(t *testing.T) {
	for f, want := range map[model.Format]string{model.FormatChat: "https://api.openai.com/v1/chat/completions", model.FormatResponses: "https://api.openai.com/v1/responses"} {
		name := map[model.Format]string{model.FormatChat: "chat/text.sse", model.FormatResponses: "responses/text.sse"}[f]
		s := serve(t, stream(fixture(t, name)))
		var seen string
		a, err := New(config(f, ""), testKey, &http.Client{Transport: rerouted{s.URL, &seen}}).Answer(t.Context(), hello(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if seen != want {
			t.Errorf("%s went to %s, want %s", f, seen, want)
		}
		if len(a.Parts) != 1 || a.Parts[0].Text != "Grüße, Welt 🌍" {
			t.Errorf("%s: answer %s", f, asJSON(t, a))
		}
	}
}

func TestOwnAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"https://api.openai.com/v1": true, "https://eu.api.openai.com/v1": true, "https://x.openai.azure.com/openai/v1": true,
		"http://127.0.0.1:11434/v1": false, "https://api.openai.com.example.net/v1": false, "https://notapi.openai.com.example.net": false, "https://openrouter.ai/api/v1": false,
	} {
		if got := isOwn(address); got != want {
			t.Errorf("isOwn(%s) = %v", address, got)
		}
	}
}

func TestAKeyIsNotSentInTheClear(t *testing.T) {
	reached := false
	hc := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		reached = true
		return nil, errors.New("reached")
	})}
	_, err := New(config(model.FormatChat, "http://192.0.2.1/v1"), testKey, hc).Answer(t.Context(), hello(), nil)
	if e := modelError(t, err); e.Kind != model.ErrAuth || reached {
		t.Errorf("error %v, reached %v; want auth, and nothing sent", err, reached)
	}
	_, err = New(config(model.FormatChat, "http://192.0.2.1/v1"), "", hc).Answer(t.Context(), hello(), nil)
	if e := modelError(t, err); e.Kind != model.ErrNetwork || !reached {
		t.Errorf("without a key: error %v, reached %v; want an attempt", err, reached)
	}
	_, err = New(config(model.FormatChat, "http://127.0.0.1:1/v1"), "sk-with\nline", hc).Answer(t.Context(), hello(), nil)
	if e := modelError(t, err); e.Kind != model.ErrAuth || strings.Contains(err.Error(), "sk-with") {
		t.Errorf("a key with a line end: %v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A cancelled answer ends the connection, whatever the server is doing.
func TestCancelEndsTheConnection(t *testing.T) {
	for _, stage := range []string{"before the header", "within the stream"} {
		t.Run(stage, func(t *testing.T) {
			left := make(chan struct{})
			inside := make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if stage == "within the stream" {
					_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
					w.(http.Flusher).Flush()
				}
				close(inside)
				<-r.Context().Done()
				close(left)
			})
			hc := wire.NewClient(wire.Options{})
			defer hc.CloseIdleConnections()
			why := errors.New("the person stopped it")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-inside
				cancel(why)
			}()
			_, err := New(config(model.FormatChat, s.URL), "", hc).Answer(ctx, hello(), nil)
			if !errors.Is(err, why) {
				t.Errorf("error %v, want the cause", err)
			}
			select {
			case <-left:
			case <-time.After(time.Minute):
				t.Error("the server still has the connection")
			}
		})
	}
}

func TestOneAttemptOnly(t *testing.T) {
	for _, status := range []int{408, 409, 429, 500, 503} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Should-Retry", "true")
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(status)
		})
		if _, _, err := ask(t, config(model.FormatChat, s.URL), hello()); err == nil {
			t.Fatal("no error")
		}
		s.asked(t)
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	_, err := New(config(model.FormatMessages, "http://127.0.0.1:1"), "", http.DefaultClient).Answer(t.Context(), hello(), nil)
	if e := modelError(t, err); e.Kind != model.ErrInvalid {
		t.Error(err)
	}
}

// A connection serves one answer after the other.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for f, name := range map[model.Format]string{model.FormatChat: "chat/text.sse", model.FormatResponses: "responses/text.sse"} {
		var conns atomic.Int64
		body, got := fixture(t, name), make(chan struct{}, 1)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(body)
			w.(http.Flusher).Flush()
			<-got // the end of the body comes after the last word, and not with it
		}))
		s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
			if st == http.StateNew {
				conns.Add(1)
			}
		}
		s.Start()
		hc := wire.NewClient(wire.Options{})
		cl := New(config(f, s.URL), "", hc)
		cl.(*client).maxDrain = time.Minute // what is given up here is another connection there
		for range 5 {
			once := sync.OnceFunc(func() { got <- struct{}{} })
			if _, err := cl.Answer(t.Context(), hello(), func(model.Delta) { once() }); err != nil {
				t.Fatal(err)
			}
		}
		hc.CloseIdleConnections()
		s.Close()
		if n := conns.Load(); n != 1 {
			t.Errorf("%s: 5 answers took %d connections", f, n)
		}
	}
}

// A server that keeps the connection open after its last word holds nothing up.
func TestNobodyWaitsBehindTheLastWord(t *testing.T) {
	for f, name := range map[model.Format]string{model.FormatChat: "chat/text.sse", model.FormatResponses: "responses/text.sse"} {
		body := fixture(t, name)
		left := make(chan struct{})
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(body)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(left)
		})
		hc := wire.NewClient(wire.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		a, err := New(config(f, s.URL), "", hc).Answer(ctx, hello(), nil)
		if err != nil || len(a.Parts) != 1 || ctx.Err() != nil {
			t.Errorf("%s: answer %s, error %v, context %v", f, asJSON(t, a), err, ctx.Err())
		}
		<-left
		cancel()
		hc.CloseIdleConnections()
	}
}
