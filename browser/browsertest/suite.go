package browsertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/browser"
)

// Env is one driver under test, with a Chromium to start and the site reachable from it.
type Env struct {
	Site   *Site
	Opener browser.Opener
	// New makes a driver with short limits: at most some seconds for an action,
	// so that the cases that wait for a failure end soon.
	New func(ctx context.Context, open browser.Opener) (browser.Browser, error)
}

// hang guards a call: no call may take longer, whatever the page does.
const hang = 2 * time.Minute

// RunWatched runs the cases that drive a browser while somebody looks all the time:
// what an action does must not depend on it.
func RunWatched(t *testing.T, factory func(t *testing.T) Env) {
	env := factory(t)
	b, err := env.New(context.Background(), env.Opener)
	if err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	c, ok := b.(browser.Screencast)
	if !ok {
		t.Fatal("the driver cannot be watched")
	}
	f, err := c.Frames()
	if err != nil {
		t.Fatalf("watching: %v", err)
	}
	seen := make(chan int, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		n := 0
		for last := uint64(0); ; n++ {
			fr, err := f.Next(ctx, last)
			if err != nil {
				seen <- n
				return
			}
			last = fr.Seq
		}
	}()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, env: env, b: b}
			s.oneTab()
			c.f(s)
		})
	}
	stop()
	if n := <-seen; n < 20 {
		t.Errorf("only %d frames were seen", n)
	}
}

// Run runs the contract suite.
func Run(t *testing.T, factory func(t *testing.T) Env) {
	env := factory(t)
	b, err := env.New(context.Background(), env.Opener)
	if err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
		select {
		case <-b.Done():
		default:
			t.Error("Done is not closed after Close")
		}
	})
	for _, c := range append(slices.Clone(cases), castCases...) {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, env: env, b: b}
			s.oneTab()
			c.f(s)
		})
	}
	for _, c := range ownCases {
		t.Run(c.name, func(t *testing.T) { c.f(t, env) })
	}
}

type testCase struct {
	name string
	f    func(s *suite)
}

var cases []testCase

// castCases are those that look themselves.
var castCases []testCase

type ownCase struct {
	name string
	f    func(t *testing.T, env Env)
}

// ownCases break their browser, so each starts its own.
var ownCases []ownCase

type suite struct {
	*testing.T
	env Env
	b   browser.Browser
}

func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	s.Cleanup(cancel)
	return ctx
}

// oneTab closes what an earlier case left open.
func (s *suite) oneTab() {
	tabs, err := s.b.Tabs(s.ctx())
	if err != nil {
		s.Fatalf("tabs: %v", err)
	}
	tb, ok := s.b.(browser.Tabber)
	for i := 1; ok && i < len(tabs); i++ {
		if err := tb.CloseTab(s.ctx(), tabs[i].ID); err != nil {
			s.Fatalf("closing tab %s: %v", tabs[i].ID, err)
		}
	}
}

func (s *suite) open(path string) browser.Page {
	s.Helper()
	p, err := s.b.Open(s.ctx(), s.env.Site.Base+path)
	if err != nil {
		s.Fatalf("opening %s: %v", path, err)
	}
	if p.Error != "" {
		s.Fatalf("opening %s: %s", path, p.Error)
	}
	return p
}

func (s *suite) all() string {
	s.Helper()
	v, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{WholePage: true, MaxChars: 200_000})
	if err != nil {
		s.Fatalf("snapshot: %v", err)
	}
	return v.Text
}

// line finds the only line with all the words.
func (s *suite) line(text string, words ...string) string {
	s.Helper()
	var found []string
	for l := range strings.Lines(text) {
		ok := true
		for _, w := range words {
			ok = ok && strings.Contains(l, w)
		}
		if ok {
			found = append(found, strings.TrimSpace(l))
		}
	}
	if len(found) != 1 {
		s.Fatalf("%d lines with %q in:\n%s", len(found), words, text)
	}
	return found[0]
}

func (s *suite) has(text string, want ...string) {
	s.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			s.Errorf("missing %q in:\n%s", w, text)
		}
	}
}

func (s *suite) hasNot(text string, bad ...string) {
	s.Helper()
	for _, w := range bad {
		if strings.Contains(text, w) {
			s.Errorf("unexpected %q in:\n%s", w, text)
		}
	}
}

// refIn is the ref of a line.
func refIn(line string) string {
	for _, f := range strings.Fields(line) {
		if strings.HasPrefix(f, "[e") || (strings.HasPrefix(f, "[f") && strings.Contains(f, "e")) {
			return strings.Trim(f, "[]")
		}
	}
	return ""
}

// ref is the ref of the only element whose line has all the words.
func (s *suite) ref(words ...string) string {
	s.Helper()
	l := s.line(s.all(), words...)
	r := refIn(l)
	if r == "" {
		s.Fatalf("no ref in %q", l)
	}
	return r
}

func (s *suite) click(ref string) browser.Effect {
	s.Helper()
	e, err := s.b.Click(s.ctx(), ref)
	if err != nil {
		s.Fatalf("click %s: %v", ref, err)
	}
	return e
}

func (s *suite) typ(ref, text string, opt browser.TypeOptions) browser.Effect {
	s.Helper()
	e, err := s.b.Type(s.ctx(), ref, text, opt)
	if err != nil {
		s.Fatalf("type %s: %v", ref, err)
	}
	return e
}

// refused asks for a RefError of the kind, that says why.
func (s *suite) refused(err error, kind error, why string) *browser.RefError {
	s.Helper()
	var re *browser.RefError
	if !errors.As(err, &re) || !errors.Is(err, kind) {
		s.Fatalf("got error %v, want %v", err, kind)
	}
	if !strings.Contains(re.Why, why) {
		s.Errorf("the error says %q, want %q in it", re.Why, why)
	}
	return re
}

func (s *suite) tabber() browser.Tabber {
	s.Helper()
	tb, ok := s.b.(browser.Tabber)
	if !ok {
		s.Fatal("the driver cannot switch tabs")
	}
	return tb
}
