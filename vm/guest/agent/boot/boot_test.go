//go:build linux

package boot_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/boot"
	"glasshouse/vm/guest/client"
)

// TestMain lets the test binary be guestd: the real processes are what is tested.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "guestd" || os.Getenv("GUESTD_TEST_INIT") == "1" && len(os.Args) > 1 && os.Args[1] == "init" {
		code, err := boot.Command(os.Args)
		if err != nil {
			fmt.Fprintln(os.Stderr, "guestd:", err)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

const hang = 60 * time.Second // a guard, never a measure

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// house is a running guestd in direct mode.
type house struct {
	t       *testing.T
	cmd     *exec.Cmd
	network string // default unix
	socket  string
	state   string
	work    string
	home    string
	log     *lockedBuffer
	ended   chan struct{}
}

func newHouse(t *testing.T, args ...string) *house {
	t.Helper()
	root, err := os.MkdirTemp("", "gh")
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, socket: root + "/s", state: root + "/st", work: root + "/w", home: root + "/h"}
	for _, d := range []string{h.work, h.home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h.start(args...)
	return h
}

func (h *house) start(args ...string) {
	h.t.Helper()
	if len(args) == 0 {
		args = []string{"--proxy", "off"}
	}
	h.cmd = exec.Command("/proc/self/exe", append([]string{"init", "--direct", "--socket", h.socket, "--state", h.state, "--workspace", h.work, "--home", h.home}, args...)...)
	h.cmd.Env = append(os.Environ(), "GUESTD_TEST_INIT=1")
	h.log = &lockedBuffer{}
	h.cmd.Stderr = h.log
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(h.cmd, h.ended)
	h.t.Cleanup(h.stop)
}

func (h *house) stop() {
	h.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-h.ended:
	case <-time.After(hang):
		h.cmd.Process.Kill()
		h.t.Errorf("init did not end; its log:\n%s", h.log)
	}
	if h.t.Failed() {
		h.t.Logf("guestd's log:\n%s", h.log)
	}
}

func (h *house) ctx() context.Context { return h.within(hang) }

func (h *house) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	h.t.Cleanup(cancel)
	return ctx
}

// open dials until guestd answers.
func (h *house) open(eg guest.EgressHandler) guest.Guest {
	h.t.Helper()
	var last error
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial(cmp.Or(h.network, "unix"), h.socket)
		if err == nil {
			var g guest.Guest
			if g, err = client.Open(h.ctx(), c, eg, client.Options{}); err == nil {
				h.t.Cleanup(func() { g.Close() })
				return g
			}
		}
		last = err
	}
	h.t.Fatalf("guestd does not answer: %v\n%s", last, h.log)
	return nil
}

type result struct {
	out, err string
	exit     guest.Exit
}

func drain(t *testing.T, p guest.Process) result {
	t.Helper()
	r, err := tryDrain(p)
	if err != nil {
		t.Fatalf("output of %s: %v", p.ID(), err)
	}
	return r
}

func tryDrain(p guest.Process) (result, error) {
	var out, errb bytes.Buffer
	for {
		o, err := p.Next()
		if err == io.EOF {
			return result{out.String(), errb.String(), p.Exit()}, nil
		}
		if err != nil {
			return result{out.String(), errb.String(), guest.Exit{}}, err
		}
		if o.Stderr {
			errb.Write(o.Data)
		} else {
			out.Write(o.Data)
		}
	}
}

var seq int

var started = time.Now().UnixNano()

func newID() string {
	seq++
	return "t" + strconv.FormatInt(started, 36) + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(seq)
}

func (h *house) run(g guest.Guest, spec guest.ExecSpec) result {
	h.t.Helper()
	if spec.ID == "" {
		spec.ID = newID()
	}
	p, err := g.Execs().Start(h.ctx(), spec)
	if err != nil {
		h.t.Fatalf("start %q: %v", spec.Argv, err)
	}
	return drain(h.t, p)
}

func sh(script string) guest.ExecSpec { return guest.ExecSpec{Argv: []string{"/bin/sh", "-c", script}} }

func TestExec(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	hello := g.Hello()
	if hello.Generation != guest.Generation || len(hello.AgentHash) != 64 || hello.BootID == "" || hello.Kind != "direct" {
		t.Fatalf("hello: %+v", hello)
	}
	r := h.run(g, sh(`echo out; echo err >&2; pwd; echo $FOO; exit 7`))
	if r.out != "out\n"+h.work+"\n\n" || r.err != "err\n" || r.exit.Code != 7 || r.exit.Signal != "" {
		t.Fatalf("got %+v", r)
	}
	if r.exit.Stdout.Total != int64(len(r.out)) || r.exit.StartedAt.IsZero() || r.exit.EndedAt.Before(r.exit.StartedAt) || r.exit.MaxRSSKiB <= 0 {
		t.Fatalf("exit: %+v", r.exit)
	}
	r = h.run(g, guest.ExecSpec{Argv: []string{"sh", "-c", `printf '%s|' "$FOO" "$HOME" "$1" "$2"`, "x", "a b", "\xff'\""}, Env: map[string]string{"FOO": "b\xffr"}, Dir: "/"})
	if r.out != "b\xffr|"+h.home+"|a b|\xff'\"|" {
		t.Fatalf("got %q", r.out)
	}
	for _, c := range []struct {
		argv      []string
		dir, want string
	}{
		{[]string{"no-such-command"}, "", "not found in PATH"},
		{[]string{"/no/such"}, "", "no such file"},
		{[]string{"true"}, "/no/such/dir", "working folder"},
		{[]string{"/etc/passwd"}, "", "cannot be started"},
	} {
		r := h.run(g, guest.ExecSpec{Argv: c.argv, Dir: c.dir})
		if !strings.Contains(r.exit.StartError, c.want) || r.exit.Code != -1 {
			t.Errorf("%q: %+v", c.argv, r.exit)
		}
	}
	id := newID()
	h.run(g, guest.ExecSpec{ID: id, Argv: []string{"true"}})
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"true"}}); !errors.Is(err, client.ErrExists) {
		t.Errorf("second start of one id: %v", err)
	}
}
