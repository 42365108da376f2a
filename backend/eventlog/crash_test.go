package eventlog

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/event"
)

// TestCrash kills a process that appends, again and again, at moments drawn from a
// seed. Every event it was told is stored must be there afterwards, with the bytes
// it had, the chain must hold and no number may be missing.
// EVENTLOG_SOAK=n runs n seeds instead of 4.
func TestCrash(t *testing.T) {
	if dir := os.Getenv("EVENTLOG_CRASH_DIR"); dir != "" {
		crashChild(dir)
	}
	seeds := 4
	if s := os.Getenv("EVENTLOG_SOAK"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	exe, err := os.Executable()
	must(t, err)
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(uint64(seed), 1))
			dir := t.TempDir()
			acked := map[int64]string{} // id -> hash and text
			for round := range 3 {
				cmd := exec.Command(exe, "-test.run=^TestCrash$")
				cmd.Env = append(os.Environ(), "EVENTLOG_CRASH_DIR="+dir)
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				must(t, err)
				must(t, cmd.Start())
				killAfter := 1 + rnd.IntN(400)
				pause := time.Duration(rnd.IntN(3000)) * time.Microsecond
				lines := 0
				for sc := bufio.NewScanner(out); sc.Scan(); {
					id, rest, ok := strings.Cut(sc.Text(), " ")
					n, err := strconv.ParseInt(id, 10, 64)
					if !ok || err != nil || !strings.HasSuffix(rest, ".") {
						continue // cut off by the kill
					}
					acked[n] = strings.TrimSuffix(rest, ".")
					if lines++; lines == killAfter {
						go func() { time.Sleep(pause); _ = cmd.Process.Kill() }()
					}
				}
				_ = cmd.Wait()
				if lines < killAfter {
					t.Fatalf("round %d: the child ended by itself after %d lines", round, lines)
				}
				l, err := Open(dir, Options{})
				must(t, err)
				rep := mustVerify(t, l)
				have := map[int64]string{}
				must(t, l.Fold(context.Background(), Filter{}, func(e event.Envelope) error {
					have[e.ID] = e.Hash + " " + text(t, e)
					return nil
				}))
				for id, want := range acked {
					if have[id] != want {
						t.Fatalf("round %d: event %d was confirmed as %q, the log has %q", round, id, want, have[id])
					}
				}
				if rep.Head.ID != int64(len(have)) {
					t.Fatalf("newest id %d with %d events", rep.Head.ID, len(have))
				}
				must(t, l.Close())
			}
		})
	}
}

func crashChild(dir string) {
	l, err := Open(dir, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 100000 {
				out, err := l.Append(context.Background(), msg(event.Stream(fmt.Sprintf("session:%d", w)), fmt.Sprintf("%d-%d", w, i)), msg("host", strings.Repeat("h", i%700)))
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				for j := range out {
					var m event.Message
					p, err := event.Decode(out[j])
					if err == nil {
						m = *p.(*event.Message)
					}
					fmt.Printf("%d %s %s.\n", out[j].ID, out[j].Hash, m.Text)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	os.Exit(0)
}
