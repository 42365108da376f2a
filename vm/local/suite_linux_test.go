package local_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
	"glasshouse/vm/local"
	"glasshouse/vm/proc"
	"glasshouse/vm/vmtest"
)

// place is a data folder with the real guestd over the real image.
type place struct {
	root, rootfs, guestd string
	runner               *proc.Runner
}

func newPlace(t testing.TB) place {
	t.Helper()
	p := place{rootfs: filepath.Join(vmtest.Image(t), "rootfs"), guestd: vmtest.Guestd(t), runner: &proc.Runner{}}
	p.root = filepath.Join(vmtest.TempDir(t), "m")
	return p
}

func (p place) manager(testing.TB) vm.Manager {
	return local.New(local.Options{
		Root: p.root, Runner: p.runner, User: serviceUser(),
		RootFS: func(context.Context, string, func(vm.Progress)) (string, string, error) {
			return p.rootfs, "testimage", nil
		},
		Guestd: func(context.Context) (string, error) { return p.guestd, nil },
	})
}

func serviceUser() *proc.User {
	if os.Geteuid() != 0 {
		return nil
	}
	return &proc.User{UID: 64002, GID: 64002, Name: "glasshouse-suite", Home: "/nonexistent"}
}

// left lists host processes that have this machine's workspace, or bind it.
func (p place) left(_ testing.TB, id string) (out []string) {
	workspace := filepath.Join(p.root, id, "workspace")
	want, _ := os.Stat(workspace)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		line := strings.ReplaceAll(string(b), "\x00", " ")
		inside, err := os.Stat("/proc/" + e.Name() + "/root/workspace")
		if pid != os.Getpid() && (strings.Contains(line, workspace) || err == nil && want != nil && os.SameFile(inside, want)) {
			out = append(out, e.Name()+" "+line)
		}
	}
	return out
}

func pid1(t testing.TB, m vm.Machine) int {
	t.Helper()
	i, err := m.Info(context.Background())
	if err != nil || i.Pids["guestd"] == 0 {
		t.Fatalf("no guestd: %+v %v", i, err)
	}
	return i.Pids["guestd"]
}

func TestContract(t *testing.T) {
	p := newPlace(t)
	vmtest.Run(t, vmtest.Factory{
		New:       p.manager,
		GuestKind: "sandbox",
		Left:      p.left,
		PowerLoss: func(t testing.TB, m vm.Machine) {
			if err := syscall.Kill(pid1(t, m), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		KillWorker: func(t testing.TB, m vm.Machine) {
			worker := childOf(pid1(t, m), "serve")
			if worker == 0 {
				t.Fatal("no worker under guestd")
			}
			if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		Trashed: func(t testing.TB, id string) bool {
			kept, _ := filepath.Glob(filepath.Join(filepath.Dir(p.root), "trash", "machine-"+id+"-*", "workspace", "kept.txt"))
			return len(kept) == 1
		},
	})
}

// childOf finds the child of a host process whose first argument is arg.
func childOf(parent int, arg string) int {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		cmd, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		argv := strings.Split(string(cmd), "\x00")
		if len(f) > 1 && f[1] == strconv.Itoa(parent) && len(argv) > 1 && argv[1] == arg {
			pid, _ := strconv.Atoi(e.Name())
			return pid
		}
	}
	return 0
}

// A command that takes all the machine's memory is what ends; guestd, its
// journal and the other commands go on.
func TestHogSparesGuestd(t *testing.T) {
	p := newPlace(t)
	m := p.manager(t)
	if f := m.Features(); !f.HardLimits {
		t.Skipf("SKIPPED: no control groups here (limits: %s)", f.Limits)
	}
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	mc, err := m.Create(c, vm.Spec{ID: "hog", MemoryMiB: 256}, nil)
	ok(t, err)
	ok(t, mc.Start(c, nil))
	defer func() {
		now, cancel := context.WithCancel(c)
		cancel()
		ok(t, mc.Stop(now))
	}()
	conn, err := mc.Dial(c)
	ok(t, err)
	g, err := client.Open(c, conn, nil, client.Options{})
	ok(t, err)
	defer g.Close()
	boot := pid1(t, mc)
	for range 3 {
		pr, err := g.Execs().Start(c, guest.ExecSpec{ID: "hog-" + strconv.FormatInt(time.Now().UnixNano(), 10), Session: "s",
			Argv: []string{"python3", "-c", "b=[]\nwhile True: b.append(bytearray(b'x')*(8<<20))"}})
		ok(t, err)
		for err == nil {
			_, err = pr.Next()
		}
		if x := pr.Exit(); x.Signal != "SIGKILL" || x.StartedAt.IsZero() {
			t.Fatalf("the hog ended by %v: %+v", err, x)
		}
		if out := inside(t, g, "/bin/echo", "on"); out != "on\n" {
			t.Fatalf("after the hog: %q", out)
		}
	}
	if now := pid1(t, mc); now != boot {
		t.Error("the machine was started anew")
	}
}
