//go:build darwin

package lima

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// commandLine of a process, words separated by spaces.
func commandLine(pid int) (string, error) {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return "", err
	}
	if len(b) < 4 {
		return "", errors.New("the process has no command line")
	}
	return string(bytes.ReplaceAll(b[4:], []byte{0}, []byte{' '})), nil
}

// bootID changes with every start of the host.
func bootID() string {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return fmt.Sprint(tv.Sec)
}

// allPids lists the processes of the host.
func allPids() []int {
	ps, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	var pids []int
	for _, p := range ps {
		pids = append(pids, int(p.Proc.P_pid))
	}
	return pids
}
