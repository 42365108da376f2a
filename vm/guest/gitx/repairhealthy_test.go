//go:build linux

package gitx

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
)

// A repository that has its commits stays where it is, whatever keeps git from working
// in it: a new one would put them out of sight.
func TestRepairLeavesCommits(t *testing.T) {
	src, head := source(t)
	pack := packOf(t, src)
	req := guest.ImportRequest{Branch: "main", Commit: head}
	filter := func(t *testing.T, ws, config, set string) {
		write(t, config, set)
		write(t, ws+"/.gitattributes", "* filter=x\n")
		b, err := os.ReadFile(ws + "/dir/b.txt")
		must(t, err)
		write(t, ws+"/new", string(b))
		must(t, os.Rename(ws+"/new", ws+"/dir/b.txt")) // so that git reads it again
	}
	const missing = "[filter \"x\"]\n\tclean = not-installed\n\trequired = true\n"
	for name, c := range map[string]struct {
		do   func(t *testing.T, ws, home string)
		says string
	}{
		"a filter of the user's": {func(t *testing.T, ws, home string) { filter(t, ws, home+"/.gitconfig", missing) }, ""},
		"a filter": {func(t *testing.T, ws, home string) {
			old, err := os.ReadFile(ws + "/.git/config")
			must(t, err)
			filter(t, ws, ws+"/.git/config", string(old)+missing)
		}, ""},
		"settings of the user's": {func(t *testing.T, ws, home string) { write(t, home+"/.gitconfig", "[core\n") }, ""},
		"modules":                {func(t *testing.T, ws, home string) { write(t, ws+"/.gitmodules", "[core\n") }, ""},
		"a broken index":         {func(t *testing.T, ws, home string) { write(t, ws+"/.git/index", "garbage") }, "index"},
		"a lock":                 {func(t *testing.T, ws, home string) { write(t, ws+"/.git/index.lock", "") }, ""},
		"bare":                   {func(t *testing.T, ws, home string) { run(t, ws, nil, "git", "config", "core.bare", "true") }, ""},
		"elsewhere":              {func(t *testing.T, ws, home string) { run(t, ws, nil, "git", "config", "core.worktree", "/nowhere/x") }, "/nowhere"},
		"a broken branch":        {func(t *testing.T, ws, home string) { write(t, ws+"/.git/refs/heads/other", "zzz\n") }, ""},
		"detached":               {func(t *testing.T, ws, home string) { run(t, ws, nil, "git", "checkout", "-q", "--detach") }, ""},
		"no commit yet": {func(t *testing.T, ws, home string) {
			run(t, ws, nil, "git", "checkout", "-q", "--orphan", "x")
			write(t, ws+"/.git/index", "garbage")
		}, "index"},
		"packed": {func(t *testing.T, ws, home string) { run(t, ws, nil, "git", "gc", "-q") }, ""},
		"its folder elsewhere": {func(t *testing.T, ws, home string) {
			must(t, os.Rename(ws+"/.git", home+"/real"))
			write(t, ws+"/.git", "gitdir: "+home+"/real\n")
			write(t, home+"/real/index", "garbage")
		}, "index"},
		"a module that is gone": {func(t *testing.T, ws, home string) {
			run(t, ws, nil, "git", "init", "-q", "sub")
			run(t, ws+"/sub", nil, "git", "commit", "-q", "--allow-empty", "-m", "s")
			run(t, ws, nil, "git", "-c", "advice.addEmbeddedRepo=false", "add", "sub")
			run(t, ws, nil, "git", "commit", "-qm", "sub")
			must(t, os.RemoveAll(ws+"/sub/.git"))
			write(t, ws+"/sub/.git", "gitdir: /nowhere\n")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ws, home := filepath.Join(t.TempDir(), "ws"), t.TempDir()
			g := New(Options{Root: ws, Home: home})
			must(t, g.Import(bg, req, bytes.NewReader(pack)))
			run(t, ws, nil, "git", "commit", "-q", "--allow-empty", "-m", "own")
			c.do(t, ws, home)
			ask := []string{"git", "--git-dir", ws + "/.git", "--work-tree", ws, "rev-parse", "main"}
			own := run(t, ws, nil, ask...)
			made, err := g.Repair(bg, req, bytes.NewReader(pack))
			if made || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("made %v, %v", made, err)
			}
			if got := run(t, ws, nil, ask...); got != own {
				t.Errorf("main is at %s, not %s", got, own)
			}
		})
	}
}

// What the machine lacked when git was to look says nothing about the repository.
func TestRepairKnowsWhatIsNoAnswer(t *testing.T) {
	src, head := source(t)
	pack := packOf(t, src)
	req := guest.ImportRequest{Branch: "main", Commit: head}
	for _, said := range []string{
		"fatal: Out of memory, malloc failed (tried to allocate 1 bytes)", "fatal: mmap failed: Cannot allocate memory",
		"fatal: unable to create threaded lstat: Resource temporarily unavailable", "error: cannot open .git/objects/pack: Too many open files",
		"fatal: could not read .git/HEAD: Input/output error", "error: cannot open .git/config: Permission denied",
	} {
		for nth := range 2 { // the first git that is asked, or the second
			ws := filepath.Join(t.TempDir(), "ws")
			real, n := runas.User(-1, -1), -1
			g := New(Options{Root: ws, Home: t.TempDir(), Run: func(ctx context.Context, argv, env []string, dir string, in io.Reader, out, errs io.Writer) error {
				if n >= 0 {
					if n++; n == nth+1 {
						return real(ctx, []string{"sh", "-c", `echo "$0" >&2; exit 128`, said}, env, dir, in, out, errs)
					}
				}
				return real(ctx, argv, env, dir, in, out, errs)
			}})
			must(t, g.Import(bg, req, bytes.NewReader(pack)))
			n = 0
			if made, err := g.Repair(bg, req, bytes.NewReader(pack)); made || err == nil || !strings.Contains(err.Error(), said[7:]) {
				t.Errorf("%s: made %v, %v", said, made, err)
			}
			if _, err := os.Stat(ws + "/.git/" + before); !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
	}
}

// Settings of the user's that git cannot read keep nobody from making it anew.
func TestRepairWithBrokenSettings(t *testing.T) {
	src, head := source(t)
	ws, home := filepath.Join(t.TempDir(), "ws"), t.TempDir()
	g := New(Options{Root: ws, Home: home})
	req := guest.ImportRequest{Branch: "main", Commit: head}
	must(t, g.Import(bg, req, bytes.NewReader(packOf(t, src))))
	write(t, home+"/.gitconfig", "[core\n")
	must(t, os.RemoveAll(ws+"/.git"))
	if made, err := g.Repair(bg, req, bytes.NewReader(packOf(t, src))); !made || err != nil {
		t.Fatal(made, err)
	}
	run(t, ws, nil, "git", "fsck", "--strict")
}
