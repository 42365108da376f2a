package odb

import (
	"bufio"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Header is the head of one pack entry.
type Header struct {
	Type Type
	Size int64 // inflated; of a delta, the delta's own size
	Base ID    // of a RefDelta
	Back int64 // of an OfsDelta: how far back the base starts
	Len  int   // bytes of the header itself
}

// ReadHeader reads the head of a pack entry.
func ReadHeader(r io.ByteReader) (Header, error) {
	var h Header
	next := func() (byte, error) {
		c, err := r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		h.Len++
		return c, nil
	}
	c, err := next()
	if err != nil {
		return h, err
	}
	h.Type, h.Size = Type(c>>4&7), int64(c&15)
	for shift := uint(4); c&0x80 != 0; shift += 7 {
		if c, err = next(); err != nil {
			return h, err
		}
		if shift > 50 {
			return h, fmt.Errorf("%w: an entry's size does not fit", ErrCorrupt)
		}
		h.Size |= int64(c&0x7f) << shift
	}
	switch h.Type {
	case Commit, Tree, Blob, Tag:
	case OfsDelta:
		if c, err = next(); err != nil {
			return h, err
		}
		h.Back = int64(c & 0x7f)
		for c&0x80 != 0 {
			if h.Back > 1<<50 {
				return h, fmt.Errorf("%w: a delta's base is out of range", ErrCorrupt)
			}
			if c, err = next(); err != nil {
				return h, err
			}
			h.Back = (h.Back+1)<<7 | int64(c&0x7f)
		}
		if h.Back <= 0 {
			return h, fmt.Errorf("%w: a delta names itself as its base", ErrCorrupt)
		}
	case RefDelta:
		for i := range h.Base {
			if h.Base[i], err = next(); err != nil {
				return h, err
			}
		}
	default:
		return h, fmt.Errorf("%w: unknown entry type %d", ErrCorrupt, h.Type)
	}
	return h, nil
}

// PutHeader appends the head of an entry.
func PutHeader(b []byte, t Type, size int64) []byte {
	c := byte(t)<<4 | byte(size&15)
	size >>= 4
	for size > 0 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
		size >>= 7
	}
	return append(b, c)
}

// Delta applies a delta to its base; results past max bytes are refused before
// memory is taken.
func Delta(base, delta []byte, max int64) ([]byte, error) {
	bad := func(why string) ([]byte, error) { return nil, fmt.Errorf("%w: delta: %s", ErrCorrupt, why) }
	from, n := uvarint(delta)
	if n <= 0 || from != int64(len(base)) {
		return bad("its base has another size")
	}
	delta = delta[n:]
	to, n := uvarint(delta)
	if n <= 0 {
		return bad("no result size")
	}
	if to > max {
		return nil, fmt.Errorf("%w: a delta makes %d bytes, at most %d are allowed", ErrTooLarge, to, max)
	}
	delta = delta[n:]
	// What the instructions really produce is added up before the result is
	// allocated, so that a few bytes cannot claim a large buffer.
	if err := deltaLength(delta, to); err != nil {
		return nil, err
	}
	out := make([]byte, 0, to)
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		if op&0x80 == 0 {
			k := int(op)
			out = append(out, delta[:k]...)
			delta = delta[k:]
			continue
		}
		off, size, n := copyArgs(op, delta)
		delta = delta[n:]
		if off+size > int64(len(base)) {
			return bad("it copies from past the end of its base")
		}
		out = append(out, base[off:off+size]...)
	}
	return out, nil
}

func deltaLength(delta []byte, want int64) error {
	var total int64
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		switch {
		case op == 0:
			return fmt.Errorf("%w: delta: reserved instruction", ErrCorrupt)
		case op&0x80 == 0:
			if int(op) > len(delta) {
				return fmt.Errorf("%w: delta: cut short", ErrCorrupt)
			}
			total += int64(op)
			delta = delta[op:]
		default:
			_, size, n := copyArgs(op, delta)
			if n < 0 {
				return fmt.Errorf("%w: delta: cut short", ErrCorrupt)
			}
			total += size
			delta = delta[n:]
		}
		if total > want {
			break
		}
	}
	if total != want {
		return fmt.Errorf("%w: delta: its result is not of the announced size", ErrCorrupt)
	}
	return nil
}

// copyArgs decodes a copy instruction; n is -1 when it is cut short.
func copyArgs(op byte, d []byte) (off, size int64, n int) {
	for i := range 4 {
		if op&(1<<i) != 0 {
			if n >= len(d) {
				return 0, 0, -1
			}
			off |= int64(d[n]) << (8 * i)
			n++
		}
	}
	for i := range 3 {
		if op&(0x10<<i) != 0 {
			if n >= len(d) {
				return 0, 0, -1
			}
			size |= int64(d[n]) << (8 * i)
			n++
		}
	}
	if size == 0 {
		size = 0x10000
	}
	return off, size, n
}

// DeltaSizes returns the sizes of base and result that a delta announces.
func DeltaSizes(delta []byte) (from, to int64, ok bool) {
	from, n := uvarint(delta)
	if n <= 0 {
		return 0, 0, false
	}
	to, m := uvarint(delta[n:])
	return from, to, m > 0
}

