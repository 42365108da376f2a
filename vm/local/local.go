// Package local is the driver of machines that are a bubblewrap sandbox on the
// host's own Linux kernel, over the root file system of the guest image. It is
// the machine where no virtual machine can run, and is never one: the kernel is
// shared, so what Features().Missing lists does not exist here.
//
// A machine is one folder:
//
//	ROOT/ID/machine.json   what it is; a folder without it is not ours
//	ROOT/ID/run.json       the running sandbox: pids with their start times, cgroups
//	ROOT/ID/workspace/     /workspace
//	ROOT/ID/home/          /home/agent
//	ROOT/ID/var/           /var/lib/glasshouse: guestd's journal and shadow store
//	ROOT/ID/chan/          /run/glasshouse: the socket of the channel
//	ROOT/ID/etc/           passwd, group, hosts, … over the image's /etc
//	ROOT/ID/log/           what bwrap and guestd print
//
// The sandbox is started detached and without --die-with-parent: it outlives
// the core, which finds it again by run.json. A pid is trusted only together
// with its start time and the host's boot id.
//
// The sandbox never runs as the host's uid 0 (inside it would be the host's
// root: core_pattern, sysctls, setuid files). A core that is root must name a
// service user, and everything of the machine runs as it.
package local

import (
	"context"
	"log/slog"

	"glasshouse/vm"
	"glasshouse/vm/proc"
)

// RootFS finds (and where it is missing, builds or fetches) the root file system
// directory of an image; hash "" means the current one. Its usr and etc are
// bound read-only into the sandbox.
type RootFS func(ctx context.Context, hash string, progress func(vm.Progress)) (path, imageHash string, err error)

// Options of the driver. Root, RootFS, Guestd and Runner are required.
type Options struct {
	// Root holds one folder per machine. As root, the service user must be able
	// to pass through it and the folders above.
	Root string
	// Trash takes the folders of destroyed machines; on the same file system as
	// Root. Empty: "trash" beside Root.
	Trash string
	// RootFS is asked at Create and at every Start.
	RootFS RootFS
	// Guestd is the path of guestd's static binary. It is asked for at every
	// Start, so that it may be made late.
	Guestd func(ctx context.Context) (string, error)
	Runner *proc.Runner
	// User runs the sandbox and owns the machine's folders. Must be set when the
	// core is root, and only then.
	User *proc.User
	// Log may be nil.
	Log *slog.Logger
}

// Defaults of a Spec's zero limits.
const (
	DefaultCPUs      = 2
	DefaultMemoryMiB = 4096
	DefaultDiskGiB   = 16
	// MaxPids is how many processes and threads a machine may have.
	MaxPids = 4096
)

// GuestdPath is where guestd stands inside the sandbox.
const GuestdPath = "/usr/lib/glasshouse/guestd"

// missing is what a machine of this kind does not have, for people to read.
var missing = []string{
	"a kernel of its own: the host's kernel is the wall",
	"root inside: no sudo, no package installation into /usr",
	"suspend and save-points of memory",
	"fork of a running machine",
	"a disk of its own: no quota, only a largest file size",
}
