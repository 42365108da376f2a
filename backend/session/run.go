package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// run takes the step from its decision to its end; it is the step's one goroutine.
func (st *Step) run() {
	switch st.decision.Decision {
	case domain.Deny:
		st.refuse(domain.StepDenied, st.decision.Reason, st.decision.WouldAllow)
		return
	case domain.Ask:
		if !st.ask() {
			return
		}
	}
	st.execute()
}

// ask puts the step's question and waits; it reports whether the step may run.
func (st *Step) ask() bool {
	a := st.a
	choices := []event.Choice{{ID: "once", Label: "Allow once"}}
	if st.grant.ok {
		for _, scope := range []string{"session", "project"} {
			choices = append(choices, event.Choice{ID: scope, Label: "Allow in this " + scope, Covers: st.grant.text + ", in this " + scope,
				Grant: &event.Grant{Kind: "tool", Scope: scope, Match: st.grant.match, Decision: domain.Allow}})
		}
	}
	choices = append(choices, event.Choice{ID: "deny", Label: "Deny"})
	ap, err := a.s.cfg.Ledger.Ask(st.ctx, approval.Request{
		Project: a.who.ProjectID, Session: a.who.ID, Step: st.ID, Actor: st.actor, Kind: "step", Title: st.p.Title,
		Detail: append(slices.Clone(st.p.Detail), event.Field{Name: "why this asks", Value: st.decision.Reason, Origin: domain.OriginHost}),
		Digest: st.digest, Expires: a.s.cfg.questionLife(),
		Choices:  choices,
		FreeText: true,
	})
	if err != nil {
		switch cause := context.Cause(st.ctx); {
		case errors.Is(cause, errLeaving):
		case errors.Is(cause, ErrCancelled):
			st.refuse(domain.StepCancelled, "cancelled before it was asked about", "")
		default:
			st.refuse(domain.StepCancelled, "the question could not be put: "+err.Error(), "")
		}
		return false
	}
	return st.await(ap.ID)
}

// await waits for the answer to a question that is open.
func (st *Step) await(id domain.ApprovalID) bool {
	st.to(domain.StepAsking, 0, func() { st.approval = id })
	closeOnce(st.decided)
	out, err := st.a.s.cfg.Ledger.Wait(st.ctx, id)
	if errors.Is(context.Cause(st.ctx), errLeaving) {
		return false // the question stays; the next core waits on
	}
	if err != nil {
		if !errors.Is(context.Cause(st.ctx), ErrCancelled) {
			st.refuse(domain.StepCancelled, "the question was lost: "+err.Error(), "")
			return false
		}
		if !st.closeQuestion(id) {
			return false
		}
		st.refuse(domain.StepCancelled, "cancelled before it was answered", "")
		return false
	}
	return st.answered(out)
}

// answered says whether an answer lets the step run, and ends the step if not.
func (st *Step) answered(out approval.Outcome) bool {
	switch {
	case out.State == approval.Expired:
		st.refuse(domain.StepExpired, "nobody answered in time; that is not a no", "ask again")
	case out.State != approval.Answered:
		st.refuse(domain.StepCancelled, "the question was closed: "+string(out.State), "")
	case out.Choice == "once", out.Choice == "session", out.Choice == "project":
		return true
	default:
		// A text alone is no yes.
		reason := "the person said no"
		if out.Choice != "deny" {
			reason = "the person did not allow it"
		}
		if out.Text != "" {
			reason += ": " + out.Text
		}
		st.refuse(domain.StepDenied, reason, "")
	}
	return false
}

// closeQuestion closes one of the step's questions as cancelled; one that has ended
// keeps its end. It reports false when the core went before it could be recorded.
func (st *Step) closeQuestion(id domain.ApprovalID) bool {
	for delay := recordFirst; ; delay = min(2*delay, recordMost) {
		_, err := st.a.s.cfg.Ledger.Close(context.WithoutCancel(st.ctx), id, approval.Cancelled)
		switch code := domain.CodeOf(err); {
		case err == nil, code == domain.CodeConflict, code == domain.CodeNotFound:
			return true
		case !later(err):
			return false
		}
		select {
		case <-time.After(delay):
		case <-st.a.s.ctx.Done():
			return false
		}
	}
}

// refuse ends a step that never ran.
func (st *Step) refuse(state domain.StepState, reason, allowed string) {
	r := &event.StepRefused{State: state, Reason: clip(reason, 12000), Allowed: clip(allowed, 2000)}
	id, err := st.a.s.record(st.ctx, st.a.event("host", st.ID, r))
	if err != nil {
		return // the core goes; the next one refuses it
	}
	st.to(state, id, func() { st.refused = r })
	closeOnce(st.decided)
	close(st.refusedOrEnded)
	st.finished()
}

