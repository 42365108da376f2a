package builtin

import (
	"context"
	"encoding/json"
	"errors"

	"glasshouse/backend/domain"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

type restoreArgs struct {
	Checkpoint string `json:"checkpoint"`
	Label      string `json:"label"`
	Before     string `json:"before"`
}

func restoreTool() tool.Tool {
	return tool.Tool{
		Name: tool.Restore,
		Description: "Put the files of the workspace back to what a checkpoint holds. What is there now is kept in a checkpoint first. " +
			"Files that no checkpoint holds (ignored ones) stay as they are, and so does .git, unless it was destroyed: then it is made anew, without the commits made in the machine.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"checkpoint": {"type": "string", "pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$", "description": "the state to go back to"},
				"label": {"type": "string", "maxLength": 100, "description": "what a person calls that state"},
				"before": {"type": "string", "pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$", "description": "a checkpoint of what is there now"}
			},
			"required": ["checkpoint"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachMachine, Changes: true, Alone: true, PersonOnly: true,
		Title: func(raw json.RawMessage) string {
			a := args[restoreArgs](raw)
			if a.Label == "" {
				a.Label = "checkpoint " + a.Checkpoint[:12]
			}
			return "Restore to " + a.Label
		},
		Handler: runRestore,
		// Done twice it is the same. What was there before the first time is known from
		// the arguments alone.
		Resume: func(ctx context.Context, c tool.Call) (tool.Result, error) { return restore(ctx, c, true) },
	}
}

func runRestore(ctx context.Context, c tool.Call) (tool.Result, error) { return restore(ctx, c, false) }

func restore(ctx context.Context, c tool.Call, again bool) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[restoreArgs](c.Args)
	before, err := g.Checkpoints().Restore(ctx, a.Checkpoint)
	for tries := 0; errors.Is(err, guest.ErrGone) && a.Before != "" && tries < 3 && ctx.Err() == nil; tries++ {
		again = true
		before, err = g.Checkpoints().Restore(ctx, a.Checkpoint)
	}
	switch {
	case errors.Is(context.Cause(ctx), tool.ErrLeaving):
		return tool.Result{}, context.Cause(ctx) // the next core begins it again
	case err != nil && ctx.Err() != nil:
		return tool.Result{Outcome: domain.OutcomeCancelled, Error: mixture("cancelled on the way", a.Before)}, nil //nolint:nilerr // the outcome says it
	case errors.Is(err, guest.ErrNotFound):
		return tool.Result{}, domain.E(domain.CodeNotFound, "The machine has no checkpoint "+a.Checkpoint+"; nothing was restored", "take one that a sealed step names", err)
	case errors.Is(err, guest.ErrGone):
		return tool.Result{Outcome: domain.OutcomeUnknown, Lost: true, Error: mixture("the connection to the machine broke while it restored", a.Before)}, nil
	case err != nil:
		return tool.Result{}, err
	}
	r := tool.Restored{Checkpoint: a.Checkpoint, Before: before.Commit}
	if again && a.Before != "" {
		r.Before = a.Before
	}
	changes, more, err := g.Checkpoints().Diff(ctx, r.Before, r.Checkpoint)
	r.Files, r.More = len(changes), more || err != nil // it is done, whether they can be counted or not
	if c.Repair != nil {
		switch made, err := c.Repair(ctx); {
		case errors.Is(context.Cause(ctx), tool.ErrLeaving):
			return tool.Result{}, context.Cause(ctx)
		case err != nil && ctx.Err() != nil:
			r.Repository = "cancelled before it was known to be whole"
		case err != nil:
			r.Repository = "it could not be made anew: " + tool.OneLine(clean(err.Error()), 500)
		case made:
			r.Repository = "made anew"
		}
	}
	return answer(r)
}

// mixture says what a restore that did not go through leaves, and how to go on.
func mixture(why, before string) string {
	text := why + ": the files may be a mixture of both states. "
	if before == "" {
		return text + "Restore again"
	}
	return text + "What was there before is in checkpoint " + before + "; restore to that, or restore again"
}
