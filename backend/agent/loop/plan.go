package loop

import (
	"context"
	"encoding/json"
	"fmt"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
)

// planName is the loop's own tool: it changes what the person sees of the agent's
// intentions and nothing else, so no step comes of it.
const planName = "plan"

func planTool() tool.Tool {
	return tool.Tool{
		Name:        planName,
		Description: words["plan"],
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"items": {"type": "array", "maxItems": 40, "items": {
					"type": "object",
					"properties": {
						"text": {"type": "string", "minLength": 1, "maxLength": 300},
						"state": {"enum": ["open", "doing", "done", "dropped"]}
					},
					"required": ["text", "state"],
					"additionalProperties": false
				}}
			},
			"required": ["items"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachPerson,
		Handler: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{}, fmt.Errorf("a plan is no step")
		},
	}
}

// planOf valid, canonical arguments.
func planOf(turn domain.TurnID, args json.RawMessage) (*event.PlanUpdated, error) {
	p := &event.PlanUpdated{Turn: turn}
	if err := json.Unmarshal(args, p); err != nil {
		return nil, err
	}
	p.Turn = turn
	for i := range p.Items {
		p.Items[i].Text = line(p.Items[i].Text, 300)
	}
	return p, nil
}

func planText(p *event.PlanUpdated) string {
	done, open := 0, 0
	for _, i := range p.Items {
		switch i.State {
		case "done":
			done++
		case "open", "doing":
			open++
		}
	}
	return fmt.Sprintf("The person sees the plan: %s, %d done, %d to do.", plural(len(p.Items), "item", "items"), done, open)
}
