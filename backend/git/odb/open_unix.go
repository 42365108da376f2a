//go:build unix

package odb

import "golang.org/x/sys/unix"

const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
