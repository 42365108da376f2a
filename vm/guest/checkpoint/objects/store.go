//go:build linux

package objects

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ID names an object.
type ID [sha1.Size]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Zero says that id names nothing.
func (id ID) Zero() bool { return id == ID{} }

// Parse reads 40 hex digits.
func Parse(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("%.60q is no object id: it needs 40 hex digits", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("%.60q is no object id: it needs 40 hex digits", s)
	}
	return id, nil
}

// Ref is where the newest checkpoint is kept.
const Ref = "refs/heads/checkpoints"

// Exact bytes: no attribute of the recorded files may have a say, and nothing in
// this repository runs a program.
const config = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
	logAllRefUpdates = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	fsmonitor = false
	autocrlf = false
	bigFileThreshold = 8m
[gc]
	auto = 0
[maintenance]
	auto = false
`

const attributes = "* -text -eol -filter -ident -working-tree-encoding\n"

// Store is one git directory. It is safe for concurrent use by one process;
// there must be no second writer.
type Store struct {
	dir string

	mu    sync.Mutex
	packs []*packIndex
}

// Open opens the store in dir, making it when it is missing and clearing what a
// killed writer left behind.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{"", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("the checkpoint store cannot be made: %w", err)
		}
	}
	for name, data := range map[string]string{
		"HEAD": "ref: " + Ref + "\n", "config": config, "info/attributes": attributes,
	} {
		if have, err := os.ReadFile(filepath.Join(dir, name)); err == nil && string(have) == data {
			continue
		}
		if err := s.replace(name, []byte(data)); err != nil {
			return nil, fmt.Errorf("the checkpoint store cannot be made: %w", err)
		}
	}
	for _, pattern := range []string{"tmp_*", "objects/tmp_*", "objects/pack/tmp_*", "index.lock", "packed-refs.lock", Ref + ".lock"} {
		left, _ := filepath.Glob(filepath.Join(escape(dir), pattern))
		for _, name := range left {
			os.Remove(name)
		}
	}
	s.clearUnsynced()
	idx, _ := filepath.Glob(filepath.Join(escape(dir), "objects/pack/pack-*.idx"))
	for _, name := range idx {
		if p, err := readPackIndex(name); err == nil {
			s.packs = append(s.packs, p)
		}
	}
	return s, nil
}

// clearUnsynced removes damaged objects that are younger than the ref. A power
// loss between writing and syncing a checkpoint can leave some, cut short; they
// are not named yet, but the next checkpoint would take them for written.
func (s *Store) clearUnsynced() {
	var synced time.Time
	if fi, err := os.Stat(filepath.Join(s.dir, Ref)); err == nil {
		synced = fi.ModTime()
	}
	young := func(name string) bool {
		fi, err := os.Lstat(name)
		// With slack for coarse clocks: looking at a few more costs little.
		return err == nil && fi.ModTime().After(synced.Add(-time.Second))
	}
	packs, _ := filepath.Glob(filepath.Join(escape(s.dir), "objects/pack/pack-*.pack"))
	for _, name := range packs {
		idx := strings.TrimSuffix(name, ".pack") + ".idx"
		if _, err := os.Lstat(idx); err == nil && (!young(name) && !young(idx) || packIntact(name, idx)) {
			continue
		}
		os.Remove(idx)
		os.Remove(name)
	}
	loose, _ := filepath.Glob(filepath.Join(escape(s.dir), "objects/[0-9a-f][0-9a-f]/*"))
	for _, name := range loose {
		if young(name) && !looseIntact(name) {
			os.Remove(name)
		}
	}
}

func packIntact(name, idx string) bool {
	if _, err := readPackIndex(idx); err != nil {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() < 12+sha1.Size {
		return false
	}
	h := sha1.New()
	if _, err := io.CopyN(h, f, fi.Size()-sha1.Size); err != nil {
		return false
	}
	var sum [sha1.Size]byte
	if _, err := io.ReadFull(f, sum[:]); err != nil {
		return false
	}
	return bytes.Equal(h.Sum(nil), sum[:])
}

func looseIntact(name string) bool {
	want, err := Parse(filepath.Base(filepath.Dir(name)) + filepath.Base(name))
	if err != nil {
		return true // not an object of ours
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	z, err := zlib.NewReader(f)
	if err != nil {
		return false
	}
	h := sha1.New()
	if _, err := io.Copy(h, z); err != nil {
		return false
	}
	var got ID
	h.Sum(got[:0])
	return got == want
}

func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// Dir is the git directory.
func (s *Store) Dir() string { return s.dir }

// Has says whether the object is in the store.
func (s *Store) Has(id ID) bool {
	s.mu.Lock()
	packs := s.packs
	s.mu.Unlock()
	for i := len(packs) - 1; i >= 0; i-- {
		if packs[i].has(id) {
			return true
		}
	}
	fi, err := os.Lstat(s.loose(id))
	return err == nil && fi.Size() > 0
}

func (s *Store) loose(id ID) string {
	h := id.String()
	return filepath.Join(s.dir, "objects", h[:2], h[2:])
}

// Sync makes everything written so far survive a power loss.
func (s *Store) Sync() error { return SyncFS(s.dir) }

// SyncFS writes out the file system that holds dir.
func SyncFS(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "sync", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return &os.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

// SameFS says whether both folders lie on one file system.
func SameFS(a, b string) bool {
	var sa, sb unix.Stat_t
	return unix.Stat(a, &sa) == nil && unix.Stat(b, &sb) == nil && sa.Dev == sb.Dev
}

// ErrBadRef: the ref's file holds no object id.
var ErrBadRef = errors.New("the record of the newest checkpoint is damaged")

// Head is the newest checkpoint; false when there is none.
func (s *Store) Head() (ID, bool, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, Ref))
	if errors.Is(err, os.ErrNotExist) {
		return ID{}, false, nil
	}
	if err != nil {
		return ID{}, false, err
	}
	id, err := Parse(string(bytes.TrimSpace(data)))
	if err != nil {
		return ID{}, false, ErrBadRef
	}
	return id, true, nil
}

// SetHead moves the ref, atomically and durably. What it reaches must be synced already.
func (s *Store) SetHead(id ID) error { return s.replace(Ref, []byte(id.String()+"\n")) }

// SetAside renames the damaged ref, so that a new chain can start and nothing is deleted.
func (s *Store) SetAside() error {
	for i := 0; ; i++ {
		to := filepath.Join(s.dir, fmt.Sprintf("damaged-%d", i))
		if _, err := os.Lstat(to); errors.Is(err, os.ErrNotExist) {
			return os.Rename(filepath.Join(s.dir, Ref), to)
		} else if err != nil {
			return err
		}
	}
}

// replace writes a small file of the store atomically and durably.
func (s *Store) replace(name string, data []byte) error {
	f, err := os.CreateTemp(s.dir, "tmp_")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	to := filepath.Join(s.dir, name)
	if err := os.Rename(f.Name(), to); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
