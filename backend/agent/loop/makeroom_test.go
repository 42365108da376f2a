package loop

import (
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

// within holds each request to the budget, as its server counts.
func within(t *testing.T, m *mind) {
	t.Helper()
	budget := m.cfg.ContextSize() - m.cfg.OutputSize()
	for i, r := range append(append([]model.Request{}, m.asked...), m.summed...) {
		if u := m.usage(r, ""); int(u.Input) > budget {
			t.Errorf("request %d has %d tokens by the server's count, %d are allowed", i, u.Input, budget)
		}
	}
}

// longWork makes n steps with about 2 KB of output each, with decisions of the person
// in between, and returns what must never be lost.
func longWork(t *testing.T, h *house, m *mind, n int) (musts []string) {
	t.Helper()
	must := func(s string) string { musts = append(musts, s); return s }
	must("Port the parser to the new library, keep the old interface")
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		id := domain.StepID(fmt.Sprintf("st_%04d", r.Number))
		ap := domain.ApprovalID(fmt.Sprintf("ap_%d", r.Number))
		answer := func(kind, title, choice, text string, choices ...event.Choice) {
			h.put(id, &event.ApprovalRequested{Approval: ap, Kind: kind, Title: title, Choices: append(choices, event.Choice{ID: "once", Label: "Allow once"}, event.Choice{ID: "deny", Label: "Deny"})})
			h.put(id, &event.ApprovalAnswered{Approval: ap, Choice: choice, Text: text, By: "person"})
		}
		switch r.Number {
		case 7:
			answer("step", r.Title, "deny", must("never touch the vendor folder"))
			return nil, &event.StepRefused{State: domain.StepDenied, Reason: "the person said no: never touch the vendor folder"}
		case 19:
			return nil, &event.StepRefused{State: domain.StepDenied, Reason: must("no rule allows deleting branches"), Allowed: must("commits on the branch itself")}
		case 41:
			answer("question", must("Which dialect is meant?"), "option-2", "", event.Choice{ID: "option-2", Label: must("the strict dialect")})
			return &event.StepEnded{Outcome: domain.OutcomeOK, Result: []byte(`{"state":"answered","option":"the strict dialect"}`)}, nil
		case 63:
			answer("egress", must("Connect to packages.example:443"), "once", "")
		case 88:
			mode := "ask"
			h.put("", &event.SessionChanged{Mode: &mode})
			must("mode to ask")
		case 90:
			h.say(must("Also keep the tests of the old parser."))
		}
		if r.Number > 88 {
			answer("step", r.Title, "once", "")
		}
		out := strings.Repeat(fmt.Sprintf("line of step %d: the quick brown fox jumps over the lazy dog\n", r.Number), 33)
		h.put(id, &event.StepSealed{Commit: "c", Changes: []event.FileChange{{Path: fmt.Sprintf("src/file%d.go", r.Number%70), Op: "modify", Added: 3, Deleted: 1}}})
		return wrote(r.Number%2, out), nil
	}
	m.think = func(i int, r model.Request) (model.Answer, error) {
		switch {
		case i == 40:
			return calls("ask_user", `{"question":"Which dialect is meant?","options":["the loose dialect","the strict dialect"]}`), nil
		case i == 50:
			return calls("plan", `{"items":[{"text":"port the lexer","state":"done"},{"text":"port the grammar","state":"doing"}]}`), nil
		case i >= n:
			return say("All is ported."), nil
		}
		return calls("exec", run("port", fmt.Sprint("part", i))), nil
	}
	must("port the grammar")
	h.ask = yes
	h.begin("Port the parser to the new library, keep the old interface. " + strings.Repeat("Mind the details. ", 30))
	if err := workWith(t, h, Config{Models: m}); err != nil {
		t.Fatal(err)
	}
	return musts
}

