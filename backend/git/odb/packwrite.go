package odb

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
)

// PackWriter writes a pack whose number of objects is known beforehand. What
// readers get is verified by whoever indexes it, so entries may be copied
// compressed as they lie on disk.
type PackWriter struct {
	w    *bufio.Writer
	sum  hash.Hash
	z    *zlib.Writer
	left int
	n    int64
}

// NewPackWriter starts a pack of count objects.
func NewPackWriter(w io.Writer, count int) (*PackWriter, error) {
	if count < 0 || int64(count) > math.MaxUint32 {
		return nil, fmt.Errorf("a pack cannot hold %d objects", count)
	}
	p := &PackWriter{sum: sha1.New(), left: count}
	p.w = bufio.NewWriterSize(io.MultiWriter(w, p.sum, (*counter)(&p.n)), 1<<16)
	p.z, _ = zlib.NewWriterLevel(p.w, zlib.DefaultCompression)
	head := append([]byte("PACK"), 0, 0, 0, 2)
	_, err := p.w.Write(binary.BigEndian.AppendUint32(head, uint32(count)))
	return p, err
}

type counter int64

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

// Add writes an object of a known size.
func (p *PackWriter) Add(t Type, size int64, r io.Reader) error {
	if p.left == 0 {
		return errors.New("the pack is already full")
	}
	p.left--
	if _, err := p.w.Write(PutHeader(nil, t, size)); err != nil {
		return err
	}
	p.z.Reset(p.w)
	n, err := io.CopyN(p.z, r, size)
	if err != nil {
		return fmt.Errorf("an object ended after %d of %d bytes: %w", n, size, err)
	}
	return p.z.Close()
}

// addRaw copies an entry's compressed bytes behind a new head.
func (p *PackWriter) addRaw(head []byte, r io.Reader) error {
	p.left--
	if _, err := p.w.Write(head); err != nil {
		return err
	}
	_, err := io.Copy(p.w, r)
	return err
}

// Close ends the pack and returns its size.
func (p *PackWriter) Close() (int64, error) {
	if p.left != 0 {
		return 0, fmt.Errorf("%d objects are missing in the pack", p.left)
	}
	if err := p.w.Flush(); err != nil {
		return 0, err
	}
	sum := p.sum.Sum(nil)
	if _, err := p.w.Write(sum); err != nil {
		return 0, err
	}
	return p.n + int64(len(sum)), p.w.Flush()
}

// WritePack writes the objects as one self-contained pack. Deltas are kept
// where their base is in the same pack on disk and in the set.
func (s *Store) WritePack(ctx context.Context, w io.Writer, ids []ID) (int64, error) {
	in := make(map[ID]struct{}, len(ids))
	for _, id := range ids {
		in[id] = struct{}{}
	}
	p, err := NewPackWriter(w, len(ids))
	if err != nil {
		return 0, err
	}
	for i, id := range ids {
		if i%256 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err := s.writeOne(p, id, in); err != nil {
			return 0, fmt.Errorf("object %s: %w", id, err)
		}
	}
	return p.Close()
}

func (s *Store) writeOne(p *PackWriter, id ID, in map[ID]struct{}) error {
	loc, err := s.find(id)
	if err != nil {
		return err
	}
	if loc.pack == nil {
		f, r, t, size, err := openLoose(loc.path)
		if err != nil {
			return err
		}
		defer f.Close()
		return p.Add(t, size, r)
	}
	h, err := loc.pack.header(loc.off)
	if err != nil {
		return err
	}
	head := PutHeader(nil, h.Type, h.Size)
	if h.Type == OfsDelta || h.Type == RefDelta {
		base, ok := s.reusableBase(loc.pack, loc.off, h, in)
		if !ok {
			t, data, err := loc.pack.read(s, loc.off, MaxContent)
			if err != nil {
				return err
			}
			return p.Add(t, int64(len(data)), bytes.NewReader(data))
		}
		head = append(PutHeader(nil, RefDelta, h.Size), base[:]...)
	}
	start := loc.off + int64(h.Len)
	end := loc.pack.idx.after(loc.off, loc.pack.size-20)
	if end <= start {
		return fmt.Errorf("%w: entries overlap", ErrCorrupt)
	}
	return p.addRaw(head, io.NewSectionReader(loc.pack.f, start, end-start))
}

// reusableBase returns a delta's base when it travels in the same set and is
// found in the same pack: then a chain of kept deltas cannot close a circle
// that is not already one on disk.
func (s *Store) reusableBase(pk *pack, off int64, h Header, in map[ID]struct{}) (ID, bool) {
	b, err := pk.base(off, h)
	if err != nil {
		return ID{}, false
	}
	id, ok := pk.idx.idAt(b)
	if !ok {
		return ID{}, false
	}
	if _, ok := in[id]; !ok {
		return ID{}, false
	}
	loc, err := s.find(id)
	return id, err == nil && loc.pack == pk && loc.off == b
}

// Writer adds loose objects to an object directory.
type Writer struct {
	Dir string
	// Sync makes each object durable before Put returns.
	Sync bool
}

// Put writes an object unless it is there, and returns its id.
func (w Writer) Put(t Type, data []byte) (ID, error) {
	id := Hash(t, data)
	h := id.String()
	dir := filepath.Join(w.Dir, h[:2])
	path := filepath.Join(dir, h[2:])
	if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
		return id, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return id, err
	}
	f, err := os.CreateTemp(dir, "tmp_obj_")
	if err != nil {
		return id, err
	}
	defer os.Remove(f.Name()) // no effect after the rename
	z := zlib.NewWriter(f)
	_, _ = fmt.Fprintf(z, "%s %d\x00", t, len(data))
	_, _ = z.Write(data)
	err = z.Close()
	if err == nil && w.Sync {
		err = f.Sync()
	}
	if err == nil {
		err = f.Chmod(0o444)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return id, fmt.Errorf("writing object %s: %w", h, err)
	}
	return id, os.Rename(f.Name(), path)
}
