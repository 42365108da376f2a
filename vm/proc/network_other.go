//go:build !linux

package proc

import (
	"errors"
	"syscall"
)

func ownNetwork(*syscall.SysProcAttr) error {
	return errors.New("network namespaces exist on Linux only")
}
