package cdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"

	"glasshouse/browser"
)

// ready is the script's answer to "can it be pressed, and where".
type ready struct {
	St  string  `json:"st"`
	Why string  `json:"why"`
	X   float64 `json:"x"`
	Y   float64 `json:"y"`
}

// hold is one frame element on the way from an element's document to the tab's
// own, innermost first.
type hold struct {
	doc *doc
	el  runtime.RemoteObjectID
}

// spot is a resolved element: the very same one the ref was given for.
type spot struct {
	ref   *ref
	root  *frame
	holds []hold
}

// pressed is what an action left behind for judging its effect.
type pressed struct {
	tab    *tab
	doc    *doc // that it acted in
	ref    *ref // nil when it acted on no element
	before marks
	mark   mark
}

// lookTime is how long the page itself waits for an element in one look.
const lookTime = 400 * time.Millisecond

// Remote objects of a look and of a press live apart: each is released by its own.
const (
	groupLook  = "glasshouse-look"
	groupPress = "glasshouse-press"
)

// release lets go of the frame elements that a press held.
func (b *chrome) release(s *spot) {
	for _, h := range s.holds {
		h.doc.s.post("Runtime.releaseObjectGroup", map[string]string{"objectGroup": groupPress})
	}
}

// resolve checks that a ref still names what it named when it was shown.
func (b *chrome) resolve(ctx context.Context, name string) (*spot, error) {
	r := b.refs[name]
	if r == nil {
		return nil, b.stale(ctx, name, nil, "no element was ever shown with this ref")
	}
	t := b.current()
	if t == nil || r.tab != t {
		return nil, b.stale(ctx, name, r, "it belongs to another tab or to one that was closed")
	}
	root, byID, err := b.frames(ctx, t)
	if err != nil {
		return nil, err
	}
	f := byID[r.doc.frame]
	if f == nil || f.loader != r.doc.loader || f.s != r.doc.s {
		return nil, b.stale(ctx, name, r, "another document was loaded since it was shown")
	}
	up := chain(f, root)
	if up == nil {
		return nil, b.stale(ctx, name, r, "its frame is no longer in the page")
	}
	var id struct {
		St   string `json:"st"`
		Why  string `json:"why"`
		Role string `json:"role"`
		Name string `json:"name"`
	}
	if err := b.run(ctx, r.doc, &id, "identify", r.num, r.role, r.label); err != nil {
		if errors.Is(err, errDocGone) {
			return nil, b.stale(ctx, name, r, "another document was loaded since it was shown")
		}
		return nil, err
	}
	if id.St != "ok" {
		return nil, b.stale(ctx, name, r, clean(id.Why, 300))
	}
	s := &spot{ref: r, root: root}
	for i := 1; i < len(up); i++ {
		d, err := b.enter(ctx, up[i])
		if err != nil {
			return nil, err
		}
		el, err := b.owner(ctx, up[i-1], d, groupPress)
		if err != nil {
			return nil, err
		}
		s.holds = append(s.holds, hold{d, el})
	}
	return s, nil
}

// lift takes a point of the element's document to the tab's viewport, checking
// at every frame on the way that nothing lies over it there.
func (b *chrome) lift(ctx context.Context, s *spot, at ready) (ready, error) {
	for _, h := range s.holds {
		var up ready
		if err := b.runOn(ctx, h.doc, h.el, &up, "lift", at.X, at.Y); err != nil {
			return up, err
		}
		if up.St != "ok" {
			return up, nil
		}
		at = up
	}
	return at, nil
}

