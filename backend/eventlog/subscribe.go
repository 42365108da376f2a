package eventlog

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// pageSize is how many events a subscription takes at a time.
const pageSize = 128

// Subscription is one reader's place in the log. Next and All belong to one
// goroutine; Close and Dropped may be called from any.
type Subscription struct {
	log  *Log
	f    Filter
	pos  int64 // everything up to here was delivered or did not match
	page []event.Envelope
	upTo int64 // pos once page is used up

	wake chan struct{}
	past bool // the place was never given: the reader knows another log

	mu      sync.Mutex
	live    []transient // oldest first, bounded
	dropped int64
	closed  bool
}

type transient struct {
	after int64 // id of the newest stored event when it was published
	e     event.Envelope
}

// Subscribe delivers what matches f after the event afterID, stored events first,
// then live ones, without gap or duplicate, and transient events as they come.
// f.AfterID, f.Limit and f.Tail are ignored. An afterID past the end (a reader that
// knew another log) makes Next fail with a conflict. End it with Close.
func (l *Log) Subscribe(f Filter, afterID int64) *Subscription {
	f.AfterID, f.BeforeID, f.Limit, f.Tail = 0, 0, 0, false
	s := &Subscription{log: l, f: f, pos: max(afterID, 0), wake: make(chan struct{}, 1), past: afterID > l.LatestID()}
	l.subMu.Lock()
	l.subs[s] = struct{}{}
	l.subMu.Unlock()
	return s
}

// Close ends the subscription; a waiting Next returns ErrClosed.
func (s *Subscription) Close() {
	s.log.subMu.Lock()
	delete(s.log.subs, s)
	s.log.subMu.Unlock()
	s.mu.Lock()
	s.closed = true
	s.live = nil
	s.mu.Unlock()
	s.poke()
}

// Dropped counts the transient events this reader lost because it was behind.
func (s *Subscription) Dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *Subscription) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next returns the next event, waiting for one. It fails when ctx ends, when the
// subscription or the log is closed (ErrClosed), or when the database cannot be read;
// after the last the place is kept and Next may be called again.
func (s *Subscription) Next(ctx context.Context) (event.Envelope, error) {
	if s.past {
		return event.Envelope{}, domain.E(domain.CodeConflict, fmt.Sprintf("There is no event %d yet: the place is of another log", s.pos), "load everything again from the start", nil)
	}
	for {
		if err := ctx.Err(); err != nil {
			return event.Envelope{}, err
		}
		if len(s.page) == 0 {
			if err := s.fill(ctx); err != nil {
				return event.Envelope{}, err
			}
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return event.Envelope{}, ErrClosed
		}
		if len(s.live) > 0 {
			t := s.live[0]
			// Before the next stored event if it was published before that one.
			if (len(s.page) > 0 && t.after < s.page[0].ID) || (len(s.page) == 0 && t.after <= s.pos) {
				s.live = s.live[1:]
				s.mu.Unlock()
				return t.e, nil
			}
		}
		s.mu.Unlock()
		if len(s.page) > 0 {
			e := s.page[0]
			s.page = s.page[1:]
			s.pos = e.ID
			if len(s.page) == 0 {
				s.page = nil
				s.pos = max(s.pos, s.upTo)
			}
			return e, nil
		}
		if s.pos < s.log.LatestID() {
			continue
		}
		select {
		case <-s.log.done:
			return event.Envelope{}, ErrClosed
		default:
		}
		select {
		case <-s.wake:
		case <-s.log.done:
		case <-ctx.Done():
		}
	}
}

// fill takes the next page, from memory when it is recent enough.
func (s *Subscription) fill(ctx context.Context) error {
	latest := s.log.LatestID()
	if s.pos >= latest {
		return nil
	}
	if page, scanned, ok := s.log.ring.after(s.pos, &s.f, pageSize); ok {
		s.take(page, scanned)
		return nil
	}
	f := s.f
	f.AfterID, f.Limit = s.pos, pageSize
	page, err := s.log.Read(ctx, f)
	if err != nil {
		return err
	}
	scanned := latest
	if n := len(page); n > 0 && (n == pageSize || page[n-1].ID > latest) {
		scanned = page[n-1].ID
	}
	s.take(page, scanned)
	return nil
}

func (s *Subscription) take(page []event.Envelope, scanned int64) {
	s.page, s.upTo = page, scanned
	if len(page) == 0 {
		s.pos = scanned
	}
}

// All is Next as an iterator; it ends after the first error it yields.
func (s *Subscription) All(ctx context.Context) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		for {
			e, err := s.Next(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Publish hands transient events to the subscriptions that match now. It never
// waits and never stores; an event of a type that is stored is refused.
func (l *Log) Publish(events ...event.New) error {
	for i := range events {
		e, err := l.envelope(&events[i])
		if err != nil {
			return err
		}
		if !event.Transient(e.Type) {
			return invalid("An event of type %s is stored, not published: use Append", e.Type)
		}
		e.At = l.opt.Now().UnixMilli()
		t := transient{e: e, after: l.LatestID()}
		l.subMu.RLock()
		for s := range l.subs {
			if s.f.Match(&e) {
				s.push(t, l.opt.Transients)
			}
		}
		l.subMu.RUnlock()
	}
	return nil
}

func (s *Subscription) push(t transient, limit int) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	if len(s.live) >= limit {
		s.live = s.live[1:]
		s.dropped++
		s.log.dropped.Add(1)
	}
	s.live = append(s.live, t)
	s.mu.Unlock()
	s.poke()
}

// DroppedTotal counts transient events that readers lost, all together.
func (l *Log) DroppedTotal() int64 { return l.dropped.Load() }
