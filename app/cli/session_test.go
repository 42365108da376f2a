package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// What exec leaves behind does not crowd the list of sessions; programs get all of it.
func TestSessionList(t *testing.T) {
	d := newDoors(t)
	put := func(list string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.answer["GET /v1/projects"] = reply{200, `[{"id":"p_1","name":"shop"}]`}
		d.answer["GET /v1/sessions"] = reply{200, list}
	}
	model := `{"id":"` + doorSession + `","project_id":"p_1","agent":"model","state":"ended","class":"task","title":"mend it"}`
	put(`[{"id":"s_exec","project_id":"p_1","agent":"manual","state":"ended","class":"ephemeral"},` + model + `,
		{"id":"s_hand","project_id":"p_1","agent":"manual","state":"idle","class":"task","title":"by hand"},
		{"id":"s_book","project_id":"p_1","agent":"playbook","state":"ended","class":"task"},
		{"id":"s_runs","project_id":"p_1","agent":"manual","state":"running","class":"ephemeral"},
		{"id":"s_done","project_id":"p_1","agent":"manual","state":"ended","class":"task"}]`)
	r := line(t, "", "session", "list")
	if r.code != 0 || strings.Count(r.out, "\n") != 4 || strings.Contains(r.out, "s_exec") || strings.Contains(r.out, "s_done") {
		t.Errorf("%+v", r)
	}
	has(t, r.out, doorSession, "shop", "mend it", "s_hand", "by hand", "s_book", "s_runs")
	has(t, r.err, "2 ended sessions of commands are not shown; --all shows them")
	r = line(t, "", "session", "list", "--all")
	if r.code != 0 || strings.Count(r.out, "\n") != 6 || r.err != "" {
		t.Errorf("%+v", r)
	}
	r = line(t, "", "--json", "session", "list")
	var all []domain.Session
	if r.code != 0 || r.err != "" || json.Unmarshal([]byte(r.out), &all) != nil || len(all) != 6 {
		t.Errorf("%+v", r)
	}
	put(`[{"id":"s_exec","project_id":"p_1","agent":"manual","state":"ended","class":"ephemeral"}]`)
	if r = line(t, "", "session", "list"); r.out != "" || !strings.Contains(r.err, "1 ended session of commands is not shown; --all shows it") {
		t.Errorf("%+v", r)
	}
	put(`[]`)
	if r = line(t, "", "session", "list"); r.out != "" || !strings.Contains(r.err, "no sessions; start one") {
		t.Errorf("%+v", r)
	}
	if r = line(t, "", "--json", "session", "list"); strings.TrimSpace(r.out) != "[]" || r.err != "" {
		t.Errorf("%+v", r)
	}
}

func asked(number int, tool string) *event.StepRequested {
	return &event.StepRequested{Number: number, Tool: tool, Title: "Run it"}
}

