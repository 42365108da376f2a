package local

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	x32Bit    = 0x40000000
)

// deniedHere are calls that only this architecture has.
var deniedHere = []struct {
	nr    uint32
	errno uint32
}{
	{unix.SYS_IOPL, eperm}, {unix.SYS_IOPERM, eperm}, {unix.SYS_MODIFY_LDT, eperm},
	{unix.SYS_USELIB, enosys}, {unix.SYS__SYSCTL, enosys}, {unix.SYS_CREATE_MODULE, enosys},
}
