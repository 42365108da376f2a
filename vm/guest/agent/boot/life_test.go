//go:build linux

package boot_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/spawn"
	"glasshouse/vm/guest/client"
)

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func waitFile(t *testing.T, path string) string {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("%s never came", path)
	return ""
}

// waitPid reads a pid that a command writes.
func waitPid(t *testing.T, path string) string {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(b), "\n") {
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("%s never came", path)
	return ""
}

func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 0 {
		panic("no pid: " + pid)
	}
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func waitDead(t *testing.T, pid string) {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if !alive(pid) {
			return
		}
	}
	t.Fatalf("process %s lives on", pid)
}

// stubborn starts a tree that ignores SIGTERM: a child, and a grandchild that left its
// session and lost its parent. Their pids are in files.
func stubborn(dir string) string {
	return `trap "" TERM
setsid sh -c 'trap "" TERM; (trap "" TERM; echo $$ >` + dir + `/a; while :; do sleep 1; done) & exit' </dev/null >/dev/null 2>&1
sh -c 'trap "" TERM; echo $$ >` + dir + `/b; while :; do sleep 1; done' &
(setsid sh -c 'trap "" TERM; echo $$ >` + dir + `/c; while :; do sleep 1; done' &)
echo ready
while :; do sleep 1; done`
}

