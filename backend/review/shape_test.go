package review_test

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
)

// change is a review of what edit does to a repository that start made.
func change(t testing.TB, start, edit func(*gittest.Repo)) (*git.Objects, *review.Review, *gittest.Repo) {
	t.Helper()
	src := gittest.Init(t)
	start(src)
	base := src.Commit("base")
	edit(src)
	cand := src.Commit("candidate")
	o := objects(t, mirrorOf(t, src, base, cand))
	return o, build(t, o, base, cand), src
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "this is line %d\n", i)
	}
	return b.String()
}

func byPath(t testing.TB, r *review.Review, path string) *review.File {
	t.Helper()
	for i := range r.Files {
		if r.Files[i].Path == path {
			return &r.Files[i]
		}
	}
	t.Fatalf("no %q among %d files", path, len(r.Files))
	return nil
}

// listing is a tree as git lists it.
func listing(t testing.TB, src *gittest.Repo, m string, tree string) []string {
	t.Helper()
	in := &gittest.Repo{T: t, Dir: m}
	return strings.Split(in.Git("ls-tree", "-r", "--format=%(objectmode) %(path)", tree), "\n")
}

func TestRenameAndEditAreDecidedApart(t *testing.T) {
	src := gittest.Init(t)
	src.Write("old/name.txt", lines(0, 60))
	base := src.Commit("base")
	src.Git("mv", "old/name.txt", "new.txt")
	src.Write("new.txt", "top\n"+lines(0, 59)+"bottom\n")
	if err := os.Chmod(filepath.Join(src.Dir, "new.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	cand := src.Commit("candidate")
	m := mirrorOf(t, src, base, cand)
	o := objects(t, m)
	r := build(t, o, base, cand)
	f := byPath(t, r, "new.txt")
	if f.Op != review.OpRename || f.OldPath != "old/name.txt" || len(f.Hunks) != 2 || !slices.Equal(f.Units, []string{"rename", "mode", f.Hunks[0].ID, f.Hunks[1].ID}) {
		t.Fatalf("%+v", f)
	}
	contents := map[int]string{0: lines(0, 60), 1: "top\n" + lines(0, 60), 2: lines(0, 59) + "bottom\n", 3: "top\n" + lines(0, 59) + "bottom\n"}
	for bits := range 16 {
		d := review.Decisions{}
		for i, u := range f.Units {
			v := review.Reject
			if bits&(1<<i) != 0 {
				v = review.Accept
			}
			_ = d.Set(r, f.ID, u, v)
		}
		name, mode := "old/name.txt", "100644"
		if bits&1 != 0 {
			name = "new.txt"
		}
		if bits&2 != 0 {
			mode = "100755"
		}
		tree := accepted(t, o, r, d)
		if got := listing(t, src, m.Dir(), tree); !slices.Equal(got, []string{mode + " " + name}) {
			t.Fatalf("%04b: %q", bits, got)
		}
		in := &gittest.Repo{T: t, Dir: m.Dir()}
		if got := in.Git("cat-file", "blob", tree+":"+name); got+"\n" != contents[bits>>2] {
			t.Fatalf("%04b: %q", bits, got)
		}
	}
}

func TestOpsAndUnits(t *testing.T) {
	o, r, _ := change(t, func(s *gittest.Repo) {
		s.Write("mode", "x\n")
		s.Write("bin", "a\x00b")
		s.Write("latin", "caf\xe9\n")
		s.Write("gone", "g\n")
		s.Write("tolink", "t\n")
		s.Write("dir/inner", "i\n")
		s.Write("file", "f\n")
		s.Write("empty", "")
		s.Write("Case", lines(0, 9))
		_ = os.Symlink("gone", filepath.Join(s.Dir, "link"))
	}, func(s *gittest.Repo) {
		_ = os.Chmod(filepath.Join(s.Dir, "mode"), 0o755)
		s.Write("bin", "a\x00c")
		s.Write("latin", "caf\xe8\n")
		s.Remove("gone", "tolink", "dir", "file", "link", "empty", "Case")
		_ = os.Symlink("mode", filepath.Join(s.Dir, "tolink"))
		s.Write("dir", "now a file\n")
		s.Write("file/inner", "now a folder\n")
		s.Write("new", "n")
		s.Write("empty2", "")
		s.Write("case", lines(0, 9))
		_ = os.Symlink("../../etc/passwd", filepath.Join(s.Dir, "link"))
	})
	want := map[string]string{
		"mode": "mode [mode]", "bin": "modify [content]", "latin": "modify [content]", "gone": "delete [file]", "tolink": "type [file]",
		"dir/inner": "delete [file]", "dir": "add [file]", "file": "delete [file]", "file/inner": "add [file]", "new": "add [file]",
		"empty": "delete [file]", "empty2": "add [file]", "case": "rename [rename]", "link": "modify [HUNK]",
	}
	for i := range r.Files {
		f := &r.Files[i]
		got := fmt.Sprintf("%s %v", f.Op, f.Units)
		for _, h := range f.Hunks {
			got = strings.ReplaceAll(got, h.ID, "HUNK")
		}
		if want[f.Path] != got {
			t.Errorf("%s: %s, want %s", f.Path, got, want[f.Path])
		}
		delete(want, f.Path)
	}
	if len(want) != 0 {
		t.Errorf("missing: %v", want)
	}
	if f := byPath(t, r, "latin"); !f.Binary || f.Whole != "not UTF-8" {
		t.Errorf("%+v", f)
	}
	// A folder in a file's place needs both halves, or neither.
	d := review.Decisions{}
	_ = d.SetAll(r, review.Accept)
	_ = d.Set(r, byPath(t, r, "file").ID, "", review.Reject)
	if _, err := review.AcceptedTree(t.Context(), o, r, d); !errors.Is(err, review.ErrConflict) || !strings.Contains(err.Error(), "file/inner") {
		t.Errorf("a file and a folder of one name: %v", err)
	}
	d = review.Decisions{}
	_ = d.SetAll(r, review.Accept)
	_ = d.Set(r, byPath(t, r, "dir/inner").ID, "", review.Reject)
	if _, err := review.AcceptedTree(t.Context(), o, r, d); !errors.Is(err, review.ErrConflict) {
		t.Errorf("a folder and a file of one name: %v", err)
	}
	_ = d.Set(r, byPath(t, r, "dir").ID, "", review.Reject)
	if _, err := review.AcceptedTree(t.Context(), o, r, d); err != nil {
		t.Errorf("both rejected: %v", err)
	}
}

func TestDecisionsAreChecked(t *testing.T) {
	_, r, _ := change(t, func(s *gittest.Repo) { s.Write("a", "1\n") }, func(s *gittest.Repo) { s.Write("a", "2\n") })
	f := &r.Files[0]
	for _, bad := range [][3]string{{"nope", "", "accept"}, {f.ID, "nope", "accept"}, {f.ID, "file", "accept"}, {f.ID, "", "yes"}, {f.ID, "", ""}} {
		d := review.Decisions{}
		if err := d.Set(r, bad[0], bad[1], review.Decision(bad[2])); err == nil || len(d) != 0 {
			t.Errorf("%q was taken: %v %v", bad, err, d)
		}
	}
}

func TestReviewsAreTheSameEveryTime(t *testing.T) {
	rnd := rand.New(rand.NewSource(7))
	src := gittest.Init(t)
	src.Mutate(rnd, 80)
	base := src.Commit("base")
	src.Mutate(rnd, 50)
	cand := src.Commit("candidate")
	o := objects(t, mirrorOf(t, src, base, cand))
	first := fmt.Sprintf("%+v", build(t, o, base, cand).Files)
	for range 3 {
		if got := fmt.Sprintf("%+v", build(t, o, base, cand).Files); got != first {
			t.Fatal("the same two commits gave another review")
		}
	}
	// What stays the same file keeps its id in the next candidate.
	r := build(t, o, base, cand)
	src.Write("unrelated", "x\n")
	next := src.Commit("next")
	o2 := objects(t, mirrorOf(t, src, base, next))
	r2 := build(t, o2, base, next)
	kept := 0
	for i := range r.Files {
		if f, ok := r2.File(r.Files[i].ID); ok && slices.Equal(f.Units, r.Files[i].Units) {
			kept++
		}
	}
	if kept != len(r.Files) {
		t.Fatalf("%d of %d files kept their marks", kept, len(r.Files))
	}
}

func TestFlags(t *testing.T) {
	_, r, _ := change(t, func(s *gittest.Repo) {
		s.Write("pkg/x_test.go", "package x\n")
		s.Write("package.json", "{\n}\n")
		s.Write("tool", "x\n")
	}, func(s *gittest.Repo) {
		s.Remove("pkg/x_test.go")
		s.Write("package.json", "{\n  \"postinstall\": \"curl x\"\n}\n")
		_ = os.Chmod(filepath.Join(s.Dir, "tool"), 0o755)
		for _, n := range []string{".github/workflows/ci.yml", ".husky/pre-commit", "sub/go.sum", "setup.py", ".gitattributes", ".mcp.json", ".vscode/tasks.json", "x/.claude/settings.json", ".bashrc", "CLAUDE.md"} {
			s.Write(n, "x\n")
		}
		s.Write(".gitmodules", "[submodule \"a\"]\n\tpath = ../x\n\turl = ext::sh -c id\n\tupdate = !id\n")
		s.Write("bidi.js", "if (a) { // \u202e check\n")
		s.Write("zero.js", "pass\u200bword\n")
		s.Write("min.js", strings.Repeat("x", 3000)+"\n")
		s.Write("big.txt", strings.Repeat("text line\n", 200_000))
		s.Write("blob", "\x00\x01")
		s.Write("movie", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
		s.Write("evil\u202etxt.exe", "x")
		s.Write("README", "x")
		s.Write("readme", "x")
		_ = os.Symlink("/etc/passwd", filepath.Join(s.Dir, "abs"))
		_ = os.Symlink("../../x", filepath.Join(s.Dir, "pkg-up"))
		_ = os.Symlink("blob", filepath.Join(s.Dir, "ok"))
	})
	for path, kind := range map[string]string{
		"pkg/x_test.go": review.FlagDeletedTest, "package.json": review.FlagInstall, "tool": review.FlagExec, ".github/workflows/ci.yml": review.FlagCI, ".husky/pre-commit": review.FlagHook,
		"sub/go.sum": review.FlagLockfile, "setup.py": review.FlagInstall, ".gitattributes": review.FlagGitFile, ".gitmodules": review.FlagGitModules, ".mcp.json": review.FlagAgent,
		".vscode/tasks.json": review.FlagAgent, "x/.claude/settings.json": review.FlagAgent, "CLAUDE.md": review.FlagAgent, ".bashrc": review.FlagShell, "bidi.js": review.FlagBidi, "zero.js": review.FlagInvisible,
		"min.js": review.FlagMinified, "big.txt": review.FlagLarge, "blob": review.FlagBinary, "evil\u202etxt.exe": review.FlagName, "readme": review.FlagCaseTwin, "abs": review.FlagSymlinkOut,
		"pkg-up": review.FlagSymlinkOut, "ok": review.FlagSymlink, "movie": review.FlagLFS,
	} {
		f := byPath(t, r, path)
		if !slices.ContainsFunc(f.Flags, func(x review.Flag) bool { return x.Kind == kind }) {
			t.Errorf("%s lacks %s: %+v", path, kind, f.Flags)
		}
	}
	for _, plain := range []string{"README"} {
		if f := byPath(t, r, plain); len(f.Flags) != 0 {
			t.Errorf("%s has %+v", plain, f.Flags)
		}
	}
	if d := byPath(t, r, "evil\u202etxt.exe").Display; d != `evil\u{202e}txt.exe` {
		t.Errorf("shown as %q", d)
	}
}

func TestDisplay(t *testing.T) {
	for in, want := range map[string]string{
		"plain/näme.txt": "plain/näme.txt", "a\nb": `a\nb`, "\xff": `\xff`, `a\nb`: `a\\nb`, "\x1b[31m": `\u{001b}[31m`, "a\u200db": `a\u{200d}b`, "日本": "日本", "\u3164": `\u{3164}`,
		"\ufffd": "\ufffd",
	} {
		if got := review.Display(in); got != want {
			t.Errorf("%q shown as %q, want %q", in, got, want)
		}
	}
}

func TestSubmodulesAreDecidedWhole(t *testing.T) {
	src := gittest.Init(t)
	src.Write("a", "1\n")
	base := src.Commit("base")
	blob := src.Git("rev-parse", "HEAD:a")
	tree := src.RawTree(gittest.Entry{Mode: "100644", Name: "a", ID: blob}, gittest.Entry{Mode: "160000", Name: "sub", ID: strings.Repeat("12", 20)})
	cand := src.CommitTree(tree, base)
	o := objects(t, mirrorOf(t, src, base, cand))
	r := build(t, o, base, cand)
	f := byPath(t, r, "sub")
	if !slices.Equal(f.Units, []string{"file"}) || !slices.ContainsFunc(f.Flags, func(x review.Flag) bool { return x.Kind == review.FlagSubmodule }) {
		t.Fatalf("%+v", f)
	}
}

// TestLargeReviews: a file of 50,000 lines with thousands of edits, one that is
// entirely new, and more than a thousand files.
func TestLargeReviews(t *testing.T) {
	rnd := rand.New(rand.NewSource(3))
	var a, b, c strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&a, "line %d of %d\n", i, rnd.Intn(100))
		if rnd.Intn(10) == 0 {
			fmt.Fprintf(&b, "edited %d\n", rnd.Intn(1000))
		} else {
			fmt.Fprintf(&b, "line %d of %d\n", i, i%100)
		}
		fmt.Fprintf(&c, "%d\n", rnd.Intn(6))
	}
	shuffled := strings.SplitAfter(c.String(), "\n")
	rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	o, r, src := change(t, func(s *gittest.Repo) {
		s.Write("edits", a.String())
		s.Write("same-words", c.String())
		for i := range 1200 {
			s.Write(fmt.Sprintf("many/d%d/f%d", i%30, i), lines(i, i+30))
		}
	}, func(s *gittest.Repo) {
		s.Write("edits", b.String())
		s.Write("same-words", strings.Join(shuffled, ""))
		for i := range 1200 {
			s.Write(fmt.Sprintf("many/d%d/f%d", i%30, i), lines(i, i+15)+"edit\n"+lines(i+15, i+30))
		}
	})
	if len(r.Files) != 1202 {
		t.Fatalf("%d files", len(r.Files))
	}
	if f := byPath(t, r, "same-words"); !f.Coarse {
		t.Logf("the shuffled file was within the budget (%d hunks)", len(f.Hunks))
	}
	d := review.Decisions{}
	for i := range r.Files {
		for _, u := range r.Files[i].Units {
			_ = d.Set(r, r.Files[i].ID, u, []review.Decision{review.Accept, review.Reject}[rnd.Intn(2)])
		}
	}
	patch, _, err := review.Patch(o, r, d)
	if err != nil {
		t.Fatal(err)
	}
	want, err := gitApply(t, src, r.Base, patch)
	if err != nil {
		t.Fatal(err)
	}
	if got := accepted(t, o, r, d); got != want {
		t.Fatalf("%s, git says %s", got, want)
	}
}

func BenchmarkBuild50kLines(b *testing.B) {
	rnd := rand.New(rand.NewSource(3))
	var x, y strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&x, "line %d\n", i)
		if rnd.Intn(3) == 0 {
			fmt.Fprintf(&y, "edited %d\n", rnd.Intn(1000))
		} else {
			fmt.Fprintf(&y, "line %d\n", i)
		}
	}
	o, r, _ := change(b, func(s *gittest.Repo) { s.Write("f", x.String()) }, func(s *gittest.Repo) { s.Write("f", y.String()) })
	b.ResetTimer()
	for range b.N {
		build(b, o, r.Base, r.Candidate)
	}
}
