package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/browser"
)

// glass is a made-up browser that can be watched.
type glass struct {
	browser.Browser
	done chan struct{}
	once sync.Once

	mu      sync.Mutex
	state   browser.State
	changed chan struct{}
	seq     uint64
	fresh   chan struct{}
	viewers int
	opened  int
}

func newGlass() *glass {
	return &glass{done: make(chan struct{}), changed: make(chan struct{}), fresh: make(chan struct{})}
}

func (g *glass) Done() <-chan struct{} { return g.done }
func (g *glass) Close() error          { g.once.Do(func() { close(g.done) }); return nil }
func (g *glass) State() (browser.State, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, g.changed
}
func (g *glass) set(f func(s *browser.State)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.state)
	close(g.changed)
	g.changed = make(chan struct{})
}
func (g *glass) paint() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seq++
	close(g.fresh)
	g.fresh = make(chan struct{})
}
func (g *glass) Frames() (browser.Frames, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.viewers++
	g.opened++
	return &pane{g: g, gone: make(chan struct{})}, nil
}
func (g *glass) looked() (now, ever int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.viewers, g.opened
}

type pane struct {
	g    *glass
	gone chan struct{}
	once sync.Once
}

func (p *pane) Close() error {
	p.once.Do(func() {
		close(p.gone)
		p.g.mu.Lock()
		p.g.viewers--
		p.g.mu.Unlock()
	})
	return nil
}
func (p *pane) Next(ctx context.Context, after uint64) (browser.Frame, error) {
	for {
		p.g.mu.Lock()
		seq, fresh := p.g.seq, p.g.fresh
		p.g.mu.Unlock()
		if seq != 0 && seq != after {
			return browser.Frame{Seq: seq}, nil
		}
		select {
		case <-fresh:
		case <-p.gone:
			return browser.Frame{}, context.Canceled
		case <-p.g.done:
			return browser.Frame{}, browser.ErrGone
		case <-ctx.Done():
			return browser.Frame{}, ctx.Err()
		}
	}
}

func (h *holder) with(t *testing.T, g *glass) {
	t.Helper()
	if _, err := h.get(func() (browser.Browser, error) { return g, nil }); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestWatchingABrowser(t *testing.T) {
	usual := lookFor
	t.Cleanup(func() { lookFor = usual })
	lookFor = time.Hour // nobody is slow enough to have looked away
	ctx := context.Background()
	bs := newBrowsers(nil)
	const id = domain.SessionID("s_1")
	if _, err := bs.frame(ctx, id, 0); !errors.Is(err, errNoBrowser) {
		t.Fatalf("without a browser: %v", err)
	}
	h := bs.holder(domain.Session{ID: id, ProjectID: "p_1"})
	if _, err := bs.frame(ctx, id, 0); !errors.Is(err, errNoBrowser) || bs.view(id).Open {
		t.Fatalf("before a browser: %v", err)
	}
	g := newGlass()
	h.with(t, g)
	if _, ever := g.looked(); ever != 0 {
		t.Fatal("somebody looks before anybody asked")
	}
	g.paint()
	one, err := bs.frame(ctx, id, 0)
	if err != nil || one.Seq == 0 {
		t.Fatal(one, err)
	}
	// The next look goes on with the same eyes and waits for another frame.
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	if _, err := bs.frame(short, id, one.Seq); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the same frame again: %v", err)
	}
	cancel()
	g.paint()
	two, err := bs.frame(ctx, id, one.Seq)
	if err != nil || two.Seq != one.Seq+1 {
		t.Fatal(two.Seq, one.Seq, err)
	}
	if now, ever := g.looked(); now != 1 || ever != 1 {
		t.Errorf("%d look, %d looked", now, ever)
	}
	// Nobody asks for a while: nothing is taken. Who waits is somebody who asks.
	lookFor = 20 * time.Millisecond
	asked := make(chan error, 1)
	actx, stop := context.WithCancel(ctx)
	go func() { _, err := bs.frame(actx, id, two.Seq); asked <- err }()
	time.Sleep(lookFor + 500*time.Millisecond)
	if now, _ := g.looked(); now != 1 {
		t.Error("frames end while somebody waits for one")
	}
	stop()
	<-asked
	within(t, "frames are taken though nobody asks", func() bool { now, _ := g.looked(); return now == 0 })
	if _, err := bs.frame(ctx, id, 0); err != nil {
		t.Errorf("a look after a while: %v", err)
	}

	// It ends while somebody waits; another browser's frames are newer than all before.
	go func() { _, err := bs.frame(ctx, id, two.Seq); asked <- err }()
	g.Close()
	if err := <-asked; !errors.Is(err, errNoBrowser) {
		t.Errorf("a browser that ended: %v", err)
	}
	if bs.view(id).Open {
		t.Error("a browser that ended is open")
	}
	g2 := newGlass()
	h.with(t, g2)
	g2.paint()
	three, err := bs.frame(ctx, id, two.Seq)
	if err != nil || three.Seq <= two.Seq {
		t.Errorf("frame %d of the new browser after frame %d: %v", three.Seq, two.Seq, err)
	}
	bs.closeAll()
	if now, _ := g2.looked(); now != 0 {
		t.Error("somebody looks at a closed browser")
	}
	if _, err := bs.frame(ctx, id, 0); !errors.Is(err, errNoBrowser) {
		t.Errorf("after the end: %v", err)
	}
}