func TestKillTree(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id := newID()
	spec := sh(stubborn(h.work))
	spec.ID = id
	p, err := g.Execs().Start(h.ctx(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b, c := waitPid(t, h.work+"/b"), waitPid(t, h.work+"/c")
	if !alive(b) || !alive(c) {
		t.Fatal("the tree is not up")
	}
	if err := g.Execs().Kill(h.ctx(), id, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	r := drain(t, p)
	if !r.exit.Killed || r.exit.Signal != "SIGKILL" || r.exit.TimedOut {
		t.Fatalf("got %+v", r.exit)
	}
	waitDead(t, b)
	waitDead(t, c)
	if err := g.Execs().Kill(h.ctx(), id, 0); err != nil {
		t.Errorf("kill of the dead: %v", err)
	}
}

func TestTimeout(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	spec := sh(stubborn(h.work))
	spec.Timeout, spec.Grace = 3*time.Second, 100*time.Millisecond
	r := h.run(g, spec)
	written := func(name string) bool {
		b, err := os.ReadFile(h.work + "/" + name)
		return err == nil && strings.HasSuffix(string(b), "\n")
	}
	for !written("b") || !written("c") {
		// It was over before all of the tree was there, on a busy machine.
		if spec.Timeout *= 3; spec.Timeout > hang {
			t.Fatalf("the tree is never up: %+v", r)
		}
		r = h.run(g, spec)
	}
	if !r.exit.TimedOut || r.exit.Killed || r.exit.Signal != "SIGKILL" {
		t.Fatalf("got %+v", r.exit)
	}
	for _, f := range []string{"b", "c"} {
		waitDead(t, waitPid(t, h.work+"/"+f))
	}
	// One that obeys SIGTERM ends by it.
	r = h.run(g, guest.ExecSpec{Argv: []string{"sleep", "1000"}, Timeout: 50 * time.Millisecond})
	if !r.exit.TimedOut || r.exit.Signal != "SIGTERM" {
		t.Fatalf("got %+v", r.exit)
	}
	// One that ends by itself is not said to have timed out.
	if r = h.run(g, guest.ExecSpec{Argv: []string{"true"}, Timeout: hang}); r.exit.TimedOut {
		t.Fatalf("got %+v", r.exit)
	}
}

func TestBackground(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{
		ID: newID(), Session: "s1", Argv: []string{"sh", "-c", "sleep 1000 & echo $! >" + h.work + "/pid; until grep -q ^sleep /proc/$!/cmdline; do :; done; echo started; exit 5"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := drain(t, p) // returns although the child holds the pipe
	if r.out != "started\n" || r.exit.Code != 5 {
		t.Fatalf("got %+v", r)
	}
	pid := waitPid(t, h.work+"/pid")
	if len(r.exit.Background) != 1 || strconv.Itoa(r.exit.Background[0].Pid) != pid || strings.Join(r.exit.Background[0].Argv, " ") != "sleep 1000" {
		t.Fatalf("background %+v, want pid %s", r.exit.Background, pid)
	}
	if err := g.Execs().EndSession(h.ctx(), "other"); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("another session's end killed it")
	}
	if err := g.Execs().EndSession(h.ctx(), "s1"); err != nil {
		t.Fatal(err)
	}
	waitDead(t, pid)
	// A child that floods the pipe afterwards blocks nobody and keeps nothing.
	p, err = g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Session: "s2", Argv: []string{"sh", "-c", "(sleep 0.2; head -c 5000000 /dev/zero; echo x >" + h.work + "/flooded) & exit 0"}})
	if err != nil {
		t.Fatal(err)
	}
	drain(t, p)
	waitFile(t, h.work+"/flooded")
}

func TestAttach(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id := newID()
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Session: "s", Step: "st", Argv: []string{"sh", "-c", "echo one; echo e1 >&2; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 9"}})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := p.Next(); err != nil || len(o.Data) == 0 {
		t.Fatalf("%+v %v", o, err)
	}
	g.Close() // the core is gone
	select {
	case <-g.Done():
	default:
		t.Fatal("not done after Close")
	}
	if _, err := g.Stats(context.Background()); !errors.Is(err, guest.ErrGone) {
		t.Fatalf("a call on the closed channel: %v", err)
	}
	if _, err := tryDrain(p); err == nil {
		t.Fatal("the stream ended well although the channel is closed")
	}
	g = h.open(nil)
	list, err := g.Execs().List(h.ctx())
	if err != nil || len(list) != 1 || list[0].ID != id || !list[0].Running || list[0].Session != "s" || list[0].Step != "st" || list[0].Argv[0] != "sh" {
		t.Fatalf("%+v %v", list, err)
	}
	p, err = g.Execs().Attach(h.ctx(), id, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(h.work+"/go", nil, 0o644)
	r := drain(t, p)
	if r.out != "e\ntwo\n" || r.err != "e1\n" || r.exit.Code != 9 {
		t.Fatalf("got %+v", r)
	}
	// Ended ones can be attached to until they are forgotten.
	p, err = g.Execs().Attach(h.ctx(), id, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.out != "one\ntwo\n" || r.err != "" || r.exit.Code != 9 {
		t.Fatalf("got %+v", r)
	}
	list, err = g.Execs().List(h.ctx())
	if err != nil || len(list) != 1 || list[0].Running || list[0].Exit.Code != 9 || list[0].Stdout != 8 {
		t.Fatalf("%+v %v", list, err)
	}
	if err := g.Execs().Forget(h.ctx(), id, "unknown"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Execs().Attach(h.ctx(), id, 0, 0); !errors.Is(err, guest.ErrNoExec) {
		t.Fatalf("after forget: %v", err)
	}
}

// children finds guestd's processes of one subcommand.
func (h *house) children(sub string) (pids []int) {
	for _, pid := range spawn.Descendants(h.cmd.Process.Pid) {
		a := spawn.Argv(pid)
		if len(a) < 2 || a[0] != "guestd" || a[1] != sub {
			continue
		}
		// A child that was just forked still looks like its parent.
		if pp, ok := spawn.Parent(pid); ok {
			if p := spawn.Argv(pp); len(p) > 1 && p[1] == sub {
				continue
			}
		}
		pids = append(pids, pid)
	}
	return pids
}

// worker finds the one that serves. What a killed one had just forked may look like a
// second until it has become what it is to be.
func (h *house) worker() int {
	h.t.Helper()
	var found []int
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found = h.children("serve"); len(found) == 1 {
			return found[0]
		}
	}
	h.t.Fatalf("workers: %v", found)
	return 0
}

// The worker is killed in the middle of everything; nothing may be lost.
func TestWorkerKilled(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	boot := g.Hello().BootID
	slow, over, in := newID(), newID(), newID()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: slow, Argv: []string{"sh", "-c", "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.005; done; exit 6"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: in, Argv: []string{"cat"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	h.run(g, guest.ExecSpec{ID: over, Argv: []string{"sh", "-c", "echo done; exit 2"}})
	for round := 0; round < 3; round++ {
		syscall.Kill(h.worker(), syscall.SIGKILL)
		select {
		case <-g.Done():
		case <-time.After(hang):
			t.Fatal("the channel did not notice")
		}
		if !errors.Is(g.Err(), guest.ErrGone) {
			t.Fatalf("err: %v", g.Err())
		}
		g = h.open(nil)
	}
	if g.Hello().BootID != boot {
		t.Fatal("the boot id changed though the guest did not reboot")
	}
	p, err := g.Execs().Attach(h.ctx(), slow, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := drain(t, p)
	want := ""
	for i := 0; i < 300; i++ {
		want += "line " + strconv.Itoa(i) + "\n"
	}
	if r.out != want || r.exit.Code != 6 || r.exit.Unknown {
		t.Fatalf("output of %d bytes, want %d; exit %+v", len(r.out), len(want), r.exit)
	}
	p, err = g.Execs().Attach(h.ctx(), in, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Write([]byte("still here"))
	p.CloseStdin()
	if r := drain(t, p); r.out != "still here" || r.exit.Code != 0 {
		t.Fatalf("got %+v", r)
	}
	p, err = g.Execs().Attach(h.ctx(), over, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.out != "done\n" || r.exit.Code != 2 {
		t.Fatalf("got %+v", r)
	}
	if r := h.run(g, sh("echo new")); r.out != "new\n" {
		t.Fatalf("got %+v", r)
	}
}

// A command that ended while no worker lived has its real outcome.
func TestEndsUnseen(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id := newID()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; echo unseen; exit 8"}}); err != nil {
		t.Fatal(err)
	}
	worker := h.worker()
	// Stopped, the worker holds its place but sees nothing.
	syscall.Kill(worker, syscall.SIGSTOP)
	os.WriteFile(h.work+"/go", nil, 0o644)
	waitFile(t, filepath.Join(h.state, "journal", id, "exit.json"))
	syscall.Kill(worker, syscall.SIGKILL)
	<-g.Done()
	g = h.open(nil)
	p, err := g.Execs().Attach(h.ctx(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.out != "unseen\n" || r.exit.Code != 8 || r.exit.Unknown {
		t.Fatalf("got %+v", r)
	}
}

// A shim that is killed, and a guest that restarts, leave an unknown outcome, not a made-up one.
func TestUnknown(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id, id2 := newID(), newID()
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "echo $PPID; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.Next()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(o.Data)))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	if r := drain(t, p); !r.exit.Unknown || r.exit.Code != -1 {
		t.Fatalf("got %+v", r.exit)
	}
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id2, Argv: []string{"sh", "-c", "echo kept; sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	for len(readKept(h, id2)) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	boot := g.Hello().BootID
	// As when the power goes. Stopped first, init starts no other worker meanwhile, which
	// would outlive it and answer at the old socket.
	h.cmd.Process.Signal(syscall.SIGSTOP)
	for {
		all := append(h.children("shim"), h.children("serve")...)
		if len(all) == 0 {
			break
		}
		for _, pid := range all {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.cmd.Process.Kill()
	<-h.ended
	h.start()
	g = h.open(nil)
	if g.Hello().BootID == boot {
		t.Fatal("the boot id did not change")
	}
	p, err = g.Execs().Attach(h.ctx(), id2, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); !r.exit.Unknown || r.out != "kept\n" {
		t.Fatalf("got %+v", r)
	}
}

func readKept(h *house, id string) []byte {
	b, _ := os.ReadFile(filepath.Join(h.state, "journal", id, "stdout"))
	return b
}

func TestManyAtOnce(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	const n = 40
	errs := make(chan error, n)
	for i := 0; i < n; i++ {
		id := newID()
		go func() {
			p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "echo " + id + "; sleep 0.05"}})
			if err != nil {
				errs <- err
				return
			}
			r, err := tryDrain(p)
			if err == nil && (r.out != id+"\n" || r.exit.Code != 0) {
				err = errors.New("wrong answer " + r.out + r.exit.StartError)
			}
			errs <- err
		}()
	}
	for i := 0; i < n; i++ {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestShutdown(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id := newID()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "echo $$ >" + h.work + "/pid; sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	pid := waitPid(t, h.work+"/pid")
	if err := g.Shutdown(h.ctx()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.ended:
	case <-time.After(hang):
		t.Fatalf("init lives on\n%s", h.log)
	}
	if code := h.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("init ended with %d\n%s", code, h.log)
	}
	<-g.Done()
	waitDead(t, pid)
	h.start()
	g = h.open(nil)
	p, err := g.Execs().Attach(h.ctx(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.exit.Unknown || r.exit.Signal != "SIGTERM" {
		t.Fatalf("a command ended by an orderly power-off has a known end, got %+v", r.exit)
	}
}

func TestUpgradeRefusedOutsideVM(t *testing.T) {
	h := newHouse(t)
	c, err := net.Dial("unix", h.socket)
	if err != nil { // not up yet
		h.open(nil).Close()
		if c, err = net.Dial("unix", h.socket); err != nil {
			t.Fatal(err)
		}
	}
	// Only a VM is upgraded; the option is ignored elsewhere.
	g, err := client.Open(h.ctx(), c, nil, client.Options{Agent: &client.Agent{Hash: strings.Repeat("0", 64)}})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}