// execute runs the tool, records its end and seals the step.
func (st *Step) execute() {
	a := st.a
	for {
		if st.p.Tool.Changes {
			if st.place == nil {
				st.place = a.changing.enter()
			}
			defer st.place.leave()
			if !st.place.isFirst() {
				closeOnce(st.decided)
			}
			st.place.wait(st.ctx)
			defer st.space().leave(st)
			if other := st.occupy(); other != nil {
				st.refuse(domain.StepCancelled, other.Error()+"; nothing was done", "call it again when that has ended")
				return
			}
		}
		d, changed := st.rejudge()
		if !changed {
			break
		}
		if _, err := a.s.record(st.ctx, a.event("policy", st.ID, &d)); err != nil {
			return
		}
		if st.place != nil {
			st.space().leave(st)
			st.place.leave() // nobody waits for a person's answer to this
			st.place = nil
		}
		if d.Decision == domain.Deny {
			st.refuse(domain.StepDenied, d.Reason, d.WouldAllow)
			return
		}
		if !st.ask() {
			return
		}
	}
	if cause := context.Cause(st.ctx); cause != nil {
		if errors.Is(cause, ErrCancelled) {
			st.refuse(domain.StepCancelled, st.because("cancelled before it ran"), "")
		}
		return
	}
	// Started is recorded before anything runs: a crash between the two shows as
	// a step whose execution guestd does not know.
	id, err := a.s.record(st.ctx, a.event("host", st.ID, &event.StepStarted{Exec: string(st.ID)}))
	if err != nil {
		return // the core goes and nothing ran
	}
	st.to(domain.StepRunning, id, nil)
	closeOnce(st.decided)
	st.finish(st.p.Tool.Handler, "")
}

// rejudge judges a step again that is about to run, where the session's mode is no
// longer the one it was judged in. It reports what holds now when that is stricter than
// what let it come this far.
func (st *Step) rejudge() (event.StepDecided, bool) {
	var d policy.Decision
	same := true
	if st.ctx.Err() != nil || st.a.do(st.ctx, func() {
		if same = st.a.mode == st.mode; !same {
			d, _ = st.a.decide(st)
		}
	}) != nil || same {
		return event.StepDecided{}, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if d.Decision == domain.Allow || d.Decision == domain.Ask && st.approval != "" {
		return event.StepDecided{}, false // or a person has allowed exactly this
	}
	st.decision = event.StepDecided{Decision: d.Decision, Rule: d.Rule, Reason: d.Reason + " (The mode was changed before this ran.)", WouldAllow: d.WouldAllow}
	return st.decision, true
}

// finish runs a handler for a started step to its recorded end and seal.
func (st *Step) finish(h tool.Handler, source string) {
	a := st.a
	start := time.Now()
	res, g := st.perform(h, source)
	if a.s.ctx.Err() != nil && (res.Outcome != domain.OutcomeOK && res.Exec == nil) {
		return // what runs in the guest goes on; the next core learns its end
	}
	if res.Outcome == domain.OutcomeCancelled {
		res.Error = st.because(res.Error)
	}
	end := &event.StepEnded{Outcome: res.Outcome, Error: clip(res.Error, 4000), DurationMS: time.Since(start).Milliseconds(),
		Result: res.JSON, Artefacts: res.Artefacts, Source: source}
	if x := res.Exec; x != nil {
		end.ExitCode, end.Signal, end.CPUMS, end.MaxRSSKiB = x.ExitCode, x.Signal, x.CPUMS, x.MaxRSSKiB
		end.Stdout, end.Stderr, end.Background = x.Stdout, x.Stderr, x.Background
		if x.DurationMS > 0 {
			end.DurationMS = x.DurationMS
		}
	}
	id, end, err := st.recordEnd(end, g, st.told(end)...)
	if err != nil {
		return
	}
	// A question that the call put and that nobody waits for any more.
	for _, ap := range a.s.cfg.Ledger.Pending(approval.Scope{Session: a.who.ID, Step: st.ID}) {
		if ap.Asked.Kind == "question" && !st.closeQuestion(ap.ID) {
			return
		}
	}
	if !st.over() {
		st.end(id, end)
	}
	if st.p.Tool.Changes && !st.seal(g, "the machine was not there") {
		return // the core went before the seal; the next one takes it
	}
	st.finished()
}

// end shows the step as ended; its end is recorded.
func (st *Step) end(id int64, end *event.StepEnded) {
	st.to(domain.StepEnded, id, func() { st.ended = end })
	close(st.refusedOrEnded)
}

// recordEnd records how a step ended, in ever fewer words where the whole does not
// fit: the outcome itself is never lost for the size of an answer.
func (st *Step) recordEnd(end *event.StepEnded, g guest.Guest, with ...event.New) (int64, *event.StepEnded, error) {
	var id int64
	var err error
	for i := range 3 {
		switch i {
		case 1:
			end = shrunk(end, err)
		case 2:
			end = bare(end, err)
		}
		e := st.a.event("host", st.ID, end)
		if g != nil {
			e.Origin = domain.OriginGuest // else it never got there: that is ours to say
		}
		if id, err = st.endWithTurn(append(slices.Clone(with), e), end); err == nil {
			break
		}
		if id, err = st.a.s.record(st.ctx, append(slices.Clone(with), e)...); err == nil || later(err) {
			break
		}
	}
	return id, end, err
}

// perform finds the guest and calls the tool; the result's outcome is always set.
func (st *Step) perform(h tool.Handler, source string) (tool.Result, guest.Guest) {
	a := st.a
	var g guest.Guest
	p, err := a.s.cfg.Project(a.who.ProjectID)
	if err == nil {
		g, err = a.s.cfg.Machines.Ensure(st.ctx, p)
	}
	if err != nil {
		res := tool.Result{Outcome: domain.OutcomeUnavailable, Error: err.Error()}
		cancelled := errors.Is(context.Cause(st.ctx), ErrCancelled)
		switch {
		case source != "":
			// It was started by an earlier core, and nobody can say how it ended. It
			// may still run, and was cancelled before it could be joined.
			res.Outcome = domain.OutcomeUnknown
			if g, on := a.s.cfg.Machines.Running(a.who.ProjectID); cancelled && on && st.kill(g) == nil {
				return tool.Result{Outcome: domain.OutcomeCancelled, Error: "cancelled"}, g
			}
		case cancelled:
			res.Outcome, res.Error = domain.OutcomeCancelled, "cancelled before the machine was there; nothing ran"
		}
		return res, nil
	}
	res, err := st.handle(h, g)
	if err != nil {
		res.Outcome, res.Error = domain.OutcomeFailed, err.Error()
	}
	if res.Outcome == "" {
		res.Outcome = domain.OutcomeOK
	}
	if errors.Is(context.Cause(st.ctx), ErrCancelled) && res.Outcome == domain.OutcomeFailed && res.Exec == nil {
		// The cancel cut the call short. What it may have started must not run on.
		// Every other outcome is what really happened and stays.
		res.Outcome = domain.OutcomeCancelled
		if err := st.kill(g); err != nil {
			res.Outcome = domain.OutcomeUnknown
			res.Error = "cancelled, but the machine does not say that the command ended: " + err.Error()
		} else if res.Error == "" || strings.Contains(res.Error, "context canceled") {
			res.Error = "cancelled"
		}
	}
	return res, g
}

// kill ends the step's execution in the guest, if there is one.
func (st *Step) kill(g guest.Guest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(st.ctx), 15*time.Second)
	defer cancel()
	defer context.AfterFunc(st.a.s.ctx, cancel)()
	err := g.Execs().Kill(ctx, string(st.ID), 2*time.Second)
	if errors.Is(err, guest.ErrNoExec) {
		return nil
	}
	return err
}

