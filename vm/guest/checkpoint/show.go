//go:build linux

package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
)

// maxTreeBytes bounds one folder's listing: half a million short names.
const maxTreeBytes = 32 << 20

// Show returns a file as a checkpoint holds it. The path is walked name by name
// through tree objects, so that nothing in it is ever an expression to git.
func (c *Checkpoints) Show(ctx context.Context, q guest.ShowRequest) (f guest.KeptFile, err error) {
	id, err := objects.Parse(q.Commit)
	if err != nil {
		return f, err
	}
	// The store only ever grows: once it is open, reading waits for nobody.
	if !c.opened.Load() {
		if err := c.lock(ctx); err != nil {
			return f, err
		}
		err := c.open(ctx)
		c.unlock()
		if err != nil {
			return f, err
		}
	}
	h, err := c.commit(ctx, id)
	if err == nil && q.Before {
		if h.parent.Zero() {
			return f, nil
		}
		h, err = c.commit(ctx, h.parent)
	}
	if err != nil {
		return f, err
	}
	o := c.readObjects(ctx)
	defer o.close()
	at, names := h.tree, strings.Split(q.Path, "/")
	for i, name := range names {
		size, err := o.head(at, "tree")
		if err != nil {
			return f, err
		}
		if size > maxTreeBytes {
			return f, fmt.Errorf("%w: a folder of the checkpoint has a listing of %d bytes", guest.ErrTooLarge, size)
		}
		tree, err := o.body(size, size)
		if err != nil {
			return f, err
		}
		mode, id, ok, err := treeEntry(tree, name)
		if err != nil || !ok || (mode == 0o40000) != (i < len(names)-1) {
			return f, err // no such file
		}
		at, f.Mode = id, mode
		if mode == 0o40000 {
			f.Mode = 0
		}
	}
	if f.Size, err = o.head(at, "blob"); err == nil {
		f.Data, err = o.body(f.Size, min(f.Size, q.Limit))
	}
	return f, err
}

// treeEntry finds a name in a tree object: "<octal mode> <name>\0<20 bytes>" each.
func treeEntry(tree []byte, name string) (mode uint32, id objects.ID, ok bool, err error) {
	for len(tree) > 0 {
		meta, rest, found := bytes.Cut(tree, []byte{0})
		m, n, spaced := bytes.Cut(meta, []byte{' '})
		if !found || !spaced || len(rest) < len(id) {
			return 0, id, false, errors.New("a folder of the checkpoint is damaged")
		}
		if string(n) == name {
			v, err := strconv.ParseUint(string(m), 8, 32)
			copy(id[:], rest)
			return uint32(v), id, err == nil, err
		}
		tree = rest[len(id):]
	}
	return 0, id, false, nil
}

// objectReader asks one `git cat-file --batch` for objects by their ids.
type objectReader struct {
	in   *io.PipeWriter
	out  *bufio.Reader
	stop func()
}

func (c *Checkpoints) readObjects(ctx context.Context) *objectReader {
	ctx, cancel := context.WithCancel(ctx)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := c.git(ctx, inR, outW, "cat-file", "--batch")
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		inR.CloseWithError(err)
		outW.CloseWithError(err)
	}()
	return &objectReader{in: inW, out: bufio.NewReaderSize(outR, 64<<10), stop: func() {
		cancel()
		inW.Close()
		outR.CloseWithError(errEnough) // of a large object the rest is not read
		<-done
	}}
}

func (o *objectReader) close() { o.stop() }

// head asks for an object and returns its size. Its body must be read before the next.
func (o *objectReader) head(id objects.ID, kind string) (int64, error) {
	if _, err := io.WriteString(o.in, id.String()+"\n"); err != nil {
		return 0, err
	}
	line, err := o.out.ReadString('\n')
	if err != nil {
		return 0, noEOF(err)
	}
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != id.String() || f[1] != kind {
		return 0, fmt.Errorf("the checkpoint's object %s is damaged or missing: %.80q", id, line)
	}
	return strconv.ParseInt(f[2], 10, 64)
}

// body reads the first want bytes of an object of size; no other can be asked for
// when that is not all.
func (o *objectReader) body(size, want int64) ([]byte, error) {
	b := make([]byte, want)
	if _, err := io.ReadFull(o.out, b); err != nil {
		return nil, noEOF(err)
	}
	if want == size {
		if _, err := o.out.ReadByte(); err != nil { // the line break after it
			return nil, noEOF(err)
		}
	}
	return b, nil
}
