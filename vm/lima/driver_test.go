package lima

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
)

func TestLifecycle(t *testing.T) {
	w := newWorld(t, behaviour{})
	var phases []string
	x := w.create("life")
	if i := w.state(x); i.State != vm.StateOff || len(i.Pids) != 0 {
		t.Fatalf("%+v", i)
	}
	if err := x.Start(t.Context(), func(p vm.Progress) { phases = append(phases, p.Phase) }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(phases, " "); got != "image boot boot connect" {
		t.Errorf("phases: %s", got)
	}
	i := w.state(x)
	if i.State != vm.StateReady || i.Pids["qemu"] == 0 || i.Pids["hostagent"] == 0 || i.Pids["netd"] == 0 {
		t.Fatalf("%+v", i)
	}
	one := w.say(x, "disk")
	w.say(x, "off") // as the core asks guestd
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
	if i := w.state(x); i.State != vm.StateOff {
		t.Fatalf("%+v", i)
	}
	if err := x.Stop(t.Context()); err != nil {
		t.Fatalf("stopping what is off: %v", err)
	}
	w.start(x)
	two := w.say(x, "disk")
	a, _ := strconv.Atoi(one)
	if b, _ := strconv.Atoi(two); a == 0 || b != a+1 {
		t.Fatalf("the disk did not survive: %q then %q", one, two)
	}
	// Not asked by anyone, the guest goes by its kernel's magic keys.
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
}

func TestPathWithSpacesAndOtherScripts(t *testing.T) {
	dir := filepath.Join(shortTemp(t), "it's a 玻璃 房")
	w := newWorldIn(t, dir, behaviour{})
	x := w.create("cjk")
	w.start(x)
	if w.say(x, "disk") == "" {
		t.Fatal("no answer")
	}
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
}

func TestPathsThatCannotWork(t *testing.T) {
	for _, d := range []string{"a,b", "a:b", "a{{b", "a\nb", "a\xffb", "a\x1bb"} {
		w := newWorld(t, behaviour{})
		m := w.manager(func(o *Options) { o.Root = filepath.Join(w.dir, d, "m") })
		if _, err := m.Create(t.Context(), vm.Spec{ID: "x"}, nil); err == nil || !strings.Contains(err.Error(), "data folder") {
			t.Errorf("%q: %v", d, err)
		}
		if err := m.Check(t.Context()); err == nil {
			t.Errorf("%q passes the check", d)
		}
	}
}

func TestLongPathMovesSocketsElsewhere(t *testing.T) {
	w := newWorld(t, behaviour{})
	long := filepath.Join(w.dir, strings.Repeat("long", 20))
	w.m = w.manager(func(o *Options) { o.Root = filepath.Join(long, "m") })
	x := w.create("far")
	if x.l.run == x.l.dir || longest(x.l.run) > sockMax() {
		t.Fatalf("runs in %s", x.l.run)
	}
	w.start(x)
	one := w.say(x, "disk")
	if one == "" {
		t.Fatal("no answer")
	}
	fi, err := os.Stat(x.l.run)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatal(fi.Mode(), err)
	}
	w2 := *w
	w2.m = w.manager(func(o *Options) { o.Root = filepath.Join(long, "m") })
	y, err := w2.m.Open(t.Context(), "far")
	if err != nil {
		t.Fatal(err)
	}
	if i := w.state(y); i.State != vm.StateReady {
		t.Fatalf("a new core does not find it: %+v", i)
	}
	if err := w.m.Destroy(t.Context(), "far"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(x.l.run); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the short folder is left")
	}
	noProcess(t, x)
	// Someone else's folder in that place is not used.
	x = w.create("far")
	if err := errors.Join(os.MkdirAll(x.l.run, 0o700), os.Chmod(x.l.run, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := x.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "open to others") {
		t.Fatal(err)
	}
	// Where the short folder is long too, it is said at once.
	m := w.manager(func(o *Options) { o.Root, o.Short = filepath.Join(long, "m"), filepath.Join(long, "s") })
	if _, err := m.Create(t.Context(), vm.Spec{ID: "x"}, nil); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Fatal(err)
	}
}

