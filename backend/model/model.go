// Package model is the contract of language models: what is asked, what comes back,
// and how it fails. It knows no session and no tool of ours; adapters below it speak
// the wire formats, one attempt a call, and Retry tries again where that helps.
package model

import (
	"context"
	"encoding/json"
)

// Client asks one model over one wire format. It may be used from any goroutine.
type Client interface {
	// Answer makes one attempt. each is called in order, from one goroutine, with
	// what comes in; what it got counts for nothing when an error is returned. The
	// error is an *Error, or the context's cause when that ended.
	Answer(ctx context.Context, r Request, each func(Delta)) (Answer, error)
}

// Request is one question to a model with all it should know.
type Request struct {
	System   string
	Messages []Message // begins with a person's; a call is followed by its result
	Tools    []Tool    // in the order given, which should be stable
	// Quiet: the tools are declared, for earlier calls name them, but none may be called.
	Quiet     bool
	MaxOutput int // tokens; 0 = the configured most
	// Bytes reads an image; nil when there are none.
	Bytes func(ctx context.Context, i Image) ([]byte, error)
}

// Role of a message.
type Role string

const (
	RoleUser      Role = "user"      // the person, or what Glasshouse tells in their place
	RoleAssistant Role = "assistant" // the model
	RoleTool      Role = "tool"      // results of all calls of the message before it, in their order
)

// Message is one entry of a conversation.
type Message struct {
	Role  Role
	Parts []Part
}

// Kind of a part.
type Kind string

const (
	KindText    Kind = "text"
	KindThought Kind = "thought" // what the model says to itself
	KindCall    Kind = "call"
	KindResult  Kind = "result"
	KindImage   Kind = "image"
)

// Part is a piece of a message. Which fields are set is said by Kind.
type Part struct {
	Kind   Kind
	Text   string
	Call   *Call
	Result *Result
	Image  *Image
	// Opaque is the server's own form of a thought or call (a signature, an encrypted
	// text), sent back as it is to the format that gave it. From says which: the
	// format and the served model; to any other the part goes without it.
	Opaque json.RawMessage
	From   string
}

// Call is a tool call that a model wants.
type Call struct {
	ID   string // the server's; unique within its answer only
	Tool string
	Args string // as the model wrote it: perhaps no JSON at all; "" = {}
}

// Result answers a call.
type Result struct {
	ID     string // of the call
	Tool   string
	Text   string // never empty
	Failed bool
	Images []Image
}

// Image is an artefact by its content.
type Image struct {
	Sha256 string
	Mime   string
	Size   int64
}

// Tool as a model sees it.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// Delta is a piece of an answer as it comes: for eyes only.
type Delta struct {
	Kind Kind   // text, thought or call
	Text string // of a call: a piece of its arguments
	Tool string // of a call's first piece: its name
}

// Stop says why an answer ended.
type Stop string

const (
	StopEnd     Stop = "end"     // the model has said what it wanted
	StopCalls   Stop = "calls"   // it waits for results
	StopLength  Stop = "length"  // cut at the most tokens
	StopRefused Stop = "refused" // the server or model declines
)

// Answer of a model, whole.
type Answer struct {
	Parts  []Part // text, thoughts and calls in the order they came
	Stop   Stop
	Usage  Usage
	Served string // the model's name as the server gave it
	ID     string // the server's id of the answer or request, for a support ticket
	// Attempts is how often Retry asked for it; 0 = once, without it.
	Attempts int
}

// Calls of the answer.
func (a *Answer) Calls() (out []Call) {
	for _, p := range a.Parts {
		if p.Kind == KindCall && p.Call != nil {
			out = append(out, *p.Call)
		}
	}
	return out
}

// Usage counts tokens as the server counted them.
type Usage struct {
	Input      int64 `json:"input"`                 // read anew
	CacheRead  int64 `json:"cache_read,omitempty"`  // read from the server's cache
	CacheWrite int64 `json:"cache_write,omitempty"` // read anew and put into it
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning,omitempty"` // of Output, where the server says so
}

// Context is how much of the model's context the request and its answer took.
func (u Usage) Context() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// Plus adds up.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Input + v.Input, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite, u.Output + v.Output, u.Reasoning + v.Reasoning}
}
