package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// waiting knows what a turn is at while nothing of it is shown, so that a terminal can
// tell it from one that hangs.
type waiting struct {
	mu    sync.Mutex
	since time.Time // of the last event
	model bool      // a model works
	begun bool
	tools map[domain.StepID]string // of the steps there were
	open  []domain.StepID          // of those that have not ended
	runs  map[domain.StepID]bool
	asked map[domain.ApprovalID]bool
	call  string // the tool of a call that is being written
	size  int
}

func newWaiting() *waiting {
	return &waiting{since: time.Now(), tools: map[domain.StepID]string{}, runs: map[domain.StepID]bool{}, asked: map[domain.ApprovalID]bool{}}
}

// quiet is how long nothing has to come before it is said what is waited for.
const quiet = 2 * time.Second

func (w *waiting) see(ev event.Envelope, p event.Payload, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d, is := p.(*event.MessageDelta); is && d.Kind == "call" {
		if d.Tool != "" {
			w.call, w.size = d.Tool, 0
		}
		w.size += len(d.Text)
		return // the time counts from its begin, for nothing of it is shown
	}
	if event.Transient(p.EventType()) && p.EventType() != "message.delta" {
		return // nor is of these
	}
	w.since, w.call = now, ""
	switch p := p.(type) {
	case *event.TurnStarted:
		w.model, w.begun = p.Agent == "model", true
	case *event.TurnEnded:
		w.begun = false
	case *event.StepRequested:
		w.tools[ev.StepID] = p.Tool
		w.open = append(w.open, ev.StepID)
	case *event.StepStarted:
		w.runs[ev.StepID] = true
	case *event.StepEnded, *event.StepRefused:
		w.open = slices.DeleteFunc(w.open, func(id domain.StepID) bool { return id == ev.StepID })
	case *event.ApprovalRequested:
		w.asked[p.Approval] = true
	case *event.ApprovalAnswered:
		delete(w.asked, p.Approval)
	case *event.ApprovalClosed:
		delete(w.asked, p.Approval)
	}
}

// text says what is waited for; "" when there is nothing to say.
func (w *waiting) text(now time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := now.Sub(w.since)
	what := ""
	switch {
	case !w.begun || d < quiet:
		return ""
	case len(w.asked) > 0:
		what = "waiting for an answer"
	case len(w.open) == 1 && w.runs[w.open[0]]:
		what = one(clip(w.tools[w.open[0]], 40)) + " runs"
	case len(w.open) == 1: // until its machine is on and the checkpoint before it is taken
		what = one(clip(w.tools[w.open[0]], 40)) + " is about to run"
	case len(w.open) > 1:
		what = fmt.Sprintf("%d calls run", len(w.open))
	case w.call != "":
		what = fmt.Sprintf("the model writes a call of %s, %s bytes", one(clip(w.call, 40)), count(int64(w.size)))
	case w.model:
		what = "waiting for the model"
	default:
		return ""
	}
	return fmt.Sprintf("    … %s, %d s", what, int(d/time.Second))
}

// show keeps the screen's status until the context ends.
func (w *waiting) show(ctx context.Context, s *screen) {
	t := time.NewTicker(time.Second / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.status(w.text(time.Now()))
		}
	}
}
