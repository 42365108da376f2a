package cli

import (
	"strings"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

func TestWhatIsWaitedFor(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	w := newWaiting()
	w.since = now
	see := func(step domain.StepID, p event.Payload) { w.see(event.Envelope{StepID: step}, p, now) }
	says := func(want string) {
		t.Helper()
		if got := w.text(now.Add(quiet - 1)); got != "" {
			t.Errorf("it says %q at once", got)
		}
		if got := strings.TrimPrefix(w.text(now.Add(72*time.Second)), "    … "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	says("")
	see("", &event.TurnStarted{Agent: "model"})
	says("waiting for the model, 72 s")
	see("", &event.MessageDelta{Kind: "call", Tool: "edit\x1b", Text: strings.Repeat("x", 600)})
	see("", &event.MessageDelta{Kind: "call", Text: strings.Repeat("x", 600)})
	says(`the model writes a call of edit\x1b, 1,200 bytes, 72 s`)
	see("a", &event.StepRequested{Tool: "exec"})
	says("exec is about to run, 72 s")
	see("a", &event.StepStarted{})
	now = now.Add(time.Minute)
	see("a", &event.StepOutput{Text: "more"})
	now = now.Add(-time.Minute)
	says("exec runs, 72 s")
	see("b", &event.StepRequested{Tool: "read"})
	see("b", &event.StepStarted{})
	says("2 calls run, 72 s")
	see("a", &event.StepEnded{})
	says("read runs, 72 s")
	see("b", &event.ApprovalRequested{Approval: "ap"})
	says("waiting for an answer, 72 s")
	see("b", &event.ApprovalClosed{Approval: "ap"})
	see("b", &event.StepRefused{})
	says("waiting for the model, 72 s")
	see("", &event.TurnEnded{})
	says("")
	see("", &event.TurnStarted{Agent: "playbook"})
	says("")
}

// What is waited for stands on a line that goes away again, and only on a terminal.
func TestWaitingIsShownAndWiped(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) { d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "hi"}) }
	s := sit(t, "run", "--project", "shop", "hi")
	s.sees("waiting for the model, ")
	d.tell(answered("a", 1, text("text", "Here.")), ended("ok"))
	if code := s.ends(); code != 0 {
		t.Error(code)
	}
	_, after, _ := strings.Cut(s.text.String(), "waiting for the model, ")
	has(t, after, "\r\x1b[K  | Here.\r\n")
	has(t, s.lasting(), "hi\r\n  | Here.\r\n─── turn ok") // nothing of it is left
}
