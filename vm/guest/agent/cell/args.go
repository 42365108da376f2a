//go:build linux

// Package cell is the inner sandbox in which every command of a `local` machine
// runs: guestd itself is unprivileged there and the commands have its uid, so
// namespaces are what keeps them from its journal, its shadow store and the
// channel's socket.
package cell

import "strconv"

// Bwrap is where the image has bubblewrap.
const Bwrap = "/usr/bin/bwrap"

// Config is what a cell looks like from inside.
type Config struct {
	UID, GID  int
	Workspace string
	Home      string
	Self      string // guestd's binary, as seen inside
}

// Args is the command line of a cell that waits for commands, without bwrap's
// own name.
func Args(c Config) []string {
	return append(layout(c, true), "--chdir", "/", "--", c.Self, "cell")
}

// CommandArgs is the command line of a cell around one command in dir, which
// ends with whoever started it.
func CommandArgs(c Config, dir string, argv []string) []string {
	return append(append(layout(c, false), "--die-with-parent", "--chdir", dir, "--"), argv...)
}

// layout is what a cell holds. Everything that
// is not named here does not exist inside; /run and /var hold nothing of the
// outer sandbox's but the package database and font caches. The user namespace
// may be nested further, because Chromium's own sandbox needs that.
func layout(c Config, first bool) []string {
	a := []string{
		"--unshare-user", "--uid", strconv.Itoa(c.UID), "--gid", strconv.Itoa(c.GID),
		"--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL",
		"--ro-bind", "/usr", "/usr",
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		a = append(a, "--symlink", "usr/"+d, "/"+d)
	}
	a = append(a,
		"--ro-bind", "/etc", "/etc",
		"--ro-bind-try", "/opt", "/opt",
		"--proc", "/proc",
		"--dev", "/dev",
		"--bind", "/tmp", "/tmp",
		"--tmpfs", "/run",
		"--tmpfs", "/var",
		"--dir", "/var/tmp",
		"--dir", "/var/lib",
		"--dir", "/var/cache",
		"--symlink", "/run", "/var/run",
		"--ro-bind-try", "/var/lib/dpkg", "/var/lib/dpkg",
		"--ro-bind-try", "/var/cache/fontconfig", "/var/cache/fontconfig",
		"--bind", c.Home, c.Home,
		"--bind", c.Workspace, c.Workspace,
	)
	if first {
		a = append(a, "--as-pid-1")
	}
	return a
}
