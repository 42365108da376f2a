package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
)

func to[T any](v T) *T { return &v }

// A mode that became stricter holds for what was allowed and has not run yet; one that
// became looser frees nothing that was asked about.
func TestModeChangesUnderQueuedSteps(t *testing.T) {
	b := newBench(t)
	s := b.session()
	first := b.call(s, "exec", argv("wait", "first"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	planned, asked := b.call(s, "exec", argv("put", "a", "x")), b.call(s, "exec", argv("put", "b", "x"))
	if err := b.svc.Change(b.ctx(), s, Change{Mode: to(policy.ModeAsk)}, "person"); err != nil {
		t.Fatal(err)
	}
	close(b.gate("first"))
	b.wait(first, domain.StepSealed)
	b.until("both to ask", func() bool { return len(b.ledger.Pending(approval.Scope{Session: s})) == 2 })
	q := b.ledger.Pending(approval.Scope{Session: s})
	i := slices.IndexFunc(q, func(a approval.Approval) bool { return a.Step == asked.ID })
	if _, err := b.ledger.Answer(b.ctx(), q[i].ID, q[i].Asked.Digest, "once", "", "person"); err != nil {
		t.Fatal(err)
	}
	if v := b.wait(asked, domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("what the person allowed: %+v", v)
	}
	// Its question is there a moment before it says that it asks.
	b.until("the other to ask", func() bool { return planned.View().State == domain.StepAsking })
	if v := planned.View(); v.Decision.Decision != domain.Ask || !strings.Contains(v.Decision.Reason, "mode was changed") {
		t.Errorf("%+v", v)
	}
	// To plan, while it asks: a yes does not carry it past the mode.
	if err := b.svc.Change(b.ctx(), s, Change{Mode: to(policy.ModePlan)}, "person"); err != nil {
		t.Fatal(err)
	}
	q = b.ledger.Pending(approval.Scope{Session: s})
	if _, err := b.ledger.Answer(b.ctx(), q[0].ID, q[0].Asked.Digest, "once", "", "person"); err != nil {
		t.Fatal(err)
	}
	if v := b.wait(planned, domain.StepSealed); v.State != domain.StepDenied || v.Refused.Allowed == "" {
		t.Errorf("%+v %+v", v, v.Refused)
	}
	// The slot is free, and a looser mode lets the next one run.
	if err := b.svc.Change(b.ctx(), s, Change{Mode: to(policy.ModeFull)}, "person"); err != nil {
		t.Fatal(err)
	}
	if v := b.wait(b.call(s, "exec", argv("put", "c", "x")), domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("%+v", v)
	}
}

// What was changed is kept, says so once, and outlives the core.
func TestChangesAreKept(t *testing.T) {
	b := newBench(t)
	s := b.session()
	c := Change{Mode: to(policy.ModePlan), Model: to("small"), Nanos: to(int64(2e9)), Tokens: to(int64(5000))}
	for range 2 {
		if err := b.svc.Change(b.ctx(), s, c, "person"); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(b.events(s, ""), "session.changed"); n != 1 {
		t.Errorf("%d changes", n)
	}
	for _, bad := range []Change{{Mode: to(policy.Mode("yolo"))}, {Model: to(strings.Repeat("x", 41))}, {Nanos: to(int64(-1))}, {Tokens: to(int64(-1))}} {
		var e *domain.Error
		if err := b.svc.Change(b.ctx(), s, bad, "person"); !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer == "" || e.Hint == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	b.restart(nil)
	if v := b.view(s); v.Mode != policy.ModePlan || v.Model != "small" || v.Limits != (Limits{2e9, 5000}) {
		t.Errorf("%+v", v)
	}
	if err := b.svc.End(b.ctx(), s, "person"); err != nil {
		t.Fatal(err)
	}
	if err := b.svc.Change(b.ctx(), s, Change{Mode: to(policy.ModeAuto)}, "person"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("an ended session: %v", err)
	}
}

// A turn whose agent keeps its conversation in the log stays open over a restart; how
// often it was taken up without an answer is counted.
func TestTurnIsLeftToItsAgent(t *testing.T) {
	b := newBench(t)
	b.resumes = func(agent string) bool { return agent == "model" }
	s, other := b.session(), b.session()
	turn, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "work", Agent: "model", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.svc.StartTurn(b.ctx(), other, TurnRequest{Agent: "playbook", Actor: "person"}); err != nil {
		t.Fatal(err)
	}
	asks := make(chan error, 1)
	go func() {
		_, err := b.svc.Ask(b.ctx(), s, approval.Request{Kind: "limit", Title: "Go on?", Digest: "d", Choices: []event.Choice{{ID: "go_on", Label: "Go on"}}, Actor: "agent:model"})
		asks <- err
	}()
	b.until("the question", func() bool { return len(b.ledger.Pending(approval.Scope{Session: s})) == 1 })
	for tries := range 3 {
		b.restart(nil)
		got := b.svc.Interrupted(b.ctx())
		if len(got) != 1 || got[0] != (OpenTurn{s, turn, "model", "work", tries}) {
			t.Fatalf("%+v", got)
		}
		if v := b.view(s); v.State != domain.SessionRunning || v.Turn != turn {
			t.Errorf("%+v", v)
		}
		if v := b.view(other); v.State != domain.SessionIdle || v.Turn != "" {
			t.Errorf("%+v", v)
		}
		if err := b.svc.Record(b.ctx(), s, "host", &event.TurnResumed{Turn: turn}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-asks; err == nil {
		t.Error("the first core's wait ended with an answer")
	}
	if err := b.svc.Record(b.ctx(), s, "agent:model", &event.ModelAnswered{Turn: turn, Answer: "a_1"}); err != nil {
		t.Fatal(err)
	}
	b.restart(nil)
	if got := b.svc.Interrupted(b.ctx()); len(got) != 1 || got[0].Tries != 0 {
		t.Errorf("after an answer: %+v", got)
	}
	// The question waited all the time: asked again it is the same one.
	waits := &noticed{Context: b.ctx(), told: make(chan struct{})}
	go func() {
		_, err := b.svc.Ask(waits, s, approval.Request{Kind: "limit", Title: "Go on? Now with other figures.", Digest: "d", Choices: []event.Choice{{ID: "go_on", Label: "Go on"}}, Actor: "agent:model"})
		asks <- err
	}()
	<-waits.told // before that it would find the question answered, and put another one
	q := b.ledger.Pending(approval.Scope{Session: s})
	if len(q) != 1 {
		t.Fatalf("%+v", q)
	}
	if _, err := b.ledger.Answer(b.ctx(), q[0].ID, "d", "go_on", "", "person"); err != nil {
		t.Fatal(err)
	}
	if err := <-asks; err != nil {
		t.Error(err)
	}
	if n := count(b.events(s, ""), "approval.requested"); n != 1 {
		t.Errorf("%d questions", n)
	}
	if _, err := b.svc.EndTurn(b.ctx(), s, turn, "", "", "agent:model"); err != nil {
		t.Fatal(err)
	}
	b.restart(nil)
	if got := b.svc.Interrupted(b.ctx()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// noticed is a context that tells when it is waited for first.
type noticed struct {
	context.Context
	once sync.Once
	told chan struct{}
}

func (n *noticed) Done() <-chan struct{} {
	n.once.Do(func() { close(n.told) })
	return n.Context.Done()
}

// What an agent asked ends with its turn, as cancelled: never as an answer.
func TestAgentsQuestionEndsWithItsTurn(t *testing.T) {
	b := newBench(t)
	s := b.session()
	turn, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "work", Agent: "model", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(b.ctx())
	asks := make(chan error, 1)
	ask := func(ctx context.Context, kind string) {
		_, err := b.svc.Ask(ctx, s, approval.Request{Kind: kind, Title: "Go on?", Digest: "d" + kind, Choices: []event.Choice{{ID: "go_on", Label: "Go on"}}, Actor: "agent:model"})
		asks <- err
	}
	go ask(ctx, "loop")
	b.until("the question", func() bool { return len(b.ledger.Pending(approval.Scope{Session: s})) == 1 })
	cancel(ErrCancelled)
	if err := <-asks; !errors.Is(err, ErrCancelled) {
		t.Errorf("%v", err)
	}
	if q := b.ledger.Pending(approval.Scope{Session: s}); len(q) != 0 {
		t.Errorf("it stays: %+v", q)
	}
	go ask(b.ctx(), "limit")
	b.until("the question", func() bool { return len(b.ledger.Pending(approval.Scope{Session: s})) == 1 })
	if _, err := b.svc.EndTurn(b.ctx(), s, turn, "failed", "x", "agent:model"); err != nil {
		t.Fatal(err)
	}
	if err := <-asks; err != nil {
		t.Errorf("%v", err)
	}
	if evs := b.events(s, ""); count(evs, "approval.closed") != 2 || has(evs, "approval.answered") {
		t.Errorf("%v", evs)
	}
}

// What is said fits into the log in any language, and what does not is refused in words
// of who wrote it, with nothing recorded.
func TestHowMuchMayBeSaid(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		text string
		fits bool
	}{
		{strings.Repeat("ü", 30_000), true},
		{strings.Repeat("語", 20_000), true},
		{strings.Repeat("a <b> & c\n", 3_200), true},
		{strings.Repeat("ü", 32_768), false},
		{strings.Repeat("\U0001F600", 32_768), false},
		{strings.Repeat(`"`, 32_768), false},
		{strings.Repeat("\x01", 32_768), false},
	} {
		s := b.session()
		before := len(b.events(s, ""))
		_, perr := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: c.text, Agent: "model", Actor: "person"})
		merr := b.svc.Say(b.ctx(), s, "", "person", c.text, "person", domain.OriginHost)
		for _, err := range []error{perr, merr} {
			if c.fits {
				if err != nil {
					t.Errorf("%.4q: %v", c.text, err)
				}
				continue
			}
			var e *domain.Error
			if !errors.As(err, &e) || e.Code != domain.CodeTooLarge || e.Pointer == "" || !strings.Contains(e.Hint, "file of the project") || strings.Contains(e.Error(), "payload") {
				t.Errorf("%.4q: %v", c.text, err)
			}
		}
		if n := len(b.events(s, "")); !c.fits && n != before {
			t.Errorf("%d events became %d", before, n)
		}
	}
}

// What is said in a session that has ended reaches nobody, and says so.
func TestAnEndedSessionTakesNoMessages(t *testing.T) {
	b := newBench(t)
	s := b.session()
	if err := b.svc.End(b.ctx(), s, "person"); err != nil {
		t.Fatal(err)
	}
	if err := b.svc.Say(b.ctx(), s, "", "person", "hello?", "person", domain.OriginHost); domain.CodeOf(err) != domain.CodeConflict {
		t.Error(err)
	}
	if evs := b.events(s, ""); has(evs, "message") {
		t.Errorf("%v", evs)
	}
}
