// Package vm is the contract between Glasshouse and the machines that agents
// work on. A Machine can be started, stopped and asked for one byte stream, the
// channel; everything else (exec, files, git, browser) is spoken on that stream
// by package guest. Drivers live below this package (vm/lima, vm/local) and are
// chosen by name in the composition root; nothing here knows which exist.
//
// The package imports only the standard library.
package vm

import (
	"context"
	"errors"
	"io"
	"time"
)

// Kind names a driver: "lima" (a virtual machine) or "local" (a sandbox on the
// host's own kernel, never to be shown as a VM).
type Kind string

const (
	KindLima  Kind = "lima"
	KindLocal Kind = "local"
)

// State is where a machine is in its life. See CanMove for the transitions.
type State string

const (
	StateAbsent   State = "absent"   // not created, or destroyed
	StateOff      State = "off"      // on disk, not running
	StateStarting State = "starting" // booting; not yet answering
	StateReady    State = "ready"    // guestd answered
	StateStopping State = "stopping" // told to power off
	StateTrouble  State = "trouble"  // runs but does not answer, or ended by itself
)

var moves = map[State][]State{
	StateAbsent:   {StateOff},
	StateOff:      {StateStarting, StateAbsent},
	StateStarting: {StateReady, StateTrouble, StateStopping, StateOff},
	StateReady:    {StateStopping, StateTrouble, StateOff},
	StateStopping: {StateOff, StateTrouble},
	StateTrouble:  {StateStarting, StateStopping, StateOff, StateReady},
}

// CanMove reports whether a machine may go from one state to another.
func CanMove(from, to State) bool {
	for _, s := range moves[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Spec is what a machine is made from. Zero limits mean the driver's default.
type Spec struct {
	ID        string // short (socket paths hold at most 107 bytes), unique, [a-z0-9]+
	Hostname  string // what the guest calls itself
	CPUs      int
	MemoryMiB int
	DiskGiB   int
	ImageHash string // the image the machine is made from; empty = the manager's current one
}

// Features says what a driver can do, so that callers never test a kind's name.
type Features struct {
	VM          bool   // has its own kernel; false must be shown as "not a VM"
	Suspend     bool   // memory survives a pause on disk
	Fork        bool   // a running machine can be copied
	HardLimits  bool   // memory and process limits are enforced by the kernel, not watched
	Accelerator string // "kvm", "hvf", "vz", "tcg" or "" (no VM)
	Limits      string // how limits are kept, in words: "guest cgroups", "cgroup v1", "rlimits"
	Missing     []string
}

// Info is a driver's view of one machine now.
type Info struct {
	ID      string
	Kind    Kind
	State   State
	Since   time.Time
	Pids    map[string]int // host processes that belong to the machine, by role
	Problem string         // why State is trouble
}

// Machine is one machine. Methods may be called from several goroutines; Start
// and Stop exclude each other.
type Machine interface {
	ID() string
	Kind() Kind
	Features() Features
	// Info reads the state from the world (processes, files), not from memory,
	// so that it is right after a crash of the core.
	Info(ctx context.Context) (Info, error)
	// Start boots the machine and returns when guestd accepted the channel once.
	// Starting a running machine adopts it. progress may be nil.
	Start(ctx context.Context, progress func(Progress)) error
	// Dial opens the channel to guestd. A second Dial supersedes the first.
	Dial(ctx context.Context) (io.ReadWriteCloser, error)
	// Stop powers the machine off. The caller has asked guestd to shut down
	// where it could; Stop waits for the end until ctx is done, then forces it.
	// Afterwards no process of the machine is left.
	Stop(ctx context.Context) error
}

// Progress is one step of a long call. Done and Total are zero when there is no number.
type Progress struct {
	Phase string // a short name: "image", "disk", "boot", "connect"
	Text  string // what a person reads
	Done  int64
	Total int64
}

// Manager makes and finds the machines of one kind under one data directory.
type Manager interface {
	Kind() Kind
	Features() Features
	// Check says whether machines of this kind can run here: nil, or an error
	// that says what is missing and what to do.
	Check(ctx context.Context) error
	// Create makes the machine on disk (state off). Creating one that exists is ErrExists.
	Create(ctx context.Context, spec Spec, progress func(Progress)) (Machine, error)
	// Open finds an existing machine: ErrNotExist when there is none; a missing
	// disk is ErrNotExist too, never a new empty machine.
	Open(ctx context.Context, id string) (Machine, error)
	// List names the machines on disk.
	List(ctx context.Context) ([]string, error)
	// Destroy stops the machine and moves its folder to trash. Destroying what
	// this manager did not make is refused.
	Destroy(ctx context.Context, id string) error
}

var (
	// ErrNotExist: no such machine on disk. Recreate it, or forget the project's machine.
	ErrNotExist = errors.New("the machine does not exist")
	// ErrExists: a machine of that id is on disk already. Open it instead.
	ErrExists = errors.New("the machine exists already")
	// ErrNotRunning: the machine is off. Start it first.
	ErrNotRunning = errors.New("the machine is not running")
	// ErrUnsupported: this kind of machine cannot do that (see Features).
	ErrUnsupported = errors.New("this kind of machine cannot do that")
)
