package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/vmtest"
)

func TestLife(t *testing.T) {
	f := newFixture(t, "a")
	if _, err := f.m.Open(ctx(t), "m1"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("open of nothing: %v", err)
	}
	mc := f.create("m1")
	if i := f.info(mc); i.State != vm.StateOff || len(i.Pids) != 0 {
		t.Fatalf("new machine: %+v", i)
	}
	if _, err := f.m.Create(ctx(t), vm.Spec{ID: "m1"}, nil); !errors.Is(err, vm.ErrExists) {
		t.Fatalf("create again: %v", err)
	}
	if _, err := mc.Dial(ctx(t)); !errors.Is(err, vm.ErrNotRunning) {
		t.Fatalf("dial of an off machine: %v", err)
	}
	var phases []string
	if err := mc.Start(ctx(t), func(p vm.Progress) { phases = append(phases, p.Phase) }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(phases, " "); got != "image boot connect" {
		t.Errorf("phases: %s", got)
	}
	first := f.info(mc)
	if first.State != vm.StateReady || first.Pids["guestd"] == 0 || first.Pids["bwrap"] == 0 {
		t.Fatalf("running: %+v", first)
	}
	if a := f.sh(mc, "echo kept > /workspace/file; hostname; id -u; pwd"); a.Out != "m1\n1000\n/workspace\n" {
		t.Fatalf("inside: %+v", a)
	}
	if u := testUser(); u != nil {
		var st syscall.Stat_t
		if err := syscall.Stat(fmt.Sprintf("/proc/%d", first.Pids["guestd"]), &st); err != nil || st.Uid != u.UID {
			t.Fatalf("guestd runs as %d (%v)", st.Uid, err)
		}
	}
	// Another core finds and adopts it; so does Start on a running one.
	again := f.manager(testImage(t))
	mc2, err := again.Open(ctx(t), "m1")
	if err != nil {
		t.Fatal(err)
	}
	if err := mc2.Start(ctx(t), nil); err != nil {
		t.Fatal(err)
	}
	if i := f.info(mc2); i.State != vm.StateReady || i.Pids["guestd"] != first.Pids["guestd"] {
		t.Fatalf("adopted: %+v, first %+v", i, first)
	}
	// An orderly end from inside, then Stop: off, and nothing left.
	f.shutdown(mc2)
	if err := mc2.Stop(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if i := f.info(mc); i.State != vm.StateOff {
		t.Fatalf("stopped: %+v", i)
	}
	if left := inMachine(filepath.Join(f.root, "m1")); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	f.start(mc)
	if a := f.sh(mc, "cat /workspace/file"); a.Out != "kept\n" {
		t.Fatalf("disk after stop and start: %+v", a)
	}
	// Destroying a running machine ends it and keeps its folder in the trash.
	if err := f.m.Destroy(ctx(t), "m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.m.Open(ctx(t), "m1"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("open of a destroyed machine: %v", err)
	}
	if i := f.info(mc); i.State != vm.StateAbsent {
		t.Fatalf("destroyed: %+v", i)
	}
	if err := mc.Start(ctx(t), nil); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("start of a destroyed machine: %v", err)
	}
	kept, _ := filepath.Glob(filepath.Join(f.trash, "machine-m1-*", "workspace", "file"))
	if len(kept) != 1 {
		t.Fatalf("in the trash: %v", kept)
	}
	if left := inMachine(filepath.Dir(filepath.Dir(kept[0]))); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

func TestKilledInit(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.started("m1")
	f.sh(mc, "echo kept > /workspace/file")
	first := f.info(mc)
	if err := syscall.Kill(first.Pids["guestd"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "trouble", func() bool { return f.info(mc).State == vm.StateTrouble })
	if i := f.info(mc); !strings.Contains(i.Problem, "ended by itself") {
		t.Errorf("problem: %q", i.Problem)
	}
	if _, err := mc.Dial(ctx(t)); !errors.Is(err, vm.ErrNotRunning) {
		t.Fatalf("dial: %v", err)
	}
	f.start(mc)
	if a := f.sh(mc, "cat /workspace/file"); a.Out != "kept\n" {
		t.Fatalf("after the restart: %+v", a)
	}
}

// A start right after the fall, while the kernel still tears the sandbox down.
func TestStartOfTheDying(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.started("m1")
	for range 5 {
		// Much to tear down takes time.
		f.sh(mc, "for i in $(seq 100); do sleep 1000 >/dev/null 2>&1 </dev/null & done")
		old := f.info(mc).Pids["guestd"]
		must(t, syscall.Kill(old, syscall.SIGKILL))
		until(t, "it to listen no more", func() bool { return f.info(mc).State != vm.StateReady })
		f.start(mc)
		if i := f.info(mc); i.State != vm.StateReady || i.Pids["guestd"] == old {
			t.Fatalf("%+v, the old one was %d", i, old)
		}
	}
}

func TestKilledMonitor(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.started("m1")
	i := f.info(mc)
	if err := syscall.Kill(i.Pids["bwrap"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the monitor to go", func() bool { return f.info(mc).Pids["bwrap"] == 0 })
	if now := f.info(mc); now.State != vm.StateReady || now.Pids["guestd"] != i.Pids["guestd"] {
		t.Fatalf("without its monitor: %+v", now)
	}
	if a := f.sh(mc, "echo on"); a.Out != "on\n" {
		t.Fatalf("%+v", a)
	}
	if err := mc.Stop(gone()); err != nil {
		t.Fatal(err)
	}
	if left := inMachine(filepath.Join(f.root, "m1")); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

// A sandbox that no file names is seen, and replaced: two never write to one workspace.
func TestStray(t *testing.T) {
	for _, how := range []string{"missing", "damaged", "damaged without monitor"} {
		t.Run(how, func(t *testing.T) {
			f := newFixture(t, "a")
			mc := f.started("m1")
			old := f.info(mc)
			path := filepath.Join(f.root, "m1", runName)
			if how == "missing" {
				must(t, os.Remove(path))
			} else {
				must(t, os.WriteFile(path, []byte("{\"init\":"), 0o600))
			}
			if how == "damaged without monitor" {
				must(t, syscall.Kill(old.Pids["bwrap"], syscall.SIGKILL))
			}
			if i := f.info(mc); i.State != vm.StateTrouble {
				t.Fatalf("a stray is %+v", i)
			}
			f.start(mc)
			if now := f.info(mc); now.State != vm.StateReady || now.Pids["guestd"] == old.Pids["guestd"] {
				t.Fatalf("after the start: %+v, before: %+v", now, old)
			}
			if _, ok := identify(old.Pids["guestd"]); ok {
				t.Fatal("the stray lives on")
			}
		})
	}
}

// A run.json left from before may name a pid that is somebody else's now.
func TestForeignPidIsLeftAlone(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.create("m1")
	p := exec.Command("sleep", "600")
	must(t, p.Start())
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	self, ok := identify(p.Process.Pid)
	if !ok {
		t.Fatal("the sleeper is not there")
	}
	for _, r := range []run{
		{BootID: hostBootID(), Init: self, Monitor: self},                                                       // right time, not ours
		{BootID: hostBootID(), Init: process{self.Pid, self.Start + 1}, Monitor: process{self.Pid, 1}},          // another's time
		{BootID: "an earlier boot", Init: self, Monitor: self},                                                  // another boot
		{BootID: hostBootID(), Init: process{Pid: -1, Start: self.Start}, Monitor: process{Pid: 0, Start: 0}},   // nonsense
		{BootID: hostBootID(), Init: process{Pid: 1, Start: 0}, Monitor: process{Pid: 1 << 30, Start: 1 << 62}}, // nonsense
	} {
		must(t, writeJSON(filepath.Join(f.root, "m1", runName), r))
		if i := f.info(mc); i.State != vm.StateOff && i.State != vm.StateTrouble {
			t.Errorf("%+v: %+v", r, i)
		}
		must(t, mc.Stop(gone()))
		if _, ok := identify(p.Process.Pid); !ok {
			t.Fatalf("%+v: a process that is not ours was killed", r)
		}
		if i := f.info(mc); i.State != vm.StateOff {
			t.Errorf("after the stop: %+v", i)
		}
	}
}

func TestStartsExcludeEachOther(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.create("m1")
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			other, err := f.m.Open(ctx(t), "m1")
			if err == nil {
				err = other.Start(ctx(t), nil)
			}
			errs[i] = err
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range f.run.Records() {
		if r.Role == "bwrap" {
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d sandboxes were started", n)
	}
	if got := inMachine(filepath.Join(f.root, "m1")); len(got) != 2 {
		t.Fatalf("processes: %v", got)
	}
	_ = mc
}

func TestStopWaitsThenForces(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.started("m1")
	stopped := make(chan error, 1)
	go func() { stopped <- mc.Stop(ctx(t)) }()
	until(t, "stopping", func() bool { return f.info(mc).State == vm.StateStopping })
	f.shutdown(mc) // an orderly end while Stop waits
	select {
	case err := <-stopped:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Stop does not see the end")
	}
	f.start(mc)
	f.sh(mc, "setsid sh -c 'trap \"\" TERM INT HUP; sleep 1000' >/dev/null 2>&1 & trap '' TERM; :")
	must(t, mc.Stop(gone()))
	if left := inMachine(filepath.Join(f.root, "m1")); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	must(t, mc.Stop(gone())) // stopping what is off is fine
}

func TestFailedStartLeavesNothing(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.create("m1")
	must(t, os.WriteFile(filepath.Join(f.root, "m1", "workspace", ".standin-fails"), nil, 0o644))
	err := mc.Start(ctx(t), nil)
	if err == nil || !strings.Contains(err.Error(), "told to fail") {
		t.Fatalf("the error does not quote the log: %v", err)
	}
	if i := f.info(mc); i.State != vm.StateOff {
		t.Fatalf("after a failed start: %+v", i)
	}
	if left := inMachine(filepath.Join(f.root, "m1")); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	must(t, os.Rename(f.guestd, f.guestd+".away"))
	if err := mc.Start(ctx(t), nil); err == nil || !strings.Contains(err.Error(), "guestd is not at") {
		t.Fatalf("without guestd: %v", err)
	}
}

func TestPathsOfAnyKind(t *testing.T) {
	for name, sub := range map[string]string{"space": "with space and 'quote'", "cjk": "玻璃房", "long": strings.Repeat("long/", 30) + "x"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, sub)
			mc := f.started("m1")
			if a := f.sh(mc, "echo ok"); a.Out != "ok\n" {
				t.Fatalf("%+v", a)
			}
			must(t, mc.Stop(gone()))
		})
	}
}

// The guest owns the folder of its socket. What it puts there is not followed.
func TestSocketReplaced(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.started("m1")
	outside := filepath.Join(vmtest.TempDir(t), "host.sock")
	l, err := net.Listen("unix", outside)
	must(t, err)
	defer l.Close()
	must(t, os.Chmod(outside, 0o777))
	sock := filepath.Join(f.root, "m1", "chan", socketName)
	replace := func(make func() error) error {
		t.Helper()
		must(t, os.Remove(sock))
		must(t, make())
		c, err := mc.Dial(ctx(t))
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := replace(func() error { return os.Symlink(outside, sock) }); err == nil {
		t.Fatal("a link to a host's socket was followed")
	}
	if err := replace(func() error { return os.WriteFile(sock, nil, 0o600) }); err == nil {
		t.Fatal("a plain file was taken for a socket")
	}
	if os.Geteuid() == 0 {
		if err := replace(func() error { return os.Link(outside, sock) }); err == nil {
			t.Fatal("another user's socket was trusted")
		}
	}
}

func TestOnlyItsOwn(t *testing.T) {
	f := newFixture(t, "a")
	f.create("m1")
	foreign := filepath.Join(f.root, "other")
	must(t, os.MkdirAll(filepath.Join(foreign, "workspace"), 0o755))
	must(t, os.WriteFile(filepath.Join(foreign, "precious"), []byte("x"), 0o600))
	for name, text := range map[string]string{
		"no marker": "", "of another machine": `{"version":1,"kind":"local","id":"m1","spec":{},"created":"2026-01-01T00:00:00Z"}`,
		"of another kind": `{"version":1,"kind":"lima","id":"other","spec":{},"created":"2026-01-01T00:00:00Z"}`,
		"of a later one":  `{"version":9,"kind":"local","id":"other","spec":{},"created":"2026-01-01T00:00:00Z"}`,
		"garbage":         "\x00\x01", "a huge one": strings.Repeat("[", 2<<20),
	} {
		if text != "" {
			must(t, os.WriteFile(filepath.Join(foreign, markerName), []byte(text), 0o600))
		}
		if err := f.m.Destroy(ctx(t), "other"); err == nil {
			t.Fatalf("%s: destroyed", name)
		}
		if _, err := f.m.Open(ctx(t), "other"); err == nil {
			t.Fatalf("%s: opened", name)
		}
		if _, err := os.Stat(filepath.Join(foreign, "precious")); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(foreign, markerName))
	}
	must(t, os.Symlink(filepath.Join(f.root, "m1"), filepath.Join(f.root, "link")))
	if err := f.m.Destroy(ctx(t), "link"); err == nil {
		t.Fatal("a link was destroyed")
	}
	for _, id := range []string{"", ".", "..", "../m1", "M1", "a b", strings.Repeat("a", 65)} {
		if err := f.m.Destroy(ctx(t), id); err == nil {
			t.Fatalf("%q: destroyed", id)
		}
		if _, err := f.m.Create(ctx(t), vm.Spec{ID: id}, nil); err == nil {
			t.Fatalf("%q: created", id)
		}
	}
	ids, err := f.m.List(ctx(t))
	if err != nil || len(ids) != 1 || ids[0] != "m1" {
		t.Fatalf("list: %v %v", ids, err)
	}
	// A machine whose disk is gone does not exist; it never comes back empty.
	must(t, os.RemoveAll(filepath.Join(f.root, "m1", "workspace")))
	if _, err := f.m.Open(ctx(t), "m1"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("without its workspace: %v", err)
	}
	if _, err := f.m.Create(ctx(t), vm.Spec{ID: "m1"}, nil); !errors.Is(err, vm.ErrExists) {
		t.Fatalf("create over it: %v", err)
	}
}

func TestBadSpecs(t *testing.T) {
	f := newFixture(t, "a")
	for _, s := range []vm.Spec{
		{ID: "m1", CPUs: -1}, {ID: "m1", MemoryMiB: 3}, {ID: "m1", DiskGiB: -2},
		{ID: "m1", Hostname: "a b"}, {ID: "m1", Hostname: "--x"}, {ID: "m1", Hostname: "x\n127.0.0.1 y"},
		{ID: "m1", ImageHash: "unknown"},
	} {
		if _, err := f.m.Create(ctx(t), s, nil); err == nil {
			t.Errorf("%+v: created", s)
		}
	}
	if ids, err := f.m.List(ctx(t)); err != nil || len(ids) != 0 {
		t.Fatalf("left: %v %v", ids, err)
	}
	if e, _ := os.ReadDir(f.root); len(e) != 0 {
		t.Fatalf("left on disk: %v", e)
	}
}

func TestNoInheritedDescriptors(t *testing.T) {
	f := newFixture(t, "a")
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("x"), 0o600))
	// A descriptor as one gets it from a careless parent: not closed on exec.
	fd, err := syscall.Open(secret, syscall.O_RDONLY, 0)
	must(t, err)
	defer syscall.Close(fd)
	mc := f.started("m1")
	a := f.sh(mc, "ls -l /proc/1/fd")
	if a.Code != 0 || strings.Contains(a.Out, "secret") {
		t.Fatalf("descriptors of pid 1:\n%s", a.Out)
	}
	for _, line := range strings.Split(a.Out, "\n") {
		// What is left of us: nothing to read from, and the log to write to.
		if strings.Contains(line, filepath.Dir(f.root)) && !strings.Contains(line, logName) {
			t.Errorf("pid 1 holds %s", line)
		}
	}
}

func TestLimits(t *testing.T) {
	f := newFixture(t, "a")
	mc, err := f.m.Create(ctx(t), vm.Spec{ID: "m1", MemoryMiB: 256, DiskGiB: 1, CPUs: 1}, nil)
	must(t, err)
	f.start(mc)
	a := f.exec(mc, "/bin/bash", "-c", "ulimit -Hu; ulimit -Hc; ulimit -Hn; ulimit -Hf")
	got := strings.Fields(a.Out)
	if len(got) != 4 || got[0] != strconv.Itoa(MaxPids) || got[1] != "0" || got[3] != strconv.Itoa(1<<30/1024) {
		t.Errorf("limits per process: %q", a.Out)
	}
	ft := mc.Features()
	if !ft.HardLimits {
		if ft.Limits != "rlimits" {
			t.Fatalf("features: %+v", ft)
		}
		t.Skipf("SKIPPED the rest: no control groups here (limits: %s)", ft.Limits)
	}
	hog := f.exec(mc, "/usr/bin/python3", "-c", "b=[]\nfor i in range(100): b.append(bytearray(b'x')*(8<<20))\nprint('had it all')")
	if strings.Contains(hog.Out, "had it all") || hog.Code != -1 {
		t.Errorf("800 MiB in a machine of 256: %+v", hog)
	}
	if a := f.sh(mc, "echo alive"); a.Out != "alive\n" {
		t.Errorf("after the hog: %+v", a)
	}
	var r run
	must(t, readJSON(filepath.Join(f.root, "m1", runName), &r))
	if len(r.Cgroups) == 0 {
		t.Fatal("no groups are noted")
	}
	must(t, mc.Stop(gone()))
	for _, g := range r.Cgroups {
		if _, err := os.Stat(g); err == nil {
			t.Errorf("the control group %s stays", g)
		}
	}
}

func TestForkBomb(t *testing.T) {
	f := newFixture(t, "a")
	mc := f.started("m1")
	a := f.exec(mc, "/usr/bin/python3", "-c", `
import os, time
n = 0
null = os.open("/dev/null", os.O_RDWR)
try:
    while n < 20000:
        if os.fork() == 0:
            for fd in (0, 1, 2): os.dup2(null, fd)
            time.sleep(1000)
        n += 1
except OSError as e:
    print("stopped", n, e.errno)
`)
	fs := strings.Fields(a.Out)
	if len(fs) != 3 || fs[0] != "stopped" {
		t.Fatalf("%+v", a)
	}
	if n, _ := strconv.Atoi(fs[1]); n > MaxPids {
		t.Errorf("%d processes", n)
	}
	must(t, mc.Stop(gone()))
	if left := inMachine(filepath.Join(f.root, "m1")); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

func TestRefusesToBeRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only a root core can be refused for being root")
	}
	m := New(Options{Root: t.TempDir(), Runner: nil})
	if err := m.Check(ctx(t)); err == nil || !strings.Contains(err.Error(), "service user") {
		t.Fatalf("check: %v", err)
	}
	if _, err := m.Create(ctx(t), vm.Spec{ID: "m1"}, nil); err == nil || !strings.Contains(err.Error(), "service user") {
		t.Fatalf("create: %v", err)
	}
}

func TestMarkerIsReadable(t *testing.T) {
	f := newFixture(t, "a")
	f.create("m1")
	b, err := os.ReadFile(filepath.Join(f.root, "m1", markerName))
	must(t, err)
	var mk marker
	must(t, json.Unmarshal(b, &mk))
	if mk.Spec.ImageHash != "testimage" || mk.Spec.MemoryMiB != DefaultMemoryMiB || mk.Spec.CPUs != DefaultCPUs {
		t.Fatalf("%s", b)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for a state; the time is only a guard against hanging.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}
