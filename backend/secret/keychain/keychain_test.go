package keychain

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
)

const canary = "sk-canary-0123456789abcdef"

// stub is a keychain that does what a test wants.
type stub struct {
	mu    sync.Mutex
	items map[string]string
	away  error
	block chan struct{} // calls wait for it to be closed
	err   error
	lies  bool // says it kept what it did not
	let   chan struct{}
	slow  chan struct{} // letting go waits for it to be closed
}

func newStub() *stub { return &stub{items: map[string]string{}, let: make(chan struct{}, 10)} }

func (s *stub) wait() {
	if s.block != nil {
		<-s.block
	}
}

func (s *stub) get(_ context.Context, service, account string) (string, error) {
	s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", s.err
	}
	v, ok := s.items[service+"/"+account]
	if !ok {
		return "", errNone
	}
	return v, nil
}

func (s *stub) set(_ context.Context, service, account, value string) error {
	s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.lies {
		s.items[service+"/"+account] = value
	}
	return s.err
}

func (s *stub) remove(_ context.Context, service, account string) error {
	if account == "panic" {
		var nothing *stub
		nothing.items["x"] = "y" // that is the point
	}
	s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.items[service+"/"+account]; !ok {
		return errNone
	}
	delete(s.items, service+"/"+account)
	return s.err
}

func (s *stub) reachable() error { return s.away }
func (s *stub) letGo() {
	s.let <- struct{}{}
	if s.slow != nil {
		<-s.slow
	}
}

