package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
)

// A session is shown with its last steps, so that what restore takes can be found.
func TestSessionShowListsSteps(t *testing.T) {
	d := newDoors(t)
	if r := line(t, "", "session", "show", doorSession); r.code != 0 || strings.Contains(r.out, "steps:") {
		t.Errorf("without any: %+v", r)
	}
	put := func(n int, v session.StepView) {
		v.ID, v.Number = domain.StepID(fmt.Sprintf("st_%d", n)), n
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		d.tellStep(v.ID, &event.StepRequested{Number: n, Tool: "exec"}, &event.StepStarted{})
		d.mu.Lock()
		defer d.mu.Unlock()
		d.answer["GET /v1/sessions/"+doorSession+"/steps/"+string(v.ID)] = reply{200, string(b)}
		d.answer["GET /v1/sessions/"+doorSession] = reply{200, fmt.Sprintf(`{"id":%q,"project_id":"p_1","agent":"model","state":"idle","steps":%d,"preset":"where it works\n"}`, doorSession, n)}
	}
	put(1, session.StepView{Title: "Run true\x1b[31m", State: domain.StepSealed, Ended: &event.StepEnded{Outcome: domain.OutcomeOK}, Sealed: &event.StepSealed{Commit: someState}})
	put(2, session.StepView{Title: "Read a.txt", State: domain.StepEnded, Ended: &event.StepEnded{Outcome: domain.OutcomeOK}})
	put(3, session.StepView{Title: "Run false " + strings.Repeat("x", 500), State: domain.StepSealed, Ended: &event.StepEnded{Outcome: domain.OutcomeFailed}, Sealed: &event.StepSealed{Failed: "full"}})
	r := line(t, "", "session", "show", doorSession)
	var got []string
	for _, l := range strings.Split(r.out, "\n") {
		if strings.Contains(l, "st_") {
			got = append(got, strings.Join(strings.Fields(l), " "))
		}
	}
	want := []string{`1 st_1 sealed checkpoint Run true\x1b[31m`, "2 st_2 ended no checkpoint Read a.txt", "3 st_3 sealed, " + string(domain.OutcomeFailed) + " no checkpoint Run false " + strings.Repeat("x", 70) + "…"}
	if r.code != 0 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d %s\n%s", r.code, r.err, strings.Join(got, "\n"))
	}
	has(t, r.out, "steps:\n", "st_3", "where it works\n")
	for n := 4; n <= 1234; n++ {
		if n > 1200 {
			put(n, session.StepView{Title: "Run it", State: domain.StepSealed})
		} else {
			d.tellStep(domain.StepID(fmt.Sprintf("st_%d", n)), &event.StepRequested{Number: n, Tool: "exec"})
		}
	}
	r = line(t, "", "session", "show", doorSession)
	has(t, r.out, "the last 20 of 1,234 steps:\n", "1215  st_1215", "1234  st_1234")
	if r.code != 0 || strings.Contains(r.out, "st_1214") {
		t.Errorf("%+v", r)
	}
	if r := line(t, "", "--json", "session", "show", doorSession); r.code != 0 || strings.Contains(r.out, `"st_`) || !json.Valid([]byte(r.out)) {
		t.Errorf("%+v", r)
	}
}
