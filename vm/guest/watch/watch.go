//go:build linux

package watch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/watch/scan"
)

// Options of a Watcher.
type Options struct {
	// Root is the watched folder; default guest.Workspace.
	Root string
	// Logf is told of what should not have happened; may be nil.
	Logf func(format string, args ...any)
	// Sweep is how often the whole folder is compared by stat; default a
	// minute, and never more than a fiftieth of the time.
	Sweep time.Duration
}

// Dirty is what may have changed since the last Barrier.
type Dirty struct {
	// All means that anything may have changed and only a walk can tell.
	All bool
	// Paths may have changed; relative to Root. A path that was or is a folder
	// stands for all below it. Of the repository's own .git these are named:
	// HEAD, index, packed-refs and what is below refs.
	Paths []string
}

const (
	quiet, longest           = 50 * time.Millisecond, 250 * time.Millisecond
	burstQuiet, burstLongest = 200 * time.Millisecond, time.Second
	burst                    = 500 // changes in a batch
)

// Watcher watches one folder. Run must be running for it to see anything.
type Watcher struct {
	opts Options
	wake chan struct{}

	mu       sync.Mutex
	tree     *scan.Tree // set by Run alone
	in       *inotify   // nil before the start and when degraded
	live     bool       // every write marks what it touches
	restart  bool       // watches must be made anew
	missed   bool       // ... and events may have been missed
	degraded bool
	epoch    uint64
	ui, cp   dirtySet
	streams  map[*stream]struct{}
	opened   bool // what was there at the start is known, so streams may begin

	known    map[string]scan.Stat // of Run's goroutine; the truth
	bursting bool                 // of Run's goroutine
	fault    func(rel string) error
}

// New returns a Watcher that does nothing yet.
func New(opts Options) *Watcher {
	if opts.Root == "" {
		opts.Root = guest.Workspace
	}
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	if opts.Sweep <= 0 {
		opts.Sweep = time.Minute
	}
	w := &Watcher{opts: opts, wake: make(chan struct{}, 1), epoch: 1, streams: map[*stream]struct{}{}}
	w.cp.everything()
	return w
}

// Barrier returns every path written to before it was called and since the last
// Barrier. There is one taker: checkpoints. Until the watcher is up, while it
// recovers and while it polls, the answer is All.
func (w *Watcher) Barrier(ctx context.Context) (Dirty, error) {
	if err := ctx.Err(); err != nil {
		return Dirty{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live {
		// What was written before now is queued now; a busy writer adding more
		// must not keep us here.
		w.drain(w.in, w.in.queued())
	}
	if !w.live {
		w.cp.everything()
		return Dirty{All: true}, nil
	}
	d := w.cp.take()
	if d.all {
		return Dirty{All: true}, nil
	}
	return Dirty{Paths: d.list()}, nil
}

// mark says that the file rel may differ. w.mu is held.
func (w *Watcher) mark(rel string) {
	w.ui.add(rel)
	w.cp.add(rel)
	w.poke()
}

// gone says that the folder rel went. w.mu is held.
func (w *Watcher) gone(rel string) {
	w.ui.addGone(rel)
	w.cp.addGone(rel)
	w.poke()
}

// lose says that the watches no longer tell everything; missed, that events may
// be lost already. w.mu is held.
func (w *Watcher) lose(missed bool, why string) {
	if missed && !w.missed {
		w.opts.Logf("watcher: %s; comparing everything", why)
	}
	w.live, w.restart = false, true
	w.missed = w.missed || missed
	w.ui.everything()
	w.cp.everything()
	w.poke()
}

// degrade gives up watching for now. w.mu is held.
func (w *Watcher) degrade() {
	w.retire()
	if !w.degraded {
		w.opts.Logf("watcher: no inotify watches are left (fs.inotify.max_user_watches); polling")
	}
	w.degraded, w.live = true, false
}

func (w *Watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, and returns ctx's error.
func (w *Watcher) Run(ctx context.Context) error {
	var readers sync.WaitGroup
	defer func() {
		w.mu.Lock()
		w.retire()
		w.live = false
		w.mu.Unlock()
		readers.Wait()
		w.mu.Lock()
		if w.tree != nil {
			w.tree.Close()
			w.tree = nil
		}
		w.mu.Unlock()
	}()
	backoff := time.Duration(0)
	var recovered time.Time
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	sweepAt := time.Now()
	first := true
	for ctx.Err() == nil {
		w.mu.Lock()
		restart, missed := w.restart || first, w.missed
		w.mu.Unlock()
		if restart {
			// A tree that keeps overflowing the queue is compared less and less often.
			if missed {
				if time.Since(recovered) > time.Minute {
					backoff = 0
				}
				if backoff > 0 && !wait(backoff) {
					break
				}
				backoff = min(30*time.Second, max(time.Second, 2*backoff))
			}
			took, err := w.begin(ctx, first, &readers)
			if err != nil {
				if first && ctx.Err() == nil {
					// A folder that is not there holds nothing: what is in it later is new.
					first, w.known = false, map[string]scan.Stat{}
					w.mu.Lock()
					w.restart = true
					w.mu.Unlock()
					w.emit(nil, false)
				}
				if ctx.Err() == nil && !wait(time.Second) {
					break
				}
				continue
			}
			first = false
			recovered = time.Now()
			sweepAt = recovered.Add(max(w.opts.Sweep, 50*took))
		}
		w.mu.Lock()
		retry := w.degraded
		w.mu.Unlock()
		next := time.Until(sweepAt)
		if retry {
			next = min(next, w.opts.Sweep/20)
		}
		t := time.NewTimer(max(0, next))
		select {
		case <-ctx.Done():
		case <-w.wake:
			w.settle(ctx)
			w.mu.Lock()
			again := w.restart
			w.mu.Unlock()
			if !again {
				w.flush(ctx)
			}
		case <-t.C:
			start := time.Now()
			if retry {
				w.poll(ctx)
			} else {
				w.sweep(ctx)
			}
			took := time.Since(start)
			if time.Now().After(sweepAt) {
				sweepAt = time.Now().Add(max(w.opts.Sweep, 50*took))
				if retry {
					w.mu.Lock()
					w.restart = true // perhaps there are watches again
					w.mu.Unlock()
				}
			}
		}
		t.Stop()
	}
	return ctx.Err()
}

// settle waits until writes pause, but not for long.
func (w *Watcher) settle(ctx context.Context) {
	q, l := quiet, longest
	if w.bursting {
		q, l = burstQuiet, burstLongest
	}
	deadline := time.NewTimer(l)
	defer deadline.Stop()
	for {
		t := time.NewTimer(q)
		select {
		case <-w.wake:
			t.Stop()
		case <-t.C:
			return
		case <-deadline.C:
			t.Stop()
			return
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// read drains the queue whenever the kernel has something, until in is retired;
// then it closes it.
func (w *Watcher) read(in *inotify) {
	defer in.file.Close()
	err := in.conn.Read(func(uintptr) bool {
		for {
			w.mu.Lock()
			empty := false
			if w.in == in {
				empty = w.drain(in, 4*len(in.buf))
			}
			over := w.in != in
			w.mu.Unlock()
			if over || empty {
				return over
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in == in { // not by retire: nobody reads the queue any more
		w.in = nil
		w.lose(true, fmt.Sprintf("the queue of events cannot be read (%v)", err))
	}
}

// retire ends the present queue; its reader closes it. w.mu is held.
func (w *Watcher) retire() {
	if w.in != nil {
		if w.in.file.SetReadDeadline(time.Now()) != nil {
			w.in.file.Close() // wakes the reader too
		}
		w.in = nil
	}
}
