//go:build linux

package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

func TestRestoreBackAndForth(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		rnd := rand.New(rand.NewSource(5))
		var states []map[string]string
		var commits []string
		for range 4 {
			for range 25 {
				mutate(r, rnd)
			}
			// Rules are tested elsewhere: here every file counts.
			filepath.Walk(r.ws, func(p string, fi os.FileInfo, err error) error {
				if err == nil && fi.Name() == ".gitignore" {
					os.Remove(p)
				}
				return nil
			})
			states = append(states, r.files())
			commits = append(commits, r.take().Commit)
		}
		for i := range 10 {
			n := rnd.Intn(len(states))
			r.restore(commits[n])
			same(t, fmt.Sprintf("round %d, state %d", i, n), r.files(), states[n])
			if cp := r.take(); cp.Tree != strings.TrimSpace(r.inShadow("rev-parse", commits[n]+"^{tree}")) {
				t.Fatal("the checkpoint after a restore is another tree")
			}
		}
		// Undo of a restore: the checkpoint it returns.
		r.write("unsaved", "work")
		before := r.files()
		cp := r.restore(commits[0])
		same(t, "restored", r.files(), states[0])
		r.restore(cp.Commit)
		same(t, "undone", r.files(), before)
		r.fsck()
	}
}

func TestRestoreLeavesTheRepositoryAlone(t *testing.T) {
	r := setup(t, true)
	r.git("init", "-q", "-b", "main")
	r.write("f", "1\n")
	r.git("add", "f")
	r.git("commit", "-qm", "one")
	r.write("f", "2\n")
	r.git("add", "f")
	r.write("f", "3\n")
	state := func() string {
		h := sha256.New()
		filepath.Walk(r.path(".git"), func(p string, fi os.FileInfo, err error) error {
			if err == nil && fi.Mode().IsRegular() {
				data, _ := os.ReadFile(p)
				fmt.Fprintf(h, "%s %d %v\n", p, len(data), fi.ModTime())
				h.Write(data)
			}
			return nil
		})
		return hex.EncodeToString(h.Sum(nil))
	}
	was := state()
	cp := r.take()
	r.write("f", "4\n")
	r.write("g", "5\n")
	r.restore(cp.Commit)
	if state() != was {
		t.Fatal("the user's .git was touched")
	}
	if _, err := os.Stat(r.path("g")); err == nil {
		t.Fatal("a file that was not in the checkpoint stayed")
	}
	if _, err := os.Stat(r.path(".git/objects/info/alternates")); err == nil {
		t.Fatal("alternates")
	}
	// The user's gc cannot hurt.
	r.git("gc", "-q", "--prune=now")
	r.fsck()
	r.restore(cp.Commit)
}

func TestLargeFiles(t *testing.T) {
	r := setup(t, true)
	r.c.opts.MaxFile = 2 << 20
	big := strings.Repeat("0123456789abcdef", 150_000) // 2.4 MB
	mid := big[:2<<20]
	r.write("big", big)
	r.write("mid", mid)
	first := r.take()
	if !slices.Equal(first.NotCaptured, []string{"big"}) {
		t.Fatalf("%q", first.NotCaptured)
	}
	r.write("big", "small now")
	r.write("mid", big)
	second := r.take()
	if !slices.Equal(second.NotCaptured, []string{"mid"}) {
		t.Fatalf("%q", second.NotCaptured)
	}
	// mid grew out of the checkpoints; restoring the small one keeps the big one.
	undo := r.restore(first.Commit)
	if r.files()["mid"] != "file "+mid {
		t.Fatal("mid is not restored")
	}
	r.restore(undo.Commit)
	if r.files()["mid"] != "file "+big {
		t.Fatal("the large file was lost by restoring over it")
	}
	r.fsck()
}

func TestRestoreOverIgnored(t *testing.T) {
	r := setup(t, true)
	r.write("secret", "old")
	r.write("build", "a file")
	r.write("dist/x", "1")
	first := r.take()
	os.RemoveAll(r.path("build"))
	os.RemoveAll(r.path("dist"))
	r.write(".gitignore", "secret\nbuild\ndist\n")
	r.write("secret", "new")
	r.write("build/out", "artefact")
	r.write("dist", "a file in the place of a folder")
	undo := r.restore(first.Commit)
	got := r.files()
	if got["secret"] != "file old" || got["build"] != "file a file" || got["dist/x"] != "file 1" {
		t.Fatalf("%q", got)
	}
	kept := 0
	for p, v := range got {
		if strings.Contains(p, ".kept-") && (v == "file artefact" || v == "file a file in the place of a folder") {
			kept++
		}
	}
	if kept != 2 {
		t.Fatalf("what stood in the way was lost: %q", got)
	}
	r.restore(undo.Commit)
	if r.files()["secret"] != "file new" {
		t.Fatal("the ignored file that was overwritten is lost")
	}
}