func TestAdoption(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("adopt")
	w.start(x)
	before := w.state(x).Pids
	m := w.manager(nil)
	y, err := m.Open(t.Context(), "adopt")
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	after := w.state(y)
	if after.State != vm.StateReady || after.Pids["qemu"] != before["qemu"] || after.Pids["netd"] != before["netd"] || after.Pids["hostagent"] != before["hostagent"] {
		t.Fatalf("%v became %+v", before, after)
	}
	// One that was starting when its core died is waited for.
	if err := x.l.writeState(runState{Phase: "starting"}); err != nil {
		t.Fatal(err)
	}
	if i := w.state(y); i.State != vm.StateStarting {
		t.Fatalf("%+v", i)
	}
	if err := y.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if i := w.state(y); i.State != vm.StateReady || i.Pids["qemu"] != before["qemu"] {
		t.Fatalf("%+v", i)
	}
	if err := y.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
}

func TestKilledQEMU(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("kill")
	w.start(x)
	_ = syscall.Kill(w.state(x).Pids["qemu"], syscall.SIGKILL)
	i := w.until(x, vm.StateTrouble)
	if !strings.Contains(i.Problem, "ended by itself") || !strings.Contains(i.Problem, "fake kernel says hello") {
		t.Fatalf("%q", i.Problem)
	}
	if _, err := x.Dial(t.Context()); !errors.Is(err, vm.ErrNotRunning) {
		t.Fatal(err)
	}
	w.start(x)
	if i := w.state(x); i.State != vm.StateReady {
		t.Fatalf("%+v", i)
	}
}

func TestKilledNetworkProcess(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("net")
	w.start(x)
	_ = syscall.Kill(w.state(x).Pids["netd"], syscall.SIGKILL)
	i := w.until(x, vm.StateTrouble)
	if !strings.Contains(i.Problem, "network process ended") {
		t.Fatalf("%q", i.Problem)
	}
	qemu := i.Pids["qemu"]
	if err := x.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "stop the machine") {
		t.Fatal(err)
	}
	if _, err := x.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "network process") {
		t.Fatal(err)
	}
	if w.state(x).Pids["qemu"] != qemu {
		t.Fatal("the running guest was touched")
	}
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
	w.start(x)
}

func TestKilledHostAgentChangesNothing(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("agent")
	w.start(x)
	_ = syscall.Kill(w.state(x).Pids["hostagent"], syscall.SIGKILL)
	for w.state(x).Pids["hostagent"] != 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if i := w.state(x); i.State != vm.StateReady || w.say(x, "disk") == "" {
		t.Fatalf("%+v", i)
	}
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
	w.start(x)
}

func TestFailedStarts(t *testing.T) {
	for _, tt := range []struct {
		name, boot string
		change     func(*Options)
		want       []string
	}{
		{"QEMU dies", "die", nil, []string{"did not come up", "fake kernel says hello"}},
		{"the guest is mute", "mute", func(o *Options) { o.BootTimeout = 3 * time.Second }, []string{"guestd did not answer", "fake kernel says hello"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, behaviour{Boot: tt.boot})
			w.m = w.manager(tt.change)
			x := w.create("bad")
			err := x.Start(t.Context(), nil)
			// On a busy computer the time may be over before the guest has said anything.
			for tt.boot == "mute" && err != nil && !strings.Contains(err.Error(), "kernel says") && w.m.opt.BootTimeout < time.Minute {
				w.m.opt.BootTimeout *= 3
				err = x.Start(t.Context(), nil)
			}
			if err == nil {
				t.Fatal("it started")
			}
			for _, s := range tt.want {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is not in: %v", s, err)
				}
			}
			noProcess(t, x)
			if i := w.state(x); i.State != vm.StateOff {
				t.Fatalf("%+v", i)
			}
			w.behave(behaviour{})
			w.m.opt.BootTimeout = time.Minute
			w.start(x)
		})
	}
}

