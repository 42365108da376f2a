package proc

import (
	"os"
	"syscall"
)

const (
	capNetBindService = 10
	capNetAdmin       = 12
)

// ownNetwork asks for the namespaces. An ordinary user keeps the own uid inside
// and is given the two rights that setting up an interface needs.
func ownNetwork(attr *syscall.SysProcAttr) error {
	attr.Cloneflags |= syscall.CLONE_NEWNET
	if os.Geteuid() == 0 {
		return nil
	}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	attr.AmbientCaps = []uintptr{capNetBindService, capNetAdmin}
	return nil
}
