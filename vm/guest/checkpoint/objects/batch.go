//go:build linux

package objects

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// inMemory is the size up to which a blob is read whole; larger ones are
// streamed into a loose object.
const inMemory = 1 << 20

// ErrShort: the reader held less than its size said.
var ErrShort = errors.New("the file shrank while it was read")

var deflaters = sync.Pool{New: func() any {
	z, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	return z
}}

// Batch is a set of objects that become visible together with Finish. Its
// methods may be called from several goroutines at once.
type Batch struct {
	s  *Store
	mu sync.Mutex
	p  *packWriter // nil = loose objects
}

// Begin starts a batch; pack is for many objects.
func (s *Store) Begin(pack bool) (*Batch, error) {
	b := &Batch{s: s}
	if pack {
		var err error
		if b.p, err = newPackWriter(s); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func header(kind string, size int64) []byte { return fmt.Appendf(nil, "%s %d\x00", kind, size) }

// Put adds an object of kind "blob", "tree" or "commit".
func (b *Batch) Put(kind string, data []byte) (ID, error) {
	h := sha1.New()
	h.Write(header(kind, int64(len(data))))
	h.Write(data)
	var id ID
	h.Sum(id[:0])
	if b.s.Has(id) {
		return id, nil
	}
	var out bytes.Buffer
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(&out)
	if b.p == nil {
		_, _ = z.Write(header(kind, int64(len(data)))) // here and below: Close repeats the first error
	}
	_, _ = z.Write(data)
	if err := z.Close(); err != nil {
		return id, err
	}
	if b.p == nil {
		return id, b.s.writeLoose(id, func(w io.Writer) error { _, err := w.Write(out.Bytes()); return err })
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return id, b.p.add(id, kind, len(data), out.Bytes())
}

// Blob adds the next size bytes of r. ErrShort when there are fewer.
func (b *Batch) Blob(r io.Reader, size int64) (ID, error) {
	if size <= inMemory {
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return ID{}, short(err)
		}
		return b.Put("blob", data)
	}
	f, err := os.CreateTemp(filepath.Join(b.s.dir, "objects"), "tmp_obj_")
	if err != nil {
		return ID{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha1.New()
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(f)
	both := io.MultiWriter(h, z)
	if _, err := both.Write(header("blob", size)); err != nil {
		return ID{}, err
	}
	if n, err := io.CopyN(both, r, size); err != nil {
		if n < size {
			err = short(err)
		}
		return ID{}, err
	}
	if err := z.Close(); err != nil {
		return ID{}, err
	}
	var id ID
	h.Sum(id[:0])
	if b.s.Has(id) {
		return id, nil
	}
	return id, b.s.placeLoose(id, f)
}

func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrShort
	}
	return err
}

func (s *Store) writeLoose(id ID, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Join(s.dir, "objects"), "tmp_obj_")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	return s.placeLoose(id, f)
}

func (s *Store) placeLoose(id ID, f *os.File) error {
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	to := s.loose(id)
	err := os.Rename(f.Name(), to)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		err = os.Rename(f.Name(), to)
	}
	return err
}

// Finish makes the objects readable. It does not sync.
func (b *Batch) Finish() error {
	if b.p == nil {
		return nil
	}
	return b.p.finish()
}

// Abort drops a batch that will not be finished; loose objects stay, unnamed.
func (b *Batch) Abort() {
	if b.p != nil {
		b.p.abort()
	}
}
