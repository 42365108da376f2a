package eventlog

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// 400-byte payloads, synchronous=FULL. p50 is of one Append as the caller sees it.
func BenchmarkAppendAlone(b *testing.B) {
	l := openTest(b, b.TempDir())
	text := strings.Repeat("x", 400)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		t := time.Now()
		if _, err := l.Append(context.Background(), msg("session:a", text)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
}

// 64 goroutines append at once and share transactions.
func BenchmarkAppendGroup(b *testing.B) {
	l := openTest(b, b.TempDir())
	text := strings.Repeat("x", 400)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.Append(context.Background(), msg("session:a", text)); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