func TestRestoreOfNothing(t *testing.T) {
	r := setup(t, false)
	r.write("a", "1")
	cp := r.take()
	want := r.files()
	blob := strings.TrimSpace(r.inShadow("rev-parse", cp.Commit+":a"))
	for _, id := range []string{strings.Repeat("1", 40), blob, cp.Tree, "", "HEAD", "--all", cp.Commit[:39] + "\n"} {
		if _, err := r.c.Restore(bg, id); err == nil {
			t.Fatalf("restored %q", id)
		} else if len(id) == 40 && !strings.Contains(id, "\n") && !errors.Is(err, guest.ErrNotFound) {
			t.Fatalf("%q: %v", id, err)
		}
		same(t, "untouched", r.files(), want)
	}
	if _, _, err := r.c.Diff(bg, cp.Commit, strings.Repeat("1", 40)); !errors.Is(err, guest.ErrNotFound) {
		t.Fatal(err)
	}
}

// A folder in the place of a file that comes back is part of what was before, with all
// that is in it; how long ago that was written makes no difference.
func TestRestoreOverAFolder(t *testing.T) {
	for _, c := range []struct{ watched, young bool }{{false, false}, {true, false}, {true, true}} {
		r := setup(t, c.watched)
		r.write("a", "file")
		r.write("b/c", "file")
		one := r.take()
		r.git("init", "-q")
		for _, p := range []string{"a", "b"} {
			if err := os.RemoveAll(r.path(p)); err != nil {
				t.Fatal(err)
			}
		}
		r.write("a/x/y", "below")
		r.write("b", "no folder")
		if !c.young {
			time.Sleep(2 * racyWindow)
		}
		was := r.files()
		two := r.take()
		cp := r.restore(one.Commit)
		if cp.Commit != two.Commit {
			t.Errorf("%+v: before the restore was %+v, not %s", c, cp, two.Commit)
		}
		if got := r.files(); got["a"] != "file file" || got["b/c"] != "file file" || len(got) != 2 {
			t.Errorf("%+v: %v", c, got)
		}
		r.restore(cp.Commit)
		same(t, fmt.Sprintf("%+v undone", c), r.files(), was)
	}
}

// A folder in the place of a file that git tracks though it is ignored counts like any other.
func TestTrackedFileBecomesAFolder(t *testing.T) {
	r := setup(t, true)
	r.git("init", "-q")
	r.write(".gitignore", "/out\n!/out/\n")
	r.write("out", "tracked")
	r.git("add", "-f", "out", ".gitignore")
	r.take()
	if err := os.Remove(r.path("out")); err != nil {
		t.Fatal(err)
	}
	r.write("out/x", "1")
	for range 2 {
		time.Sleep(2 * racyWindow)
		cp := r.take()
		if got := r.inShadow("ls-tree", "-r", "--name-only", cp.Commit); got != ".gitignore\nout/x\n" {
			t.Fatalf("captured %q", got)
		}
		r.write("other", "so that it is looked again")
		r.take()
		os.Remove(r.path("other"))
	}
}

// What a restore that was killed leaves is nobody's file: no checkpoint holds it, and it
// keeps no folder.
func TestLeftByAKilledRestore(t *testing.T) {
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		r.write("a", "1")
		one := r.take()
		r.write("d/f", "2")
		r.write("d/"+tmpName, "half")
		r.write(tmpName, "half")
		two := r.take()
		if got := r.inShadow("ls-tree", "-r", "--name-only", two.Commit); got != "a\nd/f\n" || len(two.NotCaptured) > 0 || two.Ignored > 0 {
			t.Errorf("captured %q, %+v", got, two)
		}
		r.restore(one.Commit)
		if _, err := os.Lstat(r.path("d")); !os.IsNotExist(err) {
			t.Errorf("the folder stays: %v", err)
		}
		r.restore(two.Commit)
		if cp := r.take(); cp.Tree != two.Tree {
			t.Errorf("%s, not %s", cp.Tree, two.Tree)
		}
	}
}
