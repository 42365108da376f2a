//go:build linux

package checkpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestUnreadable runs itself as an ordinary user, because root reads everything.
func TestUnreadable(t *testing.T) {
	if os.Getenv("CHECKPOINT_UNREADABLE") == "" && os.Geteuid() == 0 {
		base, err := os.MkdirTemp("/tmp", "unreadable")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(base)
		os.Chmod(base, 0o777)
		self, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(base+"/test", self, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(base+"/test", "-test.run=^TestUnreadable$", "-test.v")
		cmd.Dir = base
		cmd.Env = append(os.Environ(), "CHECKPOINT_UNREADABLE=1", "TMPDIR="+base, "HOME="+base)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestUnreadable") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	for _, watched := range []bool{false, true} {
		r := setup(t, watched)
		r.write("ok", "1")
		r.write("locked", "1")
		r.write("dir/f", "1")
		r.write("sealed/f", "1")
		os.Chmod(r.path("locked"), 0)
		os.Chmod(r.path("dir"), 0)
		os.Chmod(r.path("sealed"), 0o444) // listed, but not entered
		defer os.Chmod(r.path("dir"), 0o755)
		defer os.Chmod(r.path("sealed"), 0o755)
		first := r.take()
		if got := r.inShadow("ls-tree", "-r", "--name-only", first.Commit); got != "ok\n" {
			t.Fatalf("captured %q", got)
		}
		if !slices.Contains(first.NotCaptured, "locked") || !slices.Contains(first.NotCaptured, "dir") {
			t.Fatalf("not captured: %q", first.NotCaptured)
		}
		// They become readable, and what is written then is seen.
		os.Chmod(r.path("locked"), 0o644)
		os.Chmod(r.path("dir"), 0o755)
		os.Chmod(r.path("sealed"), 0o755)
		second := r.take()
		r.check(second)
		if len(second.NotCaptured) != 0 || len(second.Changes) != 3 {
			t.Fatalf("%q %+v", second.NotCaptured, second.Changes)
		}
		r.write("dir/g", "1")
		r.write("sealed/f", "2")
		third := r.take()
		r.check(third)
		// A restore into a folder that cannot be written says so and keeps the rest.
		r.write("dir/f", "changed")
		os.Chmod(r.path("dir"), 0o555)
		_, err := r.c.Restore(bg, first.Commit)
		if err == nil || !strings.Contains(err.Error(), "restored in part") {
			t.Fatal(err)
		}
		os.Chmod(r.path("dir"), 0o755)
		r.restore(third.Commit)
		if r.files()["dir/f"] != "file 1" {
			t.Fatal("not restored")
		}
		// One in the way of a file that comes back stops it before anything is done, and
		// says what to do.
		r.write("it's", "1")
		fourth := r.take()
		for _, x := range [][2]string{{"locked", "chmod u+r locked, and restore again"}, {"it's", `chmod u+r './it'\''s', and restore again`}, {"dir", "chmod -R u+rwX dir, and restore again"}} {
			os.Chmod(r.path(x[0]), 0)
			if _, err := r.c.Restore(bg, fourth.Commit); err == nil || !strings.Contains(err.Error(), "nothing was restored") || !strings.Contains(err.Error(), x[1]) {
				t.Fatalf("%s: %v", x[0], err)
			}
			os.Chmod(r.path(x[0]), 0o755)
			r.restore(fourth.Commit)
		}
		// An ignored file in git's index that cannot be reached is one that is not captured, too.
		r.write(".gitignore", "dir/\n")
		r.git("init", "-q")
		r.git("add", "-f", "dir/f")
		r.take()
		os.Chmod(r.path("dir"), 0)
		if got := r.take(); !slices.Contains(got.NotCaptured, "dir/f") {
			t.Fatalf("not captured: %q", got.NotCaptured)
		}
		os.Chmod(r.path("dir"), 0o755)
		if got := r.take(); len(got.NotCaptured) != 0 {
			t.Fatalf("not captured: %q", got.NotCaptured)
		}
		r.fsck()
	}
	if left, _ := filepath.Glob(os.TempDir() + "/*/.glasshouse*"); len(left) != 0 {
		t.Fatal(left)
	}
}
