package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
)

// probe is one attempt to see or reach what is outside, as an agent's command.
type probe struct {
	name    string
	args    []string // inside
	control []string // outside; nil = the same
	// nested: also tried as the root of a namespace that the agent makes for himself.
	nested bool
	// rootControl: outside, only root can do it.
	rootControl bool
	// noControl says why the control cannot be had on this host, if so.
	noControl func() string
}

// TestNothingOutsideIsSeen runs the probes from inside a command's cell, plain
// and as root of nested namespaces, and each one outside too: a probe that fails
// there as well would prove nothing.
func TestNothingOutsideIsSeen(t *testing.T) {
	p := newPlace(t)
	const mark = "GLASSHOUSE-PROBE-MARK-51b2"
	t.Setenv("GLASSHOUSE_PROBE_MARK", mark)
	outside := t.TempDir()
	script := filepath.Join(outside, "probe.py")
	body, err := os.ReadFile("testdata/probe.py")
	ok(t, err)
	ok(t, os.WriteFile(script, body, 0o755))

	// What there is to find outside.
	sleeper := exec.Command("/bin/sleep", "1000")
	sleeper.Env = append(os.Environ(), "GLASSHOUSE_PROBE_MARK="+mark)
	ok(t, sleeper.Start())
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	pid := strconv.Itoa(sleeper.Process.Pid)
	home, err := os.UserHomeDir()
	ok(t, err)
	kept, err := os.CreateTemp(home, ".glasshouse-probe-secret-") // not another run's
	ok(t, err)
	secret := kept.Name()
	defer os.Remove(secret)
	_, err = kept.WriteString(mark)
	ok(t, errors.Join(err, kept.Chmod(0o644), kept.Close()))
	temporary := filepath.Join(outside, "temporary")
	ok(t, os.WriteFile(temporary, []byte(mark), 0o644))
	held, err := os.Open(temporary)
	ok(t, err)
	defer held.Close()
	abstract := listen(t, "unix", "@glasshouse-probe-"+strconv.Itoa(os.Getpid()))
	named := listen(t, "unix", filepath.Join(outside, "s"))
	tcp := listen(t, "tcp", "127.0.0.1:0")
	port := strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port)

	m := p.manager(t)
	c, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := m.Check(c); err != nil {
		t.Skip("SKIPPED: no sandboxes on this host: ", err)
	}
	_, err = m.Create(c, vm.Spec{ID: "other"}, nil)
	ok(t, err)
	otherFile := filepath.Join(p.root, "other", "workspace", "theirs")
	ok(t, os.WriteFile(otherFile, []byte(mark), 0o644))
	mc, err := m.Create(c, vm.Spec{ID: "probe"}, nil)
	ok(t, err)
	ok(t, mc.Start(c, nil))
	defer func() { // at once: nobody asks guestd to leave here
		now, cancel := context.WithCancel(c)
		cancel()
		ok(t, mc.Stop(now))
	}()
	ok(t, os.WriteFile(filepath.Join(p.root, "probe", "workspace", "probe.py"), body, 0o644))
	conn, err := mc.Dial(c)
	ok(t, err)
	g, err := client.Open(c, conn, nil, client.Options{})
	ok(t, err)
	defer g.Close()

	// Something of guestd's own to find: its journal, and the socket.
	inside(t, g, "/bin/true")
	journal := filepath.Join(p.root, "probe", "var")
	sock := filepath.Join(p.root, "probe", "chan", "chan.sock")
	abs := strings.Replace(abstract.Addr().String(), "\x00", "@", 1)

	probes := []probe{
		{name: "host pid", args: []string{"host_pid", pid}, nested: true},
		{name: "environment of a host process", args: []string{"environment_of", pid, mark}, nested: true},
		{name: "environment of pid 1", args: []string{"environment_of", "1", mark}, control: []string{"environment_of", pid, mark}, nested: true},
		{name: "environment of any process", args: []string{"any_environment", mark}, nested: true},
		{name: "home of the host's user", args: []string{"file", secret, mark}, nested: true},
		{name: "host file", args: []string{"file", temporary, mark}, nested: true},
		{name: "host file through /proc", args: []string{"through_roots", temporary, mark}, nested: true},
		{name: "file of another machine", args: []string{"through_roots", otherFile, mark}, nested: true},
		{name: "open file of the host", args: []string{"descriptor", "temporary"}, nested: true},
		{name: "abstract socket", args: []string{"unix_socket", abs}, nested: true},
		{name: "named socket", args: []string{"unix_socket", named.Addr().String()}, nested: true},
		{name: "host port", args: []string{"port", port}, nested: true},
		{name: "network interfaces", args: []string{"interfaces"}, nested: true, noControl: func() string {
			if ifs, err := net.Interfaces(); err == nil && len(ifs) < 2 {
				return "this host has no interface but lo"
			}
			return ""
		}},
		{name: "mount", args: []string{"mount"}, rootControl: true},
		{name: "making /usr writable", args: []string{"remount", "/usr"}, control: []string{"mount"}, nested: true, rootControl: true},
		{name: "device node", args: []string{"mknod"}, nested: true, rootControl: true},
		{name: "setuid", args: []string{"setuid"}, rootControl: true},
		{name: "setuid file of root", args: []string{"own_for_root"}, rootControl: true},
		{name: "kernel parameter", args: []string{"write_access", "/proc/sys/kernel/core_pattern"}, nested: true, rootControl: true},
		{name: "sysrq", args: []string{"write_access", "/proc/sysrq-trigger"}, nested: true, rootControl: true, noControl: missing("/proc/sysrq-trigger")},
		{name: "kernel log", args: []string{"dmesg"}, nested: true, rootControl: true},
		{name: "devices", args: []string{"devices"}, nested: true},
		{name: "/sys", args: []string{"folder", "/sys"}, nested: true},
		{name: "tracing guestd", args: []string{"ptrace", "guestd"}, control: []string{"ptrace", "sleep"}, nested: true},
		{name: "killing guestd", args: []string{"kill", "guestd"}, control: []string{"kill", "glasshouse-victim"}, nested: true},
		{name: "guestd's processes", args: []string{"any_cmdline", "init\x00--sandbox"}, control: []string{"any_cmdline", "init\x00--sandbox"}, nested: true},
		{name: "guestd's journal", args: []string{"folder", "/var/lib/glasshouse"}, control: []string{"folder", journal}, nested: true},
		{name: "guestd's socket", args: []string{"unix_socket", "/run/glasshouse/chan.sock"}, control: []string{"unix_socket", sock}, nested: true},
		{name: "typing into a terminal", args: []string{"tiocsti", "0x5412"}, nested: true, rootControl: true},
		{name: "AF_PACKET", args: []string{"socket_of", "17", "3", "768"}, nested: true, rootControl: true},
		{name: "AF_VSOCK", args: []string{"socket_of", "40", "1", "0"}, nested: true, noControl: family(40)},
		{name: "AF_ALG", args: []string{"socket_of", "38", "5", "0"}, nested: true, noControl: family(38)},
		{name: "netfilter", args: []string{"socket_of", "16", "3", "12"}, nested: true, noControl: netlink(12)},
		{name: "key ring", args: []string{"add_key"}, nested: true},
		{name: "io_uring", args: []string{"exists", "io_uring_setup"}, nested: true},
		{name: "perf", args: []string{"exists", "perf_event_open"}, nested: true, rootControl: true},
		{name: "bpf", args: []string{"exists", "bpf"}, nested: true, rootControl: true},
		{name: "userfaultfd", args: []string{"exists", "userfaultfd"}, nested: true, rootControl: true},
		{name: "file handles", args: []string{"exists", "open_by_handle_at"}, nested: true, rootControl: true},
	}
	victim := filepath.Join(outside, "glasshouse-victim")
	for _, pr := range probes {
		t.Run(strings.ReplaceAll(pr.name, " ", "-"), func(t *testing.T) {
			if pr.name == "killing guestd" {
				v := exec.Command("/bin/sleep", "1000")
				v.Args[0] = victim
				ok(t, v.Start())
				defer func() { _ = v.Process.Kill(); _ = v.Wait() }()
			}
			why := ""
			if pr.rootControl && os.Geteuid() != 0 {
				why = "only root can do it outside"
			} else if pr.noControl != nil {
				why = pr.noControl()
			}
			if why != "" {
				t.Logf("no control of this probe: %s", why)
			} else if out := outsideRun(t, script, or(pr.control, pr.args)); !strings.HasPrefix(out, "REACHED") {
				t.Errorf("the control does not succeed outside, so the probe proves nothing: %s", out)
			}
			argv := append([]string{"python3", "/workspace/probe.py"}, pr.args...)
			if out := inside(t, g, argv...); !strings.HasPrefix(out, "shut:") {
				t.Errorf("from inside: %s", out)
			}
			if pr.nested {
				nest := []string{"unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--net", "--ipc"}
				if out := inside(t, g, append(nest, argv...)...); !strings.HasPrefix(out, "shut:") {
					t.Errorf("from nested namespaces: %s", out)
				}
			}
		})
	}
	// After all that the machine works, and guestd was not replaced.
	if out := inside(t, g, "/bin/echo", "on"); out != "on\n" {
		t.Fatalf("after the probes: %q", out)
	}
}

