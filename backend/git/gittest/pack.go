package gittest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// RawPack builds packs byte by byte, right or wrong. Offsets are those of the entries.
type RawPack struct {
	Buf     bytes.Buffer
	Offsets []int64
}

// NewRawPack starts a pack that announces count objects.
func NewRawPack(count uint32) *RawPack {
	p := &RawPack{}
	p.Buf.WriteString("PACK")
	_ = binary.Write(&p.Buf, binary.BigEndian, uint32(2))
	_ = binary.Write(&p.Buf, binary.BigEndian, count)
	return p
}

// Entry types.
const (
	TypeCommit = 1
	TypeTree   = 2
	TypeBlob   = 3
	TypeOfs    = 6
	TypeRef    = 7
)

func (p *RawPack) head(typ int, size int64) {
	p.Offsets = append(p.Offsets, int64(p.Buf.Len()))
	c := byte(typ<<4) | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.Buf.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	p.Buf.WriteByte(c)
}

// Deflate writes zlib-compressed bytes.
func (p *RawPack) Deflate(data []byte) {
	z := zlib.NewWriter(&p.Buf)
	_, _ = z.Write(data)
	_ = z.Close()
}

// Object adds a whole object, announcing size (-1: the true one).
func (p *RawPack) Object(typ int, data []byte, size int64) *RawPack {
	if size < 0 {
		size = int64(len(data))
	}
	p.head(typ, size)
	p.Deflate(data)
	return p
}

// Zeros adds a blob of n zero bytes.
func (p *RawPack) Zeros(n int64) *RawPack {
	p.head(TypeBlob, n)
	z := zlib.NewWriter(&p.Buf)
	_, _ = io.CopyN(z, zero{}, n)
	_ = z.Close()
	return p
}

type zero struct{}

func (zero) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Ofs adds an offset delta whose base lies back bytes before it.
func (p *RawPack) Ofs(back int64, delta []byte) *RawPack {
	p.head(TypeOfs, int64(len(delta)))
	var b []byte
	b = append(b, byte(back&0x7f))
	for back >>= 7; back > 0; back >>= 7 {
		back--
		b = append([]byte{0x80 | byte(back&0x7f)}, b...)
	}
	p.Buf.Write(b)
	p.Deflate(delta)
	return p
}

// OfsTo adds an offset delta upon the i-th entry.
func (p *RawPack) OfsTo(i int, delta []byte) *RawPack {
	return p.Ofs(int64(p.Buf.Len())-p.Offsets[i], delta)
}

// Ref adds a delta upon a named object.
func (p *RawPack) Ref(base string, delta []byte) *RawPack {
	p.head(TypeRef, int64(len(delta)))
	raw, _ := hex.DecodeString(base)
	p.Buf.Write(raw)
	p.Deflate(delta)
	return p
}

// Bytes ends the pack with its checksum.
func (p *RawPack) Bytes() []byte {
	sum := sha1.Sum(p.Buf.Bytes())
	return append(bytes.Clone(p.Buf.Bytes()), sum[:]...)
}

// DeltaCopy is a delta that copies n bytes from the start of its base, times times.
func DeltaCopy(baseSize, n int64, times int) []byte {
	b := Varint(nil, baseSize)
	b = Varint(b, n*int64(times))
	for range times {
		for left, off := n, int64(0); left > 0; {
			k := min(left, 0xffffff)
			op := []byte{0x80 | 0x0f | 0x70, byte(off), byte(off >> 8), byte(off >> 16), byte(off >> 24), byte(k), byte(k >> 8), byte(k >> 16)}
			b = append(b, op...)
			left, off = left-k, off+k
		}
	}
	return b
}

// DeltaAppend is a delta that copies its whole base and adds a few bytes.
func DeltaAppend(baseSize int64, add string) []byte {
	b := Varint(nil, baseSize)
	b = Varint(b, baseSize+int64(len(add)))
	for left, off := baseSize, int64(0); left > 0; {
		k := min(left, 0xffffff)
		b = append(b, 0x80|0x0f|0x70, byte(off), byte(off>>8), byte(off>>16), byte(off>>24), byte(k), byte(k>>8), byte(k>>16))
		left, off = left-k, off+k
	}
	b = append(b, byte(len(add)))
	return append(b, add...)
}

// Varint appends a size as deltas hold it.
func Varint(b []byte, v int64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// ID is the name git gives an object.
func ID(typ string, data []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typ, len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// TreeOf is the bytes of a tree.
func TreeOf(entries ...Entry) []byte {
	var b []byte
	for _, e := range entries {
		raw, _ := hex.DecodeString(e.ID)
		b = append(b, e.Mode+" "+e.Name+"\x00"...)
		b = append(b, raw...)
	}
	return b
}

// CommitOf is the bytes of a commit.
func CommitOf(tree string, parents ...string) []byte {
	s := "tree " + tree + "\n"
	for _, p := range parents {
		s += "parent " + p + "\n"
	}
	return []byte(s + "author A <a@example.org> 1700000000 +0000\ncommitter A <a@example.org> 1700000000 +0000\n\nmessage\n")
}

// Seal appends the right checksum to any bytes.
func (*RawPack) Seal(body []byte) []byte {
	sum := sha1.Sum(body)
	return append(bytes.Clone(body), sum[:]...)
}
