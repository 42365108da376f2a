//go:build linux

package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/watch"
)

// benchTree makes files of about 6 kB in folders of 20.
func benchTree(b *testing.B, ws string, files int) {
	b.Helper()
	data := make([]byte, 6000)
	for i := range files {
		for j := range data {
			data[j] = "abcdefgh \n"[(i*7+j*j/3+j)%10]
		}
		name := fmt.Sprintf("%s/d%d/e%d/f%d.txt", ws, i/400, i/20%20, i)
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, append(fmt.Appendf(nil, "%d\n", i), data...), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	for _, files := range []int{1_000, 13_000} {
		ws := b.TempDir()
		benchTree(b, ws, files)
		w := watch.New(watch.Options{Root: ws})
		go w.Run(b.Context())
		take := func(c *Checkpoints, full bool) {
			if _, err := c.Take(bg, guest.CheckpointRequest{Full: full}); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("first/%d", files), func(b *testing.B) {
			for range b.N {
				take(New(Options{Root: ws, Shadow: b.TempDir()}), true)
			}
		})
		for d, _ := w.Barrier(bg); d.All; d, _ = w.Barrier(bg) {
		}
		c := New(Options{Root: ws, Shadow: b.TempDir(), Watcher: w})
		take(c, true)
		b.Run(fmt.Sprintf("nothing/%d", files), func(b *testing.B) {
			for range b.N {
				take(c, false)
			}
		})
		b.Run(fmt.Sprintf("full/%d", files), func(b *testing.B) {
			for range b.N {
				take(c, true)
			}
		})
		b.Run(fmt.Sprintf("one/%d", files), func(b *testing.B) {
			for i := range b.N {
				os.WriteFile(ws+"/d0/e0/f0.txt", fmt.Appendf(nil, "%d %d\n", i, b.N), 0o644)
				take(c, false)
			}
		})
	}
}
