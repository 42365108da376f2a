package runas

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// slow takes its time over the first piece, as a reader does that writes files on a
// slow disk.
type slow struct {
	got  bytes.Buffer
	wait time.Duration
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(s.wait)
	s.wait = 0
	return s.got.Write(p)
}

func run(t *testing.T, stdout io.Writer, script string) error {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute) // a hang guard
	defer stop()
	err := User(-1, -1)(ctx, []string{"sh", "-c", script}, []string{"PATH=/usr/bin:/bin"}, "/", nil, stdout, nil)
	if ctx.Err() != nil {
		t.Fatalf("%q hangs", script)
	}
	return err
}

// A program that has ended loses nothing of its output to a reader that is slower than
// the time a child may hold it open.
func TestSlowReaderGetsAll(t *testing.T) {
	out := &slow{wait: held + held/2}
	if err := run(t, out, "head -c 60000 /dev/zero; echo end"); err != nil {
		t.Fatal(err)
	}
	if n := out.got.Len(); n != 60004 || !strings.HasSuffix(out.got.String(), "end\n") {
		t.Errorf("%d bytes of 60004", n)
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

// A reader that wants no more ends a program that would never end.
func TestReaderThatStops(t *testing.T) {
	if err := run(t, full{}, "exec cat /dev/zero"); err == nil {
		t.Error("no error")
	}
	if err := run(t, full{}, "echo x"); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

// When the caller has no time any more, a program is ended however much it writes.
func TestEndedWhileItWrites(t *testing.T) {
	ctx, stop := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	r, w := io.Pipe()
	go func() {
		_, _ = io.ReadFull(r, make([]byte, 1000))
		stop(why) // and nothing is read any more
	}()
	err := User(-1, -1)(ctx, []string{"cat", "/dev/zero"}, []string{"PATH=/usr/bin:/bin"}, "/", nil, w, nil)
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	r.Close()
}

// A child left behind that writes without end does not hold its parent's caller.
func TestAChildThatWritesOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pid := t.TempDir() + "/pid"
	n := 0
	err := User(-1, -1)(ctx, []string{"sh", "-c", "yes & echo $! > " + pid}, env, "/", nil, counted{&n}, nil)
	if err != nil || n == 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if data, err := os.ReadFile(pid); err != nil {
		t.Error(err)
	} else {
		_ = User(-1, -1)(context.Background(), []string{"kill", strings.TrimSpace(string(data))}, env, "/", nil, nil, nil)
	}
}

type counted struct{ n *int }

func (c counted) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }
