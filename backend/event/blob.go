package event

import (
	"context"
	"io"
)

// BlobStore keeps artefacts by their content; the event log is one.
type BlobStore interface {
	// PutBlob stores all of r; more than limit bytes is a too_large error and nothing is kept.
	PutBlob(ctx context.Context, r io.Reader, limit int64) (Blob, error)
	// CreateBlob starts an artefact of unknown length of which at most limit bytes are kept.
	CreateBlob(limit int64, mime, name string) (BlobWriter, error)
}

// BlobWriter is an artefact being written. It keeps the first bytes up to its
// limit and counts the rest. Exactly one of Commit and Abort ends it; Abort after
// Commit does nothing. It belongs to one goroutine.
type BlobWriter interface {
	io.Writer       // never fails for being past the limit
	Size() int64    // bytes kept
	Dropped() int64 // bytes past the limit
	Commit() (Blob, error)
	Abort()
}
