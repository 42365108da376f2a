//go:build linux

package boot

import (
	"os"
	"syscall"
	"time"

	"glasshouse/vm/guest/agent/spawn"
)

// killRest ends whatever is left below this process, for guests that are not a
// machine of their own.
func killRest() {
	sig := syscall.SIGTERM
	for n := 0; n < 200; n++ {
		if os.Getpid() == 1 {
			syscall.Kill(-1, sig)
		} else {
			for _, pid := range spawn.Descendants(os.Getpid()) {
				syscall.Kill(pid, sig)
			}
		}
		reap(-1)
		if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err == syscall.ECHILD {
			return
		}
		if n > 5 {
			sig = syscall.SIGKILL
		}
		time.Sleep(20 * time.Millisecond)
	}
}
