package local

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0
)

// deniedHere are calls that only this architecture has.
var deniedHere []struct {
	nr    uint32
	errno uint32
}
