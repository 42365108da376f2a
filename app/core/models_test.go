package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/app/config"
	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
	"glasshouse/backend/secret"
)

const canary = "sk-proj-Canary0123456789abcdefXYZ"

// noisy is where a core logs; it may be written to by many.
type noisy struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *noisy) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *noisy) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// brokenStore is a keychain that cannot be asked.
type brokenStore struct{}

func (brokenStore) why() error {
	return domain.E(domain.CodeUnavailable, "this computer's keychain cannot be reached", "put the key into an environment variable", nil)
}
func (s brokenStore) Get(context.Context, string) (string, error) { return "", s.why() }
func (s brokenStore) Set(context.Context, string, string) error   { return s.why() }
func (s brokenStore) Delete(context.Context, string) error        { return s.why() }
func (brokenStore) Name() string                                  { return "the keychain" }

type caller func(method, path, body string, out any, head ...string) (int, string)

func modelCore(t *testing.T, p config.Paths, store secret.Store) (*Core, caller, *noisy) {
	t.Helper()
	log := &noisy{}
	c, err := open(context.Background(), Options{Paths: p, Version: "test", Log: log, Secrets: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	h := c.Handler()
	return c, func(method, path, body string, out any, head ...string) (int, string) {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if out != nil {
			reflect.ValueOf(out).Elem().SetZero()
			if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
				t.Fatalf("%s %s: %v: %s", method, path, err, w.Body.String())
			}
		}
		if strings.HasPrefix(path, "/v1/models") && w.Code < 300 && w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s may be kept by a cache", method, path)
		}
		return w.Code, w.Body.String()
	}, log
}

func chat(name, base, env string) model.Config {
	return model.Config{Name: name, Format: model.FormatChat, Model: "m", BaseURL: base, KeyEnv: env}
}

func put(t *testing.T, call caller, c model.Config) httpapi.ModelsView {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var v httpapi.ModelsView
	if code, body := call("PUT", "/v1/models/"+c.Name, string(b), &v); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	return v
}

func row(v httpapi.ModelsView, name string) httpapi.ModelView {
	for _, x := range v.Models {
		if x.Name == name {
			return x
		}
	}
	return httpapi.ModelView{}
}

func TestOpenModel(t *testing.T) {
	p := paths(t)
	c, call, _ := modelCore(t, p, &secret.Memory{})
	m := c.models
	if _, _, err := m.Open(t.Context(), ""); domain.CodeOf(err) != domain.CodeNotFound || !strings.Contains(err.Error(), "glasshouse model add") {
		t.Errorf("%v", err)
	}
	put(t, call, chat("qwen-small", "http://127.0.0.1:9/v1", ""))
	a, cfg, err := m.Open(t.Context(), "")
	if err != nil || cfg.Name != "qwen-small" {
		t.Fatalf("%+v %v", cfg, err)
	}
	if b, _, _ := m.Open(t.Context(), "qwen-small"); a != b {
		t.Error("connections are not used again")
	}
	put(t, call, chat("claude", "http://127.0.0.1:9/v1", ""))
	put(t, call, chat("qwen-small", "http://127.0.0.1:10/v1", ""))
	if b, cfg, _ := m.Open(t.Context(), "qwen-small"); a == b || cfg.BaseURL != "http://127.0.0.1:10/v1" {
		t.Error("a changed model is asked as before")
	}
	if _, err := m.SetDefault(t.Context(), "", "person"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"": {"qwen-small, claude", "glasshouse model default"}, "qwen": {"did you mean qwen-small?"}, "cluade": {"did you mean claude?"}, "CLAUDE": {"did you mean claude?"},
		"zzz": {"there are qwen-small, claude"}, strings.Repeat("x", 5000): {"there are"}, "a\nb": {`"a\nb"`},
	} {
		_, _, err := m.Open(t.Context(), name)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) || len(err.Error()) > 300 {
				t.Errorf("%.20q: %v", name, err)
			}
		}
	}
	if _, _, err := m.Open(t.Context(), canary); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("a key in the place of a name is repeated: %v", err)
	}
	if _, err := m.SetDefault(t.Context(), "claude", "person"); err != nil {
		t.Fatal(err)
	}
	if _, cfg, err := m.Open(t.Context(), ""); err != nil || cfg.Name != "claude" {
		t.Errorf("%+v %v", cfg, err)
	}
}

