package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
)

// BlobReader reads artefacts back.
type BlobReader interface {
	ReadBlob(sha string, limit int64) ([]byte, error)
}

// past is what the log tells of a step.
type past struct {
	id       domain.StepID
	req      event.StepRequested
	actor    domain.Actor
	decision *event.StepDecided
	started  bool
	ended    *event.StepEnded
	sealed   *event.StepSealed
	refused  *event.StepRefused
}

// Recover folds the log into sessions and goes on with what an earlier core left
// under way: open questions wait again, steps that were running are joined in the
// guest (or end as unknown), missing seals are taken. It returns once all that is
// set going; the steps themselves finish in the background.
func (s *Service) Recover(ctx context.Context) error {
	actors := map[domain.SessionID]*actor{}
	pasts := map[domain.SessionID]map[domain.StepID]*past{}
	order := map[domain.SessionID][]*past{}
	err := s.cfg.Log.Fold(ctx, eventlog.Filter{}, func(e event.Envelope) error {
		if e.SessionID == "" {
			return nil
		}
		a := actors[e.SessionID]
		if e.Type == "session.created" {
			p, err := event.Decode(e)
			if err != nil {
				return err
			}
			c := p.(*event.SessionCreated)
			actors[e.SessionID] = newActor(s, c.Session, policy.Mode(c.Mode), c.Checks)
			pasts[e.SessionID] = map[domain.StepID]*past{}
			return nil
		}
		if a == nil {
			return nil // a project event that names a session, or one of a deleted project
		}
		switch e.Type {
		case "session.state", "turn.started", "turn.ended", "step.requested", "step.decided", "step.started", "step.ended", "step.sealed", "step.refused":
		default:
			return nil
		}
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		steps := pasts[e.SessionID]
		st := steps[e.StepID]
		if req, ok := p.(*event.StepRequested); ok {
			st = &past{id: e.StepID, req: *req, actor: e.Actor}
			steps[e.StepID] = st
			order[e.SessionID] = append(order[e.SessionID], st)
			a.number = max(a.number, req.Number)
			return nil
		}
		if st == nil && e.StepID != "" {
			return nil
		}
		switch p := p.(type) {
		case *event.SessionState:
			a.d.State = p.State
		case *event.TurnStarted:
			a.turn = p.Turn
		case *event.TurnEnded:
			a.turn = ""
		case *event.StepDecided:
			st.decision = p
		case *event.StepStarted:
			st.started = true
		case *event.StepEnded:
			st.ended = p
		case *event.StepSealed:
			st.sealed = p
			if p.Commit != "" {
				a.last = p.Commit
			}
		case *event.StepRefused:
			st.refused = p
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, a := range actors {
		if _, err := s.cfg.Project(a.d.ProjectID); err != nil {
			continue // its project was deleted
		}
		s.add(a)
		for _, p := range order[id] {
			if err := a.revive(ctx, p); err != nil {
				return fmt.Errorf("session %s, step %d: %w", id, p.req.Number, err)
			}
		}
		// A turn's agent died with the core; the turn cannot go on by itself.
		if turn := a.turn; turn != "" {
			if err := a.do(ctx, func() {
				err = a.append(ctx, a.event("host", "", &event.TurnEnded{Turn: turn, Result: "interrupted", Reason: "Glasshouse ended while the turn was running; its steps are kept"}))
				a.turn = ""
				if err == nil {
					err = a.setState(ctx, domain.SessionIdle, "interrupted", "host")
				}
			}); err != nil {
				return err
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// revive makes a step of an earlier core live again, or just known.
func (a *actor) revive(ctx context.Context, p *past) error {
	args := p.req.Args
	if p.req.ArgsBlob != nil {
		r, ok := a.s.cfg.Log.(BlobReader)
		if !ok {
			return io.ErrUnexpectedEOF
		}
		b, err := r.ReadBlob(p.req.ArgsBlob.Sha256, 64<<20)
		if err != nil {
			return err
		}
		args = json.RawMessage(b)
	}
	prep := tool.Prepared{Args: args, Title: p.req.Title}
	if t, err := a.s.cfg.Tools.Get(p.req.Tool); err == nil {
		prep.Tool = t
	} else {
		prep.Tool = tool.Tool{Name: p.req.Tool, Reach: p.req.Reach}
	}
	if fresh, err := a.s.cfg.Tools.Prepare(p.req.Tool, args); err == nil {
		prep.Action, prep.Detail = fresh.Action, fresh.Detail
	}
	st := a.newStep(p.id, prep)
	st.number, st.turn, st.actor, st.digest = p.req.Number, p.req.Turn, p.actor, p.req.Digest
	if p.decision != nil {
		st.decision = *p.decision
	}
	if err := a.do(ctx, func() {
		a.steps[st.ID] = st
		a.order = append(a.order, st)
	}); err != nil {
		return err
	}
	switch {
	case p.refused != nil:
		st.state, st.refused = p.refused.State, p.refused
		close(st.decided)
		close(st.refusedOrEnded)
		close(st.done)
	case p.sealed != nil || p.ended != nil && !prep.Tool.Changes:
		st.state, st.ended, st.sealed = domain.StepSealed, p.ended, p.sealed
		if p.sealed == nil {
			st.state = domain.StepEnded
		}
		close(st.decided)
		close(st.refusedOrEnded)
		close(st.done)
	case p.ended != nil:
		st.state, st.ended = domain.StepEnded, p.ended
		close(st.decided)
		close(st.refusedOrEnded)
		a.s.wg.Go(st.reseal)
	case p.started:
		st.state = domain.StepRunning
		close(st.decided)
		a.s.wg.Go(st.rejoin)
	default:
		a.s.wg.Go(st.resume)
	}
	return nil
}

// rejoin goes on with a step that was running when the core ended.
func (st *Step) rejoin() {
	if st.p.Tool.Changes {
		select {
		case st.a.changing <- struct{}{}:
			defer func() { <-st.a.changing }()
		case <-st.ctx.Done():
			if context.Cause(st.ctx) != ErrCancelled {
				return
			}
		}
	}
	h := st.p.Tool.Resume
	if h == nil {
		h = func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Outcome: domain.OutcomeUnknown, Error: "Glasshouse ended while this ran; whether it took effect is not known"}, nil
		}
	}
	st.finish(h, "journal")
}

// reseal takes the checkpoint that an earlier core did not get to.
func (st *Step) reseal() {
	select {
	case st.a.changing <- struct{}{}:
		defer func() { <-st.a.changing }()
	case <-st.ctx.Done():
		return
	}
	p, err := st.a.s.cfg.Project(st.a.d.ProjectID)
	if err == nil {
		g, gerr := st.a.s.cfg.Machines.Ensure(st.ctx, p)
		if gerr != nil && st.a.s.ctx.Err() != nil {
			return
		}
		st.seal(g)
	} else {
		st.seal(nil)
	}
	if st.a.s.ctx.Err() == nil {
		close(st.done)
	}
}

// resume goes on with a step that never started: its question waits again; one
// that was allowed but not started is not started now, for whoever wanted it is gone.
func (st *Step) resume() {
	open := st.a.s.cfg.Ledger.Pending(approval.Scope{Session: st.a.d.ID, Step: st.ID})
	if len(open) > 0 {
		if st.await(open[0].ID) {
			st.execute()
		}
		return
	}
	st.refuse(domain.StepCancelled, "Glasshouse ended before this ran", "call it again")
}
