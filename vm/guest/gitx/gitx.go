//go:build linux

package gitx

import (
	"context"
	"errors"
	"io"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
)

// Options of Git.
type Options struct {
	// Root is the working tree; default guest.Workspace.
	Root string
	// Home is the agent's home folder, where git finds the user's settings;
	// default guest.Home.
	Home string
	// UID and GID own what is created when guestd is root; 0 leaves it root's.
	UID, GID int
	// Run starts git as the agent user; default runas.User(UID, GID).
	Run runas.Func
	// Env is added to git's environment.
	Env []string
}

// Git is the workspace's repository. It is safe for concurrent use.
type Git struct{ opts Options }

var _ guest.Git = (*Git)(nil)

// New returns the repository in opts.Root, which need not exist yet.
func New(opts Options) *Git { return &Git{opts: opts} }

var errTodo = errors.New("not there yet")

func (g *Git) Import(ctx context.Context, req guest.ImportRequest, pack io.Reader) error {
	return errTodo
}
func (g *Git) Head(ctx context.Context) (guest.HeadInfo, error) { return guest.HeadInfo{}, errTodo }
func (g *Git) Candidate(ctx context.Context, base, message string) (guest.Candidate, error) {
	return guest.Candidate{}, errTodo
}
func (g *Git) Export(ctx context.Context, want, have []string, maxBytes int64) (io.ReadCloser, error) {
	return nil, errTodo
}
