package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
)

// checksName is the loop's tool that runs the session's declared checks: each is a step
// of its own, under the call's key with the check's number behind it.
const checksName = "checks"

func checksTool() tool.Tool {
	return tool.Tool{
		Name:        checksName,
		Description: words["checks-tool"],
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"names": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}, "minItems": 1, "maxItems": 20, "uniqueItems": true, "description": "only these; without it, all"}
			},
			"additionalProperties": false
		}`),
		Reach:   domain.ReachMachine,
		Changes: true,
		Handler: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{}, fmt.Errorf("checks are steps of exec")
		},
	}
}

// ran is one check under way.
type ran struct {
	check event.Check
	step  agent.Step
	err   error
}

func checkKey(key string, i int) string { return fmt.Sprintf("%s/%d", key, i+1) }

// beginChecks makes the steps of a call of checks with valid, canonical arguments.
func (t *turn) beginChecks(ctx context.Context, c *call, args json.RawMessage) error {
	var in struct{ Names []string }
	if err := json.Unmarshal(args, &in); err != nil {
		return err
	}
	v, err := t.room.Session(ctx)
	if err != nil {
		return err
	}
	var names []string
	known := map[string]event.Check{}
	for _, k := range v.Checks {
		names = append(names, k.Name)
		known[k.Name] = k
	}
	if len(names) == 0 {
		c.end(problem("The session declares no checks; nothing ran", nil, "find out with exec whether your work is right"), true)
		return nil
	}
	if len(in.Names) == 0 {
		in.Names = names
	}
	for i, n := range in.Names {
		if _, ok := known[n]; !ok {
			c.end(problem("There is no such check; nothing ran", []tool.Problem{{Pointer: fmt.Sprintf("/names/%d", i), Expected: "one of " + strings.Join(names, ", "), Got: line(n, 200)}}, ""), true)
			return nil
		}
	}
	for i, n := range in.Names {
		r := ran{check: known[n]}
		raw, err := session.CheckArgs(r.check)
		if err == nil {
			r.step, err = t.room.Begin(ctx, "exec", raw, checkKey(c.part.Key, i))
		}
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.err = err; err == nil && c.result.Step == "" {
			c.result.Step = r.step.View().ID // it came to something
		}
		c.checks = append(c.checks, r)
	}
	return nil
}

// waitChecks waits for their ends and says how they went.
func waitChecks(ctx context.Context, c *call) error {
	var b strings.Builder
	failed := 0
	for _, r := range c.checks {
		ok, why, said := false, "", ""
		if r.err != nil {
			why = r.err.Error()
		} else {
			v, err := r.step.Wait(ctx, domain.StepEnded)
			if err != nil {
				return err
			}
			ok, why = session.Verdict(r.check, v)
			said, _, _ = outcome(v)
		}
		if ok {
			fmt.Fprintf(&b, "ok: %s\n", line(r.check.Name, 200))
			continue
		}
		failed++
		fmt.Fprintf(&b, "failed: %s: %s\n%s\n", line(r.check.Name, 200), why, cutMiddle(said, 4000))
	}
	if failed > 0 {
		fmt.Fprintf(&b, "%s of %d failed.", plural(failed, "check", "checks"), len(c.checks))
	}
	c.end(strings.TrimSpace(b.String()), failed > 0)
	return nil
}

// settleChecks waits until what an earlier core began of a call is over: how it went
// does not count, for the call may be made again.
func (t *turn) settleChecks(ctx context.Context, c *call) error {
	for i := 0; ; i++ {
		id, began := t.conv.keys[checkKey(c.part.Key, i)]
		if !began {
			break
		}
		c.result.Step = id
		st, err := t.room.Step(ctx, id)
		if err == nil {
			_, err = st.Wait(ctx, domain.StepEnded)
		}
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	c.end("Interrupted: call it again to know how the checks go.", true)
	return nil
}
