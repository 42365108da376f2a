package core

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

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
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		who := make([]byte, 32)
		n, _ := f.ReadAt(who, 0)
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, domain.E(domain.CodeConflict, fmt.Sprintf("a core is running already (process %s)", strings.TrimSpace(string(who[:n]))), "use it, or end it with 'glasshouse quit'", nil)
		}
		return nil, err
	}
	if err := errors.Join(f.Truncate(0), func() error { _, err := f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0); return err }()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