func outsideRun(t *testing.T, script string, args []string) string {
	t.Helper()
	argv := append([]string{"python3", script}, args...)
	if os.Geteuid() == 0 {
		argv = append([]string{"unshare", "--mount"}, argv...)
	}
	clean := []string{}
	for _, a := range argv { // an argument cannot hold a NUL: the script is given it as text
		clean = append(clean, strings.ReplaceAll(a, "\x00", `\0`))
	}
	cmd := exec.Command(clean[0], clean[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Sprintf("%v: %s", err, out.String())
	}
	return out.String()
}

// inside runs one command as an agent's.
func inside(t *testing.T, g guest.Guest, argv ...string) string {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a hang guard of each
	defer cancel()
	clean := []string{}
	for _, a := range argv {
		clean = append(clean, strings.ReplaceAll(a, "\x00", `\0`))
	}
	pr, err := g.Execs().Start(c, guest.ExecSpec{ID: fmt.Sprintf("p-%d", time.Now().UnixNano()), Session: "probe", Argv: clean})
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	var out bytes.Buffer
	for {
		o, err := pr.Next()
		if err != nil {
			if x := pr.Exit(); x.StartError != "" || x.StartedAt.IsZero() {
				t.Fatalf("%q: %v %+v", argv, err, x)
			}
			return out.String()
		}
		out.Write(o.Data)
	}
}

func listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	ok(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return l
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func or(a, b []string) []string {
	if a != nil {
		return a
	}
	return b
}

func missing(path string) func() string {
	return func() string {
		if _, err := os.Stat(path); err != nil {
			return "this host has no " + path
		}
		return ""
	}
}
