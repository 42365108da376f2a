package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
)

// actor owns one session. Its fields below inbox are touched only by functions
// that run on its loop, see do.
type actor struct {
	s *Service
	// who is the session as it was made: what of it never changes may be read anywhere.
	who domain.Session
	// changing is held by the step that may change the workspace, from its start
	// until its seal, so that a checkpoint shows the work of one step.
	changing slot
	inbox    chan func()
	// stopping counts the calls of StopTurn that are under way.
	stopping atomic.Int32

	d      domain.Session
	mode   policy.Mode
	model  string
	limits Limits
	checks []event.Check
	number int
	turn   turnState
	ending int // calls of End that are under way: no new steps
	// live are the steps with something left to do, past those without: of them
	// only the place in the log is kept.
	live map[domain.StepID]*Step
	past map[domain.StepID]span
	last string // newest checkpoint
}

// View is a session as it is now.
type View struct {
	domain.Session
	Limits
	Mode   policy.Mode   `json:"mode"`
	Model  string        `json:"model,omitempty"` // as a person named it; empty = the usual one
	Checks []event.Check `json:"checks,omitempty"`
	Turn   domain.TurnID `json:"turn_id,omitempty"`
	Steps  int           `json:"steps"`
	Last   string        `json:"checkpoint,omitempty"`
	Active []StepView    `json:"active,omitempty"`
}

func newActor(s *Service, d domain.Session, mode policy.Mode, checks []event.Check) *actor {
	return &actor{s: s, who: d, inbox: make(chan func()), d: d, mode: mode, checks: checks, live: map[domain.StepID]*Step{}, past: map[domain.StepID]span{}}
}

func (a *actor) loop() {
	for {
		select {
		case f := <-a.inbox:
			f()
		case <-a.s.ctx.Done():
			return
		}
	}
}

// do runs f on the actor's loop and waits for it. f must not call do.
func (a *actor) do(ctx context.Context, f func()) error {
	if a.s.ctx.Err() != nil {
		return errLeaving
	}
	done := make(chan struct{})
	select {
	case a.inbox <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.s.ctx.Done():
		return errLeaving
	}
}

func (a *actor) event(actor domain.Actor, step domain.StepID, p event.Payload) event.New {
	return event.New{Stream: event.SessionStream(a.who.ID), Origin: domain.OriginHost, Actor: actor,
		ProjectID: a.who.ProjectID, SessionID: a.who.ID, StepID: step, Payload: p}
}

// append records events that must not be lost because a caller went away, all or
// none, and returns their ids.
func (a *actor) append(ctx context.Context, events ...event.New) ([]int64, error) {
	out, err := a.s.cfg.Log.Append(context.WithoutCancel(ctx), events...)
	ids := make([]int64, len(out))
	for i := range out {
		ids[i] = out[i].ID
	}
	return ids, err
}

// steps are the live ones by number.
func (a *actor) steps() []*Step {
	out := make([]*Step, 0, len(a.live))
	for _, st := range a.live {
		out = append(out, st)
	}
	slices.SortFunc(out, func(x, y *Step) int { return cmp.Compare(x.number, y.number) })
	return out
}

// retire lets go of a step that is done.
func (a *actor) retire(st *Step) {
	st.mu.Lock()
	a.past[st.ID] = st.span
	st.mu.Unlock()
	delete(a.live, st.ID)
}

func (a *actor) view() View {
	v := View{Session: a.d, Limits: a.limits, Mode: a.mode, Model: a.model, Checks: a.checks, Turn: a.turn.id, Steps: a.number, Last: a.last}
	for _, st := range a.steps() {
		if !st.final() {
			v.Active = append(v.Active, st.view())
		}
	}
	return v
}

// move records a session's new state together with what led to it.
func (a *actor) move(ctx context.Context, to domain.SessionState, reason string, actor domain.Actor, with ...event.New) error {
	if a.d.State != to {
		with = append(with, a.event(actor, "", &event.SessionState{State: to, Reason: reason}))
	}
	if len(with) > 0 {
		if _, err := a.append(ctx, with...); err != nil {
			return err
		}
	}
	a.d.State = to
	return nil
}

var errNoTurn = domain.E(domain.CodeConflict, "that turn is not running", "it has ended already", nil)

// errEnding is why a turn's end is not recorded yet.
var errEnding = errors.New("the session is being ended")

func (a *actor) endTurn(ctx context.Context, turn domain.TurnID, result, reason string, actor domain.Actor) (event.TurnEnded, error) {
	var checks []event.Check
	var err error
	// Its end is recorded although the caller is stopped: only the checks are cut short.
	if derr := a.do(context.WithoutCancel(ctx), func() {
		if a.turn.id != turn || turn == "" || a.turn.wrapup {
			err = errNoTurn
			return
		}
		a.turn.wrapup, checks = true, a.checks
	}); derr != nil {
		return event.TurnEnded{}, derr
	}
	if err != nil {
		return event.TurnEnded{}, err
	}
	end := event.TurnEnded{Turn: turn, Result: result, Reason: clip(reason, 12000)}
	if result == "" || result == "ok" {
		end = a.runChecks(ctx, turn, checks)
		if errors.Is(context.Cause(ctx), ErrCancelled) {
			end = event.TurnEnded{Turn: turn, Result: "cancelled", Reason: "it was stopped while its checks ran"}
		}
	}
	// The turn's end is tried until it is recorded: nobody else would end it.
	for delay := recordFirst; ; delay = min(2*delay, recordMost) {
		derr := a.do(context.WithoutCancel(ctx), func() {
			if a.turn.id != turn {
				err = errNoTurn // the session was ended under it, and said so
				return
			}
			if a.ending > 0 {
				err = errEnding // it says so; where it is given up, the turn is ended after it
				return
			}
			if err = a.closeAgentQuestions(ctx); err != nil {
				return
			}
			if err = a.move(ctx, domain.SessionIdle, "", actor, a.event(actor, "", &end)); err == nil || !later(err) {
				a.turn.wrapup = false
			}
			if err == nil {
				a.turn = turnState{}
			}
		})
		if derr != nil || err == nil || errors.Is(err, errNoTurn) || !later(err) {
			return end, cmp.Or(derr, err)
		}
		select {
		case <-time.After(delay):
		case <-a.s.ctx.Done():
			return end, err
		}
	}
}

