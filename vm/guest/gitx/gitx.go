//go:build linux

package gitx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

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
type Git struct {
	opts Options
	// one: imports and candidates wait for each other.
	one sync.Mutex
}

var _ guest.Git = (*Git)(nil)

// New returns the repository in opts.Root, which need not exist yet.
func New(opts Options) *Git {
	if opts.Root == "" {
		opts.Root = guest.Workspace
	}
	if opts.Home == "" {
		opts.Home = guest.Home
	}
	if opts.Run == nil {
		opts.Run = runas.User(opts.UID, opts.GID)
	}
	opts.Root = filepath.Clean(opts.Root)
	return &Git{opts: opts}
}

// env is git's environment: the user's own settings hold, but nothing waits for
// a person, no hook runs and no housekeeping starts.
func (g *Git) env(more ...string) []string {
	settings := [][2]string{
		{"safe.directory", "*"},
		{"core.hooksPath", "/dev/null"},
		{"core.fsmonitor", "false"},
		{"core.safecrlf", "false"},
		{"core.splitIndex", "false"}, // a copy of the index must not write a shared half
		{"gc.auto", "0"},
		{"maintenance.auto", "false"},
		{"advice.addEmbeddedRepo", "false"},
	}
	ceiling := filepath.Dir(g.opts.Root)
	if real, err := filepath.EvalSymlinks(g.opts.Root); err == nil {
		ceiling += ":" + filepath.Dir(real)
	}
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + g.opts.Home,
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=false", "GIT_ASKPASS=false",
		"GIT_CEILING_DIRECTORIES=" + ceiling,
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)),
	}
	for i, s := range settings {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s[1]))
	}
	env = append(env, g.opts.Env...)
	return append(env, more...)
}

// failure is a git that ended with an error.
type failure struct {
	what   string
	err    error
	stderr string
}

func (f *failure) Error() string {
	if f.stderr == "" {
		return fmt.Sprintf("git %s: %v", f.what, f.err)
	}
	return fmt.Sprintf("git %s: %s", f.what, f.stderr)
}

func (f *failure) Unwrap() error { return f.err }

// run runs a program of git's in the working tree.
func (g *Git) run(ctx context.Context, env []string, stdin io.Reader, stdout io.Writer, argv ...string) error {
	var tail runas.Tail
	err := g.opts.Run(ctx, argv, g.env(env...), g.opts.Root, stdin, stdout, &tail)
	if err == nil {
		return nil
	}
	if runas.Missing(err) {
		return fmt.Errorf("git cannot be started in the machine: %w", err)
	}
	if ctx.Err() != nil {
		return err
	}
	return &failure{argv[min(1, len(argv)-1)], err, tail.String()}
}

// maxLine bounds what is read from commands that print a few ids.
const maxLine = 1 << 20

// line runs git and returns its output without the newline at its end.
func (g *Git) line(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := g.run(ctx, nil, nil, &capped{w: &out, left: maxLine}, append([]string{"git"}, args...)...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// capped passes on so many bytes and swallows the rest.
type capped struct {
	w    io.Writer
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if n > 0 {
		if _, err := c.w.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func isID(s string) bool {
	if len(s) != 40 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

func checkID(what, s string) error {
	if !isID(s) {
		return fmt.Errorf("%s %.60q is no object id: it needs 40 hex digits", what, s)
	}
	return nil
}

// Head says what HEAD is. Files inside submodules do not make the tree unclean,
// because no commit of this repository could hold them.
func (g *Git) Head(ctx context.Context) (guest.HeadInfo, error) {
	var h guest.HeadInfo
	if _, err := os.Lstat(filepath.Join(g.opts.Root, ".git")); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return h, nil
		}
		return h, err
	}
	if _, err := os.Lstat(filepath.Join(g.opts.Root, ".git", marker)); err == nil {
		return h, nil // an import that was cut short; it can be begun again
	}
	s := &status{}
	err := g.run(ctx, nil, nil, s, "git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "-z",
		"--ignore-submodules=dirty", "--untracked-files=normal", "--no-renames")
	if err != nil {
		var f *failure
		if errors.As(err, &f) && strings.Contains(f.stderr, "not a git repository") {
			return h, nil
		}
		return h, err
	}
	h.Repo = true
	h.Clean = !s.dirty
	if s.oid != "(initial)" {
		h.Commit = s.oid
	}
	if s.head != "(detached)" {
		h.Branch = s.head
	}
	if h.Commit != "" && !isID(h.Commit) {
		return h, fmt.Errorf("the repository's HEAD is %.80q; only repositories with sha1 ids are supported", h.Commit)
	}
	return h, nil
}

// status reads the headers of git status and whether any entry follows.
type status struct {
	oid, head string
	dirty     bool
	rest      []byte
}

func (s *status) Write(p []byte) (int, error) {
	if s.dirty {
		return len(p), nil
	}
	s.rest = append(s.rest, p...)
	for {
		i := bytes.IndexByte(s.rest, 0)
		if i < 0 {
			break
		}
		f := string(s.rest[:i])
		s.rest = s.rest[i+1:]
		switch {
		case strings.HasPrefix(f, "# branch.oid "):
			s.oid = f[len("# branch.oid "):]
		case strings.HasPrefix(f, "# branch.head "):
			s.head = f[len("# branch.head "):]
		case !strings.HasPrefix(f, "#"):
			s.dirty, s.rest = true, nil
			return len(p), nil
		}
	}
	return len(p), nil
}
