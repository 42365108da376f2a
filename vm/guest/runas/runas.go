//go:build linux

package runas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Func runs argv to its end in dir with exactly the environment env. It returns
// nil for exit code 0; other exits are errors from which Code reads the code.
// When ctx ends, the program and its children are killed.
type Func func(ctx context.Context, argv, env []string, dir string, stdin io.Reader, stdout, stderr io.Writer) error

// User returns a Func that runs programs as uid and gid. When the caller is not
// root, or uid is negative, programs run as the caller.
func User(uid, gid int) Func {
	return func(ctx context.Context, argv, env []string, dir string, stdin io.Reader, stdout, stderr io.Writer) error {
		if len(argv) == 0 {
			return errors.New("no program was named")
		}
		name, err := find(argv[0], env)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, name, argv[1:]...)
		cmd.Args[0] = argv[0]
		cmd.Env, cmd.Dir = append([]string{}, env...), dir // never nil, which would pass on guestd's own
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		// A group of its own, so that a program's helpers end with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if os.Geteuid() == 0 && uid > 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = held
		wait, err := drained(ctx, cmd)
		if err != nil {
			return err
		}
		fed, err := feeding(cmd)
		if err != nil {
			return errors.Join(err, wait())
		}
		if err = cmd.Start(); err == nil {
			fed.begin()
			err = cmd.Wait()
		}
		if e := fed.end(); err == nil {
			err = e
		}
		if e := wait(); err == nil || errors.Is(err, exec.ErrWaitDelay) && e != nil {
			err = e
		}
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it ended well; a child it left behind holds its output
		}
		if ctx.Err() != nil && err != nil {
			return fmt.Errorf("%s was ended: %w", argv[0], context.Cause(ctx))
		}
		return err
	}
}

// find looks a program up in the PATH of env: guestd's own may be empty.
func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	dirs := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		at := filepath.Join(dir, name)
		if fi, err := os.Stat(at); dir != "" && err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return at, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// Code is the exit code in an error of a Func; -1 when the program did not run
// to an exit of its own.
func Code(err error) int {
	if err == nil {
		return 0
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return -1
}

// Missing says that err means the program is not installed.
func Missing(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)
}

// Tail is a writer that keeps the last 4 KiB, for error messages.
type Tail struct{ buf []byte }

const tailBytes = 4 << 10

func (t *Tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

// String is what was written last, with control characters replaced.
func (t *Tail) String() string {
	b := t.buf
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
	}
	clean := func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}
	return strings.Map(clean, string(bytes.TrimSpace(b)))
}
