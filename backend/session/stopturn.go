package session

import (
	"context"
	"errors"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// cancel tells one step ("" = all) to end and returns those that have not yet; it runs
// on the loop.
func (a *actor) cancel(step domain.StepID) (hit []*Step) {
	for _, st := range a.steps() {
		if (step == "" || st.ID == step) && !st.over() {
			hit = append(hit, st)
			// All at once, before anything is waited for: a queued step must not
			// start because the one before it was cancelled.
			st.cancel(ErrCancelled)
		}
	}
	return hit
}

// cancelled waits for the end of steps that were told to.
func (a *actor) cancelled(ctx context.Context, hit []*Step) error {
	var errs []error
	for _, st := range hit {
		// Questions its programs raised (a host, a choice) end with it.
		if _, err := a.s.cfg.Ledger.Cancel(ctx, approval.Scope{Session: a.who.ID, Step: st.ID}); err != nil {
			errs = append(errs, err)
		}
	}
	for _, st := range hit {
		select {
		case <-st.refusedOrEnded:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.s.ctx.Done():
			return errLeaving
		}
	}
	return errors.Join(errs...)
}

// turnStop is the end that a turn gets once its steps have ended. It is touched on the
// actor's loop only.
type turnStop struct {
	by       domain.Actor
	end      event.TurnEnded
	recorded bool
}

// StopTurn ends a turn whose agent works on it no more, as cancelled: its steps, and
// whatever else runs in its session, are cancelled first. The turn's end is recorded
// with that of the last of them, in one transaction; it returns when it is.
func (s *Service) StopTurn(ctx context.Context, id domain.SessionID, turn domain.TurnID, reason string, by domain.Actor) (event.TurnEnded, error) {
	a, err := s.actor(id)
	if err != nil {
		return event.TurnEnded{}, err
	}
	ctx = context.WithoutCancel(ctx)
	stop := &turnStop{by: by, end: event.TurnEnded{Turn: turn, Result: "cancelled", Reason: clip(reason, 12000)}}
	var hit []*Step
	a.stopping.Add(1)
	defer a.stopping.Add(-1)
	if err := a.do(ctx, func() {
		hit = a.cancel("")
		// What cannot be closed now is closed, and the turn ended, after the steps.
		if a.turn.id == turn && turn != "" && !a.turn.wrapup && a.closeAgentQuestions(ctx) == nil {
			a.turn.stop = stop
		}
	}); err != nil {
		return event.TurnEnded{}, err
	}
	werr := a.cancelled(ctx, hit)
	end, err := a.endTurn(ctx, turn, stop.end.Result, reason, by)
	if errors.Is(err, errNoTurn) {
		if derr := a.do(ctx, func() {
			if stop.recorded {
				end, err = stop.end, nil
			}
		}); derr != nil {
			err = derr
		}
	}
	return end, errors.Join(err, werr)
}

var errAlone = errors.New("the step's end is recorded by itself")

// endWithTurn records and shows the end of a step together with that of a turn, where one
// is being stopped and waits for nothing else: on a slow disk two records take twice as
// long. The last of the events is the step's end. An error means that nothing was recorded.
func (st *Step) endWithTurn(events []event.New, end *event.StepEnded) (id int64, err error) {
	a := st.a
	if a.stopping.Load() == 0 {
		return 0, errAlone // without waiting for what the loop is about
	}
	if derr := a.do(context.WithoutCancel(st.ctx), func() {
		if err = errAlone; a.turn.stop == nil {
			return
		}
		for _, other := range a.live {
			if other != st && !other.over() {
				return
			}
		}
		if len(a.s.cfg.Ledger.Pending(approval.Scope{Session: a.who.ID, Step: st.ID})) > 0 {
			return // they are closed between the two
		}
		stop := a.turn.stop
		last := len(events) - 1
		events = append(events, a.event(stop.by, "", &stop.end))
		if a.d.State != domain.SessionIdle {
			events = append(events, a.event(stop.by, "", &event.SessionState{State: domain.SessionIdle}))
		}
		var ids []int64
		if ids, err = a.append(st.ctx, events...); err != nil {
			return
		}
		id, stop.recorded = ids[last], true
		a.turn, a.d.State = turnState{}, domain.SessionIdle
		st.end(id, end) // who sees the turn's end never meets a step of it that seems to run
	}); derr != nil {
		return 0, derr
	}
	return id, err
}
