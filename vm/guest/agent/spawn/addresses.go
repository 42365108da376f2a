//go:build linux

package spawn

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	addrNoRandomize = 0x0040000
	askPersonality  = 0xffffffff
)

// FixedAddresses runs start, which starts a process, so that this process and all
// its descendants have their code at the same addresses each time. An emulator
// translates code by address: at addresses that are new it translates a program
// and its libraries anew at every start, which triples the time of a short
// command. Programs that gain rights (sudo) have random addresses again.
func FixedAddresses(start func() error) error {
	runtime.LockOSThread() // it is the thread that has the setting, and hands it on
	defer runtime.UnlockOSThread()
	old, err := personality(askPersonality)
	if err == nil {
		_, err = personality(old | addrNoRandomize)
	}
	if err != nil {
		return start() // slower, and nothing else
	}
	startErr := start()
	if _, err := personality(old); err != nil {
		runtime.LockOSThread() // nobody else gets this thread; it ends with its goroutine
		return fmt.Errorf("a thread's personality cannot be put back: %w", err)
	}
	return startErr
}

func personality(p uintptr) (uintptr, error) {
	old, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, p, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return old, nil
}