// A refused call says what refused it, and a mode says who set it, also where it was
// set between the turns.
func TestWatchShowsWhatDecidedAndWhatWasSet(t *testing.T) {
	d := newDoors(t)
	ask, plan, auto := "ask", "plan", "auto"
	d.tell(&event.SessionChanged{Mode: &ask})
	d.tell(&event.TurnStarted{Turn: "t_0", Agent: "model", Prompt: "the first"}, &event.TurnEnded{Turn: "t_0", Result: "ok"})
	d.tell(&event.SessionChanged{Mode: &plan}, &event.SessionChanged{Mode: &auto}, &event.SessionChanged{Mode: &plan})
	d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "the second"})
	d.tellStep("st_1", asked(1, "exec"),
		&event.StepDecided{Decision: domain.Deny, Rule: "mode:plan", Reason: "In plan mode nothing is changed.", WouldAllow: "tools that only read"},
		&event.StepRefused{State: domain.StepDenied, Reason: "In plan mode nothing is changed.", Allowed: "tools that only read"})
	d.tell(&event.SessionChanged{Mode: &auto})
	d.tellStep("st_2", asked(2, "exec"), &event.StepDecided{Decision: domain.Deny, Rule: "user:no-\x1bpublish", Reason: "Releases are made by hand."}, &event.StepRefused{State: domain.StepDenied, Reason: "Releases are made by hand."})
	d.tellStep("st_3", asked(3, "exec"), &event.StepDecided{Decision: domain.Ask, Rule: "mode:ask", Reason: "Everything asks."}, &event.StepRefused{State: domain.StepDenied, Reason: "the person said no"})
	d.tellStep("st_4", asked(4, "exec"), &event.StepDecided{Decision: domain.Ask, Rule: "default", Reason: "It leaves the machine."}, &event.StepRefused{State: domain.StepExpired, Reason: "nobody answered in time"})
	d.tell(&event.TurnEnded{Turn: doorTurn, Result: "ok"})
	r := line(t, "", "session", "watch", doorSession)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	has(t, r.out, "from now on: mode plan, set by person\n", "from now on: mode auto, set by person\n", "from now on: mode plan, set by person\n", "turn by person: the second\n",
		"  1 ✗ denied by mode plan: In plan mode nothing is changed.\n", "what would be allowed: tools that only read\n",
		"from now on: mode auto, set by person\n",
		"  2 ✗ denied by rule user:no-\\x1bpublish: Releases are made by hand.\n",
		"  3 · asks by mode ask: Everything asks.\n", "  3 ✗ denied: the person said no\n",
		"  4 · asks: It leaves the machine.\n", "  4 ✗ expired: nobody answered in time\n")
	if strings.Contains(r.out, "mode ask, set") || strings.Contains(r.out, "the first") {
		t.Errorf("of the turn before: %s", r.out)
	}
	// As JSON it is the turn's events alone.
	r = line(t, "", "--json", "session", "watch", doorSession)
	if first, _, _ := strings.Cut(r.out, "\n"); !strings.Contains(first, `"turn.started"`) || !strings.Contains(first, doorTurn) {
		t.Errorf("%s", first)
	}
	r = line(t, "", "log", "--session", doorSession)
	has(t, r.out, "session.changed", "mode plan", "step.decided", "deny by mode plan: In plan mode", "step.refused", "denied: In plan mode", "session.changed", "mode auto", "deny by rule user:no-", "ask by mode ask: Everything", "ask: It leaves")
}

// A command that was refused says by what.
func TestExecSaysWhatDeniedIt(t *testing.T) {
	d := newDoors(t)
	put := func(decision string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.answer["POST /v1/sessions/"+doorSession+"/exec"] = reply{200, `{"execution_id":"st_1","state":"denied","logs":["By hand alone.","what would be allowed: less"]}`}
		d.answer["GET /v1/sessions/"+doorSession+"/steps/st_1"] = reply{200, `{"id":"st_1","state":"denied","decision":` + decision + `}`}
		d.answer["PUT /v1/sessions/"+doorSession+"/file"] = reply{200, `{"id":"st_1","state":"denied","decision":` + decision + `,"refused":{"state":"denied","reason":"By hand alone."}}`}
	}
	for decision, by := range map[string]string{
		`{"decision":"deny","rule":"user:no-publish"}`: "denied by rule user:no-publish",
		`{"decision":"deny","rule":"mode:plan"}`:       "denied by mode plan",
		`{"decision":"ask","rule":"mode:ask"}`:         "denied", // by a person
	} {
		put(decision)
		r := line(t, "", "exec", "--session", doorSession, "--", "npm", "publish")
		if r.code != 125 || r.out != "" || r.err != "glasshouse: "+by+": By hand alone.\nglasshouse: what would be allowed: less\n" {
			t.Errorf("%s: %+v", decision, r)
		}
		if r = line(t, "", "file", "write", doorSession, "x"); r.code != 1 || !strings.Contains(r.err, "nothing was written, "+by+": By hand alone.") {
			t.Errorf("%s: %+v", decision, r)
		}
		if r = line(t, "", "--json", "exec", "--session", doorSession, "--", "x"); r.code != 125 || strings.Contains(r.out, "denied by") || !strings.Contains(r.out, `"By hand alone."`) {
			t.Errorf("%s: %+v", decision, r)
		}
	}
}
