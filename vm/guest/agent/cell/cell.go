//go:build linux

package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/frame"
	"glasshouse/vm/guest/agent/spawn"
)

// Frames between a shim and its cell.
const (
	frRun     = 'r' // shim: spawn.Request, with the three files unless TTY
	frSignal  = 's' // shim: sigMsg
	frList    = 'l' // shim: what is left?
	frStarted = 'S' // cell: startedMsg, with the pty's master if TTY
	frEnded   = 'E' // cell: spawn.Ended
	frEmpty   = 'e' // cell: nothing is left
	frRest    = 'R' // cell: []guest.BackgroundProcess
)

type sigMsg struct {
	Sig int
	All bool
}

type startedMsg struct {
	Pid int
	Err string
}

// Inner is `guestd cell`: pid 1 of the cell. It ends, and everything in it,
// when its shim goes.
func Inner() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("the cell's first process cannot be closed to its commands: %w", err)
	}
	spawn.Deaf(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	c, err := frame.FromFD(3)
	if err != nil {
		return err
	}
	t, err := spawn.New()
	if err != nil {
		return err
	}
	var run *spawn.Run
	for {
		typ, b, files, err := c.Recv()
		if err != nil {
			return nil //nolint:nilerr // the shim is gone, and with it what this process is for
		}
		switch typ {
		case frRun:
			var r spawn.Request
			if err := json.Unmarshal(b, &r); err != nil {
				return err
			}
			started, ptmx, err := start(t, r, files)
			for _, f := range files {
				f.Close()
			}
			if err != nil {
				_ = c.Send(frStarted, startedMsg{Err: err.Error()}) // a shim that is gone shows at the next Recv
				break
			}
			run = started
			if ptmx != nil {
				err = c.Send(frStarted, startedMsg{Pid: run.Pid}, ptmx)
				ptmx.Close()
			} else {
				err = c.Send(frStarted, startedMsg{Pid: run.Pid})
			}
			if err != nil {
				return nil //nolint:nilerr // the shim is gone: the command ends with this process
			}
			go func(run *spawn.Run) {
				_ = c.Send(frEnded, <-run.Exited) // here and below: a shim that is gone shows at Recv
				<-run.Empty
				_ = c.Send(frEmpty, nil)
			}(run)
		case frSignal:
			var m sigMsg
			if json.Unmarshal(b, &m) == nil && run != nil {
				if m.All {
					t.SignalAll(run, syscall.Signal(m.Sig))
				} else {
					run.Signal(syscall.Signal(m.Sig))
				}
			}
		case frList:
			_ = c.Send(frRest, t.Rest(64)) // a shim that is gone shows at the next Recv
		}
	}
}

func start(t *spawn.Tree, r spawn.Request, files []*os.File) (*spawn.Run, *os.File, error) {
	if r.TTY == nil {
		if len(files) != 3 {
			return nil, nil, errors.New("three files are needed")
		}
		run, err := t.Start(r, [3]*os.File(files))
		return run, nil, err
	}
	return StartTTY(t, r)
}

// StartTTY starts a command on a new pseudo-terminal and returns its master.
func StartTTY(t *spawn.Tree, r spawn.Request) (*spawn.Run, *os.File, error) {
	ptmx, tty, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("pseudo-terminal: %w", err)
	}
	defer tty.Close()
	err = pty.Setsize(ptmx, &pty.Winsize{Rows: r.TTY.Rows, Cols: r.TTY.Cols})
	if err == nil && r.UID >= 0 {
		err = tty.Chown(r.UID, -1)
	}
	if err != nil {
		ptmx.Close()
		return nil, nil, fmt.Errorf("pseudo-terminal: %w", err)
	}
	run, err := t.Start(r, [3]*os.File{tty, tty, tty})
	if err != nil {
		ptmx.Close()
		return nil, nil, err
	}
	return run, ptmx, nil
}

// Cell is the shim's end of a running cell. One command at a time.
type Cell struct {
	c    *frame.Conn
	cmd  *exec.Cmd
	said *lastWords
	gone chan struct{} // closed when the cell ended

	mu      sync.Mutex
	started chan startReply
	exited  chan spawn.Ended
	empty   chan struct{}
	rest    chan []guest.BackgroundProcess
}

type startReply struct {
	msg  startedMsg
	ptmx *os.File
}

// New starts a cell, ready to take a command.
func New(cfg Config) (*Cell, error) {
	c, theirs, err := frame.Pair()
	if err != nil {
		return nil, err
	}
	c.Pollable = true
	cmd := exec.Command(Bwrap, Args(cfg)...)
	cmd.ExtraFiles = []*os.File{theirs}
	said := &lastWords{}
	cmd.Stderr = io.MultiWriter(os.Stderr, said)
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("the inner sandbox cannot be started: %w", err)
	}
	l := &Cell{c: c, cmd: cmd, said: said, gone: make(chan struct{}), rest: make(chan []guest.BackgroundProcess, 1)}
	go l.read()
	return l, nil
}

