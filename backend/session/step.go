package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// CallRequest is one tool call.
type CallRequest struct {
	Tool    string
	Args    json.RawMessage
	Turn    domain.TurnID
	Actor   domain.Actor // who wants it: "agent:playbook", "person", …
	Timeout time.Duration
}

// Step is one tool call under way or done. Its state is guarded by mu; the
// channels close as it passes their states, whatever way it took.
type Step struct {
	ID      domain.StepID
	a       *actor
	actor   domain.Actor
	turn    domain.TurnID
	p       tool.Prepared
	digest  string // what an answer is bound to
	grant   grantKey
	number  int
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc

	decided        chan struct{} // decided: running, asking or refused
	refusedOrEnded chan struct{}
	done           chan struct{} // refused, or sealed, or ended where nothing is sealed

	mu       sync.Mutex
	state    domain.StepState
	approval domain.ApprovalID
	ended    *event.StepEnded
	sealed   *event.StepSealed
	refused  *event.StepRefused
	decision event.StepDecided
}

// grantKey is what a remembered answer about a step would cover. ok is false
// where nothing exact can be said, so that nothing can be remembered.
type grantKey struct {
	match, text string
	ok          bool
}

// StepView is a step as it is now.
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

func (st *Step) final() bool {
	select {
	case <-st.done:
		return true
	default:
		return false
	}
}

// to moves the step along its table; a move outside it is a fault of ours.
func (st *Step) to(next domain.StepState) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !domain.CanStep(st.state, next) {
		panic(fmt.Sprintf("step %s: no way from %s to %s", st.ID, st.state, next))
	}
	st.state = next
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
	if c.Timeout < 0 || c.Timeout > 24*time.Hour {
		return nil, domain.E(domain.CodeInvalid, "a step's time limit lies between 0 and 24 hours", "", nil)
	}
	st := a.newStep(domain.StepID(domain.NewID("st")), p)
	st.actor, st.timeout = c.Actor, c.Timeout
	req := event.StepRequested{Turn: c.Turn, Tool: p.Tool.Name, Title: p.Title, Args: p.Args, Reach: p.Tool.Reach}
	if len(p.Args) > 32<<10 {
		b, err := a.s.cfg.Log.PutBlob(ctx, strings.NewReader(string(p.Args)), int64(len(p.Args)))
		if err != nil {
			return nil, err
		}
		b.Mime = "application/json"
		req.Args, req.ArgsBlob = json.RawMessage("{}"), &b
	}
	if derr := a.do(ctx, func() {
		if a.d.State == domain.SessionEnded {
			err = domain.E(domain.CodeConflict, "the session has ended", "start a new one", nil)
			return
		}
		act := p.Action
		act.Mode = a.mode
		d, version := a.s.cfg.Decide(a.d.ProjectID, act)
		st.digest = p.Digest(version)
		req.Digest = st.digest
		if d.Decision == domain.Ask {
			st.grant = grantOf(act, p.Args)
			if g, ok := a.s.cfg.Ledger.Match(approval.Query{Project: a.d.ProjectID, Session: a.d.ID, Match: st.grant.match}); ok && st.grant.ok {
				d.Decision, d.Rule, d.Reason = g.Rule.Decision, g.RuleName(), "remembered: "+g.Rule.Text
			}
		}
		if req.Turn == "" {
			req.Turn = a.turn
		}
		st.turn, req.Number = req.Turn, a.number+1
		st.decision = event.StepDecided{Decision: d.Decision, Rule: d.Rule, Reason: d.Reason}
		if err = a.append(ctx, a.event(c.Actor, st.ID, &req), a.event("policy", st.ID, &st.decision)); err != nil {
			return
		}
		a.number++
		st.number = a.number
		a.steps[st.ID] = st
		a.order = append(a.order, st)
		a.s.wg.Go(func() { st.run(d.WouldAllow) })
	}); derr != nil {
		return nil, derr
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

func grantOf(act policy.Action, args json.RawMessage) grantKey {
	match, text, ok := policy.GrantKey(act, args)
	return grantKey{match, text, ok}
}

// run takes the step from its decision to its end; it is the step's one goroutine.
func (st *Step) run(wouldAllow string) {
	switch st.decision.Decision {
	case domain.Deny:
		st.refuse(domain.StepDenied, st.decision.Reason, wouldAllow)
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
		Project: a.d.ProjectID, Session: a.d.ID, Step: st.ID, Actor: st.actor, Kind: "step", Title: st.p.Title,
		Detail: append(slices.Clone(st.p.Detail), event.Field{Name: "why this asks", Value: st.decision.Reason, Origin: domain.OriginHost}),
		Digest: st.digest, Expires: a.s.cfg.QuestionLife,
		Choices:  choices,
		FreeText: true,
	})
	if err != nil {
		st.refuse(domain.StepCancelled, "the question could not be put: "+err.Error(), "")
		return false
	}
	return st.await(ap.ID)
}

