//go:build unix && !freebsd && !dragonfly

package packcheck

import "golang.org/x/sys/unix"

// confine sets this process's limits; they can only be lowered afterwards.
func confine(l Limits) error {
	set := func(what int, v int64) error {
		return unix.Setrlimit(what, &unix.Rlimit{Cur: uint64(v), Max: uint64(v)})
	}
	for _, x := range []struct {
		what int
		v    int64
	}{
		// Private writable memory: what the Go heap and its stacks take. The address
		// space itself is not bounded, as the runtime reserves it without using it.
		{unix.RLIMIT_DATA, l.MemoryBytes},
		{unix.RLIMIT_FSIZE, l.PackBytes + l.PackBytes/8 + 64<<20},
		{unix.RLIMIT_CPU, l.CPUSeconds},
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_NOFILE, 4096},
	} {
		if err := set(x.what, x.v); err != nil {
			return err
		}
	}
	return nil
}
