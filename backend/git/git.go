// Package git keeps a project's objects on the host: one bare mirror per
// project, filled from the person's own repository and from packs a machine
// sends, and the place every push starts from.
//
// What it never does:
//   - run git, a hook, a filter or anything else in or on a folder the guest or
//     the source repository controls: the source is read as files (package
//     source), the guest's objects arrive as a pack that a process with limits
//     takes apart (package packcheck), and the host's git runs on the mirror
//     alone, with a configuration of our own;
//   - keep a work tree, an index or configuration in the mirror, follow
//     alternates, or let a guest's name become a reference: references live
//     under refs/glasshouse/ and their names are ours.
//
// Objects are read with package odb; the mirror is plain git on disk, so any git
// can read it.
package git

import (
	"errors"
	"fmt"
	"io"
	"os"

	"glasshouse/backend/git/odb"
	"glasshouse/backend/git/packcheck"
	"glasshouse/vm/proc"
)

// ID names an object. Its String is 40 hexadecimal characters.
type ID = odb.ID

// ParseID reads 40 lower-case hexadecimal characters.
func ParseID(s string) (ID, error) { return odb.ParseID(s) }

// Limits of a pack; see packcheck.Limits.
type Limits = packcheck.Limits

// Finding in received objects; see packcheck.Finding.
type Finding = packcheck.Finding

// GuestLimits are the limits for packs from a machine.
func GuestLimits() Limits { return packcheck.Guest() }

// IndexRole is the process table's row, and the hidden command's name, of the
// process that checks a pack.
const IndexRole = "git-index"

// IndexMain is the hidden command that checks one pack: args is what the mirror
// passed behind IndexRole, stdin the pack. It returns the exit code.
func IndexMain(args []string, stdin io.Reader) int { return packcheck.Main(args, stdin) }

// Options of a Mirror.
type Options struct {
	// Runner starts the processes; required.
	Runner *proc.Runner
	// IndexCommand starts IndexMain; default: this binary with "git-index".
	IndexCommand []string
	// Invoker is the person pushes run as when the core is root.
	Invoker *proc.User
	// Getenv reads the person's environment (ssh agent, proxies, key rings);
	// default os.Getenv.
	Getenv func(string) string
	// Git is the program for remotes; default "git".
	Git string
	// MaxFetch bounds what one fetch may put on the disk, in bytes; default 16 GiB.
	MaxFetch int64
	// MaxMemory bounds what git may hold while it asks a remote for its refs, where the
	// system can (Linux), in bytes; default 512 MiB. A transfer may hold eight times that.
	MaxMemory int64
}

func (o Options) filled() (Options, error) {
	if o.Runner == nil {
		return o, errors.New("a mirror needs a process runner")
	}
	if len(o.IndexCommand) == 0 {
		o.IndexCommand = []string{proc.Self(), IndexRole}
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Git == "" {
		o.Git = "git"
	}
	if o.MaxFetch <= 0 {
		o.MaxFetch = packcheck.Source().PackBytes
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = 512 << 20
	}
	return o, nil
}

var (
	// ErrRemoteMoved: the remote's reference is not what was reviewed against.
	// Nothing was changed there or here; fetch, review again, push again.
	ErrRemoteMoved = errors.New("the remote has moved")
	// ErrRejected: the remote took nothing; its own words are in the result.
	ErrRejected = errors.New("the remote refused the push")
	// ErrRewrites: the push would take commits off the remote's branch.
	ErrRewrites = errors.New("the push would rewrite the remote's history")
	// ErrNotFound: no such object or reference in the mirror.
	ErrNotFound = odb.ErrNotFound
	// ErrTooLarge: past a limit.
	ErrTooLarge = odb.ErrTooLarge
	// ErrCorrupt: the bytes are no valid pack or objects.
	ErrCorrupt = odb.ErrCorrupt
	// ErrRefused: the objects hold names no checkout may ever see.
	ErrRefused = packcheck.ErrRefused
	// ErrMissing: the objects do not connect to what the mirror has.
	ErrMissing = packcheck.ErrMissing
)

// PackError says why a pack was not taken. Is matches the sentinels above.
type PackError struct {
	Why  error // ErrTooLarge, ErrCorrupt, ErrRefused, ErrMissing or nil
	Text string
}

func (e *PackError) Error() string {
	return fmt.Sprintf("the objects were not taken over: %s; the mirror is unchanged", e.Text)
}

func (e *PackError) Unwrap() error { return e.Why }