// await waits for the answer to a question that is open already.
func (st *Step) await(id domain.ApprovalID) bool {
	st.to(domain.StepAsking)
	st.mu.Lock()
	st.approval = id
	st.mu.Unlock()
	close(st.decided)
	out, err := st.a.s.cfg.Ledger.Wait(st.ctx, id)
	if errors.Is(context.Cause(st.ctx), errLeaving) {
		return false // the question stays; the next core waits on
	}
	switch {
	case err != nil && errors.Is(context.Cause(st.ctx), ErrCancelled):
		_, _ = st.a.s.cfg.Ledger.Close(context.WithoutCancel(st.ctx), id, approval.Cancelled)
		st.refuse(domain.StepCancelled, "cancelled before it was answered", "")
	case err != nil:
		st.refuse(domain.StepCancelled, "the question was lost: "+err.Error(), "")
	case out.State == approval.Expired:
		st.refuse(domain.StepExpired, "nobody answered in time; that is not a no", "ask again")
	case out.State != approval.Answered:
		st.refuse(domain.StepCancelled, "the question was closed: "+string(out.State), "")
	case out.Choice == "deny":
		reason := "the person said no"
		if out.Text != "" {
			reason += ": " + out.Text
		}
		st.refuse(domain.StepDenied, reason, "")
	default:
		return true
	}
	return false
}

// refuse ends a step that never ran.
func (st *Step) refuse(state domain.StepState, reason, allowed string) {
	r := &event.StepRefused{State: state, Reason: reason, Allowed: allowed}
	_ = st.a.append(st.ctx, st.a.event("host", st.ID, r))
	st.to(state)
	st.mu.Lock()
	st.refused = r
	st.mu.Unlock()
	closeOnce(st.decided)
	close(st.refusedOrEnded)
	close(st.done)
	st.cancel(nil)
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// execute runs the tool, records its end and seals the step.
func (st *Step) execute() {
	a := st.a
	if st.p.Tool.Changes {
		select {
		case a.changing <- struct{}{}:
			defer func() { <-a.changing }()
		case <-st.ctx.Done():
		}
	}
	if cause := context.Cause(st.ctx); cause != nil {
		if errors.Is(cause, ErrCancelled) {
			st.refuse(domain.StepCancelled, "cancelled before it ran", "")
		}
		return
	}
	// Started is recorded before anything runs: a crash between the two shows as
	// a step whose execution guestd does not know.
	if err := a.append(st.ctx, a.event("host", st.ID, &event.StepStarted{Exec: string(st.ID)})); err != nil {
		st.refuse(domain.StepCancelled, "its start could not be recorded: "+err.Error(), "")
		return
	}
	st.to(domain.StepRunning)
	closeOnce(st.decided)
	st.finish(st.p.Tool.Handler, "")
}

// finish runs a handler for a started step to its recorded end and seal.
func (st *Step) finish(h tool.Handler, source string) {
	a := st.a
	start := time.Now()
	var g guest.Guest
	var res tool.Result
	p, err := a.s.cfg.Project(a.d.ProjectID)
	if err == nil {
		g, err = a.s.cfg.Machines.Ensure(st.ctx, p)
	}
	if err != nil {
		res = tool.Result{Outcome: domain.OutcomeUnavailable, Error: err.Error()}
		if source != "" {
			res.Outcome = domain.OutcomeUnknown
		}
	} else {
		res, err = st.handle(h, g)
		if err != nil {
			res.Outcome, res.Error = domain.OutcomeFailed, err.Error()
		}
	}
	cause := context.Cause(st.ctx)
	if errors.Is(cause, errLeaving) {
		return // still running in the guest; the next core learns its end
	}
	if errors.Is(cause, ErrCancelled) && res.Outcome != domain.OutcomeOK {
		res.Outcome = domain.OutcomeCancelled
		if res.Error == "" || strings.Contains(res.Error, "context canceled") {
			res.Error = "cancelled"
		}
	}
	if res.Outcome == "" {
		res.Outcome = domain.OutcomeOK
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
	e := a.event("host", st.ID, end)
	e.Origin = domain.OriginGuest
	if err := a.append(st.ctx, e); err != nil {
		end.Result = nil
		end.Error = clip("the step's answer could not be recorded: "+err.Error(), 4000)
		_ = a.append(st.ctx, a.event("host", st.ID, end))
	}
	st.to(domain.StepEnded)
	st.mu.Lock()
	st.ended = end
	st.mu.Unlock()
	close(st.refusedOrEnded)
	st.seal(g)
	close(st.done)
	st.cancel(nil)
}

// handle calls the tool and turns a panic of ours into a failed step.
func (st *Step) handle(h tool.Handler, g guest.Guest) (res tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the tool failed inside Glasshouse: %v", r)
		}
	}()
	a := st.a
	ctx := st.ctx
	call := tool.Call{Project: a.d.ProjectID, Session: a.d.ID, Step: st.ID, Turn: st.turn, Args: st.p.Args, Guest: g, Blobs: a.s.cfg.Log,
		Asker: asker{st}, Timeout: st.timeout, Output: func(o event.StepOutput) {
			e := a.event("host", st.ID, &o)
			e.Origin = domain.OriginGuest
			_ = a.s.cfg.Log.Publish(e)
		}}
	if a.s.cfg.Browser != nil {
		call.Browser = a.s.cfg.Browser(a.d, g)
	}
	return h(ctx, call)
}

