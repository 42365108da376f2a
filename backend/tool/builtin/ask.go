package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/tool"
)

type askArgs struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
	FreeText bool     `json:"free_text"`
}

func askUser() tool.Tool {
	t := tool.Tool{
		Name: "ask_user",
		Description: "Ask the person who watches this session, and wait for the answer. Use it when you cannot go on without a decision or a fact that only the person has. " +
			"Give options when the answer is one of a few; without options the person writes a text. No answer is not a no: state says whether the question was answered, expired or cancelled.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"question": {"type": "string", "minLength": 1, "maxLength": 900},
				"options": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}, "minItems": 1, "maxItems": 8, "uniqueItems": true},
				"free_text": {"type": "boolean", "description": "the person may also write a text beside the options"}
			},
			"required": ["question"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachPerson,
		Title: func(raw json.RawMessage) string { return "Ask: " + args[askArgs](raw).Question },
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			a := args[askArgs](c.Args)
			if c.Asker == nil {
				return tool.Result{}, domain.E(domain.CodeUnavailable, "Nobody can be asked here", "decide with what you know, and say which decision you took", nil)
			}
			if strings.TrimSpace(a.Question) == "" {
				e := domain.E(domain.CodeInvalid, "The question is empty", "", nil)
				e.Pointer = "/question"
				return tool.Result{}, e
			}
			r, err := c.Asker.AskUser(ctx, tool.Question{Text: a.Question, Options: a.Options, FreeText: a.FreeText || len(a.Options) == 0})
			if err != nil {
				return tool.Result{}, err
			}
			res, err := answer(struct {
				State  string `json:"state"`
				Option string `json:"option,omitempty"`
				Text   string `json:"text,omitempty"`
			}{r.State, r.Option, headOf(clean(r.Text), fileText)})
			switch r.State {
			case "answered":
				res.Text = strings.TrimSpace(r.Option + "\n" + r.Text)
			case "expired":
				res.Outcome, res.Error = domain.OutcomeTimeout, "Nobody answered in time; that is neither a yes nor a no"
			default:
				res.Outcome, res.Error = domain.OutcomeCancelled, fmt.Sprintf("The question was not answered (%s); that is neither a yes nor a no", show(r.State))
			}
			return res, err
		},
	}
	// The question outlives the core that put it; the asker waits for it again.
	t.Resume = t.Handler
	return t
}
