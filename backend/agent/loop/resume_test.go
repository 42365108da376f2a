package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

// goal is a model that works towards an end whatever became of its calls: it counts the
// good results in its conversation and goes on from there.
func goal(t *testing.T) *mind {
	return newMind(t, func(_ int, r model.Request) (model.Answer, error) {
		done := map[string]bool{}
		for _, m := range r.Messages {
			for _, p := range m.Parts {
				if p.Result != nil && strings.Contains(p.Result.Text, "out of ") {
					_, rest, _ := strings.Cut(p.Result.Text, "out of ")
					done[strings.Fields(rest)[0]] = true
				}
			}
		}
		switch {
		case !done["one"] || !done["two"]:
			return calls("exec", run("one"), "plan", `{"items":[{"text":"all","state":"doing"}]}`, "exec", run("two"), "read", `{"nothing":1}`), nil
		case !done["three"]:
			return calls("exec", run("three")), nil
		case !strings.Contains(textOf(r, model.RoleUser), "And four?"):
			return say("One to three are done."), nil
		case !done["four"]:
			return calls("exec", run("four")), nil
		}
		return say("All is done."), nil
	})
}

func goalHouse(t *testing.T) *house {
	h := newHouse(t)
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		return wrote(0, "out of "+strings.TrimPrefix(r.Title, "Run ")+"\n"), nil
	}
	h.ask = yes
	return h
}

// The log is cut after each of its events, as a crash would, and the turn is gone on
// with: each call has one result, no call is begun twice, and the end is reached.
func TestResumeAtEveryEvent(t *testing.T) {
	rec := goalHouse(t)
	rec.begin("Do one to three.")
	first := rec.turn
	mustWork(t, rec, goal(t))
	rec.put("", &event.TurnEnded{Turn: rec.turn, Result: "unchecked"})
	rec.begin("And four?")
	second := rec.turn
	mustWork(t, rec, goal(t))
	whole := rec.events()
	if len(whole) < 25 {
		t.Fatalf("only %d events", len(whole))
	}
	for cut := 2; cut <= len(whole); cut++ {
		t.Run(fmt.Sprintf("%02d after %s", cut, whole[cut-1].Type), func(t *testing.T) {
			h := goalHouse(t)
			h.log, h.blobs = append([]event.Envelope(nil), whole[:cut]...), rec.blobs
			// Some steps were running when the core ended: what is found again is their real end.
			h.turn = first
			for _, e := range h.log {
				if s, ok := decode(t, e).(*event.TurnStarted); ok {
					h.turn = s.Turn
				}
			}
			h.put("", &event.TurnResumed{Turn: h.turn})
			m := goal(t)
			mustWork(t, h, m)
			oneResultEach(t, h)
			if h.turn == first {
				h.begin("And four?")
				mustWork(t, h, m)
				oneResultEach(t, h)
			} else if h.turn != second {
				t.Fatal("which turn is it?")
			}
			as := recorded[*event.ModelAnswered](h)
			if got := as[len(as)-1].Parts[0].Text; got != "All is done." {
				t.Errorf("it ends with %q", got)
			}
			numbers := map[int]bool{}
			for _, a := range as {
				if numbers[a.Number] {
					t.Errorf("two answers have the number %d", a.Number)
				}
				numbers[a.Number] = true
			}
		})
	}
}

// oneResultEach holds the log to its promises.
func oneResultEach(t *testing.T, h *house) {
	t.Helper()
	began := map[string]int{}
	for _, s := range recorded[*event.StepRequested](h) {
		if began[s.Key]++; began[s.Key] > 1 {
			t.Errorf("the call %s was begun twice", s.Key)
		}
	}
	told := map[string]int{}
	for _, r := range recorded[*event.ModelTold](h) {
		for _, x := range r.Results {
			if told[x.Key]++; told[x.Key] > 1 {
				t.Errorf("the call %s has two results", x.Key)
			}
		}
	}
	for _, a := range recorded[*event.ModelAnswered](h) {
		for _, p := range a.Parts {
			if p.Kind == "call" && told[p.Key] != 1 {
				t.Errorf("the call %s of %s has %d results", p.Key, p.Tool, told[p.Key])
			}
		}
	}
}

