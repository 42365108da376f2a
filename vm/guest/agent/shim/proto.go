//go:build linux

// Package shim is the process around one execution: it starts the command,
// spools its output to the journal, enforces its timeout and writes down how it
// ended, whether or not guestd's worker lives. A shim is used again once
// nothing of its command is left.
package shim

import (
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/agent/spawn"
)

// Config is what every execution of a shim has in common.
type Config struct {
	Socket  string       // where a new worker finds this shim
	Cgroups string       // folder under which to make a cgroup per execution; empty = none
	Cell    *cell.Config // run commands in an inner sandbox
}

// Run asks for one execution.
type Run struct {
	ID          string
	Dir         string // the execution's folder in the journal
	Cmd         spawn.Request
	Stdin       bool
	Timeout     time.Duration
	Grace       time.Duration
	OutputLimit int64
}

// Frames between worker and shim.
const (
	FrRun        = 'r' // worker: Run
	FrStdin      = 'i' // worker: raw bytes
	FrCloseStdin = 'c'
	FrSteer      = 'g' // worker: Steer
	FrKill       = 'k' // worker: Kill
	FrEnd        = 'n' // worker: kill what is left after the command's end
	FrQuit       = 'q' // worker: leave if idle
	FrState      = 's' // shim: State, complete each time
	FrExit       = 'x' // shim: the exit record as in exit.json, after a State with the final counts
)

// Steer signals the command's process group or resizes its terminal.
type Steer struct {
	Sig  int
	Size *guest.Winsize
}

// Kill ends the whole tree.
type Kill struct{ Grace time.Duration }

// State is what a worker knows of a shim.
type State struct {
	ID       string // the execution, empty = idle
	Pid      int    // of the shim
	Worn     bool   // takes no further execution
	Started  bool
	Cgroup   string
	Kept     [2]int64 // bytes in the spool files
	StdinGot int64    // stdin bytes received
	StdinPut int64    // of those, handed to the command or dropped
	Ended    bool     // the command ended, exit.json is there
	Empty    bool     // and no process of it is left
}
