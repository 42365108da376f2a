package cdp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"

	"glasshouse/browser"
)

const maxTyped = 200_000 // characters of one Type

// actionMax bounds a whole action: waiting, pressing, settling and describing.
func (b *chrome) actionMax() time.Duration {
	return b.opt.ActionTimeout + b.opt.SettleTimeout + b.opt.NavTimeout + 4*b.opt.CallTimeout
}

// Click implements browser.Browser.
func (b *chrome) Click(ctx context.Context, ref string) (browser.Effect, error) {
	var e browser.Effect
	err := b.op(ctx, "clicking "+clean(ref, 30), b.actionMax(), func(ctx context.Context) error {
		if _, err := b.tabFor(); err != nil {
			return err
		}
		p, err := b.press(ctx, ref, false)
		if err != nil {
			return err
		}
		e, err = b.outcome(ctx, p)
		return err
	})
	return e, err
}

// outcome waits for what an action set off and tells it.
func (b *chrome) outcome(ctx context.Context, p *pressed) (browser.Effect, error) {
	defer b.track(p.tab, false)
	now, err := b.settle(ctx, p)
	if err != nil {
		return browser.Effect{}, err
	}
	return b.effect(ctx, p, now)
}

// fieldState is an editable element as the script sees it.
type fieldState struct {
	Value     string `json:"value"`
	Secret    bool   `json:"secret"`
	Multiline bool   `json:"multiline"`
	Rich      bool   `json:"rich"`
	Max       int    `json:"max"`
}

// Type implements browser.Browser.
func (b *chrome) Type(ctx context.Context, ref, text string, opt browser.TypeOptions) (browser.Effect, error) {
	var e browser.Effect
	if n := len([]rune(text)); n > maxTyped {
		return e, fmt.Errorf("the text has %d characters; at most %d are typed at once", n, maxTyped)
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	err := b.op(ctx, "typing into "+clean(ref, 30), b.actionMax(), func(ctx context.Context) error {
		if _, err := b.tabFor(); err != nil {
			return err
		}
		p, err := b.press(ctx, ref, true)
		if err != nil {
			return err
		}
		r := p.ref
		defer b.track(r.tab, false)
		gone := func(err error) error {
			if errors.Is(err, errDocGone) {
				return b.stale(ctx, ref, r, "pressing it loaded another document; nothing was typed")
			}
			return err
		}
		if err := b.fill(ctx, r, text, opt.Append); err != nil {
			return gone(err)
		}
		if opt.Submit {
			if err := b.key(ctx, r.tab, "Enter", 13, "\r"); err != nil {
				return gone(err)
			}
		}
		e, err = b.outcome(ctx, p)
		return err
	})
	return e, err
}

// fill puts text into the focused field and checks that it is there.
func (b *chrome) fill(ctx context.Context, r *ref, text string, add bool) error {
	if err := b.run(ctx, r.doc, nil, "settle", 0, 0); err != nil { // let focus handlers run
		return err
	}
	var has bool
	if err := b.run(ctx, r.doc, &has, "focus", r.num); err != nil {
		return err
	}
	if !has {
		return &browser.RefError{Ref: r.name, Err: browser.ErrNotActionable, Why: "the page did not let it take the focus; nothing was typed"}
	}
	var was fieldState
	if err := b.run(ctx, r.doc, &was, "field", r.num); err != nil {
		return err
	}
	if !was.Multiline && strings.Contains(text, "\n") {
		return &browser.RefError{Ref: r.name, Err: browser.ErrNotActionable, Why: "it has one line and the text has several; nothing was typed"}
	}
	want := text
	if add {
		want = was.Value + text
	}
	if was.Max >= 0 && units(want) > was.Max {
		return &browser.RefError{Ref: r.name, Err: browser.ErrNotActionable, Why: fmt.Sprintf("it holds at most %d characters; nothing was typed", was.Max)}
	}
	var how string
	if err := b.run(ctx, r.doc, &how, "select", r.num, add); err != nil {
		return err
	}
	if how == "key" {
		if err := b.key(ctx, r.tab, "End", 35, ""); err != nil {
			return err
		}
	}
	switch {
	case text != "":
		if _, err := cdp.Call(ctx, r.tab.main, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
			return err
		}
	case !add && was.Value != "":
		if err := b.key(ctx, r.tab, "Delete", 46, ""); err != nil {
			return err
		}
	}
	if err := b.run(ctx, r.doc, nil, "settle", 0, 0); err != nil {
		return err
	}
	var now fieldState
	if err := b.run(ctx, r.doc, &now, "field", r.num); err != nil {
		return err
	}
	if same(now, want) {
		return nil
	}
	holds := quote(now.Value, 80)
	if now.Secret || was.Secret {
		holds = "something else (hidden)"
	}
	return fmt.Errorf("typing into %s: the field holds %s and not what was typed: the page changes or refuses it", r.name, holds)
}

// same compares a field with what was typed. Rich editors lay lines out in
// blocks of their own, so there only the words count.
func same(f fieldState, want string) bool {
	if f.Rich {
		words := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "\u00a0", " ")), " ") }
		return words(f.Value) == words(want)
	}
	return f.Value == want
}

// units counts what a page counts as characters: UTF-16 code units.
func units(s string) int {
	n := 0
	for _, r := range s {
		if n++; r > 0xffff {
			n++
		}
	}
	return n
}