func TestThreeHundredSteps(t *testing.T) {
	for _, c := range []struct {
		name    string
		context int
		dense   float64
		sum     func(model.Request) (model.Answer, error)
	}{
		{"with an empty summary", 32000, 4, nil},
		{"with a failing summary", 32000, 4, func(model.Request) (model.Answer, error) {
			return model.Answer{}, &model.Error{Kind: model.ErrServer, Message: "no"}
		}},
		{"with a summary", 32000, 3, func(model.Request) (model.Answer, error) {
			return say("The lexer was easy; the grammar has left recursion."), nil
		}},
		{"with a small context", 20000, 4, nil},
		{"with a server that counts more than we guess", 32000, 2.3, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			m := newMind(t, nil)
			m.cfg.Context, m.sum, m.dense = c.context, c.sum, c.dense
			musts := longWork(t, h, m, 300)
			within(t, m)
			cs := recorded[*event.ContextCompacted](h)
			if len(cs) < 3 {
				t.Fatalf("only %d times room was made", len(cs))
			}
			t.Logf("room was made %d times in %d requests; the first: %d → %d tokens, kept %d bytes; the last: %d → %d, kept %d", len(cs), len(m.asked), cs[0].Before, cs[0].After, len(cs[0].Kept),
				cs[len(cs)-1].Before, cs[len(cs)-1].After, len(cs[len(cs)-1].Kept))
			if len(cs) > len(m.asked)/6 {
				t.Errorf("room was made %d times in %d requests: that thrashes", len(cs), len(m.asked))
			}
			fixed := int64(float64(sizeOfRest(&m.asked[0])) / min(3, c.dense))
			for i, e := range cs {
				if e.After-fixed > (e.Before-fixed)*3/4 {
					t.Errorf("room %d: %d tokens before, %d after", i, e.Before, e.After)
				}
			}
			end := show(m.asked[len(m.asked)-1])
			full := textOf(m.asked[len(m.asked)-1], model.RoleUser)
			has(t, full, musts...)
			has(t, full, "src/file", "exit code")
			hasNot(t, end, "part3 ")
			if c.sum != nil && c.name == "with a summary" {
				has(t, full, "left recursion", words["own-words"])
			}
			// The newest results stay word for word.
			rs := results(t, m.asked[len(m.asked)-1])
			hasNot(t, rs[0].Text, "left out")
			oneResultEach(t, h)
		})
	}
}

func TestSummaryIsAskedForQuietly(t *testing.T) {
	h := newHouse(t)
	m := newMind(t, nil)
	m.cfg.Context = 32000
	m.cfg.Price = &model.Price{Input: 1, Output: 1}
	m.sum = func(r model.Request) (model.Answer, error) {
		if !r.Quiet || len(r.Tools) == 0 || r.MaxOutput == 0 || r.MaxOutput > summaryOutput {
			t.Errorf("quiet %v, %d tools, %d tokens", r.Quiet, len(r.Tools), r.MaxOutput)
		}
		has(t, last(r).Parts[len(last(r).Parts)-1].Text, "Do not call a tool")
		a := say("A summary.")
		a.Parts = append(a.Parts, calls("exec", run("evil")).Parts...) // although it was told not to
		return a, nil
	}
	longWork(t, h, m, 100)
	n := 0
	for _, a := range recorded[*event.ModelAnswered](h) {
		if a.Purpose != "summary" {
			continue
		}
		n++
		if len(a.Parts) != 1 || a.CostNanos == 0 || !a.Priced {
			t.Errorf("a summary is recorded as %+v", a)
		}
	}
	if n != len(m.summed) || n == 0 {
		t.Errorf("%d summaries, %d recorded", len(m.summed), n)
	}
	// It begins as the last request did, so that it is read from the server's cache.
	s := m.summed[0]
	if s.System != m.asked[0].System || len(s.Tools) != len(m.asked[0].Tools) || s.Messages[0].Parts[0].Text != m.asked[0].Messages[0].Parts[0].Text {
		t.Error("it does not begin as the requests before it")
	}
	conv := newConversation(h.turn, h.ReadBlob)
	if err := conv.refresh(t.Context(), h.Fold); err != nil {
		t.Fatal(err)
	}
	var cost int64
	for _, a := range recorded[*event.ModelAnswered](h) {
		cost += a.CostNanos
	}
	if conv.cost != cost || conv.answers != len(m.asked)+len(m.summed) {
		t.Errorf("%d nanos in %d answers", conv.cost, conv.answers)
	}
}

func TestTooLongForTheServer(t *testing.T) {
	for _, c := range []struct {
		name  string
		holds int // tokens that the server takes, whatever the settings say
		err   string
		most  int // times that it says no
	}{
		{"it holds less than the settings say", 14000, "", 3},
		{"it holds next to nothing", 2000, "too long for the model test, also after it was made shorter", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
				return wrote(0, strings.Repeat(fmt.Sprintf("line of step %d\n", r.Number), 200)), nil
			}
			m := newMind(t, nil)
			noes := 0
			no := func(r model.Request) error {
				if int(m.usage(r, "").Input) > c.holds {
					noes++
					return &model.Error{Kind: model.ErrTooLong, Status: 400, Message: "prompt is too long"}
				}
				return nil
			}
			m.sum = func(r model.Request) (model.Answer, error) { return model.Answer{Stop: model.StopEnd}, no(r) }
			m.think = func(i int, r model.Request) (model.Answer, error) {
				if i > 60 {
					return say("ok"), no(r)
				}
				return calls("exec", run(fmt.Sprint(i))), no(r)
			}
			h.begin("Do it.")
			err := work(t, h, m)
			switch {
			case c.err == "" && err != nil:
				t.Error(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("the error is %v", err)
			}
			if noes > c.most || noes == 0 {
				t.Errorf("the server said no %d times", noes)
			}
			cs := recorded[*event.ContextCompacted](h)
			if c.err == "" && (len(cs) == 0 || cs[0].Reason != "too_long") {
				t.Errorf("%d times room was made", len(cs))
			}
		})
	}
}

