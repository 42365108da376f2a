package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
)

// CallRequest is one tool call.
type CallRequest struct {
	Tool    string
	Args    json.RawMessage
	Key     string        // the caller's own name for the call, recorded with it
	Turn    domain.TurnID // empty = the turn that is running, if any
	Actor   domain.Actor  // who wants it: "agent:playbook", "person", …
	Timeout time.Duration
}

// Step is one tool call under way or done. Its state is guarded by mu; the
// channels close as it passes their states, whatever way it took. A state is only
// entered once its event is in the log.
type Step struct {
	ID      domain.StepID
	a       *actor
	actor   domain.Actor
	turn    domain.TurnID
	p       tool.Prepared
	digest  string      // what an answer is bound to
	mode    policy.Mode // it was judged in
	grant   grantKey
	number  int
	timeout time.Duration
	place   *place // in the queue of changing steps; nil before it may run
	asked   domain.ApprovalID
	ctx     context.Context
	cancel  context.CancelCauseFunc

	// decided closes when a caller has nothing quick to wait for any more: the step
	// runs, waits for an answer, waits for the step before it, or was refused.
	decided        chan struct{}
	refusedOrEnded chan struct{}
	done           chan struct{} // refused, or sealed, or ended where nothing is sealed

	mu       sync.Mutex
	state    domain.StepState
	span     span
	approval domain.ApprovalID
	ended    *event.StepEnded
	sealed   *event.StepSealed
	refused  *event.StepRefused
	decision event.StepDecided
}

// span is where in the log a step's events lie.
type span struct{ first, last int64 }

// grantKey is what a remembered answer about a step would cover. ok is false
// where nothing exact can be said, so that nothing can be remembered.
type grantKey struct {
	match, text string
	ok          bool
}

// StepView is a step as it is now. An allowed step that waits for the changing
// step before it is still "requested".
type StepView struct {
	ID       domain.StepID      `json:"id"`
	Number   int                `json:"number"`
	Tool     string             `json:"tool"`
	Title    string             `json:"title"`
	State    domain.StepState   `json:"state"`
	Decision event.StepDecided  `json:"decision"`
	Approval domain.ApprovalID  `json:"approval_id,omitempty"`
	Ended    *event.StepEnded   `json:"ended,omitempty"`
	Sealed   *event.StepSealed  `json:"sealed,omitempty"`
	Refused  *event.StepRefused `json:"refused,omitempty"`
}

func (a *actor) newStep(id domain.StepID, p tool.Prepared) *Step {
	st := &Step{ID: id, a: a, p: p, state: domain.StepRequested, decided: make(chan struct{}), refusedOrEnded: make(chan struct{}), done: make(chan struct{})}
	st.ctx, st.cancel = context.WithCancelCause(a.s.ctx)
	return st
}

func (st *Step) view() StepView {
	st.mu.Lock()
	defer st.mu.Unlock()
	return StepView{ID: st.ID, Number: st.number, Tool: st.p.Tool.Name, Title: st.p.Title, State: st.state, Decision: st.decision,
		Approval: st.approval, Ended: st.ended, Sealed: st.sealed, Refused: st.refused}
}

// View of the step now.
func (st *Step) View() StepView { return st.view() }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over reports whether the step ended or was refused; it may still wait for its seal.
func (st *Step) over() bool { return closed(st.refusedOrEnded) }

// final reports whether nothing of the step is left to do.
func (st *Step) final() bool { return closed(st.done) }

// to moves the step along its table, with the id of the event that says so (0 =
// none does); a move outside the table is a fault of ours.
func (st *Step) to(next domain.StepState, event int64, set func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !domain.CanStep(st.state, next) {
		panic(fmt.Sprintf("step %s: no way from %s to %s", st.ID, st.state, next))
	}
	st.state = next
	st.span.last = max(st.span.last, event)
	if set != nil {
		set()
	}
}

// Wait returns the step once it reached a state, or one from which it never
// will. Asking counts as reached only by waiting for it.
func (st *Step) Wait(ctx context.Context, until domain.StepState) (StepView, error) {
	var ch chan struct{}
	switch until {
	case domain.StepRequested, domain.StepAsking, domain.StepRunning:
		ch = st.decided
	case domain.StepEnded:
		ch = st.refusedOrEnded
	default:
		ch = st.done
	}
	if closed(ch) {
		return st.view(), nil
	}
	select {
	case <-ch:
		return st.view(), nil
	case <-ctx.Done():
		return st.view(), context.Cause(ctx)
	case <-st.a.s.ctx.Done():
		return st.view(), errLeaving
	}
}

