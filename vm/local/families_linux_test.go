package local_test

import (
	"fmt"
	"syscall"
)

// family says whether this host's kernel lacks an address family.
func family(af int) func() string {
	return func() string {
		fd, err := syscall.Socket(af, syscall.SOCK_STREAM, 0)
		if err == nil {
			_ = syscall.Close(fd)
			return ""
		}
		if err == syscall.EAFNOSUPPORT {
			return fmt.Sprintf("this kernel has no address family %d", af)
		}
		return ""
	}
}

// netlink says whether this host's kernel lacks a netlink protocol.
func netlink(proto int) func() string {
	return func() string {
		fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, proto)
		if err == nil {
			_ = syscall.Close(fd)
			return ""
		}
		return fmt.Sprintf("this kernel has no netlink protocol %d: %v", proto, err)
	}
}
