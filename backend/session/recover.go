package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/backend/secret"
	"glasshouse/backend/tool"
)

// BlobReader reads artefacts back.
type BlobReader interface {
	ReadBlob(sha string, limit int64) ([]byte, error)
}

// folded is a session as the log tells it. Of steps that are done only the place in
// the log is kept, so that a long history costs no memory.
type folded struct {
	a    *actor
	open map[domain.StepID]*past
}

// Recover folds the log into sessions and goes on with what an earlier core left
// under way:
//
//   - a step whose question is open waits for the answer again, and runs when it
//     is allowed;
//   - one whose question was answered with a no, expired or was closed is refused so;
//   - one that was allowed but not started is cancelled: whoever wanted it is gone,
//     and may call it again;
//   - one that was running is joined in the guest, which is started for it when it
//     is off, and ends as it really ended, else as unknown;
//   - one that ended and was not sealed is sealed;
//   - a turn is left to its agent where that goes on with it (Interrupted lists them),
//     else it is ended as interrupted, for its agent is gone.
//
// It returns once all that is set going; the steps themselves finish in the
// background.
func (s *Service) Recover(ctx context.Context) error {
	all, err := s.fold(ctx)
	if err != nil {
		return err
	}
	order := make([]*folded, 0, len(all))
	for _, f := range all {
		order = append(order, f)
	}
	slices.SortFunc(order, func(x, y *folded) int {
		return cmp.Or(cmp.Compare(x.a.who.CreatedAt, y.a.who.CreatedAt), cmp.Compare(x.a.who.ID, y.a.who.ID))
	})
	for _, f := range order {
		if _, err := s.cfg.Project(f.a.who.ProjectID); err != nil {
			continue // its project was deleted
		}
		if !s.add(f.a) {
			return errLeaving
		}
		if err := f.a.revive(ctx, f.open); err != nil {
			return fmt.Errorf("session %s: %w", f.a.who.ID, err)
		}
	}
	return nil
}

func (s *Service) fold(ctx context.Context) (map[domain.SessionID]*folded, error) {
	all := map[domain.SessionID]*folded{}
	types := append(slices.Clone(pastTypes), "session.created", "session.state", "turn.started", "turn.ended", "turn.resumed", "model.answered", "session.changed")
	err := s.cfg.Log.Fold(ctx, eventlog.Filter{Types: types}, func(e event.Envelope) error {
		if e.SessionID == "" {
			return nil
		}
		v, err := event.Decode(e)
		if err != nil {
			return err
		}
		if c, ok := v.(*event.SessionCreated); ok {
			c.Session.ID, c.Session.ProjectID = e.SessionID, e.ProjectID
			all[e.SessionID] = &folded{newActor(s, c.Session, policy.Mode(c.Mode), c.Checks), map[domain.StepID]*past{}}
			all[e.SessionID].a.model, all[e.SessionID].a.limits = c.Model, Limits{c.LimitNanos, c.LimitTokens}
			return nil
		}
		if f := all[e.SessionID]; f != nil { // else a project's event that names a session
			f.fold(e, v)
		}
		return nil
	})
	return all, err
}

func (f *folded) fold(e event.Envelope, v event.Payload) {
	a := f.a
	switch v := v.(type) {
	case *event.SessionState:
		a.d.State = v.State
	case *event.TurnStarted:
		a.turn = turnState{id: v.Turn, agent: v.Agent, prompt: v.Prompt}
	case *event.TurnEnded:
		a.turn = turnState{}
	case *event.TurnResumed:
		a.turn.tries++
	case *event.ModelAnswered:
		if v.Purpose != event.PurposeBroken {
			a.turn.tries = 0
		}
	case *event.SessionChanged:
		a.changed(v)
	case *event.StepRequested:
		f.open[e.StepID] = newPast(e, v)
		a.number = max(a.number, v.Number)
	default:
		p := f.open[e.StepID]
		if p == nil {
			return
		}
		p.fold(e, v)
		if p.sealed != nil && p.sealed.Commit != "" {
			a.last = p.sealed.Commit
			a.s.workspace(a.who.ProjectID).last = a.last
		}
		if p.final(a.s.changes(&p.req)) {
			a.past[p.id] = p.at
			delete(f.open, p.id)
		}
	}
}

// changes reports whether steps of this kind are sealed. A tool that is no longer
// here may have changed something when it reached into the machine.
func (s *Service) changes(req *event.StepRequested) bool {
	if t, err := s.cfg.Tools.Get(req.Tool); err == nil {
		return t.Changes
	}
	return req.Reach == domain.ReachMachine
}

