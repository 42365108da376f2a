//go:build linux

package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch"
)

var bg = context.Background()

type rig struct {
	t      *testing.T
	ws     string
	shadow string
	c      *Checkpoints
	spawns atomic.Int32
}

// setup makes a workspace with checkpoints; watched with a real watcher.
func setup(t *testing.T, watched bool) *rig {
	t.Helper()
	r := &rig{t: t, ws: t.TempDir(), shadow: filepath.Join(t.TempDir(), "shadow")}
	opts := Options{Root: r.ws, Shadow: r.shadow, Logf: t.Logf, Run: r.run}
	if watched {
		w := watch.New(watch.Options{Root: r.ws, Logf: t.Logf, Sweep: time.Hour})
		ctx, cancel := context.WithCancel(bg)
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		opts.Watcher = w
		// Wait until it is up: then the second of two barriers is not All.
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if d, err := w.Barrier(bg); err != nil || time.Now().After(end) {
				t.Fatal("the watcher does not come up: ", err)
			} else if !d.All {
				break
			}
		}
	}
	r.c = New(opts)
	t.Cleanup(func() { r.c.Close() })
	return r
}

func (r *rig) run(ctx context.Context, argv, env []string, dir string, in io.Reader, out, errs io.Writer) error {
	r.spawns.Add(1)
	return runas.User(-1, -1)(ctx, argv, env, dir, in, out, errs)
}

func (r *rig) path(rel string) string { return filepath.Join(r.ws, rel) }

func (r *rig) write(rel, data string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(rel)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.path(rel), []byte(data), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) take() guest.Checkpoint {
	r.t.Helper()
	cp, err := r.c.Take(bg, guest.CheckpointRequest{Session: "s", Step: "st"})
	if err != nil {
		r.t.Fatal(err)
	}
	return cp
}

func (r *rig) restore(commit string) guest.Checkpoint {
	r.t.Helper()
	cp, err := r.c.Restore(bg, commit)
	if err != nil {
		r.t.Fatal(err)
	}
	return cp
}

func run(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}, env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, errs.String())
	}
	return string(out)
}

func (r *rig) git(args ...string) string {
	r.t.Helper()
	return run(r.t, r.ws, nil, append([]string{"git"}, args...)...)
}

// inShadow runs git on the store.
func (r *rig) inShadow(args ...string) string {
	r.t.Helper()
	return run(r.t, r.shadow, nil, append([]string{"git", "--git-dir", r.shadow}, args...)...)
}

func (r *rig) fsck() {
	r.t.Helper()
	cmd := exec.Command("git", "--git-dir", r.shadow, "fsck", "--strict", "--full", "--no-dangling")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("error")) || bytes.Contains(out, []byte("warning")) {
		r.t.Fatalf("fsck: %v\n%s", err, out)
	}
}

// files is the workspace as path -> type, exec bit and bytes; .git of any depth left out.
func (r *rig) files() map[string]string { return filesOf(r.t, r.ws) }