func uvarint(b []byte) (int64, int) {
	var v int64
	for i, c := range b {
		if i > 7 {
			return 0, -1
		}
		v |= int64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, -1
}

var inflaters sync.Pool

// inflate returns a zlib reader over r; put it back with inflaters.Put.
func inflate(r io.Reader) (io.ReadCloser, error) {
	if v := inflaters.Get(); v != nil {
		z := v.(io.ReadCloser)
		if err := z.(zlib.Resetter).Reset(r, nil); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return z, nil
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return z, nil
}

// ReadEntry reads the entry at an offset of an opened pack: its head and, when
// its size is at most max, its inflated bytes (of a delta, the delta).
func ReadEntry(f io.ReaderAt, off, end, max int64) (Header, []byte, error) {
	if off < 12 || off >= end {
		return Header{}, nil, fmt.Errorf("%w: an entry's offset is outside the pack", ErrCorrupt)
	}
	size := 4096
	br := bufio.NewReaderSize(io.NewSectionReader(f, off, end-off), size)
	h, err := ReadHeader(br)
	if err != nil {
		return h, nil, err
	}
	if h.Size > max {
		return h, nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, h.Size, max)
	}
	z, err := inflate(br)
	if err != nil {
		return h, nil, err
	}
	data, err := readExactly(z, h.Size)
	inflaters.Put(z)
	return h, data, err
}

func (p *pack) header(off int64) (Header, error) {
	if off < 12 || off >= p.size-20 {
		return Header{}, fmt.Errorf("%w: an entry's offset is outside the pack", ErrCorrupt)
	}
	var buf [48]byte
	n, _ := p.f.ReadAt(buf[:], off)
	return ReadHeader(&byteSlice{buf[:n]})
}

type byteSlice struct{ b []byte }

func (s *byteSlice) ReadByte() (byte, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c, nil
}

// base returns the offset of a delta's base, in the same pack.
func (p *pack) base(off int64, h Header) (int64, error) {
	if h.Type == OfsDelta {
		return off - h.Back, nil
	}
	b, ok, err := p.idx.find(h.Base)
	if err != nil || !ok {
		return 0, fmt.Errorf("%w: a delta's base %s is not in its pack", ErrCorrupt, h.Base)
	}
	return b, nil
}

func (p *pack) info(s *Store, off int64) (Type, int64, error) {
	h, err := p.header(off)
	if err != nil {
		return 0, 0, err
	}
	size := h.Size
	if h.Type == OfsDelta || h.Type == RefDelta {
		if size, err = p.deltaResult(off, h); err != nil {
			return 0, 0, err
		}
	}
	for range MaxChain {
		if h.Type != OfsDelta && h.Type != RefDelta {
			return h.Type, size, nil
		}
		if off, err = p.base(off, h); err != nil {
			return 0, 0, err
		}
		if h, err = p.header(off); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, fmt.Errorf("%w: a delta chain is too long", ErrCorrupt)
}

// deltaResult reads the first bytes of a delta for the size it makes.
func (p *pack) deltaResult(off int64, h Header) (int64, error) {
	z, err := inflate(bufio.NewReaderSize(io.NewSectionReader(p.f, off+int64(h.Len), p.size-20-off), 512))
	if err != nil {
		return 0, err
	}
	defer inflaters.Put(z)
	buf := make([]byte, min(20, h.Size))
	if _, err := io.ReadFull(z, buf); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	_, to, ok := DeltaSizes(buf)
	if !ok {
		return 0, fmt.Errorf("%w: delta without sizes", ErrCorrupt)
	}
	return to, nil
}

func (p *pack) read(s *Store, off, max int64) (Type, []byte, error) {
	type link struct {
		off   int64
		delta []byte
	}
	var chain []link
	var t Type
	var data []byte
	var held int64
	for at := off; ; {
		if ct, cd, ok := s.cache.get(cacheKey{p, at}); ok {
			t, data = ct, cd
			break
		}
		h, raw, err := ReadEntry(p.f, at, p.size-20, MaxContent)
		if err != nil {
			return 0, nil, err
		}
		if h.Type != OfsDelta && h.Type != RefDelta {
			if len(chain) == 0 && h.Size > max {
				return 0, nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, h.Size, max)
			}
			t, data = h.Type, raw
			s.cache.put(cacheKey{p, at}, t, data)
			break
		}
		if len(chain) == 0 {
			if _, to, ok := DeltaSizes(raw); ok && to > max {
				return 0, nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, to, max)
			}
		}
		chain = append(chain, link{at, raw})
		if held += int64(len(raw)); len(chain) > MaxChain || held > MaxContent {
			return 0, nil, fmt.Errorf("%w: a delta chain is too long", ErrCorrupt)
		}
		if at, err = p.base(at, h); err != nil {
			return 0, nil, err
		}
	}
	if int64(len(data)) > max && len(chain) == 0 {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, len(data), max)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		out, err := Delta(data, chain[i].delta, MaxContent)
		if err != nil {
			return 0, nil, err
		}
		data = out
		s.cache.put(cacheKey{p, chain[i].off}, t, data)
	}
	return t, data, nil
}
