package core

import (
	"context"
	"io"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/tool"
	"glasshouse/browser"
	"glasshouse/browser/cdp"
	"glasshouse/vm/guest"
)

// The size of every page, so that screenshots and coordinates are comparable.
const viewWidth, viewHeight = 1280, 800

// browsers holds one Chromium per session, started when first needed and again
// after it ended.
type browsers struct {
	mu  sync.Mutex
	all map[domain.SessionID]*holder
}

type holder struct {
	mu sync.Mutex // held while one starts
	b  browser.Browser
}

func newBrowsers() *browsers { return &browsers{all: map[domain.SessionID]*holder{}} }

func (bs *browsers) holder(id domain.SessionID) *holder {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	h := bs.all[id]
	if h == nil {
		h = &holder{}
		bs.all[id] = h
	}
	return h
}

// of gives a session's browser to its tools.
func (bs *browsers) of(s domain.Session, g guest.Guest) tool.BrowserProvider {
	return provider{bs.holder(s.ID), s, g}
}

type provider struct {
	h *holder
	s domain.Session
	g guest.Guest
}

func (p provider) Browser(ctx context.Context) (browser.Browser, error) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if p.h.b != nil {
		select {
		case <-p.h.b.Done():
		default:
			return p.h.b, nil
		}
	}
	opener := func(octx context.Context, w, h int) (io.ReadWriteCloser, error) {
		return p.g.Browser(octx, guest.BrowserSpec{Profile: profile(p.s.ID), Width: w, Height: h, Session: string(p.s.ID)})
	}
	// The browser outlives the call that started it.
	b, err := cdp.New(ctx, opener, cdp.Options{Width: viewWidth, Height: viewHeight, CallTimeout: 30 * time.Second, ActionTimeout: 10 * time.Second, NavTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	p.h.b = b
	return b, nil
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
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.b != nil {
		_ = h.b.Close()
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
