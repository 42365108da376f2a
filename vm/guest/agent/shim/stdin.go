//go:build linux

package shim

import (
	"os"
	"sync"
	"sync/atomic"
)

// stdin hands bytes to the command without ever holding up the shim. The worker
// bounds what is under way by looking at got and put.
type stdin struct {
	got, put atomic.Int64

	mu     sync.Mutex
	cond   *sync.Cond
	queue  [][]byte
	closed bool // no more will come
	dead   bool // nobody reads any more
}

func newStdin() *stdin {
	s := &stdin{}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *stdin) add(p []byte) {
	s.got.Add(int64(len(p)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.closed {
		s.put.Add(int64(len(p)))
		return
	}
	s.queue = append(s.queue, p)
	s.cond.Signal()
}

func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cond.Signal()
}

// kill drops what is queued; a write under way ends when w is closed by the caller.
func (s *stdin) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	for _, p := range s.queue {
		s.put.Add(int64(len(p)))
	}
	s.queue = nil
	s.cond.Signal()
}

// pump writes to w until the end. For a terminal the end is its end-of-file
// character, for a pipe the closing.
func (s *stdin) pump(w *os.File, tty bool, notify func()) {
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed && !s.dead {
			s.cond.Wait()
		}
		if s.dead || len(s.queue) == 0 {
			dead := s.dead
			s.mu.Unlock()
			if tty && !dead {
				_, _ = w.Write([]byte{4}) // a terminal that hung up has ended already
			}
			if !tty {
				w.Close()
			}
			return
		}
		p := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		_, err := w.Write(p)
		s.put.Add(int64(len(p)))
		notify()
		if err != nil {
			s.kill()
			notify()
		}
	}
}