func TestABrowserIsTold(t *testing.T) {
	var mu sync.Mutex
	var told []event.BrowserChanged
	bs := newBrowsers(func(n event.New) {
		mu.Lock()
		defer mu.Unlock()
		if n.SessionID != "s_1" || n.ProjectID != "p_1" || n.Origin != domain.OriginGuest || !event.Transient(n.Payload.EventType()) {
			t.Errorf("an event like no other: %+v", n)
		}
		told = append(told, *n.Payload.(*event.BrowserChanged))
	})
	all := func() []event.BrowserChanged {
		mu.Lock()
		defer mu.Unlock()
		return append([]event.BrowserChanged(nil), told...)
	}
	last := func() (e event.BrowserChanged) {
		if a := all(); len(a) > 0 {
			e = a[len(a)-1]
		}
		return e
	}
	h := bs.holder(domain.Session{ID: "s_1", ProjectID: "p_1"})
	if _, err := h.get(func() (browser.Browser, error) { return nil, errors.New("no") }); err == nil {
		t.Fatal("a browser that does not start")
	}
	if a := all(); len(a) != 2 || !a[0].Starting || a[1].Starting || a[1].Open {
		t.Fatalf("a start that failed is told as %+v", a)
	}
	g := newGlass()
	h.with(t, g)
	within(t, "it is not told that it is open", func() bool { return last().Open })
	g.set(func(s *browser.State) {
		s.Tabs = []browser.Page{{ID: "t1", URL: "http://a/"}, {ID: "t2", URL: "http://b/", Title: "B", Active: true}}
		s.Acted = &browser.Press{N: 1, X: 3, Y: 4, Tab: "t2"}
	})
	within(t, "its pages are not told", func() bool {
		e := last()
		return e.Tabs == 2 && e.URL == "http://b/" && e.Title == "B" && e.Acted != nil && e.Acted.X == 3
	})
	v := bs.view("s_1")
	if !v.Open || len(v.Tabs) != 2 || !v.Tabs[1].Active || v.Width != 0 {
		t.Errorf("the view is %+v", v)
	}
	g.set(func(s *browser.State) { s.Crashed = true })
	within(t, "the crash is not told", func() bool { return last().Trouble == "crashed" })
	// A page that changes without end is told a few times a second, and what did not
	// change is not told.
	titled := func(title string) {
		g.set(func(s *browser.State) {
			s.Tabs = slices.Clone(s.Tabs) // who was told of them may still look at them
			s.Tabs[1].Title = title
		})
	}
	n, begun := len(all()), time.Now()
	for i := range 2000 {
		titled(string(rune('a' + i%26)))
		time.Sleep(time.Millisecond / 2)
	}
	if more, most := len(all())-n, 2+int(time.Since(begun)/tellEvery); more > most {
		t.Errorf("2000 changes are told %d times, %d were due at most", more, most)
	}
	titled("at last")
	within(t, "the last change is not told", func() bool { return last().Title == "at last" })
	n = len(all())
	for range 5 {
		g.set(func(*browser.State) {})
		time.Sleep(tellEvery + 20*time.Millisecond)
	}
	if more := len(all()) - n; more != 0 {
		t.Errorf("what did not change is told %d times", more)
	}
	bs.close("s_1")
	if e := last(); e.Open {
		t.Errorf("after the end it is told as %+v", e)
	}
}
