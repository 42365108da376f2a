package vmtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"runtime"
	"strconv"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func itoa(n int) string { return strconv.Itoa(n) }

// heapAllowance is how much the host's heap may grow while a guest floods it.
const heapAllowance = 96 << 20

// output: whatever a command writes, the host keeps what it asked for and counts the rest.
func (s *suite) output(t *testing.T) {
	g := s.open(t)
	s.sub(t, "bytes", func(t *testing.T) {
		// All 256 values, 4096 times: nothing is changed on the way.
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		want := bytes.Repeat(all, 4096)
		r := s.run(t, g, guest.ExecSpec{Argv: []string{"python3", "-c", "import os\nb=bytes(range(256))*4096\nn=0\nwhile n<len(b): n+=os.write(1,b[n:])"}})
		if !bytes.Equal(r.stdout, want) {
			t.Fatalf("%d bytes came, sum %s, want %d, sum %s", len(r.stdout), sum(r.stdout), len(want), sum(want))
		}
	})
	for _, c := range []struct{ name, script string }{
		{"yes", "yes"},
		{"no-newline", "tr '\\0' x </dev/zero"},
		{"invalid-utf8", "tr '\\0' '\\377' </dev/zero"},
		{"stderr", "yes >&2"},
	} {
		s.sub(t, "flood-"+c.name, func(t *testing.T) {
			const total, limit = 64 << 20, 256 << 10
			script := "set +o pipefail; " + c.script + " | head -c " + itoa(total)
			errs := c.name == "stderr"
			if errs {
				script = "{ yes | head -c " + itoa(total) + "; } >&2"
			}
			peak := watchHeap(t)
			r := s.run(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", script}, OutputLimit: limit})
			if grown := peak(); grown > heapAllowance {
				t.Errorf("the host's heap grew by %d MiB", grown>>20)
			}
			kept, end := r.stdout, r.exit.Stdout
			if errs {
				kept, end = r.stderr, r.exit.Stderr
			}
			if r.exit.Code != 0 {
				t.Errorf("exit: %+v", r.exit.Code)
			}
			if len(kept) != limit || end.Total != total || len(end.Tail) != guest.TailBytes ||
				end.Dropped != total-limit-guest.TailBytes {
				t.Errorf("kept %d, total %d, dropped %d, tail %d", len(kept), end.Total, end.Dropped, len(end.Tail))
			}
		})
	}
	s.sub(t, "tail", func(t *testing.T) {
		r := s.run(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "seq 1 200000; echo the very end"}, OutputLimit: 4096})
		if !bytes.HasSuffix(r.exit.Stdout.Tail, []byte("200000\nthe very end\n")) || !bytes.HasPrefix(r.stdout, []byte("1\n2\n")) {
			t.Fatalf("%v", r)
		}
	})
	// A reader that does not read holds up its own command and nothing else.
	s.sub(t, "slow-reader", func(t *testing.T) {
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "yes | head -c 20000000"}, OutputLimit: 32 << 20})
		peak := watchHeap(t)
		for range 20 {
			if r := s.run(t, g, guest.ExecSpec{Argv: []string{"echo", "on"}}); r.out() != "on\n" {
				t.Fatalf("beside a reader that does not read: %v", r)
			}
		}
		r := s.collect(t, p)
		if len(r.stdout) != 20_000_000 || r.exit.Stdout.Dropped != 0 {
			t.Errorf("%d bytes came, %+v", len(r.stdout), r.exit.Stdout.Dropped)
		}
		if grown := peak(); grown > heapAllowance+64<<20 { // what we keep ourselves, and its growth
			t.Errorf("the host's heap grew by %d MiB", grown>>20)
		}
	})
	s.sub(t, "after-close", func(t *testing.T) {
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "yes | head -c 3000000; echo; echo finished"}})
		must(t, p.Close())
		r := s.attach(t, g, p.ID(), 0, 0)
		if len(r.stdout) != 3_000_010 || r.exit.Code != 0 {
			t.Fatalf("detached and attached again: %d bytes, %+v", len(r.stdout), r.exit)
		}
	})
}

// watchHeap measures by how much the heap grows until the returned function is called.
func watchHeap(t testing.TB) (peak func() int64) {
	t.Helper()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	base, top := int64(ms.HeapAlloc), int64(ms.HeapAlloc)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				var ms runtime.MemStats
				runtime.ReadMemStats(&ms)
				top = max(top, int64(ms.HeapAlloc))
			}
		}
	}()
	called := false
	finish := func() int64 {
		if !called {
			called = true
			close(stop)
			<-done
		}
		return top - base
	}
	t.Cleanup(func() { finish() })
	return finish
}

// attach joins an execution and collects it.
func (s *suite) attach(t testing.TB, g guest.Guest, id string, stdout, stderr int64) result {
	t.Helper()
	p, err := g.Execs().Attach(s.ctx(t), id, stdout, stderr)
	if err != nil {
		t.Fatalf("attach to %s: %v", id, err)
	}
	defer closeQuietly(p)
	r, err := drainFrom(p, stdout, stderr)
	if err != nil && err != io.EOF {
		t.Fatalf("attached to %s: %v", id, err)
	}
	return r
}
