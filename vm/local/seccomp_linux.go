//go:build amd64 || arm64

package local

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter of system calls closes what a sandbox with an empty network and
// no rights could still reach of the host's kernel: address families that know
// no network namespace or only enlarge the attack surface, the kernel's key
// rings, io_uring, bpf and the like, and typing into a terminal. All other calls
// pass: user namespaces and mounts are needed by the inner cells and by Chromium.

// Offsets in struct seccomp_data; arguments are 64 bits, low half first on both
// architectures.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

const (
	retAllow = 0x7fff0000
	retErrno = 0x00050000
)

// families of sockets that may be made.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// netlinks are the netlink protocols that may be opened: interfaces (bringing up
// lo, getifaddrs) and device events (Chromium listens to them).
var netlinks = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_KOBJECT_UEVENT}

// denied calls end with EPERM, or with ENOSYS where programs then use another way.
var denied = []struct {
	nr    uint32
	errno uint32
}{
	{unix.SYS_KEYCTL, eperm}, {unix.SYS_ADD_KEY, eperm}, {unix.SYS_REQUEST_KEY, eperm},
	{unix.SYS_IO_URING_SETUP, enosys}, {unix.SYS_IO_URING_ENTER, enosys}, {unix.SYS_IO_URING_REGISTER, enosys},
	{unix.SYS_BPF, eperm}, {unix.SYS_PERF_EVENT_OPEN, eperm}, {unix.SYS_USERFAULTFD, eperm},
	{unix.SYS_KEXEC_LOAD, eperm}, {unix.SYS_KEXEC_FILE_LOAD, eperm},
	{unix.SYS_INIT_MODULE, eperm}, {unix.SYS_FINIT_MODULE, eperm}, {unix.SYS_DELETE_MODULE, eperm},
	{unix.SYS_OPEN_BY_HANDLE_AT, eperm}, {unix.SYS_ACCT, eperm}, {unix.SYS_QUOTACTL, eperm}, {unix.SYS_QUOTACTL_FD, eperm},
	{unix.SYS_REBOOT, eperm}, {unix.SYS_SWAPON, eperm}, {unix.SYS_SWAPOFF, eperm}, {unix.SYS_SYSLOG, eperm},
	{unix.SYS_SETTIMEOFDAY, eperm}, {unix.SYS_CLOCK_SETTIME, eperm}, {unix.SYS_NFSSERVCTL, enosys},
	{unix.SYS_LOOKUP_DCOOKIE, enosys}, {unix.SYS_FANOTIFY_INIT, eperm}, {unix.SYS_MIGRATE_PAGES, eperm},
	{unix.SYS_MOVE_PAGES, eperm}, {unix.SYS_VHANGUP, eperm},
}

const (
	eperm        = uint32(unix.EPERM)
	enosys       = uint32(unix.ENOSYS)
	eafnosupport = uint32(unix.EAFNOSUPPORT)
)

// program builds the filter.
func program() []bpf.Instruction {
	var p []bpf.Instruction
	load := func(off uint32) { p = append(p, bpf.LoadAbsolute{Off: off, Size: 4}) }
	ret := func(v uint32) { p = append(p, bpf.RetConstant{Val: v}) }
	// unlessEqual skips the next n instructions when the loaded word is not v.
	unlessEqual := func(v uint32, n uint8) { p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: n}) }

	// Another architecture has other numbers (32-bit calls on a 64-bit kernel).
	load(offArch)
	p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1})
	ret(retErrno | enosys)

	load(offNr)
	if x32Bit != 0 {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: 1})
		ret(retErrno | enosys)
	}
	for _, d := range append(append(deniedHere[:0:0], deniedHere...), denied...) {
		unlessEqual(d.nr, 1)
		ret(retErrno | d.errno)
	}

	// ioctl(fd, TIOCSTI | TIOCLINUX, …). The kernel looks at 32 bits of the request.
	ioctl := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArgs + 8, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tioclinux, SkipFalse: 1},
		bpf.RetConstant{Val: retErrno | eperm},
		bpf.RetConstant{Val: retAllow},
	}
	unlessEqual(unix.SYS_IOCTL, uint8(len(ioctl)))
	p = append(p, ioctl...)

	// socket(family, type, protocol) and socketpair. The kernel takes ints, so the
	// high halves do not count.
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		block := []bpf.Instruction{bpf.LoadAbsolute{Off: offArgs, Size: 4}}
		for _, f := range families {
			block = append(block, bpf.JumpIf{Cond: bpf.JumpEqual, Val: f, SkipFalse: 1}, bpf.RetConstant{Val: retAllow})
		}
		block = append(block,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 1},
			bpf.RetConstant{Val: retErrno | eafnosupport},
			bpf.LoadAbsolute{Off: offArgs + 16, Size: 4})
		for _, n := range netlinks {
			block = append(block, bpf.JumpIf{Cond: bpf.JumpEqual, Val: n, SkipFalse: 1}, bpf.RetConstant{Val: retAllow})
		}
		block = append(block, bpf.RetConstant{Val: retErrno | eafnosupport})
		unlessEqual(nr, uint8(len(block)))
		p = append(p, block...)
	}
	ret(retAllow)
	return p
}

// tioclinux pastes into a console; x/sys does not name it on every architecture.
const tioclinux = 0x541c

// filterBytes is the program as bwrap wants it: struct sock_filter after struct sock_filter.
func filterBytes() ([]byte, error) {
	raw, err := bpf.Assemble(program())
	if err != nil {
		return nil, fmt.Errorf("the filter of system calls is broken: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, i := range raw {
		out = binary.NativeEndian.AppendUint16(out, i.Op)
		out = append(out, i.Jt, i.Jf)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return out, nil
}
