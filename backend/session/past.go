package session

import (
	"context"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/tool"
)

// past is what the log tells of a step.
type past struct {
	id       domain.StepID
	at       span
	req      event.StepRequested
	actor    domain.Actor
	decision event.StepDecided
	approval domain.ApprovalID // the question whether it may run
	asked    domain.ApprovalID // the newest question that it put itself
	started  bool
	ended    *event.StepEnded
	sealed   *event.StepSealed
	refused  *event.StepRefused
}

// pastTypes are the events that a step is folded from.
var pastTypes = []event.Type{"step.requested", "step.decided", "step.started", "step.ended", "step.sealed", "step.refused", "approval.requested"}

func newPast(e event.Envelope, req *event.StepRequested) *past {
	return &past{id: e.StepID, at: span{e.ID, e.ID}, req: *req, actor: e.Actor}
}

func (p *past) fold(e event.Envelope, payload event.Payload) {
	p.at.last = e.ID
	switch v := payload.(type) {
	case *event.StepDecided:
		p.decision = *v
	case *event.StepStarted:
		p.started = true
	case *event.StepEnded:
		p.ended = v
	case *event.StepSealed:
		p.sealed = v
	case *event.StepRefused:
		p.refused = v
	case *event.ApprovalRequested:
		switch v.Kind {
		case "step":
			p.approval = v.Approval
		case "question":
			p.asked = v.Approval
		}
	}
}

// final reports whether nothing of the step is left to do, given whether its kind
// of step is sealed.
func (p *past) final(changes bool) bool {
	return p.refused != nil || p.sealed != nil || p.ended != nil && !changes
}

func (a *actor) knows(step domain.StepID) bool {
	_, done := a.past[step]
	return done || a.live[step] != nil
}

// read makes a step that is done out of its events again.
func (a *actor) read(ctx context.Context, id domain.StepID, at span) (*Step, error) {
	var p *past
	err := a.s.cfg.Log.Fold(ctx, eventlog.Filter{Session: a.who.ID, Step: id, AfterID: at.first - 1, BeforeID: at.last + 1, Types: pastTypes}, func(e event.Envelope) error {
		v, err := event.Decode(e)
		if err != nil {
			return err
		}
		if req, ok := v.(*event.StepRequested); ok {
			p = newPast(e, req)
		} else if p != nil {
			p.fold(e, v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, noStep(a.who.ID, id)
	}
	st := &Step{ID: id, a: a, p: tool.Prepared{Tool: tool.Tool{Name: p.req.Tool, Reach: p.req.Reach}, Title: p.req.Title},
		ctx: a.s.ctx, cancel: func(error) {}, decided: make(chan struct{}), refusedOrEnded: make(chan struct{}), done: make(chan struct{})}
	st.tell(p)
	for _, c := range []chan struct{}{st.decided, st.refusedOrEnded, st.done} {
		close(c)
	}
	return st, nil
}

// tell puts what the log knows of a step into it. Nothing else holds it yet.
func (st *Step) tell(p *past) {
	st.number, st.turn, st.actor, st.digest, st.span = p.req.Number, p.req.Turn, p.actor, p.req.Digest, p.at
	st.decision, st.approval, st.asked = p.decision, p.approval, p.asked
	st.ended, st.sealed, st.refused = p.ended, p.sealed, p.refused
	switch {
	case p.refused != nil:
		st.state = p.refused.State
	case p.sealed != nil:
		st.state = domain.StepSealed
	case p.ended != nil:
		st.state = domain.StepEnded
	case p.started:
		st.state = domain.StepRunning
	default:
		st.state = domain.StepRequested
	}
}
