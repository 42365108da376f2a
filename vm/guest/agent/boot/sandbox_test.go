//go:build linux

package boot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/agent/chromium"
	"glasshouse/vm/guest/agent/spawn"
)

const sandboxUser = 64123 // any uid that owns nothing

// newSandbox runs guestd as a local machine does: unprivileged, in an outer
// bubblewrap sandbox over the host's own /usr.
func newSandbox(t *testing.T) *house {
	t.Helper()
	if os.Getenv("GLASSHOUSE_TEST_BWRAP") == "" {
		t.Skip("runs real bubblewrap sandboxes: set GLASSHOUSE_TEST_BWRAP=1")
	}
	if _, err := os.Stat(cell.Bwrap); err != nil {
		t.Skipf("needs bubblewrap: %v", err)
	}
	root, err := os.MkdirTemp("/tmp", "ghs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h := &house{t: t, socket: root + "/run/chan.sock", state: root + "/state", work: root + "/ws", home: root + "/home"}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/guestd", self, 0o755); err != nil {
		t.Fatal(err)
	}
	os.Chmod(root, 0o755)
	for _, d := range []string{root + "/run", h.state, h.work, h.home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			os.Chown(d, sandboxUser, sandboxUser)
		}
	}
	h.startSandbox(root)
	return h
}

