package packcheck

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"

	"glasshouse/backend/git/odb"
)

// entry is one object of the pack. Memory is bounded by the number of entries.
type entry struct {
	off  int64 // of the head
	data int64 // of the compressed bytes
	size int64 // inflated, of a delta the delta's
	base int32 // entry number of an ofs-delta's base, else -1
	crc  uint32
	id   odb.ID // of a ref-delta before it is resolved: its base
	typ  odb.Type
	kind odb.Type // resolved type, 0 while unknown
}

type checker struct {
	lim     Limits
	f       *os.File
	known   *odb.Store
	entries []entry
	end     int64 // of the last entry
	total   int64 // bytes of all resolved objects
	sum     []byte
	rep     *Report

	index   map[odb.ID]int32    // resolved objects
	needs   map[odb.ID]odb.Type // named by an object here, must exist; 0 = any
	links   map[odb.ID]string   // blobs that are symbolic links, with the entry's name
	modules map[odb.ID]bool     // blobs named .gitmodules
}

func corrupt(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{odb.ErrCorrupt}, a...)...)
}

func tooLarge(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{odb.ErrTooLarge}, a...)...)
}

func (c *checker) find(kind string, id odb.ID, name, detail string) {
	if len(c.rep.Findings) >= MaxFindings {
		c.rep.More++
		return
	}
	if len(detail) > 300 {
		detail = detail[:300] + "…"
	}
	c.rep.Findings = append(c.rep.Findings, Finding{kind, id.String(), name, detail})
}

// grow adds to the resolved bytes and checks the totals, before memory is taken.
func (c *checker) grow(n int64) error {
	c.total += n
	if c.total > c.lim.TotalBytes {
		return tooLarge("the objects inflate to more than %d bytes", c.lim.TotalBytes)
	}
	return nil
}

func (c *checker) checkRatio() error {
	if c.total > 256<<20 && c.total/max(c.end, 1) > c.lim.Ratio {
		return tooLarge("the objects inflate to more than %d times the pack", c.lim.Ratio)
	}
	return nil
}

// feed hands out the stream byte by byte, so that inflating stops exactly at
// each entry's end, and writes and sums what was consumed.
type feed struct {
	r    io.Reader
	w    *bufio.Writer
	sum  hash.Hash
	crc  uint32
	buf  []byte
	i, n int   // next and end
	mark int   // start of what was consumed but not yet summed
	pos  int64 // of mark in the stream
	max  int64
}

func (f *feed) flush() error {
	b := f.buf[f.mark:f.i]
	if len(b) == 0 {
		return nil
	}
	f.sum.Write(b)
	f.crc = crc32.Update(f.crc, crc32.IEEETable, b)
	f.pos += int64(len(b))
	f.mark = f.i
	if _, err := f.w.Write(b); err != nil {
		return fmt.Errorf("writing the pack: %w", err)
	}
	return nil
}

