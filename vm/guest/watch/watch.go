//go:build linux

package watch

import (
	"context"

	"glasshouse/vm/guest"
)

// Options of a Watcher.
type Options struct {
	// Root is the watched folder; default guest.Workspace.
	Root string
	// Logf is told of what should not have happened; may be nil.
	Logf func(format string, args ...any)
}

// Dirty is what may have changed since the last Barrier.
type Dirty struct {
	// All means that anything may have changed and only a walk can tell.
	All bool
	// Paths may have changed; relative to Root. A path that was or is a folder
	// stands for all below it.
	Paths []string
}

// Watcher watches one folder. Run must be running for it to see anything.
type Watcher struct{ opts Options }

// New returns a Watcher that does nothing yet.
func New(opts Options) *Watcher { return &Watcher{opts: opts} }

// Run watches until ctx ends, and returns ctx's error.
func (w *Watcher) Run(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Watch streams changes until ctx ends; then the channel is closed.
func (w *Watcher) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	ch := make(chan guest.ChangeBatch)
	go func() { <-ctx.Done(); close(ch) }()
	return ch, nil
}

// Barrier returns every path written to before it was called and since the last
// Barrier. There is one taker: checkpoints.
func (w *Watcher) Barrier(ctx context.Context) (Dirty, error) { return Dirty{All: true}, nil }
