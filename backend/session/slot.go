package session

import (
	"context"
	"slices"
	"sync"
)

// slot lets one step at a time change the workspace of a session, in the order in
// which they took their places: a step that was called first also runs first,
// whatever the scheduler does with its goroutine.
type slot struct {
	mu    sync.Mutex
	queue []*place
}

// place is one step's place in the queue; the first one has the slot.
type place struct {
	s     *slot
	first chan struct{} // closed when it is this one's turn
}

// enter takes the last place. It never waits.
func (s *slot) enter() *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{s: s, first: make(chan struct{})}
	s.queue = append(s.queue, p)
	if len(s.queue) == 1 {
		close(p.first)
	}
	return p
}

// isFirst reports whether the slot is this place's already.
func (p *place) isFirst() bool {
	select {
	case <-p.first:
		return true
	default:
		return false
	}
}

// wait returns when the slot is this place's or ctx ended.
func (p *place) wait(ctx context.Context) { waitFor(ctx, p.first) }

// leave gives the place up, whether its turn came or not.
func (p *place) leave() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	i := slices.Index(p.s.queue, p)
	if i < 0 {
		return
	}
	p.s.queue = slices.Delete(p.s.queue, i, i+1)
	if i == 0 && len(p.s.queue) > 0 {
		close(p.s.queue[0].first)
	}
}
