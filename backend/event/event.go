// Package event is the closed set of things that can be recorded. Each type has
// one payload struct, listed in Registry; JSON schemas and the front end's
// TypeScript are generated from it. Payloads hold string ids and integer Unix
// milliseconds, no interface values and no maps of unknown shape except raw tool
// arguments.
package event

import (
	"encoding/json"
	"fmt"

	"glasshouse/backend/domain"
)

// Stream names the gap-free sequence an event belongs to: "host", "project:ID"
// or "session:ID".
type Stream string

const HostStream Stream = "host"

// ProjectStream and SessionStream name the streams of one project or session.
func ProjectStream(id domain.ProjectID) Stream { return Stream("project:" + string(id)) }
func SessionStream(id domain.SessionID) Stream { return Stream("session:" + string(id)) }

// Envelope is one recorded event as every door shows it. ID is the global row
// id (the SSE id), Seq the gap-free number in Stream. Transient events (deltas,
// frames, stats) have ID 0 and are never stored.
type Envelope struct {
	ID        int64            `json:"id"`
	Stream    Stream           `json:"stream"`
	Seq       int64            `json:"seq"`
	At        int64            `json:"at"` // Unix ms
	Type      Type             `json:"type"`
	Origin    domain.Origin    `json:"origin"`
	Actor     domain.Actor     `json:"actor,omitempty"`
	ProjectID domain.ProjectID `json:"project_id,omitempty"`
	SessionID domain.SessionID `json:"session_id,omitempty"`
	StepID    domain.StepID    `json:"step_id,omitempty"`
	Data      json.RawMessage  `json:"data"`
	Hash      string           `json:"hash,omitempty"` // of the chain up to here
}

// New is an event that is about to be appended; the log gives it ID, Seq, At and Hash.
type New struct {
	Stream    Stream
	Origin    domain.Origin
	Actor     domain.Actor
	ProjectID domain.ProjectID
	SessionID domain.SessionID
	StepID    domain.StepID
	Payload   Payload
}

// Payload is implemented by the structs of this package alone.
type Payload interface{ EventType() Type }

// Type names a kind of event.
type Type string

// Decode returns the typed payload of an envelope.
func Decode(e Envelope) (Payload, error) {
	mk, ok := Registry[e.Type]
	if !ok {
		return nil, fmt.Errorf("unknown event type %q (a newer Glasshouse wrote it?)", e.Type)
	}
	p := mk()
	if err := json.Unmarshal(e.Data, p); err != nil {
		return nil, fmt.Errorf("event %d (%s): %w", e.ID, e.Type, err)
	}
	return p, nil
}

// Blob refers to an artefact by content.
type Blob struct {
	Sha256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Mime   string `json:"mime,omitempty"`
	Name   string `json:"name,omitempty"`
}
