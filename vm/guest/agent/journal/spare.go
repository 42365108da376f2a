//go:build linux

package journal

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A command that fills the disk must not keep its own end from being written down, nor
// the next command, which may be the one that makes room, from being run. So the journal
// holds a little room while there is some: a file that is given up when it is needed,
// and made again when there is space.
const (
	spareName  = ".spare"
	spareBytes = 2 << 20
)

func keepSpare(root string) {
	name := filepath.Join(root, spareName)
	if _, err := os.Stat(name); err == nil {
		return
	}
	var st unix.Statfs_t
	if unix.Statfs(root, &st) != nil || int64(st.Bavail)*st.Bsize < 4*spareBytes {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	// Without it all goes on as before; a file system that cannot promise blocks has none.
	if unix.Fallocate(int(f.Fd()), 0, 0, spareBytes) != nil {
		os.Remove(name)
	}
}

// withSpare does what a full disk refused again with the room that was held.
func withSpare(root string, try func() error) error {
	err := try()
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || os.Remove(filepath.Join(root, spareName)) != nil {
		return err
	}
	return try()
}
