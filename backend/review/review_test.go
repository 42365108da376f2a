package review_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
	"glasshouse/vm/proc"
)

// The test binary plays the hidden command that checks packs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == git.IndexRole {
		os.Exit(git.IndexMain(os.Args[2:], os.Stdin))
	}
	os.Exit(m.Run())
}

func mirrorOf(t testing.TB, src *gittest.Repo, commits ...string) *git.Mirror {
	t.Helper()
	home := t.TempDir()
	m, err := git.Open(filepath.Join(t.TempDir(), "mirror.git"), git.Options{Runner: &proc.Runner{}, Getenv: func(k string) string {
		return map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}[k]
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(commits...)), commits, git.GuestLimits()); err != nil {
		t.Fatal(err)
	}
	return m
}

func objects(t testing.TB, m *git.Mirror) *git.Objects {
	t.Helper()
	o, err := m.Objects()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func build(t testing.TB, o *git.Objects, base, cand string) *review.Review {
	t.Helper()
	r, err := review.Build(t.Context(), o, base, cand)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gitApply lets git put a patch on a tree, without a work tree.
func gitApply(t testing.TB, src *gittest.Repo, tree, patch string) (string, error) {
	t.Helper()
	in := &gittest.Repo{T: t, Dir: src.Dir, Env: []string{"GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")}}
	in.Git("read-tree", tree)
	if patch != "" {
		if _, err := in.Try([]byte(patch), "apply", "--cached", "--whitespace=nowarn", "-"); err != nil {
			return "", err
		}
	}
	return in.Git("write-tree"), nil
}

func accepted(t testing.TB, o *git.Objects, r *review.Review, d review.Decisions) string {
	t.Helper()
	id, err := review.AcceptedTree(t.Context(), o, r, d)
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

// checkPatchElsewhere has a second reader of patches agree on what each file becomes.
func checkPatchElsewhere(t testing.TB, src *gittest.Repo, base, want, patch string) {
	t.Helper()
	files, _, err := gitdiff.Parse(strings.NewReader(patch))
	if err != nil {
		t.Fatalf("go-gitdiff cannot parse the patch: %v\n%s", err, patch)
	}
	for _, f := range files {
		if f.IsBinary || len(f.TextFragments) == 0 {
			continue
		}
		var old, out bytes.Buffer
		if !f.IsNew {
			s, err := src.Try(nil, "cat-file", "blob", base+":"+f.OldName)
			if err != nil {
				t.Fatal(err)
			}
			old.WriteString(s)
		}
		if err := gitdiff.Apply(&out, bytes.NewReader(old.Bytes()), f); err != nil {
			t.Fatalf("go-gitdiff cannot apply to %s: %v", f.OldName, err)
		}
		if f.IsDelete {
			continue
		}
		got, err := src.Try(nil, "cat-file", "blob", want+":"+f.NewName)
		if err != nil {
			t.Fatal(err)
		}
		if got != out.String() {
			t.Fatalf("go-gitdiff makes another %s", f.NewName)
		}
	}
}

// TestAcceptedTreeAgreesWithGit: random repositories, random subsets of the
// changes; git's own apply of the same subset gives the same tree, and the rest
// on top of it gives the candidate.
func TestAcceptedTreeAgreesWithGit(t *testing.T) {
	seeds, subsets := int64(25), 6
	if testing.Short() {
		seeds, subsets = 6, 3
	}
	conflicts, renames, hunks := 0, 0, 0
	for seed := range seeds {
		rnd := rand.New(rand.NewSource(seed))
		src := gittest.Init(t)
		src.Mutate(rnd, 60)
		base := src.Commit("base")
		src.Mutate(rnd, 30)
		cand := src.Commit("candidate")
		m := mirrorOf(t, src, base, cand)
		o := objects(t, m)
		r := build(t, o, base, cand)
		all, none := review.Decisions{}, review.Decisions{}
		_ = all.SetAll(r, review.Accept)
		_ = none.SetAll(r, review.Reject)
		if got := accepted(t, o, r, all); got != r.CandidateTree {
			t.Fatal("accepting everything is not the candidate")
		}
		if got := accepted(t, o, r, none); got != r.BaseTree {
			t.Fatal("rejecting everything is not the base")
		}
		patch, left, err := review.Patch(o, r, all)
		if err != nil || len(left) != 0 {
			t.Fatalf("%v %v", left, err)
		}
		if got, err := gitApply(t, src, base, patch); err != nil || got != r.CandidateTree {
			t.Fatalf("seed %d: the whole patch gives %s, want %s: %v\n%s", seed, got, r.CandidateTree, err, patch)
		}
		for range subsets {
			d := review.Decisions{}
			for i := range r.Files {
				f := &r.Files[i]
				if f.Op == review.OpRename {
					renames++
				}
				hunks += len(f.Hunks)
				for _, u := range f.Units {
					_ = d.Set(r, f.ID, u, []review.Decision{review.Accept, review.Reject}[rnd.Intn(2)])
				}
			}
			patch, _, err := review.Patch(o, r, d)
			if err != nil {
				t.Fatal(err)
			}
			want, gerr := gitApply(t, src, base, patch)
			id, err := review.AcceptedTree(t.Context(), o, r, d)
			if err != nil {
				// git may not take it either, or quietly drops the file in the way.
				if !strings.Contains(err.Error(), review.ErrConflict.Error()) {
					t.Fatal(err)
				}
				conflicts++
				continue
			}
			if gerr != nil {
				t.Fatalf("seed %d: git refuses what was built: %v\n%s", seed, gerr, patch)
			}
			if id.String() != want {
				t.Fatalf("seed %d: tree %s, git says %s\n%s", seed, id, want, patch)
			}
			checkPatchElsewhere(t, src, base, want, patch)
			// The rest on top.
			mid := src.CommitTree(want, base)
			if _, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(mid, "^"+base, "^"+cand)), []string{mid}, git.GuestLimits()); err != nil {
				t.Fatal(err)
			}
			o2 := objects(t, m)
			r2 := build(t, o2, mid, cand)
			rest := review.Decisions{}
			_ = rest.SetAll(r2, review.Accept)
			patch2, _, err := review.Patch(o2, r2, rest)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := gitApply(t, src, want, patch2); err != nil || got != r.CandidateTree {
				t.Fatalf("seed %d: the rest gives %s: %v\n%s", seed, got, err, patch2)
			}
		}
	}
	if renames == 0 || hunks == 0 {
		t.Fatalf("the generator made %d renames and %d hunks: the test proves nothing", renames, hunks)
	}
	t.Logf("%d renames, %d hunks, %d conflicts", renames, hunks, conflicts)
}

