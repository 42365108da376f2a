//go:build linux

package boot_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
)

// newVM joins a virtual machine that somebody booted with this guestd.
func newVM(t *testing.T) *house {
	t.Helper()
	addr := os.Getenv("GLASSHOUSE_TEST_GUEST")
	if addr == "" {
		t.Skip("runs in a booted VM: set GLASSHOUSE_TEST_GUEST to the host and port of its channel")
	}
	return &house{t: t, network: "tcp", socket: addr, log: &lockedBuffer{}}
}

func root(script string) guest.ExecSpec {
	s := sh(script)
	s.Root = true
	return s
}

func TestVMExec(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	if x := g.Hello(); x.Kind != "vm" || !x.Cgroups || len(x.Notes) > 0 {
		t.Fatalf("%+v", x)
	}
	for _, c := range []struct {
		spec guest.ExecSpec
		want string
	}{
		{sh("id -u; id -g; echo $HOME $USER; pwd; touch w && rm w && echo ok"), "1000\n1000\n/home/agent agent\n/workspace\nok\n"},
		{root("id -u; echo $HOME; umask"), "0\n/root\n0022\n"},
		{sh("ls /var/lib/glasshouse /run/glasshouse 2>&1 | grep -c denied"), "2\n"},
		{sh("sudo -n id -u"), "0\n"},
		{sh("ls /proc/self/fd | wc -l; grep -E '^Sig(Ign|Blk)' /proc/self/status"), "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"},
		{sh("test -w /dev/null && test -w /dev/shm && test -r /dev/urandom && ls /dev/fd/0 /dev/stdin && tty"), "/dev/fd/0\n/dev/stdin\nnot a tty\n"},
		{sh("bash -c 'exec 3<>/dev/tcp/127.0.0.1/1021' 2>/dev/null; echo $?"), "1\n"},
		{root("bash -c 'exec 3<>/dev/tcp/127.0.0.1/1021' 2>/dev/null; echo $?"), "1\n"},
	} {
		if r := h.run(g, c.spec); r.out != c.want {
			t.Errorf("%q: got %q %q %+v, want %q", c.spec.Argv[2], r.out, r.err, r.exit, c.want)
		}
	}
}

func TestVMLimits(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	spec := guest.ExecSpec{Argv: []string{"python3", "-c", "x = bytearray(400 << 20)"}, Limits: guest.Limits{MemoryMiB: 100}}
	if r := h.run(g, spec); !r.exit.OOM || r.exit.Signal != "SIGKILL" {
		t.Errorf("400 MiB in 100: %+v", r.exit)
	}
	spec.Limits.MemoryMiB = 0
	if r := h.run(g, spec); r.exit.Code != 0 || r.exit.OOM || r.exit.MaxRSSKiB < 400<<10 {
		t.Errorf("400 MiB unlimited: %+v", r.exit)
	}
	// A command that eats all memory is what dies, and guestd answers.
	if r := h.run(g, guest.ExecSpec{Argv: []string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(32 << 20))"}}); !r.exit.OOM {
		t.Errorf("all the memory: %+v", r.exit)
	}
	if r := h.run(g, guest.ExecSpec{Argv: []string{"bash", "-c", "for i in {1..60}; do sleep 1 & done; wait"}, Limits: guest.Limits{Pids: 10}}); !strings.Contains(r.err, "fork") {
		t.Errorf("60 processes in 10: %+v", r)
	}
	if r := h.run(g, sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")); r.exit.UserCPU <= 0 {
		t.Errorf("no CPU time: %+v", r.exit)
	}
}

