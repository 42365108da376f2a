package review_test

import (
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
)

// TestCorporaHistories takes pairs of commits out of real repositories (bare ones
// in the folder that GLASSHOUSE_CORPORA names, at any depth of two) and compares
// partial accepts with git's own apply of the same subset.
func TestCorporaHistories(t *testing.T) {
	root := os.Getenv("GLASSHOUSE_CORPORA")
	if root == "" {
		t.Skip("skipped: GLASSHOUSE_CORPORA names no folder with outside repositories; 'make corpora' needs one")
	}
	var repos []string
	for _, pattern := range []string{"*/HEAD", "*/*/HEAD"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), "objects")); err == nil {
				repos = append(repos, filepath.Dir(f))
			}
		}
	}
	if len(repos) == 0 {
		t.Fatalf("GLASSHOUSE_CORPORA is %s, which holds no bare repository", root)
	}
	for _, dir := range repos {
		t.Run(strings.ReplaceAll(strings.TrimPrefix(dir, root+"/"), "/", "_"), func(t *testing.T) { history(t, dir) })
	}
}

func history(t *testing.T, dir string) {
	rnd := rand.New(rand.NewSource(1))
	// The corpus is only read: objects come from it by an alternate of a repository of ours.
	src := gittest.InitBare(t)
	if err := os.WriteFile(filepath.Join(src.Dir, "objects", "info", "alternates"), []byte(filepath.Join(dir, "objects")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	corpus := &gittest.Repo{T: t, Dir: dir, Env: src.Env}
	commits := strings.Fields(corpus.Git("rev-list", "--no-merges", "--max-count=4000", "HEAD"))
	if len(commits) < 20 {
		t.Skipf("skipped: only %d commits", len(commits))
	}
	pairs, files, hunks, lacking := 0, 0, 0, 0
	for range 60 {
		i := rnd.Intn(len(commits) - 12)
		cand, base := commits[i], commits[i+1+rnd.Intn(10)]
		if _, err := corpus.Try(nil, "merge-base", "--is-ancestor", base, cand); err != nil {
			continue
		}
		// Two commits of the same trees without the history, which is not what is compared
		// (and a stored snapshot may lack parts of).
		base = src.CommitTree(base + "^{tree}")
		cand = src.CommitTree(cand+"^{tree}", base)
		if _, err := src.Try([]byte(cand+"\n"), "pack-objects", "--revs", "--stdout", "-q"); err != nil {
			lacking++
			continue
		}
		m := mirrorOf(t, src, base, cand)
		o := objects(t, m)
		r := build(t, o, base, cand)
		if len(r.Files) == 0 {
			continue
		}
		pairs++
		files += len(r.Files)
		for range 3 {
			d := review.Decisions{}
			for i := range r.Files {
				f := &r.Files[i]
				hunks += len(f.Hunks)
				for _, u := range f.Units {
					_ = d.Set(r, f.ID, u, []review.Decision{review.Accept, review.Reject}[rnd.Intn(2)])
				}
			}
			id, err := review.AcceptedTree(t.Context(), o, r, d)
			if err != nil {
				if !strings.Contains(err.Error(), review.ErrConflict.Error()) {
					t.Fatal(err)
				}
				continue
			}
			patch, left, err := review.Patch(o, r, d)
			if err != nil {
				t.Fatal(err)
			}
			if len(left) > 0 {
				continue // binary content has no text form to compare
			}
			want, err := gitApply(t, src, base, patch)
			if err != nil || id.String() != want {
				t.Fatalf("%s..%s: tree %s, git says %s: %v", base, cand, id, want, err)
			}
		}
	}
	if pairs == 0 {
		t.Fatal("no pair of commits was usable: the test proves nothing")
	}
	t.Logf("%d pairs of commits, %d files, %d hunks decided at random; %d pairs lacked objects", pairs, files, hunks, lacking)
}
