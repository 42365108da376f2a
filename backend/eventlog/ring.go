package eventlog

import (
	"encoding/json"
	"sort"
	"sync"

	"glasshouse/backend/event"
)

// ring holds the newest stored events, in id order without a hole: every event
// above floor is in it.
type ring struct {
	mu       sync.RWMutex
	events   []event.Envelope
	floor    int64
	bytes    int
	maxCount int
	maxBytes int
}

func newRing(count, bytes int, floor int64) *ring {
	return &ring{floor: floor, maxCount: count, maxBytes: bytes}
}

func (r *ring) add(events []event.Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	for i := range events {
		r.bytes += len(events[i].Data)
	}
	cut := 0
	for len(r.events)-cut > r.maxCount || (r.bytes > r.maxBytes && cut < len(r.events)) {
		r.bytes -= len(r.events[cut].Data)
		r.floor = r.events[cut].ID
		cut++
	}
	if cut > 0 {
		n := copy(r.events, r.events[cut:])
		clear(r.events[n:])
		r.events = r.events[:n]
	}
}

func (r *ring) replace(id int64, data json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := sort.Search(len(r.events), func(i int) bool { return r.events[i].ID >= id })
	if i < len(r.events) && r.events[i].ID == id {
		r.bytes += len(data) - len(r.events[i].Data)
		r.events[i].Data = data
	}
}

// after returns up to limit matching events above pos and the id up to which it
// looked; ok is false when pos is older than what the ring holds.
func (r *ring) after(pos int64, f *Filter, limit int) (out []event.Envelope, scanned int64, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if pos < r.floor {
		return nil, 0, false
	}
	scanned = pos
	i := sort.Search(len(r.events), func(i int) bool { return r.events[i].ID > pos })
	for ; i < len(r.events) && len(out) < limit; i++ {
		scanned = r.events[i].ID
		if f.Match(&r.events[i]) {
			out = append(out, r.events[i])
		}
	}
	return out, scanned, true
}
