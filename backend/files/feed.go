// Package files follows the workspaces of machines that run and shows what is
// touched in them, as transient events. The watcher in the guest is the source: all
// of it is a claim, good for a screen; what a step really changed is in its checkpoint.
package files

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm/guest"
)

// Config of a Feed; every edge is injected.
type Config struct {
	Projects func() []domain.ProjectID
	// Running is the guest of a machine that is on.
	Running func(domain.ProjectID) (guest.Guest, bool)
	// Wanted says whether somebody would see the events of a project.
	Wanted func(domain.ProjectID) bool
	// Step is the one step that runs in a project; ok is false when none or several do.
	Step    func(context.Context, domain.ProjectID) (domain.SessionID, domain.StepID, bool)
	Publish func(event.New)

	// Look is how often machines and readers are looked for; 0 = half a second.
	Look time.Duration
	// Pause is the least time between two events of a project; 0 = 200 ms. What comes
	// in it waits in the guest, which keeps the latest of each path.
	Pause time.Duration
	// Wait is the first pause after a watch was lost, doubled up to 32 times; 0 = 250 ms.
	Wait time.Duration
}

// Limits of one event.
const (
	maxChanges = 300
	maxBytes   = 40 << 10
)

// Feed shows what is touched.
type Feed struct{ cfg Config }

// New returns a feed that does nothing yet.
func New(cfg Config) *Feed {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&cfg.Look, 500*time.Millisecond)
	or(&cfg.Pause, 200*time.Millisecond)
	or(&cfg.Wait, 250*time.Millisecond)
	return &Feed{cfg: cfg}
}

// Run follows every machine that runs, as long as somebody looks, until ctx ends.
// All it started has ended when it returns.
func (f *Feed) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	type follower struct {
		cancel context.CancelFunc
		done   chan struct{}
	}
	all := map[domain.ProjectID]follower{}
	tick := time.NewTicker(f.cfg.Look)
	defer tick.Stop()
	for {
		want := map[domain.ProjectID]bool{}
		for _, id := range f.cfg.Projects() {
			if _, on := f.cfg.Running(id); on && f.cfg.Wanted(id) {
				want[id] = true
			}
		}
		for id, w := range all {
			select {
			case <-w.done:
				delete(all, id)
			default:
				if !want[id] {
					w.cancel()
				}
			}
		}
		for id := range want {
			if _, has := all[id]; has {
				continue
			}
			fctx, cancel := context.WithCancel(ctx)
			w := follower{cancel, make(chan struct{})}
			all[id] = w
			wg.Go(func() {
				defer close(w.done)
				defer cancel()
				f.follow(fctx, id)
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow watches one machine, and again after each loss, until ctx ends.
func (f *Feed) follow(ctx context.Context, id domain.ProjectID) {
	again := false
	for wait := f.cfg.Wait; ctx.Err() == nil; {
		if g, on := f.cfg.Running(id); on {
			if f.watch(ctx, id, g, &again) {
				wait = f.cfg.Wait
			}
		}
		if !f.sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, 32*f.cfg.Wait)
	}
}

// watch shows batches until the watch ends, and reports whether any came. again says
// that an earlier watch was lost: what happened since is not known.
func (f *Feed) watch(ctx context.Context, id domain.ProjectID, g guest.Guest, again *bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, err := g.Watch(ctx)
	if err != nil {
		return false
	}
	came, epoch, degraded := false, uint64(0), false
	for b := range batches {
		// What git keeps for itself is nobody's work.
		b.Changes = slices.DeleteFunc(b.Changes, func(c guest.PathChange) bool { return c.Path == ".git" || strings.HasPrefix(c.Path, ".git/") })
		resync := b.Resync || came && b.Epoch != epoch || !came && *again
		news := len(b.Changes) > 0 || b.Dropped > 0 || resync || b.Degraded != degraded
		came, *again, epoch, degraded = true, true, b.Epoch, b.Degraded
		if !news {
			continue
		}
		f.cfg.Publish(f.event(ctx, id, b, resync))
		if !f.sleep(ctx, f.cfg.Pause) {
			break
		}
	}
	return came
}

func (f *Feed) event(ctx context.Context, id domain.ProjectID, b guest.ChangeBatch, resync bool) event.New {
	p := &event.FilesTouched{Degraded: b.Degraded, Resync: resync, Dropped: b.Dropped}
	size := 0
	for i, c := range b.Changes {
		path := strings.ToValidUTF8(c.Path, "\uFFFD")
		written, _ := json.Marshal(path) // control characters take six bytes
		if size += len(written) + 120; len(p.Changes) == maxChanges || size > maxBytes {
			p.Dropped += len(b.Changes) - i
			break
		}
		ch := event.FileChange{Path: path, Op: c.Op}
		if c.Op != "delete" {
			ch.NewMode = c.Mode
		}
		p.Changes = append(p.Changes, ch)
	}
	n := event.New{Stream: event.ProjectStream(id), Origin: domain.OriginGuest, Actor: "guest", ProjectID: id, Payload: p}
	if session, step, ok := f.cfg.Step(ctx, id); ok {
		n.SessionID, n.StepID = session, step
	}
	return n
}

func (f *Feed) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
