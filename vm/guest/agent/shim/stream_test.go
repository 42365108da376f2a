//go:build linux

package shim

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"glasshouse/vm/guest"
)

// Whatever the pieces, what is kept, dropped and left in the tail make up the stream.
func TestStreamAddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < 60; n++ {
		name := filepath.Join(t.TempDir(), "s")
		limit := rng.Int64N(200_000)
		s := newStream(name, limit)
		var all []byte
		for k := rng.IntN(40); k >= 0; k-- {
			p := make([]byte, rng.IntN(1<<uint(rng.IntN(18))))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			s.add(p)
			all = append(all, p...)
		}
		e := s.seal()
		s.add([]byte("after the end"))
		kept, err := os.ReadFile(name)
		if err != nil && (!errors.Is(err, fs.ErrNotExist) || len(all) > 0 && limit > 0) {
			t.Fatal(err)
		}
		if int64(len(kept)) != min(limit, int64(len(all))) || !bytes.Equal(kept, all[:len(kept)]) {
			t.Fatalf("kept %d of %d, limit %d", len(kept), len(all), limit)
		}
		if e.Total != int64(len(all)) || int64(len(kept))+e.Dropped+int64(len(e.Tail)) != e.Total || !bytes.HasSuffix(all, e.Tail) {
			t.Fatalf("%d kept, %d dropped, %d tail of %d", len(kept), e.Dropped, len(e.Tail), e.Total)
		}
		if want := min(guest.TailBytes, len(all)-len(kept)); len(e.Tail) != want {
			t.Fatalf("tail of %d, want %d", len(e.Tail), want)
		}
	}
}

// A stream without output leaves no file, and one with output does not need a
// place to be there before.
func TestStreamMakesItsFileLate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "later", "s")
	s := newStream(name, 100)
	if e := s.seal(); e.Total != 0 || e.Dropped != 0 || e.Tail != nil {
		t.Fatalf("%+v", e)
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the file of an empty stream: %v", err)
	}
	s = newStream(name, 100) // its folder is missing: only the tail can be kept
	s.add([]byte("abc"))
	if e := s.seal(); e.Total != 3 || string(e.Tail) != "abc" || e.Dropped != 0 {
		t.Fatalf("%+v", e)
	}
}

// What a command wrote is there at its end, whether its pipe was read by then or not, and
// while another process holds it.
func TestStreamSealsWhatIsWritten(t *testing.T) {
	for n := 0; n < 300; n++ {
		dir := t.TempDir()
		s := newStream(filepath.Join(dir, "s"), 1<<20)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.of(r); err != nil {
			t.Fatal(err)
		}
		read := n%3 > 0
		if read {
			go s.pump(r, func() {})
		}
		said := bytes.Repeat([]byte("said "), 1+n*40)
		if _, err := w.Write(said); err != nil {
			t.Fatal(err)
		}
		e := s.seal()
		if _, err := w.WriteString("later"); err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(filepath.Join(dir, "s")); err != nil || e.Total != int64(len(said)) || !bytes.Equal(kept, said) {
			t.Fatalf("round %d: of %d bytes %d were counted, %d kept (%v)", n, len(said), e.Total, len(kept), err)
		}
		w.Close()
		if read {
			<-s.done
		}
		r.Close()
	}
}

// A full disk keeps the tail and blocks nobody.
func TestStreamFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v", err)
	}
	s := &stream{limit: 1 << 20, file: f, done: make(chan struct{})}
	s.add([]byte("abc"))
	s.add([]byte("def"))
	if e := s.seal(); e.Total != 6 || string(e.Tail) != "abcdef" || e.Dropped != 0 {
		t.Fatalf("%+v", e)
	}
}
