package lima

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// Tests with real machines run when GLASSHOUSE_VM=1. They need
//
//	GLASSHOUSE_IMAGE    folder of a finished image
//	GLASSHOUSE_GUESTD   a built guestd
//	GLASSHOUSE_LIMACTL  a built limactl
//
// and, as root, may create the service user "glasshouse".
func realManager(t *testing.T, root string) *Manager {
	t.Helper()
	if os.Getenv("GLASSHOUSE_VM") != "1" {
		t.Skip("GLASSHOUSE_VM is not 1: no real machine is started")
	}
	need := func(k string) string {
		v := os.Getenv(k)
		if v == "" {
			t.Fatalf("GLASSHOUSE_VM=1 needs %s too", k)
		}
		return v
	}
	dir, guestd, limactl := need("GLASSHOUSE_IMAGE"), need("GLASSHOUSE_GUESTD"), need("GLASSHOUSE_LIMACTL")
	r := &proc.Runner{}
	o := Options{
		Root: root, Limactl: limactl, Runner: r, Short: filepath.Join(filepath.Dir(root), "s"),
		Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		Image: func(context.Context, string, func(vm.Progress)) (Image, error) {
			i, err := image.OpenDir(dir, guestd)
			if err != nil {
				return Image{}, err
			}
			return Image{Hash: i.Hash, Disk: i.QCOW2, Kernel: i.Kernel, Initrd: i.Initrd, Args: image.KernelArgs, ArgsEmulated: image.KernelArgsEmulated, ProbeArg: image.ProbeArg, ProbeLine: image.ProbeLine}, nil
		},
	}
	if os.Geteuid() == 0 {
		u, err := ServiceUser(t.Context(), r, "glasshouse", "/var/lib/glasshouse")
		if err != nil {
			t.Fatal(err)
		}
		o.User = u
		openUp(t, proc.Self())
		openUp(t, root)
	}
	m := New(o)
	if err := m.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// openUp lets the service user through to a path below the temporary folder,
// which the go tool and the testing package make for their own user alone.
func openUp(t *testing.T, path string) {
	t.Helper()
	tmp := filepath.Clean(os.TempDir())
	for d := filepath.Dir(path); strings.HasPrefix(d, tmp+string(filepath.Separator)); d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err == nil {
			if err := os.Chmod(d, fi.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// shortTemp is a temporary folder with a short path.
func shortTemp(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "gh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func noProcess(t *testing.T, x vm.Machine) {
	t.Helper()
	l := x.(*Machine).l
	if p := l.procs(); !p.none() {
		t.Errorf("processes are left: %v", p.pids())
	}
	// By any name: nothing on this host mentions the machine's folder.
	for _, p := range mention(l.run) {
		t.Errorf("left: %s", p)
	}
}

// mention lists the processes that name a folder on their command line. The last
// question of an agent that was killed (what QEMU can do, ssh) ends by itself a moment
// later, holds nothing, and is waited for; the machine's own processes are not.
func mention(folder string) []string {
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var all []string
		own := false
		for _, pid := range allPids() {
			line, err := commandLine(pid)
			if err != nil || !strings.Contains(line, folder+"/") {
				continue
			}
			all = append(all, fmt.Sprintf("process %d: %s", pid, line))
			own = own || strings.Contains(line, "-pidfile ") || strings.Contains(line, " netd ")
		}
		if len(all) == 0 || own || time.Now().After(end) {
			return all
		}
	}
}

func TestRealMachine(t *testing.T) {
	dir := shortTemp(t)
	m := realManager(t, filepath.Join(dir, "m"))
	img, err := m.opt.Image(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	a, err := m.Probe(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("probe %s: %+v", time.Since(begin).Round(time.Millisecond), a)

	begin = time.Now()
	x, err := m.Create(t.Context(), vm.Spec{ID: "real1", Hostname: "glass"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = x.Stop(ctx)
	})
	t.Logf("created in %s", time.Since(begin).Round(time.Millisecond))
	if err := x.Start(t.Context(), func(p vm.Progress) { t.Logf("%5dms %s: %s", time.Since(begin).Milliseconds(), p.Phase, p.Text) }); err != nil {
		t.Fatal(err)
	}
	t.Logf("created and answering after %s", time.Since(begin).Round(time.Millisecond))
	i, err := x.Info(t.Context())
	if err != nil || i.State != vm.StateReady || len(i.Pids) != 3 {
		t.Fatalf("%+v %v", i, err)
	}
	if ops, err := diskUse(x.(*Machine).l.in("qmp.sock")); err != nil || ops < 100 {
		t.Fatalf("QEMU says that a machine which came up used its disk %d times: %v", ops, err)
	}
	qemu := i.Pids["qemu"]
	line, _ := commandLine(qemu)
	t.Logf("QEMU: %s", line)
	// What Lima asked for; testdata/lima-args.txt is such a line.
	if log, err := os.ReadFile(x.(*Machine).l.in("ha.stderr.log")); err == nil {
		for _, s := range strings.Split(string(log), "\n") {
			if strings.Contains(s, "qCmd.Args") {
				t.Log(s)
			}
		}
	}

	// A new core adopts it without touching it.
	m2 := New(m.opt)
	y, err := m2.Open(t.Context(), "real1")
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if i, _ := y.Info(t.Context()); i.Pids["qemu"] != qemu || i.State != vm.StateReady {
		t.Fatalf("adopted: %+v", i)
	}

	begin = time.Now()
	if err := x.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped by the magic keys in %s", time.Since(begin).Round(time.Millisecond))
	noProcess(t, x)
	if i, _ := x.Info(t.Context()); i.State != vm.StateOff {
		t.Fatalf("%+v", i)
	}
	if _, err := x.Dial(t.Context()); !errors.Is(err, vm.ErrNotRunning) {
		t.Fatalf("dialled a machine that is off: %v", err)
	}

	begin = time.Now()
	if err := x.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("warm start %s", time.Since(begin).Round(time.Millisecond))
	i, _ = x.Info(t.Context())
	if err := syscall.Kill(i.Pids["qemu"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if i, _ = x.Info(t.Context()); i.State == vm.StateTrouble && i.Problem != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("QEMU was killed and Info says %+v", i)
		}
	}
	t.Logf("after kill -9: %s: %s", i.State, i.Problem)
	if err := x.Start(t.Context(), nil); err != nil {
		t.Fatalf("no recovery from a killed QEMU: %v", err)
	}

	// Its network process dies: said, and a stop and start help.
	i, _ = x.Info(t.Context())
	if err := syscall.Kill(i.Pids["netd"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if i, _ = x.Info(t.Context()); i.State == vm.StateTrouble {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("netd was killed and Info says %+v", i)
		}
	}
	if err := x.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "stop the machine") {
		t.Fatalf("started over a running QEMU: %v", err)
	}
	begin = time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := x.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("forced stop %s", time.Since(begin).Round(time.Millisecond))
	noProcess(t, x)
	if err := m.Destroy(t.Context(), "real1"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Open(t.Context(), "real1"); !errors.Is(err, vm.ErrNotExist) {
		t.Fatal(err)
	}
	trash, _ := os.ReadDir(m.opt.Trash)
	if len(trash) != 1 {
		t.Fatalf("trash: %v", trash)
	}
}