func (h *house) startSandbox(root string) {
	h.t.Helper()
	args := []string{
		"--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--hostname", "local",
		"--new-session", "--as-pid-1", "--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/usr", "/usr",
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		args = append(args, "--symlink", "usr/"+d, "/"+d)
	}
	args = append(args, "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run",
		"--bind", root+"/run", "/run/glasshouse", "--bind", h.state, "/var/lib/glasshouse", "--bind", h.work, guest.Workspace, "--bind", h.home, guest.Home,
		"--ro-bind", root+"/guestd", "/opt/guestd", "--", "/opt/guestd", "init", "--sandbox")
	h.cmd = exec.Command(cell.Bwrap, args...)
	h.cmd.Env = []string{"SECRET_OF_THE_HOST=1"}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() == 0 {
		h.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: sandboxUser, Gid: sandboxUser}
	}
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
	h.t.Cleanup(func() {
		for _, pid := range spawn.Descendants(h.cmd.Process.Pid) { // init, below bwrap
			if a := spawn.Argv(pid); len(a) > 1 && a[1] == "init" {
				syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		select {
		case <-h.ended:
		case <-time.After(hang):
			h.cmd.Process.Kill()
			h.t.Errorf("the sandbox did not end; its log:\n%s", h.log)
		}
		if h.t.Failed() {
			h.t.Logf("guestd's log:\n%s", h.log)
		}
	})
}

func TestSandboxHides(t *testing.T) {
	h := newSandbox(t)
	g := h.open(nil)
	if g.Hello().Kind != "sandbox" || g.Hello().Hostname != "local" {
		t.Fatalf("%+v", g.Hello())
	}
	for _, c := range []struct{ script, want string }{
		{"id -u; echo $HOME; pwd", "1000\n/home/agent\n/workspace\n"},
		{"ls -A /var/lib/glasshouse /run/glasshouse /run 2>/dev/null; echo end", "/run:\nend\n"},
		{"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c -x -e '[s]erve' -e '[s]him' -e '[i]nit'", "0\n"},
		{"cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c SECRET_OF", "0\n"},
		{"find / -xdev -name chan.sock -o -xdev -name '*.sock' 2>/dev/null | head", ""},
		{"touch /usr/x /etc/x /x 2>/dev/null || echo readonly; touch /workspace/w /home/agent/h /tmp/t && echo writable", "readonly\nwritable\n"},
		{"kill -9 1 2>/dev/null; kill -TERM 1; sleep 0.1; echo alive", "alive\n"},
		{"grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status", "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n"},
		{"unshare -Ur true && echo nested", "nested\n"}, // Chromium's sandbox needs it
		{"cat /proc/1/environ /proc/1/maps /proc/1/fd/3 2>/dev/null | wc -c", "0\n"},
		{"ls -l /proc/self/fd | grep -c socket", "0\n"},
		{"umount /run 2>/dev/null || echo locked; unshare -Urm umount /var 2>/dev/null || echo locked", "locked\nlocked\n"},
	} {
		if r := h.run(g, sh(c.script)); r.out != c.want {
			t.Errorf("%s\ngot %q (stderr %q, %+v), want %q", c.script, r.out, r.err, r.exit, c.want)
		}
	}
	// /tmp is one for all commands; it is no way to guestd's own.
	h.run(g, sh("echo x >/tmp/shared"))
	if r := h.run(g, sh("cat /tmp/shared")); r.out != "x\n" {
		t.Errorf("got %q", r.out)
	}
}

func TestSandboxTrees(t *testing.T) {
	h := newSandbox(t)
	g := h.open(nil)
	count := func(word string) (n int) {
		for _, pid := range spawn.Descendants(h.cmd.Process.Pid) {
			if strings.Contains(strings.Join(spawn.Argv(pid), " "), word) {
				n++
			}
		}
		return n
	}
	gone := func(word string) {
		t.Helper()
		for end := time.Now().Add(hang); count(word) > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q lives on", word)
			}
		}
	}
	spec := sh(`trap "" TERM; setsid sh -c 'trap "" TERM; sleep 4242' & (setsid sleep 4242 &) ; echo up; sleep 4242; sleep 4242`)
	spec.ID = newID()
	p, err := g.Execs().Start(h.ctx(), spec)
	if err != nil {
		t.Fatal(err)
	}
	p.Next()
	if err := g.Execs().Kill(h.ctx(), spec.ID, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); !r.exit.Killed || r.exit.Signal != "SIGKILL" {
		t.Fatalf("got %+v", r.exit)
	}
	gone("sleep 4242")
	// Background children outlive their command and end with their session.
	r := h.run(g, guest.ExecSpec{Session: "s", Argv: []string{"sh", "-c", "setsid sleep 4243 & echo $!; exit 3"}})
	if r.exit.Code != 3 || len(r.exit.Background) != 1 || fmt.Sprintln(r.exit.Background[0].Pid) != r.out {
		t.Fatalf("got %+v", r)
	}
	if count("sleep 4243") == 0 {
		t.Fatal("the background child died with its command")
	}
	if err := g.Execs().EndSession(h.ctx(), "s"); err != nil {
		t.Fatal(err)
	}
	gone("sleep 4243")
	r = h.run(g, guest.ExecSpec{Argv: []string{"sleep", "4244"}, Timeout: 100 * time.Millisecond})
	if !r.exit.TimedOut || r.exit.Signal != "SIGTERM" {
		t.Fatalf("got %+v", r.exit)
	}
	// The worker dies in mid-step; cell and shim do not.
	id := newID()
	if _, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "echo a; while [ ! -e go ]; do sleep 0.01; done; echo b; exit 4"}}); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(h.worker(), syscall.SIGKILL)
	<-g.Done()
	g = h.open(nil)
	h.run(g, sh("touch go"))
	if p, err = g.Execs().Attach(h.ctx(), id, 0, 0); err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.out != "a\nb\n" || r.exit.Code != 4 {
		t.Fatalf("got %+v", r)
	}
	// A shim that dies takes its cell along.
	if p, err = g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"sh", "-c", "echo x; sleep 4245"}}); err != nil {
		t.Fatal(err)
	}
	p.Next()
	for _, pid := range h.children("shim") {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if r := drain(t, p); !r.exit.Unknown {
		t.Fatalf("got %+v", r.exit)
	}
	gone("sleep 4245")
	// A shim in reserve that was killed just now may still be taken for a command, whose
	// end is unknown then; the next command gets one that lives.
	r = h.run(g, sh("echo again"))
	for i := 0; r.exit.Unknown && i < 10; i++ {
		r = h.run(g, sh("echo again"))
	}
	if r.out != "again\n" {
		t.Fatalf("got %+v", r)
	}
	// Limits hold without cgroups.
	r = h.run(g, guest.ExecSpec{Argv: []string{"python3", "-c", "x = bytearray(300 << 20); print(len(x))"}, Limits: guest.Limits{MemoryMiB: 100}})
	if r.exit.Code == 0 {
		t.Errorf("300 MiB fit into 100: %+v", r)
	}
	if r = h.run(g, guest.ExecSpec{Argv: []string{"python3", "-c", "x = bytearray(300 << 20); print(len(x))"}}); r.exit.Code != 0 {
		t.Errorf("the limit of one command stuck to the next: %+v", r)
	}
	r = h.run(g, guest.ExecSpec{Argv: []string{"bash", "-c", "for i in {1..60}; do sleep 1 & done; wait"}, Limits: guest.Limits{Pids: 10}})
	if !strings.Contains(r.err, "fork") {
		t.Errorf("60 processes fit into 10: %+v", r)
	}
}

func TestSandboxTerminal(t *testing.T) {
	h := newSandbox(t)
	g := h.open(nil)
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"sh", "-c", "tty; stty size; read x; echo got $x"}, TTY: &guest.Winsize{Rows: 5, Cols: 9}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	p.Write([]byte("in\n"))
	if r := drain(t, p); !strings.Contains(r.out, "/dev/pts/") || !strings.Contains(r.out, "5 9") || !strings.Contains(r.out, "got in") || r.exit.Code != 0 {
		t.Fatalf("got %+v", r)
	}
}

