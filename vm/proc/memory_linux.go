package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// boundMemory sets a process's limit on private memory; children that it starts from
// then on have it too, and those it started already are looked for. Mapped files do
// not count.
func boundMemory(pid int, n int64) {
	bound(pid, n)
	// A child that was on its way while the bound was set appears a moment later.
	for wait := time.Millisecond; wait <= 4*time.Millisecond; wait *= 2 {
		for _, child := range descendants(pid) {
			bound(child, n)
		}
		time.Sleep(wait)
	}
	for _, child := range descendants(pid) {
		bound(child, n)
	}
}

func bound(pid int, n int64) {
	limit := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_DATA, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
}

// descendants lists what a process and its children started, parents first.
func descendants(pid int) []int {
	var all []int
	for todo := []int{pid}; len(todo) > 0 && len(all) < 1000; todo = todo[1:] {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", todo[0]))
		for _, f := range tasks {
			b, err := os.ReadFile(f)
			if err != nil {
				continue // it ended
			}
			for _, w := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(w); err == nil {
					all = append(all, child)
					todo = append(todo, child)
				}
			}
		}
	}
	return all
}
