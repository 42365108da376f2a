package image

import (
	"io/fs"
	"os"
	"syscall"
)

// clone shares the bytes of in with out where the file system can (btrfs, XFS).
func clone(out, in *os.File) bool {
	const ficlone = 0x40049409
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, out.Fd(), ficlone, in.Fd())
	return errno == 0
}

type fileID struct{ dev, ino uint64 }

// idOf tells files that have several names from one another.
func idOf(info fs.FileInfo) (fileID, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return fileID{}, false
	}
	return fileID{uint64(st.Dev), st.Ino}, true //nolint:unconvert // Dev is narrower on some architectures
}

// mine: the file belongs to the user of this process.
func mine(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// freeSpace returns the bytes that this user may still write below dir.
func freeSpace(dir string) (int64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}
