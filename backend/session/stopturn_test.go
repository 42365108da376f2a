package session

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

// A stopped turn's end is one record with that of its last step, in this order; where
// the log refuses the two together, or other steps end at the same time, each is recorded
// by itself, and nothing is lost.
func TestStopTurn(t *testing.T) {
	full := errors.New("no space")
	for name, tc := range map[string]struct {
		steps   int
		refuse  bool
		batches [][]event.Type // those with an end of the turn; nil = not looked at
	}{
		"no step":    {0, false, [][]event.Type{{"turn.ended", "session.state"}}},
		"one step":   {1, false, [][]event.Type{{"step.ended", "turn.ended", "session.state"}}},
		"a full log": {1, true, [][]event.Type{{"turn.ended", "session.state"}}},
		"many steps": {4, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s := b.session()
			turn, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "work", Agent: "model", Actor: "person"})
			if err != nil {
				t.Fatal(err)
			}
			var sts []*Step
			for i := range tc.steps {
				if i == 0 {
					sts = append(sts, b.call(s, "exec", argv("wait", "never")))
				} else {
					sts = append(sts, b.call(s, "look", map[string]any{"wait": "never"})) // looks run beside each other
				}
			}
			b.until("the steps to run", func() bool {
				return !slices.ContainsFunc(sts, func(st *Step) bool { return st.View().State != domain.StepRunning })
			})
			var mu sync.Mutex
			var batches [][]event.Type
			refused := 0
			b.log.setRefuse(func(n event.New) error {
				mu.Lock()
				defer mu.Unlock()
				if typ := n.Payload.EventType(); typ == "turn.ended" && tc.refuse && refused == 0 {
					refused++
					return full
				}
				return nil
			})
			b.log.watch(func(events []event.Envelope) {
				mu.Lock()
				defer mu.Unlock()
				var types []event.Type
				for _, e := range events {
					types = append(types, e.Type)
				}
				if slices.Contains(types, "turn.ended") {
					batches = append(batches, types)
				}
			})
			end, err := b.svc.StopTurn(b.ctx(), s, turn, "it was stopped", "agent:model")
			if err != nil || end.Result != "cancelled" || end.Reason != "it was stopped" {
				t.Fatalf("%+v, %v", end, err)
			}
			for _, st := range sts {
				if v := st.View(); !st.over() || v.Ended == nil || v.Ended.Outcome != domain.OutcomeCancelled {
					t.Errorf("the turn ended before its step: %+v", v)
				}
			}
			if v := b.view(s); v.State != domain.SessionIdle || v.Turn != "" {
				t.Errorf("%+v", v)
			}
			mu.Lock()
			if tc.batches != nil && !slices.EqualFunc(batches, tc.batches, slices.Equal) {
				t.Errorf("recorded %v", batches)
			}
			mu.Unlock()
			var last []event.Type
			if err := b.log.Fold(b.ctx(), eventlog.Filter{Session: s, Types: []event.Type{"step.ended", "turn.ended"}}, func(e event.Envelope) error {
				last = append(last, e.Type)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if len(last) != tc.steps+1 || last[tc.steps] != "turn.ended" {
				t.Errorf("%v", last)
			}
			// It is over: once, and another may begin.
			if _, err := b.svc.StopTurn(b.ctx(), s, turn, "again", "agent:model"); domain.CodeOf(err) != domain.CodeConflict {
				t.Error(err)
			}
			if _, err := b.svc.StartTurn(b.ctx(), s, TurnRequest{Prompt: "more", Agent: "model", Actor: "person"}); err != nil {
				t.Error(err)
			}
		})
	}
}
