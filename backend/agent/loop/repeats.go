package loop

import (
	"context"
	"fmt"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

const (
	window = 20 // calls back in which repeats count
	same   = 2  // earlier calls with the same result after which the person is asked
	polled = 9  // earlier calls with results that differ
)

// repeats asks the person before a call runs that was made before in the same way, and
// led to the same each time.
func (t *turn) repeats(ctx context.Context, calls []event.ModelPart) error {
	for _, c := range calls {
		var results []seen
		for _, s := range t.conv.now.since {
			if s.call == signature(c) {
				results = append(results, s)
			}
		}
		n := len(results)
		alike := n >= same && results[n-1] == results[n-2]
		if !alike && n < polled {
			continue
		}
		last := t.lastResult(c)
		title := fmt.Sprintf("The model makes the same call again (%s), after %d times with the same result. Let it go on?", line(c.Tool, 80), n)
		if !alike {
			title = fmt.Sprintf("The model makes the same call for the %dth time (%s). Let it go on?", n+1, line(c.Tool, 80))
		}
		return t.put(ctx, agent.Question{Kind: kindLoop, Key: c.Key, Title: title, Detail: []event.Field{
			{Name: "tool", Value: line(c.Tool, 80), Origin: domain.OriginAgent},
			{Name: "arguments", Value: cutMiddle(clean(c.Args), 4000), Origin: domain.OriginAgent},
			{Name: "last result", Value: cutMiddle(clean(last), 4000), Origin: domain.OriginGuest}}})
	}
	return nil
}

// lastResult of a call like this one.
func (t *turn) lastResult(c event.ModelPart) string {
	want := signature(c)
	for i := len(t.conv.entries) - 1; i >= 0; i-- {
		a := t.conv.entries[i].ans
		if a == nil || !a.told {
			continue
		}
		for _, p := range a.calls() {
			if signature(p) != want {
				continue
			}
			for _, r := range a.results {
				if r.Key == p.Key {
					return r.Text
				}
			}
		}
	}
	return ""
}