func TestVMTrees(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	left := func(word string) string {
		return h.run(g, root("pgrep -fc '[s]leep "+word+"'")).out
	}
	spec := sh(`trap "" TERM; sudo -n setsid sleep 4242 & (setsid sleep 4242 &); sudo -n sh -c 'echo $$ >/sys/fs/cgroup/cgroup.procs; exec sleep 4242' & sleep 1; echo up; sleep 4242; sleep 4242`)
	spec.ID = newID()
	p, err := g.Execs().Start(h.ctx(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(); err != nil {
		t.Fatal(err)
	}
	if n := left("4242"); n == "0\n" {
		t.Fatal("the tree is not up")
	}
	if err := g.Execs().Kill(h.ctx(), spec.ID, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); !r.exit.Killed {
		t.Fatalf("got %+v", r.exit)
	}
	if n := left("4242"); n != "0\n" { // root's children, another session's, and one that left its cgroup
		t.Fatalf("%s processes live on: %s", n, h.run(g, root("ps -ef | grep '[s]leep 4242'")).out)
	}
	r := h.run(g, guest.ExecSpec{Session: "vs", Argv: []string{"sh", "-c", "setsid sleep 4243 & exit 3"}})
	if r.exit.Code != 3 || len(r.exit.Background) != 1 {
		t.Fatalf("got %+v", r)
	}
	if err := g.Execs().EndSession(h.ctx(), "vs"); err != nil {
		t.Fatal(err)
	}
	if n := left("4243"); n != "0\n" {
		t.Fatalf("%s background processes live on", n)
	}
	if r := h.run(g, root("ls -d /sys/fs/cgroup/glasshouse/x* | wc -l")); len(r.out) > 3 {
		t.Errorf("cgroups pile up: %s", r.out)
	}
}

func TestVMWorkerKilled(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	id := newID()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "rm -f go; echo a; while [ ! -e go ]; do sleep 0.05; done; echo b; exit 4"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Root: true, Argv: []string{"pkill", "-9", "-f", "^guestd serve"}}); err != nil && !errors.Is(err, guest.ErrGone) {
		t.Fatal(err)
	}
	select {
	case <-g.Done():
	case <-time.After(hang):
		t.Fatal("the worker lives on")
	}
	g = h.open(nil)
	h.run(g, sh("touch go"))
	p, err := g.Execs().Attach(h.ctx(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.out != "a\nb\n" || r.exit.Code != 4 {
		t.Fatalf("got %+v", r)
	}
}

func TestVMConnect(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	if r := h.run(g, sh("/usr/lib/glasshouse/guestd connect </dev/null; echo $?")); !strings.HasSuffix(r.out, "1\n") || !strings.Contains(r.err, "root") {
		t.Errorf("as agent: %+v", r)
	}
	// Through the stdio of a command, as over ssh: a channel inside the channel.
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Root: true, Stdin: true, Argv: []string{"/usr/lib/glasshouse/guestd", "connect"}, OutputLimit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// Its hello supersedes the channel it runs in, which is the proof that it arrived.
	_, err = client.Open(h.ctx(), &stdio{p: p}, nil, client.Options{})
	select {
	case <-g.Done():
	case <-time.After(hang):
		t.Fatalf("guestd connect reached nobody: %v", err)
	}
}

// stdio is a process as a byte stream.
type stdio struct {
	p   guest.Process
	buf []byte
}

func (s *stdio) Read(b []byte) (int, error) {
	for len(s.buf) == 0 {
		o, err := s.p.Next()
		if err != nil {
			return 0, err
		}
		if !o.Stderr {
			s.buf = o.Data
		}
	}
	n := copy(b, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}
func (s *stdio) Write(b []byte) (int, error) { return s.p.Write(b) }
func (s *stdio) Close() error                { return s.p.Close() }

func TestVMIdentity(t *testing.T) {
	h := newVM(t)
	h.open(nil).Close()
	c, err := net.Dial("tcp", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	g, err := client.Open(h.ctx(), c, nil, client.Options{SetClock: true, Hostname: "renamed", Seed: make([]byte, 64), FreshIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Hello().Hostname != "renamed" || len(g.Hello().Notes) > 0 {
		t.Fatalf("%+v", g.Hello())
	}
	r := h.run(g, sh("hostname; getent hosts renamed | wc -l; wc -c </etc/machine-id; date +%s"))
	w := strings.Fields(r.out)
	if len(w) != 4 || w[0] != "renamed" || w[1] != "1" || w[2] != "33" {
		t.Fatalf("got %q", r.out)
	}
	var now int64
	fmt.Sscan(w[3], &now)
	if d := time.Now().Unix() - now; d > 60 || d < -60 {
		t.Errorf("the guest's clock is off by %d s", d)
	}
}

func TestVMUpgrade(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	id := newID()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "rm -f up; echo a; while [ ! -e up ]; do sleep 0.05; done; echo b; exit 4"}}); err != nil {
		t.Fatal(err)
	}
	bin := os.Getenv("GLASSHOUSE_TEST_GUESTD")
	if bin == "" {
		t.Skip("set GLASSHOUSE_TEST_GUESTD to a static guestd to upgrade to")
	}
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, fmt.Sprintf("\n%d", time.Now().UnixNano())...) // another hash, the same program
	sum := sha256.Sum256(b)
	agent := &client.Agent{Hash: hex.EncodeToString(sum[:]), Size: int64(len(b)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(b))), nil
	}}
	g.Close()
	dial := func() (guest.Guest, error) {
		c, err := net.Dial("tcp", h.socket)
		if err != nil {
			return nil, err
		}
		return client.Open(h.ctx(), c, nil, client.Options{Agent: agent})
	}
	if _, err := dial(); !errors.Is(err, client.ErrUpgraded) {
		t.Fatalf("got %v", err)
	}
	for end := time.Now().Add(hang); ; time.Sleep(50 * time.Millisecond) {
		if g, err = dial(); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer g.Close()
	if g.Hello().AgentHash != agent.Hash {
		t.Fatalf("runs %s, want %s", g.Hello().AgentHash, agent.Hash)
	}
	h.run(g, sh("touch up"))
	p, err := g.Execs().Attach(h.ctx(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.out != "a\nb\n" || r.exit.Code != 4 {
		t.Fatalf("got %+v", r)
	}
}

func TestVMBrowser(t *testing.T) {
	h := newVM(t)
	urls := make(chan string, 64)
	g := h.open(gate(func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		urls <- fmt.Sprint(c.Browser, " ", c.Session, " ", strings.TrimSpace(line))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<title>through the door</title>")
		conn.Close()
	}))
	began := time.Now()
	b, err := g.Browser(h.ctx(), guest.BrowserSpec{Profile: "p1", Width: 900, Height: 700, Session: "sess"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %v", time.Since(began))
	if b.(interface{ NoSandbox() bool }).NoSandbox() {
		t.Error("Chromium's own sandbox is off")
	}
	br := bufio.NewReader(b)
	var target struct{ TargetID string }
	json.Unmarshal(cdp(t, b, br, 1, "", "Target.createTarget", `{"url":"http://example.test/x"}`), &target)
	if got := <-urls; got != "true sess GET http://example.test/x HTTP/1.1" {
		t.Errorf("the gate saw %q", got)
	}
	t.Logf("first request after %v", time.Since(began))
	if r := h.run(g, sh("ps -eo user,args | grep -c '^agent.*[c]hromium-headless'")); r.out == "0\n" {
		t.Error("Chromium does not run as agent")
	}
	b.Close()
	for end := time.Now().Add(hang); h.run(g, sh("pgrep -c chromium")).out != "0\n"; {
		if time.Now().After(end) {
			t.Fatal("Chromium outlives its pipe")
		}
	}
}