// How long a cell may take to end by itself, counted in waits: while nothing here runs,
// nothing there can end.
const (
	endTick  = 50 * time.Millisecond
	endTicks = 400
)

// end lets the cell's pid 1 leave, which reads the end of the connection. It is gone only
// when the kernel has ended all of its namespace, and bubblewrap, its parent, only when it
// was waited for. Killed at once, bubblewrap would be gone before they are.
func (l *Cell) end() {
	l.c.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.cmd.Wait() // how it ended is of no interest
	}()
	for range endTicks {
		select {
		case <-done:
			return
		case <-time.After(endTick):
		}
	}
	l.cmd.Process.Kill()
	<-done
}

func (l *Cell) read() {
	defer func() {
		l.end()
		close(l.gone)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.exited != nil {
			l.exited <- spawn.Ended{Code: -1, Signal: "SIGKILL", Empty: true}
			l.exited = nil
		}
		if l.empty != nil {
			close(l.empty)
			l.empty = nil
		}
	}()
	for {
		typ, b, files, err := l.c.Recv()
		if err != nil {
			return
		}
		l.mu.Lock()
		switch typ {
		case frStarted:
			var r startReply
			if json.Unmarshal(b, &r.msg) != nil || l.started == nil {
				l.mu.Unlock()
				return
			}
			if len(files) > 0 {
				r.ptmx, files = files[0], files[1:]
			}
			l.started <- r
			l.started = nil
		case frEnded:
			var e spawn.Ended
			if json.Unmarshal(b, &e) != nil || l.exited == nil {
				l.mu.Unlock()
				return
			}
			l.exited <- e
			l.exited = nil
		case frEmpty:
			if l.empty != nil {
				close(l.empty)
				l.empty = nil
			}
		case frRest:
			var r []guest.BackgroundProcess
			if json.Unmarshal(b, &r) != nil {
				l.mu.Unlock()
				return
			}
			select {
			case l.rest <- r:
			default:
			}
		}
		l.mu.Unlock()
		for _, f := range files {
			f.Close()
		}
	}
}

// Start runs a command; files are nil for a TTY, whose master is returned.
func (l *Cell) Start(r spawn.Request, files []*os.File) (*spawn.Run, *os.File, error) {
	started, exited, empty := make(chan startReply, 1), make(chan spawn.Ended, 1), make(chan struct{})
	l.mu.Lock()
	l.started, l.exited, l.empty = started, exited, empty
	l.mu.Unlock()
	r.UID, r.GID = -1, -1
	if err := l.c.Send(frRun, r, files...); err != nil {
		return nil, nil, fmt.Errorf("the inner sandbox does not answer: %w", err)
	}
	select {
	case s := <-started:
		if s.msg.Err != "" {
			l.mu.Lock()
			l.exited, l.empty = nil, nil
			l.mu.Unlock()
			return nil, nil, errors.New(s.msg.Err)
		}
		return &spawn.Run{Pid: s.msg.Pid, Exited: exited, Empty: empty}, s.ptmx, nil
	case <-l.gone:
		return nil, nil, fmt.Errorf("the inner sandbox ended before the command started: %s", l.said)
	}
}

// Signal sends sig to the command's process group, or to everything in the cell.
func (l *Cell) Signal(sig syscall.Signal, all bool) error {
	return l.c.Send(frSignal, sigMsg{Sig: int(sig), All: all})
}

// Rest lists what is left running.
func (l *Cell) Rest() []guest.BackgroundProcess {
	select {
	case <-l.rest:
	default:
	}
	if l.c.Send(frList, nil) != nil {
		return nil
	}
	select {
	case r := <-l.rest:
		return r
	case <-l.gone:
	case <-time.After(2 * time.Second):
	}
	return nil
}

// lastWords keeps the end of what bubblewrap said, to explain a cell that does
// not come up.
type lastWords struct {
	mu sync.Mutex
	b  []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	if len(w.b) > 1000 {
		w.b = append(w.b[:0], w.b[len(w.b)-1000:]...)
	}
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.b) == 0 {
		return "bubblewrap said nothing"
	}
	return strings.TrimSpace(string(w.b))
}

// Gone is closed when the cell has ended.
func (l *Cell) Gone() <-chan struct{} { return l.gone }

// Close ends the cell and everything in it.
func (l *Cell) Close() {
	l.c.Close()
	<-l.gone
}
