package proc

import (
	"syscall"
	"unsafe"
)

// boundMemory sets a process's limit on private memory; children that it starts from
// then on have it too. Mapped files do not count.
func boundMemory(pid int, n int64) {
	limit := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_DATA, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
}
