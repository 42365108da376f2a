// Package agent is the contract of what can work in a session: a playbook (a
// written list of tool calls), a model, later outside agents. An agent sees the
// session through Work or Room alone and holds no other power.
package agent

import (
	"context"
	"encoding/json"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
)

// Work is what every agent can do in its session.
type Work interface {
	// Call runs one tool call to the state asked for and returns it. Invalid
	// arguments and unknown tools are errors that say how to mend them.
	Call(ctx context.Context, tool string, args json.RawMessage, until domain.StepState) (session.StepView, error)
	// Say records what the agent says.
	Say(ctx context.Context, text string) error
}

// Agent works on one turn until it is done. A Stopped error ends the turn as
// stopped, another as failed; whether the result is right is for the session's
// declared checks to say.
type Agent interface {
	Name() string // "playbook", "model", …
	Turn(ctx context.Context, w Work, prompt string) error
}

// Stopped says that a limit, or the person's answer to a question about one, ended a turn.
type Stopped struct{ Reason string }

func (s *Stopped) Error() string { return s.Reason }

// Room is a session as an agent sees it that keeps a conversation. It is made for one
// turn, and made again when a later core goes on with it.
type Room interface {
	Work
	Journal
	Turn() domain.TurnID
	// Session as it is now: mode, model, limits and checks may change during a turn.
	Session(ctx context.Context) (session.View, error)
	Project() (domain.Project, error)
	Tools() []tool.Tool
	// Begin makes a step of a call and returns it under way. Key is the caller's own
	// name for it, recorded with it.
	Begin(ctx context.Context, tool string, args json.RawMessage, key string) (Step, error)
	// Step finds a step of the session, also one an earlier core began.
	Step(ctx context.Context, id domain.StepID) (Step, error)
	// Ask puts a question that belongs to no step and waits for its answer. The same
	// question (Kind, Key) of the same turn that waits already is waited for, not put again.
	Ask(ctx context.Context, q Question) (Reply, error)
	// ReadFile reads a file of the workspace, at most limit bytes of it. A missing file
	// is a not_found error.
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
}

// Journal is the session's part of the log.
type Journal interface {
	// Record appends events to the session's stream as the agent's words, all or none.
	Record(ctx context.Context, ps ...event.Payload) error
	// Publish tells transient ones.
	Publish(p event.Payload)
	// Fold reads the session's events after an id, oldest first.
	Fold(ctx context.Context, after int64, fn func(event.Envelope) error) error
	PutBlob(ctx context.Context, data []byte, mime, name string) (event.Blob, error)
	ReadBlob(sha string, limit int64) ([]byte, error)
}

// Step under way or done.
type Step interface {
	View() session.StepView
	// Wait returns the step once it reached a state, or one from which it never will.
	Wait(ctx context.Context, until domain.StepState) (session.StepView, error)
}

// Question to the person.
type Question struct {
	Kind    string // "limit" or "loop"
	Key     string // what tells it from others of its kind in this turn
	Title   string
	Detail  []event.Field
	Choices []event.Choice
	Free    bool // a text may come with the answer
}

// Reply to it. State is "answered", "expired" or "cancelled".
type Reply struct {
	State  string
	Choice string
	Text   string
}