func TestWhatIsTooLargeAloneIsCutHarder(t *testing.T) {
	h := newHouse(t)
	m := newMind(t, nil)
	m.cfg.Context = 16000
	h.ask = yes
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		return &event.StepEnded{Outcome: domain.OutcomeOK, Result: []byte(fmt.Sprintf(`{"text":%q}`, "BEGIN "+strings.Repeat("all work and no play\n", 1200)+" END"))}, nil
	}
	m.think = func(i int, r model.Request) (model.Answer, error) {
		if i > 2 {
			return say("ok"), nil
		}
		if i > 0 {
			for _, r := range results(t, r) {
				has(t, r.Text, "BEGIN", "END", "left out here")
			}
		}
		return calls("read", `{"path":"a"}`, "read", `{"path":"b"}`, "read", `{"path":"c"}`), nil
	}
	h.begin("x")
	mustWork(t, h, m)
	within(t, m)

	// A prompt that is too large is cut as well, and one model that cannot even hold the
	// rules says so.
	h = newHouse(t)
	m.asked = nil
	m.think = func(int, model.Request) (model.Answer, error) { return say("ok"), nil }
	h.begin("FIRST " + strings.Repeat("word ", 12000) + "LAST")
	mustWork(t, h, m)
	has(t, textOf(m.asked[0], model.RoleUser), "FIRST", "LAST")
	within(t, m)
	m.cfg.Context = 4000
	h.begin("y")
	err := work(t, h, m)
	if err == nil {
		t.Fatal("no error")
	}
	has(t, err.Error(), "does not fit into the model test", "context of 4000", "choose a model with a larger context")
}

// A server that keeps to no bound may answer with more than the model's context holds. It
// is cut as well: the newest answer is never taken out, so that nothing could be asked in
// its session ever again.
func TestAnAnswerThatIsTooLargeAloneIsCut(t *testing.T) {
	long := "BEGIN " + strings.Repeat("word ", 100_000) + "END"
	one := func(p model.Part, more ...model.Part) model.Answer {
		a := model.Answer{Parts: append([]model.Part{p}, more...), Stop: model.StopEnd}
		if len(more) > 0 || p.Kind == model.KindCall {
			a.Stop = model.StopCalls
		}
		return a
	}
	list := model.Part{Kind: model.KindCall, Call: &model.Call{ID: "c1", Tool: "list", Args: "{}"}}
	for name, c := range map[string]model.Answer{
		"text":           one(model.Part{Kind: model.KindText, Text: long}),
		"text and call":  one(model.Part{Kind: model.KindText, Text: long}, list),
		"thought":        one(model.Part{Kind: model.KindThought, Text: long, Opaque: []byte(`{"s":1}`), From: "x"}, list),
		"hidden thought": one(model.Part{Kind: model.KindThought, Opaque: []byte(`"` + long + `"`), From: "x"}, list),
		"name":           one(model.Part{Kind: model.KindCall, Call: &model.Call{ID: "c1", Tool: long, Args: "{}"}}),
		"id":             one(model.Part{Kind: model.KindCall, Call: &model.Call{ID: long, Tool: "list", Args: "{}"}}),
		"arguments":      one(model.Part{Kind: model.KindCall, Call: &model.Call{ID: "c1", Tool: "list", Args: `{"a":"` + long + `"}`}}),
		"form of a call": one(model.Part{Kind: model.KindCall, Call: &model.Call{ID: "c1", Tool: "list", Args: "{}"}, Opaque: []byte(`"` + long + `"`), From: "x"}),
	} {
		for _, mute := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " mute ", mute), func(t *testing.T) {
				h := newHouse(t)
				m := newMind(t, nil)
				m.think = func(n int, r model.Request) (model.Answer, error) {
					if n > 0 {
						return say("ok"), nil
					}
					if !mute {
						c.Usage = model.Usage{Input: m.usage(r, "").Input, Output: int64(sizeOfAnswer(c) / 4)}
					}
					return c, nil
				}
				m.cfg.Context, m.mute = 32_000, mute
				h.begin("x")
				mustWork(t, h, m)
				h.begin("more")
				mustWork(t, h, m)
				within(t, m)
				if strings.HasPrefix(name, "text") {
					has(t, textOf(m.asked[1], model.RoleAssistant), "BEGIN", "left out here", "END")
				}
			})
		}
	}
}

