//go:build linux

package gitx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
)

// snapshot prints the tree of everything `git add -A` would stage, by way of a
// copy of the user's index, so that the index itself and its stat cache stay as
// they are. It runs as the agent user in one shell. The copy keeps the index's time:
// by that git knows which files may have changed in the second they were staged in,
// and reads those; with a later time it would take them for unchanged.
const snapshot = `set -eu
dir=$(git rev-parse --absolute-git-dir)
from=$(git rev-parse --git-path index)
rm -f "$dir"/glasshouse-index-*
to=$dir/glasshouse-index-$$
trap 'rm -f "$to" "$to.lock"' EXIT
if [ -f "$from" ]; then cp --preserve=timestamps -- "$from" "$to"; fi
export GIT_INDEX_FILE="$to"
git add -A . >&2
git write-tree
`

// Candidate returns the commit to review against base; base is empty when there
// was no commit at import. When nothing differs from base, it is base itself.
func (g *Git) Candidate(ctx context.Context, base, message string) (guest.Candidate, error) {
	var none guest.Candidate
	if base != "" {
		if err := checkID("base", base); err != nil {
			return none, err
		}
	}
	g.one.Lock()
	defer g.one.Unlock()
	h, err := g.Head(ctx)
	if err != nil {
		return none, err
	}
	if !h.Repo {
		return none, errors.New("the workspace is no git repository, so there is nothing to push")
	}
	onBase := base == "" || h.Commit == base
	if h.Commit != "" && !onBase {
		err := g.run(ctx, nil, nil, nil, "git", "merge-base", "--is-ancestor", base, h.Commit)
		switch {
		case err == nil:
			onBase = true
		case runas.Code(err) != 1:
			return none, fmt.Errorf("base %s is not in the workspace's repository: %w", base, err)
		}
	}
	if h.Commit != "" && h.Commit != base && onBase && h.Clean {
		tree, err := g.line(ctx, "rev-parse", "--verify", h.Commit+"^{tree}")
		return guest.Candidate{Commit: h.Commit, Tree: tree, Own: true}, err
	}
	parent := base
	if h.Commit != "" && onBase {
		parent = h.Commit
	}
	tree, err := g.snapshot(ctx)
	if err != nil {
		return none, err
	}
	if parent != "" {
		had, err := g.line(ctx, "rev-parse", "--verify", parent+"^{tree}")
		if err != nil {
			return none, fmt.Errorf("commit %s is not in the workspace's repository: %w", parent, err)
		}
		if had == tree {
			// Nothing to commit: what git calls unclean here (a touched file, an
			// attribute's doing) makes no other tree.
			return guest.Candidate{Commit: parent, Tree: tree, Own: parent != base}, nil
		}
	}
	commit, err := g.commit(ctx, tree, parent, message)
	return guest.Candidate{Commit: commit, Tree: tree}, err
}

func (g *Git) snapshot(ctx context.Context) (string, error) {
	var out bytes.Buffer
	if err := g.run(ctx, nil, nil, &capped{w: &out, left: maxLine}, "sh", "-c", snapshot); err != nil {
		var f *failure
		if errors.As(err, &f) {
			f.what = "add -A"
		}
		return "", fmt.Errorf("the files of the workspace cannot be committed: %w", err)
	}
	tree := strings.TrimSuffix(out.String(), "\n")
	if !isID(tree) {
		return "", fmt.Errorf("git write-tree printed %.80q instead of an id", tree)
	}
	return tree, nil
}

func (g *Git) commit(ctx context.Context, tree, parent, message string) (string, error) {
	message = strings.ToValidUTF8(strings.ReplaceAll(message, "\x00", ""), "\uFFFD")
	if strings.TrimSpace(message) == "" {
		message = "Changes of the session"
	}
	args := []string{"git", "commit-tree", tree, "-F", "-"}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	var out bytes.Buffer
	try := func(env ...string) error {
		out.Reset()
		return g.run(ctx, env, strings.NewReader(message), &capped{w: &out, left: maxLine}, args...)
	}
	err := try()
	if err != nil && runas.Code(err) == 128 {
		// Most likely nobody told git who commits; the reviewer's name is put in later.
		if try("GIT_AUTHOR_NAME=Agent", "GIT_AUTHOR_EMAIL=agent@glasshouse.invalid",
			"GIT_COMMITTER_NAME=Agent", "GIT_COMMITTER_EMAIL=agent@glasshouse.invalid") == nil {
			err = nil
		}
	}
	if err != nil {
		return "", err
	}
	commit := strings.TrimSuffix(out.String(), "\n")
	if !isID(commit) {
		return "", fmt.Errorf("git commit-tree printed %.80q instead of an id", commit)
	}
	return commit, nil
}
