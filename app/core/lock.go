package core

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"glasshouse/app/config"
	"glasshouse/backend/domain"
)

// lock makes this process the one core of a data folder. The kernel lets go of
// it when the process ends in whatever way.
func lock(p config.Paths) (*os.File, error) {
	f, err := os.OpenFile(p.Lock(), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, domain.E(domain.CodeUnavailable, "the core's lock cannot be opened", "check the permissions of "+p.Data, err)
	}
	fd := int(f.Fd())
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	// Who looks whether a core runs (Holder) shares the lock for a moment, or for longer
	// where it is stopped just then. A core shares it with nobody.
	for cores, looks := 0, 0; errors.Is(err, syscall.EWOULDBLOCK) && cores < 20 && looks < 3000; {
		if shared := syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB); shared == nil {
			_ = syscall.Flock(fd, syscall.LOCK_UN)
			looks++
		} else {
			cores++
		}
		time.Sleep(10 * time.Millisecond)
		err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		who := read(f)
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, domain.E(domain.CodeConflict, fmt.Sprintf("a core is running already (process %s)", who), "use it, or end it with 'glasshouse quit'", nil)
		}
		return nil, err
	}
	if err := errors.Join(f.Truncate(0), func() error { _, err := f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0); return err }()); err != nil {
		unlock(f)
		return nil, err
	}
	return f, nil
}

// unlock lets go at once. Closing alone does not while a child that is being started
// still has a copy of the descriptor.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

func read(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	return strings.TrimSpace(string(b[:n]))
}

// Holder is the process that is the core of a data folder, from before it opens anything
// until it has closed all: longer than it answers. 0 = none is; -1 = one that has not
// said its number yet. For a moment after it took the lock the number can be that of the
// core before it.
func Holder(p config.Paths) (pid int, err error) {
	f, err := os.Open(p.Lock())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, domain.E(domain.CodeUnavailable, "the core's lock cannot be opened", "check the permissions of "+p.Data, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		unlock(f)
		return 0, nil
	}
	defer f.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, err
	}
	if pid, err = strconv.Atoi(read(f)); err != nil {
		return -1, nil
	}
	return pid, nil
}
