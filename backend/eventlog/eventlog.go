// Package eventlog is the append-only record of everything: a SQLite database and a
// folder of artefacts beside it.
//
// What is guaranteed:
//
//   - An event that Append returned is on disk (synchronous=FULL) and survives a
//     crash of anything. Events of one Append are in one transaction: all or none.
//   - Ids rise by commit order over all streams and are never given twice; Seq is
//     gap-free in each stream, from 1.
//   - A Subscription sees every matching stored event once, in id order, whether
//     it came before or after the call; a slow reader never holds up the writer,
//     it reads from the database instead.
//   - Published (transient) events are lossy: they are never stored, a reader that
//     falls behind loses the oldest ones and is told how many. They keep their
//     place: one that was published after event N is not delivered before N.
//   - Rows are chained by hash over payload hashes. Verify finds a row that was
//     changed, removed or put elsewhere; a redacted payload keeps the chain.
//
// One process at a time may hold a log open.
package eventlog

import (
	"encoding/json"
	"io"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

const (
	// MaxPayload is the largest payload of one event, in bytes of JSON. What is
	// larger goes into an artefact and is referred to by an event.Blob.
	MaxPayload = 64 << 10
	// MaxPage is the most events that one Read returns.
	MaxPage = 5000
	// DefaultPage is Read's page when Filter.Limit is 0.
	DefaultPage = 500
	// FileName of the database in the log's folder.
	FileName = "glasshouse.db"
	// BlobFolder of the artefacts in the log's folder.
	BlobFolder = "blobs"
)

// Options of Open; zero values are defaults.
type Options struct {
	Now func() time.Time // default time.Now
	// HoldNow takes the room that the log holds on the disk within Open, not a while later.
	HoldNow bool
	// Ring is how many recent events are kept in memory for live readers (default 4096).
	Ring int
	// Transients is how many transient events a subscription holds (default 512).
	Transients int
	// Scrub takes what must not be kept out of a payload before it is stored, told to
	// anybody or hashed; nil = nothing. It returns valid JSON of the same shape, no
	// longer, and may be called from any goroutine.
	Scrub func(json.RawMessage) json.RawMessage
	// ScrubBlob does the same for the bytes of an artefact: it returns a writer that
	// hands on to w as many bytes as it is given, all of them once it is closed. Close
	// leaves w open. nil = nothing.
	ScrubBlob func(w io.Writer) io.WriteCloser
}

// Filter selects events. Empty fields select everything.
type Filter struct {
	AfterID  int64 // only ids above it
	BeforeID int64 // only ids below it; 0 = no bound
	Stream   event.Stream
	Project  domain.ProjectID
	Session  domain.SessionID
	Step     domain.StepID
	Types    []event.Type
	Limit    int  // Read only: most events, 0 = DefaultPage, at most MaxPage
	Tail     bool // Read only: the last Limit events that match instead of the first
}

// Match reports whether an envelope is selected, bounds of ids left aside for
// transient events (which have none).
func (f *Filter) Match(e *event.Envelope) bool {
	if e.ID != 0 && (e.ID <= f.AfterID || (f.BeforeID > 0 && e.ID >= f.BeforeID)) {
		return false
	}
	if (f.Stream != "" && e.Stream != f.Stream) ||
		(f.Project != "" && e.ProjectID != f.Project) ||
		(f.Session != "" && e.SessionID != f.Session) ||
		(f.Step != "" && e.StepID != f.Step) {
		return false
	}
	if len(f.Types) == 0 {
		return true
	}
	for _, t := range f.Types {
		if e.Type == t {
			return true
		}
	}
	return false
}

// Head is the newest event of the log.
type Head struct {
	ID   int64
	Hash string // hex
}

// Report of Verify.
type Report struct {
	Events   int64
	Redacted int64
	Head     Head
	Problems []Problem // empty = the chain holds; at most 20
}

// Problem is one place where the chain does not hold.
type Problem struct {
	ID   int64
	What string
}
