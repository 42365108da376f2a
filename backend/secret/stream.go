package secret

import "io"

// Writer scrubs what is written through it, each value replaced by as many bytes, also
// where one lies across two writes. It holds the last bytes back until Close, which
// does not close w. It belongs to one goroutine.
func (s *Scrubber) Writer(w io.Writer) io.WriteCloser { return &stream{s: s, w: w} }

type stream struct {
	s    *Scrubber
	w    io.Writer
	held []byte
	err  error
}

func (t *stream) Write(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	m := t.s.now.Load()
	if m == nil && len(t.held) == 0 {
		return t.w.Write(p)
	}
	t.held = append(t.held, p...)
	keep := 0
	if m != nil {
		keep = m.longest - 1
	}
	// What begins before ready ends before the end of what is held: a part of a form is
	// never longer than the longest form.
	if ready := len(t.held) - keep; ready > 0 {
		t.flush(m, ready)
	}
	return len(p), t.err
}

func (t *stream) flush(m *matcher, ready int) {
	if m != nil {
		m.fixed(t.held, ready)
	}
	if _, err := t.w.Write(t.held[:ready]); err != nil {
		t.err = err
		return
	}
	t.held = append(t.held[:0], t.held[ready:]...)
}

func (t *stream) Close() error {
	if t.err == nil && len(t.held) > 0 {
		t.flush(t.s.now.Load(), len(t.held))
	}
	return t.err
}
