//go:build linux

package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"glasshouse/vm/guest/checkpoint/objects"
)

// The state file spares guestd from reading the whole workspace again after it
// was restarted. It may be old or missing: its entries pair a stat with a blob
// that is in the store, and a walk follows. So it is not synced.
const (
	stateName  = "state"
	stateMagic = "glasshouse checkpoint state 1\n"
)

var errState = errors.New("damaged state")

func saveState(dir string, x *index) error {
	var out bytes.Buffer
	out.WriteString(stateMagic)
	var num []byte
	u := func(v uint64) { num = binary.AppendUvarint(num[:0], v); out.Write(num) }
	i := func(v int64) { num = binary.AppendVarint(num[:0], v); out.Write(num) }
	u(uint64(x.count))
	x.each(func(rel string, e *entry) {
		u(uint64(len(rel)))
		out.WriteString(rel)
		out.Write(e.id[:])
		u(uint64(e.mode))
		u(uint64(e.st.Mode))
		i(e.st.Size)
		i(e.st.Mtime)
		i(e.st.Ctime)
		u(e.st.Ino)
		if e.racy {
			out.WriteByte(1)
		} else {
			out.WriteByte(0)
		}
	})
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	tmp := filepath.Join(dir, "tmp_state")
	if err := os.WriteFile(tmp, out.Bytes(), 0o600); err != nil {
		os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, stateName))
}

func loadState(dir string) (*index, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil {
		return nil, err
	}
	n := len(data) - sha256.Size
	if n < len(stateMagic) || string(data[:len(stateMagic)]) != stateMagic {
		return nil, errState
	}
	if sum := sha256.Sum256(data[:n]); !bytes.Equal(sum[:], data[n:]) {
		return nil, errState
	}
	r := bytes.NewReader(data[len(stateMagic):n])
	var bad error
	u := func() uint64 {
		v, err := binary.ReadUvarint(r)
		if err != nil {
			bad = errState
		}
		return v
	}
	i := func() int64 {
		v, err := binary.ReadVarint(r)
		if err != nil {
			bad = errState
		}
		return v
	}
	x := newIndex()
	for count := u(); count > 0 && bad == nil; count-- {
		size := u()
		if size == 0 || size > uint64(r.Len()) {
			return nil, errState
		}
		rel := make([]byte, size)
		if _, err := io.ReadFull(r, rel); err != nil {
			return nil, errState
		}
		var e entry
		if n, _ := r.Read(e.id[:]); n != len(objects.ID{}) {
			return nil, errState
		}
		e.mode = uint32(u())
		e.st.Mode = uint32(u())
		e.st.Size, e.st.Mtime, e.st.Ctime = i(), i(), i()
		e.st.Ino = u()
		racy, err := r.ReadByte()
		if err != nil {
			return nil, errState
		}
		e.racy = racy != 0
		x.set(string(rel), e)
	}
	if bad != nil {
		return nil, bad
	}
	x.before = map[string]value{}
	return x, nil
}
