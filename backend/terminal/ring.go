package terminal

import "slices"

// ring keeps the newest bytes of a stream, at most size of them, under the
// offsets they have in the stream.
type ring struct {
	size int
	buf  []byte
	end  int64 // offset after the last byte
}

// add puts bytes at an offset. Those in front of the end were there already; where
// it leaps, what was kept is no longer joined to what comes and is dropped.
func (r *ring) add(at int64, p []byte) {
	if skip := r.end - at; skip > 0 {
		p = p[min(skip, int64(len(p))):]
		at = r.end
	}
	if len(p) == 0 {
		return
	}
	if at > r.end {
		r.buf = r.buf[:0]
	}
	r.end = at + int64(len(p))
	if len(p) >= r.size {
		r.buf = append(r.buf[:0], p[len(p)-r.size:]...)
		return
	}
	// Copied down now and then, not at each piece.
	if len(r.buf)+len(p) > 2*r.size {
		r.buf = slices.Delete(r.buf, 0, len(r.buf)+len(p)-r.size)
	}
	r.buf = append(r.buf, p...)
}

// start is the offset of the oldest byte that is kept.
func (r *ring) start() int64 { return r.end - int64(min(len(r.buf), r.size)) }

// read returns a copy of at most n bytes from an offset on, and where they begin:
// past from when those in between are no longer kept.
func (r *ring) read(from int64, n int) (at int64, p []byte) {
	at = max(from, r.start())
	if at >= r.end {
		return max(from, r.end), nil
	}
	p = r.buf[len(r.buf)-int(r.end-at):]
	return at, slices.Clone(p[:min(len(p), n)])
}
