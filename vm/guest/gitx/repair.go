//go:build linux

package gitx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
)

// before is what stood in the place of a repository, within it.
const before = "glasshouse-before"

// fresh is where a repository is made that will take the place of .git. Nothing else
// has that name, so what a killed repair left may go.
const fresh = ".git.glasshouse-new"

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

// whole reports whether there is a repository that has a commit, if one is named.
func (g *Git) whole(ctx context.Context, commit string) (bool, error) {
	h, err := g.Head(ctx)
	switch {
	case err != nil && runas.Code(err) < 0:
		return false, err // git did not get to say anything of it
	case err != nil || !h.Repo:
		return false, nil // of a broken one git says so in many ways
	}
	if commit == "" {
		return true, nil
	}
	// With its tree and all files, for a review compares with them.
	err = g.run(ctx, []string{"GIT_NO_LAZY_FETCH=1"}, nil, io.Discard, "git", "rev-list", "--objects", "--no-walk", "--quiet", commit)
	if err != nil && runas.Code(err) < 0 {
		return false, err
	}
	return err == nil, nil
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
	env := []string{"GIT_DIR=" + filepath.Join(g.opts.Root, fresh), "GIT_WORK_TREE=" + g.opts.Root}
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
