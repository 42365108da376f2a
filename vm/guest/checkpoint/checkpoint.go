//go:build linux

package checkpoint

import (
	"context"
	"errors"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch"
)

// Tracker names the paths that may have changed since it was last asked;
// *watch.Watcher is one.
type Tracker interface {
	Barrier(ctx context.Context) (watch.Dirty, error)
}

// Options of Checkpoints.
type Options struct {
	// Root is the folder that is recorded; default guest.Workspace.
	Root string
	// Shadow is the git directory checkpoints are kept in; default
	// /var/lib/glasshouse/shadow. It must lie outside Root, and the agent user
	// should not be able to write to it.
	Shadow string
	// UID and GID own what Restore creates when guestd is root; 0 leaves it root's.
	UID, GID int
	// Watcher names dirty paths; nil = every Take walks the whole folder.
	Watcher Tracker
	// MaxFile is the size above which a file is not captured; default 20 MiB.
	MaxFile int64
	// Run starts git on the shadow directory as guestd's own user; default
	// runas.User(-1, -1).
	Run runas.Func
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Checkpoints of one folder. It is safe for concurrent use; calls wait for each other.
type Checkpoints struct{ opts Options }

var _ guest.Checkpoints = (*Checkpoints)(nil)

// New returns the checkpoints of one folder. Nothing is read or written until the first call.
func New(opts Options) *Checkpoints { return &Checkpoints{opts: opts} }

var errTodo = errors.New("not there yet")

func (c *Checkpoints) Take(ctx context.Context, req guest.CheckpointRequest) (guest.Checkpoint, error) {
	return guest.Checkpoint{}, errTodo
}
func (c *Checkpoints) Diff(ctx context.Context, from, to string) ([]guest.FileChange, bool, error) {
	return nil, false, errTodo
}
func (c *Checkpoints) Restore(ctx context.Context, commit string) (guest.Checkpoint, error) {
	return guest.Checkpoint{}, errTodo
}
