package local

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs the filter on one call. The machine that runs it here reads
// words in network order, so the call is laid out in it; the kernel's own
// order is checked by the probes from inside a machine.
func verdict(t *testing.T, arch uint32, nr uint32, args ...uint64) uint32 {
	t.Helper()
	m, err := bpf.NewVM(program())
	must(t, err)
	b := make([]byte, 64)
	binary.BigEndian.PutUint32(b[offNr:], nr)
	binary.BigEndian.PutUint32(b[offArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(b[offArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(b[offArgs+8*i+4:], uint32(a>>32))
	}
	v, err := m.Run(b)
	must(t, err)
	return uint32(v)
}

func TestFilter(t *testing.T) {
	const otherArch = unix.AUDIT_ARCH_I386
	deny := func(e uint32) uint32 { return retErrno | e }
	high := uint64(1) << 32
	for _, c := range []struct {
		name string
		arch uint32
		nr   uint32
		args []uint64
		want uint32
	}{
		{"read", auditArch, unix.SYS_READ, nil, retAllow},
		{"clone", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, retAllow},
		{"mount (for cells)", auditArch, unix.SYS_MOUNT, nil, retAllow},
		{"ptrace (debuggers)", auditArch, unix.SYS_PTRACE, nil, retAllow},
		{"a 32-bit call", otherArch, unix.SYS_READ, nil, deny(enosys)},
		{"keyctl", auditArch, unix.SYS_KEYCTL, nil, deny(eperm)},
		{"add_key", auditArch, unix.SYS_ADD_KEY, nil, deny(eperm)},
		{"io_uring_setup", auditArch, unix.SYS_IO_URING_SETUP, nil, deny(enosys)},
		{"bpf", auditArch, unix.SYS_BPF, nil, deny(eperm)},
		{"perf", auditArch, unix.SYS_PERF_EVENT_OPEN, nil, deny(eperm)},
		{"userfaultfd", auditArch, unix.SYS_USERFAULTFD, nil, deny(eperm)},
		{"open_by_handle_at", auditArch, unix.SYS_OPEN_BY_HANDLE_AT, nil, deny(eperm)},
		{"unix", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, retAllow},
		{"inet", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, retAllow},
		{"inet6", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, 0}, retAllow},
		{"route netlink", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, retAllow},
		{"device events", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, retAllow},
		{"netfilter", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, deny(eafnosupport)},
		{"vsock", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, deny(eafnosupport)},
		{"vsock, high half set", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK | high, unix.SOCK_STREAM, 0}, deny(eafnosupport)},
		{"packet", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, deny(eafnosupport)},
		{"alg", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, deny(eafnosupport)},
		{"bluetooth", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_BLUETOOTH, unix.SOCK_RAW, 0}, deny(eafnosupport)},
		{"a family of the future", auditArch, unix.SYS_SOCKET, []uint64{200, unix.SOCK_RAW, 0}, deny(eafnosupport)},
		{"vsock pair", auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, deny(eafnosupport)},
		{"unix pair", auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, retAllow},
		{"TIOCSTI", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, deny(eperm)},
		{"TIOCSTI, high half set", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | high}, deny(eperm)},
		{"TIOCLINUX", auditArch, unix.SYS_IOCTL, []uint64{0, tioclinux}, deny(eperm)},
		{"TIOCGWINSZ", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, retAllow},
		{"x32 read", auditArch, x32Bit | unix.SYS_READ, nil, map[bool]uint32{true: deny(enosys), false: retAllow}[x32Bit != 0]},
	} {
		if got := verdict(t, c.arch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// No call is allowed by falling out of the program, and none of the denied
// numbers slips through a jump that is one off.
func TestFilterDeniesAllItNames(t *testing.T) {
	named := map[uint32]bool{unix.SYS_SOCKET: true, unix.SYS_SOCKETPAIR: true}
	for _, d := range append(append(deniedHere[:0:0], deniedHere...), denied...) {
		named[d.nr] = true
		if got := verdict(t, auditArch, d.nr); got != retErrno|d.errno {
			t.Errorf("call %d: %#x, want errno %d", d.nr, got, d.errno)
		}
	}
	for nr := uint32(0); nr < 600; nr++ {
		if got := verdict(t, auditArch, nr, 77); !named[nr] && got != retAllow {
			t.Errorf("call %d, which is not named: %#x", nr, got)
		}
	}
}
