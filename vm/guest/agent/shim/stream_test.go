//go:build linux

package shim

import (
	"bytes"
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
		s, err := newStream(name, limit)
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
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
