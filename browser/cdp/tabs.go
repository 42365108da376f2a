package cdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"

	"glasshouse/browser"
)

// tab is one page target. Its fields are guarded by chrome.mu.
type tab struct {
	id     string
	target string
	main   *sess
	kids   []*sess // frames that live in other processes

	url, title string
	frame      string // id of the main frame
	loader     string // of the main frame's document
	parsed     string // the loader whose document was read to its end
	loaded     string // the loader whose load event came
	docs       int    // documents committed
	moves      int    // same-document navigations
	loading    bool
	failedURL  string // set while an error page is shown

	running               bool // resumed after its set-up
	crashed, closed, hung bool
	crashes               []time.Time

	dialogs   []string
	leave     bool // beforeunload dialogs are accepted
	downloads []string
	requests  int                 // seen since tracking began
	inflight  map[string]struct{} // of those, still open
	fileAsked bool

	toAck      []int64   // frames of its screencast that wait to be acknowledged
	titled     time.Time // when its title was asked for last
	titleLater bool      // it will be asked again
}

func (b *chrome) current() *tab {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active
}

func (b *chrome) isCrashed(t *tab) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return t.crashed
}

func (b *chrome) byTarget(id string) *tab {
	for _, t := range b.tabs {
		if t.target == id && !t.closed {
			return t
		}
	}
	return nil
}

// attached sets up a new session. It runs on the reading goroutine and only
// queues commands: a target that is frozen at its start answers nothing, so the
// set-up and the resume are written without waiting.
func (b *chrome) attached(parent *sess, id string, info *target.Info) {
	s := &sess{m: b.m, id: id, target: string(info.TargetID), kind: info.Type}
	refuse := func() {
		s.post("Runtime.runIfWaitingForDebugger", nil)
		b.m.post("", target.CommandDetachFromTarget, target.DetachFromTargetParams{SessionID: target.SessionID(id)})
	}
	b.mu.Lock()
	for _, old := range b.sessions {
		if old.target == s.target { // the same target once more
			b.mu.Unlock()
			refuse()
			return
		}
	}
	switch {
	case info.Type == "page" && parent == nil && info.Subtype == "":
		live := 0
		for _, t := range b.tabs {
			if !t.closed {
				live++
			}
		}
		if live >= maxTabs {
			b.mu.Unlock()
			b.m.post("", target.CommandCloseTarget, target.CloseTargetParams{TargetID: info.TargetID})
			return
		}
		b.nextTab++
		t := &tab{id: "t" + strconv.Itoa(b.nextTab), target: s.target, main: s, url: info.URL, title: info.Title}
		s.tab = t
		b.tabs = append(b.tabs, t)
		if b.active == nil {
			b.active = t
		}
	case info.Type == "iframe" && parent != nil && parent.tab != nil && len(parent.tab.kids) < 200:
		s.tab, s.parent = parent.tab, parent
		s.tab.kids = append(s.tab.kids, s)
	default:
		b.mu.Unlock()
		refuse()
		return
	}
	b.sessions[id] = s
	b.signal()
	b.mu.Unlock()

	s.post("Page.enable", nil)
	if s.kind == "page" {
		s.post("Page.setLifecycleEventsEnabled", map[string]bool{"enabled": true})
		s.post("Inspector.enable", nil)
		s.post("Emulation.setDeviceMetricsOverride", map[string]any{
			"width": b.opt.Width, "height": b.opt.Height, "deviceScaleFactor": 1, "mobile": false,
		})
		s.post("Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true})
	}
	s.post("Page.setInterceptFileChooserDialog", map[string]bool{"enabled": true})
	yes := true
	s.post(target.CommandSetAutoAttach, target.SetAutoAttachParams{
		AutoAttach: true, WaitForDebuggerOnStart: true, Flatten: &yes,
		Filter: target.Filter{{Type: "iframe"}, {Exclude: true}},
	})
	if s.kind == "page" {
		// A tab that was there before us has a document already.
		_, _ = b.m.send(s.id, "Page.getFrameTree", nil, func(r reply) { b.firstDocument(s.tab, r) })
	}
	_, _ = b.m.send(s.id, "Runtime.runIfWaitingForDebugger", nil, func(reply) {
		b.mu.Lock()
		if s.kind == "page" {
			s.tab.running = true
		}
		b.signal()
		b.mu.Unlock()
	})
}

// awake waits until a tab's first document runs. Chromium's renderer dies of a
// navigation that comes earlier (seen with 156: signal 11 in one start of twelve).
func (b *chrome) awake(ctx context.Context, t *tab) error {
	if !b.until(ctx, b.opt.CallTimeout, func() bool { return t.crashed || t.closed || (t.running && t.loader != "") }) {
		if err := b.m.failed(); err != nil {
			return err
		}
		return fmt.Errorf("waiting for a new tab: %w", errSilent)
	}
	return nil
}

// detached forgets a session. b.mu is not held.
func (b *chrome) detached(id string) {
	b.mu.Lock()
	s := b.sessions[id]
	if s == nil {
		b.mu.Unlock()
		return
	}
	delete(b.sessions, id)
	t := s.tab
	why := errDetached
	if t.crashed {
		why = errCrashed
	}
	if s.kind == "page" {
		if !t.crashed {
			b.drop(t)
		}
	} else {
		t.kids = slices.DeleteFunc(t.kids, func(k *sess) bool { return k == s })
	}
	b.signal()
	b.mu.Unlock()
	b.m.drop(id, why)
}

// drop takes a closed tab out; its opener's neighbour becomes current. b.mu is held.
func (b *chrome) drop(t *tab) {
	t.closed = true
	i := slices.Index(b.tabs, t)
	if i < 0 {
		return
	}
	b.tabs = slices.Delete(b.tabs, i, i+1)
	if b.active == t {
		b.active = nil
		if len(b.tabs) > 0 {
			b.active = b.tabs[max(0, min(i-1, len(b.tabs)-1))]
		}
	}
}

func (b *chrome) crash(t *tab) {
	b.mu.Lock()
	if t == nil || t.crashed || t.closed {
		b.mu.Unlock()
		return
	}
	t.crashed = true
	ids := []string{t.main.id}
	for _, k := range t.kids {
		ids = append(ids, k.id)
	}
	b.signal()
	b.mu.Unlock()
	for _, id := range ids {
		b.m.drop(id, errCrashed)
	}
}

// revive replaces the current tab when its renderer died, with the address it
// had, and says which that was. A page that keeps dying is not loaded again.
func (b *chrome) revive(ctx context.Context) string {
	b.mu.Lock()
	t := b.active
	if t == nil || !t.crashed {
		b.mu.Unlock()
		return ""
	}
	url := t.url
	now := time.Now()
	crashes := append(slices.DeleteFunc(t.crashes, func(c time.Time) bool { return now.Sub(c) > 5*time.Minute }), now)
	b.mu.Unlock()

	nt, err := b.newTab(ctx, t)
	if err != nil {
		return url
	}
	b.mu.Lock()
	nt.crashes = crashes
	b.mu.Unlock()
	if len(crashes) > 3 || !openable(url) {
		return url
	}
	_ = b.navigate(ctx, nt, url, 10*time.Second)
	return url
}

// newTab opens an empty tab and makes it current. With old, it takes that tab's
// place and id, and the old one is closed.
func (b *chrome) newTab(ctx context.Context, old *tab) (*tab, error) {
	res, err := cdp.Call(ctx, b.root, target.CreateTarget, target.CreateTargetParams{URL: "about:blank"})
	if err != nil {
		return nil, fmt.Errorf("opening a tab: %w", err)
	}
	var t *tab
	if !b.until(ctx, b.opt.CallTimeout, func() bool {
		t = b.byTarget(string(res.TargetID))
		return t != nil
	}) {
		return nil, fmt.Errorf("opening a tab: %w", errSilent)
	}
	if err := b.awake(ctx, t); err != nil {
		return nil, err
	}
	b.mu.Lock()
	if old != nil {
		if i := slices.Index(b.tabs, old); i >= 0 {
			b.tabs = slices.DeleteFunc(b.tabs, func(x *tab) bool { return x == t })
			b.tabs[slices.Index(b.tabs, old)] = t
		}
		old.closed = true
		t.id = old.id
		delete(b.sessions, old.main.id)
	}
	b.active = t
	b.signal()
	b.mu.Unlock()
	if old != nil {
		b.m.drop(old.main.id, errCrashed)
		b.m.post("", target.CommandCloseTarget, target.CloseTargetParams{TargetID: target.ID(old.target)})
	}
	return t, nil
}

// tabFor is the current tab, which must exist.
func (b *chrome) tabFor() (*tab, error) {
	if t := b.current(); t != nil {
		return t, nil
	}
	return nil, errors.New("no page is open: open one first")
}

// Tabs implements browser.Browser. It answers from what is known, so it works
// while another action runs.
func (b *chrome) Tabs(context.Context) ([]browser.Page, error) {
	if err := b.m.failed(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]browser.Page, 0, len(b.tabs))
	for _, t := range b.tabs {
		out = append(out, b.pageOf(t))
	}
	return out, nil
}

