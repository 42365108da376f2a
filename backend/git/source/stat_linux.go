package source

import (
	"os"
	"syscall"
	"time"
)

const nonblock = syscall.O_NONBLOCK

func changeTime(fi os.FileInfo) (time.Time, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(int64(st.Ctim.Sec), int64(st.Ctim.Nsec)), true //nolint:unconvert // 32 bits on some architectures
}
