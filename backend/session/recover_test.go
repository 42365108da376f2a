package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/secret"
	"glasshouse/vm/guest"
)

// TestRecoverMatrix kills the core right after each single event of a step's life
// was stored, with the machine as it is, off, or gone when the next core comes, and
// says exactly what has to become of the step.
func TestRecoverMatrix(t *testing.T) {
	type want struct {
		state   domain.StepState
		outcome domain.Outcome
		seal    bool // a checkpoint; else a recorded reason why there is none
	}
	sealed := func(o domain.Outcome) want { return want{domain.StepSealed, o, true} }
	unsealed := func(o domain.Outcome) want { return want{domain.StepSealed, o, false} }
	only := func(s domain.StepState) want { return want{state: s} }
	same := func(w want) map[string]want { return map[string]want{"on": w, "off": w, "gone": w} }
	const ok, unknown = domain.OutcomeOK, domain.OutcomeUnknown
	for _, tc := range []struct {
		name   string
		after  event.Type
		mode   policy.Mode
		tool   string
		args   any
		answer string // given before the crash
		close  bool   // the question is closed before the crash
		deny   bool   // the policy denies
		later  string // answer given to the next core
		want   map[string]want
	}{
		{name: "decided to be allowed", after: "step.decided", tool: "exec", args: argv("echo", "a"), want: same(only(domain.StepCancelled))},
		{name: "decided to be denied", after: "step.decided", tool: "exec", args: argv("echo", "a"), deny: true, want: same(only(domain.StepDenied))},
		{name: "refused", after: "step.refused", tool: "exec", args: argv("echo", "a"), deny: true, want: same(only(domain.StepDenied))},
		{name: "asked, then allowed", after: "approval.requested", mode: policy.ModeAsk, tool: "exec", args: argv("echo", "a"), later: "once",
			want: map[string]want{"on": sealed(ok), "off": sealed(ok), "gone": unsealed(domain.OutcomeUnavailable)}},
		{name: "asked, then denied", after: "approval.requested", mode: policy.ModeAsk, tool: "exec", args: argv("echo", "a"), later: "deny", want: same(only(domain.StepDenied))},
		{name: "asked, not answered", after: "approval.requested", mode: policy.ModeAsk, tool: "exec", args: argv("echo", "a"), want: same(only(domain.StepAsking))},
		{name: "answered with yes", after: "approval.answered", mode: policy.ModeAsk, tool: "exec", args: argv("echo", "a"), answer: "once", want: same(only(domain.StepCancelled))},
		{name: "answered with no", after: "approval.answered", mode: policy.ModeAsk, tool: "exec", args: argv("echo", "a"), answer: "deny", want: same(only(domain.StepDenied))},
		{name: "closed", after: "approval.closed", mode: policy.ModeAsk, tool: "exec", args: argv("echo", "a"), close: true, want: same(only(domain.StepCancelled))},
		{name: "started, ended meanwhile", after: "step.started", tool: "exec", args: argv("put", "f", "x"),
			want: map[string]want{"on": sealed(ok), "off": sealed(ok), "gone": unsealed(unknown)}},
		{name: "started, goes on", after: "step.started", tool: "exec", args: argv("wait", "end"),
			want: map[string]want{"on": sealed(ok), "off": sealed(unknown), "gone": unsealed(unknown)}},
		{name: "started, cannot be joined, changes nothing", after: "step.started", tool: "look", args: map[string]any{}, want: same(want{domain.StepEnded, unknown, false})},
		{name: "started, cannot be joined", after: "step.started", tool: "hold", args: map[string]any{"say": "put"},
			want: map[string]want{"on": sealed(unknown), "off": sealed(unknown), "gone": unsealed(unknown)}},
		{name: "ended", after: "step.ended", tool: "exec", args: argv("put", "f", "x"), want: map[string]want{"on": sealed(ok), "off": sealed(ok), "gone": unsealed(ok)}},
		{name: "ended, changes nothing", after: "step.ended", tool: "look", args: map[string]any{}, want: same(want{domain.StepEnded, ok, false})},
		{name: "sealed", after: "step.sealed", tool: "exec", args: argv("put", "f", "x"), want: same(sealed(ok))},
	} {
		for machine, want := range tc.want {
			t.Run(fmt.Sprintf("%s, machine %s", tc.name, machine), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.mode, b.deny = tc.mode, tc.deny
				s := b.session()
				if _, err := b.w.Open().Checkpoints().Take(b.ctx(), guest.CheckpointRequest{Full: true}); err != nil {
					t.Fatal(err) // the import's, as every project has one
				}
				b.log.crashAfter(tc.after)
				st := b.call(s, tc.tool, tc.args)
				if tc.answer != "" {
					b.answer(s, tc.answer, "")
				}
				if tc.close {
					b.until("a question", func() bool { return len(b.ledger.Pending(approval.Scope{Session: s})) > 0 })
					if _, err := b.ledger.Cancel(b.ctx(), approval.Scope{Session: s}); err != nil {
						t.Fatal(err)
					}
				}
				<-b.log.crashed
				if tc.after == "step.started" && tc.tool == "exec" {
					b.until("the command's start", func() bool { return len(b.w.Started()) == 1 })
				}
				if tc.name == "started, ended meanwhile" {
					g, _ := b.m.Running("p_1")
					b.until("the command's end", func() bool {
						list, err := g.Execs().List(b.ctx())
						return err == nil && len(list) == 1 && !list[0].Running
					})
				}
				before := b.events(s, st.ID)
				if last := before[len(before)-1]; last != string(tc.after) {
					t.Fatalf("the crash came after %s: %v", last, before)
				}
				b.deny = false
				b.restart(func() { b.m.set(machine) })
				if tc.name == "started, goes on" {
					close(b.gate("end"))
				}
				again := b.step(s, st.ID)
				if tc.later != "" {
					b.answer(s, tc.later, "")
				}
				until := domain.StepSealed
				if want.state == domain.StepAsking {
					until = domain.StepRunning
				}
				v := b.wait(again, until)
				if v.State != want.state {
					t.Errorf("it is %s, not %s: %+v %v", v.State, want.state, v.Refused, b.events(s, st.ID))
				}
				if v.Number != 1 || v.Tool != tc.tool || v.Title == "" {
					t.Errorf("it lost what it is: %+v", v)
				}
				if want.outcome != "" && (v.Ended == nil || v.Ended.Outcome != want.outcome) {
					t.Errorf("it ended %+v, not %s", v.Ended, want.outcome)
				}
				if want.state == domain.StepSealed && (v.Sealed == nil || (v.Sealed.Commit != "") != want.seal || (v.Sealed.Failed == "") != want.seal) {
					t.Errorf("seal: %+v", v.Sealed)
				}
				if want.outcome == ok && want.seal && tc.tool == "exec" && strings.Contains(fmt.Sprint(tc.args), "put") &&
					(len(v.Sealed.Changes) != 1 || v.Sealed.Changes[0].Path != "f") {
					t.Errorf("the changed file is lost: %+v", v.Sealed)
				}
				// Each event of a life comes once, and its end is one.
				evs := b.events(s, st.ID)
				for _, typ := range []string{"step.requested", "step.decided", "approval.requested", "step.started", "step.ended", "step.sealed", "step.refused"} {
					if count(evs, typ) > 1 {
						t.Errorf("%s comes more than once: %v", typ, evs)
					}
				}
				if len(b.w.Started()) > 1 {
					t.Errorf("the command ran again: %v", b.w.Started())
				}
				// What is not over is not counted as over, and a third core sees the same.
				if want.state == domain.StepAsking {
					if n := b.svc.Running(b.ctx())[s]; n != 1 {
						t.Errorf("%d steps are under way", n)
					}
					return
				}
				b.until("its place among what is done", func() bool { return len(b.view(s).Active) == 0 })
				b.restart(nil)
				if w := b.wait(b.step(s, st.ID), domain.StepSealed); !equal(v, w) {
					t.Errorf("the next core tells another story:\n%+v\n%+v", v, w)
				}
				if got := b.events(s, st.ID); strings.Join(got, " ") != strings.Join(evs, " ") {
					t.Errorf("the next core added events: %v, were %v", got, evs)
				}
				if q := b.ledger.Pending(approval.Scope{}); len(q) != 0 {
					t.Errorf("a question is left that nobody waits for: %+v", q)
				}
			})
		}
	}
}

