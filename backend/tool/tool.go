// Package tool is the registry of what an agent (or a person, or a playbook) can
// call: names, JSON Schemas, reach and handlers. Arguments are checked against the
// schema and put into one canonical form before anything else sees them; the
// digest an approval is bound to is taken over that form.
//
// The package knows no session: a handler gets what it may touch in its Call.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/browser"
	"glasshouse/vm/guest"
)

// Tool is one thing that can be called.
type Tool struct {
	Name        string          // [a-z][a-z0-9_]*, at most 64 characters
	Description string          // for a model
	Schema      json.RawMessage // JSON Schema 2020-12 of the arguments, an object
	Reach       domain.Reach
	// Changes says that a call may change the workspace, so that the step must
	// wait for the seal before it and gets a checkpoint after it.
	Changes bool
	// Alone says that no other changing step of the project, whatever its session, may
	// run meanwhile. A call is refused while one does, and holds up those that come.
	Alone bool
	// PersonOnly tools are never offered to an agent nor taken from one. A call needs no
	// rule and no answer in any mode: the person has decided it by making it.
	PersonOnly bool
	// Title makes one line out of valid arguments; nil = the name.
	Title func(args json.RawMessage) string
	// Action adds to the policy's view of a call what only the tool knows (argv,
	// paths, host). Tool, Reach and Changes are filled in by the registry.
	Action func(args json.RawMessage) policy.Action
	// Detail lists what an approval card must show of a call, whole; nil = the
	// canonical arguments.
	Detail func(args json.RawMessage) []event.Field
	// Handler does the work. It is called with valid, canonical arguments.
	Handler Handler
	// Resume joins a call that an earlier core started and whose end it did not
	// see. nil = such calls have an unknown outcome.
	Resume Handler
}

// Handler runs one call. An error of type *domain.Error is the answer for a caller
// who can mend it; any other error is a failure of the host. A tool that ran and
// failed (a non-zero exit) answers with a Result whose Outcome says so, not with an error.
type Handler func(ctx context.Context, call Call) (Result, error)

// Call is everything a handler may touch.
type Call struct {
	Project domain.ProjectID
	Session domain.SessionID
	Step    domain.StepID // also the execution id in the guest
	Turn    domain.TurnID
	Args    json.RawMessage // valid and canonical
	Guest   guest.Guest
	Browser BrowserProvider // nil = no browser here
	Blobs   event.BlobStore
	// Repair makes the workspace's repository anew where it was destroyed, and reports
	// whether it had to; nil = nobody can.
	Repair func(ctx context.Context) (bool, error)
	Asker  Asker  // nil = nobody can be asked
	Output Output // nil = nobody listens
	// Timeout is the most the call may take; 0 = the tool's own default.
	Timeout time.Duration
}

// BrowserProvider gives the session's browser, starting it when there is none.
type BrowserProvider interface {
	Browser(ctx context.Context) (browser.Browser, error)
}

// Asker puts a question to the person and waits for the answer.
type Asker interface {
	AskUser(ctx context.Context, q Question) (Reply, error)
}

// Question of the ask_user tool.
type Question struct {
	Text     string
	Options  []string // at most 8; empty = free text
	FreeText bool     // a text may be given beside the options
}

// Reply to a Question. State is "answered", "expired" or "cancelled"; a question
// that was not answered is never a no.
type Reply struct {
	State  string
	Option string
	Text   string
}

// Output receives pieces of a running call's output, in order per stream.
type Output func(event.StepOutput)

// Result is a tool's answer.
type Result struct {
	JSON      json.RawMessage // for programs; at most MaxResult bytes
	Text      string          // for people and models, short
	Outcome   domain.Outcome  // "" = ok
	Error     string          // why Outcome is not ok
	Artefacts []event.Blob
	Exec      *ExecInfo // set by tools that ran a process
	// Lost: the channel to the machine broke while the call ran (Outcome is then
	// unknown); over a new channel Resume may learn how it ended.
	Lost bool
}

// ErrLeaving is the cause of a context that ends because the core goes. What runs
// in the guest is left running and joined by the next core; any other cause cancels it.
var ErrLeaving = errors.New("glasshouse is shutting down")

// MaxResult caps Result.JSON, which is stored inline in step.ended.
const MaxResult = 32 << 10

// ExecInfo is how a process ended; the fields go into step.ended as they are.
type ExecInfo struct {
	ExitCode   *int
	Signal     string
	DurationMS int64
	CPUMS      int64
	MaxRSSKiB  int64
	Stdout     *event.OutputStream
	Stderr     *event.OutputStream
	Background []string
}
