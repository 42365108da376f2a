package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
)

// stepsShown is how many steps of a session are listed: the last ones.
const stepsShown = 20

// lastSteps are a session's last steps as they are now, oldest first.
func (c *Client) lastSteps(ctx context.Context, id string) ([]session.StepView, error) {
	var ids []domain.StepID
	q := url.Values{"session_id": {id}, "types": {"step.requested"}}
	if err := c.every(ctx, q, func(ev event.Envelope) (bool, error) {
		if ev.Type == "step.requested" {
			ids = append(ids, ev.StepID)
		}
		return true, nil
	}); err != nil {
		return nil, err
	}
	ids = ids[max(0, len(ids)-stepsShown):]
	steps := make([]session.StepView, len(ids))
	for i, step := range ids {
		if err := c.get(ctx, at{"sessions", id, "steps", string(step)}, nil, &steps[i]); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// showSteps prints a line for each: its number is what restore takes.
func showSteps(w io.Writer, all int, steps []session.StepView) {
	if len(steps) == 0 {
		return
	}
	if all > len(steps) {
		fmt.Fprintf(w, "\nthe last %d of %s steps:\n", len(steps), count(int64(all)))
	} else {
		fmt.Fprintln(w, "\nsteps:")
	}
	for _, v := range steps {
		state, kept := string(v.State), "no checkpoint"
		if v.Ended != nil && v.Ended.Outcome != domain.OutcomeOK {
			state += ", " + string(v.Ended.Outcome)
		}
		if v.Sealed != nil && v.Sealed.Commit != "" {
			kept = "checkpoint"
		}
		fmt.Fprintf(w, "%4d\t%s\t%s\t%s\t%s\n", v.Number, v.ID, one(state), kept, one(clip(v.Title, 80)))
	}
}
