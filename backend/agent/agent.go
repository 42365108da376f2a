// Package agent is the contract of what can work in a session: a playbook (a
// written list of tool calls), later a model loop and outside agents. An agent
// sees the session through Work alone and holds no other power.
package agent

import (
	"context"
	"encoding/json"

	"glasshouse/backend/domain"
	"glasshouse/backend/session"
)

// Work is what an agent can do in its session.
type Work interface {
	// Call runs one tool call to the state asked for and returns it. Invalid
	// arguments and unknown tools are errors that say how to mend them.
	Call(ctx context.Context, tool string, args json.RawMessage, until domain.StepState) (session.StepView, error)
	// Say records what the agent says.
	Say(ctx context.Context, text string) error
}

// Agent works on one turn until it is done. An error ends the turn as failed;
// whether the result is right is for the session's declared checks to say.
type Agent interface {
	Name() string // "playbook", …
	Turn(ctx context.Context, w Work, prompt string) error
}
