package cdp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/target"

	"glasshouse/browser"
)

const (
	activityGrace = 150 * time.Millisecond // for a first sign of an effect
	quietTime     = 100 * time.Millisecond
)

// mark is a tab's counters just before an action.
type mark struct {
	docs, moves int
	url         string
	tabs        []*tab
}

func (b *chrome) markNow(t *tab) mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.dialogs, t.downloads, t.fileAsked = nil, nil, false
	return mark{docs: t.docs, moves: t.moves, url: t.url, tabs: slices.Clone(b.tabs)}
}

// track turns the counting of a tab's requests on or off. Requests that run
// already are not counted, so a page's long polls hold nothing up.
func (b *chrome) track(t *tab, on bool) {
	b.mu.Lock()
	t.requests = 0
	t.inflight = nil
	if on {
		t.inflight = map[string]struct{}{}
	}
	all := append([]*sess{t.main}, t.kids...)
	b.mu.Unlock()
	for _, s := range all {
		if on {
			s.post("Network.enable", map[string]int{"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
		} else {
			s.post("Network.disable", nil)
		}
	}
}

// settle waits, bounded, for what an action set off: a navigation, a new tab,
// requests, changes of the page. It returns the tab that is current afterwards.
func (b *chrome) settle(ctx context.Context, p *pressed) (*tab, error) {
	t, m := p.tab, p.mark
	end := time.Now().Add(b.opt.SettleTimeout)

	changes := 0
	quiet := func() error {
		left := time.Until(end)
		if left < 50*time.Millisecond {
			left = 50 * time.Millisecond
		}
		err := b.run(ctx, p.doc, &changes, "settle", quietTime.Milliseconds(), min(left, time.Second).Milliseconds())
		if errors.Is(err, errDocGone) {
			return nil
		}
		return err
	}
	if err := quiet(); err != nil {
		return t, err
	}
	// "Quiet" can be true before anything began: give it a moment to begin.
	began := func() bool {
		return t.closed || t.crashed || t.docs != m.docs || t.moves != m.moves || t.loading || t.requests > 0 ||
			len(t.dialogs) > 0 || len(t.downloads) > 0 || b.popup(m) != nil
	}
	if changes == 0 {
		b.until(ctx, activityGrace, began)
	}
	for range 4 {
		b.mu.Lock()
		busy, nav := len(t.inflight) > 0, t.loading || (t.docs != m.docs && t.loaded != t.loader && t.parsed != t.loader)
		dead, pop := t.crashed || t.closed, b.popup(m)
		b.mu.Unlock()
		switch {
		case pop != nil:
			return b.follow(ctx, pop), nil
		case dead:
			return t, nil
		case nav:
			b.loadedEnough(ctx, b.opt.NavTimeout, t, func() bool { return t.docs != m.docs }, func() bool { return !t.loading && (t.docs == m.docs || t.loaded == t.loader) })
			if b.slow(t) {
				return t, nil
			}
			continue
		case busy && time.Now().Before(end):
			b.until(ctx, time.Until(end), func() bool {
				return t.crashed || t.closed || t.loading || len(t.inflight) == 0
			})
			if err := quiet(); err != nil {
				return t, err
			}
			continue
		}
		break
	}
	return t, nil
}

// popup is the newest tab that came since m. b.mu is held.
func (b *chrome) popup(m mark) *tab {
	for i := len(b.tabs) - 1; i >= 0; i-- {
		if !slices.Contains(m.tabs, b.tabs[i]) {
			return b.tabs[i]
		}
	}
	return nil
}

// follow makes a tab that an action opened the current one and lets it load.
func (b *chrome) follow(ctx context.Context, pop *tab) *tab {
	b.mu.Lock()
	b.active = pop
	b.signal()
	b.mu.Unlock()
	b.m.post("", target.CommandActivateTarget, target.ActivateTargetParams{TargetID: target.ID(pop.target)})
	b.until(ctx, b.opt.SettleTimeout, func() bool { return pop.crashed || pop.closed || pop.docs > 0 })
	b.loadedEnough(ctx, b.opt.NavTimeout, pop, func() bool { return pop.docs > 0 }, func() bool {
		return !pop.loading && pop.loader != "" && (pop.docs == 0 || pop.loaded == pop.loader)
	})
	return pop
}

// effect says what an action did.
func (b *chrome) effect(ctx context.Context, p *pressed, now *tab) (browser.Effect, error) {
	t, m := p.tab, p.mark
	var e browser.Effect
	b.mu.Lock()
	e.Dialog = strings.Join(t.dialogs, "; ")
	downloads, asked := slices.Clone(t.downloads), t.fileAsked
	e.Navigated = now != t || t.closed || t.docs != m.docs || t.url != m.url
	same := now == t && !t.closed && !t.crashed && t.docs == m.docs
	if t.closed {
		now = b.active
	}
	b.mu.Unlock()
	if now == nil {
		return e, nil // it closed the last tab
	}
	if b.isCrashed(now) {
		return e, errCrashed
	}
	if same {
		d, err := b.changes(ctx, t, p.before)
		if err != nil {
			return e, err
		}
		e.Page, e.Diff = d.page, d.text
		e.Navigated = e.Navigated || d.other
	} else {
		e.Page = b.page(ctx, now)
	}
	for _, name := range downloads {
		e.Diff += "! a download of " + quote(name, 100) + " was refused\n"
	}
	if asked {
		e.Diff += "! the page asked for a file to upload; nothing was chosen\n"
	}
	b.mu.Lock()
	e.None = !e.Navigated && e.Dialog == "" && e.Diff == "" && t.requests == 0
	b.mu.Unlock()
	return e, nil
}