func TestKeptShrinksFromTheOldestDetails(t *testing.T) {
	f := newFacts()
	add := func(step domain.StepID, p event.Payload) { f.fold(event.Envelope{StepID: step}, p) }
	add("", &event.TurnStarted{Turn: "t", Agent: "model", Prompt: "THE FIRST PROMPT " + strings.Repeat("x", 3000)})
	for i := range 400 {
		id, ap := domain.StepID(fmt.Sprintf("st_%04d", i)), domain.ApprovalID(fmt.Sprintf("ap_%04d", i))
		add(id, &event.StepRequested{Number: i, Tool: "exec", Title: fmt.Sprintf("Run thing number %d", i), Args: []byte(`{}`)})
		add(id, &event.ApprovalRequested{Approval: ap, Kind: "step", Title: fmt.Sprintf("Run thing number %d", i), Choices: []event.Choice{{ID: "once", Label: "Allow once"}, {ID: "deny", Label: "Deny"}}})
		if i%20 == 5 {
			add(id, &event.ApprovalAnswered{Approval: ap, Choice: "deny", Text: fmt.Sprintf("NO-%d", i), By: "person"})
			add(id, &event.StepRefused{State: domain.StepDenied, Reason: "the person said no"})
			continue
		}
		add(id, &event.ApprovalAnswered{Approval: ap, Choice: "once", By: "person"})
		add(id, &event.StepStarted{})
		add(id, &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: new(int)})
		add(id, &event.StepSealed{Changes: []event.FileChange{{Path: fmt.Sprintf("dir/file-%d", i), Op: "modify", Added: i}}})
		add("", &event.Message{Role: "person", Text: fmt.Sprintf("message %d %s", i, strings.Repeat("y", 200))})
	}
	add("st_9", &event.StepRequested{Number: 900, Tool: "exec", Title: "Run the server"})
	add("st_9", &event.StepStarted{})
	add("", &event.ApprovalRequested{Approval: "ap_open", Kind: "egress", Title: "Connect to open.example:443"})
	add("", &event.CheckRan{Name: "unit", OK: false, Reason: "2 fail"})
	add("", &event.CheckRan{Name: "lint", OK: true})
	add("", &event.Message{Role: "person", Text: "THE NEWEST MESSAGE"})
	shown := 0
	for _, n := range []int{24 << 10, 12 << 10, 6 << 10, 4 << 10, 2500} {
		s := f.kept(n, 1<<60)
		if len(s) > n {
			t.Errorf("%d bytes of %d", len(s), n)
		}
		if s != f.kept(n, 1<<60) {
			t.Error("it is not the same twice")
		}
		has(t, s, "THE FIRST PROMPT", "THE NEWEST MESSAGE", "Run the server", "open.example", "unit: failed: 2 fail", "lint: passed", "allowed once: ", "earlier steps")
		if n >= 4<<10 {
			for i := 5; i < 400; i += 20 {
				has(t, s, fmt.Sprintf("NO-%d", i))
			}
		}
		if k := strings.Count(s, "\n"); shown > 0 && k > shown {
			t.Errorf("with %d bytes it has more lines (%d) than with more (%d)", n, k, shown)
		} else {
			shown = k
		}
	}
	for _, n := range []int{1500, 400, 60, 1} {
		if s := f.kept(n, 1<<60); len(s) > n {
			t.Errorf("%d bytes of %d", len(s), n)
		}
	}
}

func TestCompactionAcrossACrash(t *testing.T) {
	rec := newHouse(t)
	m := newMind(t, nil)
	m.cfg.Context = 32000
	longWork(t, rec, m, 100)
	whole := rec.events()
	around := map[int]bool{}
	for i, e := range whole {
		if e.Type == "context.compacted" {
			for d := -3; d <= 3; d++ {
				around[i+d] = true
			}
		}
	}
	for cut := range around {
		h := newHouse(t)
		h.log, h.blobs, h.turn = append([]event.Envelope(nil), whole[:cut]...), rec.blobs, rec.turn
		h.run = func(*event.StepRequested) (*event.StepEnded, *event.StepRefused) { return wrote(0, "x"), nil }
		h.ask = func(agent.Question) agent.Reply { return agent.Reply{State: "answered", Choice: "go_on"} }
		m := newMind(t, func(i int, r model.Request) (model.Answer, error) {
			has(t, textOf(r, model.RoleUser)+textOf(r, model.RoleTool), "Port the parser", "never touch the vendor folder")
			return say("ok"), nil
		})
		m.cfg.Context = 32000
		mustWork(t, h, m)
		oneResultEach(t, h)
	}
}
