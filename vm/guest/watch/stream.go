//go:build linux

package watch

import (
	"context"
	"sort"
	"sync"

	"glasshouse/vm/guest"
)

const (
	maxPending    = 10_000    // paths that wait for a slow reader
	batchChanges  = 1_000     // changes in one batch
	batchPathSize = 256 << 10 // bytes of paths in one batch
)

// stream is one reader of changes. A slow reader gets the latest state of each
// path; what does not fit is counted.
type stream struct {
	mu       sync.Mutex
	pending  map[string]guest.PathChange
	resync   bool
	degraded bool
	epoch    uint64
	dropped  int
	news     bool
	wake     chan struct{}
}

func (s *stream) push(changes []guest.PathChange, epoch uint64, resync, degraded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if old, ok := s.pending[c.Path]; ok {
			if m, left := merge(old, c); left {
				s.pending[c.Path] = m
			} else {
				delete(s.pending, c.Path)
			}
			continue
		}
		if len(s.pending) >= maxPending {
			s.dropped++
			continue
		}
		s.pending[c.Path] = c
	}
	if epoch != s.epoch || resync || degraded != s.degraded || len(s.pending) > 0 || s.dropped > 0 {
		s.news = true
	}
	s.epoch, s.degraded = epoch, degraded
	s.resync = s.resync || resync
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// open lets the first batch go out.
func (s *stream) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// merge is two changes of a path as one; false when they cancel out.
func merge(old, now guest.PathChange) (guest.PathChange, bool) {
	switch {
	case old.Op == "add" && now.Op == "delete":
		return now, false
	case old.Op == "add":
		now.Op = "add"
	case old.Op == "delete" && now.Op == "add":
		now.Op = "modify"
	}
	return now, true
}

// next is the next batch, if there is anything to say.
func (s *stream) next() (guest.ChangeBatch, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.news {
		return guest.ChangeBatch{}, false
	}
	b := guest.ChangeBatch{Epoch: s.epoch, Resync: s.resync, Degraded: s.degraded, Dropped: s.dropped}
	s.resync, s.dropped = false, 0
	paths := make([]string, 0, len(s.pending))
	for p := range s.pending {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	size := 0
	for _, p := range paths {
		if len(b.Changes) == batchChanges || size > batchPathSize {
			break
		}
		size += len(p)
		b.Changes = append(b.Changes, s.pending[p])
		delete(s.pending, p)
	}
	s.news = len(s.pending) > 0
	return b, true
}

// Watch streams changes until ctx ends; then the channel is closed. The first
// batch carries the current epoch and no changes, and comes once the folder was
// looked at: whatever is written after it is told. Seq counts the batches of one
// stream from 1.
func (w *Watcher) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	s := &stream{
		pending: map[string]guest.PathChange{}, wake: make(chan struct{}, 1),
		epoch: w.epoch, degraded: w.degraded, news: w.opened,
	}
	w.streams[s] = struct{}{}
	w.mu.Unlock()
	ch := make(chan guest.ChangeBatch)
	go func() {
		defer close(ch)
		defer func() {
			w.mu.Lock()
			delete(w.streams, s)
			w.mu.Unlock()
		}()
		for seq := uint64(1); ; {
			b, ok := s.next()
			if !ok {
				select {
				case <-s.wake:
					continue
				case <-ctx.Done():
					return
				}
			}
			b.Seq = seq
			seq++
			select {
			case ch <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ch, nil
}
