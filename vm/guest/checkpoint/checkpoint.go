//go:build linux

package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch"
	"glasshouse/vm/guest/watch/scan"
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
	// RunAgent starts git on the workspace's own repository as the agent user,
	// for the rare index that cannot be read otherwise; default runas.User(UID, GID).
	RunAgent runas.Func
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Logf is told of damage that was worked around; may be nil.
	Logf func(format string, args ...any)
}

// Checkpoints of one folder. It is safe for concurrent use; calls wait for each other.
type Checkpoints struct {
	opts Options
	turn chan struct{} // holds one token; who has it may touch what follows
	// opened is set once the store was opened: its objects may then be read without the turn.
	opened atomic.Bool

	store *objects.Store
	tree  *scan.Tree
	x     *index
	head  head
	// stale: the index may not know all that changed, so the next look is at everything.
	stale   bool
	pending map[string]bool // dirty paths of looks that failed, and of files still being written
	left    map[string]string
	ignored map[string]int
	tracked map[string]bool // files that are tracked though ignored
	gitIdx  scan.Stat       // of the user's index when tracked was read
	saved   int             // checkpoints since the state was saved
	differ  *differ         // nil = none runs
}

// head is the newest checkpoint.
type head struct {
	ok                   bool
	commit, tree, parent objects.ID
	sum                  string // empty = not computed yet
}

var _ guest.Checkpoints = (*Checkpoints)(nil)

// New returns the checkpoints of one folder. Nothing is read or written until the first call.
func New(opts Options) *Checkpoints {
	if opts.Root == "" {
		opts.Root = guest.Workspace
	}
	if opts.Shadow == "" {
		opts.Shadow = "/var/lib/glasshouse/shadow"
	}
	if opts.MaxFile <= 0 {
		opts.MaxFile = 20 << 20
	}
	if opts.Run == nil {
		opts.Run = runas.User(-1, -1)
	}
	if opts.RunAgent == nil {
		opts.RunAgent = runas.User(opts.UID, opts.GID)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	c := &Checkpoints{
		opts: opts, turn: make(chan struct{}, 1), stale: true,
		pending: map[string]bool{}, left: map[string]string{}, ignored: map[string]int{}, tracked: map[string]bool{},
	}
	c.turn <- struct{}{}
	return c
}

func (c *Checkpoints) lock(ctx context.Context) error {
	select {
	case <-c.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Checkpoints) unlock() { c.turn <- struct{}{} }

// open makes store, tree and index ready. The turn is held.
func (c *Checkpoints) open(ctx context.Context) error {
	if c.store == nil {
		root, shadow := realPath(c.opts.Root), realPath(c.opts.Shadow)
		if shadow == root || strings.HasPrefix(shadow, strings.TrimSuffix(root, "/")+"/") {
			return fmt.Errorf("the checkpoint store %s lies inside the workspace; it must lie outside", c.opts.Shadow)
		}
		s, err := objects.Open(c.opts.Shadow)
		if err != nil {
			return err
		}
		c.store = s
		c.opened.Store(true)
	}
	if c.tree == nil || !c.tree.Current() {
		t, err := scan.Open(c.opts.Root)
		if err != nil {
			return fmt.Errorf("the workspace cannot be opened: %w", err)
		}
		if c.tree != nil {
			c.tree.Close()
		}
		c.tree = t
		c.stale = true
	}
	if c.x == nil {
		c.stale = true
		if err := c.loadHead(ctx); err != nil {
			return err
		}
		x, err := loadState(c.opts.Shadow)
		if err != nil {
			x = newIndex()
		}
		c.x = x
	}
	return nil
}

func realPath(p string) string {
	p = filepath.Clean(p)
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	if dir := filepath.Dir(p); dir != p {
		return filepath.Join(realPath(dir), filepath.Base(p))
	}
	return p
}

func parentOf(p string) string { return filepath.Dir(filepath.Clean(p)) }

// loadHead reads the newest checkpoint. A damaged one is put aside, so that
// taking checkpoints goes on.
func (c *Checkpoints) loadHead(ctx context.Context) error {
	c.head = head{}
	id, ok, err := c.store.Head()
	if err == nil && !ok {
		return nil
	}
	if err == nil {
		var h head
		if h, err = c.commit(ctx, id); err == nil {
			c.head = h
			return nil
		}
		if !errors.Is(err, guest.ErrNotFound) {
			return err
		}
	}
	if !errors.Is(err, objects.ErrBadRef) && !errors.Is(err, guest.ErrNotFound) {
		return err
	}
	c.opts.Logf("checkpoints: the newest one (%s) is damaged; a new chain is begun", id)
	return c.store.SetAside()
}

// commit reads a commit of the store; guest.ErrNotFound when it is none.
func (c *Checkpoints) commit(ctx context.Context, id objects.ID) (head, error) {
	h := head{ok: true, commit: id}
	var out bytes.Buffer
	err := c.git(ctx, strings.NewReader(id.String()+"\n"), &out, "cat-file", "--batch")
	if err != nil {
		return h, err
	}
	// "<id> commit <size>" or "<id> missing"
	first, body, _ := strings.Cut(out.String(), "\n")
	if f := strings.Fields(first); len(f) != 3 || f[1] != "commit" {
		return h, fmt.Errorf("checkpoint %s: %w", id, guest.ErrNotFound)
	}
	for line := range strings.SplitSeq(body, "\n") {
		key, val, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			h.tree, err = objects.Parse(val)
		case "parent":
			h.parent, err = objects.Parse(val)
		case "":
			if h.tree.Zero() {
				err = fmt.Errorf("checkpoint %s: %w", id, guest.ErrNotFound)
			}
			return h, err
		}
		if err != nil {
			return h, err
		}
	}
	return h, fmt.Errorf("checkpoint %s: %w", id, guest.ErrNotFound)
}

// git runs git on the store.
func (c *Checkpoints) git(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	var tail runas.Tail
	argv := append([]string{"git", "--git-dir", c.opts.Shadow}, args...)
	err := c.opts.Run(ctx, argv, append(gitEnv(), "GIT_OPTIONAL_LOCKS=0"), c.opts.Shadow, stdin, stdout, &tail)
	if err != nil {
		if runas.Missing(err) {
			return fmt.Errorf("git is not installed in the machine: %w", err)
		}
		return fmt.Errorf("git %s on the checkpoint store: %w: %s", args[0], err, tail.String())
	}
	return nil
}
