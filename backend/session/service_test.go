package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
)

// Steps that change the workspace run in the order of their numbers, each sealed
// before the next one starts, however many goroutines wait for them.
func TestChangingStepsKeepTheirOrder(t *testing.T) {
	b := newBench(t)
	s := b.session()
	first := b.call(s, "exec", argv("wait", "first"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	steps := []*Step{first}
	for i := range 60 {
		st := b.call(s, "exec", argv("put", "f", fmt.Sprint(i)))
		// A caller who does not wait for an end is not held up by the steps before.
		if v := b.wait(st, domain.StepRunning); v.State != domain.StepRequested {
			t.Fatalf("a queued step is %s", v.State)
		}
		steps = append(steps, st)
	}
	close(b.gate("first"))
	b.svc.Settle(b.ctx())
	var got []string
	for _, e := range b.all(s) {
		if e.Type == "step.started" || e.Type == "step.sealed" {
			got = append(got, string(e.Type)+string(e.StepID))
		}
	}
	var want []string
	for _, st := range steps {
		want = append(want, "step.started"+string(st.ID), "step.sealed"+string(st.ID))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the order is\n%v, not\n%v", got, want)
	}
}

// A cancel of everything lets nothing start because something before it ended.
func TestCancelOfEverything(t *testing.T) {
	b := newBench(t)
	s := b.session()
	first := b.call(s, "exec", argv("wait", "never"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	var queued []*Step
	for i := range 30 {
		queued = append(queued, b.call(s, "exec", argv("put", "f", fmt.Sprint(i))))
	}
	if err := b.svc.Cancel(b.ctx(), s, ""); err != nil {
		t.Fatal(err)
	}
	for _, st := range queued {
		if v := b.wait(st, domain.StepSealed); v.State != domain.StepCancelled {
			t.Errorf("step %d is %s", v.Number, v.State)
		}
	}
	if v := b.wait(first, domain.StepEnded); v.Ended.Outcome != domain.OutcomeCancelled {
		t.Errorf("%+v", v.Ended)
	}
	if n := count(b.events(s, ""), "step.started"); n != 1 {
		t.Errorf("%d steps started", n)
	}
	// The slot is free again.
	if v := b.wait(b.call(s, "exec", argv("echo", "x")), domain.StepSealed); v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("%+v", v.Ended)
	}
}

func TestCancelOfOne(t *testing.T) {
	b := newBench(t)
	s := b.session()
	first := b.call(s, "exec", argv("wait", "first"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	second, third := b.call(s, "exec", argv("put", "a", "x")), b.call(s, "exec", argv("put", "b", "x"))
	if err := b.svc.Cancel(b.ctx(), s, second.ID); err != nil {
		t.Fatal(err)
	}
	if v := b.wait(second, domain.StepSealed); v.State != domain.StepCancelled {
		t.Errorf("%+v", v)
	}
	close(b.gate("first"))
	for _, st := range []*Step{first, third} {
		if v := b.wait(st, domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
			t.Errorf("%+v", v)
		}
	}
	if err := b.svc.Cancel(b.ctx(), s, third.ID); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("an ended step was cancelled: %v", err)
	}
	if err := b.svc.Cancel(b.ctx(), s, "st_none"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("a step that is not there: %v", err)
	}
	if _, err := b.svc.Step(b.ctx(), s, "st_none"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Error(err)
	}
}

// A cancel that comes after the work was done does not turn it into work not done.
func TestCancelDoesNotDenyWhatHappened(t *testing.T) {
	b := newBench(t)
	s := b.session()
	reached, release := make(chan struct{}), make(chan struct{})
	st := b.stepWith(s, func(ctx context.Context) error {
		close(reached)
		<-release // it does not listen: it is just done
		return nil
	})
	<-reached
	done := make(chan error, 1)
	go func() { done <- b.svc.Cancel(b.ctx(), s, st.ID) }()
	b.until("the cancel", func() bool { return st.ctx.Err() != nil })
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v := b.wait(st, domain.StepSealed); v.Ended.Outcome != domain.OutcomeOK {
		t.Fatalf("%+v", v.Ended)
	}
}

// Only a choice that allows allows. A text alone, also one to a card that could not
// be shown whole, is no yes.
func TestTextIsNoYes(t *testing.T) {
	b := newBench(t)
	b.mode = policy.ModeAsk
	s := b.session()
	for _, args := range []any{argv("put", "f", "x"), argv("put", "f", strings.Repeat("x", 40<<10))} {
		st := b.call(s, "exec", args)
		b.wait(st, domain.StepAsking)
		b.answer(s, "", "sure, but not now")
		v := b.wait(st, domain.StepSealed)
		if v.State != domain.StepDenied || !strings.Contains(v.Refused.Reason, "not now") {
			t.Errorf("%+v %+v", v, v.Refused)
		}
	}
	if len(b.w.Started()) != 0 {
		t.Error("it ran")
	}
}

// An end takes what the session left in its machine, never starts one, and lets
// nothing new in.
func TestEnd(t *testing.T) {
	for _, state := range []string{"on", "off"} {
		t.Run(state, func(t *testing.T) {
			b := newBench(t)
			s := b.session()
			running := b.call(s, "exec", argv("wait", "never"))
			b.until("its start", func() bool { return len(b.w.Started()) == 1 })
			if state == "off" {
				b.m.set("off")
				b.wait(running, domain.StepEnded)
				b.svc.Settle(b.ctx())
			}
			starts := b.m.started()
			for range 2 { // a second end is no error
				if err := b.svc.End(b.ctx(), s, "person"); err != nil {
					t.Fatal(err)
				}
			}
			if b.m.started() != starts {
				t.Error("a machine was started to end a session")
			}
			if ended := b.w.EndedSessions(); state == "on" && !has(ended, string(s)) || state == "off" && len(ended) > 0 {
				t.Errorf("sessions ended in the guest: %v", ended)
			}
			if len(b.browsers) == 0 || b.browsers[0] != s {
				t.Errorf("browsers closed: %v", b.browsers)
			}
			if v := b.wait(running, domain.StepEnded); v.Ended == nil || v.Ended.Outcome == domain.OutcomeOK {
				t.Errorf("%+v", v)
			}
			if _, err := b.try(s, "look", map[string]any{}); domain.CodeOf(err) != domain.CodeConflict {
				t.Errorf("a call in an ended session: %v", err)
			}
			if _, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "", Actor: "person"}); domain.CodeOf(err) != domain.CodeConflict {
				t.Errorf("a turn in an ended session: %v", err)
			}
			if n := count(b.events(s, ""), "session.state"); n != 1 {
				t.Errorf("%d states", n)
			}
			b.restart(nil)
			if v := b.view(s); v.State != domain.SessionEnded {
				t.Errorf("%+v", v)
			}
		})
	}
}

// An end that the guest does not carry out is said, and the session is ended all the same.
func TestEndWithADeafGuest(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.wait(b.call(s, "exec", argv("echo", "x")), domain.StepSealed)
	b.w.Fail = func(m string) error {
		if m == "execs.endsession" {
			return errors.New("no")
		}
		return nil
	}
	if err := b.svc.End(b.ctx(), s, "person"); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "background") {
		t.Error(err)
	}
	if v := b.view(s); v.State != domain.SessionEnded {
		t.Errorf("%+v", v)
	}
}

// While an end cancels what runs, an agent that goes on calling gets clean errors
// and starts nothing more.
func TestEndUnderAnAgent(t *testing.T) {
	b := newBench(t)
	s := b.session()
	turn, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "work", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	agent := make(chan error, 1)
	go func() {
		for {
			st, err := b.svc.Call(b.ctx(), s, CallRequest{Tool: "exec", Args: json.RawMessage(`{"argv":["echo","x"]}`), Turn: turn, Actor: "agent:test"})
			if err != nil {
				agent <- err
				return
			}
			if _, err := st.Wait(b.ctx(), domain.StepEnded); err != nil {
				agent <- err
				return
			}
		}
	}()
	b.until("some steps", func() bool { return count(b.events(s, ""), "step.ended") > 2 })
	if err := b.svc.End(b.ctx(), s, "person"); err != nil {
		t.Fatal(err)
	}
	if err := <-agent; domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("the agent was told: %v", err)
	}
	if _, err := b.svc.EndTurn(b.ctx(), s, turn, "failed", "its session ended", "agent:test"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("the turn ended twice: %v", err)
	}
	b.svc.Settle(b.ctx())
	evs := b.events(s, "")
	if count(evs, "turn.ended") != 1 || count(evs, "step.requested") != count(evs, "step.ended")+count(evs, "step.refused") {
		t.Errorf("%v", evs)
	}
	i := slices.Index(evs, "turn.ended")
	if has(evs[i:], "step.requested") || has(evs[i:], "step.started") {
		t.Errorf("steps after the end: %v", evs[i:])
	}
	if v := b.view(s); v.State != domain.SessionEnded {
		t.Errorf("%+v", v)
	}
}

