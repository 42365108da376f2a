package proc

import (
	"os"
	"strconv"
	"sync"
	"syscall"
)

// sealInherited keeps descriptors that whoever started us left open from reaching
// our children; the Go runtime marks only those it opens itself.
var sealInherited = sync.OnceFunc(func() {
	dir := "/dev/fd"
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		dir = "/proc/self/fd"
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
})