// revive makes the open steps of an earlier core live again, ends what cannot go
// on, and ends a turn that was running.
func (a *actor) revive(ctx context.Context, open map[domain.StepID]*past) error {
	ps := make([]*past, 0, len(open))
	for _, p := range open {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(x, y *past) int { return cmp.Compare(x.req.Number, y.req.Number) })
	var err error
	derr := a.do(ctx, func() {
		// Questions of steps that are done, which a crash left open.
		for _, q := range a.s.cfg.Ledger.Pending(approval.Scope{Session: a.who.ID}) {
			if (q.Asked.Kind == "step" || q.Asked.Kind == "question") && q.Step != "" && open[q.Step] == nil {
				if _, cerr := a.s.cfg.Ledger.Close(ctx, q.ID, approval.Cancelled); cerr != nil && domain.CodeOf(cerr) != domain.CodeConflict {
					err = cerr
					return
				}
			}
		}
		if a.turn.id != "" && a.s.cfg.Resumes != nil && a.s.cfg.Resumes(a.turn.agent) {
			for _, p := range ps {
				a.reviveStep(p)
			}
			return
		}
		if err = a.closeAgentQuestions(ctx); err != nil {
			return
		}
		var with []event.New
		if a.turn.id != "" {
			with = append(with, a.event("host", "", &event.TurnEnded{Turn: a.turn.id, Result: "interrupted", Reason: "Glasshouse ended while the turn was running; its steps are kept"}))
		}
		to := a.d.State
		if to == domain.SessionRunning {
			to = domain.SessionIdle
		}
		if err = a.move(ctx, to, "interrupted", "host", with...); err != nil {
			return
		}
		a.turn = turnState{}
		for _, p := range ps {
			a.reviveStep(p)
		}
	})
	return cmp.Or(derr, err)
}

// reviveStep sets an open step going; it runs on the loop.
func (a *actor) reviveStep(p *past) {
	args, lost := p.req.Args, error(nil)
	if p.req.ArgsBlob != nil {
		args, lost = a.s.argsOf(p.req.ArgsBlob)
	}
	if lost == nil && secret.Marked(args) {
		lost = errors.New("its arguments held a key, and that is not kept")
	}
	prep := tool.Prepared{Args: args, Title: p.req.Title}
	if t, err := a.s.cfg.Tools.Get(p.req.Tool); err == nil {
		prep.Tool = t
	} else {
		prep.Tool = tool.Tool{Name: p.req.Tool, Reach: p.req.Reach, Changes: a.s.changes(&p.req)}
		lost = cmp.Or(lost, err)
	}
	if fresh, err := a.s.cfg.Tools.Prepare(p.req.Tool, args); err == nil {
		prep.Action, prep.Detail = fresh.Action, fresh.Detail
	} else {
		lost = cmp.Or(lost, err)
	}
	st := a.newStep(p.id, prep)
	st.tell(p)
	a.live[st.ID] = st
	if prep.Tool.Changes && (p.started || p.ended != nil) {
		// It had the slot: nothing else may change the workspace before its seal.
		st.place = a.changing.enter()
		st.space().join(st)
	}
	switch {
	case p.ended != nil:
		close(st.decided)
		close(st.refusedOrEnded)
		a.s.wg.Go(st.reseal)
	case p.started:
		close(st.decided)
		a.s.wg.Go(st.rejoin)
	default:
		// Looked up here, before anybody can answer: an answer that comes right after
		// the start is one to this core.
		open := slices.ContainsFunc(a.s.cfg.Ledger.Pending(approval.Scope{Session: a.who.ID, Step: st.ID}), func(q approval.Approval) bool { return q.ID == st.approval })
		a.s.wg.Go(func() { st.resume(open, lost) })
	}
}

func (s *Service) argsOf(b *event.Blob) (json.RawMessage, error) {
	r, ok := s.cfg.Log.(BlobReader)
	if !ok {
		return json.RawMessage("{}"), domain.E(domain.CodeInternal, "artefacts cannot be read back", "", nil)
	}
	raw, err := r.ReadBlob(b.Sha256, 64<<20)
	if err != nil {
		return json.RawMessage("{}"), err
	}
	return raw, nil
}

// rejoin goes on with a step that was running when the core ended.
func (st *Step) rejoin() {
	if st.place != nil {
		defer st.place.leave()
		defer st.space().leave(st)
		// A cancel does not wait for its turn; a core that leaves does not either.
		st.place.wait(st.ctx)
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
	defer st.place.leave()
	defer st.space().leave(st)
	st.place.wait(st.ctx)
	if st.a.s.ctx.Err() != nil {
		return
	}
	p, err := st.a.s.cfg.Project(st.a.who.ProjectID)
	if err == nil {
		if g, gerr := st.a.s.cfg.Machines.Ensure(st.ctx, p); gerr == nil {
			if st.seal(g, "") {
				st.finished()
			}
			return
		} else {
			err = gerr
		}
	}
	if st.a.s.ctx.Err() == nil && st.seal(nil, "the machine was not there: "+err.Error()) {
		st.finished()
	}
}

// resume goes on with a step that never started. open says that its question had no
// end when the core came; lost, why it could not be run even if it were allowed now.
func (st *Step) resume(open bool, lost error) {
	a := st.a
	if st.approval == "" {
		if st.decision.Decision == domain.Deny {
			st.refuse(domain.StepDenied, st.decision.Reason, st.decision.WouldAllow)
			return
		}
		st.refuse(domain.StepCancelled, "Glasshouse ended before this ran", "call it again")
		return
	}
	id := st.approval
	switch {
	case open && lost != nil:
		if st.closeQuestion(id) {
			st.refuse(domain.StepCancelled, "this can no longer be run: "+lost.Error(), "")
		}
	case open:
		if st.await(id) {
			st.execute()
		}
	default:
		// It ended while no step waited for it.
		out, err := a.s.cfg.Ledger.Wait(st.ctx, id)
		if err != nil {
			if a.s.ctx.Err() == nil {
				st.refuse(domain.StepCancelled, "Glasshouse ended before this ran", "call it again")
			}
			return
		}
		st.to(domain.StepAsking, 0, nil)
		if st.answered(out) {
			st.refuse(domain.StepCancelled, "it was allowed, but Glasshouse ended before it ran", "call it again")
		}
	}
}