// call makes a step out of a call and sets it going.
func (a *actor) call(ctx context.Context, c CallRequest) (*Step, error) {
	p, err := a.s.cfg.Tools.Prepare(c.Tool, c.Args)
	if err != nil {
		return nil, err
	}
	if p.Tool.PersonOnly && (c.Turn != "" || isAgent(c.Actor)) {
		return nil, noPerson(p.Tool.Name)
	}
	if c.Timeout < 0 || c.Timeout > 24*time.Hour {
		return nil, domain.E(domain.CodeInvalid, "a step's time limit lies between 0 and 24 hours", "", nil)
	}
	st := a.newStep(domain.StepID(domain.NewID("st")), p)
	st.actor, st.timeout = c.Actor, c.Timeout
	req := event.StepRequested{Key: c.Key, Turn: c.Turn, Tool: p.Tool.Name, Title: p.Title, Args: p.Args, Reach: p.Tool.Reach}
	if len(p.Args) > 32<<10 {
		b, err := a.s.cfg.Log.PutBlob(ctx, strings.NewReader(string(p.Args)), int64(len(p.Args)))
		if err != nil {
			st.cancel(nil)
			return nil, err
		}
		b.Mime = "application/json"
		req.Args, req.ArgsBlob = json.RawMessage("{}"), &b
	}
	if derr := a.do(ctx, func() { err = a.take(ctx, c, st, &req) }); derr != nil {
		err = derr
	}
	if err != nil {
		st.cancel(nil)
		return nil, err
	}
	return st, nil
}

func isAgent(who domain.Actor) bool { return strings.HasPrefix(string(who), "agent") }

func noPerson(tool string) error {
	return domain.E(domain.CodeDenied, fmt.Sprintf("Only a person can call the tool %q", tool), "say in words what you would do and why; the person can do it", nil)
}

// take decides and records a call and starts its step; it runs on the loop.
func (a *actor) take(ctx context.Context, c CallRequest, st *Step, req *event.StepRequested) error {
	if a.d.State == domain.SessionEnded || a.ending > 0 {
		return domain.E(domain.CodeConflict, "the session has ended", "start a new one", nil)
	}
	if c.Turn != "" && c.Turn != a.turn.id {
		// An agent whose turn was ended does not work on behind everybody's back.
		return domain.E(domain.CodeConflict, "that turn has ended", "start a new turn", nil)
	}
	d, version := a.decide(st)
	st.digest = st.p.Digest(version)
	req.Digest = st.digest
	if req.Turn == "" {
		req.Turn = a.turn.id
	}
	st.turn, req.Number = req.Turn, a.number+1
	st.decision = event.StepDecided{Decision: d.Decision, Rule: d.Rule, Reason: d.Reason, WouldAllow: d.WouldAllow}
	ids, err := a.append(ctx, a.event(c.Actor, st.ID, req), a.event("policy", st.ID, &st.decision))
	if err != nil {
		return err
	}
	st.span = span{ids[0], ids[1]}
	a.number++
	st.number = a.number
	a.live[st.ID] = st
	if d.Decision == domain.Allow && st.p.Tool.Changes {
		st.place = a.changing.enter()
	}
	a.s.wg.Go(st.run)
	return nil
}

// decide judges a step as the session's mode and the rules are now, with what a person
// asked to be remembered; it runs on the loop.
func (a *actor) decide(st *Step) (policy.Decision, string) {
	act := st.p.Action
	act.Mode, st.mode = a.mode, a.mode
	if st.p.Tool.PersonOnly {
		return policy.Decision{Decision: domain.Allow, Rule: "person", Reason: "a person did it"}, "person"
	}
	d, version := a.s.cfg.Decide(a.who.ProjectID, act)
	if d.Decision == domain.Ask {
		st.grant = grantOf(act, st.p.Args)
		if st.grant.ok {
			if g, ok := a.s.cfg.Ledger.Match(approval.Query{Project: a.who.ProjectID, Session: a.who.ID, Match: st.grant.match}); ok {
				d.Decision, d.Rule, d.Reason = g.Rule.Decision, g.RuleName(), "remembered: "+g.Rule.Text
			}
		}
	}
	return st.barred(d), version
}

func grantOf(act policy.Action, args json.RawMessage) grantKey {
	match, text, ok := policy.GrantKey(act, args)
	return grantKey{match, text, ok}
}

// finished closes the step's last channel and lets the actor keep of it only where
// its events are. The workspace is free before: who waited for the seal may want it for
// itself at once, and would be turned away.
func (st *Step) finished() {
	st.space().leave(st)
	if st.place != nil {
		st.place.leave()
	}
	close(st.done)
	st.cancel(nil)
	_ = st.a.do(context.Background(), func() { st.a.retire(st) })
}

// text makes guest bytes safe for JSON: invalid UTF-8 is shown, not dropped.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func clip(s string, n int) string {
	s = text(s)
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

func closeOnce(c chan struct{}) {
	if !closed(c) {
		close(c)
	}
}
