// Package domain holds the nouns of Glasshouse, their ids and the tables that say
// which state may follow which. It imports only the standard library.
package domain

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Ids are a prefix and a sortable random part: lower case letters and digits only.
type (
	ProjectID    string
	SessionID    string
	StepID       string // unique for ever; also the execution id in the guest
	TurnID       string
	ApprovalID   string
	ReviewID     string
	MachineID    string // at most 10 characters: it is part of socket paths
	CheckpointID string
)

var enc = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

var lastID struct {
	sync.Mutex
	ms  int64
	low uint32
}

// NewID returns prefix_ plus 16 characters (48 bits of time, 32 random at first).
// Ids of one process sort by the order in which they were made, also within a
// millisecond and when the clock goes back.
func NewID(prefix string) string {
	var b [10]byte
	l := &lastID
	l.Lock()
	if ms := time.Now().UnixMilli(); ms > l.ms {
		_, _ = rand.Read(b[6:])
		l.ms, l.low = ms, binary.BigEndian.Uint32(b[6:])&0x7fffffff
	} else if l.low++; l.low == 0 {
		l.ms++
	}
	for i := range 6 {
		b[i] = byte(l.ms >> (8 * (5 - i)))
	}
	binary.BigEndian.PutUint32(b[6:], l.low)
	l.Unlock()
	return prefix + "_" + enc.EncodeToString(b[:])
}

// NewMachineID returns a short random id.
func NewMachineID() MachineID {
	var b [5]byte
	_, _ = rand.Read(b[:])
	return MachineID("m" + enc.EncodeToString(b[:]))
}

// Project is a source repository or folder, its machine, its policy and its sessions.
type Project struct {
	ID        ProjectID `json:"id"`
	Name      string    `json:"name"`
	Source    string    `json:"source"` // absolute path on the host, or a URL; empty = no source
	Machine   MachineID `json:"machine_id"`
	Kind      string    `json:"machine_kind"` // "lima" or "local"
	CreatedAt int64     `json:"created_at"`   // Unix ms, like every *_at
	Deleted   bool      `json:"deleted,omitempty"`
}

// Class says how long a session is meant to last. What its end takes away is the same
// for all: background processes and the session's browser. Workspace and history
// belong to the project and stay.
type Class string

const (
	ClassEphemeral Class = "ephemeral" // gone at its end
	ClassTask      Class = "task"      // gone when the task ends
	ClassWorkspace Class = "workspace" // kept for days, idle stop
)

// Session is one agent's, person's or playbook's work in a project.
type Session struct {
	ID        SessionID    `json:"id"`
	ProjectID ProjectID    `json:"project_id"`
	Title     string       `json:"title"`
	Class     Class        `json:"class"`
	Agent     string       `json:"agent"` // "playbook", "manual", later "model", "acp:NAME"
	State     SessionState `json:"state"`
	CreatedAt int64        `json:"created_at"`
}

// SessionState of a session.
type SessionState string

const (
	SessionIdle    SessionState = "idle"
	SessionRunning SessionState = "running"
	SessionEnded   SessionState = "ended"
)

// StepState is where one tool call is.
type StepState string

const (
	StepRequested StepState = "requested" // validated, not yet decided
	StepAsking    StepState = "asking"    // waits for an approval
	StepRunning   StepState = "running"
	StepEnded     StepState = "ended"  // its tool answered
	StepSealed    StepState = "sealed" // the checkpoint after it is taken
	StepDenied    StepState = "denied"
	StepCancelled StepState = "cancelled"
	StepExpired   StepState = "expired" // its question was not answered in time
)

var stepMoves = map[StepState][]StepState{
	StepRequested: {StepAsking, StepRunning, StepDenied, StepCancelled},
	StepAsking:    {StepRunning, StepDenied, StepCancelled, StepExpired},
	StepRunning:   {StepEnded},
	StepEnded:     {StepSealed},
}

// CanStep reports whether a step may go from one state to another.
func CanStep(from, to StepState) bool {
	for _, s := range stepMoves[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Outcome says how a step's tool ended.
type Outcome string

const (
	OutcomeOK          Outcome = "ok"
	OutcomeFailed      Outcome = "failed" // the tool answered with an error or a non-zero exit
	OutcomeTimeout     Outcome = "timeout"
	OutcomeCancelled   Outcome = "cancelled"
	OutcomeUnknown     Outcome = "unknown"     // the machine or guestd cannot say
	OutcomeUnavailable Outcome = "unavailable" // the machine was not there; nothing ran
)

// Reach is what a tool call can touch; policy rules select by it.
type Reach string

const (
	ReachRead    Reach = "read"    // reads inside the machine
	ReachMachine Reach = "machine" // changes things inside the machine
	ReachNetwork Reach = "network" // leaves by the egress gate
	ReachHost    Reach = "host"    // leaves to the host: push, export
	ReachPerson  Reach = "person"  // asks the person
)

// Decision of the policy.
type Decision string

const (
	Allow Decision = "allow"
	Ask   Decision = "ask"
	Deny  Decision = "deny"
)

// Origin says who vouches for an event or field.
type Origin string

const (
	OriginHost  Origin = "host"  // we did or saw it outside the machine
	OriginGuest Origin = "guest" // guestd reports it
	OriginAgent Origin = "agent" // an agent says so
)

// Actor says who acted: "person", "demo", "agent:playbook", "host", "policy".
type Actor string

// ErrorCode is a stable word for what kind of error a door reports.
type ErrorCode string

const (
	CodeInvalid     ErrorCode = "invalid"
	CodeNotFound    ErrorCode = "not_found"
	CodeConflict    ErrorCode = "conflict"
	CodeDenied      ErrorCode = "denied"
	CodeUnavailable ErrorCode = "unavailable"
	CodeTooLarge    ErrorCode = "too_large"
	CodeInternal    ErrorCode = "internal"
)

// Error is an error for people and programs: what happened, why, what to do next.
type Error struct {
	Code    ErrorCode
	What    string // one sentence
	Hint    string // what to do next
	Pointer string // JSON pointer into the input, for CodeInvalid
	Err     error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// E makes an Error.
func E(code ErrorCode, what, hint string, err error) *Error {
	return &Error{Code: code, What: what, Hint: hint, Err: err}
}

// CodeOf returns the code of the first Error in err's chain, else CodeInternal.
func CodeOf(err error) ErrorCode {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