// Between an end's beginning and its record nothing new is taken, and an end that is
// given up on the way lets the session live.
func TestEndLetsNothingIn(t *testing.T) {
	b := newBench(t)
	s := b.session()
	reached, release := make(chan struct{}), make(chan struct{})
	st := b.stepWith(s, func(context.Context) error { close(reached); <-release; return nil })
	<-reached
	ctx, giveUp := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.svc.End(ctx, s, "person") }()
	b.until("the cancel", func() bool { return st.ctx.Err() != nil })
	if _, err := b.try(s, "look", map[string]any{}); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("a call during the end: %v", err)
	}
	if _, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "", Actor: "person"}); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("a turn during the end: %v", err)
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(release)
	b.wait(st, domain.StepSealed)
	b.until("the end to be given up", func() bool { _, err := b.try(s, "look", map[string]any{}); return err == nil })
	if v := b.view(s); v.State != domain.SessionIdle {
		t.Errorf("%+v", v)
	}
}

func TestTurns(t *testing.T) {
	check := func(name string, words ...string) event.Check { return event.Check{Name: name, Argv: words} }
	for name, tc := range map[string]struct {
		checks  []event.Check
		gone    bool
		said    string // the agent's own word
		result  string
		has     string
		ran     int
		noSteps bool
	}{
		"no check":            {nil, false, "", "unchecked", "no check", 0, true},
		"good":                {[]event.Check{check("a", "echo", "x"), {Name: "b", Argv: []string{"echo", "hello"}, Has: "hello"}}, false, "", "ok", "", 2, false},
		"wrong exit":          {[]event.Check{check("a", "echo", "x"), check("b", "fail"), check("c", "echo", "x")}, false, "ok", "failed", `"b"`, 3, false},
		"wrong output":        {[]event.Check{{Name: "a", Argv: []string{"echo", "x"}, Has: "y"}}, false, "", "failed", `"y"`, 1, false},
		"an exit of its own":  {[]event.Check{{Name: "a", Argv: []string{"fail"}, Exit: 1}}, false, "", "ok", "", 1, false},
		"the agent failed":    {[]event.Check{check("a", "echo", "x")}, false, "failed", "failed", "", 0, true},
		"the machine is gone": {[]event.Check{check("a", "echo", "x")}, true, "", "failed", "unavailable", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			d, err := b.svc.Create(b.ctx(), CreateRequest{Project: "p_1", Checks: tc.checks, Actor: "person"})
			if err != nil {
				t.Fatal(err)
			}
			if tc.gone {
				b.m.set("gone")
			}
			turn, err := b.svc.StartTurn(b.ctx(), d.ID, TurnRequest{Prompt: "do it", Actor: "person"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.svc.StartTurn(b.ctx(), d.ID, TurnRequest{Prompt: "again", Actor: "person"}); domain.CodeOf(err) != domain.CodeConflict {
				t.Errorf("two turns: %v", err)
			}
			// Ended by several at once: once.
			var wg sync.WaitGroup
			var mu sync.Mutex
			var ends []event.TurnEnded
			for range 4 {
				wg.Go(func() {
					end, err := b.svc.EndTurn(b.ctx(), d.ID, turn, tc.said, "", "agent:test")
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						ends = append(ends, end)
					} else if domain.CodeOf(err) != domain.CodeConflict {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			evs := b.events(d.ID, "")
			if len(ends) != 1 || count(evs, "turn.ended") != 1 || count(evs, "check.ran") != tc.ran {
				t.Fatalf("%+v %v", ends, evs)
			}
			if ends[0].Result != tc.result || !strings.Contains(ends[0].Reason, tc.has) {
				t.Errorf("%+v", ends[0])
			}
			if v := b.view(d.ID); v.Turn != "" || v.State != domain.SessionIdle {
				t.Errorf("%+v", v)
			}
			if _, err := b.svc.Call(b.ctx(), d.ID, CallRequest{Tool: "look", Args: json.RawMessage("{}"), Turn: turn}); domain.CodeOf(err) != domain.CodeConflict {
				t.Errorf("a call of a turn that has ended: %v", err)
			}
		})
	}
}

// A session that is ended while its turn's checks run stays ended, and its turn has one end.
func TestEndDuringChecks(t *testing.T) {
	b := newBench(t)
	d, err := b.svc.Create(b.ctx(), CreateRequest{Project: "p_1", Checks: []event.Check{{Name: "slow", Argv: []string{"wait", "x"}}}, Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	turn, err := b.svc.StartTurn(b.ctx(), d.ID, TurnRequest{Prompt: "", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() {
		_, err := b.svc.EndTurn(b.ctx(), d.ID, turn, "", "", "agent:test")
		over <- err
	}()
	b.until("the check's start", func() bool { return len(b.w.Started()) == 1 })
	if err := b.svc.End(b.ctx(), d.ID, "person"); err != nil {
		t.Fatal(err)
	}
	err = <-over
	evs := b.events(d.ID, "")
	if v := b.view(d.ID); v.State != domain.SessionEnded || count(evs, "turn.ended") != 1 || domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("%+v %v (%v)", v.State, evs, err)
	}
}

// While the log is full nothing is said to have happened, nothing that happened is
// forgotten by the guest, and all of it is recorded once there is room again.
func TestFullLog(t *testing.T) {
	for _, typ := range []event.Type{"step.started", "step.ended", "step.sealed", "step.refused", "turn.ended", "check.ran"} {
		t.Run(string(typ), func(t *testing.T) {
			b := newBench(t)
			d, err := b.svc.Create(b.ctx(), CreateRequest{Project: "p_1", Checks: []event.Check{{Name: "a", Argv: []string{"echo", "a"}}}, Actor: "person"})
			if err != nil {
				t.Fatal(err)
			}
			s := d.ID
			turn, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "", Actor: "person"})
			if err != nil {
				t.Fatal(err)
			}
			tries := make(chan struct{}, 100)
			b.log.setRefuse(func(n event.New) error {
				if n.Payload.EventType() != typ {
					return nil
				}
				select {
				case tries <- struct{}{}:
				default:
				}
				return errFull
			})
			b.deny = typ == "step.refused"
			var st *Step
			ended := make(chan error, 1)
			if typ == "turn.ended" || typ == "check.ran" {
				go func() { _, err := b.svc.EndTurn(b.ctx(), s, turn, "", "", "agent:x"); ended <- err }()
			} else {
				st = b.call(s, "exec", argv("put", "f", "x"))
			}
			<-tries
			<-tries // it is tried again
			if st != nil {
				v := st.View()
				if typ == "step.started" && (v.State != domain.StepRequested || len(b.w.Started()) > 0) ||
					typ == "step.ended" && (v.State != domain.StepRunning || v.Ended != nil) ||
					typ == "step.sealed" && (v.State != domain.StepEnded || v.Sealed != nil) ||
					typ == "step.refused" && v.State != domain.StepRequested {
					t.Errorf("it says what is not recorded: %+v", v)
				}
				if typ == "step.ended" || typ == "step.sealed" {
					g, _ := b.m.Running("p_1")
					if list, err := g.Execs().List(b.ctx()); err != nil || len(list) != 1 {
						t.Errorf("the guest forgot what is not recorded: %v %v", list, err)
					}
				}
			} else if v := b.view(s); v.Turn != turn {
				t.Errorf("the turn has ended without a record: %+v", v)
			}
			b.log.setRefuse(nil)
			if st == nil {
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if v := b.view(s); v.Turn != "" || count(b.events(s, ""), "turn.ended") != 1 {
					t.Errorf("%+v", v)
				}
				return
			}
			v := b.wait(st, domain.StepSealed)
			if b.deny && v.State != domain.StepDenied || !b.deny && (v.State != domain.StepSealed || v.Ended.Outcome != domain.OutcomeOK || v.Sealed.Commit == "") {
				t.Errorf("%+v", v)
			}
			evs := b.events(s, st.ID)
			for _, e := range []string{"step.started", "step.ended", "step.sealed", "step.refused"} {
				if count(evs, e) > 1 {
					t.Errorf("%v", evs)
				}
			}
		})
	}
	t.Run("leaving", func(t *testing.T) {
		// A core that goes while the log is full loses nothing: the next one asks the guest.
		b := newBench(t)
		s := b.session()
		tries := make(chan struct{}, 100)
		b.log.setRefuse(func(n event.New) error {
			if n.Payload.EventType() == "step.ended" {
				select {
				case tries <- struct{}{}:
				default:
				}
				return errFull
			}
			return nil
		})
		st := b.call(s, "exec", argv("put", "f", "x"))
		<-tries
		b.restart(nil)
		if v := b.wait(b.step(s, st.ID), domain.StepSealed); v.Ended.Outcome != domain.OutcomeOK || v.Ended.Source != "journal" {
			t.Errorf("%+v", v.Ended)
		}
	})
	t.Run("calls", func(t *testing.T) {
		b := newBench(t)
		s := b.session()
		b.log.setRefuse(func(event.New) error { return errFull })
		if _, err := b.try(s, "look", map[string]any{}); domain.CodeOf(err) != domain.CodeUnavailable {
			t.Error(err)
		}
		b.log.setRefuse(nil)
		if st := b.call(s, "look", map[string]any{}); st.View().Number != 1 {
			t.Errorf("a number was lost: %d", st.View().Number)
		}
	})
}

// Whatever a tool answers, its outcome is recorded.
func TestAnswersThatDoNotFit(t *testing.T) {
	b := newBench(t)
	s := b.session()
	for say, want := range map[string]domain.Outcome{"huge": domain.OutcomeOK, "broken": domain.OutcomeOK, "panic": domain.OutcomeFailed} {
		v := b.wait(b.call(s, "hold", map[string]any{"say": say}), domain.StepSealed)
		if v.Ended == nil || v.Ended.Outcome != want || v.Ended.Error == "" || v.Sealed == nil {
			t.Errorf("%s: %+v", say, v.Ended)
		}
	}
}

// A long session costs the memory of what is under way, and still answers for every
// step of it.
func TestLongSession(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: 5,200 steps take their time; run without -short")
	}
	b := newBench(t)
	s := b.session()
	const n = 5200
	var ids [3]domain.StepID
	var views [3]StepView
	say := strings.Repeat("y", 8<<10)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	mid := uint64(0)
	for i := range n {
		st := b.call(s, "look", map[string]any{"say": say})
		for k, at := range []int{0, n / 2, n - 1} {
			if i == at {
				ids[k], views[k] = st.ID, b.wait(st, domain.StepEnded)
			}
		}
		if i%200 == 0 {
			b.wait(st, domain.StepEnded)
		}
		if i == 200 {
			mid = heap()
		}
	}
	b.svc.Settle(b.ctx())
	b.until("all to be let go of", func() bool { return len(b.view(s).Active) == 0 })
	if grown := int64(heap()) - int64(mid); grown > 12<<20 {
		t.Errorf("%d steps with %d bytes each cost %d MiB", n, 2*len(say), grown>>20)
	}
	if v := b.view(s); v.Steps != n {
		t.Errorf("%d steps", v.Steps)
	}
	look := func() {
		for k, id := range ids {
			if v := b.wait(b.step(s, id), domain.StepSealed); !equal(v, views[k]) {
				t.Errorf("step %d is told otherwise: %+v", views[k].Number, v)
			}
			if ok, step := b.svc.Known("p_1", s, id); !ok || !step {
				t.Error("it is not known")
			}
		}
	}
	look()
	b.restart(nil)
	look()
	if st := b.call(s, "look", map[string]any{}); st.View().Number != n+1 {
		t.Errorf("the next number is %d", st.View().Number)
	}
}

// A core that leaves waits for nobody: not for answers, commands, queues or seals,
// and whoever waits for a step is told.
func TestLeave(t *testing.T) {
	b := newBench(t)
	b.mode = policy.ModeAsk
	s := b.session()
	asking := b.call(s, "exec", argv("echo", "x"))
	b.wait(asking, domain.StepAsking)
	b.mode = ""
	s2 := b.session()
	running := b.call(s2, "exec", argv("wait", "never"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	queued := b.call(s2, "exec", argv("echo", "x"))
	deaf := b.stepWith(b.session(), func(context.Context) error { return nil })
	b.wait(deaf, domain.StepEnded)
	told := make(chan error, 4)
	for _, st := range []*Step{asking, running, queued} {
		go func() { _, err := st.Wait(b.ctx(), domain.StepSealed); told <- err }()
	}
	b.svc.Leave()
	for range 3 {
		if err := <-told; !errors.Is(err, errLeaving) {
			t.Errorf("a waiter was told %v", err)
		}
	}
	if err := b.svc.Cancel(b.ctx(), s2, ""); !errors.Is(err, errLeaving) {
		t.Errorf("%v", err)
	}
	if _, err := b.try(s2, "look", map[string]any{}); !errors.Is(err, errLeaving) {
		t.Errorf("%v", err)
	}
	if _, err := b.svc.Create(b.ctx(), CreateRequest{Project: "p_1"}); err == nil {
		t.Error("a session was made after the end")
	}
	b.svc.Settle(b.ctx())
	if got := b.events(s2, queued.ID); has(got, "step.refused") || has(got, "step.started") {
		t.Errorf("a core that leaves decided: %v", got)
	}
	if q := b.ledger.Pending(approval.Scope{}); len(q) != 1 {
		t.Errorf("%d questions", len(q))
	}
}

// Everything at once, for the race detector: calls, answers, cancels, looks, ends.
func TestStress(t *testing.T) {
	b := newBench(t)
	var ids []domain.SessionID
	for i := range 4 {
		b.mode = []policy.Mode{policy.ModeAuto, policy.ModeAsk}[i%2]
		ids = append(ids, b.session())
	}
	stop := make(chan struct{})
	var wg, side sync.WaitGroup
	for _, s := range ids {
		for range 3 {
			wg.Go(func() {
				for i := range 25 {
					st, err := b.try(s, []string{"exec", "hold", "look"}[i%3], []any{argv("put", "f", fmt.Sprint(i)), map[string]any{}, map[string]any{}}[i%3])
					if err != nil {
						if domain.CodeOf(err) != domain.CodeConflict {
							t.Error(err)
						}
						return
					}
					if i%4 == 0 {
						_ = b.svc.Cancel(b.ctx(), s, st.ID)
					}
				}
			})
		}
	}
	side.Go(func() {
		for i := 0; ; i++ {
			for _, q := range b.ledger.Pending(approval.Scope{}) {
				_, _ = b.ledger.Answer(b.ctx(), q.ID, q.Asked.Digest, []string{"once", "deny"}[i%2], "", "person")
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	side.Go(func() {
		for {
			for _, s := range ids {
				_, _ = b.svc.Get(b.ctx(), s)
			}
			b.svc.List(b.ctx(), "")
			b.svc.Running(b.ctx())
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	wg.Wait()
	if err := b.svc.CancelAll(b.ctx()); err != nil {
		t.Error(err)
	}
	b.svc.Settle(b.ctx())
	for _, s := range ids {
		if err := b.svc.End(b.ctx(), s, "person"); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	side.Wait()
	if n := len(b.svc.Running(b.ctx())); n != 0 {
		t.Errorf("%d sessions still run something", n)
	}
	if q := b.ledger.Pending(approval.Scope{}); len(q) != 0 {
		t.Errorf("questions are left: %+v", q)
	}
	for _, s := range ids {
		evs := b.events(s, "")
		if r, o := count(evs, "step.requested"), count(evs, "step.refused")+count(evs, "step.ended"); r != o {
			t.Errorf("%d steps were requested, %d are over", r, o)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	b := newBench(t)
	for name, r := range map[string]CreateRequest{
		"/class":     {Project: "p_1", Class: "eternal"},
		"/mode":      {Project: "p_1", Mode: "yolo"},
		"/title":     {Project: "p_1", Title: strings.Repeat("x", 201)},
		"/checks/0":  {Project: "p_1", Checks: []event.Check{{Name: "a"}}},
		"/checks/1":  {Project: "p_1", Checks: []event.Check{{Name: "a", Code: "true"}, {Argv: []string{"x"}}}},
		"no project": {Project: "p_2"},
	} {
		_, err := b.svc.Create(b.ctx(), r)
		var e *domain.Error
		if !errors.As(err, &e) || strings.HasPrefix(name, "/") && e.Pointer != name || name == "no project" && e.Code != domain.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.svc.List(b.ctx(), "")) != 0 {
		t.Error("something was made")
	}
}
