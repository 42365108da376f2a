//go:build linux

package boot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
)

// A full disk of the machine's own: what runs can be stopped, what cannot be done says
// why, a guestd that starts again answers, and when there is space all works again.
func TestFullDiskInside(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=755"); err != nil {
		t.Skipf("skipped: a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	t.Setenv("TMPDIR", dir)
	h := newHouse(t)
	g := h.open(nil)
	h.run(g, sh("echo first >first"))
	if _, err := g.Checkpoints().Take(h.ctx(), guest.CheckpointRequest{Session: "s", Step: "a"}); err != nil {
		t.Fatal(err)
	}
	last := func() (string, guest.Process) {
		t.Helper()
		spec := sh("echo up; echo on the way >&2; sleep 1000")
		spec.ID, spec.Session = newID(), "s"
		p, err := g.Execs().Start(h.ctx(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return spec.ID, p
	}
	ended := func(id string, p guest.Process) {
		t.Helper()
		if err := g.Execs().Kill(h.ctx(), id, time.Second); err != nil {
			t.Errorf("kill on a full disk: %v", err)
		}
		if r := drain(t, p); !r.exit.Killed || r.exit.Unknown {
			t.Errorf("what was killed ended %+v", r)
		}
	}
	fill := func() {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(h.work, "big"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		u, err := os.Open("/dev/urandom")
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		buf := make([]byte, 64<<10)
		for n := len(buf); n >= 1; {
			_, _ = u.Read(buf[:n])
			if _, err := f.Write(buf[:n]); err != nil {
				n /= 2
			}
		}
	}
	first, lasting := last()
	h.run(g, sh("head -c 300000 /dev/urandom >small"))
	if r := h.run(g, sh("cat /dev/urandom >big")); r.exit.Code == 0 || !strings.Contains(string(r.exit.Stderr.Tail)+r.err, "No space left") {
		t.Errorf("the command that filled it: %+v", r)
	}
	if r := h.run(g, sh("ls; echo still here")); !strings.Contains(r.out+string(r.exit.Stdout.Tail), "still here") {
		t.Errorf("a person cannot look round: %+v", r)
	}
	fill()
	if _, err := g.Checkpoints().Take(h.ctx(), guest.CheckpointRequest{Session: "s", Step: "b"}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a checkpoint that cannot be written does not say why: %v", err)
	}
	ended(first, lasting)
	if err := g.Execs().EndSession(h.ctx(), "s"); err != nil {
		t.Errorf("the end of a session: %v", err)
	}
	// Nothing at all is left to begin something new with: that is said. A guestd that
	// starts again answers, and files can be removed through it.
	fill()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a start that cannot be written down: %v", err)
	}
	g.Close()
	h.stop()
	h.start()
	g = h.open(nil)
	if err := os.Remove(filepath.Join(h.work, "big")); err != nil {
		t.Fatal(err)
	}
	h.run(g, sh("echo second >second"))
	if cp, err := g.Checkpoints().Take(h.ctx(), guest.CheckpointRequest{Session: "s", Step: "c"}); err != nil || cp.Commit == "" {
		t.Errorf("with space again: %v %+v", err, cp)
	}
	// The room that was given up is held again: the one who fills the disk once more can
	// be ended, and a person can make room with a command.
	id, p := last()
	if err := g.Execs().Forget(h.ctx(), first); err != nil {
		t.Fatal(err)
	}
	fill()
	ended(id, p)
	if r := h.run(g, sh("rm big && echo gone")); r.out+string(r.exit.Stdout.Tail) != "gone\n" {
		t.Errorf("room cannot be made from inside: %+v", r)
	}
}
