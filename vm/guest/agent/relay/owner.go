//go:build linux

package relay

import (
	"bufio"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the search for who made a connection. They count what is looked at and not
// the time it takes: a machine that is held up for a moment has the same answer.
const (
	maxPids  = 8192
	maxFDs   = 4096
	maxLinks = 50_000
)

// owner finds the process at the other end of a loopback connection; 0 when it
// cannot be found. It is a hint: a socket may be shared or passed on.
func owner(c *net.TCPConn) int {
	peer, err1 := netip.ParseAddrPort(c.RemoteAddr().String())
	here, err2 := netip.ParseAddrPort(c.LocalAddr().String())
	if err1 != nil || err2 != nil {
		return 0
	}
	table := "/proc/net/tcp"
	if peer.Addr().Is6() && !peer.Addr().Is4In6() {
		table = "/proc/net/tcp6"
	}
	f, err := os.Open(table)
	if err != nil {
		return 0
	}
	defer f.Close()
	inode := findInode(bufio.NewScanner(f), peer, here)
	if inode == "" {
		return 0
	}
	return findHolder("socket:["+inode+"]", maxLinks)
}

// findInode reads a table of /proc/net for the socket whose own address is
// local and whose peer is remote.
func findInode(sc *bufio.Scanner, local, remote netip.AddrPort) string {
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 10 {
			continue
		}
		a, ok := parseAddr(f[1])
		if !ok || a != local {
			continue
		}
		if b, ok := parseAddr(f[2]); ok && b == remote && f[9] != "0" {
			return f[9]
		}
	}
	return ""
}

// parseAddr reads an address of /proc/net/tcp: 32-bit words in host order.
func parseAddr(s string) (netip.AddrPort, bool) {
	h, p, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	b, err := hex.DecodeString(h)
	port, err2 := strconv.ParseUint(p, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(port)), ok
}

// findHolder looks for a process that has the socket open, the newest first:
// who just connected was often just started. It looks at no more than most files.
func findHolder(link string, most int) int {
	d, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	names, _ := d.Readdirnames(maxPids)
	d.Close()
	var pids []int
	self := os.Getpid()
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pid != self {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		d, err := os.Open(dir)
		if err != nil {
			continue
		}
		fds, _ := d.Readdirnames(maxFDs)
		d.Close()
		for _, fd := range fds {
			if most--; most < 0 {
				return 0
			}
			if to, err := os.Readlink(dir + "/" + fd); err == nil && to == link {
				return pid
			}
		}
	}
	return 0
}
