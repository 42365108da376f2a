package eventlog

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate puts blocks under a part of a file and leaves its size as it is.
func allocate(f *os.File, from, n int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n); err != unix.EINTR {
			return err
		}
	}
}

// space is the size of the file system that dir is on, and what of it this user may still fill.
func space(dir string) (total, free int64, ok bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, false
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, true
}
