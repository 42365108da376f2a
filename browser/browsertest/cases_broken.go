package browsertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"glasshouse/browser"
)

func init() {
	ownCases = append(ownCases,
		ownCase{"a crashed page", crashed},
		ownCase{"a hung page", hung},
		ownCase{"a broken pipe", brokenPipe},
		ownCase{"a silent pipe", silentPipe},
		ownCase{"hostile messages", hostile},
	)
}

func own(t *testing.T, env Env) (*suite, *Tap) {
	t.Helper()
	open, taps := Tapped(env.Opener)
	b, err := env.New(context.Background(), open)
	if err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	return &suite{T: t, env: env, b: b}, <-taps
}

func crashed(t *testing.T, env Env) {
	s, tap := own(t, env)
	env.Site.Set("covered", "")
	s.open("/covered.html")
	r := s.ref(`button "Press me"`)
	go func() { // while a click waits
		time.Sleep(300 * time.Millisecond)
		tap.Crash()
	}()
	_, err := s.b.Click(s.ctx(), r)
	if !errors.Is(err, browser.ErrCrashed) {
		t.Fatalf("got %v, want %v", err, browser.ErrCrashed)
	}
	s.has(s.all(), "Press me") // restored
	_, err = s.b.Click(s.ctx(), r)
	s.refused(err, browser.ErrStaleRef, "")
	tabs, err := s.b.Tabs(s.ctx())
	if err != nil || len(tabs) != 1 || !strings.HasSuffix(tabs[0].URL, "/covered.html") {
		t.Errorf("tabs: %+v %v", tabs, err)
	}
	// At rest: the next look finds it restored.
	tap.Crash()
	time.Sleep(300 * time.Millisecond)
	v, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{WholePage: true})
	if err != nil && !errors.Is(err, browser.ErrCrashed) {
		t.Fatalf("after a crash at rest: %v", err)
	}
	if err == nil {
		s.has(v.Text, "Press me")
	}
	s.open("/form.html")
	s.has(s.all(), "Order form")
}

func hung(t *testing.T, env Env) {
	s, _ := own(t, env)
	s.open("/misc.html")
	_, err := s.b.Click(s.ctx(), s.ref(`button "Hang"`))
	if !errors.Is(err, browser.ErrUnresponsive) {
		t.Fatalf("got %v, want %v", err, browser.ErrUnresponsive)
	}
	s.open("/form.html")
	s.has(s.all(), "Order form")
}

func brokenPipe(t *testing.T, env Env) {
	s, tap := own(t, env)
	env.Site.Set("covered", "")
	s.open("/covered.html")
	r := s.ref(`button "Press me"`)
	go func() {
		time.Sleep(200 * time.Millisecond)
		tap.Close()
	}()
	_, err := s.b.Click(s.ctx(), r)
	if !errors.Is(err, browser.ErrGone) {
		t.Fatalf("got %v, want %v", err, browser.ErrGone)
	}
	s.gone()
}

// gone asks that everything says so at once.
func (s *suite) gone() {
	s.Helper()
	select {
	case <-s.b.Done():
	case <-time.After(hang):
		s.Fatal("Done is not closed")
	}
	t0 := time.Now()
	_, e1 := s.b.Open(s.ctx(), s.env.Site.Base+"/form.html")
	_, e2 := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{})
	_, e3 := s.b.Tabs(s.ctx())
	_, e4 := s.b.Screenshot(s.ctx(), browser.ScreenshotOptions{})
	_, e5 := s.b.Click(s.ctx(), "e1")
	for _, err := range []error{e1, e2, e3, e4, e5} {
		if !errors.Is(err, browser.ErrGone) {
			s.Errorf("got %v, want %v", err, browser.ErrGone)
		}
	}
	if d := time.Since(t0); d > 30*time.Second {
		s.Errorf("it took %v", d)
	}
}

func silentPipe(t *testing.T, env Env) {
	s, tap := own(t, env)
	s.open("/form.html")
	tap.Silence()
	t0 := time.Now()
	_, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{})
	if err == nil {
		t.Fatal("a silent pipe gave a snapshot")
	}
	if !errors.Is(err, browser.ErrGone) {
		t.Errorf("got %v, want %v", err, browser.ErrGone)
	}
	t.Logf("a silent pipe was noticed after %v", time.Since(t0).Round(100*time.Millisecond))
	s.gone()
}

func hostile(t *testing.T, env Env) {
	// Messages that are well-formed but lie: nothing breaks, the page stays usable.
	s, tap := own(t, env)
	s.open("/form.html")
	page := tap.LastPage()
	for _, m := range []string{
		`{"method":"DOM.setChildNodes","sessionId":"%s","params":{"parentId":1,"nodes":[]}}`,
		`{"method":"Page.frameNavigated","sessionId":"%s","params":{}}`,
		`{"method":"Page.frameNavigated","sessionId":"%s","params":{"frame":null}}`,
		`{"method":"Page.frameNavigated","sessionId":"%s"}`,
		`{"method":"Page.lifecycleEvent","sessionId":"%s","params":{"frameId":7}}`,
		`{"method":"Page.javascriptDialogOpening","sessionId":"%s","params":{"type":"alert","message":"lie"}}`,
		`{"method":"Network.requestWillBeSent","sessionId":"%s","params":{"requestId":"x"}}`,
		`{"method":"Target.attachedToTarget","sessionId":"%s","params":{"sessionId":"zz","targetInfo":null}}`,
		`{"method":"Target.attachedToTarget","params":{"sessionId":"","targetInfo":{"type":"page"}}}`,
		`{"method":"Target.detachedFromTarget","params":{"sessionId":"nobody"}}`,
		`{"method":"Target.targetCrashed","params":{"targetId":"nobody"}}`,
		`{"id":99999,"result":{}}`, `{"id":-1,"error":{"code":1,"message":"x"}}`, `{"id":12345678901234}`, `{}`,
		`{"method":"No.such","sessionId":"nobody","params":[1,2]}`, ` `,
	} {
		if strings.Contains(m, "%s") {
			m = fmt.Sprintf(m, page)
		}
		tap.Say(append([]byte(m), 0))
	}
	s.has(s.all(), "Order form")

	// A message without end is cut off, and so is what is no message at all.
	for name, raw := range map[string][]byte{
		"endless": bytes.Repeat([]byte("x"), 80<<20),
		"noise":   []byte("\xff\xfe not json \x00"),
		"nested":  append(append([]byte(`{"params":`), bytes.Repeat([]byte("["), 200_000)...), 0),
	} {
		t.Run(name, func(t *testing.T) {
			s, tap := own(t, env)
			s.open("/form.html")
			tap.Say(raw)
			s.gone()
		})
	}
}
