//go:build linux

package execs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/journal"
)

// Follow sends output from the given offsets as it comes, and returns the exit
// after the last of it. Of a terminal a reader that is too late gets what is
// still kept: its offset then leaps.
func (e *Exec) Follow(ctx context.Context, from [2]int64, send func(stream int, offset int64, data []byte) error) (guest.Exit, error) {
	var files [2]spool
	defer func() {
		for i := range files {
			files[i].close()
		}
	}()
	var buf []byte
	defer func() {
		if buf != nil {
			chunks.Put(&buf)
		}
	}()
	for {
		e.mu.Lock()
		kept, ended, ch := e.kept, e.ended, e.changed
		e.mu.Unlock()
		for i := range kept {
			for from[i] < kept[i] {
				if ctx.Err() != nil {
					return guest.Exit{}, ctx.Err()
				}
				if buf == nil {
					buf = *chunks.Get().(*[]byte)
				}
				at, n, err := files[i].read(e, i, from[i], buf[:min(int64(len(buf)), kept[i]-from[i])])
				if n > 0 {
					if err := send(i, at, buf[:n]); err != nil {
						return guest.Exit{}, err
					}
					from[i] = at + int64(n)
				}
				if n == 0 && err != nil {
					if errors.Is(err, io.EOF) { // the disk lost the end of it with the power
						from[i] = kept[i]
						break
					}
					return guest.Exit{}, fmt.Errorf("the output of %s cannot be read: %w", e.Meta.ID, err)
				}
			}
		}
		if ended {
			e.mu.Lock()
			same := e.kept == kept
			e.mu.Unlock()
			if same {
				return e.Exit()
			}
			continue
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return guest.Exit{}, ctx.Err()
		}
	}
}

// spool reads one stream: from its file, or from the segments of a window.
type spool struct {
	file *os.File
	seg  int64
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// read returns where the bytes are from: at is past from when those in between
// are no longer kept.
func (s *spool) read(e *Exec, stream int, from int64, buf []byte) (at int64, n int, err error) {
	dir := e.m.j.Dir(e.Meta.ID)
	if e.Meta.Window == 0 {
		if s.file == nil {
			if s.file, err = os.Open(filepath.Join(dir, journal.Streams[stream])); err != nil {
				return from, 0, err
			}
		}
		n, err = s.file.ReadAt(buf, from)
		return from, n, err
	}
	size := journal.SegmentSize(e.Meta.Window)
	for k := from / size; s.file == nil || s.seg != k; {
		s.close()
		s.file, err = os.Open(journal.SegmentFile(dir, stream, k))
		if err == nil {
			s.seg = k
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return from, 0, err
		}
		if k, err = journal.FirstSegment(dir, stream, k); err != nil {
			return from, 0, err
		}
		from = k * size
	}
	n, err = s.file.ReadAt(buf[:min(int64(len(buf)), (s.seg+1)*size-from)], from-s.seg*size)
	return from, n, err
}
