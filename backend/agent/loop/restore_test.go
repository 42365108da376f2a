package loop

import (
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/tool"
)

// A model hears that the person put the files back, here or in another session, and
// never finds the tool that does it among its own.
func TestRestoresAreTold(t *testing.T) {
	h := newHouse(t)
	restore := func(step domain.StepID, outcome domain.Outcome) {
		h.put(step, &event.StepRequested{Tool: tool.Restore, Title: "Restore to after step 1"})
		h.put(step, &event.StepStarted{})
		h.put(step, &event.StepEnded{Outcome: outcome})
	}
	restore("st_0", domain.OutcomeOK) // before there is a model that could be wrong
	h.begin("x")
	mustWork(t, h, newMind(t, func(n int, r model.Request) (model.Answer, error) {
		hasNot(t, textOf(r, model.RoleUser), "put the files")
		return say("Done."), nil
	}))
	h.put("", &event.TurnEnded{Turn: h.turn, Result: "unchecked"})
	restore("st_1", domain.OutcomeOK)
	h.begin("And y?")
	seen := func(n int, r model.Request) (model.Answer, error) {
		said := textOf(r, model.RoleUser)
		has(t, said, "put the files of the workspace back to an earlier state: Restore to after step 1.", "And y?")
		hasNot(t, said, "mixture")
		return say("Done again."), nil
	}
	mustWork(t, h, newMind(t, seen))
	h.put("", &event.TurnEnded{Turn: h.turn, Result: "unchecked"})
	restore("st_2", domain.OutcomeCancelled)
	h.put("", &event.Message{Role: "host", Text: tool.RestoredText("Restore to before step 7", domain.OutcomeOK)})
	h.begin("And z?")
	mustWork(t, h, newMind(t, func(n int, r model.Request) (model.Answer, error) {
		has(t, textOf(r, model.RoleUser), "(cancelled), so that the files may be a mixture", "Restore to before step 7.", "And z?")
		return say("Done."), nil
	}))
}
