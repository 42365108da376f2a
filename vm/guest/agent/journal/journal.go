//go:build linux

// Package journal keeps what guestd knows of executions on disk, so that
// neither a lost core nor a restarted guestd loses an outcome. One folder per
// execution:
//
//	ROOT/ID/meta.json        what was asked; written before the command starts
//	ROOT/ID/{stdout,stderr}  the kept part of the output
//	ROOT/ID/exit.json        how it ended; there once it is known
//
// The output of a terminal is kept in segments instead, see SegmentSize.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"glasshouse/vm/guest"
)

// Meta is what an execution was started with.
type Meta struct {
	ID      string
	Session string
	Step    string
	Argv    [][]byte
	BootID  string
	At      time.Time
	Window  int64 `json:",omitempty"` // of a terminal: how many of its newest bytes are kept
}

// ErrExists: an execution of that id is in the journal already.
var ErrExists = errors.New("an execution of that id exists")

// File names of the two streams, by index: 0 stdout, 1 stderr.
var Streams = [2]string{"stdout", "stderr"}

// Journal is a folder of executions.
type Journal struct{ root string }

// Open makes the folder if it is missing.
func Open(root string) (*Journal, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("the journal cannot be made: %w", err)
	}
	keepSpare(root)
	return &Journal{root: root}, nil
}

// Dir is the folder of one execution.
func (j *Journal) Dir(id string) string { return filepath.Join(j.root, id) }

// Create makes an execution's folder. Ids were checked by the caller.
func (j *Journal) Create(m Meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	dir := j.Dir(m.ID)
	return withSpare(j.root, func() error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return ErrExists
			}
			return fmt.Errorf("the journal cannot be written: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "meta.json"), b, 0o600); err != nil {
			os.RemoveAll(dir)
			return fmt.Errorf("the journal cannot be written: %w", err)
		}
		return nil
	})
}

// IDs lists the executions in the journal.
func (j *Journal) IDs() ([]string, error) {
	ents, err := os.ReadDir(j.root)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range ents {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Meta reads what an execution was started with.
func (j *Journal) Meta(id string) (m Meta, err error) {
	b, err := os.ReadFile(filepath.Join(j.Dir(id), "meta.json"))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("meta.json of %s: %w", id, err)
	}
	return m, nil
}

// Exit reads how an execution ended; fs.ErrNotExist while that is not known. A
// torn record (the machine lost power in the act) counts as not known.
func (j *Journal) Exit(id string) (x guest.Exit, err error) {
	b, err := os.ReadFile(filepath.Join(j.Dir(id), "exit.json"))
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(b, &x); err != nil {
		return x, fs.ErrNotExist
	}
	return x, nil
}

// Ended reports whether the journal holds how an execution ended.
func (j *Journal) Ended(id string) bool {
	_, err := os.Stat(filepath.Join(j.Dir(id), "exit.json"))
	return err == nil
}

// Sizes returns how many bytes of each stream are kept; of a terminal, how many it
// had in all.
func (j *Journal) Sizes(m Meta) (n [2]int64) {
	if m.Window > 0 {
		return [2]int64{j.Total(m.ID, m.Window)}
	}
	for i, name := range Streams {
		if st, err := os.Stat(filepath.Join(j.Dir(m.ID), name)); err == nil {
			n[i] = st.Size()
		}
	}
	return n
}

// Remove forgets an execution.
func (j *Journal) Remove(id string) error {
	err := os.RemoveAll(j.Dir(id))
	keepSpare(j.root)
	return err
}

// WriteExit records an end in dir. The record is visible to every process when
// it returns; the returned function makes it durable and may run later.
func WriteExit(dir string, record []byte) (sync func() error, err error) {
	err = withSpare(filepath.Dir(dir), func() error {
		sync, err = writeExit(dir, record)
		return err
	})
	return sync, err
}

func writeExit(dir string, record []byte) (sync func() error, err error) {
	tmp := filepath.Join(dir, "exit.tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(record); err == nil {
		err = os.Rename(tmp, filepath.Join(dir, "exit.json"))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() error {
		err := f.Sync()
		f.Close()
		for _, name := range Streams {
			if s, e := os.Open(filepath.Join(dir, name)); e == nil {
				err = errors.Join(err, s.Sync())
				s.Close()
			}
		}
		d, e := os.Open(dir)
		if e != nil {
			return errors.Join(err, e)
		}
		defer d.Close()
		return errors.Join(err, d.Sync())
	}, nil
}
