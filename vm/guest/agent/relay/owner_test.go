//go:build linux

package relay

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestFindInode(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0C38 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1
   1: 0100007F:0C38 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 22 1
   2: 0100007F:D431 0100007F:0C38 01 00000000:00000000 00:00000000 00000000  1000        0 33 1
   3: 0100007F:D432 0100007F:0C38 06 00000000:00000000 00:00000000 00000000     0        0 0 1
garbage
   4: zz:1 yy:2
`
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	find := func(a, b string) string { return findInode(bufio.NewScanner(strings.NewReader(table)), at(a), at(b)) }
	if got := find("127.0.0.1:54321", "127.0.0.1:3128"); got != "33" {
		t.Errorf("the client's socket is %q", got)
	}
	if got := find("127.0.0.1:54322", "127.0.0.1:3128"); got != "" {
		t.Errorf("a socket nobody holds is %q", got)
	}
	if got := find("127.0.0.1:1", "127.0.0.1:3128"); got != "" {
		t.Errorf("no socket is %q", got)
	}
	if a, ok := parseAddr("00000000000000000000000001000000:0C38"); !ok || a != at("[::1]:3128") {
		t.Errorf("%v %v", a, ok)
	}
	for _, s := range []string{"", ":", "01:02", "0100007F", "0100007F:", "0100007F:FFFFF", "zz00007F:0C38"} {
		if a, ok := parseAddr(s); ok {
			t.Errorf("%q is %v", s, a)
		}
	}
}

func TestOwnerIsFound(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// Both ends are ours, and we are never the answer.
	if pid := owner(s.(*net.TCPConn)); pid != 0 {
		t.Errorf("owner %d", pid)
	}
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Skipf("needs /proc/net/tcp: %v", err)
	}
	defer f.Close()
	peer, here := netip.MustParseAddrPort(s.RemoteAddr().String()), netip.MustParseAddrPort(s.LocalAddr().String())
	if findInode(bufio.NewScanner(f), peer, here) == "" {
		t.Error("the socket is not in the kernel's table")
	}
	if pid := findHolder("socket:[none]", maxLinks); pid != 0 {
		t.Errorf("%d holds a socket that is none", pid)
	}
}

// Another process is found by a file that it has open, and not for more looks than allowed.
func TestHolderIsFound(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(r.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if pid := findHolder(link, maxLinks); pid != cmd.Process.Pid {
		t.Errorf("found %d, it is %d", pid, cmd.Process.Pid)
	}
	if pid := findHolder(link, 0); pid != 0 {
		t.Errorf("found %d without a look", pid)
	}
}
