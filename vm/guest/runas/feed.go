package runas

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// feed is what a program reads, on its way from a reader that is no file. Package exec
// waits for such a reader even after the program's end: one that has nothing to say
// until the program answers, as a conversation's, would hold it for ever.
type feed struct {
	from     io.Reader
	out, in  *os.File
	finished chan error
}

// feeding is called before a program is started; it may have nothing to do.
func feeding(cmd *exec.Cmd) (*feed, error) {
	if _, isFile := cmd.Stdin.(*os.File); isFile || cmd.Stdin == nil {
		return &feed{}, nil
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &feed{from: cmd.Stdin, out: out, in: in, finished: make(chan error, 1)}
	cmd.Stdin = out
	return f, nil
}

// begin feeds a program that was started.
func (f *feed) begin() {
	if f.from == nil {
		return
	}
	f.out.Close() // the program's own is left
	go func() {
		_, err := io.Copy(f.in, f.from)
		f.finished <- err // known before the program can read to the end
		f.in.Close()
	}()
}

// end is called after the program's end. It returns why the reader could not be read,
// where that was before; of a reader that still has to say something it waits for nothing,
// and lets go of it with its next word.
func (f *feed) end() error {
	if f.from == nil {
		return nil
	}
	f.out.Close()
	f.in.Close()
	select {
	case err := <-f.finished:
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
			return nil // the program did not want all of it
		}
		return err
	default:
		return nil
	}
}