func TestKeychain(t *testing.T) {
	s := newStub()
	k := newKeychain("glasshouse", s)
	ctx := t.Context()
	if _, err := k.Get(ctx, "model:a"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	if err := k.Set(ctx, "model:a", canary); err != nil {
		t.Fatal(err)
	}
	if v, err := k.Get(ctx, "model:a"); err != nil || v != canary {
		t.Errorf("%q %v", v, err)
	}
	if s.items["glasshouse/model:a"] != canary {
		t.Errorf("%v", s.items)
	}
	if err := k.Delete(ctx, "model:a"); err != nil {
		t.Error(err)
	}
	if err := k.Delete(ctx, "model:a"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	for what, spoil := range map[string]func(){
		"away":    func() { s.away = errors.New("no session") },
		"refuses": func() { s.err = errors.New("it is locked") },
		"forgets": func() { s.lies = true },
	} {
		s.away, s.err, s.lies = nil, nil, false
		spoil()
		err := k.Set(ctx, "model:b", canary)
		var e *domain.Error
		if !errors.As(err, &e) || e.Code != domain.CodeUnavailable || !strings.Contains(e.Hint, "key_env") || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.away, s.err, s.lies = nil, nil, false
	if err := k.Delete(ctx, "panic"); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "went away") {
		t.Errorf("%v", err)
	}
	if _, err := k.Get(ctx, "model:b"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("it is of no use after a fault of the library's: %v", err)
	}
}

// An answer is an answer, also when it comes with the end of its call.
func TestKeychainAnswersEachTime(t *testing.T) {
	k := newKeychain("glasshouse", newStub())
	var wg sync.WaitGroup
	for range 16 { // more than there are processors, so that who waits wakes late
		wg.Go(func() {
			for i := range 1000 {
				if err := k.Set(t.Context(), "model:a", canary); err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A keychain that waits for a person who is away holds nobody up for long, and no
// second call is made on it meanwhile.
func TestKeychainThatHangs(t *testing.T) {
	s := newStub()
	s.block = make(chan struct{})
	k := newKeychain("glasshouse", s)
	k.wait = 50 * time.Millisecond
	before := runtime.NumGoroutine()
	for i := range 20 {
		_, err := k.Get(t.Context(), "model:a")
		if domain.CodeOf(err) != domain.CodeUnavailable || i > 0 && !strings.Contains(err.Error(), "earlier question") {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Errorf("%d goroutines wait", n-before)
	}
	select {
	case <-s.let:
	case <-time.After(time.Minute):
		t.Error("what hangs is not let go of")
	}
	// The caller's own end counts too.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.wait = time.Hour
	if _, err := k.Get(ctx, "model:a"); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
	close(s.block)
	k.wait = time.Minute
	if err := k.Set(t.Context(), "model:a", canary); err != nil {
		t.Errorf("once it answered: %v", err)
	}
}

// Letting go of a call ends what the keychain is asked over. It never meets the next
// call, also when it is late and the call it was meant for has ended.
func TestKeychainLetsGoOfOneCall(t *testing.T) {
	s := newStub()
	s.block, s.slow = make(chan struct{}), make(chan struct{})
	k := newKeychain("glasshouse", s)
	k.wait = time.Millisecond
	if _, err := k.Get(t.Context(), "model:a"); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "in time") {
		t.Fatalf("%v", err)
	}
	<-s.let // it began, and takes its time
	close(s.block)
	k.wait = 100 * time.Millisecond
	if _, err := k.Get(t.Context(), "model:a"); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "earlier question") {
		t.Errorf("asked while the last call is let go of: %v", err)
	}
	close(s.slow)
	k.wait = time.Minute
	if _, err := k.Get(t.Context(), "model:a"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("let go of, and then: %v", err)
	}
}

// A place that is free is taken, also by who has no time left: nothing is said of an
// earlier question that nobody asked.
func TestKeychainWithNoTimeLeft(t *testing.T) {
	s := newStub()
	s.let = make(chan struct{}, 100)
	k := newKeychain("glasshouse", s)
	k.wait = -1
	for range 100 {
		if _, err := k.Get(t.Context(), "model:a"); err == nil || strings.Contains(err.Error(), "earlier question") {
			t.Fatal(err)
		}
		k.slot <- struct{}{} // it has ended
		<-k.slot
	}
}

// The command of macOS as its manual has it: arguments hold no key.
func TestSecurityCommand(t *testing.T) {
	items := map[string]string{}
	var fail int
	s := &security{run: func(_ context.Context, stdin string, args ...string) (string, int, error) {
		for _, a := range args {
			if strings.Contains(a, canary) || strings.Contains(a, base64.StdEncoding.EncodeToString([]byte(canary))) {
				t.Errorf("the key is an argument: %q", args)
			}
		}
		if fail != 0 {
			return canary + " is wrong", fail, errors.New("exit")
		}
		line := strings.Join(args, " ")
		if line == "-i" {
			line = strings.TrimSpace(stdin)
		}
		f := strings.Fields(strings.ReplaceAll(line, "'", ""))
		at := func(flag string) string {
			for i := range f[:len(f)-1] {
				if f[i] == flag {
					return f[i+1]
				}
			}
			return ""
		}
		name := at("-s") + "/" + at("-a")
		_, there := items[name]
		switch {
		case f[0] == "add-generic-password":
			items[name] = at("-w")
			return "", 0, nil
		case !there:
			return "could not be found", notThere, errors.New("exit 44")
		case f[0] == "delete-generic-password":
			delete(items, name)
			return "", 0, nil
		case f[0] == "find-generic-password" && f[len(f)-1] == "-w":
			return items[name] + "\n", 0, nil
		}
		return "", 2, fmt.Errorf("what is %q", line)
	}}
	k := newKeychain("glasshouse", s)
	ctx := t.Context()
	odd := canary + `'"$(x)` + "`\\"
	for _, v := range []string{canary, odd} {
		if err := k.Set(ctx, "model:a", v); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Get(ctx, "model:a"); err != nil || got != v {
			t.Errorf("%q %v", got, err)
		}
	}
	items["glasshouse/model:b"] = "by-hand-0123"
	if got, err := k.Get(ctx, "model:b"); err != nil || got != "by-hand-0123" {
		t.Errorf("%q %v", got, err)
	}
	items["glasshouse/model:b"] = encoded + "%%%"
	if _, err := k.Get(ctx, "model:b"); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if err := k.Delete(ctx, "model:a"); err != nil {
		t.Error(err)
	}
	if _, err := k.Get(ctx, "model:a"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	if err := k.Set(ctx, "model:a", strings.Repeat("k", 4000)); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
	fail = 51
	for _, err := range []error{k.Set(ctx, "model:a", canary), k.Delete(ctx, "model:a")} {
		if domain.CodeOf(err) != domain.CodeUnavailable || strings.Contains(err.Error(), canary) {
			t.Errorf("%v", err)
		}
	}
	if _, err := k.Get(ctx, "model:a"); domain.CodeOf(err) != domain.CodeUnavailable || strings.Contains(err.Error(), canary) {
		t.Errorf("%v", err)
	}
}
