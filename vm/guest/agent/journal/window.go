//go:build linux

package journal

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The output of a terminal goes on for as long as somebody works in it, so of it
// only the newest bytes are kept: in segments of a fixed size, of which the
// oldest is removed when a new one begins. Offsets count from the stream's
// beginning; a reader that has a segment open reads it to its end although it
// was removed.
//
//	ROOT/ID/stdout.K   the bytes from K×size on

// SegmentSize is the size of the segments of a window of that many bytes.
func SegmentSize(window int64) int64 { return max(window/2, 4096) }

// segmentsKept is how many segments there are at once: the window is whole also
// while the newest segment is empty.
const segmentsKept = 3

// SegmentFile is the file of the segment with number k of a stream.
func SegmentFile(dir string, stream int, k int64) string {
	return filepath.Join(dir, Streams[stream]+"."+strconv.FormatInt(k, 10))
}

// TrimSegments removes what is older than the window once segment k began.
func TrimSegments(dir string, stream int, k int64) {
	if k >= segmentsKept {
		_ = os.Remove(SegmentFile(dir, stream, k-segmentsKept)) // one that is left costs room alone
	}
}

// FirstSegment is the number of the oldest segment that is kept, from k on; io.EOF
// when there is none: a full disk took none of it.
func FirstSegment(dir string, stream int, k int64) (int64, error) {
	first, _, err := segments(dir, stream, k)
	if err == nil && first < 0 {
		err = io.EOF
	}
	return first, err
}

// segments returns the lowest number from k on and the highest one; -1 = none.
func segments(dir string, stream int, k int64) (first, last int64, err error) {
	first, last = -1, -1
	ents, err := os.ReadDir(dir)
	if err != nil {
		return first, last, err
	}
	for _, e := range ents {
		s, ok := strings.CutPrefix(e.Name(), Streams[stream]+".")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < k {
			continue
		}
		if first < 0 || n < first {
			first = n
		}
		last = max(last, n)
	}
	return first, last, nil
}

// Total is how many bytes a stream that is kept as a window has had.
func (j *Journal) Total(id string, window int64) int64 {
	_, last, err := segments(j.Dir(id), 0, 0)
	if err != nil || last < 0 {
		return 0
	}
	st, err := os.Stat(SegmentFile(j.Dir(id), 0, last))
	if err != nil {
		return last * SegmentSize(window)
	}
	return last*SegmentSize(window) + st.Size()
}