// seal takes the checkpoint after a changing step.
func (st *Step) seal(g guest.Guest) {
	a := st.a
	if !st.p.Tool.Changes {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(st.ctx), sealTimeout)
	defer cancel()
	// A core that goes does not wait for a seal: the next one takes it.
	stop := context.AfterFunc(a.s.ctx, cancel)
	defer stop()
	sealed := &event.StepSealed{}
	switch {
	case g == nil:
		sealed.Failed = "the machine was not there"
	default:
		cp, err := g.Checkpoints().Take(ctx, guest.CheckpointRequest{Session: string(a.d.ID), Step: string(st.ID)})
		if err != nil {
			if a.s.ctx.Err() != nil {
				return
			}
			sealed.Failed = clip(err.Error(), 2000)
			break
		}
		sealed = sealedEvent(cp)
	}
	e := a.event("host", st.ID, sealed)
	e.Origin = domain.OriginGuest
	if err := a.append(ctx, e); err != nil {
		sealed = &event.StepSealed{Commit: sealed.Commit, Tree: sealed.Tree, Sum: sealed.Sum, More: true, Failed: clip(err.Error(), 2000)}
		_ = a.append(ctx, a.event("host", st.ID, sealed))
	}
	st.to(domain.StepSealed)
	st.mu.Lock()
	st.sealed = sealed
	st.mu.Unlock()
	if sealed.Commit != "" {
		_ = a.do(ctx, func() { a.last = sealed.Commit })
	}
	// The outcome and the checkpoint are safe on the host: guestd may forget.
	if g != nil {
		_ = g.Execs().Forget(ctx, string(st.ID))
	}
}

func sealedEvent(cp guest.Checkpoint) *event.StepSealed {
	s := &event.StepSealed{Commit: cp.Commit, Tree: cp.Tree, Same: cp.Same, More: cp.More, Ignored: cp.Ignored, Sum: cp.Sum}
	size := 0
	for _, c := range cp.Changes {
		// The payload stays under the log's limit; the rest is asked for by diff.
		if size += len(c.Path) + len(c.OldPath) + 120; size > 40<<10 {
			s.More = true
			break
		}
		s.Changes = append(s.Changes, event.FileChange{Path: text(c.Path), OldPath: text(c.OldPath), Op: c.Op, OldMode: c.OldMode, NewMode: c.NewMode, Added: c.Added, Deleted: c.Deleted, Binary: c.Binary})
	}
	for i, p := range cp.NotCaptured {
		if i == 20 {
			break
		}
		s.NotCaptured = append(s.NotCaptured, text(p))
	}
	return s
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

func outputHas(e *event.StepEnded, want string) bool {
	for _, o := range []*event.OutputStream{e.Stdout, e.Stderr} {
		if o != nil && (strings.Contains(o.Head, want) || strings.Contains(o.Tail, want)) {
			return true
		}
	}
	return false
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
	ap, err := st.a.s.cfg.Ledger.Ask(ctx, approval.Request{Project: st.a.d.ProjectID, Session: st.a.d.ID, Step: st.ID, Actor: st.actor,
		Kind: "question", Title: clip(in.Text, 2000), Digest: st.digest, Choices: choices, FreeText: in.FreeText || len(in.Options) == 0, Expires: st.a.s.cfg.QuestionLife})
	if err != nil {
		return tool.Reply{}, err
	}
	out, err := st.a.s.cfg.Ledger.Wait(ctx, ap.ID)
	if err != nil {
		if errors.Is(context.Cause(st.ctx), ErrCancelled) {
			_, _ = st.a.s.cfg.Ledger.Close(context.WithoutCancel(ctx), ap.ID, approval.Cancelled)
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
