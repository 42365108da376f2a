package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"glasshouse/backend/event"
)

// showLog prints stored events from the beginning, and goes on when asked to.
func (e *env) showLog(ctx context.Context, session, types string, follow bool) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	q := url.Values{}
	if session != "" {
		q.Set("session_id", session)
	}
	if types != "" {
		q.Set("types", types)
	}
	shown := false
	print := func(ev event.Envelope) {
		shown = true
		if e.json {
			_ = json.NewEncoder(plain{e.out}).Encode(ev)
			return
		}
		fmt.Fprintf(e.out, "%6d  %s  %-20s %-6s %-14s ", ev.ID, when(ev.At), ev.Type, ev.Origin, one(string(ev.Actor)))
		fmt.Fprintln(e.out, one(clip(logText(ev), 200)))
	}
	if follow {
		err := c.follow(ctx, q, 0, func(ev event.Envelope) (bool, error) { print(ev); return true, nil })
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the person ending it is how it ends
		}
		return err
	}
	if err := c.stored(ctx, q, print); err != nil {
		return err
	}
	if !shown && session != "" { // it has none, or there is none
		return c.get(ctx, at{"sessions", session}, nil, nil)
	}
	return nil
}

// logText is what an event says in a line: its data, but of a model's events and of
// decisions what a person looks for in them.
func logText(ev event.Envelope) string {
	p, err := event.Decode(ev)
	if err != nil {
		return string(ev.Data)
	}
	switch p := p.(type) {
	case *event.ModelAnswered:
		var t tally
		t.add(p)
		text := fmt.Sprintf("%d %s %s: %s", p.Number, p.Model, p.Stop, t.tokens())
		if p.Purpose != "" && p.Purpose != p.Stop {
			text += ", for a " + p.Purpose
		}
		for _, part := range p.Parts {
			switch part.Kind {
			case "text":
				text += " “" + firstLine(part.Text, 60) + "”"
			case "call":
				text += " " + part.Tool + firstLine(part.Args, 60)
			}
		}
		return text
	case *event.ModelTold:
		var parts []string
		for _, r := range p.Results {
			mark := "✓"
			if r.Failed {
				mark = "✗"
			}
			parts = append(parts, mark+" "+r.Tool+" “"+firstLine(r.Text, 60)+"”")
		}
		return strings.Join(parts, " ")
	case *event.ModelRetried:
		return fmt.Sprintf("attempt %d failed (%s): %s; the next one in %.1f s", p.Attempt, p.Kind, p.Reason, float64(p.WaitMS)/1000)
	case *event.PlanUpdated:
		var parts []string
		for _, it := range p.Items {
			parts = append(parts, boxes[it.State]+" "+it.Text)
		}
		return strings.Join(parts, " ")
	case *event.ContextCompacted:
		return fmt.Sprintf("up to event %d: %s tokens, now about %s %s", p.Through, count(p.Before), count(p.After), p.Reason)
	case *event.SessionChanged:
		return settingsText(p)
	case *event.StepDecided:
		return string(p.Decision) + by(p.Rule) + ": " + p.Reason
	case *event.StepRefused:
		return string(p.State) + ": " + p.Reason
	}
	return string(ev.Data)
}

// stored hands over the events recorded until now.
func (c *Client) stored(ctx context.Context, q url.Values, f func(event.Envelope)) error {
	var info struct {
		Latest int64 `json:"latest_event_id"`
	}
	if err := c.get(ctx, at{"info"}, nil, &info); err != nil {
		return err
	}
	types := q.Get("types")
	for after := int64(0); after < info.Latest; {
		q.Set("after", fmt.Sprint(after))
		q.Set("limit", "1000")
		var page []event.Envelope
		if err := c.get(ctx, at{"log"}, q, &page); err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, ev := range page {
			if types == "" || contains(types, string(ev.Type)) {
				f(ev)
			}
			after = ev.ID
		}
	}
	return nil
}

func contains(list, item string) bool {
	for _, s := range strings.Split(list, ",") {
		if s == item {
			return true
		}
	}
	return false
}
