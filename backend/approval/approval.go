// Package approval keeps the questions that wait for a person, and the answers
// that a person asked to be remembered.
//
// The event log is the truth: a question is an approval.requested event and ends by
// exactly one approval.answered or approval.closed. The Ledger is a fold over
// these, so pending questions survive a restart and can be answered after it. The
// first answer wins; a later one is told who answered what and when. Expiry and
// cancelling close a question without an answer: they are never a person's no, and
// nothing but an explicit answer becomes a grant.
package approval

import (
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Request is a question to a person.
type Request struct {
	Stream  event.Stream // "" = the session's, else the project's
	Project domain.ProjectID
	Session domain.SessionID
	Step    domain.StepID
	Actor   domain.Actor // who wants to know

	Kind   string // "step", "egress", "question", "push"; of an agent about its turn: "limit", "loop"
	Title  string
	Detail []event.Field // shown whole; what cannot be shown cannot be allowed
	Digest string        // what the answer is bound to; required
	// Choices are the only answers that are taken. A choice with a Grant is
	// remembered when it is picked.
	Choices  []event.Choice
	FreeText bool          // a text may come with the answer
	Expires  time.Duration // 0 = never
	Host     string
	Port     int
}

// State of a question.
type State string

const (
	Pending    State = "pending"
	Answered   State = "answered"
	Expired    State = "expired"
	Cancelled  State = "cancelled"
	Superseded State = "superseded"
)

// Approval is a question and what became of it.
type Approval struct {
	ID        domain.ApprovalID       `json:"id"`
	EventID   int64                   `json:"event_id"` // FIFO order
	Stream    event.Stream            `json:"stream"`
	Project   domain.ProjectID        `json:"project_id,omitempty"`
	Session   domain.SessionID        `json:"session_id,omitempty"`
	Step      domain.StepID           `json:"step_id,omitempty"`
	Asked     event.ApprovalRequested `json:"asked"`
	CreatedAt int64                   `json:"created_at"`
	Outcome   Outcome                 `json:"outcome"`
}

// Outcome of a question. Choice, Text and By are set when State is Answered.
type Outcome struct {
	State   State        `json:"state"`
	Choice  string       `json:"choice,omitempty"`
	Text    string       `json:"text,omitempty"`
	By      domain.Actor `json:"by,omitempty"`
	At      int64        `json:"at,omitempty"`
	GrantID string       `json:"grant_id,omitempty"` // the rule that the answer saved
}

// Grant is a remembered answer or a rule a person wrote.
type Grant struct {
	ID        string           `json:"id"`
	Project   domain.ProjectID `json:"project_id"`
	Session   domain.SessionID `json:"session_id,omitempty"` // set when Scope is "session"
	Rule      event.RuleAdded  `json:"rule"`
	CreatedAt int64            `json:"created_at"`
	Hits      int              `json:"hits"`
	LastHit   int64            `json:"last_hit,omitempty"`
}
