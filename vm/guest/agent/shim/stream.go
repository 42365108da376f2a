//go:build linux

package shim

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
)

// stream spools one output stream: up to limit bytes go to a file, what
// follows runs through a ring of the last bytes. The command never waits for
// anyone but this. The file is made with the first byte: most commands leave
// one stream empty, and a file costs more than such a command's start.
type stream struct {
	limit int64
	path  string
	file  *os.File // nil before the first byte
	win   *window  // of a terminal: the newest bytes are kept instead of the first
	kept  atomic.Int64
	last  atomic.Int64 // when output came last, Unix nanoseconds
	done  chan struct{}
	pipe  syscall.RawConn // nil where there is none: of a terminal

	mu     sync.Mutex // held from a read of the pipe until the bytes are counted
	total  int64
	ring   []byte
	next   int
	sealed bool
}

func newStream(path string, limit int64) *stream {
	return &stream{limit: limit, path: path, done: make(chan struct{})}
}

// of says from which pipe the stream comes, before pump is called with it. seal then
// finds what is left in the pipe.
func (s *stream) of(r *os.File) error {
	pipe, err := r.SyscallConn()
	if err == nil {
		s.pipe = pipe
	}
	return err
}

// pump reads r to its end. It owns r.
func (s *stream) pump(r *os.File, notify func()) {
	defer close(s.done)
	defer r.Close()
	buf := make([]byte, 64<<10)
	read := s.fromTerminal
	if s.pipe != nil {
		read = s.fromPipe
	}
	for {
		n, grew, err := read(r, buf)
		if n > 0 {
			s.last.Store(time.Now().UnixNano())
			if grew {
				notify()
			}
			if s.win != nil {
				s.win.pace(n)
			}
		}
		if err != nil || n <= 0 {
			return // the end, or EIO of a terminal whose last user left
		}
	}
}

func (s *stream) fromTerminal(r *os.File, buf []byte) (n int, grew bool, err error) {
	n, err = r.Read(buf)
	if n > 0 {
		grew = s.add(buf[:n])
	}
	return n, grew, err
}

func (s *stream) fromPipe(_ *os.File, buf []byte) (n int, grew bool, err error) {
	werr := s.pipe.Read(func(fd uintptr) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n, err = readNow(fd, buf); errors.Is(err, unix.EAGAIN) {
			return false
		}
		if n > 0 {
			grew = s.put(buf[:n])
		}
		return true
	})
	if werr != nil {
		return 0, false, werr
	}
	return n, grew, err
}

func readNow(fd uintptr, buf []byte) (int, error) {
	for {
		if n, err := unix.Read(int(fd), buf); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// rest takes what lies in the pipe, which is what the command wrote last: this process may
// have had no time to read it, however long ago that was. s.mu is held.
func (s *stream) rest() {
	if s.pipe == nil {
		return
	}
	// One that was read to its end is closed, and has no rest.
	_ = s.pipe.Control(func(fd uintptr) {
		left, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) // who else holds it may write on and on
		if err != nil {
			return
		}
		buf := make([]byte, min(left, 64<<10))
		for left > 0 {
			n, err := readNow(fd, buf)
			if err != nil || n <= 0 {
				return
			}
			s.put(buf[:n])
			left -= n
		}
	})
}

// add returns whether the spool grew.
func (s *stream) add(p []byte) (grew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(p)
}

// put is add with s.mu held.
func (s *stream) put(p []byte) (grew bool) {
	if s.sealed || len(p) == 0 {
		return false
	}
	s.total += int64(len(p))
	if s.win != nil {
		s.win.add(p)
		s.kept.Store(s.total)
		return true
	}
	if room := s.limit - s.kept.Load(); room > 0 {
		n, err := s.keep(p[:min(int64(len(p)), room)])
		s.kept.Add(int64(n))
		if err != nil {
			s.limit = s.kept.Load() // the disk is full: from here on only the tail is kept
		}
		p, grew = p[n:], n > 0
	}
	if len(p) >= guest.TailBytes {
		s.ring = append(s.ring[:0], p[len(p)-guest.TailBytes:]...)
		s.next = 0
		return grew
	}
	for len(p) > 0 {
		if len(s.ring) < guest.TailBytes {
			n := min(len(p), guest.TailBytes-len(s.ring))
			s.ring, p = append(s.ring, p[:n]...), p[n:]
			continue
		}
		n := copy(s.ring[s.next:], p)
		s.next, p = (s.next+n)%guest.TailBytes, p[n:]
	}
	return grew
}

// keep writes to the file. s.mu is held.
func (s *stream) keep(p []byte) (n int, err error) {
	if s.file == nil {
		if s.file, err = os.OpenFile(s.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return 0, err
		}
	}
	return s.file.Write(p)
}

// seal says how the stream ended, with all that was written to its pipe so far; what
// comes later is read and forgotten.
func (s *stream) seal() guest.StreamEnd {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sealed {
		s.rest()
		s.sealed = true
		if s.file != nil {
			s.file.Close()
		}
		if s.win != nil {
			s.win.close()
		}
	}
	e := guest.StreamEnd{Total: s.total}
	if len(s.ring) > 0 {
		e.Tail = append(append([]byte(nil), s.ring[s.next:]...), s.ring[:s.next]...)
	}
	e.Dropped = s.total - s.kept.Load() - int64(len(e.Tail))
	s.ring = nil
	return e
}