func TestWhatIsDanglingIsAnsweredOnce(t *testing.T) {
	h := newHouse(t)
	h.begin("x")
	h.put("", &event.ModelAnswered{Turn: h.turn, Answer: "an_1", Number: 1, Saw: 2, Model: "test", Stop: "calls", Parts: []event.ModelPart{
		{Kind: "call", Key: "c_ended", ID: "1", Tool: "exec", Args: run("a")},
		{Kind: "call", Key: "c_running", ID: "2", Tool: "exec", Args: run("b")},
		{Kind: "call", Key: "c_lost", ID: "3", Tool: "exec", Args: run("c")},
		{Kind: "call", Key: "c_refused", ID: "4", Tool: "exec", Args: run("d")},
		{Kind: "call", Key: "c_never", ID: "5", Tool: "exec", Args: run("e")},
	}})
	for i, key := range []string{"c_ended", "c_running", "c_lost", "c_refused"} {
		id := domain.StepID(fmt.Sprintf("st_%d", i))
		h.put(id, &event.StepRequested{Number: i + 1, Key: key, Turn: h.turn, Tool: "exec", Title: "Run " + key, Args: []byte(`{}`)})
	}
	h.put("st_0", &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: new(int), Stdout: &event.OutputStream{Total: 6, Head: "really"}})
	h.put("st_3", &event.StepRefused{State: domain.StepCancelled, Reason: "Glasshouse ended before this ran", Allowed: "call it again"})
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		if r.Key == "c_lost" {
			return &event.StepEnded{Outcome: domain.OutcomeUnknown, Error: "The machine knows nothing of this command"}, nil
		}
		return wrote(0, "found again"), nil
	}
	fails := 3
	m := newMind(t, func(_ int, r model.Request) (model.Answer, error) {
		if fails > 0 {
			fails--
			return model.Answer{}, &model.Error{Kind: model.ErrAuth, Message: "no"}
		}
		rs := results(t, r)
		has(t, rs[0].Text, "exit code 0", "really")
		has(t, rs[1].Text, "found again")
		has(t, rs[2].Text, "Interrupted", "unknown", "look before you do it again")
		has(t, rs[3].Text, "it did not run", "call it again")
		has(t, rs[4].Text, "Interrupted before it ran; it did not run.")
		return say("ok"), nil
	})
	for range 3 {
		if err := work(t, h, m); err == nil {
			t.Fatal("no error")
		}
	}
	mustWork(t, h, m)
	if n := len(recorded[*event.ModelTold](h)); n != 1 {
		t.Errorf("told %d times", n)
	}
	if n := len(recorded[*event.StepRequested](h)); n != 4 {
		t.Errorf("%d steps: one was begun again", n)
	}
}

func TestAPartialStreamLeavesNothing(t *testing.T) {
	h := newHouse(t)
	h.begin("x")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the core goes")
	m := newMind(t, nil)
	m.think = func(int, model.Request) (model.Answer, error) {
		cancel(gone)
		return model.Answer{}, context.Cause(ctx)
	}
	if err := New(Config{Models: m}, h).Turn(ctx, h, ""); !errors.Is(err, gone) {
		t.Fatalf("it ended with %v", err)
	}
	for _, e := range h.events() {
		if strings.HasPrefix(string(e.Type), "model.") {
			t.Errorf("%s is recorded", e.Type)
		}
	}
	m.think = func(_ int, r model.Request) (model.Answer, error) {
		if len(r.Messages) != 1 {
			t.Errorf("the conversation is\n%s", show(r))
		}
		return say("ok"), nil
	}
	mustWork(t, h, m)
}

// A core that ends while the person is asked about a call: the next one waits for the
// same question, and then the call runs, once.
func TestResumeWhileAQuestionWaits(t *testing.T) {
	for _, c := range []struct {
		name, state, choice string
		before              bool // it was answered while no core ran
		runs                bool
	}{
		{"still open, then yes", "answered", "go_on", false, true},
		{"still open, then no", "answered", "stop", false, false},
		{"answered yes meanwhile", "answered", "go_on", true, true},
		{"answered no meanwhile", "answered", "stop", true, false},
		{"expired meanwhile", "expired", "", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			h.ask = func(agent.Question) agent.Reply { cancel(errors.New("the core goes")); return agent.Reply{} }
			m := newMind(t, func(n int, _ model.Request) (model.Answer, error) {
				if n >= 3 {
					return say("ok"), nil
				}
				return calls("list", `{}`), nil
			})
			h.begin("x")
			if err := New(Config{Models: m}, h).Turn(ctx, h, ""); err == nil {
				t.Fatal("no error")
			}
			q := recorded[*event.ApprovalRequested](h)
			if len(q) != 1 {
				t.Fatalf("%d questions", len(q))
			}
			if c.before && c.state == "answered" {
				h.put("", &event.ApprovalAnswered{Approval: q[0].Approval, Choice: c.choice, By: "person"})
			} else if c.before {
				h.put("", &event.ApprovalClosed{Approval: q[0].Approval, Why: c.state})
			}
			h.asked = nil
			h.ask = func(agent.Question) agent.Reply { return agent.Reply{State: c.state, Choice: c.choice} }
			err := work(t, h, m)
			if c.runs && err != nil {
				t.Fatal(err)
			}
			if !c.runs {
				stopped(t, err)
			}
			if n := len(recorded[*event.ApprovalRequested](h)); n != 1 {
				t.Errorf("the question was put %d times", n)
			}
			if c.before && len(h.asked) > 0 {
				t.Error("it was asked again")
			}
			want := 2
			if c.runs {
				want = 3
			}
			if n := len(recorded[*event.StepRequested](h)); n != want {
				t.Errorf("%d steps, want %d", n, want)
			}
			if c.runs {
				oneResultEach(t, h)
			}
		})
	}
}