// A guest that hangs on its way up is started once more, and no more than once.
func TestStillStarts(t *testing.T) {
	for boot, said := range map[string]string{"still": "", "mute": "guestd did not answer"} {
		t.Run(boot, func(t *testing.T) {
			w := newWorld(t, behaviour{Boot: boot})
			if boot == "mute" {
				w.m = w.manager(func(o *Options) { o.BootTimeout = 15 * time.Second })
			}
			w.m.stillAfter = 400 * time.Millisecond
			x := w.create("still")
			again := 0
			err := x.Start(t.Context(), func(p vm.Progress) {
				if strings.Contains(p.Text, "again: it stood still") {
					again++
				}
			})
			if (err == nil) != (said == "") || err != nil && !strings.Contains(err.Error(), said) {
				t.Fatal(err)
			}
			if again != 1 {
				t.Fatalf("started again %d times", again)
			}
			if err == nil {
				if i := w.state(x); i.State != vm.StateReady {
					t.Fatalf("%+v", i)
				}
				if err := x.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			noProcess(t, x)
		})
	}
}

func TestCancelledStart(t *testing.T) {
	for _, by := range []string{"context", "stop"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t, behaviour{Boot: "mute"})
			x := w.create("cancel")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			res := make(chan error, 1)
			go func() { res <- x.Start(ctx, nil) }()
			for w.state(x).Pids["qemu"] == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			if i := w.state(x); i.State != vm.StateStarting {
				t.Fatalf("%+v", i)
			}
			if by == "stop" {
				if err := x.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				cancel()
			}
			select {
			case err := <-res:
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("the start goes on")
			}
			noProcess(t, x)
		})
	}
}

func TestStopForcesWhatDoesNotGo(t *testing.T) {
	w := newWorld(t, behaviour{Off: "nothing"})
	x := w.create("force")
	w.start(x)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	if err := x.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Error("it did not wait for the guest until the context ended")
	}
	noProcess(t, x)
	// A QEMU that does not run any more, as under a debugger, is killed.
	w.start(x)
	_ = syscall.Kill(w.state(x).Pids["qemu"], syscall.SIGSTOP)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := x.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
}

