package cdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"glasshouse/browser"
)

// keys that Press takes: their virtual key code and the text they make.
var keys = map[string]struct {
	code int64
	text string
}{
	"Enter": {13, "\r"}, "Tab": {9, ""}, "Escape": {27, ""}, "Backspace": {8, ""}, "Delete": {46, ""}, "Space": {32, " "},
	"Home": {36, ""}, "End": {35, ""}, "PageUp": {33, ""}, "PageDown": {34, ""},
	"ArrowUp": {38, ""}, "ArrowDown": {40, ""}, "ArrowLeft": {37, ""}, "ArrowRight": {39, ""},
}

// begin readies a tab for an action that is aimed at no element.
func (b *chrome) begin(ctx context.Context) (*pressed, error) {
	t, err := b.tabFor()
	if err != nil {
		return nil, err
	}
	root, _, err := b.frames(ctx, t)
	if err != nil {
		return nil, err
	}
	d, err := b.enter(ctx, root)
	if err != nil {
		return nil, err
	}
	p := &pressed{tab: t, doc: d}
	if p.before, err = b.markLines(ctx, t); err != nil {
		return nil, err
	}
	if err := b.run(ctx, d, nil, "observe"); err != nil {
		return nil, err
	}
	p.mark = b.markNow(t)
	b.track(t, true)
	return p, nil
}

// Press implements browser.Controls.
func (b *chrome) Press(ctx context.Context, key string) (browser.Effect, error) {
	var e browser.Effect
	k, ok := keys[key]
	if !ok {
		names := make([]string, 0, len(keys))
		for n := range keys {
			names = append(names, n)
		}
		slices.Sort(names)
		return e, fmt.Errorf("there is no key %s; those there are: %v", quote(key, 20), names)
	}
	err := b.op(ctx, "pressing "+key, b.actionMax(), func(ctx context.Context) error {
		p, err := b.begin(ctx)
		if err != nil {
			return err
		}
		if err := b.key(ctx, p.tab, key, k.code, k.text); err != nil {
			b.track(p.tab, false)
			return err
		}
		e, err = b.outcome(ctx, p)
		return err
	})
	return e, err
}

// options is a drop-down list as the script sees it.
type options struct {
	At    int    `json:"at"`   // the chosen one
	Want  int    `json:"want"` // the one asked for, -1 when there is none
	Same  int    `json:"same"` // how many have that label
	Label string `json:"label"`
	Off   bool   `json:"off"`   // it cannot be chosen
	Multi bool   `json:"multi"` // several can be chosen
}

// Select implements browser.Controls.
func (b *chrome) Select(ctx context.Context, ref, option string) (browser.Effect, error) {
	var e browser.Effect
	err := b.op(ctx, "selecting in "+clean(ref, 30), b.actionMax(), func(ctx context.Context) error {
		if _, err := b.tabFor(); err != nil {
			return err
		}
		refuse := func(why string) error {
			return &browser.RefError{Ref: clean(ref, 30), Err: browser.ErrNotActionable, Why: why}
		}
		end := time.Now().Add(b.opt.ActionTimeout)
		var s *spot
		for turn := 0; ; turn++ {
			var err error
			if s, err = b.resolve(ctx, ref); err != nil {
				return err
			}
			b.release(s)
			var at ready
			if err := b.run(ctx, s.ref.doc, &at, "readyToSelect", s.ref.num); err != nil {
				return err
			}
			if at.St == "ok" {
				break
			}
			if at.St == "never" || time.Now().After(end) {
				return refuse(clean(at.Why, 300))
			}
			b.pause(ctx, 100*time.Millisecond)
		}
		r := s.ref
		look := func() (o options, err error) {
			return o, b.run(ctx, r.doc, &o, "option", r.num, option)
		}
		o, err := look()
		switch {
		case err != nil:
			return err
		case o.Multi:
			return refuse("several options can be chosen in it, which is not supported")
		case o.Want < 0:
			return refuse("it has no option " + quote(option, 60))
		case o.Same > 1:
			return refuse(fmt.Sprintf("%d of its options are called %s; give the value of one", o.Same, quote(option, 60)))
		case o.Off:
			return refuse("its option " + quote(o.Label, 60) + " is disabled")
		}
		p := &pressed{tab: r.tab, doc: r.doc, ref: r}
		if p.before, err = b.markLines(ctx, r.tab); err != nil {
			return err
		}
		if err := b.run(ctx, r.doc, nil, "observe"); err != nil {
			return err
		}
		var has bool
		if err := b.run(ctx, r.doc, &has, "focus", r.num); err != nil {
			return err
		}
		if !has {
			return refuse("the page did not let it take the focus; nothing was chosen")
		}
		p.mark = b.markNow(r.tab)
		b.track(r.tab, true)
		if err := b.walkTo(ctx, r, o, look); err != nil {
			b.track(r.tab, false)
			return err
		}
		e, err = b.outcome(ctx, p)
		return err
	})
	return e, err
}

// walkTo moves the choice with the arrow keys, which skip disabled options.
func (b *chrome) walkTo(ctx context.Context, r *ref, o options, look func() (options, error)) error {
	for o.At != o.Want {
		key := "ArrowDown"
		if o.Want < o.At {
			key = "ArrowUp"
		}
		before := o.At
		if err := b.key(ctx, r.tab, key, keys[key].code, ""); err != nil {
			return err
		}
		var err error
		if o, err = look(); errors.Is(err, errDocGone) {
			return nil // choosing it loaded another page
		} else if err != nil {
			return err
		}
		if o.At == before || o.Want < 0 {
			return fmt.Errorf("selecting in %s: the list does not move to the option: the page holds it back", r.name)
		}
	}
	return nil
}

// Back implements browser.Controls.
func (b *chrome) Back(ctx context.Context) (browser.Page, error) {
	var p browser.Page
	err := b.op(ctx, "going back", b.opt.NavTimeout+3*b.opt.CallTimeout, func(ctx context.Context) error {
		t, err := b.tabFor()
		if err != nil {
			return err
		}
		h, err := cdp.Call(ctx, t.main, page.GetNavigationHistory, cdp.Empty{})
		if err != nil {
			return err
		}
		if h.CurrentIndex <= 0 || int(h.CurrentIndex) > len(h.Entries)-1 || h.Entries[h.CurrentIndex-1] == nil {
			return errors.New("there is no earlier page in this tab")
		}
		b.mu.Lock()
		docs, moves := t.docs, t.moves
		t.leave, t.dialogs = true, nil
		b.mu.Unlock()
		_, err = cdp.Call(ctx, t.main, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: h.Entries[h.CurrentIndex-1].ID})
		if err == nil {
			b.loadedEnough(ctx, b.opt.NavTimeout, t, func() bool { return t.docs != docs }, func() bool {
				return t.moves != moves || (t.docs != docs && t.loaded == t.loader && !t.loading)
			})
		}
		b.mu.Lock()
		t.leave = false
		b.mu.Unlock()
		p = b.page(ctx, t)
		return err
	})
	return p, err
}
