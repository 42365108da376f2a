package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
)

// actor owns one session. Its fields below inbox are touched only by functions
// that run on its loop, see do.
type actor struct {
	s     *Service
	inbox chan func()
	// changing is held by the step that may change the workspace, from its start
	// until its seal, so that a checkpoint shows the work of one step.
	changing chan struct{}

	d      domain.Session
	mode   policy.Mode
	checks []event.Check
	number int
	turn   domain.TurnID
	steps  map[domain.StepID]*Step
	order  []*Step
	last   string // newest checkpoint
}

// View is a session as it is now.
type View struct {
	domain.Session
	Mode   policy.Mode   `json:"mode"`
	Checks []event.Check `json:"checks,omitempty"`
	Turn   domain.TurnID `json:"turn_id,omitempty"`
	Steps  int           `json:"steps"`
	Last   string        `json:"checkpoint,omitempty"`
	Active []StepView    `json:"active,omitempty"`
}

func newActor(s *Service, d domain.Session, mode policy.Mode, checks []event.Check) *actor {
	return &actor{s: s, inbox: make(chan func()), changing: make(chan struct{}, 1), d: d, mode: mode, checks: checks, steps: map[domain.StepID]*Step{}}
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

// do runs f on the actor's loop and waits for it.
func (a *actor) do(ctx context.Context, f func()) error {
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
	return event.New{Stream: event.SessionStream(a.d.ID), Origin: domain.OriginHost, Actor: actor,
		ProjectID: a.d.ProjectID, SessionID: a.d.ID, StepID: step, Payload: p}
}

// append records events that must not be lost because a caller went away.
func (a *actor) append(ctx context.Context, events ...event.New) error {
	_, err := a.s.cfg.Log.Append(context.WithoutCancel(ctx), events...)
	return err
}

func (a *actor) view() View {
	v := View{Session: a.d, Mode: a.mode, Checks: a.checks, Turn: a.turn, Steps: a.number, Last: a.last}
	for _, st := range a.order {
		if !st.final() {
			v.Active = append(v.Active, st.view())
		}
	}
	return v
}

func (a *actor) setState(ctx context.Context, st domain.SessionState, reason string, actor domain.Actor) error {
	if a.d.State == st {
		return nil
	}
	if err := a.append(ctx, a.event(actor, "", &event.SessionState{State: st, Reason: reason})); err != nil {
		return err
	}
	a.d.State = st
	return nil
}

func (a *actor) startTurn(ctx context.Context, prompt string, actor domain.Actor) (domain.TurnID, error) {
	var id domain.TurnID
	var err error
	if derr := a.do(ctx, func() {
		if a.d.State == domain.SessionEnded {
			err = domain.E(domain.CodeConflict, "the session has ended", "start a new one", nil)
			return
		}
		if a.turn != "" {
			err = domain.E(domain.CodeConflict, "a turn is running in this session", "wait for its end or cancel it", nil)
			return
		}
		id = domain.TurnID(domain.NewID("t"))
		if err = a.append(ctx, a.event(actor, "", &event.TurnStarted{Turn: id, Prompt: prompt})); err == nil {
			a.turn = id
			err = a.setState(ctx, domain.SessionRunning, "", actor)
		}
	}); derr != nil {
		return "", derr
	}
	return id, err
}

func (a *actor) endTurn(ctx context.Context, turn domain.TurnID, result, reason string, actor domain.Actor) (event.TurnEnded, error) {
	var checks []event.Check
	var err error
	if derr := a.do(ctx, func() {
		if a.turn != turn || turn == "" {
			err = domain.E(domain.CodeConflict, "that turn is not running", "", nil)
			return
		}
		checks = a.checks
	}); derr != nil {
		return event.TurnEnded{}, derr
	}
	if err != nil {
		return event.TurnEnded{}, err
	}
	end := event.TurnEnded{Turn: turn, Result: result, Reason: reason}
	if result == "" || result == "ok" {
		end = a.runChecks(ctx, turn, checks)
	}
	derr := a.do(context.WithoutCancel(ctx), func() {
		if err = a.append(ctx, a.event(actor, "", &end)); err == nil {
			a.turn = ""
			err = a.setState(ctx, domain.SessionIdle, "", actor)
		}
	})
	return end, cmp.Or(derr, err)
}

// runChecks runs the declared checks; each is an ordinary step, visible like any other.
func (a *actor) runChecks(ctx context.Context, turn domain.TurnID, checks []event.Check) event.TurnEnded {
	end := event.TurnEnded{Turn: turn, Result: "ok"}
	if len(checks) == 0 {
		return event.TurnEnded{Turn: turn, Result: "unchecked", Reason: "no check is declared, so nothing says whether the result is right"}
	}
	for _, c := range checks {
		ran := a.runCheck(ctx, turn, c)
		if err := a.append(ctx, a.event("host", "", &ran)); err != nil {
			return event.TurnEnded{Turn: turn, Result: "failed", Reason: "a check's result could not be recorded: " + err.Error()}
		}
		if !ran.OK && end.Result == "ok" {
			end.Result, end.Reason = "failed", fmt.Sprintf("the check %q failed: %s", c.Name, ran.Reason)
		}
	}
	return end
}

func (a *actor) runCheck(ctx context.Context, turn domain.TurnID, c event.Check) event.CheckRan {
	ran := event.CheckRan{Name: c.Name}
	args := map[string]any{}
	if len(c.Argv) > 0 {
		args["argv"] = c.Argv
	} else {
		args["code"], args["lang"] = c.Code, "bash"
	}
	if c.TimeoutMS > 0 {
		args["timeout_ms"] = c.TimeoutMS
	}
	raw, err := json.Marshal(args)
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
	switch {
	case err != nil:
		ran.Reason = err.Error()
	case v.Ended == nil:
		ran.Reason = "it did not run: " + string(v.State)
	case v.Ended.Outcome != domain.OutcomeOK && v.Ended.Outcome != domain.OutcomeFailed:
		ran.Reason = string(v.Ended.Outcome) + ": " + v.Ended.Error
	case v.Ended.ExitCode == nil || *v.Ended.ExitCode != c.Exit:
		ran.Reason = fmt.Sprintf("it exited with %s, %d was declared", exitText(v.Ended), c.Exit)
	case c.Has != "" && !outputHas(v.Ended, c.Has):
		ran.Reason = fmt.Sprintf("its output does not hold %q", c.Has)
	default:
		ran.OK = true
	}
	return ran
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

func (a *actor) end(ctx context.Context, actor domain.Actor) error {
	var err error
	if derr := a.do(ctx, func() {
		if a.turn != "" {
			err = a.append(ctx, a.event(actor, "", &event.TurnEnded{Turn: a.turn, Result: "cancelled", Reason: "the session was ended"}))
			a.turn = ""
		}
		err = cmp.Or(err, a.setState(ctx, domain.SessionEnded, "", actor))
	}); derr != nil {
		return derr
	}
	if a.s.cfg.CloseBrowser != nil {
		a.s.cfg.CloseBrowser(a.d.ID)
	}
	return err
}

func sortSessions(s []domain.Session) {
	slices.SortFunc(s, func(x, y domain.Session) int {
		return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
}

// sealTimeout bounds a checkpoint; a large first one under emulation is slow.
const sealTimeout = 10 * time.Minute
