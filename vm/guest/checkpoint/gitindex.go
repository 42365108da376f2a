//go:build linux

package checkpoint

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
)

// errIndex: the index is of a kind that only git can read (split, sha256, newer).
var errIndex = errors.New("git's index cannot be read here")

// indexPaths returns the files that a git index names.
func indexPaths(data []byte) ([]string, error) {
	if len(data) < 12+20 || string(data[:4]) != "DIRC" {
		return nil, errIndex
	}
	version := binary.BigEndian.Uint32(data[4:])
	count := int(binary.BigEndian.Uint32(data[8:]))
	end := len(data) - sha1.Size
	sum := sha1.Sum(data[:end])
	trailer := data[end:]
	if version < 2 || version > 4 || (!bytes.Equal(sum[:], trailer) && !bytes.Equal(trailer, make([]byte, sha1.Size))) {
		return nil, errIndex
	}
	if count > end/62 {
		return nil, errIndex
	}
	out := make([]string, 0, count)
	at := 12
	var prev []byte
	for range count {
		start := at
		if at+62 > end {
			return nil, errIndex
		}
		mode := binary.BigEndian.Uint32(data[at+24:])
		flags := binary.BigEndian.Uint16(data[at+60:])
		at += 62
		if flags&0x4000 != 0 {
			at += 2
		}
		var name []byte
		if version == 4 {
			strip, n := varint(data[at:end])
			if n == 0 || strip > len(prev) {
				return nil, errIndex
			}
			at += n
			stop := bytes.IndexByte(data[at:end], 0)
			if stop < 0 {
				return nil, errIndex
			}
			name = append(append([]byte(nil), prev[:len(prev)-strip]...), data[at:at+stop]...)
			at += stop + 1
			prev = name
		} else {
			if at > end {
				return nil, errIndex
			}
			stop := bytes.IndexByte(data[at:end], 0)
			if stop < 0 {
				return nil, errIndex
			}
			name = data[at : at+stop]
			at = start + (at-start+stop+8)/8*8
		}
		switch fileType(mode) {
		case 0o100000, 0o120000:
			out = append(out, string(name))
		}
	}
	for at+8 <= end {
		if string(data[at:at+4]) == "link" {
			return nil, errIndex // a split index: the rest lies in another file
		}
		at += 8 + int(binary.BigEndian.Uint32(data[at+4:]))
	}
	return out, nil
}

// varint is the offset encoding of index version 4; n = 0 when it is damaged.
func varint(b []byte) (v, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		if n > 0 {
			v++
		}
		v = v<<7 | int(c&0x7f)
		n++
		if c&0x80 == 0 {
			return v, n
		}
	}
	return 0, 0
}
