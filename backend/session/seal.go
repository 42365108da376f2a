package session

import (
	"context"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm/guest"
)

// sealTimeout bounds a checkpoint; a large first one under emulation is slow.
const sealTimeout = 10 * time.Minute

// workspace is what sessions of one project share: one tree, so one line of
// checkpoints. mu is held while one is taken.
type workspace struct {
	mu   sync.Mutex
	last string // the newest checkpoint that a step was sealed with
	use  use
}

func (s *Service) workspace(id domain.ProjectID) *workspace {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.spaces[id]
	if w == nil {
		w = &workspace{}
		s.spaces[id] = w
	}
	return w
}

// seal takes the checkpoint after a changing step; without a guest it says why
// there is none. It reports false when the core went before the seal was recorded.
func (st *Step) seal(g guest.Guest, missing string) bool {
	a := st.a
	again := missing == "" // an earlier core may have taken it already
	ctx, cancel := context.WithTimeout(context.WithoutCancel(st.ctx), sealTimeout)
	defer cancel()
	// A core that goes does not wait for a seal: the next one takes it.
	defer context.AfterFunc(a.s.ctx, cancel)()
	sealed := &event.StepSealed{Failed: clip(missing, 2000)}
	if g != nil {
		cp, err := a.s.workspace(a.who.ProjectID).take(ctx, g, guest.CheckpointRequest{Session: string(a.who.ID), Step: string(st.ID)}, again)
		switch {
		case err == nil:
			sealed = sealedEvent(cp)
		case a.s.ctx.Err() != nil:
			return false
		default:
			sealed.Failed = clip(err.Error(), 2000)
		}
	}
	id, err := st.recordSeal(sealed, g)
	if err != nil && !later(err) {
		sealed = &event.StepSealed{Commit: sealed.Commit, Tree: sealed.Tree, Sum: sealed.Sum, More: true, Failed: "the list of changes could not be recorded: " + clip(err.Error(), 2000)}
		id, err = st.recordSeal(sealed, g)
	}
	if err != nil {
		return false
	}
	st.to(domain.StepSealed, id, func() { st.sealed = sealed })
	if sealed.Commit != "" {
		_ = a.do(context.WithoutCancel(ctx), func() { a.last = sealed.Commit })
	}
	// The outcome and the checkpoint are safe on the host: guestd may forget.
	if g != nil {
		fctx, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		_ = g.Execs().Forget(fctx, string(st.ID))
	}
	return true
}

func (st *Step) recordSeal(sealed *event.StepSealed, g guest.Guest) (int64, error) {
	e := st.a.event("host", st.ID, sealed)
	if g != nil {
		e.Origin = domain.OriginGuest
	}
	return st.a.s.record(st.ctx, e)
}

// take takes a checkpoint and says what changed since the last one that a step was
// sealed with. The guest answers "the same" also when an answer of its was lost
// (with the channel, or with a core): then it is asked for the difference. again
// says that such an answer may have been lost; where nothing is known to compare
// with, the list is then said to be incomplete.
func (w *workspace) take(ctx context.Context, g guest.Guest, req guest.CheckpointRequest, again bool) (guest.Checkpoint, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	cp, err := g.Checkpoints().Take(ctx, req)
	if err != nil {
		return cp, err
	}
	from := w.last
	if from == "" {
		from = cp.Parent
	}
	if cp.Same && from != "" && from != cp.Commit {
		cp.Same, cp.Parent = false, from // what the list is against
		if cp.Changes, cp.More, err = g.Checkpoints().Diff(ctx, from, cp.Commit); err != nil {
			if ctx.Err() != nil {
				return cp, err
			}
			cp.Changes, cp.More = nil, true // it is taken; the list can be asked for later
		}
	}
	if cp.Same && again && from == "" {
		cp.Same, cp.More = false, true
	}
	w.last = cp.Commit
	return cp, nil
}

func sealedEvent(cp guest.Checkpoint) *event.StepSealed {
	s := &event.StepSealed{Commit: cp.Commit, Tree: cp.Tree, Same: cp.Same, More: cp.More, Ignored: cp.Ignored, Sum: cp.Sum}
	if !cp.Same {
		s.Base = cp.Parent
	}
	// The payload stays under the log's limit; the rest is asked for by diff.
	var more bool
	s.Changes, more = FileChanges(cp.Changes, 40<<10)
	s.More = s.More || more
	for i, p := range cp.NotCaptured {
		if i == 20 {
			break
		}
		s.NotCaptured = append(s.NotCaptured, text(p))
	}
	return s
}

// FileChanges are the guest's changes as they are told to others: the first that fit
// into about so many bytes of JSON, and whether there are more.
func FileChanges(changes []guest.FileChange, most int) (out []event.FileChange, more bool) {
	for _, c := range changes {
		if most -= len(c.Path) + len(c.OldPath) + 120; most < 0 {
			return out, true
		}
		out = append(out, event.FileChange{Path: text(c.Path), OldPath: text(c.OldPath), Op: c.Op, OldMode: c.OldMode, NewMode: c.NewMode, Added: c.Added, Deleted: c.Deleted, Binary: c.Binary})
	}
	return out, false
}