// press waits until the element can be pressed and presses it with trusted
// input. A guard in the page stops the press when it would land elsewhere after
// all; then the wait goes on.
func (b *chrome) press(ctx context.Context, name string, typing bool) (*pressed, error) {
	end := time.Now().Add(b.opt.ActionTimeout)
	// Where the page or this computer is slow, or stood still, little was looked at in that
	// time; then it goes on for as many looks as there are in it, but not without end.
	enough, over := int(b.opt.ActionTimeout/lookTime), end.Add(2*b.opt.ActionTimeout)
	var why string
	for turn := 0; ; turn++ {
		if now := time.Now(); turn > 0 && now.After(end) && (turn >= enough || now.After(over)) {
			return nil, b.notActionable(ctx, name, why)
		}
		s, err := b.resolve(ctx, name)
		if err != nil {
			if errors.Is(err, errDocGone) {
				b.pause(ctx, 50*time.Millisecond)
				continue
			}
			return nil, err
		}
		p, reason, err := b.attempt(ctx, s, typing, turn, time.Until(end))
		b.release(s)
		switch {
		case errors.Is(err, errDocGone):
			why = "its document was replaced"
			b.pause(ctx, 50*time.Millisecond)
			continue // resolve says so, with candidates
		case err != nil:
			return nil, err
		case p != nil:
			return p, nil
		}
		why = reason
	}
}

// attempt is one try: (nil, why, nil) means not yet.
func (b *chrome) attempt(ctx context.Context, s *spot, typing bool, turn int, left time.Duration) (*pressed, string, error) {
	r, t := s.ref, s.ref.tab
	budget := min(max(left, 50*time.Millisecond), lookTime)
	var at ready
	if err := b.run(ctx, r.doc, &at, "ready", r.num, typing, budget.Milliseconds(), turn); err != nil {
		return nil, "", err
	}
	switch at.St {
	case "ok":
	case "stale":
		return nil, "", b.stale(ctx, r.name, r, clean(at.Why, 300))
	case "never":
		return nil, "", &browser.RefError{Ref: r.name, Err: browser.ErrNotActionable, Why: clean(at.Why, 300)}
	default:
		return nil, clean(at.Why, 300), nil
	}
	top, err := b.lift(ctx, s, at)
	if err != nil {
		return nil, "", err
	}
	if top.St != "ok" {
		b.pause(ctx, 40*time.Millisecond)
		return nil, clean(top.Why, 300), nil
	}
	before, err := b.markLines(ctx, t)
	if err != nil {
		return nil, "", err
	}
	// Arrive first: some controls only wake when the pointer enters.
	if err := b.mouse(ctx, t, input.DispatchMouseEventTypeMouseMoved, top); err != nil {
		return nil, "", err
	}
	if err := b.run(ctx, r.doc, nil, "frame"); err != nil {
		return nil, "", err
	}
	var again ready
	if err := b.run(ctx, r.doc, &again, "confirm", r.num, at.X, at.Y, typing); err != nil {
		return nil, "", err
	}
	if again.St != "ok" {
		return nil, clean(again.Why, 300), nil
	}
	now, err := b.lift(ctx, s, at)
	if err != nil {
		return nil, "", err
	}
	if now.St != "ok" || now.X != top.X || now.Y != top.Y {
		return nil, clean(now.Why, 300), nil
	}

	p := &pressed{tab: t, doc: r.doc, ref: r, before: before, mark: b.markNow(t)}
	b.track(t, true)
	blocked, err := b.strike(ctx, s, typing, top)
	if err != nil || blocked != "" {
		b.track(t, false)
		return nil, blocked, err
	}
	return p, "", nil
}

// strike presses under guard and says what the press hit instead, if it did. The
// guards are taken away whatever happens to ctx meanwhile.
func (b *chrome) strike(ctx context.Context, s *spot, typing bool, at ready) (blocked string, err error) {
	err = b.arm(ctx, s, typing)
	if err == nil {
		b.landed(s.ref.tab, at.X, at.Y)
		if err = b.click(ctx, s.ref.tab, at); errors.Is(err, errDetached) {
			err = nil // the press closed the tab
		}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opt.CallTimeout)
	defer cancel()
	blocked, derr := b.disarm(after, s)
	if err == nil {
		err = derr
	}
	return blocked, err
}