// pageOf describes a tab from events alone. b.mu is held.
func (b *chrome) pageOf(t *tab) browser.Page {
	p := browser.Page{ID: t.id, URL: clean(t.url, 2000), Title: clean(t.title, 300), Active: t == b.active}
	if t.crashed {
		p.Error = "the page crashed"
	} else if t.failedURL != "" {
		p.Error = "the page could not be loaded"
	}
	return p
}

// Activate implements browser.Tabber.
func (b *chrome) Activate(ctx context.Context, id string) (browser.Page, error) {
	var p browser.Page
	err := b.op(ctx, "switching tabs", 2*b.opt.CallTimeout, func(ctx context.Context) error {
		t, err := b.find(id)
		if err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, b.root, target.ActivateTarget, target.ActivateTargetParams{TargetID: target.ID(t.target)}); err != nil {
			return err
		}
		b.mu.Lock()
		b.active = t
		b.signal()
		b.mu.Unlock()
		p = b.page(ctx, t)
		return nil
	})
	return p, err
}

// CloseTab implements browser.Tabber.
func (b *chrome) CloseTab(ctx context.Context, id string) error {
	return b.op(ctx, "closing a tab", 2*b.opt.CallTimeout, func(ctx context.Context) error {
		t, err := b.find(id)
		if err != nil {
			return err
		}
		b.mu.Lock()
		t.leave = true
		b.mu.Unlock()
		if _, err := cdp.Call(ctx, b.root, target.CloseTarget, target.CloseTargetParams{TargetID: target.ID(t.target)}); err != nil {
			return err
		}
		if !b.until(ctx, b.opt.CallTimeout, func() bool { return t.closed }) {
			return fmt.Errorf("tab %s did not close", id)
		}
		return nil
	})
}

func (b *chrome) find(id string) (*tab, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tabs {
		if t.id == id {
			return t, nil
		}
	}
	return nil, fmt.Errorf("there is no tab %s: list the tabs to see which there are", quote(id, 20))
}
