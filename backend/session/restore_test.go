package session

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

func (b *bench) restore(r RestoreRequest) (domain.SessionID, StepView) {
	b.t.Helper()
	r.Project, r.Actor = b.project.ID, "person"
	id, st, err := b.svc.Restore(b.ctx(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return id, b.wait(st, domain.StepSealed)
}

func (b *bench) refusesRestore(r RestoreRequest, code domain.ErrorCode, words string) {
	b.t.Helper()
	r.Project, r.Actor = b.project.ID, "person"
	_, _, err := b.svc.Restore(b.ctx(), r)
	if domain.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
		b.t.Errorf("%+v: %v, not %s with %q", r, err, code, words)
	}
}

func (b *bench) put(s domain.SessionID, name, text string) StepView {
	b.t.Helper()
	return b.wait(b.call(s, "write", map[string]any{"path": name, "content": text}), domain.StepSealed)
}

func (b *bench) has(name, want string) {
	b.t.Helper()
	g, err := b.m.Ensure(b.ctx(), b.project)
	if err != nil {
		b.t.Fatal(err)
	}
	cp, err := g.Checkpoints().Take(b.ctx(), guest.CheckpointRequest{Full: true})
	if err != nil {
		b.t.Fatal(err)
	}
	f, err := g.Checkpoints().Show(b.ctx(), guest.ShowRequest{Commit: cp.Commit, Path: name, Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	if got := string(f.Data); got != want || (f.Mode == 0) != (want == "") {
		b.t.Errorf("%s holds %q (mode %o), not %q", name, got, f.Mode, want)
	}
}

func restored(t *testing.T, v StepView) (r tool.Restored) {
	t.Helper()
	if v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK || v.Sealed == nil {
		t.Fatalf("%+v %+v", v, v.Ended)
	}
	if err := json.Unmarshal(v.Ended.Result, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A restore is a step like others: it is numbered and sealed, and what it did can be
// undone, whatever the mode.
func TestRestore(t *testing.T) {
	for _, mode := range []policy.Mode{policy.ModeAsk, policy.ModePlan, policy.ModeAuto} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t)
			s := b.session()
			one, two := b.put(s, "a", "one"), b.put(s, "a", "two")
			three := b.put(s, "b", "new")
			if err := b.svc.Change(b.ctx(), s, Change{Mode: &mode}, "person"); err != nil {
				t.Fatal(err)
			}
			in, v := b.restore(RestoreRequest{Step: one.ID})
			r := restored(t, v)
			if in != s || v.Number != 4 || v.Title != "Restore to after step 1" || r.Checkpoint != one.Sealed.Commit || r.Files != 2 || len(v.Sealed.Changes) != 2 {
				t.Errorf("in %s: %+v %+v %+v", in, v, r, v.Sealed)
			}
			b.has("a", "one")
			b.has("b", "")
			if _, v = b.restore(RestoreRequest{Checkpoint: r.Before}); v.Title != "Restore to checkpoint "+r.Before[:12] {
				t.Error(v.Title)
			}
			b.has("a", "two")
			b.has("b", "new")
			_, v = b.restore(RestoreRequest{Step: three.ID, Before: true})
			if r := restored(t, v); v.Title != "Restore to before step 3" || r.Checkpoint != two.Sealed.Commit {
				t.Errorf("%+v %+v", v, r)
			}
			b.has("b", "")
			// To where it is already: nothing changes, and that is said.
			_, v = b.restore(RestoreRequest{Step: two.ID})
			if r := restored(t, v); r.Files != 0 || len(v.Sealed.Changes) != 0 {
				t.Errorf("%+v %+v", r, v.Sealed)
			}
		})
	}
}

// What nobody sealed (a person's own edit) is kept first, too.
func TestRestoreKeepsWhatIsThere(t *testing.T) {
	b := newBench(t)
	s := b.session()
	one := b.put(s, "a", "one")
	b.w.Put(guest.Workspace+"/a", []byte("by hand"))
	_, v := b.restore(RestoreRequest{Step: one.ID})
	r := restored(t, v)
	b.has("a", "one")
	if r.Files != 1 {
		t.Errorf("%d files differ", r.Files)
	}
	b.restore(RestoreRequest{Checkpoint: r.Before})
	b.has("a", "by hand")
}

func TestRestoreRefuses(t *testing.T) {
	b := newBench(t)
	s, other := b.session(), b.session()
	one := b.put(s, "a", "one")
	looked := b.wait(b.call(s, "read", map[string]any{"path": "a"}), domain.StepEnded)
	no := strings.Repeat("ab", 20)
	b.refusesRestore(RestoreRequest{}, domain.CodeInvalid, "a step or a checkpoint")
	b.refusesRestore(RestoreRequest{Step: one.ID, Checkpoint: no}, domain.CodeInvalid, "a step or a checkpoint")
	b.refusesRestore(RestoreRequest{Checkpoint: no, Before: true}, domain.CodeInvalid, "no side")
	b.refusesRestore(RestoreRequest{Step: "st_none"}, domain.CodeNotFound, "no step")
	b.refusesRestore(RestoreRequest{Step: looked.ID}, domain.CodeConflict, "has no checkpoint")
	b.refusesRestore(RestoreRequest{Step: one.ID, Session: "s_none"}, domain.CodeNotFound, "no session")
	if _, v := b.restore(RestoreRequest{Checkpoint: no, Session: s}); v.Ended == nil || v.Ended.Outcome != domain.OutcomeFailed || !strings.Contains(v.Ended.Error, "no checkpoint "+no) {
		t.Errorf("%+v %+v", v, v.Ended)
	}
	b.has("a", "one")

	// While anything is at work in the project, in whatever session.
	busy := b.call(other, "exec", argv("wait", "busy"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	b.refusesRestore(RestoreRequest{Step: one.ID}, domain.CodeConflict, "is at work in session "+string(other))
	close(b.gate("busy"))
	b.wait(busy, domain.StepSealed)
	turn, err := b.svc.StartTurn(b.ctx(), other, TurnRequest{Agent: "model", Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	b.refusesRestore(RestoreRequest{Step: one.ID}, domain.CodeConflict, "a turn runs in session "+string(other))
	// No agent does it, by whatever name.
	for _, c := range []CallRequest{{Actor: "agent:model", Turn: turn}, {Actor: "agent"}, {Actor: "person", Turn: turn}} {
		c.Tool, c.Args = tool.Restore, json.RawMessage(`{"checkpoint":"`+one.Sealed.Commit+`"}`)
		if _, err := b.svc.Call(b.ctx(), other, c); domain.CodeOf(err) != domain.CodeDenied {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := b.svc.EndTurn(b.ctx(), other, turn, "stopped", "", "person"); err != nil {
		t.Fatal(err)
	}
	b.restore(RestoreRequest{Step: one.ID})
}

// A restore has the workspace for itself: it is not begun beside a step that came in
// between, and a step that comes meanwhile waits for it.
func TestRestoreIsAlone(t *testing.T) {
	b := newBench(t)
	s, other := b.session(), b.session()
	one := b.put(s, "a", "one")
	args := map[string]any{"checkpoint": one.Sealed.Commit}
	busy := b.call(other, "exec", argv("wait", "busy"))
	b.until("its start", func() bool { return len(b.w.Started()) == 1 })
	if v := b.wait(b.call(s, tool.Restore, args), domain.StepSealed); v.State != domain.StepCancelled || !strings.Contains(v.Refused.Reason, "step 1 of session "+string(other)) {
		t.Errorf("%+v %+v", v, v.Refused)
	}
	close(b.gate("busy"))
	b.wait(busy, domain.StepSealed)

	gate := make(chan struct{})
	b.w.Fail = func(method string) error {
		if method == "checkpoints.restore" {
			<-gate
		}
		return nil
	}
	st := b.call(s, tool.Restore, args)
	b.wait(st, domain.StepRunning)
	queued := b.call(other, "write", map[string]any{"path": "a", "content": "later"})
	gone := b.call(other, "write", map[string]any{"path": "c", "content": "never"})
	if v := b.wait(queued, domain.StepRunning); v.State != domain.StepRequested {
		t.Errorf("beside a restore a step is %s", v.State)
	}
	reads := b.call(other, "read", map[string]any{"path": "a"})
	b.wait(reads, domain.StepEnded) // who only reads is not held up
	if err := b.svc.Cancel(b.ctx(), other, gone.ID); err != nil {
		t.Fatal(err)
	}
	close(gate)
	b.wait(st, domain.StepSealed)
	if v := b.wait(queued, domain.StepSealed); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
		t.Errorf("%+v", v)
	}
	b.has("a", "later")
	b.has("c", "")
	var order []domain.StepID
	for _, e := range append(b.all(s), b.all(other)...) {
		if e.Type == "step.sealed" && (e.StepID == st.ID || e.StepID == queued.ID) {
			order = append(order, e.StepID)
		}
	}
	if len(order) != 2 {
		t.Errorf("sealed were %v", order)
	}
}

// The step's session may have ended: the restore then stands in one of its own. The
// others that worked in the project hear of it, in the same moment.
func TestRestoreTellsOthers(t *testing.T) {
	b := newBench(t)
	s, worked, idle := b.session(), b.session(), b.session()
	one := b.put(s, "a", "one")
	b.put(worked, "a", "two")
	if err := b.svc.End(b.ctx(), s, "person"); err != nil {
		t.Fatal(err)
	}
	in, v := b.restore(RestoreRequest{Step: one.ID})
	restored(t, v)
	if in == s || in == worked || in == idle {
		t.Fatalf("it stands in %s", in)
	}
	for id, want := range map[domain.SessionID]int{s: 0, idle: 0, in: 0, worked: 1} {
		n := 0
		for _, e := range b.all(id) {
			if e.Type != "message" {
				continue
			}
			p, err := event.Decode(e)
			if err != nil {
				t.Fatal(err)
			}
			if m := p.(*event.Message); m.Role == "host" && strings.Contains(m.Text, "Restore to after step 1 of session "+string(s)+".") {
				n++
			}
		}
		if n != want {
			t.Errorf("session %s heard of it %d times, not %d", id, n, want)
		}
	}
}

// The cancel of a restore may leave a mixture, of which the others hear; one that came
// too late is no cancel, and what was there before is named.
func TestRestoreCancelled(t *testing.T) {
	for _, late := range []bool{false, true} {
		b := newBench(t)
		s, worked := b.session(), b.session()
		one := b.put(s, "a", "one")
		two := b.put(worked, "a", "two")
		reached, gate := make(chan struct{}), make(chan struct{})
		b.w.Fail = func(method string) error {
			if method == "checkpoints.restore" {
				close(reached)
				<-gate
				if !late {
					return context.Canceled
				}
			}
			return nil
		}
		st := b.call(s, tool.Restore, map[string]any{"checkpoint": one.Sealed.Commit, "before": two.Sealed.Commit})
		<-reached
		cancelled := make(chan error, 1)
		go func() { cancelled <- b.svc.Cancel(b.ctx(), s, st.ID) }()
		b.until("its cancel", func() bool { return st.ctx.Err() != nil })
		close(gate)
		v := b.wait(st, domain.StepSealed)
		if err := <-cancelled; err != nil {
			t.Error(err)
		}
		told := "(cancelled), so that the files may be a mixture"
		if late {
			told = "Restore to checkpoint " + one.Sealed.Commit[:12] + ". What was read"
			if r := restored(t, v); r.Before != two.Sealed.Commit {
				t.Errorf("%+v", r)
			}
			b.has("a", "one")
		} else if v.Ended.Outcome != domain.OutcomeCancelled || !strings.Contains(v.Ended.Error, two.Sealed.Commit) {
			t.Errorf("%+v", v.Ended)
		}
		n := 0
		for _, e := range b.all(worked) {
			if p, err := event.Decode(e); err == nil && e.Type == "message" && strings.Contains(p.(*event.Message).Text, told) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("late %v: the other session was told %d times", late, n)
		}
	}
}

// An agent's call makes nothing, not even a session.
func TestRestoreByAnAgent(t *testing.T) {
	b := newBench(t)
	s := b.session()
	one := b.put(s, "a", "one")
	if err := b.svc.End(b.ctx(), s, "person"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.svc.Restore(b.ctx(), RestoreRequest{Project: b.project.ID, Step: one.ID, Actor: "agent"}); domain.CodeOf(err) != domain.CodeDenied {
		t.Error(err)
	}
	if n := len(b.svc.actors()); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
}

// A core that ends in the middle leaves it to the next one, which begins it again and
// still names what was there before the first time.
func TestRestoreAfterACrash(t *testing.T) {
	for _, after := range []event.Type{"step.started", "step.ended"} {
		t.Run(string(after), func(t *testing.T) {
			b := newBench(t)
			s := b.session()
			one := b.put(s, "a", "one")
			two := b.put(s, "a", "two")
			b.log.crashAfter(after)
			_, st, err := b.svc.Restore(b.ctx(), RestoreRequest{Project: b.project.ID, Step: one.ID, Actor: "person"})
			if err != nil {
				t.Fatal(err)
			}
			<-b.log.crashed
			b.restart(nil)
			next, err := b.svc.Step(b.ctx(), s, st.ID)
			if err != nil {
				t.Fatal(err)
			}
			r := restored(t, b.wait(next, domain.StepSealed))
			b.has("a", "one")
			if r.Before != two.Sealed.Commit {
				t.Errorf("before it was %s, not %s", r.Before, two.Sealed.Commit)
			}
			// And it lets go of the workspace.
			b.put(s, "a", "three")
		})
	}
}

// Who saw a step end may go back at once: its checkpoint is waited for.
func TestRestoreWaitsForASeal(t *testing.T) {
	b := newBench(t)
	s := b.session()
	one := b.put(s, "a", "one")
	gate, taking := make(chan struct{}), make(chan struct{}, 10)
	b.w.Fail = func(method string) error {
		if method == "checkpoints.take" {
			taking <- struct{}{}
			<-gate
		}
		return nil
	}
	two := b.call(s, "write", map[string]any{"path": "a", "content": "two"})
	b.wait(two, domain.StepEnded)
	<-taking
	done := make(chan error, 1)
	go func() {
		_, st, err := b.svc.Restore(b.ctx(), RestoreRequest{Project: b.project.ID, Step: two.ID, Before: true, Actor: "person"})
		if err == nil {
			_, err = st.Wait(b.ctx(), domain.StepSealed)
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.has("a", "one")
	if v := b.wait(two, domain.StepSealed); v.Sealed.Base != one.Sealed.Commit {
		t.Errorf("%+v", v.Sealed)
	}
}

// Who saw a step sealed may have the workspace, however busy the step's session is.
func TestRestoreRightAfterASeal(t *testing.T) {
	b := newBench(t)
	s, other := b.session(), b.session()
	one := b.put(s, "a", "one")
	a, err := b.svc.actor(other)
	if err != nil {
		t.Fatal(err)
	}
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.w.Fail = func(method string) error {
		if method == "execs.forget" { // the last that a step does before it is done
			once.Do(func() {
				go func() { _ = a.do(context.Background(), func() { close(held); <-hold }) }()
				<-held
			})
		}
		return nil
	}
	b.wait(b.call(other, "write", map[string]any{"path": "a", "content": "two"}), domain.StepSealed)
	v := b.wait(b.call(s, tool.Restore, map[string]any{"checkpoint": one.Sealed.Commit}), domain.StepRunning)
	close(hold)
	if v.Refused != nil {
		t.Errorf("%s: %s", v.State, v.Refused.Reason)
	}
}

// Restores that belong to no session that goes on stand together.
func TestRestoresStandTogether(t *testing.T) {
	b := newBench(t)
	s := b.session()
	one := b.put(s, "a", "one")
	two := b.put(s, "a", "two")
	if err := b.svc.End(b.ctx(), s, "person"); err != nil {
		t.Fatal(err)
	}
	first, _ := b.restore(RestoreRequest{Step: one.ID})
	again, _ := b.restore(RestoreRequest{Checkpoint: two.Sealed.Commit})
	if first != again || first == s {
		t.Errorf("they stand in %s and %s", first, again)
	}
	b.restart(nil)
	if third, _ := b.restore(RestoreRequest{Step: two.ID}); third != first {
		t.Errorf("after a restart they stand in %s", third)
	}
	if err := b.svc.End(b.ctx(), first, "person"); err != nil {
		t.Fatal(err)
	}
	if fourth, _ := b.restore(RestoreRequest{Step: one.ID}); fourth == first {
		t.Error("one stands in a session that has ended")
	}
}
