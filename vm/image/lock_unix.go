//go:build unix

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile takes an exclusive lock that ends with the process, waiting as long as ctx allows; waiting is called once
// if another holds it. The file stays: removing it would let two builders hold locks on different files.
func lockFile(ctx context.Context, name string, waiting func()) (func(), error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	told := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { letGo(f) }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for another build of the image: %w", context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// letGo ends a lock at once. Closing alone does not while a child that is being started still has a copy of the
// descriptor.
func letGo(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// holdDir locks a folder for as long as this process lives or until release; false means that another holds it, or
// has removed it.
func holdDir(dir string) (release func(), ok bool) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, false
	}
	held, err1 := f.Stat()
	there, err2 := os.Stat(dir)
	if err1 != nil || err2 != nil || !os.SameFile(held, there) {
		letGo(f)
		return nil, false
	}
	return func() { letGo(f) }, true
}