// pairOf is a review of one file's two contents.
func pairOf(t testing.TB, old, new string) (*git.Objects, *review.Review, *gittest.Repo) {
	t.Helper()
	src := gittest.Init(t)
	src.Write("f", old)
	base := src.Commit("base")
	src.Write("f", new)
	cand := src.Commit("candidate")
	o := objects(t, mirrorOf(t, src, base, cand))
	return o, build(t, o, base, cand), src
}

func TestCornersOfTexts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	many := strings.Repeat("same\n", 30)
	for name, c := range map[string][2]string{
		"no end before":        {"a\nb", "a\nb\nc\n"},
		"no end after":         {"a\nb\n", "a\nb"},
		"no end on both":       {"a\nb", "a\nc"},
		"end added":            {"a\nb", "a\nb\n"},
		"empty to text":        {"", "x\n"},
		"empty to no end":      {"", "x"},
		"text to empty":        {"x\n", ""},
		"crlf":                 {"a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"},
		"lone cr":              {"a\rb\n", "a\rc\n"},
		"form feed, separator": {"a\fb\n\u2028c\n", "a\fb\n\u2028d\n"},
		"header look-alikes":   {"--- a/f\n+++ b/f\n@@ -1 +1 @@\n", "--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n"},
		"deleted dash line":    {"-- \nx\n", "x\n"},
		"blank lines":          {"\n\n\n", "\n\n\n\n"},
		"duplicates":           {many, many + many},
		"first chunk alone":    {"a\nb\n", "A\nb\nc\n"},
		"bom":                  {"\ufeffa\n", "a\n"},
		"long line":            {long + "\n", long + "y\n"},
		"conflict markers":     {"<<<<<<< x\n=======\n>>>>>>> y\n", "x\n"},
		"tabs and spaces":      {"\ta\n", "    a\n"},
		"swap":                 {"a\nb\nc\nd\n", "c\nd\na\nb\n"},
		"backslash line":       {"\\ No newline at end of file\n", "\\ No newline at end of file"},
	} {
		o, r, src := pairOf(t, c[0], c[1])
		d := review.Decisions{}
		_ = d.SetAll(r, review.Accept)
		patch, left, err := review.Patch(o, r, d)
		if err != nil || len(left) != 0 || len(r.Files) != 1 || len(r.Files[0].Hunks) == 0 {
			t.Fatalf("%s: %v %v %+v", name, left, err, r.Files)
		}
		got, err := gitApply(t, src, r.Base, patch)
		if err != nil || got != r.CandidateTree {
			t.Errorf("%s: git makes %s of the patch, want %s: %v\n%s", name, got, r.CandidateTree, err, clip(patch))
		}
		checkPatchElsewhere(t, src, r.Base, r.CandidateTree, patch)
	}
}

func clip(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}

// TestEveryHunkAlone applies each hunk by itself: a two-place edit where the first
// line changes and another is appended is the classic that goes wrong.
func TestEveryHunkAlone(t *testing.T) {
	var a, b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&a, "line %d\n", i)
		switch i {
		case 0:
			b.WriteString("first\n")
		case 20:
		case 40:
			b.WriteString("line 40\nmore\n")
		case 59:
			b.WriteString("line 59\nlast without end")
		default:
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	o, r, src := pairOf(t, a.String(), b.String())
	f := &r.Files[0]
	if len(f.Hunks) != 4 {
		t.Fatalf("%d hunks", len(f.Hunks))
	}
	for i := range f.Hunks {
		for _, except := range []bool{false, true} {
			d := review.Decisions{}
			for j := range f.Hunks {
				if (i == j) != except {
					_ = d.Set(r, f.ID, f.Hunks[j].ID, review.Accept)
				}
			}
			patch, _, err := review.Patch(o, r, d)
			if err != nil {
				t.Fatal(err)
			}
			want, err := gitApply(t, src, r.Base, patch)
			if err != nil {
				t.Fatalf("%v\n%s", err, patch)
			}
			if got := accepted(t, o, r, d); got != want {
				t.Fatalf("hunk %d: %s, git says %s", i, got, want)
			}
		}
	}
}
