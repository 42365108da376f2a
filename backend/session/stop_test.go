package session

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/policy"
)

// callAs is a call by somebody else than the person.
func (b *bench) callAs(actor domain.Actor, s domain.SessionID, name string, args any) *Step {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	st, err := b.svc.Call(b.ctx(), s, CallRequest{Tool: name, Args: raw, Actor: actor})
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// Steps that are stopped for a reason end with it, those that run and those that would
// run next; what only looks, waits for a person, or is another's goes on.
func TestStopChanging(t *testing.T) {
	b := newBench(t)
	s, asks := b.session(), b.session()
	if err := b.svc.Change(b.ctx(), asks, Change{Mode: to(policy.ModeAsk)}, "person"); err != nil {
		t.Fatal(err)
	}
	running := b.callAs("agent:model", s, "exec", argv("wait", "never"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	queued := b.callAs("agent:model", s, "exec", argv("put", "f", "x"))
	persons := b.call(s, "exec", argv("put", "g", "y"))
	asking := b.callAs("agent:model", asks, "exec", argv("put", "h", "z"))
	b.wait(asking, domain.StepAsking)

	agents := func(a domain.Actor) bool { return a != "person" }
	if n := b.svc.StopChanging(b.ctx(), "there is no room", agents); n != 2 {
		t.Fatalf("%d steps were stopped", n)
	}
	if v := b.wait(running, domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeCancelled || v.Ended.Error != "there is no room" {
		t.Errorf("the one that ran: %+v", v.Ended)
	}
	if v := b.wait(queued, domain.StepSealed); v.State != domain.StepCancelled || v.Refused.Reason != "there is no room" {
		t.Errorf("the next one: %s %+v", v.State, v.Refused)
	}
	if v := b.wait(persons, domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("the person's: %+v", v)
	}
	if n := b.svc.StopChanging(b.ctx(), "again", agents); n != 0 {
		t.Errorf("%d steps were stopped twice", n)
	}
	b.answer(asks, "once", "")
	if v := b.wait(asking, domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("the one that waited for a person: %+v", v)
	}
	if !errors.Is(stopped{"x"}, ErrCancelled) {
		t.Error("it is no cancel to those who look for one")
	}
}

// While the computer refuses, changes are denied with its reason, whatever is allowed;
// looks are not, nor are those whom it lets.
func TestRefusedChanges(t *testing.T) {
	b := newBench(t)
	var refusing atomic.Bool
	b.svc.cfg.Refuse = func(a domain.Actor) string {
		if refusing.Load() && a != "person" {
			return "there is no room"
		}
		return ""
	}
	s := b.session()
	refusing.Store(true)
	v := b.wait(b.callAs("agent:model", s, "exec", argv("put", "f", "x")), domain.StepSealed)
	if v.State != domain.StepDenied || v.Decision.Rule != "computer" || !strings.Contains(v.Refused.Reason, "there is no room") || len(b.w.Started()) != 0 {
		t.Errorf("a change: %s %+v", v.State, v.Decision)
	}
	if v := b.wait(b.callAs("agent:model", s, "look", map[string]any{}), domain.StepEnded); v.State == domain.StepDenied {
		t.Errorf("a look: %+v", v.Decision)
	}
	if v := b.wait(b.call(s, "exec", argv("put", "f", "x")), domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("the person's change: %+v", v)
	}
	refusing.Store(false)
	if v := b.wait(b.callAs("agent:model", s, "exec", argv("put", "f", "y")), domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("a change when there is room: %+v", v)
	}
}
