package local

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/proc"
	"glasshouse/vm/vmtest"
)

// The test binary plays guestd in the tests of the driver alone: started as
// `guestd init --sandbox …` it listens where guestd would and runs what a line
// asks for, in the outer sandbox itself, where guestd stands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		standIn(os.Args[2:])
		return
	}
	code := m.Run()
	vmtest.RemoveGuestd()
	os.Exit(code)
}

type ask struct {
	Argv []string
	Exit bool // end as on an orderly shutdown
}

type answer struct {
	Out  string
	Code int
}

func standIn(args []string) {
	fs := flag.NewFlagSet("init", flag.ExitOnError)
	fs.Bool("sandbox", false, "")
	socket := fs.String("socket", "", "")
	fs.String("state", "", "")
	_ = fs.Parse(args)
	signal.Ignore(syscall.SIGPIPE)
	if _, err := os.Stat("/workspace/.standin-fails"); err == nil {
		fmt.Println("stand-in: told to fail")
		os.Exit(3)
	}
	_ = os.Remove(*socket)
	l, err := net.Listen("unix", *socket)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer c.Close()
			r := bufio.NewReader(c)
			for {
				line, err := r.ReadBytes('\n')
				if err != nil {
					return
				}
				var a ask
				if json.Unmarshal(line, &a) != nil {
					return
				}
				if a.Exit {
					os.Exit(0)
				}
				cmd := exec.Command(a.Argv[0], a.Argv[1:]...)
				out, err := cmd.CombinedOutput()
				ans := answer{Out: string(out)}
				if cmd.ProcessState != nil {
					ans.Code = cmd.ProcessState.ExitCode()
				} else if err != nil {
					ans.Out, ans.Code = err.Error(), -1
				}
				b, _ := json.Marshal(ans)
				if _, err := c.Write(append(b, '\n')); err != nil {
					return
				}
			}
		}()
	}
}

// testUser is who sandboxes run as when the tests run as root.
func testUser() *proc.User {
	if os.Geteuid() != 0 {
		return nil
	}
	return &proc.User{UID: 64001, GID: 64001, Name: "glasshouse-test", Home: "/nonexistent"}
}

func testImage(t *testing.T) string {
	t.Helper()
	return filepath.Join(vmtest.Image(t), "rootfs")
}

type fixture struct {
	t      *testing.T
	root   string
	trash  string
	guestd string
	run    *proc.Runner
	m      vm.Manager
}

// newFixture gives a manager over a new folder; all machines in it are stopped at the end.
func newFixture(t *testing.T, sub string) *fixture {
	t.Helper()
	rootfs := testImage(t)
	base := vmtest.TempDir(t)
	f := &fixture{t: t, root: filepath.Join(base, sub, "m"), trash: filepath.Join(base, sub, "trash"), guestd: filepath.Join(base, "guestd"), run: &proc.Runner{}}
	copySelf(t, f.guestd)
	f.m = f.manager(rootfs)
	if err := f.m.Check(ctx(t)); err != nil {
		t.Skip("SKIPPED: no sandboxes on this host: ", err)
	}
	t.Cleanup(func() {
		ids, _ := f.m.List(context.Background())
		for _, id := range ids {
			if mc, err := f.m.Open(context.Background(), id); err == nil {
				if err := mc.Stop(gone()); err != nil {
					t.Errorf("machine %s does not stop: %v", id, err)
				}
			}
		}
	})
	return f
}

// manager is a new one over the same folder, as after a crash of the core.
func (f *fixture) manager(rootfs string) vm.Manager {
	return New(Options{
		Root: f.root, Trash: f.trash, Runner: f.run, User: testUser(),
		RootFS: func(_ context.Context, hash string, _ func(vm.Progress)) (string, string, error) {
			if hash != "" && hash != "testimage" {
				return "", "", fmt.Errorf("no image %q", hash)
			}
			return rootfs, "testimage", nil
		},
		Guestd: func(context.Context) (string, error) { return f.guestd, nil },
	})
}

func (f *fixture) create(id string) vm.Machine {
	f.t.Helper()
	mc, err := f.m.Create(ctx(f.t), vm.Spec{ID: id}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return mc
}

func (f *fixture) started(id string) vm.Machine {
	f.t.Helper()
	mc := f.create(id)
	f.start(mc)
	return mc
}

func (f *fixture) start(mc vm.Machine) {
	f.t.Helper()
	if err := mc.Start(ctx(f.t), nil); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) info(mc vm.Machine) vm.Info {
	f.t.Helper()
	i, err := mc.Info(ctx(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	return i
}

// exec runs a command where guestd stands.
func (f *fixture) exec(mc vm.Machine, argv ...string) answer {
	f.t.Helper()
	c, err := mc.Dial(ctx(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	b, _ := json.Marshal(ask{Argv: argv})
	if _, err := c.Write(append(b, '\n')); err != nil {
		f.t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		f.t.Fatalf("%q: %v", argv, err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		f.t.Fatal(err)
	}
	return a
}

func (f *fixture) sh(mc vm.Machine, script string) answer {
	f.t.Helper()
	return f.exec(mc, "/bin/sh", "-c", script)
}

func (f *fixture) shutdown(mc vm.Machine) {
	f.t.Helper()
	c, err := mc.Dial(ctx(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	b, _ := json.Marshal(ask{Exit: true})
	if _, err := c.Write(append(b, '\n')); err != nil {
		f.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, c)
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	b, err := os.ReadFile(proc.Self())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

// gone is a context that is done: what takes it does not wait.
func gone() context.Context {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	return c
}

// inMachine lists host processes that have the machine's workspace as theirs, or bind it.
func inMachine(dir string) []string {
	var out []string
	for _, p := range strays(dir) {
		out = append(out, fmt.Sprintf("%d %s", p.Pid, strings.Join(cmdline(p.Pid), " ")))
	}
	return out
}