// Without a keychain the environment does, and a key that cannot be kept is not said
// to be.
func TestNoKeychain(t *testing.T) {
	p := paths(t)
	t.Setenv("GLASSHOUSE_TEST_KEY", canary)
	c, call, _ := modelCore(t, p, brokenStore{})
	put(t, call, chat("env", "http://127.0.0.1:9/v1", "GLASSHOUSE_TEST_KEY"))
	put(t, call, chat("local", "http://127.0.0.1:9/v1", ""))
	v := put(t, call, chat("own", "", ""))
	if row(v, "env").Key != "environment" || row(v, "local").Key != "none" || row(v, "own").Key != "missing" || !strings.Contains(row(v, "own").Problem, "cannot be reached") {
		t.Errorf("%+v", v)
	}
	if code, body := call("PUT", "/v1/models/own/key", `{"key":"`+canary+`"}`, nil); code != 503 || strings.Contains(body, canary) || !strings.Contains(body, "environment variable") {
		t.Errorf("%d %s", code, body)
	}
	for _, name := range []string{"env", "local"} {
		if _, _, err := c.models.Open(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code, body := call("DELETE", "/v1/models/own", "", nil); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	// What a variable holds that is no key is not sent and not shown.
	for _, odd := range []string{p.Data, p.Data + ":/none", "http://h/" + canary, "two words " + canary} {
		t.Setenv("GLASSHOUSE_TEST_KEY", odd)
		if _, _, err := c.models.Open(t.Context(), "env"); err == nil || strings.Contains(err.Error(), odd) {
			t.Errorf("%q: %v", odd, err)
		}
	}
}

// lockable is a keychain that can be locked.
type lockable struct {
	secret.Memory
	locked atomic.Bool
}

func (s *lockable) why() error {
	return domain.E(domain.CodeUnavailable, "the keychain is locked", "unlock it", nil)
}

func (s *lockable) Get(ctx context.Context, account string) (string, error) {
	if s.locked.Load() {
		return "", s.why()
	}
	return s.Memory.Get(ctx, account)
}

func (s *lockable) Delete(ctx context.Context, account string) error {
	if s.locked.Load() {
		return s.why()
	}
	return s.Memory.Delete(ctx, account)
}

// A keychain that is locked in the middle of a turn ends none; a key that cannot be
// taken out of it keeps its model.
func TestKeychainLockedMeanwhile(t *testing.T) {
	store := &lockable{}
	c, call, _ := modelCore(t, paths(t), store)
	put(t, call, chat("m", "https://h/v1", ""))
	if code, body := call("PUT", "/v1/models/m/key", `{"key":"`+canary+`"}`, nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	var used []string
	c.models.connect = func(_ model.Config, key string, _ *http.Client) (model.Client, error) {
		used = append(used, key)
		return nil, domain.E(domain.CodeInternal, "no more than that", "", nil)
	}
	open := func() { _, _, _ = c.models.Open(t.Context(), "m") }
	open()
	store.locked.Store(true)
	open()
	if code, body := call("DELETE", "/v1/models/m", "", nil); code != 503 || !strings.Contains(body, "locked") {
		t.Errorf("%d %s", code, body)
	}
	open()
	store.locked.Store(false)
	_ = store.Memory.Delete(t.Context(), "model:m") // by another program
	open()
	store.locked.Store(true)
	open()
	if want := []string{canary, canary, canary, "", ""}; !slices.Equal(used, want) {
		t.Errorf("%q", used)
	}
}

// waiting is a keychain that asks a person who is away.
type waiting struct{ brokenStore }

func (waiting) Get(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", domain.E(domain.CodeUnavailable, "the keychain did not answer in time", "unlock it", context.Cause(ctx))
}

// A list does not wait for a person who is away, and says what it could not see.
func TestListWithAKeychainThatWaits(t *testing.T) {
	old := listTime
	listTime = 50 * time.Millisecond
	defer func() { listTime = old }()
	t.Setenv("GLASSHOUSE_TEST_KEY", canary)
	_, call, _ := modelCore(t, paths(t), waiting{})
	put(t, call, chat("env", "https://h/v1", "GLASSHOUSE_TEST_KEY"))
	v := put(t, call, chat("own", "", ""))
	if row(v, "env").Key != "environment" || row(v, "own").Key != "missing" || !strings.Contains(row(v, "own").Problem, "in time") {
		t.Errorf("%+v", v)
	}
}

// A key goes over TLS or to this computer, else nowhere.
func TestKeyIsNotSentInTheOpen(t *testing.T) {
	p := paths(t)
	store := &secret.Memory{}
	c, call, _ := modelCore(t, p, store)
	c.models.connect = func(c model.Config, key string, _ *http.Client) (model.Client, error) {
		return nil, fmt.Errorf("asked with %q", key)
	}
	for base, safe := range map[string]bool{"": true, "https://h/v1": true, "http://127.0.0.1:1/v1": true, "http://[::1]:1/v1": true, "http://localhost/v1": true,
		"http://h/v1": false, "http://192.0.2.7/v1": false, "http://127.0.0.1.h/v1": false, "http://localhost.h/v1": false, "http://10.0.0.1/v1": false} {
		put(t, call, chat("m", base, ""))
		if err := store.Set(t.Context(), "model:m", canary); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.models.Open(t.Context(), "m")
		if sent := strings.Contains(err.Error(), "asked with"); sent != safe || !safe && (domain.CodeOf(err) != domain.CodeDenied || strings.Contains(err.Error(), canary)) {
			t.Errorf("%s: %v", base, err)
		}
		_ = store.Delete(t.Context(), "model:m")
		if _, _, err := c.models.Open(t.Context(), "m"); base != "" && !strings.Contains(err.Error(), `asked with ""`) {
			t.Errorf("%s without a key: %v", base, err)
		}
	}
}

func TestTryModel(t *testing.T) {
	p := paths(t)
	store := &secret.Memory{}
	c, call, log := modelCore(t, p, store)
	srv := modeltest.Text(t, `
served: m-2026
answers:
  - say: ready
  - fail: {kind: auth}
  - say: the key is `+canary+`
  - stall: true
`, modeltest.Options{Key: canary})
	put(t, call, chat("m", srv.URL(), ""))
	if code, body := call("PUT", "/v1/models/m/key", `{"key":"`+canary+`"}`, nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	var got httpapi.ModelTry
	if code, body := call("POST", "/v1/models/m/try", `{}`, &got); code != 200 || !got.OK || got.Text != "ready" || got.Served != "m-2026" || got.Usage.Input == 0 || got.Usage.Output == 0 || got.Error != "" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := call("POST", "/v1/models/m/try", "", &got); code != 200 || got.OK || got.Kind != model.ErrAuth || got.Error == "" || strings.Contains(body, canary) {
		t.Errorf("%d %s", code, body)
	}
	if _, body := call("POST", "/v1/models/m/try", `{}`, &got); !got.OK || strings.Contains(body, canary) || !strings.Contains(got.Text, "[key of model m]") {
		t.Errorf("%s", body)
	}
	old := tryTime
	tryTime = time.Second
	defer func() { tryTime = old }()
	if _, body := call("POST", "/v1/models/m/try", `{}`, &got); got.OK || got.Kind != model.ErrTimeout || !strings.Contains(got.Error, "no answer within") {
		t.Errorf("%s", body)
	}
	for _, r := range srv.Requests() {
		if r.Header.Get("Authorization") != "Bearer "+canary || r.Asked == nil || len(r.Asked.Tools) > 0 || r.Asked.MaxOutput != tryOutput {
			t.Errorf("%v %s", r.Header, r.Body)
		}
	}
	// Why a model is not asked at all is an answer too.
	put(t, call, chat("m2", "", ""))
	if code, body := call("POST", "/v1/models/m2/try", `{}`, &got); code != 200 || got.OK || got.Code != domain.CodeUnavailable || got.Hint == "" {
		t.Errorf("%d %s", code, body)
	}
	srv.Close()
	if _, body := call("POST", "/v1/models/m/try", `{}`, &got); got.OK || got.Kind != model.ErrNetwork {
		t.Errorf("%s", body)
	}
	if evs, err := c.events.Read(t.Context(), eventlog.Filter{}); err != nil || slices.ContainsFunc(evs, func(e event.Envelope) bool { return strings.HasPrefix(string(e.Type), "model.") }) {
		t.Errorf("it was recorded: %v", err)
	}
	if strings.Contains(log.String(), canary) {
		t.Error("the core's log has the key")
	}
}
