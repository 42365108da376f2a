package core

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/browser"
)

// lookFor is how long frames are still taken after the last one was asked for.
var lookFor = 3 * time.Second

// tellEvery bounds how often clients hear of a browser: a page may change its title
// without end.
const tellEvery = 150 * time.Millisecond

// tell publishes what a browser shows.
func (h *holder) tell(e event.BrowserChanged) {
	if h.publish != nil {
		h.publish(event.New{Stream: event.SessionStream(h.s.ID), Origin: domain.OriginGuest, Actor: "guest", ProjectID: h.s.ProjectID, SessionID: h.s.ID, Payload: &e})
	}
}

// follow tells of every change of a browser until its end.
func (h *holder) follow(b browser.Browser, told chan struct{}) {
	defer close(told)
	sc, _ := b.(browser.Screencast)
	last := ""
	for {
		e := event.BrowserChanged{Open: true}
		var changed <-chan struct{}
		if sc != nil {
			var st browser.State
			st, changed = sc.State()
			e = changedTo(st)
		}
		if now, err := json.Marshal(e); err == nil && string(now) != last {
			last = string(now)
			h.tell(e)
		}
		select {
		case <-changed:
		case <-b.Done():
			h.tell(event.BrowserChanged{})
			return
		}
		select {
		case <-time.After(tellEvery):
		case <-b.Done():
		}
	}
}

func changedTo(st browser.State) event.BrowserChanged {
	e := event.BrowserChanged{Open: true, Tabs: len(st.Tabs), Trouble: trouble(st), Dialog: st.Dialog}
	if p, ok := st.Active(); ok {
		e.URL, e.Title = p.URL, p.Title
		if a := st.Acted; a != nil && a.Tab == p.ID {
			e.Acted = &event.BrowserPress{N: a.N, X: a.X, Y: a.Y}
		}
	}
	return e
}

func trouble(st browser.State) string {
	switch {
	case st.Crashed:
		return "crashed"
	case st.Silent:
		return "silent"
	}
	return ""
}

// look opens the eyes, if nobody looks yet, until away was called as often.
func (h *holder) look() (f browser.Frames, base uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.living()
	if b == nil {
		return nil, 0, errNoBrowser
	}
	sc, ok := b.(browser.Screencast)
	if !ok {
		return nil, 0, errNoBrowser
	}
	if h.framesOf != b || h.frames == nil {
		h.blink()
		if h.frames, err = sc.Frames(); err != nil {
			return nil, 0, errNoBrowser
		}
		h.framesOf = b
	}
	h.polls++
	if h.idle != nil {
		h.idle.Stop()
	}
	return h.frames, h.base, nil
}

// away says that one look is over; a while after the last no frames are taken.
func (h *holder) away() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.polls--
	if h.polls > 0 {
		return
	}
	h.idle = time.AfterFunc(lookFor, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.polls == 0 {
			h.blink()
		}
	})
}

// blink ends the taking of frames. h.mu is held.
func (h *holder) blink() {
	if h.frames != nil {
		h.frames.Close()
	}
	h.frames, h.framesOf = nil, nil
}

func (h *holder) lookAway() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle != nil {
		h.idle.Stop()
	}
	h.blink()
}

var errNoBrowser = domain.E(domain.CodeNotFound, "this session has no browser open", "the next step that opens a page starts one", nil)

// views shows the browsers of sessions at the door. It starts none.
type views struct{ c *Core }

func (v views) View(ctx context.Context, id domain.SessionID) (httpapi.BrowserView, error) {
	if _, err := v.c.sessions.Get(ctx, id); err != nil {
		return httpapi.BrowserView{}, err
	}
	return v.c.browsers.view(id), nil
}

func (v views) Frame(ctx context.Context, id domain.SessionID, after uint64) (browser.Frame, error) {
	f, err := v.c.browsers.frame(ctx, id, after)
	if errors.Is(err, errNoBrowser) {
		if _, unknown := v.c.sessions.Get(ctx, id); unknown != nil {
			return f, unknown
		}
	}
	return f, err
}

func (bs *browsers) view(id domain.SessionID) httpapi.BrowserView {
	out := httpapi.BrowserView{Tabs: []httpapi.BrowserTab{}, Width: viewWidth, Height: viewHeight}
	h := bs.found(id)
	if h == nil {
		return out
	}
	h.mu.Lock()
	b := h.living()
	out.Starting = h.starting
	h.mu.Unlock()
	if b == nil {
		return out
	}
	out.Open = true
	sc, ok := b.(browser.Screencast)
	if !ok {
		return out
	}
	st, _ := sc.State()
	out.Width, out.Height, out.Trouble, out.Dialog = st.Width, st.Height, trouble(st), st.Dialog
	for _, p := range st.Tabs {
		out.Tabs = append(out.Tabs, httpapi.BrowserTab{ID: p.ID, URL: p.URL, Title: p.Title, Active: p.Active, Error: p.Error})
	}
	return out
}

// frame waits for the newest frame whose number is not after.
func (bs *browsers) frame(ctx context.Context, id domain.SessionID, after uint64) (browser.Frame, error) {
	h := bs.found(id)
	if h == nil {
		return browser.Frame{}, errNoBrowser
	}
	frames, base, err := h.look()
	if err != nil {
		return browser.Frame{}, err
	}
	defer h.away()
	if after <= base {
		after = base // of another browser, or none
	}
	f, err := frames.Next(ctx, after-base)
	if errors.Is(err, browser.ErrGone) || (err != nil && ctx.Err() == nil) {
		return f, errNoBrowser // it ended meanwhile
	}
	f.Seq += base
	return f, err
}
