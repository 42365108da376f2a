package git_test

import (
	"fmt"
	"os"
	"syscall"
)

// maxRSS is the most memory any finished child took, in bytes.
func maxRSS() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) != nil {
		return 0
	}
	return u.Maxrss << 10
}

// inodeOf tells a replaced or changed file apart from one that was left alone.
func inodeOf(fi os.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("inode %d, changed %d", st.Ino, st.Ctim.Nano())
}
