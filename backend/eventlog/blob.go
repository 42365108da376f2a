package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

var shaForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (l *Log) blobTemp() string { return filepath.Join(l.dir, BlobFolder, "tmp") }

func (l *Log) blobPath(sha string) string {
	return filepath.Join(l.dir, BlobFolder, sha[:2], sha[2:])
}

// openBlobs makes the folders and clears what a crash left half written.
func (l *Log) openBlobs() error {
	if err := os.MkdirAll(l.blobTemp(), 0o700); err != nil {
		return explain("The artefact folder cannot be made", err)
	}
	left, err := os.ReadDir(l.blobTemp())
	if err != nil {
		return explain("The artefact folder cannot be read", err)
	}
	for _, f := range left {
		_ = os.Remove(filepath.Join(l.blobTemp(), f.Name()))
	}
	return nil
}

// blobWriter implements event.BlobWriter.
type blobWriter struct {
	log        *Log
	f          *os.File
	h          hash.Hash
	to         io.Writer // to both
	scrub      io.WriteCloser
	size       int64
	limit      int64
	dropped    int64
	err        error
	ended      bool
	mime, name string
}

var _ event.BlobStore = (*Log)(nil)

// CreateBlob starts an artefact of unknown length of which at most limit bytes are kept.
func (l *Log) CreateBlob(limit int64, mime, name string) (event.BlobWriter, error) {
	f, err := os.CreateTemp(l.blobTemp(), "b")
	if err != nil {
		return nil, explain("The artefact cannot be written", err)
	}
	w := &blobWriter{log: l, f: f, h: sha256.New(), limit: limit, mime: mime, name: name}
	w.to = io.MultiWriter(f, w.h)
	if l.opt.ScrubBlob != nil {
		w.scrub = l.opt.ScrubBlob(w.to)
		w.to = w.scrub
	}
	return w, nil
}

// Write never fails for being past the limit, see Dropped.
func (w *blobWriter) Write(p []byte) (int, error) {
	if w.ended {
		return 0, errors.New("the artefact is complete already")
	}
	if w.err != nil {
		return 0, w.err
	}
	keep := p
	if room := w.limit - w.size; int64(len(keep)) > room {
		keep = keep[:max(room, 0)]
		w.dropped += int64(len(p) - len(keep))
	}
	if n, err := w.to.Write(keep); err != nil {
		w.err = explain("The artefact cannot be written", err)
		return n, w.err
	}
	w.size += int64(len(keep))
	return len(p), nil
}

// Dropped is how many bytes past the limit were not kept.
func (w *blobWriter) Dropped() int64 { return w.dropped }

// Size is how many bytes were kept.
func (w *blobWriter) Size() int64 { return w.size }

// Abort throws the artefact away.
func (w *blobWriter) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	_ = w.f.Close()
	_ = os.Remove(w.f.Name())
}

// Commit makes the artefact durable under its hash.
func (w *blobWriter) Commit() (event.Blob, error) {
	if w.ended {
		return event.Blob{}, errors.New("the artefact is complete already")
	}
	if w.err == nil && w.scrub != nil {
		if err := w.scrub.Close(); err != nil {
			w.err = explain("The artefact cannot be written", err)
		}
	}
	if w.err != nil {
		w.Abort()
		return event.Blob{}, w.err
	}
	w.ended = true
	tmp := w.f.Name()
	err := w.f.Sync()
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	sha := hex.EncodeToString(w.h.Sum(nil))
	path := w.log.blobPath(sha)
	if err == nil {
		err = os.Mkdir(filepath.Dir(path), 0o700)
		if err == nil {
			err = syncDir(filepath.Join(w.log.dir, BlobFolder))
		} else if errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		// Over an existing one too: the bytes are the same, or it was damaged.
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return event.Blob{}, explain("The artefact cannot be stored", err)
	}
	return event.Blob{Sha256: sha, Size: w.size, Mime: w.mime, Name: w.name}, nil
}

// PutBlob stores all of r. More than limit bytes is a too_large error and nothing is kept.
func (l *Log) PutBlob(ctx context.Context, r io.Reader, limit int64) (event.Blob, error) {
	w, err := l.CreateBlob(limit, "", "")
	if err != nil {
		return event.Blob{}, err
	}
	defer w.Abort()
	buf := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return event.Blob{}, err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return event.Blob{}, err
			}
			if w.Dropped() > 0 {
				return event.Blob{}, domain.E(domain.CodeTooLarge, fmt.Sprintf("The artefact has more than %d bytes", limit), "", nil)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return event.Blob{}, err
		}
	}
	return w.Commit()
}

// BlobReader reads an artefact and checks its hash: the last Read fails instead of
// returning io.EOF when the bytes are not what was stored.
type BlobReader struct {
	f    *os.File
	h    hash.Hash
	sha  string
	Size int64
	end  error
}

// OpenBlob opens an artefact by its hash (64 lower-case hex digits).
func (l *Log) OpenBlob(sha string) (*BlobReader, error) {
	if !shaForm.MatchString(sha) {
		return nil, invalid("An artefact is named by the 64 hex digits of its sha256")
	}
	f, err := os.Open(l.blobPath(sha))
	if errors.Is(err, os.ErrNotExist) {
		return nil, domain.E(domain.CodeNotFound, "There is no artefact "+sha, "take its name from an event", nil)
	}
	if err != nil {
		return nil, explain("The artefact cannot be read", err)
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, explain("The artefact cannot be read", errors.Join(err, errors.New("not a plain file")))
	}
	return &BlobReader{f: f, h: sha256.New(), sha: sha, Size: st.Size()}, nil
}

func (r *BlobReader) Read(p []byte) (int, error) {
	if r.end != nil {
		return 0, r.end
	}
	n, err := r.f.Read(p)
	r.h.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if hex.EncodeToString(r.h.Sum(nil)) != r.sha {
			err = domain.E(domain.CodeInternal, "The artefact "+r.sha+" is damaged: its bytes changed on disk", "restore it from a backup of the data folder", nil)
		}
		r.end = err
	} else if err != nil {
		err = explain("The artefact cannot be read", err)
	}
	return n, err
}

// Close closes the file.
func (r *BlobReader) Close() error { return r.f.Close() }

// ReadBlob returns a whole artefact of at most limit bytes, checked.
func (l *Log) ReadBlob(sha string, limit int64) ([]byte, error) {
	r, err := l.OpenBlob(sha)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.Size > limit {
		return nil, domain.E(domain.CodeTooLarge, fmt.Sprintf("The artefact has %d bytes, more than %d", r.Size, limit), "read it as a stream", nil)
	}
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, r); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
