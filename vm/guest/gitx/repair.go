//go:build linux

package gitx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch/scan"
)

// before is what stood in the place of a repository, within it.
const before = "glasshouse-before"

// fresh is where the repository is made: no file of the person's, for watcher and
// checkpoints. What a killed repair left there may go.
const fresh = scan.NewGit

// Repair makes the repository anew round the files that are there; see guest.Git.
func (g *Git) Repair(ctx context.Context, req guest.ImportRequest, pack io.Reader) (bool, error) {
	if err := checkImport(req); err != nil {
		return false, err
	}
	if len(req.Overlay) > 0 {
		return false, errors.New("a repair leaves the files as they are")
	}
	g.one.Lock()
	defer g.one.Unlock()
	if whole, err := g.whole(ctx, req.Commit); whole || err != nil {
		return false, err
	}
	root, err := os.OpenRoot(g.opts.Root)
	if err != nil {
		return false, err
	}
	defer root.Close()
	// A repair that was killed between its last two steps had all it needed.
	if _, err := root.Lstat(filepath.Join(fresh, before)); err == nil {
		if _, err := root.Lstat(".git"); errors.Is(err, fs.ErrNotExist) {
			return true, errors.Join(root.Rename(fresh, ".git"), syncFS(g.opts.Root))
		}
	}
	if err := root.RemoveAll(fresh); err != nil {
		return false, err
	}
	if err := root.Mkdir(fresh, 0o755); err != nil {
		return false, err
	}
	if err := g.renew(ctx, root, req, pack); err != nil {
		return false, errors.Join(err, root.RemoveAll(fresh))
	}
	return true, syncFS(g.opts.Root)
}

// whole reports whether there is a repository that has a commit, if one is named. What
// only keeps git from working in it (a filter that is not installed, a setting, a broken
// index) is nothing that a new one is made for: that would put commits out of sight that
// are all there. Then it is whole, or an error says what is wrong with it.
func (g *Git) whole(ctx context.Context, commit string) (bool, error) {
	h, err := g.Head(ctx)
	switch {
	case err == nil && !h.Repo:
		return false, nil
	case err == nil:
		return g.holds(ctx, commit, plain...)
	case silent(err):
		return false, err // git did not get to say anything of it
	}
	for _, has := range []func() (bool, error){
		func() (bool, error) { return g.born(ctx) },
		func() (bool, error) { return g.holds(ctx, commit, g.here(".git")...) },
	} {
		if ok, err := has(); !ok || err != nil {
			return false, err // of a broken one git says so in many ways
		}
	}
	if err := g.run(ctx, plain, nil, io.Discard, "git", "ls-files"); err != nil {
		return false, fmt.Errorf("the repository has its commits and stays as it is, but git cannot work in it: %w", err)
	}
	return true, nil
}

// plain keeps the settings outside a repository, and what it would fetch, out of the
// question whether it is whole.
var plain = []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_NO_LAZY_FETCH=1"}

// here is plain, and what a repository's own settings say of where its files are is not
// asked either.
func (g *Git) here(dir string) []string {
	return append(slices.Clone(plain), "GIT_DIR="+filepath.Join(g.opts.Root, dir), "GIT_WORK_TREE="+g.opts.Root)
}

// born reports whether HEAD can be read: it is a commit, or the name of a branch that
// has none yet.
func (g *Git) born(ctx context.Context) (bool, error) {
	env := g.here(".git")
	err := g.run(ctx, env, nil, io.Discard, "git", "rev-parse", "-q", "--verify", "HEAD^{tree}")
	if err == nil || silent(err) {
		return err == nil, err
	}
	var name bytes.Buffer
	if err := g.run(ctx, env, nil, &capped{w: &name, left: maxLine}, "git", "symbolic-ref", "-q", "HEAD"); err != nil {
		return false, spoken(err)
	}
	err = g.run(ctx, env, nil, io.Discard, "git", "show-ref", "--verify", "-q", strings.TrimSpace(name.String()))
	return err != nil && !silent(err), spoken(err)
}

// holds reports whether the repository has a commit with its tree and all files, for a
// review compares with them.
func (g *Git) holds(ctx context.Context, commit string, env ...string) (bool, error) {
	if commit == "" {
		return true, nil
	}
	err := g.run(ctx, env, nil, io.Discard, "git", "rev-list", "--objects", "--no-walk", "--quiet", commit)
	return err == nil, spoken(err)
}

// spoken drops an error with which git said something about the repository.
func spoken(err error) error {
	if err != nil && silent(err) {
		return err
	}
	return nil
}

// silent reports whether an error says nothing about the repository: git did not run to
// an exit of its own, or had not what it needs to look.
func silent(err error) bool {
	if runas.Code(err) < 0 {
		return true
	}
	var f *failure
	if !errors.As(err, &f) {
		return false
	}
	said := strings.ToLower(f.stderr)
	return slices.ContainsFunc([]error{unix.ENOMEM, unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EACCES, unix.EPERM, unix.EROFS},
		func(no error) bool { return strings.Contains(said, no.Error()) }) ||
		strings.Contains(said, "out of memory") || strings.Contains(said, "unable to create thread")
}

// renew makes the repository in fresh and puts it in the place of .git.
func (g *Git) renew(ctx context.Context, root *os.Root, req guest.ImportRequest, pack io.Reader) error {
	dir, err := root.OpenRoot(fresh)
	if err != nil {
		return err
	}
	defer dir.Close()
	if os.Geteuid() == 0 && g.opts.UID > 0 {
		if err := root.Lchown(fresh, g.opts.UID, g.opts.GID); err != nil {
			return err
		}
	}
	branch := req.Branch
	if branch == "" {
		branch = "main" // HEAD is detached below
	}
	if err := g.layOut(dir, branch, config(req)); err != nil {
		return fmt.Errorf("the repository cannot be made: %w", err)
	}
	env := g.here(fresh)
	if err := g.fill(ctx, env, req, pack); err != nil {
		return err
	}
	if req.Commit != "" {
		// The index is HEAD's: what the files hold otherwise is a change that is not staged.
		if err := g.run(ctx, env, nil, io.Discard, "git", "read-tree", "HEAD"); err != nil {
			return err
		}
	}
	// What was there moves into the new one: nothing is lost, and no checkpoint or
	// commit takes it for files of the person's.
	if err := root.Rename(".git", filepath.Join(fresh, before)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Rename(fresh, ".git")
}
