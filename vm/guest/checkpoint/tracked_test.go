//go:build linux

package checkpoint

import (
	"context"
	"errors"
	"io"
	"testing"

	"glasshouse/vm/guest/runas"
)

// A git that had no time to say what it tracks takes nothing out of the checkpoints; it
// is asked again, and what it says then counts.
func TestTrackedWhenGitHasNoTime(t *testing.T) {
	r := setup(t, true)
	slow := true
	asked := 0
	r.c.opts.RunAgent = func(ctx context.Context, argv, env []string, dir string, in io.Reader, out, errs io.Writer) error {
		asked++
		if slow {
			return errors.New("no time")
		}
		return runas.User(-1, -1)(ctx, argv, env, dir, in, out, errs)
	}
	list := func() string { return r.inShadow("ls-tree", "-r", "--name-only", r.take().Commit) }
	r.git("init", "-q")
	r.write(".gitignore", "*.log\n")
	r.write("keep.log", "1")
	r.git("add", "-f", "keep.log", ".gitignore")
	if got := list(); got != ".gitignore\nkeep.log\n" {
		t.Fatalf("captured %q", got)
	}
	r.git("update-index", "--split-index") // only git can read it
	r.write("keep.log", "22")
	if got := list(); got != ".gitignore\nkeep.log\n" || asked == 0 {
		t.Fatalf("captured %q, asked %d times", got, asked)
	}
	slow = false
	r.git("rm", "-q", "-f", "--cached", "keep.log")
	if got := list(); got != ".gitignore\n" {
		t.Fatalf("captured %q after it was untracked", got)
	}
}