// handle calls the tool and turns a panic of ours into a failed step.
func (st *Step) handle(h tool.Handler, g guest.Guest) (res tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			res, err = tool.Result{}, fmt.Errorf("the tool failed inside Glasshouse: %v", r)
		}
	}()
	a := st.a
	call := tool.Call{Project: a.who.ProjectID, Session: a.who.ID, Step: st.ID, Turn: st.turn, Args: st.p.Args, Guest: g, Blobs: a.s.cfg.Log,
		Asker: asker{st}, Timeout: st.timeout, Output: func(o event.StepOutput) {
			e := a.event("host", st.ID, &o)
			e.Origin = domain.OriginGuest
			_ = a.s.cfg.Log.Publish(e)
		}}
	if repair := a.s.cfg.Repair; repair != nil {
		call.Repair = func(ctx context.Context) (bool, error) {
			p, err := a.s.cfg.Project(a.who.ProjectID)
			if err != nil {
				return false, err
			}
			return repair(ctx, p, g)
		}
	}
	if a.s.cfg.Browser != nil {
		call.Browser = a.s.cfg.Browser(a.who, g)
	}
	return h(st.ctx, call)
}

// asker lets the ask_user tool put a question on the step.
type asker struct{ st *Step }

func (q asker) AskUser(ctx context.Context, in tool.Question) (tool.Reply, error) {
	st := q.st
	var choices []event.Choice
	for i, o := range in.Options {
		choices = append(choices, event.Choice{ID: fmt.Sprintf("option-%d", i+1), Label: o})
	}
	if len(choices) == 0 {
		choices = []event.Choice{{ID: "reply", Label: "Reply"}}
	}
	// A question that an earlier core put is waited for, not put again.
	id := st.asked
	st.asked = ""
	if id == "" {
		ap, err := st.a.s.cfg.Ledger.Ask(ctx, approval.Request{Project: st.a.who.ProjectID, Session: st.a.who.ID, Step: st.ID, Actor: st.actor,
			Kind: "question", Title: clip(in.Text, 2000), Digest: st.digest, Choices: choices, FreeText: in.FreeText || len(in.Options) == 0, Expires: st.a.s.cfg.questionLife()})
		if err != nil {
			return tool.Reply{}, err
		}
		id = ap.ID
	}
	out, err := st.a.s.cfg.Ledger.Wait(ctx, id)
	if err != nil {
		if errors.Is(context.Cause(st.ctx), ErrCancelled) {
			st.closeQuestion(id)
		}
		return tool.Reply{State: "cancelled"}, err
	}
	r := tool.Reply{State: string(out.State), Text: out.Text}
	for _, c := range choices {
		if c.ID == out.Choice && out.Choice != "reply" {
			r.Option = c.Label
		}
	}
	return r, nil
}
