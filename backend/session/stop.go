package session

import (
	"context"
	"errors"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/policy"
)

// stopped is the cause with which a step is cancelled that nobody cancelled: it says why.
type stopped struct{ why string }

func (s stopped) Error() string { return s.why }

// Is makes it a cancel to all that look for one.
func (s stopped) Is(err error) bool { return err == ErrCancelled }

// because is the reason why the step was stopped, else text.
func (st *Step) because(text string) string {
	var s stopped
	if errors.As(context.Cause(st.ctx), &s) {
		return s.why
	}
	return text
}

// StopChanging cancels every changing step of those whom hit names that runs or may run
// next, with a reason that its end tells, and returns how many there were. It waits for
// no end. Steps that wait for a person's answer are left to that answer.
func (s *Service) StopChanging(ctx context.Context, why string, hit func(domain.Actor) bool) int {
	n := 0
	for _, a := range s.actors() {
		var questions []domain.StepID
		_ = a.do(ctx, func() {
			for _, st := range a.steps() {
				st.mu.Lock()
				state := st.state
				st.mu.Unlock()
				if !st.p.Tool.Changes || !hit(st.actor) || st.ctx.Err() != nil || state != domain.StepRequested && state != domain.StepRunning {
					continue
				}
				n++
				st.cancel(stopped{why})
				questions = append(questions, st.ID)
			}
		})
		for _, id := range questions {
			// What its programs asked (a host) ends with it; what cannot be recorded now
			// is closed with the session.
			_, _ = s.cfg.Ledger.Cancel(ctx, approval.Scope{Session: a.who.ID, Step: id})
		}
	}
	return n
}

// barred overrules a decision about a changing step while those who keep this computer
// say that nothing may change.
func (st *Step) barred(d policy.Decision) policy.Decision {
	if refuse := st.a.s.cfg.Refuse; refuse != nil && st.p.Tool.Changes && d.Decision != domain.Deny {
		if why := refuse(st.actor); why != "" {
			return policy.Decision{Decision: domain.Deny, Rule: "computer", Reason: why, WouldAllow: "what only looks; changes again when there is space"}
		}
	}
	return d
}