func (f *feed) fill() error {
	if f.i < f.n {
		return nil
	}
	if err := f.flush(); err != nil {
		return err
	}
	if f.pos > f.max {
		return tooLarge("the pack is larger than %d bytes", f.max)
	}
	f.i, f.n, f.mark = 0, 0, 0
	for range 100 {
		n, err := f.r.Read(f.buf)
		if n > 0 {
			f.n = n
			return nil
		}
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

func (f *feed) ReadByte() (byte, error) {
	if f.i == f.n {
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	f.i++
	return f.buf[f.i-1], nil
}

func (f *feed) Read(p []byte) (int, error) {
	if err := f.fill(); err != nil {
		return 0, err
	}
	n := copy(p, f.buf[f.i:f.n])
	f.i += n
	return n, nil
}

// receive reads the stream once: it stores it, inflates every entry, and names
// the objects that are not deltas.
func (c *checker) receive(r io.Reader) error {
	in := &feed{r: r, w: bufio.NewWriterSize(c.f, 1<<18), sum: sha1.New(), buf: make([]byte, 1<<16), max: c.lim.PackBytes}
	var head [12]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return corrupt("the stream ended before the pack's head: %v", err)
	}
	if !bytes.Equal(head[:8], []byte("PACK\x00\x00\x00\x02")) {
		return corrupt("this is no pack of version 2")
	}
	count := int64(binary.BigEndian.Uint32(head[8:]))
	if count > int64(c.lim.Objects) {
		return tooLarge("the pack announces %d objects, at most %d are taken", count, c.lim.Objects)
	}
	c.entries = make([]entry, 0, min(count, 1<<16))
	c.index = map[odb.ID]int32{}
	var z io.ReadCloser
	for k := int64(0); k < count; k++ {
		if err := in.flush(); err != nil {
			return err
		}
		in.crc = 0
		e := entry{off: in.pos, base: -1}
		h, err := odb.ReadHeader(in)
		if err != nil {
			return fmt.Errorf("object %d of %d: %w", k+1, count, short(err))
		}
		e.typ, e.size, e.data = h.Type, h.Size, e.off+int64(h.Len)
		if z == nil {
			z, err = zlib.NewReader(in)
		} else {
			err = z.(zlib.Resetter).Reset(in, nil)
		}
		if err == nil {
			err = c.inflate(&e, h, z, int32(k))
		}
		if err != nil {
			return fmt.Errorf("object %d of %d: %w", k+1, count, short(err))
		}
		if err := in.flush(); err != nil {
			return err
		}
		e.crc = in.crc
		c.entries = append(c.entries, e)
		c.end = in.pos
		if err := c.checkRatio(); err != nil {
			return err
		}
	}
	c.end = in.pos
	if err := in.flush(); err != nil {
		return err
	}
	c.end = in.pos
	c.sum = in.sum.Sum(nil)
	var tail [20]byte
	if _, err := io.ReadFull(in, tail[:]); err != nil {
		return corrupt("the pack is cut short before its checksum: %v", err)
	}
	if !bytes.Equal(tail[:], c.sum) {
		return corrupt("the pack's checksum is wrong")
	}
	if err := in.flush(); err != nil {
		return err
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.ErrUnexpectedEOF) {
		if err != nil {
			return err
		}
		return corrupt("bytes follow the end of the pack")
	}
	return in.w.Flush()
}

func short(err error) error {
	switch {
	case errors.Is(err, odb.ErrCorrupt):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return corrupt("the pack is cut short")
	case errors.Is(err, zlib.ErrHeader) || errors.Is(err, zlib.ErrChecksum) || errors.Is(err, zlib.ErrDictionary):
		return corrupt("%v", err)
	}
	return err
}

// inflate reads one entry's compressed bytes.
func (c *checker) inflate(e *entry, h odb.Header, z io.Reader, k int32) error {
	switch e.typ {
	case odb.OfsDelta, odb.RefDelta:
		if e.size > c.lim.DeltaBytes {
			return tooLarge("a delta of %d bytes, at most %d are taken", e.size, c.lim.DeltaBytes)
		}
		if e.typ == odb.RefDelta {
			e.id = h.Base
		} else if e.base = c.at(e.off - h.Back); e.base < 0 {
			return corrupt("a delta's base is not where it says")
		}
		return drain(z, e.size, io.Discard)
	case odb.Blob:
		if e.size > c.lim.BlobBytes {
			return tooLarge("a file of %d bytes, at most %d are taken", e.size, c.lim.BlobBytes)
		}
		if err := c.grow(e.size); err != nil {
			return err
		}
		hs := odb.NewHasher(odb.Blob, e.size)
		if err := drain(z, e.size, hs); err != nil {
			return err
		}
		return c.named(e, k, odb.Blob, hs.Sum(), nil)
	default:
		limit := min(c.lim.DeltaBytes, odb.MaxMeta)
		if e.size > limit {
			return tooLarge("a %s of %d bytes, at most %d are taken", e.typ, e.size, limit)
		}
		if err := c.grow(e.size); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := drain(z, e.size, &b); err != nil {
			return err
		}
		return c.named(e, k, e.typ, odb.Hash(e.typ, b.Bytes()), b.Bytes())
	}
}

// drain copies exactly size bytes and requires the stream's end (and so its
// checksum) behind them.
func drain(z io.Reader, size int64, w io.Writer) error {
	n, err := io.Copy(w, io.LimitReader(z, size))
	if err != nil {
		return wrapZ(err)
	}
	if n != size {
		return corrupt("it inflates to %d bytes where %d were announced", n, size)
	}
	var one [1]byte
	for range 10 {
		m, err := z.Read(one[:])
		if m > 0 {
			return corrupt("it inflates to more than the %d bytes that were announced", size)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return wrapZ(err)
		}
	}
	return corrupt("it does not end")
}

// wrapZ tells bad bytes from a pack that is cut short or too large and from trouble
// with our own files, of which the bytes are innocent.
func wrapZ(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, odb.ErrTooLarge) {
		return err
	}
	var system interface{ Timeout() bool }
	if errors.As(err, &system) {
		return err
	}
	return fmt.Errorf("%w: %w", odb.ErrCorrupt, err)
}

// at returns the entry that starts at an offset, among those read so far.
func (c *checker) at(off int64) int32 {
	lo, hi := 0, len(c.entries)
	for lo < hi {
		m := (lo + hi) / 2
		if c.entries[m].off < off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(c.entries) && c.entries[lo].off == off {
		return int32(lo)
	}
	return -1
}
