package egress

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"glasshouse/backend/domain"
)

// limiters bound what is recorded of refusals, each project apart: one machine's
// noise must not hide what another one tried.
type limiters struct {
	mu  sync.Mutex
	all map[domain.ProjectID]*limiter
}

func (l *limiters) take(p domain.ProjectID, kind string, now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[p]
	if one == nil {
		if l.all == nil {
			l.all = map[domain.ProjectID]*limiter{}
		}
		one = &limiter{seen: map[string]time.Time{}}
		l.all[p] = one
	}
	return one.take(kind, now)
}

// limiter lets one refusal of a kind through each five seconds and 300 a minute in all.
type limiter struct {
	seen    map[string]time.Time
	window  time.Time
	count   int
	dropped int
}

func (l *limiter) take(kind string, now time.Time) (dropped int, ok bool) {
	if now.Sub(l.window) > time.Minute {
		l.window, l.count = now, 0
		clear(l.seen)
	}
	if last, seen := l.seen[kind]; l.count >= 300 || seen && now.Sub(last) < 5*time.Second {
		l.dropped++
		return 0, false
	}
	l.seen[kind] = now
	l.count++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// pacer spaces out what goes through, each project apart.
type pacer struct {
	rate, burst float64
	mu          sync.Mutex
	all         map[domain.ProjectID]*bucket
}

type bucket struct {
	left float64 // below zero: so many wait
	at   time.Time
}

func (p *pacer) wait(ctx context.Context, project domain.ProjectID) error {
	p.mu.Lock()
	if p.all == nil {
		p.all = map[domain.ProjectID]*bucket{}
	}
	now := time.Now()
	b := p.all[project]
	if b == nil {
		b = &bucket{left: p.burst, at: now}
		p.all[project] = b
	}
	b.left = min(b.left+now.Sub(b.at).Seconds()*p.rate, p.burst) - 1
	b.at = now
	late := -b.left / p.rate
	p.mu.Unlock()
	if late <= 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(late * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		b.left++ // its turn is free again
		p.mu.Unlock()
		return context.Cause(ctx)
	}
}

var errHead = errors.New("the head of the answer is larger than 256 KiB")

// headLimit ends a reader after so many bytes, until lift. An HTTP reader takes
// lines of a head until the memory is full.
type headLimit struct {
	r    io.Reader
	left int
	off  bool
}

func newHeadLimit(r io.Reader) *headLimit { return &headLimit{r: r, left: 256 << 10} }

func (h *headLimit) lift() { h.off = true }

func (h *headLimit) Read(p []byte) (int, error) {
	if h.off {
		return h.r.Read(p)
	}
	if h.left <= 0 {
		return 0, errHead
	}
	n, err := h.r.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}
