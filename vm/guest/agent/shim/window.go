//go:build linux

package shim

import (
	"os"
	"time"

	"glasshouse/vm/guest/agent/journal"
)

// newWindow is a stream of which the newest bytes are kept, for as long as it goes on.
func newWindow(dir string, size int64) *stream {
	return &stream{done: make(chan struct{}), win: &window{dir: dir, seg: journal.SegmentSize(size), k: -1, began: time.Now()}}
}

// window writes the segments of a terminal's output.
type window struct {
	dir   string
	seg   int64
	k     int64 // of file
	file  *os.File
	total int64

	began time.Time // of the time that pace counts
	sent  int64
}

// add never fails: what a full disk does not take reads as NUL bytes, which
// terminals ignore, and what follows is kept again once there is room.
func (w *window) add(p []byte) {
	for len(p) > 0 {
		if k := w.total / w.seg; w.file == nil || k != w.k {
			w.close()
			w.k = k
			w.file, _ = os.OpenFile(journal.SegmentFile(w.dir, 0, k), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			journal.TrimSegments(w.dir, 0, k)
		}
		at := w.total - w.k*w.seg
		n := min(int64(len(p)), w.seg-at)
		if w.file != nil {
			_, _ = w.file.WriteAt(p[:n], at)
		}
		w.total, p = w.total+n, p[n:]
	}
}

func (w *window) close() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}

// Nobody reads faster than this: a command that floods its terminal waits, as it
// would for one on a desk, instead of taking the machine for itself.
const terminalRate = 32 << 20 // bytes a second

// pace is called after each read of n bytes.
func (w *window) pace(n int) {
	w.sent += int64(n)
	due := time.Duration(float64(w.sent) / terminalRate * float64(time.Second))
	ahead := due - time.Since(w.began)
	if ahead < 0 { // it was quiet: what it could have said then is not saved up
		w.began, w.sent = time.Now(), 0
		return
	}
	if ahead > 5*time.Millisecond {
		time.Sleep(ahead)
	}
}
