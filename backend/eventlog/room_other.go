//go:build !linux

package eventlog

import (
	"errors"
	"os"
	"syscall"
)

// allocate is not to be had here: the ballast alone is held.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// space is the size of the file system that dir is on, and what of it this user may still fill.
func space(dir string) (total, free int64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, false
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), true
}
