package proto

import (
	"encoding/binary"
	"io"
)

// joined puts the header and the body of a yamux frame into one write. yamux
// writes them apart, and on a link without delay each write is a packet of its
// own: a small call would cost twice the interrupts and wake-ups on its way.
// Bytes and their order stay the same.
type joined struct {
	io.ReadWriteCloser
	buf  []byte
	held int // bytes of a header in buf that wait for their body
}

// The header of a yamux frame: version, type (0 = data), flags, stream, length.
const (
	yamuxHeader = 12
	yamuxData   = 0
	// Larger bodies are written as they are: a second packet is nothing to them.
	joinMax = 32 << 10
)

// Write is called by yamux's one sending goroutine.
func (j *joined) Write(p []byte) (int, error) {
	if j.held == 0 {
		if len(p) != yamuxHeader || p[1] != yamuxData || binary.BigEndian.Uint32(p[8:]) == 0 {
			return j.ReadWriteCloser.Write(p)
		}
		// yamux uses its header again for the next frame, so it is copied.
		j.buf = append(j.buf[:0], p...)
		j.held = len(p)
		return len(p), nil
	}
	head := j.held
	j.held = 0
	if len(p) > joinMax {
		if _, err := j.ReadWriteCloser.Write(j.buf[:head]); err != nil {
			return 0, err
		}
		return j.ReadWriteCloser.Write(p)
	}
	j.buf = append(j.buf[:head], p...)
	n, err := j.ReadWriteCloser.Write(j.buf)
	return max(n-head, 0), err
}