func filesOf(t *testing.T, ws string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(ws, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(ws, p)
		switch {
		case d.Name() == ".git" && d.IsDir():
			return filepath.SkipDir
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			out[rel] = "link " + target
			return err
		case d.Type().IsRegular():
			data, err := os.ReadFile(p)
			fi, _ := d.Info()
			kind := "file "
			if fi.Mode()&0o100 != 0 {
				kind = "exec "
			}
			out[rel] = kind + string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for p, v := range want {
		if got[p] != v {
			t.Errorf("%s: %q is %.80q, want %.80q", what, p, got[p], v)
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s: %q is too much", what, p)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// gitTree is the tree real git makes of the workspace, without attributes and without what
// a killed restore leaves.
func (r *rig) gitTree() string {
	r.t.Helper()
	dir := r.t.TempDir()
	run(r.t, dir, nil, "git", "init", "-q", "--bare", "--template=", dir+"/o")
	os.MkdirAll(dir+"/o/info", 0o755)
	os.WriteFile(dir+"/o/info/attributes", []byte("* -text -eol -filter -ident -working-tree-encoding\n"), 0o644)
	env := []string{"GIT_DIR=" + dir + "/o", "GIT_WORK_TREE=" + r.ws, "GIT_INDEX_FILE=" + dir + "/index"}
	run(r.t, r.ws, env, "git", "-c", "core.bare=false", "-c", "advice.addEmbeddedRepo=false", "add", "-A", "--", ".", ":(exclude,glob)**/"+tmpName)
	return strings.TrimSpace(run(r.t, r.ws, env, "git", "write-tree"))
}

func (r *rig) check(cp guest.Checkpoint) {
	r.t.Helper()
	if want := r.gitTree(); cp.Tree != want {
		r.t.Fatalf("tree %s, git says %s\n%s", cp.Tree, want, r.inShadow("ls-tree", "-r", cp.Tree))
	}
	sum := sha256.Sum256([]byte(r.inShadow("ls-tree", "-r", "-z", cp.Tree)))
	if hex.EncodeToString(sum[:]) != cp.Sum {
		r.t.Fatal("the sum is not that of ls-tree")
	}
	if got := strings.TrimSpace(r.inShadow("rev-parse", cp.Commit+"^{tree}")); got != cp.Tree {
		r.t.Fatal("the commit has another tree")
	}
}

func TestFirstSecondSame(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		r.write("a", "one\n")
		r.write("d/e/f", "two\n")
		os.Chmod(r.path("a"), 0o755)
		os.Symlink("../nowhere", r.path("d/l"))
		os.Mkdir(r.path("empty"), 0o755)
		unix.Mkfifo(r.path("pipe"), 0o644) // must not hang
		first := r.take()
		r.check(first)
		if first.Same || first.Parent != "" || len(first.Changes) != 0 {
			t.Fatalf("%+v", first)
		}
		spawns := r.spawns.Load()
		again := r.take()
		if !again.Same || again.Commit != first.Commit || again.Tree != first.Tree || again.Sum != first.Sum {
			t.Fatalf("%+v", again)
		}
		if r.spawns.Load() != spawns {
			t.Fatal("git ran although nothing changed")
		}
		r.write("d/e/f", "two\nthree\n")
		os.Rename(r.path("a"), r.path("b"))
		r.write("bin", "a\x00b")
		second := r.take()
		r.check(second)
		if second.Same || second.Parent != first.Commit {
			t.Fatalf("%+v", second)
		}
		if n := r.spawns.Load() - spawns; n > 1 {
			t.Fatalf("%d programs for a small checkpoint", n)
		}
		want := []guest.FileChange{
			{Path: "b", OldPath: "a", Op: "rename", OldMode: 0o100755, NewMode: 0o100755},
			{Path: "bin", Op: "add", NewMode: 0o100644, Binary: true},
			{Path: "d/e/f", Op: "modify", OldMode: 0o100644, NewMode: 0o100644, Added: 1},
		}
		sort.Slice(second.Changes, func(i, j int) bool { return second.Changes[i].Path < second.Changes[j].Path })
		if !slices.Equal(second.Changes, want) {
			t.Fatalf("changes %+v", second.Changes)
		}
		d, more, err := r.c.Diff(bg, first.Commit, second.Commit)
		if err != nil || more || len(d) != 3 {
			t.Fatal(d, more, err)
		}
		spawns = r.spawns.Load()
		os.Chmod(r.path("b"), 0o644)
		os.Remove(r.path("bin"))
		os.Remove(r.path("d/l"))
		r.write("d/l", "a file now")
		third := r.take()
		if r.spawns.Load() != spawns {
			t.Fatal("a program was started for a checkpoint")
		}
		r.check(third)
		ops := map[string]string{}
		for _, c := range third.Changes {
			ops[c.Path] = c.Op
		}
		if !maps.Equal(ops, map[string]string{"b": "mode", "bin": "delete", "d/l": "type"}) {
			t.Fatalf("%+v", third.Changes)
		}
		r.fsck()
	}
}

// mutate does one random thing to the workspace.
func mutate(r *rig, rnd *rand.Rand) {
	name := func() string {
		pool := []string{"a", "b", "c", "d.o", "x y", "n\nl", "\xff\xfe", "é", "-dash", strings.Repeat("l", 255), "a.b", "a-b", "a0"}
		var parts []string
		for range 1 + rnd.Intn(3) {
			parts = append(parts, pool[rnd.Intn(len(pool))])
		}
		return strings.Join(parts, "/")
	}
	p := r.path(name())
	switch rnd.Intn(12) {
	case 0:
		os.RemoveAll(p)
	case 1:
		os.Rename(p, r.path(name()))
	case 2:
		os.Remove(p)
		os.Symlink(name(), p)
	case 3:
		os.Chmod(p, []os.FileMode{0o644, 0o755}[rnd.Intn(2)])
	case 4:
		if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
			if f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0); err == nil {
				fmt.Fprintf(f, "more %d\n", rnd.Intn(5))
				f.Close()
			}
		}
	case 5:
		if rnd.Intn(4) == 0 {
			rules := []string{"*.o\n", "/a/\n", "b\n", "", "c/*\n!c/a\n"}
			at := r.ws
			if fi, err := os.Lstat(r.path("a")); err == nil && fi.IsDir() && rnd.Intn(2) == 0 {
				at = r.path("a")
			}
			os.WriteFile(at+"/.gitignore", []byte(rules[rnd.Intn(len(rules))]), 0o644)
		}
	case 6: // atomic save
		if os.WriteFile(p+"~", []byte(fmt.Sprint(rnd.Intn(9))), 0o644) == nil {
			os.Rename(p+"~", p)
		}
	default:
		os.MkdirAll(filepath.Dir(p), 0o755)
		os.WriteFile(p, []byte(strings.Repeat(fmt.Sprintln(rnd.Intn(4)), rnd.Intn(30))), 0o644)
	}
}

// TestTreesAreGits changes a workspace at random and compares every checkpoint
// with what real git makes of it.
func TestTreesAreGits(t *testing.T) {
	for _, watched := range []bool{false, true} {
		for seed := range 3 {
			r := setup(t, watched)
			rnd := rand.New(rand.NewSource(int64(seed)))
			prev := ""
			for range 25 {
				for range rnd.Intn(8) {
					mutate(r, rnd)
				}
				cp := r.take()
				r.check(cp)
				if cp.Same != (cp.Tree == prev) {
					t.Fatalf("Same is %v, tree %s after %s", cp.Same, cp.Tree, prev)
				}
				prev = cp.Tree
			}
			if watched {
				full, err := r.c.Take(bg, guest.CheckpointRequest{Full: true})
				if err != nil || !full.Same {
					t.Fatalf("a full look finds more than the watcher: %+v %v", full.Changes, err)
				}
			}
			r.fsck()
		}
	}
}

func TestBytesAreExact(t *testing.T) {
	r := setup(t, true)
	r.git("init", "-q")
	r.git("config", "core.autocrlf", "true")
	r.git("config", "filter.evil.clean", "touch "+r.ws+"/../ran; cat")
	r.git("config", "filter.evil.smudge", "touch "+r.ws+"/../ran; cat")
	r.git("config", "core.hooksPath", r.ws+"/hooks")
	r.write(".gitattributes", "* text=auto eol=crlf filter=evil ident\n*.u16 working-tree-encoding=UTF-16\n")
	r.write("crlf", "a\r\nb\r\n")
	r.write("mixed", "a\r\nb\n\r")
	r.write("lf", "a\nb")
	r.write("id", "$Id$ $Id: x $")
	r.write("w.u16", "\xff\xfea\x00b\x00")
	r.write("sub/.gitattributes", "* -diff -text\n")
	r.write("lfs", "version https://git-lfs.github.com/spec/v1\n")
	want := r.files()
	cp := r.take()
	for p, v := range want {
		if got := r.inShadow("cat-file", "blob", cp.Commit+":"+p); "file "+got != v {
			t.Fatalf("%s is stored as %q, want %q", p, got, v)
		}
	}
	for p := range want {
		r.write(p, "spoiled")
	}
	r.restore(cp.Commit)
	same(t, "restored", r.files(), want)
	if _, err := os.Stat(r.ws + "/../ran"); err == nil {
		t.Fatal("a filter of the repository ran")
	}
	r.fsck()
}

func TestHostileNames(t *testing.T) {
	r := setup(t, true)
	names := []string{"new\nline", "tab\t", "\xff\xfe\xfd", "-rf", "--", " ", "a ", `"quoted"`, `back\slash`, "*", "?", "[a]", ":(top)x", "$(touch x)", strings.Repeat("n", 255), "\u202egpj", "~", "...", "a/..b/c", ".gitmodules2", "é\u0301"}
	for i, n := range names {
		r.write(n, fmt.Sprint(i))
	}
	r.write(strings.Repeat("d/", 60)+"deep", "x")
	want := r.files()
	cp := r.take()
	r.check(cp)
	if len(cp.NotCaptured) != 0 {
		t.Fatalf("%q", cp.NotCaptured)
	}
	for _, n := range names {
		os.Remove(r.path(n))
	}
	if gone := r.take(); len(gone.Changes) != len(names) {
		t.Fatalf("%d changes for %d files", len(gone.Changes), len(names))
	}
	r.restore(cp.Commit)
	same(t, "restored", r.files(), want)
	r.fsck()
}

func TestNamesGitRefuses(t *testing.T) {
	r := setup(t, true)
	bad := []string{".GIT", ".git ", ".git.", "git~1", ".git::$INDEX_ALLOCATION", ".g\u200cit", "x\\.git", "sub/.Git/config"}
	for _, n := range bad {
		r.write(n, "precious")
	}
	r.write("ok", "1")
	r.write("git~2", "1")
	r.write(".gitx", "1")
	first := r.take()
	if got := strings.TrimSpace(r.inShadow("ls-tree", "-r", "--name-only", first.Commit)); got != ".gitx\ngit~2\nok" {
		t.Fatalf("captured %q", got)
	}
	if len(first.NotCaptured) != len(bad) {
		t.Fatalf("not captured: %q", first.NotCaptured)
	}
	r.write("ok", "2")
	r.restore(first.Commit)
	for _, n := range bad {
		if data, err := os.ReadFile(r.path(n)); err != nil || string(data) != "precious" {
			t.Fatalf("%q was lost by a restore: %v", n, err)
		}
	}
	r.fsck()
}

func TestNestedRepositoriesAreFiles(t *testing.T) {
	r := setup(t, true)
	r.git("init", "-q")
	r.write("sub/f", "1\n")
	run(t, r.path("sub"), nil, "git", "init", "-q")
	run(t, r.path("sub"), nil, "git", "add", "f")
	run(t, r.path("sub"), nil, "git", "commit", "-qm", "x")
	r.git("-c", "advice.addEmbeddedRepo=false", "add", "sub") // a gitlink for the user's git
	cp := r.take()
	if got := strings.TrimSpace(r.inShadow("ls-tree", "-r", "--name-only", cp.Commit)); got != "sub/f" {
		t.Fatalf("captured %q", got)
	}
	r.write("sub/f", "2\n")
	if cp := r.take(); len(cp.Changes) != 1 || cp.Changes[0].Path != "sub/f" {
		t.Fatalf("%+v", cp.Changes)
	}
	r.restore(cp.Commit)
	if r.files()["sub/f"] != "file 1\n" {
		t.Fatal("not restored")
	}
	run(t, r.path("sub"), nil, "git", "log", "-1")
}

func TestIgnoredAreCounted(t *testing.T) {
	r := setup(t, true)
	r.git("init", "-q")
	r.write(".gitignore", "node_modules\n*.o\n")
	for i := range 7 {
		r.write(fmt.Sprintf("node_modules/p%d/i.js", i), "x")
	}
	r.write("a.o", "x")
	r.write("src/b.o", "x")
	r.write("src/b.c", "x")
	count := func() int {
		return strings.Count(r.git("ls-files", "-z", "-o", "-i", "--exclude-standard"), "\x00")
	}
	cp := r.take()
	r.check(cp)
	if cp.Ignored != count() || cp.Ignored != 9 {
		t.Fatalf("%d ignored, git says %d", cp.Ignored, count())
	}
	r.write("src/c.o", "x")
	os.Remove(r.path("a.o"))
	os.Remove(r.path("src/b.o"))
	if cp := r.take(); cp.Ignored != count() || !cp.Same {
		t.Fatalf("%d ignored, git says %d, same %v", cp.Ignored, count(), cp.Same)
	}
	// A rule that hides a file is seen, and the file is not deleted by a restore.
	r.write(".gitignore", "node_modules\n*.o\nsecret\n")
	r.write("secret", "s")
	cp2 := r.take()
	if cp2.Ignored != count() {
		t.Fatalf("%d ignored, git says %d", cp2.Ignored, count())
	}
	r.restore(cp.Commit)
	if r.files()["secret"] != "file s" || r.files()["src/c.o"] != "file x" {
		t.Fatal("an ignored file was lost")
	}
}

func TestTrackedThoughIgnored(t *testing.T) {
	for _, kind := range []string{"plain", "v4", "split"} {
		r := setup(t, true)
		r.git("init", "-q")
		r.write(".gitignore", "*.log\nvendor/\n")
		r.write("keep.log", "1")
		r.write("vendor/lib/x.c", "1")
		r.write("vendor/lib/y.c", "1")
		r.git("add", "-f", "keep.log", "vendor/lib/x.c", ".gitignore")
		switch kind {
		case "v4":
			r.git("update-index", "--index-version", "4")
		case "split":
			r.git("update-index", "--split-index")
		}
		list := func(cp guest.Checkpoint) string {
			return strings.ReplaceAll(strings.TrimSpace(r.inShadow("ls-tree", "-r", "--name-only", cp.Commit)), "\n", " ")
		}
		cp := r.take()
		if got := list(cp); got != ".gitignore keep.log vendor/lib/x.c" {
			t.Fatalf("%s: captured %q", kind, got)
		}
		r.write("vendor/lib/x.c", "2") // in a folder nobody watches
		if cp := r.take(); len(cp.Changes) != 1 || cp.Changes[0].Path != "vendor/lib/x.c" {
			t.Fatalf("%s: %+v", kind, cp.Changes)
		}
		if again := r.take(); !again.Same {
			t.Fatalf("%s: %+v", kind, again.Changes)
		}
		r.restore(cp.Commit)
		if r.files()["vendor/lib/x.c"] != "file 1" || r.files()["vendor/lib/y.c"] != "file 1" {
			t.Fatal(kind, ": not restored")
		}
		r.git("rm", "-q", "--cached", "keep.log")
		if got := list(r.take()); got != ".gitignore vendor/lib/x.c" {
			t.Fatalf("%s: captured %q after it was untracked", kind, got)
		}
		if r.files()["keep.log"] != "file 1" {
			t.Fatal("lost")
		}
	}
}

func TestManyChanges(t *testing.T) {
	r := setup(t, true)
	r.write("x", "1")
	first := r.take()
	for i := range maxChanges + 5 {
		r.write(fmt.Sprintf("d%d/f%d", i%10, i), fmt.Sprint(i))
	}
	cp := r.take()
	r.check(cp)
	if len(cp.Changes) != maxChanges || !cp.More {
		t.Fatal(len(cp.Changes), cp.More)
	}
	d, more, err := r.c.Diff(bg, first.Commit, cp.Commit)
	if err != nil || len(d) != maxChanges || !more {
		t.Fatal(len(d), more, err)
	}
	packs, _ := filepath.Glob(r.shadow + "/objects/pack/*.pack")
	if len(packs) != 1 {
		t.Fatalf("%d packs", len(packs))
	}
	r.fsck()
}

func TestStoreInsideWorkspace(t *testing.T) {
	ws := t.TempDir()
	os.Symlink(ws, ws+"-link")
	defer os.Remove(ws + "-link")
	for _, shadow := range []string{ws, ws + "/a/b", ws + "-link/s"} {
		if _, err := New(Options{Root: ws, Shadow: shadow}).Take(bg, guest.CheckpointRequest{}); err == nil {
			t.Fatal(shadow)
		}
	}
	if left, _ := os.ReadDir(ws); len(left) != 0 {
		t.Fatal(left)
	}
}

// TestDifferDies: the process that compares is started again when it is gone,
// and a path of any look does not confuse it.
func TestDifferDies(t *testing.T) {
	r := setup(t, true)
	r.write("f", "0\n")
	r.take()
	for i := range 12 {
		r.write("f", fmt.Sprintf("%d\n", i+1))
		r.write(fmt.Sprintf("sync\n%d", i), strings.Repeat("sync\n", i))
		if i%4 == 3 {
			r.c.differ.stop()
		}
		cp := r.take()
		if len(cp.Changes) != 2 || cp.Changes[0].Added != 1 || cp.Changes[0].Deleted != 1 || cp.Changes[1].Path != fmt.Sprintf("sync\n%d", i) {
			t.Fatalf("round %d: %+v", i, cp.Changes)
		}
	}
	// A pack that appeared after the process started.
	for i := range 3 * packFrom {
		r.write(fmt.Sprint("many", i), fmt.Sprintln(i))
	}
	if cp := r.take(); len(cp.Changes) != 3*packFrom || cp.Changes[0].Added != 1 || r.c.differ == nil {
		t.Fatalf("%d changes, %+v", len(cp.Changes), cp.Changes[0])
	}
	r.c.Close()
	r.write("f", "last\n")
	if cp := r.take(); len(cp.Changes) != 1 {
		t.Fatalf("%+v", cp.Changes)
	}
}
