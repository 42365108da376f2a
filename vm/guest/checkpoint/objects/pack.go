//go:build linux

package objects

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// maxPack is where a new pack is begun, so that offsets need 31 bits alone.
const maxPack = 1 << 30

type packEntry struct {
	id     ID
	offset uint32
	crc    uint32
}

// packWriter writes packs of whole objects.
type packWriter struct {
	s       *Store
	f       *os.File
	w       *bufio.Writer
	off     int64
	entries []packEntry
	seen    map[ID]bool
}

func newPackWriter(s *Store) (*packWriter, error) {
	p := &packWriter{s: s, seen: map[ID]bool{}}
	return p, p.open()
}

func (p *packWriter) open() error {
	f, err := os.CreateTemp(filepath.Join(p.s.dir, "objects/pack"), "tmp_pack_")
	if err != nil {
		return err
	}
	p.f, p.w, p.off, p.entries = f, bufio.NewWriterSize(f, 256<<10), 12, nil
	// The count is put in at the end.
	_, err = p.w.Write([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"))
	return err
}

var kinds = map[string]byte{"commit": 1, "tree": 2, "blob": 3}

func (p *packWriter) add(id ID, kind string, size int, deflated []byte) error {
	if p.seen[id] {
		return nil
	}
	if p.off > maxPack {
		if err := p.close(); err != nil {
			return err
		}
		if err := p.open(); err != nil {
			return err
		}
	}
	var head []byte
	c := kinds[kind]<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		head = append(head, c|0x80)
		c = byte(size & 0x7f)
	}
	head = append(head, c)
	crc := crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, deflated)
	if _, err := p.w.Write(head); err != nil {
		return err
	}
	if _, err := p.w.Write(deflated); err != nil {
		return err
	}
	p.entries = append(p.entries, packEntry{id, uint32(p.off), crc})
	p.off += int64(len(head) + len(deflated))
	p.seen[id] = true
	return nil
}

func (p *packWriter) finish() error {
	if p.f == nil {
		return nil
	}
	if len(p.entries) == 0 {
		p.abort()
		return nil
	}
	return p.close()
}

func (p *packWriter) abort() {
	if p.f != nil {
		p.f.Close()
		os.Remove(p.f.Name())
		p.f = nil
	}
}

// close completes the present pack and its index.
func (p *packWriter) close() error {
	defer p.abort()
	if err := p.w.Flush(); err != nil {
		return err
	}
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(len(p.entries)))
	if _, err := p.f.WriteAt(count[:], 8); err != nil {
		return err
	}
	if _, err := p.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha1.New()
	if _, err := io.Copy(h, p.f); err != nil {
		return err
	}
	sum := h.Sum(nil)
	if _, err := p.f.Write(sum); err != nil {
		return err
	}
	if err := p.f.Chmod(0o400); err != nil {
		return err
	}
	sort.Slice(p.entries, func(i, j int) bool { return bytes.Compare(p.entries[i].id[:], p.entries[j].id[:]) < 0 })
	idx := indexOf(p.entries, sum)
	base := filepath.Join(p.s.dir, "objects/pack", fmt.Sprintf("pack-%x", sum))
	tmp, err := os.CreateTemp(filepath.Join(p.s.dir, "objects/pack"), "tmp_idx_")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := tmp.Write(idx); err != nil {
		return err
	}
	if err := tmp.Chmod(0o400); err != nil {
		return err
	}
	// The pack first: an index without its pack would be an error to readers.
	if err := os.Rename(p.f.Name(), base+".pack"); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), base+".idx"); err != nil {
		return err
	}
	p.f.Close()
	p.f = nil
	p.s.mu.Lock()
	// A new slice: Has reads the old one without the lock.
	p.s.packs = append(append([]*packIndex(nil), p.s.packs...), &packIndex{idx})
	p.s.mu.Unlock()
	return nil
}

const idxHead = 8 + 256*4

// indexOf is a version 2 pack index.
func indexOf(entries []packEntry, pack []byte) []byte {
	out := make([]byte, 0, idxHead+len(entries)*28+40)
	out = append(out, "\377tOc\x00\x00\x00\x02"...)
	n := 0
	for b := range 256 {
		for n < len(entries) && int(entries[n].id[0]) <= b {
			n++
		}
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	for _, e := range entries {
		out = append(out, e.id[:]...)
	}
	for _, e := range entries {
		out = binary.BigEndian.AppendUint32(out, e.crc)
	}
	for _, e := range entries {
		out = binary.BigEndian.AppendUint32(out, e.offset)
	}
	out = append(out, pack...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// packIndex answers which objects a pack holds.
type packIndex struct{ data []byte }

func readPackIndex(name string) (*packIndex, error) {
	if _, err := os.Stat(name[:len(name)-len(".idx")] + ".pack"); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(data) < idxHead+40 || string(data[:8]) != "\377tOc\x00\x00\x00\x02" {
		return nil, errors.New("not a pack index")
	}
	n := int(binary.BigEndian.Uint32(data[idxHead-4:]))
	sum := sha1.Sum(data[:len(data)-20])
	if len(data) < idxHead+n*28+40 || !bytes.Equal(sum[:], data[len(data)-20:]) {
		return nil, errors.New("damaged pack index")
	}
	return &packIndex{data}, nil
}

func (p *packIndex) has(id ID) bool {
	lo := 0
	if id[0] > 0 {
		lo = int(binary.BigEndian.Uint32(p.data[8+4*(int(id[0])-1):]))
	}
	hi := int(binary.BigEndian.Uint32(p.data[8+4*int(id[0]):]))
	at := func(i int) []byte { return p.data[idxHead+20*i : idxHead+20*i+20] }
	i := lo + sort.Search(hi-lo, func(i int) bool { return bytes.Compare(at(lo+i), id[:]) >= 0 })
	return i < hi && bytes.Equal(at(i), id[:])
}