func TestSandboxDoor(t *testing.T) {
	h := newSandbox(t)
	claims := make(chan guest.EgressClaim, 1)
	g := h.open(gate(func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
		claims <- c
		line, _ := bufio.NewReader(conn).ReadString('\n')
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(line), line)
		conn.Close()
	}))
	id := newID()
	r := h.run(g, guest.ExecSpec{ID: id, Session: "s", Argv: []string{"curl", "-s", "http://example.test/path"}})
	if r.out != "GET http://example.test/path HTTP/1.1\r\n" {
		t.Fatalf("got %+v", r)
	}
	if c := <-claims; c.Exec != id || c.Session != "s" || len(c.Argv) == 0 || c.Argv[0] != "curl" {
		t.Fatalf("claim %+v", c)
	}
	// There is no other way out.
	r = h.run(g, sh("curl -s -m 60 --noproxy '*' http://192.0.2.1/ ; echo $?; ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c :"))
	if !strings.HasPrefix(r.out, "7\n") || !strings.HasSuffix(r.out, "1\n") {
		t.Fatalf("got %+v", r)
	}
}

// cdp sends one DevTools command and waits for its answer.
func cdp(t *testing.T, w io.Writer, br *bufio.Reader, id int, session, method, params string) json.RawMessage {
	t.Helper()
	s := ""
	if session != "" {
		s = `,"sessionId":"` + session + `"`
	}
	if _, err := fmt.Fprintf(w, `{"id":%d,"method":"%s","params":%s%s}`+"\x00", id, method, params, s); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		b, err := br.ReadBytes(0)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(b[:len(b)-1], &m); err != nil {
			t.Fatalf("%s: %q: %v", method, b, err)
		}
		if m.ID != id {
			continue
		}
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Error)
		}
		return m.Result
	}
}

func TestSandboxBrowser(t *testing.T) {
	if _, err := os.Stat(chromium.Binary); err != nil {
		t.Skipf("needs chromium-headless-shell: %v", err)
	}
	h := newSandbox(t)
	urls := make(chan string, 64)
	g := h.open(gate(func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		urls <- fmt.Sprint(c.Browser, " ", c.Session, " ", strings.TrimSpace(line))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<title>through the door</title>")
		conn.Close()
	}))
	spec := guest.BrowserSpec{Profile: "p1", Width: 900, Height: 700, Session: "sess"}
	b, err := g.Browser(h.ctx(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if b.(interface{ NoSandbox() bool }).NoSandbox() {
		t.Error("Chromium's own sandbox is off")
	}
	if _, err := g.Browser(h.ctx(), spec); err == nil {
		t.Error("a second browser of one profile was started")
	}
	br := bufio.NewReader(b)
	var target struct{ TargetID string }
	json.Unmarshal(cdp(t, b, br, 1, "", "Target.createTarget", `{"url":"about:blank"}`), &target)
	var att struct{ SessionID string }
	json.Unmarshal(cdp(t, b, br, 2, "", "Target.attachToTarget", `{"targetId":"`+target.TargetID+`","flatten":true}`), &att)
	cdp(t, b, br, 3, att.SessionID, "Page.enable", `{}`)
	cdp(t, b, br, 4, att.SessionID, "Page.navigate", `{"url":"http://example.test/x"}`)
	if got := <-urls; got != "true sess GET http://example.test/x HTTP/1.1" {
		t.Errorf("the gate saw %q", got)
	}
	title := ""
	for end := time.Now().Add(hang); title != "through the door" && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var r struct{ Result struct{ Value string } }
		json.Unmarshal(cdp(t, b, br, 5, att.SessionID, "Runtime.evaluate", `{"expression":"document.title"}`), &r)
		title = r.Result.Value
	}
	if title != "through the door" {
		t.Fatalf("title %q", title)
	}
	alive := func() (n int) {
		for _, pid := range spawn.Descendants(h.cmd.Process.Pid) {
			if strings.Contains(strings.Join(spawn.Argv(pid), " "), filepath.Base(chromium.Binary)) {
				n++
			}
		}
		return n
	}
	if alive() == 0 {
		t.Fatal("no Chromium is running")
	}
	ends := func(how string) {
		t.Helper()
		for end := time.Now().Add(hang); alive() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("Chromium outlives %s", how)
			}
		}
	}
	b.Close()
	ends("its pipe")
	if b, err = g.Browser(h.ctx(), spec); err != nil {
		t.Fatal(err)
	}
	if err := g.Execs().EndSession(h.ctx(), "sess"); err != nil {
		t.Fatal(err)
	}
	ends("its session")
	if _, err := io.Copy(io.Discard, b); err != nil && !errors.Is(err, guest.ErrGone) {
		t.Errorf("the pipe of an ended browser: %v", err)
	}
	if _, err = g.Browser(h.ctx(), spec); err != nil {
		t.Fatal(err)
	}
	g.Close()
	ends("its core")
}
