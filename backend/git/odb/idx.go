package odb

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"sync"
)

// index is one pack's version 2 index, held as the bytes of its file.
type index struct {
	n      int
	fanout [256]uint32
	names  []byte // n × 20
	off32  []byte // n × 4
	off64  []byte

	once    sync.Once
	byOff   []uint32 // entry numbers in order of offset
	offsets []int64  // of the same
}

var idxMagic = []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}

// maxIndex bounds the size of an index file that is read into memory.
const maxIndex = 2 << 30

func readIndex(path string) (*index, error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	bad := func(why string) (*index, error) { return nil, fmt.Errorf("%w: its index %s", ErrCorrupt, why) }
	if fi.Size() > maxIndex {
		return bad("is too large")
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	if len(data) < 8+1024+40 || !bytes.Equal(data[:8], idxMagic) {
		return bad("is not of version 2; 'git repack -ad' in that repository writes a new one")
	}
	x := &index{}
	prev := uint32(0)
	for i := range x.fanout {
		v := binary.BigEndian.Uint32(data[8+4*i:])
		if v < prev {
			return bad("has counts that go down")
		}
		x.fanout[i], prev = v, v
	}
	x.n = int(x.fanout[255])
	rest := data[8+1024 : len(data)-40]
	if int64(x.n)*28 > int64(len(rest)) || (len(rest)-x.n*28)%8 != 0 {
		return bad("is cut short")
	}
	x.names, rest = rest[:x.n*20], rest[x.n*20:]
	rest = rest[x.n*4:] // CRC32 values: the pack's own hashes are what is checked
	x.off32, x.off64 = rest[:x.n*4], rest[x.n*4:]
	return x, nil
}

func (x *index) id(i int) (id ID) {
	copy(id[:], x.names[i*20:])
	return id
}

func (x *index) offset(i int) (int64, error) {
	v := binary.BigEndian.Uint32(x.off32[i*4:])
	if v&0x80000000 == 0 {
		return int64(v), nil
	}
	k := int(v&0x7fffffff) * 8
	if k+8 > len(x.off64) {
		return 0, fmt.Errorf("%w: an offset outside the index", ErrCorrupt)
	}
	o := binary.BigEndian.Uint64(x.off64[k:])
	if o > math.MaxInt64 {
		return 0, fmt.Errorf("%w: an offset outside the pack", ErrCorrupt)
	}
	return int64(o), nil
}

func (x *index) find(id ID) (int64, bool, error) {
	lo := 0
	if id[0] > 0 {
		lo = int(x.fanout[id[0]-1])
	}
	hi := int(x.fanout[id[0]])
	i := lo + sort.Search(hi-lo, func(i int) bool {
		return bytes.Compare(x.names[(lo+i)*20:(lo+i)*20+20], id[:]) >= 0
	})
	if i >= hi || !bytes.Equal(x.names[i*20:i*20+20], id[:]) {
		return 0, false, nil
	}
	off, err := x.offset(i)
	return off, err == nil, err
}

// order sorts the entries by offset, once.
func (x *index) order() {
	x.once.Do(func() {
		x.byOff = make([]uint32, x.n)
		offs := make([]int64, x.n)
		for i := range x.byOff {
			x.byOff[i] = uint32(i)
			offs[i], _ = x.offset(i)
		}
		sort.Slice(x.byOff, func(a, b int) bool { return offs[x.byOff[a]] < offs[x.byOff[b]] })
		x.offsets = make([]int64, x.n)
		for k, i := range x.byOff {
			x.offsets[k] = offs[i]
		}
	})
}

// idAt returns the id of the entry that starts at off.
func (x *index) idAt(off int64) (ID, bool) {
	x.order()
	k := sort.Search(len(x.offsets), func(k int) bool { return x.offsets[k] >= off })
	if k == len(x.offsets) || x.offsets[k] != off {
		return ID{}, false
	}
	return x.id(int(x.byOff[k])), true
}

// after returns where the entry behind off starts, or end.
func (x *index) after(off, end int64) int64 {
	x.order()
	k := sort.Search(len(x.offsets), func(k int) bool { return x.offsets[k] > off })
	if k == len(x.offsets) {
		return end
	}
	return x.offsets[k]
}

// IndexEntry is one object of a pack whose index is to be written.
type IndexEntry struct {
	ID     ID
	Offset int64
	CRC    uint32
}

// WriteIndex writes a version 2 index; entries are sorted in place.
func WriteIndex(f *os.File, entries []IndexEntry, packSum []byte) error {
	sort.Slice(entries, func(i, j int) bool { return bytes.Compare(entries[i].ID[:], entries[j].ID[:]) < 0 })
	sum := sha1.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<18)
	_, _ = w.Write(idxMagic)
	var b [8]byte
	k := 0
	for first := range 256 {
		for k < len(entries) && int(entries[k].ID[0]) <= first {
			k++
		}
		_, _ = w.Write(binary.BigEndian.AppendUint32(b[:0], uint32(k)))
	}
	for i := range entries {
		_, _ = w.Write(entries[i].ID[:])
	}
	for i := range entries {
		_, _ = w.Write(binary.BigEndian.AppendUint32(b[:0], entries[i].CRC))
	}
	var large []int64
	for i := range entries {
		o := entries[i].Offset
		v := uint32(o)
		if o >= 1<<31 {
			v = 0x80000000 | uint32(len(large))
			large = append(large, o)
		}
		_, _ = w.Write(binary.BigEndian.AppendUint32(b[:0], v))
	}
	for _, o := range large {
		_, _ = w.Write(binary.BigEndian.AppendUint64(b[:0], uint64(o)))
	}
	_, _ = w.Write(packSum)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := f.Write(sum.Sum(nil))
	return err
}