// runChecks runs the declared checks; each is an ordinary step, visible like any other.
func (a *actor) runChecks(ctx context.Context, turn domain.TurnID, checks []event.Check) event.TurnEnded {
	end := event.TurnEnded{Turn: turn, Result: "ok"}
	if len(checks) == 0 {
		return event.TurnEnded{Turn: turn, Result: "unchecked", Reason: "no check is declared, so nothing says whether the result is right"}
	}
	for _, c := range checks {
		ran := a.runCheck(ctx, turn, c)
		if !a.inTurn(turn) {
			return end // the session was ended under it
		}
		ran.Reason = clip(ran.Reason, 4000)
		if _, err := a.s.record(ctx, a.event("host", "", &ran)); err != nil {
			return event.TurnEnded{Turn: turn, Result: "failed", Reason: "a check's result could not be recorded: " + err.Error()}
		}
		if !ran.OK && end.Result == "ok" {
			end.Result, end.Reason = "failed", fmt.Sprintf("the check %q failed: %s", c.Name, ran.Reason)
		}
	}
	return end
}

func (a *actor) inTurn(turn domain.TurnID) (in bool) {
	_ = a.do(context.Background(), func() { in = a.turn.id == turn })
	return in
}

func (a *actor) runCheck(ctx context.Context, turn domain.TurnID, c event.Check) event.CheckRan {
	ran := event.CheckRan{Name: c.Name}
	raw, err := CheckArgs(c)
	if err != nil {
		ran.Reason = err.Error()
		return ran
	}
	st, err := a.call(ctx, CallRequest{Tool: "exec", Args: raw, Turn: turn, Actor: "host"})
	if err != nil {
		ran.Reason = err.Error()
		return ran
	}
	v, err := st.Wait(ctx, domain.StepEnded)
	if err != nil {
		ran.Reason = err.Error()
		return ran
	}
	ran.OK, ran.Reason = Verdict(c, v)
	return ran
}

// CheckArgs are the arguments of exec that run a check.
func CheckArgs(c event.Check) (json.RawMessage, error) {
	args := map[string]any{}
	if len(c.Argv) > 0 {
		args["argv"] = c.Argv
	} else {
		args["code"], args["lang"] = c.Code, "bash"
	}
	if c.TimeoutMS > 0 {
		args["timeout_ms"] = c.TimeoutMS
	}
	return json.Marshal(args)
}

// Verdict says whether a check holds by the step that ran it, and if not, why.
func Verdict(c event.Check, v StepView) (ok bool, reason string) {
	switch {
	case v.Ended == nil:
		return false, "it did not run: " + string(v.State)
	case v.Ended.Outcome != domain.OutcomeOK && v.Ended.Outcome != domain.OutcomeFailed:
		return false, string(v.Ended.Outcome) + ": " + v.Ended.Error
	case v.Ended.ExitCode == nil || *v.Ended.ExitCode != c.Exit:
		return false, fmt.Sprintf("it exited with %s, %d was declared", exitText(v.Ended), c.Exit)
	case c.Has != "" && !outputHas(v.Ended, c.Has):
		return false, fmt.Sprintf("its output does not hold %q", c.Has)
	}
	return true, ""
}

func exitText(e *event.StepEnded) string {
	switch {
	case e.ExitCode != nil:
		return fmt.Sprint(*e.ExitCode)
	case e.Signal != "":
		return e.Signal
	}
	return "no code"
}

// end records the session's end, and its turn's with it.
func (a *actor) end(ctx context.Context, actor domain.Actor) error {
	var err error
	if derr := a.do(ctx, func() {
		if a.d.State == domain.SessionEnded {
			return
		}
		var with []event.New
		if a.turn.id != "" {
			with = append(with, a.event(actor, "", &event.TurnEnded{Turn: a.turn.id, Result: "cancelled", Reason: "the session was ended"}))
		}
		if err = a.move(ctx, domain.SessionEnded, "", actor, with...); err == nil {
			a.turn = turnState{}
		}
	}); derr != nil {
		return derr
	}
	return err
}

func outputHas(e *event.StepEnded, want string) bool {
	for _, o := range []*event.OutputStream{e.Stdout, e.Stderr} {
		if o != nil && (strings.Contains(o.Head, want) || strings.Contains(o.Tail, want)) {
			return true
		}
	}
	return false
}

func sortSessions(s []domain.Session) {
	slices.SortFunc(s, func(x, y domain.Session) int {
		return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
}
