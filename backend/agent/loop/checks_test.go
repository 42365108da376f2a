package loop

import (
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

func twoChecks(h *house) {
	h.view.Checks = []event.Check{{Name: "unit", Argv: []string{"go", "test"}}, {Name: "page", Code: "curl -f x", Has: "hello"}}
}

// The declared checks are a tool; each is a step, and what failed comes with its output.
func TestChecksAreATool(t *testing.T) {
	h := newHouse(t)
	twoChecks(h)
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		if strings.Contains(string(r.Args), "curl") {
			return wrote(0, "good bye\n"), nil
		}
		return wrote(0, "PASS\n"), nil
	}
	m := newMind(t, func(n int, r model.Request) (model.Answer, error) {
		switch n {
		case 0:
			return calls("checks", `{}`), nil
		case 1:
			return calls("checks", `{"names":["unit"]}`, "checks", `{"names":["lint"]}`, "checks", `{"names":[]}`), nil
		}
		return say("ok"), nil
	})
	h.begin("x")
	mustWork(t, h, m)
	got := results(t, m.asked[1])[0]
	has(t, got.Text, "ok: unit", "failed: page", `does not hold "hello"`, "good bye", "1 check of 2 failed")
	hasNot(t, got.Text, "PASS")
	if !got.Failed {
		t.Error("it is told as a success")
	}
	rs := results(t, m.asked[2])
	if n := len(rs); n < 3 || rs[n-3].Text != "ok: unit" || rs[n-3].Failed || !rs[n-2].Failed || !rs[n-1].Failed {
		t.Fatalf("%+v", rs)
	}
	has(t, rs[len(rs)-2].Text, "/names/0", "unit, page", "lint")
	has(t, rs[len(rs)-1].Text, "/names")
	for _, told := range recorded[*event.ModelTold](h) {
		if r := told.Results[0]; (r.Step == "") != (r.Failed && !strings.Contains(r.Text, "failed: ")) {
			t.Errorf("%+v", r)
		}
	}
	var keys []string
	for _, r := range recorded[*event.StepRequested](h) {
		keys = append(keys, r.Key)
	}
	if len(keys) != 3 || !strings.HasSuffix(keys[0], "/1") || !strings.HasSuffix(keys[1], "/2") || !strings.HasSuffix(keys[2], "/1") {
		t.Errorf("%v", keys)
	}
	var names []string
	for _, x := range m.asked[0].Tools {
		names = append(names, x.Name)
	}
	if names[len(names)-1] != "checks" {
		t.Errorf("tools: %v", names)
	}
}

func TestChecksWhereNoneAreDeclared(t *testing.T) {
	h := newHouse(t)
	m := newMind(t, func(n int, _ model.Request) (model.Answer, error) {
		if n == 0 {
			return calls("checks", `{}`), nil
		}
		return say("ok"), nil
	})
	h.begin("x")
	mustWork(t, h, m)
	has(t, results(t, m.asked[1])[0].Text, "declares no checks")
	for _, x := range m.asked[0].Tools {
		if x.Name == "checks" {
			t.Error("it is offered")
		}
	}
}

// A core that ends between two checks leaves steps; the next one waits for them, begins
// none, and says that the checks can be called again.
func TestChecksAcrossACrash(t *testing.T) {
	h := newHouse(t)
	twoChecks(h)
	h.begin("x")
	h.put("", &event.ModelAnswered{Turn: h.turn, Answer: "a_1", Number: 1, Stop: "calls", Parts: []event.ModelPart{{Kind: "call", Key: "c_1", ID: "1", Tool: "checks", Args: "{}"}}})
	st, err := h.Begin(t.Context(), "exec", []byte(`{"argv":["go","test"]}`), checkKey("c_1", 0))
	if err != nil {
		t.Fatal(err)
	}
	h.order = nil
	m := script(t, say("ok"))
	mustWork(t, h, m)
	if fmt.Sprint(h.order) != "[wait "+checkKey("c_1", 0)+"]" {
		t.Errorf("%v, not one wait for %v", h.order, st)
	}
	has(t, results(t, m.asked[0])[0].Text, "Interrupted", "again")
}
