//go:build linux

package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest/watch/ignore"
	"glasshouse/vm/guest/watch/scan"
)

// Pipes and sockets are in no checkpoint; in the place of what comes back they are
// renamed, like folders.
func TestRestoreOverPipes(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		r.write("a", "1")
		r.write("d/b", "1")
		was := r.files()
		one := r.take()
		for _, p := range []string{"a", "d"} {
			if err := os.RemoveAll(r.path(p)); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(r.path(p), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r.restore(one.Commit)
		same(t, "restored", r.files(), was)
		kept := 0
		es, err := os.ReadDir(r.ws)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if strings.Contains(e.Name(), ".kept-") && e.Type()&os.ModeNamedPipe != 0 {
				kept++
			}
		}
		if kept != 2 {
			t.Errorf("%d pipes were kept: %v", kept, es)
		}
	}
}

// What was ignored before a restore, and again after its undo, stays all the while,
// although in between no rule ignored it.
func TestUndoLeavesWhatIsIgnored(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		r.git("init", "-q")
		r.write("a", "1")
		r.write("p", "a file")
		one := r.take()
		r.write(".gitignore", strings.Repeat("#", ignore.MaxFile-200)+"\nmodules/\n*.log\n!keep.log\nout\n/tracked\n/p/\n"+strings.Repeat("#", 1000))
		r.write("sub/.gitignore", "cache\n")
		r.write("modules/x/y", "dep")
		r.write("sub/cache/z", "c")
		r.write("out.log", "log")
		r.write("keep.log", "no log")
		r.write("tracked", "1")
		r.git("add", "-f", "tracked")
		was := r.files()
		two := r.take()
		if cp := r.restore(one.Commit); cp.Commit != two.Commit {
			t.Error("what is ignored was captured")
		}
		seen := r.take() // now nothing is ignored
		if got := r.inShadow("ls-tree", "-r", "--name-only", seen.Commit); got != "a\nmodules/x/y\nout.log\np\nsub/cache/z\n" {
			t.Errorf("captured %q", got)
		}
		r.write("out.log", "log, longer")
		was["out.log"] = "file log, longer"
		r.write("new", "goes")
		r.restore(two.Commit)
		same(t, "undone", r.files(), was)
		if cp := r.take(); cp.Tree != two.Tree {
			t.Error("the checkpoint after the undo is another tree")
		}
		// What git tracks counts, whatever the rules; and nothing stays in the way.
		r.write("tracked2.log", "1")
		r.git("add", "-f", "tracked2.log")
		for _, p := range []string{".gitignore", "p", "keep.log"} {
			if err := os.Remove(r.path(p)); err != nil {
				t.Fatal(err)
			}
		}
		r.write("p/in/the/way", "1")
		r.write("keep.log/x", "1")
		r.take()
		r.restore(two.Commit)
		same(t, "again", r.files(), was)
		r.fsck()
	}
}

// Names and links of all kinds come back as they were.
func TestRestoreOddNames(t *testing.T) {
	r := setup(t, true)
	long := strings.Repeat("n", 255)
	for _, p := range []string{"\xff\xfe", "tab\tline\nend", "sp ace/q\"uote", strings.Repeat("d/", 100) + "f", long, strings.Repeat("m", 251), "nested/f", "nested/.git/HEAD"} {
		r.write(p, "1")
	}
	for name, to := range map[string]string{"longlink": strings.Repeat("x", 4000), "etc": "/etc"} {
		if err := os.Symlink(to, r.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(r.path("\xff\xfe"), r.path("hard")); err != nil {
		t.Fatal(err)
	}
	one, was := r.take(), r.files()
	es, err := os.ReadDir(r.ws)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if err := os.RemoveAll(r.path(e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	for _, p := range []string{"sp ace", "d", "nested"} {
		if err := os.Symlink(outside, r.path(p)); err != nil {
			t.Fatal(err)
		}
	}
	r.write(long+"/x", "1")
	r.write("etc/passwd", "1")
	r.restore(one.Commit)
	same(t, "back", r.files(), was)
	if es, err := os.ReadDir(outside); len(es) != 0 || err != nil {
		t.Errorf("outside the workspace: %v %v", es, err)
	}
}

// A repository that is being made in the place of a destroyed one is no more the person's
// than .git is: what a repair that was killed left is not captured and not restored.
func TestRepositoryBeingMade(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		r.write("ok", "1")
		r.write(scan.NewGit+"/HEAD", "ref: refs/heads/main\n")
		r.write("sub/"+scan.NewGit+"/HEAD", "an ordinary file")
		r.write(".gitignore", "*.log\n")
		r.write(scan.NewGit+"/a.log", "1")
		first := r.take()
		want := ".gitignore\nok\nsub/" + scan.NewGit + "/HEAD\n"
		if got := r.inShadow("ls-tree", "-r", "--name-only", first.Commit); got != want {
			t.Fatalf("captured %q", got)
		}
		if len(first.NotCaptured) != 0 || first.Ignored != 0 {
			t.Fatalf("counted: %+v", first)
		}
		r.write("ok", "2")
		r.write(scan.NewGit+"/HEAD", "more of it\n")
		second := r.take()
		if len(second.Changes) != 1 || second.Changes[0].Path != "ok" {
			t.Fatalf("changes %+v", second.Changes)
		}
		// Of a checkpoint that holds such a folder the rest is restored.
		env := []string{"GIT_DIR=" + r.shadow, "GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")}
		git := func(args ...string) string {
			return strings.TrimSpace(run(t, r.shadow, env, append([]string{"git"}, args...)...))
		}
		blob := git("hash-object", "-w", r.path("ok"))
		for _, p := range []string{"once", scan.NewGit + "/HEAD"} {
			git("update-index", "--add", "--cacheinfo", "100644,"+blob+","+p)
		}
		former := git("commit-tree", "-m", "former", git("write-tree"))
		r.restore(former)
		if got := r.files()["once"]; got != "file 2" {
			t.Fatalf("not restored: %q", got)
		}
		if data, err := os.ReadFile(r.path(scan.NewGit + "/HEAD")); err != nil || string(data) != "more of it\n" {
			t.Fatalf("a restore touched it: %q %v", data, err)
		}
	}
}
