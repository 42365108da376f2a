//go:build linux

package files

import (
	"context"
	"errors"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
)

// Options of Files.
type Options struct {
	// Root is what relative paths are relative to; default guest.Workspace.
	Root string
	// Allowed are the other folders that absolute paths may lie in; nil means
	// guest.Home and /tmp, an empty slice none.
	Allowed []string
	// UID and GID own what is created when guestd is root; 0 leaves it root's.
	UID, GID int
	// Run starts ripgrep as the agent user; default runas.User(UID, GID).
	Run runas.Func
	// Env is the environment of ripgrep; default PATH and LANG alone.
	Env []string
	// SearchTime bounds one search; default 20 s.
	SearchTime time.Duration
}

type Files struct{ opts Options }

var _ guest.Files = (*Files)(nil)

// New returns the files of one guest. It is safe for concurrent use.
func New(opts Options) *Files { return &Files{opts: opts} }

var errTodo = errors.New("not there yet")

func (f *Files) Stat(ctx context.Context, path string) (guest.FileInfo, error) {
	return guest.FileInfo{}, errTodo
}
func (f *Files) Read(ctx context.Context, path string, offset, limit int64) (guest.FileData, error) {
	return guest.FileData{}, errTodo
}
func (f *Files) Write(ctx context.Context, path string, data []byte, opt guest.WriteOptions) (guest.FileInfo, error) {
	return guest.FileInfo{}, errTodo
}
func (f *Files) Remove(ctx context.Context, path string, recursive bool) error { return errTodo }
func (f *Files) Mkdir(ctx context.Context, path string) error                  { return errTodo }
func (f *Files) List(ctx context.Context, path string, limit int) ([]guest.FileInfo, bool, error) {
	return nil, false, errTodo
}
func (f *Files) Glob(ctx context.Context, pattern string, all bool, limit int) ([]string, bool, error) {
	return nil, false, errTodo
}
func (f *Files) Search(ctx context.Context, q guest.SearchQuery) (guest.SearchResult, error) {
	return guest.SearchResult{}, errTodo
}
