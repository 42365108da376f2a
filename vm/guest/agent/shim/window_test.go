//go:build linux

package shim

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"glasshouse/vm/guest/agent/journal"
)

// Whatever the pieces, the newest bytes of a window are there at their offsets, and
// what is on the disk has a bound.
func TestWindowKeepsTheNewest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		dir := t.TempDir()
		size := 8192 + rng.Int64N(100_000)
		s := newWindow(dir, size)
		var all []byte
		for k := rng.IntN(60); k >= 0; k-- {
			p := make([]byte, rng.IntN(1<<uint(1+rng.IntN(17))))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			s.add(p)
			all = append(all, p...)
			if s.kept.Load() != int64(len(all)) {
				t.Fatalf("%d bytes came, %d are told", len(all), s.kept.Load())
			}
		}
		if e := s.seal(); e.Total != int64(len(all)) || e.Dropped != 0 || e.Tail != nil {
			t.Fatalf("%d bytes came: %+v", len(all), e)
		}
		seg := journal.SegmentSize(size)
		last := int64(len(all)-1) / seg
		if len(all) == 0 {
			continue
		}
		first, err := journal.FirstSegment(dir, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var kept []byte
		for k := first; k <= last; k++ {
			b, err := os.ReadFile(journal.SegmentFile(dir, 0, k))
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, b...)
		}
		if !bytes.Equal(kept, all[first*seg:]) || int64(len(kept)) < min(size-1, int64(len(all))) || int64(len(kept)) > 3*seg {
			t.Fatalf("kept %d of %d from segment %d of %d, window %d", len(kept), len(all), first, seg, size)
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 3 {
			t.Fatalf("%d segments are left", len(files))
		}
	}
}
