// Package odb reads and writes git objects in object directories: packs and
// loose files, nothing else. It knows no configuration, no references, no work
// tree and follows no alternates of its own; which directories are read is the
// caller's choice. Everything it reads may be hostile: sizes are checked before
// memory is taken, delta chains are bounded, and a wrong byte is an error.
//
// A Store is safe for concurrent use. It sees the packs that were there when it
// was opened.
package odb

import (
	"bufio"
	"compress/zlib"
	"container/list"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// ID names an object by its SHA-1 (computed with collision detection).
type ID = plumbing.Hash

// Type of an object; the two deltas only occur inside packs.
type Type uint8

const (
	Commit   Type = 1
	Tree     Type = 2
	Blob     Type = 3
	Tag      Type = 4
	OfsDelta Type = 6
	RefDelta Type = 7
)

func (t Type) String() string {
	switch t {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// ParseID reads 40 lower-case hexadecimal characters.
func ParseID(s string) (ID, error) {
	if len(s) != 40 {
		return ID{}, fmt.Errorf("%q is not an object id: it needs 40 hexadecimal characters", clip(s, 64))
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ID{}, fmt.Errorf("%q is not an object id: it needs 40 hexadecimal characters", clip(s, 64))
		}
	}
	return plumbing.NewHash(s), nil
}

// Hash computes the id of an object.
func Hash(t Type, data []byte) ID {
	return plumbing.ComputeHash(plumbing.ObjectType(t), data)
}

// NewHasher hashes an object of a known size piece by piece.
func NewHasher(t Type, size int64) plumbing.Hasher {
	return plumbing.NewHasher(plumbing.ObjectType(t), size)
}

var (
	// ErrNotFound: no such object in the directories that were opened.
	ErrNotFound = errors.New("no such object")
	// ErrTooLarge: the object is past the limit the caller gave.
	ErrTooLarge = errors.New("object too large")
	// ErrCorrupt: the bytes on disk or in the pack are not what they must be.
	ErrCorrupt = errors.New("corrupt object data")
)

// MaxChain bounds the length of a delta chain; git itself writes at most 4,095.
const MaxChain = 4096

// MaxContent is the most that is ever held in memory as one object, 512 MiB.
const MaxContent = 512 << 20

const cacheBytes = 48 << 20

// Store reads objects.
type Store struct {
	dirs  []string
	packs []*pack
	cache objectCache
}

type pack struct {
	path string
	f    *os.File
	size int64
	idx  *index
}

// Open opens the object directories ("…/objects") in order of preference.
func Open(dirs ...string) (*Store, error) {
	s := &Store{dirs: dirs}
	for _, d := range dirs {
		if err := s.openPacks(filepath.Join(d, "pack")); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) openPacks(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the packs in %s: %w", dir, err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".idx")
		if !ok || !strings.HasPrefix(name, "pack-") {
			continue
		}
		p, err := openPack(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // an index without its pack, or one that was repacked away
		}
		if err != nil {
			return fmt.Errorf("opening %s.pack: %w", filepath.Join(dir, name), err)
		}
		s.packs = append(s.packs, p)
	}
	return nil
}

func openPack(base string) (*pack, error) {
	f, err := OpenRegular(base + ".pack")
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	idx, err := readIndex(base + ".idx")
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &pack{path: base + ".pack", f: f, size: fi.Size(), idx: idx}, nil
}

// Close releases the open packs.
func (s *Store) Close() error {
	var first error
	for _, p := range s.packs {
		if err := p.f.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Packs counts the packs the store has open.
func (s *Store) Packs() int { return len(s.packs) }

// location is where an object lies: in a pack, or (pack nil) loose at path.
type location struct {
	pack *pack
	off  int64
	path string
}

func (s *Store) find(id ID) (location, error) {
	for _, p := range s.packs {
		if off, ok, err := p.idx.find(id); err != nil {
			return location{}, err
		} else if ok {
			return location{pack: p, off: off}, nil
		}
	}
	h := id.String()
	for _, d := range s.dirs {
		path := filepath.Join(d, h[:2], h[2:])
		if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
			return location{path: path}, nil
		}
	}
	return location{}, fmt.Errorf("%w: %s", ErrNotFound, h)
}

// Has reports whether an object is there.
func (s *Store) Has(id ID) bool {
	_, err := s.find(id)
	return err == nil
}

// Info returns an object's type and size without reading its content.
func (s *Store) Info(id ID) (Type, int64, error) {
	loc, err := s.find(id)
	if err != nil {
		return 0, 0, err
	}
	var t Type
	var size int64
	if loc.pack == nil {
		t, size, err = looseInfo(loc.path)
	} else {
		t, size, err = loc.pack.info(s, loc.off)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("object %s: %w", id, err)
	}
	return t, size, nil
}

// Read returns an object's type and content; ErrTooLarge past max bytes (0 = MaxContent).
// The content must not be changed: it may be shared with the cache.
func (s *Store) Read(id ID, max int64) (Type, []byte, error) {
	if max <= 0 || max > MaxContent {
		max = MaxContent
	}
	loc, err := s.find(id)
	if err != nil {
		return 0, nil, err
	}
	var t Type
	var data []byte
	if loc.pack == nil {
		t, data, err = readLoose(loc.path, max)
	} else {
		t, data, err = loc.pack.read(s, loc.off, max)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("object %s: %w", id, err)
	}
	return t, data, nil
}

// ReadAs is Read of an object that must be of a type.
func (s *Store) ReadAs(id ID, want Type, max int64) ([]byte, error) {
	t, data, err := s.Read(id, max)
	if err != nil {
		return nil, err
	}
	if t != want {
		return nil, fmt.Errorf("object %s is a %s, not a %s", id, t, want)
	}
	return data, nil
}

// OpenRegular opens a regular file for reading without following a final
// link and without waiting on a pipe or device that stands in its place.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// looseHeader reads "type size\0" from an opened loose object.
func looseHeader(r *bufio.Reader) (Type, int64, error) {
	var word []byte
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, 0, fmt.Errorf("%w: short header", ErrCorrupt)
		}
		if c == 0 {
			break
		}
		if word = append(word, c); len(word) > 32 {
			return 0, 0, fmt.Errorf("%w: endless header", ErrCorrupt)
		}
	}
	name, num, ok := strings.Cut(string(word), " ")
	var t Type
	switch name {
	case "commit":
		t = Commit
	case "tree":
		t = Tree
	case "blob":
		t = Blob
	case "tag":
		t = Tag
	}
	size := int64(0)
	for _, c := range num {
		if c < '0' || c > '9' || size > 1<<50 {
			ok = false
			break
		}
		size = size*10 + int64(c-'0')
	}
	if !ok || t == 0 || num == "" {
		return 0, 0, fmt.Errorf("%w: bad header %q", ErrCorrupt, clip(string(word), 40))
	}
	return t, size, nil
}

func openLoose(path string) (*os.File, *bufio.Reader, Type, int64, error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, nil, 0, 0, err
	}
	z, err := zlib.NewReader(bufio.NewReader(f))
	if err != nil {
		_ = f.Close()
		return nil, nil, 0, 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	r := bufio.NewReader(z)
	t, size, err := looseHeader(r)
	if err != nil {
		_ = f.Close()
		return nil, nil, 0, 0, err
	}
	return f, r, t, size, nil
}

func looseInfo(path string) (Type, int64, error) {
	f, _, t, size, err := openLoose(path)
	if err == nil {
		_ = f.Close()
	}
	return t, size, err
}

func readLoose(path string, max int64) (Type, []byte, error) {
	f, r, t, size, err := openLoose(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	if size > max {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, size, max)
	}
	data, err := readExactly(r, size)
	return t, data, err
}

// readExactly reads size bytes and requires the end there. Memory grows with
// what really comes, not with what was announced.
func readExactly(r io.Reader, size int64) ([]byte, error) {
	var buf []byte
	if size <= 1<<20 {
		buf = make([]byte, size)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	} else {
		got, err := io.ReadAll(io.LimitReader(r, size))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if int64(len(got)) != size {
			return nil, fmt.Errorf("%w: %d bytes where %d were announced", ErrCorrupt, len(got), size)
		}
		buf = got
	}
	var one [1]byte
	if n, err := r.Read(one[:]); n != 0 {
		return nil, fmt.Errorf("%w: longer than announced", ErrCorrupt)
	} else if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return buf, nil
}

// objectCache keeps recently inflated pack entries: bases of deltas are read again and again.
type objectCache struct {
	mu   sync.Mutex
	size int64
	lru  list.List
	m    map[cacheKey]*list.Element
}

type cacheKey struct {
	p   *pack
	off int64
}

type cacheEntry struct {
	key  cacheKey
	t    Type
	data []byte
}

func (c *objectCache) get(k cacheKey) (Type, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[k]
	if !ok {
		return 0, nil, false
	}
	c.lru.MoveToFront(e)
	ce := e.Value.(*cacheEntry)
	return ce.t, ce.data, true
}

func (c *objectCache) put(k cacheKey, t Type, data []byte) {
	if int64(len(data)) > cacheBytes/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.m[k]; ok {
		return
	}
	if c.m == nil {
		c.m = map[cacheKey]*list.Element{}
	}
	c.m[k] = c.lru.PushFront(&cacheEntry{k, t, data})
	c.size += int64(len(data))
	for c.size > cacheBytes {
		last := c.lru.Back()
		ce := last.Value.(*cacheEntry)
		c.size -= int64(len(ce.data))
		delete(c.m, ce.key)
		c.lru.Remove(last)
	}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// Verify reads every object of the store's packs and compares its hash with its name.
func (s *Store) Verify() error {
	for _, p := range s.packs {
		for i := range p.idx.n {
			off, err := p.idx.offset(i)
			if err != nil {
				return err
			}
			t, data, err := p.read(s, off, MaxContent)
			if err != nil {
				return err
			}
			if id := p.idx.id(i); Hash(t, data) != id {
				return fmt.Errorf("%w: %s holds other bytes", ErrCorrupt, id)
			}
		}
	}
	return nil
}
