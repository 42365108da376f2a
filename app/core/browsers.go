package core

import (
	"context"
	"io"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
	"glasshouse/browser"
	"glasshouse/browser/cdp"
	"glasshouse/vm/guest"
)

// The size of every page, so that screenshots and coordinates are comparable.
const viewWidth, viewHeight = 1280, 800

// browsers holds one Chromium per session, started when first needed and again
// after it ended. Chromium ends with its pipe, and so with the core that held it.
type browsers struct {
	publish func(event.New) // tells clients what a browser shows

	mu  sync.Mutex
	all map[domain.SessionID]*holder
}

// holder is one session's browser: what its steps drive and people watch.
type holder struct {
	s       domain.Session
	publish func(event.New)

	start sync.Mutex // held while one starts

	mu       sync.Mutex // never held for long: a door asks under it
	b        browser.Browser
	starting bool
	base     uint64        // added to the numbers of its frames
	told     chan struct{} // closed when nothing more is told of b

	// Of those who watch, see watch.go.
	frames   browser.Frames
	framesOf browser.Browser
	polls    int
	idle     *time.Timer
}

func newBrowsers(publish func(event.New)) *browsers {
	return &browsers{publish: publish, all: map[domain.SessionID]*holder{}}
}

func (bs *browsers) holder(s domain.Session) *holder {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	h := bs.all[s.ID]
	if h == nil {
		h = &holder{s: s, publish: bs.publish}
		bs.all[s.ID] = h
	}
	return h
}

// found is the holder of a session, nil when none of its steps used a browser.
func (bs *browsers) found(id domain.SessionID) *holder {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.all[id]
}

// of gives a session's browser to its tools.
func (bs *browsers) of(s domain.Session, g guest.Guest) tool.BrowserProvider {
	return provider{bs.holder(s), g}
}

type provider struct {
	h *holder
	g guest.Guest
}

func (p provider) Browser(ctx context.Context) (browser.Browser, error) {
	opener := func(octx context.Context, w, h int) (io.ReadWriteCloser, error) {
		return p.g.Browser(octx, guest.BrowserSpec{Profile: profile(p.h.s.ID), Width: w, Height: h, Session: string(p.h.s.ID)})
	}
	return p.h.get(func() (browser.Browser, error) {
		// The browser outlives the call that started it.
		return cdp.New(ctx, opener, cdp.Options{Width: viewWidth, Height: viewHeight, CallTimeout: 30 * time.Second, ActionTimeout: 10 * time.Second, NavTimeout: time.Minute})
	})
}

// get returns the browser, started by open when there is none.
func (h *holder) get(open func() (browser.Browser, error)) (browser.Browser, error) {
	h.start.Lock()
	defer h.start.Unlock()
	if b := h.now(); b != nil {
		return b, nil
	}
	h.mu.Lock()
	h.starting = true
	h.mu.Unlock()
	h.tell(event.BrowserChanged{Starting: true})
	b, err := open()
	h.mu.Lock()
	h.starting = false
	if err == nil {
		h.b, h.told = b, make(chan struct{})
		// Numbers go on from those of an earlier browser and of an earlier core.
		h.base = max(h.base+1_000_000, uint64(time.Now().UnixMilli()))
		go h.follow(b, h.told)
	}
	h.mu.Unlock()
	if err != nil {
		h.tell(event.BrowserChanged{})
	}
	return b, err
}

// now is the browser that lives, or nil.
func (h *holder) now() browser.Browser {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.living()
}

// living is now with h.mu held.
func (h *holder) living() browser.Browser {
	if h.b != nil {
		select {
		case <-h.b.Done():
		default:
			return h.b
		}
	}
	return nil
}

// profile is a session's profile name; ids hold an underscore, profiles may not.
func profile(id domain.SessionID) string {
	b := []byte(id)
	for i, c := range b {
		if c == '_' {
			b[i] = '-'
		}
	}
	return string(b)
}

func (bs *browsers) close(id domain.SessionID) {
	bs.mu.Lock()
	h := bs.all[id]
	delete(bs.all, id)
	bs.mu.Unlock()
	if h == nil {
		return
	}
	h.start.Lock()
	defer h.start.Unlock()
	h.mu.Lock()
	b, told := h.b, h.told
	h.mu.Unlock()
	h.lookAway()
	if b != nil {
		_ = b.Close()
		<-told
	}
}

func (bs *browsers) closeAll() {
	bs.mu.Lock()
	var ids []domain.SessionID
	for id := range bs.all {
		ids = append(ids, id)
	}
	bs.mu.Unlock()
	for _, id := range ids {
		bs.close(id)
	}
}