func (b *chrome) arm(ctx context.Context, s *spot, typing bool) error {
	for _, h := range s.holds {
		if err := b.runOn(ctx, h.doc, h.el, nil, "armOwner"); err != nil {
			return err
		}
	}
	if err := b.run(ctx, s.ref.doc, nil, "observe"); err != nil {
		return err
	}
	return b.run(ctx, s.ref.doc, nil, "arm", s.ref.num, typing)
}

// disarm takes the guards away and says what a press hit instead, if it did. A
// document that is gone by now was left because of the press.
func (b *chrome) disarm(ctx context.Context, s *spot) (string, error) {
	type verdict struct {
		OK  *bool  `json:"ok"`
		Why string `json:"why"`
	}
	blocked := ""
	ask := func(d *doc) error {
		var v verdict
		err := b.run(ctx, d, &v, "disarm")
		if errors.Is(err, errDocGone) {
			return nil
		}
		if err == nil && v.OK != nil && !*v.OK && blocked == "" {
			blocked = clean(v.Why, 300)
		}
		return err
	}
	if err := ask(s.ref.doc); err != nil {
		return "", err
	}
	for _, h := range s.holds {
		if err := ask(h.doc); err != nil {
			return "", err
		}
	}
	return blocked, nil
}

func (b *chrome) mouse(ctx context.Context, t *tab, kind input.DispatchMouseEventType, at ready) error {
	p := input.DispatchMouseEventParams{Type: kind, X: at.X, Y: at.Y}
	switch kind {
	case input.DispatchMouseEventTypeMousePressed:
		p.Button, p.Buttons, p.ClickCount = input.MouseButtonLeft, 1, 1
	case input.DispatchMouseEventTypeMouseReleased:
		p.Button, p.ClickCount = input.MouseButtonLeft, 1
	}
	_, err := cdp.Call(ctx, t.main, input.DispatchMouseEvent, p)
	return err
}

// click presses and releases. The release is sent even when the press got no
// answer, so that no button stays down.
func (b *chrome) click(ctx context.Context, t *tab, at ready) error {
	down := b.mouse(ctx, t, input.DispatchMouseEventTypeMousePressed, at)
	up := b.mouse(context.WithoutCancel(ctx), t, input.DispatchMouseEventTypeMouseReleased, at)
	if down != nil {
		return down
	}
	return up
}

func (b *chrome) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-b.m.done:
	}
}

// key presses and releases one named key.
func (b *chrome) key(ctx context.Context, t *tab, key string, code int64, text string) error {
	down := input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeRawKeyDown, Key: key, Code: key, WindowsVirtualKeyCode: code, NativeVirtualKeyCode: code,
	}
	if text != "" {
		down.Type, down.Text, down.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, text, text
	}
	up := down
	up.Type, up.Text, up.UnmodifiedText = input.DispatchKeyEventTypeKeyUp, "", ""
	if _, err := cdp.Call(ctx, t.main, input.DispatchKeyEvent, down); err != nil {
		return err
	}
	_, err := cdp.Call(ctx, t.main, input.DispatchKeyEvent, up)
	if errors.Is(err, errDetached) {
		return nil // the page left on the way down
	}
	return err
}

// notActionable is the error of an element that never became ready.
func (b *chrome) notActionable(ctx context.Context, name, why string) error {
	if why == "" {
		why = "it did not become ready"
	}
	return &browser.RefError{
		Ref: name, Err: browser.ErrNotActionable, Candidates: b.candidates(ctx, b.refs[name]),
		Why: fmt.Sprintf("%s (waited %v)", why, b.opt.ActionTimeout),
	}
}

// stale is the error of a ref that no longer names its element.
func (b *chrome) stale(ctx context.Context, name string, r *ref, why string) error {
	return &browser.RefError{Ref: clean(name, 30), Err: browser.ErrStaleRef, Why: why, Candidates: b.candidates(ctx, r)}
}