func equal(a, b StepView) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func (b *bench) view(s domain.SessionID) View {
	b.t.Helper()
	v, err := b.svc.Get(b.ctx(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// The machine is not started for a core's start unless a step needs its word.
func TestRecoverStartsNoMachineForNothing(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.wait(b.call(s, "exec", argv("put", "f", "x")), domain.StepSealed)
	b.wait(b.call(s, "look", map[string]any{}), domain.StepEnded)
	b.restart(func() { b.m.set("off") })
	b.svc.Settle(b.ctx())
	if n := b.m.started(); n != 0 {
		t.Fatalf("the machine was started %d times", n)
	}
}

// A person's question survives, and its answer reaches the call that put it.
func TestRecoverQuestionOfATool(t *testing.T) {
	for _, when := range []event.Type{"approval.requested", "approval.answered"} {
		t.Run(string(when), func(t *testing.T) {
			b := newBench(t)
			s := b.session()
			b.log.crashAfter(when)
			st := b.call(s, "ask_user", map[string]any{"question": "Which one?", "options": []string{"red", "blue"}})
			if when == "approval.answered" {
				b.answer(s, "option-2", "")
			}
			<-b.log.crashed
			b.restart(nil)
			if when == "approval.requested" {
				b.answer(s, "option-2", "")
			}
			v := b.wait(b.step(s, st.ID), domain.StepEnded)
			if v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK || !strings.Contains(string(v.Ended.Result), "blue") {
				t.Fatalf("%+v", v.Ended)
			}
			if n := count(b.events(s, st.ID), "approval.requested"); n != 1 {
				t.Fatalf("the question was put %d times", n)
			}
		})
	}
}

// A question that expired while no core ran is an expiry, not a cancel and not a no.
func TestRecoverExpired(t *testing.T) {
	b := newBench(t)
	b.mode, b.life = policy.ModeAsk, time.Millisecond
	b.restart(nil)
	s := b.session()
	st := b.call(s, "exec", argv("echo", "a"))
	b.wait(st, domain.StepAsking)
	b.restart(nil)
	go b.ledger.Run(b.ctx())
	if v := b.wait(b.step(s, st.ID), domain.StepSealed); v.State != domain.StepExpired {
		t.Fatalf("%+v", v)
	}
}

// A tool that is no longer there: its question cannot be allowed any more, and a
// step of it that changed something is sealed all the same.
func TestRecoverWithoutTheTool(t *testing.T) {
	b := newBench(t)
	b.mode = policy.ModeAsk
	s := b.session()
	asking := b.call(s, "hold", map[string]any{})
	b.wait(asking, domain.StepAsking)
	b.mode = ""
	s2 := b.session()
	b.log.crashAfter("step.ended")
	ended := b.call(s2, "hold", map[string]any{"say": "put"})
	<-b.log.crashed
	b.restart(func() { b.tools = b.tools[:len(b.tools)-1] })
	if v := b.wait(b.step(s, asking.ID), domain.StepSealed); v.State != domain.StepCancelled || !strings.Contains(v.Refused.Reason, "no tool") {
		t.Errorf("%+v %+v", v, v.Refused)
	}
	if q := b.ledger.Pending(approval.Scope{}); len(q) != 0 {
		t.Errorf("a question stays that cannot be allowed: %+v", q)
	}
	if v := b.wait(b.step(s2, ended.ID), domain.StepSealed); v.Sealed == nil || v.Sealed.Commit == "" {
		t.Errorf("%+v", v)
	}
}

// The arguments of a step may be gone with their artefact; the core starts all the same.
func TestRecoverWithoutItsArguments(t *testing.T) {
	b := newBench(t)
	b.mode = policy.ModeAsk
	s := b.session()
	// A script this large is kept as an artefact.
	large := b.call(s, "exec", map[string]any{"code": "# " + strings.Repeat("x", 50<<10)})
	b.wait(large, domain.StepAsking)
	b.mode = ""
	s2 := b.session()
	b.log.crashAfter("step.started")
	started := b.call(s2, "exec", map[string]any{"argv": []string{"wait", "x", strings.Repeat("y", 50<<10)}})
	<-b.log.crashed
	b.until("the command's start", func() bool { return len(b.w.Started()) == 1 })
	b.restart(func() { removeBlobs(t, b.dir) })
	if v := b.wait(b.step(s, large.ID), domain.StepSealed); v.State != domain.StepCancelled || !strings.Contains(v.Refused.Reason, "no longer") {
		t.Errorf("%+v", v.Refused)
	}
	close(b.gate("x"))
	if v := b.wait(b.step(s2, started.ID), domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Fatalf("%+v", v.Ended)
	}
}

// What waits for an answer is what would run: arguments from which the log took a key
// are another command.
func TestRecoverWithoutTheKeyInItsArguments(t *testing.T) {
	b := newBench(t)
	b.mode = policy.ModeAsk
	s := b.session()
	var keys secret.Scrubber
	keys.Learn("model m", "sk-0123456789abcdef")
	without := b.call(s, "exec", argv("echo", keys.Text("the key is sk-0123456789abcdef")))
	with := b.call(s, "exec", argv("echo", "the [key] is"))
	b.wait(without, domain.StepAsking)
	b.wait(with, domain.StepAsking)
	b.restart(func() {})
	if v := b.wait(b.step(s, without.ID), domain.StepSealed); v.State != domain.StepCancelled || !strings.Contains(v.Refused.Reason, "held a key") {
		t.Errorf("%+v", v.Refused)
	}
	b.answer(s, "once", "")
	if v := b.wait(b.step(s, with.ID), domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("%+v", v)
	}
}

func TestRecoverTwoSessionsAndADeletedProject(t *testing.T) {
	b := newBench(t)
	s1, s2 := b.session(), b.session()
	a, c := b.call(s1, "exec", argv("wait", "a")), b.call(s2, "exec", argv("wait", "c"))
	turn, err := b.svc.StartTurn(b.ctx(), s1, TurnRequest{Prompt: "work", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	b.until("both to run", func() bool { return len(b.w.Started()) == 2 })
	b.restart(nil)
	// The turn's agent is gone, so the turn is; its session may have another one.
	if got := b.view(s1); got.Turn != "" || got.State != domain.SessionIdle {
		t.Errorf("%+v", got)
	}
	if _, err := b.svc.EndTurn(b.ctx(), s1, turn, "", "", "agent:x"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("the turn ended twice: %v", err)
	}
	if n := count(b.events(s1, ""), "turn.ended"); n != 1 {
		t.Errorf("%d ends", n)
	}
	if _, err := b.svc.StartTurn(b.ctx(), s1, TurnRequest{Prompt: "again", Actor: "person"}); err != nil {
		t.Error(err)
	}
	close(b.gate("c"))
	if v := b.wait(b.step(s2, c.ID), domain.StepSealed); v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("%+v", v.Ended)
	}
	close(b.gate("a"))
	if v := b.wait(b.step(s1, a.ID), domain.StepSealed); v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("%+v", v.Ended)
	}
	b.restart(func() { b.gone = true })
	if _, err := b.svc.Get(b.ctx(), s1); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("a deleted project's session: %v", err)
	}
}

// A step that was joined again keeps its place before everything called later.
func TestRejoinedStepKeepsItsPlace(t *testing.T) {
	b := newBench(t)
	s := b.session()
	first := b.call(s, "exec", argv("wait", "first"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	b.restart(nil)
	second := b.call(s, "exec", argv("put", "second", "x"))
	if v := b.wait(second, domain.StepRunning); v.State != domain.StepRequested {
		t.Fatalf("the second is %s", v.State)
	}
	close(b.gate("first"))
	b.wait(second, domain.StepSealed)
	evs := []string{}
	for _, e := range b.all(s) {
		if e.Type == "step.sealed" || e.Type == "step.started" {
			evs = append(evs, string(e.Type)+" "+string(e.StepID))
		}
	}
	want := []string{"step.started " + string(first.ID), "step.sealed " + string(first.ID), "step.started " + string(second.ID), "step.sealed " + string(second.ID)}
	if strings.Join(evs, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%v", evs)
	}
}

// Cancelling a step of an earlier core kills its command in the guest.
func TestCancelRejoinedStep(t *testing.T) {
	b := newBench(t)
	s := b.session()
	st := b.call(s, "exec", argv("wait", "x"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	b.restart(nil)
	if err := b.svc.Cancel(b.ctx(), s, st.ID); err != nil {
		t.Fatal(err)
	}
	v := b.wait(b.step(s, st.ID), domain.StepSealed)
	if v.Ended.Outcome != domain.OutcomeCancelled {
		t.Fatalf("%+v", v.Ended)
	}
	g, _ := b.m.Running("p_1")
	list, err := g.Execs().List(b.ctx())
	for _, x := range list {
		if x.Running {
			t.Errorf("it runs on: %+v", x)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
