package runas

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// held is how long a program's output may be silent after its end before it is taken
// to be held open by a child that was left behind.
const held = 2 * time.Second

// mostAfter is how much is taken after a program's end: more than a pipe holds, so that
// what comes after it is of a child that writes on, perhaps without end.
const mostAfter = 2 << 20

// drained makes a program's standard output reach its reader whole, however slow that
// is. The time that package exec gives after a program's end counts for a reader that
// is busy, too, and what the reader did not take within it would be lost without a
// word; here only silence counts. It is called before the program is started. The
// function it returns is called after the program's end, or when it did not start; it
// waits for the rest of the output.
func drained(ctx context.Context, cmd *exec.Cmd) (wait func() error, err error) {
	to := cmd.Stdout
	if _, isFile := to.(*os.File); isFile || to == nil || same(to, cmd.Stderr) {
		return func() error { return nil }, nil
	}
	from, into, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = into
	var ended atomic.Bool
	done := make(chan error, 1)
	go func() { done <- pass(to, from, &ended) }()
	return func() error {
		into.Close()
		ended.Store(true)
		_ = from.SetReadDeadline(time.Now().Add(held / 2))
		defer from.Close()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		}
		select { // a reader that is gone, too, takes nothing any more
		case err := <-done:
			return err
		case <-time.After(held):
			return context.Cause(ctx)
		}
	}, nil
}

// pass copies until the end of the output, or until it has been silent for long after
// the program's end.
func pass(to io.Writer, from *os.File, ended *atomic.Bool) error {
	buf := make([]byte, 32<<10)
	for silent, after := 0, 0; after < mostAfter; {
		if ended.Load() {
			_ = from.SetReadDeadline(time.Now().Add(held / 2))
		}
		n, err := from.Read(buf)
		if ended.Load() {
			after += n
		}
		if n > 0 {
			silent = 0
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close() // the program gets no further
				return err
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && silent == 0:
			silent++ // the time may have been over before this had its turn: once more
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// same reports whether two writers are one; those that cannot be compared are not.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}