func TestStalePidFilesKillNobody(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("stale")
	w.start(x)
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	pid := []byte(strconv.Itoa(other.Process.Pid) + "\n")
	for _, f := range []string{x.l.in("qemu.pid"), x.l.in("ha.pid"), x.l.netPid()} {
		if err := os.WriteFile(f, pid, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if i := w.state(x); i.State != vm.StateOff || len(i.Pids) != 0 {
		t.Fatalf("%+v", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{x.l.in("qemu.pid"), x.l.in("ha.pid"), x.l.netPid()} {
		_ = os.WriteFile(f, pid, 0o600)
	}
	w.start(x) // Lima would refuse over such files
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatal("the other process was killed")
	}
	p := process{pid: other.Process.Pid, hint: x.l.in("qemu.pid")}
	if err := p.signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signalling another's process: %v", err)
	}
}

func TestStateOfAnEarlierBoot(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("boot")
	if err := x.l.writeState(runState{Phase: "ready", QEMU: 1}); err != nil {
		t.Fatal(err)
	}
	if i := w.state(x); i.State != vm.StateTrouble {
		t.Fatalf("%+v", i)
	}
	p := filepath.Join(x.l.run, stateFile)
	b, _ := os.ReadFile(p)
	_ = os.WriteFile(p, []byte(strings.Replace(string(b), bootID(), "an-earlier-one", 1)), 0o600)
	if i := w.state(x); i.State != vm.StateOff {
		t.Fatalf("after the host's restart: %+v", i)
	}
}

func TestCreateRefuses(t *testing.T) {
	w := newWorld(t, behaviour{})
	w.create("one")
	for _, tt := range []struct {
		spec vm.Spec
		want string
	}{
		{vm.Spec{}, "cannot be a machine's id"},
		{vm.Spec{ID: "../x"}, "cannot be a machine's id"},
		{vm.Spec{ID: "UP"}, "cannot be a machine's id"},
		{vm.Spec{ID: strings.Repeat("a", 21)}, "cannot be a machine's id"},
		{vm.Spec{ID: "two", Hostname: "a b"}, "host name"},
		{vm.Spec{ID: "two", Hostname: "-a"}, "host name"},
		{vm.Spec{ID: "two", Hostname: "a rw init=/bin/sh"}, "host name"},
		{vm.Spec{ID: "two", CPUs: -1}, "processors"},
		{vm.Spec{ID: "two", MemoryMiB: 10}, "memory"},
		{vm.Spec{ID: "two", DiskGiB: 3}, "disk"},
		{vm.Spec{ID: "two", DiskGiB: 1 << 20}, "disk"},
		{vm.Spec{ID: "two", ImageHash: "beef"}, "no image"},
	} {
		if _, err := w.m.Create(t.Context(), tt.spec, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.spec, err)
		}
	}
	if _, err := w.m.Create(t.Context(), vm.Spec{ID: "one"}, nil); !errors.Is(err, vm.ErrExists) {
		t.Error(err)
	}
	ids, err := w.m.List(t.Context())
	if err != nil || len(ids) != 1 || ids[0] != "one" {
		t.Fatal(ids, err)
	}
	es, _ := os.ReadDir(w.m.opt.Root)
	if len(es) != 1 {
		t.Fatalf("failed creations left %v", es)
	}
	// The rest of an interrupted one is no obstacle.
	_ = os.MkdirAll(filepath.Join(w.m.opt.Root, ".new-two", "junk"), 0o700)
	w.create("two")
}

func TestOpenAndDestroyOnlyWhatIsOurs(t *testing.T) {
	w := newWorld(t, behaviour{})
	if _, err := w.m.Open(t.Context(), "none"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	if err := w.m.Destroy(t.Context(), "none"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	x := w.create("mine")
	marker, err := os.ReadFile(x.l.marker())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"foreign": "", "broken": "{", "local": strings.Replace(string(marker), `"lima"`, `"local"`, 1),
		"copied": string(marker), "newer": strings.Replace(string(marker), `"format": 1`, `"format": 2`, 1),
	} {
		d := filepath.Join(w.m.opt.Root, name)
		_ = os.Mkdir(d, 0o700)
		_ = os.WriteFile(filepath.Join(d, "precious"), []byte("data"), 0o600)
		if content != "" {
			_ = os.WriteFile(filepath.Join(d, markerFile), []byte(content), 0o600)
		}
		if err := w.m.Destroy(t.Context(), name); !errors.Is(err, errNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.m.Open(t.Context(), name); err == nil {
			t.Errorf("%s was opened", name)
		}
		if _, err := os.Stat(filepath.Join(d, "precious")); err != nil {
			t.Errorf("%s lost its file", name)
		}
		if _, err := w.m.Create(t.Context(), vm.Spec{ID: name}, nil); !errors.Is(err, vm.ErrExists) {
			t.Errorf("created over %s: %v", name, err)
		}
	}
	if ids, _ := w.m.List(t.Context()); len(ids) != 1 || ids[0] != "mine" {
		t.Fatal(ids)
	}
	// A disk that cannot be looked at is not a lost one.
	_ = os.Remove(x.l.disk())
	if err := os.Symlink(x.l.disk(), x.l.disk()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.m.Open(t.Context(), "mine"); err == nil || errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	if err := x.Start(t.Context(), nil); err == nil || errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	if i := w.state(x); i.State != vm.StateTrouble || i.Problem == "" {
		t.Fatalf("%+v", i)
	}
	// A lost disk is no new empty machine, but can be cleared away.
	_ = os.Remove(x.l.disk())
	if _, err := w.m.Open(t.Context(), "mine"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	if err := x.Start(t.Context(), nil); !errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	if i := w.state(x); i.State != vm.StateAbsent {
		t.Fatalf("%+v", i)
	}
	if err := w.m.Destroy(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	trash, err := os.ReadDir(filepath.Join(w.dir, "trash"))
	if err != nil || len(trash) != 1 || !strings.HasPrefix(trash[0].Name(), "machine-mine-") {
		t.Fatal(trash, err)
	}
	w.create("mine") // the name is free again
}

func TestDestroyStopsFirst(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("run")
	w.start(x)
	if err := w.m.Destroy(t.Context(), "run"); err != nil {
		t.Fatal(err)
	}
	noProcess(t, x)
	if i := w.state(x); i.State != vm.StateAbsent {
		t.Fatalf("%+v", i)
	}
}

func TestMovedImageIsSaid(t *testing.T) {
	w := newWorld(t, behaviour{})
	x := w.create("img")
	good := w.img
	w.img.Disk = filepath.Join(w.dir, "elsewhere.qcow2")
	if err := x.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "put the image back") {
		t.Fatal(err)
	}
	w.img = good
	_ = os.Remove(good.Disk)
	if err := x.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Fatal(err)
	}
}

func TestPlantedLinksLeadNowhere(t *testing.T) {
	// A QEMU that a guest took over can change the run folder; a core that is
	// root must not write through what it planted.
	w := newWorld(t, behaviour{})
	x := w.create("links")
	victim := filepath.Join(w.dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(x.l.inst(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{x.l.in("lima.yaml"), x.l.in("kernel.cmdline"), filepath.Join(x.l.run, stateFile+".tmp"), filepath.Join(x.l.run, "netd.log"), filepath.Join(x.l.run, "limactl.log")} {
		if err := os.Symlink(victim, f); err != nil {
			t.Fatal(err)
		}
	}
	w.start(x)
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Fatalf("written through a link: %q", b)
	}
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A folder that leads out is an error, not a way.
	_ = os.RemoveAll(x.l.home())
	_ = os.Mkdir(filepath.Join(w.dir, "out"), 0o700)
	if err := os.Symlink(filepath.Join(w.dir, "out"), x.l.home()); err != nil {
		t.Fatal(err)
	}
	if err := x.Start(t.Context(), nil); err == nil {
		t.Fatal("it started outside its folder")
	}
	if es, _ := os.ReadDir(filepath.Join(w.dir, "out")); len(es) != 0 {
		t.Fatalf("written outside: %v", es)
	}
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	if os.Geteuid() == 0 {
		w := newWorld(t, behaviour{})
		if err := w.m.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "useradd") {
			t.Fatalf("as root without a service user: %v", err)
		}
		u, err := ServiceUser(t.Context(), w.m.opt.Runner, "nobody", "/")
		if err != nil {
			t.Fatal(err)
		}
		m := w.manager(func(o *Options) { o.User = u })
		_ = os.Chmod(w.dir, 0o700)
		if err := m.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "may not enter") {
			t.Fatalf("programs out of the service user's reach: %v", err)
		}
		return
	}
	w := newWorld(t, behaviour{})
	if err := w.m.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.behave(behaviour{Version: "0.9.1"})
	w.m = w.manager(nil) // the version is asked for once
	if err := w.m.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Fatal(err)
	}
	m := w.manager(func(o *Options) { o.Limactl = filepath.Join(w.dir, "limactl") })
	if err := m.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "make limactl") {
		t.Fatal(err)
	}
	t.Setenv("PATH", w.dir)
	if err := w.m.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "install QEMU") {
		t.Fatal(err)
	}
}

func TestServiceUserIsNotRoot(t *testing.T) {
	w := newWorld(t, behaviour{})
	if _, err := ServiceUser(t.Context(), w.m.opt.Runner, "root", "/root"); err == nil && runtime.GOOS == "linux" {
		t.Fatal("root was taken as the service user")
	}
}
