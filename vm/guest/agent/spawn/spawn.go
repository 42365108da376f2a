//go:build linux

// Package spawn starts one command at a time and keeps hold of everything that
// comes of it: the process using it is the subreaper (or pid 1) of the tree.
package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
)

// Request is one command. Words are bytes, because it travels as JSON, which
// would repair strings that are no UTF-8.
type Request struct {
	Argv      [][]byte
	Dir       []byte
	Env       [][]byte
	UID, GID  int // below 0 = as we are
	TTY       *guest.Winsize
	Cgroup    string // folder of a cgroup to start in; empty = none
	MemoryMiB int    // kept by rlimit when there is no cgroup
	Pids      int
}

// Ended is the end of the command itself.
type Ended struct {
	Code    int // -1 for a signal
	Signal  string
	UserCPU time.Duration
	SysCPU  time.Duration
	MaxRSS  int64 // KiB
	Empty   bool  // nothing else of the tree is left
}

// Tree runs commands in this process's care. Only one Tree may exist in a
// process, and nothing else there may wait for children.
type Tree struct {
	mu     sync.Mutex
	cond   *sync.Cond
	main   int // pid of the running command, 0 = none
	cgroup string
	busy   bool // children may exist
	exited chan Ended
	empty  chan struct{}
	self   int
}

// New makes this process the reaper of all its descendants.
func New() (*Tree, error) {
	t := &Tree{self: os.Getpid()}
	t.cond = sync.NewCond(&t.mu)
	if t.self != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become subreaper: %w", err)
		}
	}
	go t.reap()
	return t, nil
}

func (t *Tree) reap() {
	for {
		t.mu.Lock()
		for !t.busy {
			t.cond.Wait()
		}
		t.mu.Unlock()
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, 0, &ru)
		t.mu.Lock()
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			if t.main == 0 {
				t.becomeEmpty()
			} else {
				// Start holds the lock while it forks, so this cannot be a child not yet seen.
				t.finish(Ended{Code: -1, Signal: "lost"})
			}
		case pid == t.main:
			t.finish(ended(ws, ru))
		}
		t.mu.Unlock()
	}
}

// finish tells the end of the command, after a look whether anything else is left.
func (t *Tree) finish(e Ended) {
	t.main = 0
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.ECHILD {
			e.Empty = true
			break
		}
		if err == syscall.EINTR || pid > 0 {
			continue
		}
		break
	}
	t.exited <- e
	if e.Empty {
		t.becomeEmpty()
	}
}

func (t *Tree) becomeEmpty() {
	t.busy = false
	if t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

func ended(ws syscall.WaitStatus, ru syscall.Rusage) Ended {
	e := Ended{
		Code:    ws.ExitStatus(),
		UserCPU: time.Duration(ru.Utime.Nano()),
		SysCPU:  time.Duration(ru.Stime.Nano()),
		MaxRSS:  ru.Maxrss,
	}
	if ws.Signaled() {
		e.Code = -1
		e.Signal = unix.SignalName(ws.Signal())
		if e.Signal == "" {
			e.Signal = fmt.Sprintf("SIG%d", int(ws.Signal()))
		}
	}
	return e
}

// Run is a started command. Exited gives its end once; Empty is closed when
// nothing of the tree is left.
type Run struct {
	Pid    int
	Exited <-chan Ended
	Empty  <-chan struct{}
}

// Start runs a command with the three files. The caller keeps and closes them.
// With a TTY all three are its one slave.
func (t *Tree) Start(r Request, files [3]*os.File) (*Run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.main != 0 || t.busy {
		return nil, errors.New("a command is running already")
	}
	dir, env, argv := string(r.Dir), words(r.Env), words(r.Argv)
	path, err := look(argv[0], dir, env)
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if r.TTY != nil {
		attr.Sys.Setctty = true
	}
	if r.UID >= 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.GID)}
	}
	if r.Cgroup != "" {
		d, err := os.Open(r.Cgroup)
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		defer d.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(d.Fd())
	} else if err := t.rlimits(r); err != nil {
		return nil, err
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, explain(err, path, dir)
	}
	exited, empty := make(chan Ended, 1), make(chan struct{})
	t.main, t.cgroup, t.busy, t.exited, t.empty = pid, r.Cgroup, true, exited, empty
	t.cond.Signal()
	return &Run{Pid: pid, Exited: exited, Empty: empty}, nil
}

// rlimits lowers this process's own limits for good, so that the child has them;
// the caller does not run another command in a Tree that was limited.
func (t *Tree) rlimits(r Request) error {
	set := func(what int, name string, n uint64) error {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("limit %s: %w", name, err)
		}
		return nil
	}
	if r.MemoryMiB > 0 {
		if err := set(unix.RLIMIT_DATA, "memory", uint64(r.MemoryMiB)<<20); err != nil {
			return err
		}
	}
	if r.Pids > 0 && t.self == 1 {
		// Counted per user in this user namespace: our own threads are in it.
		return set(unix.RLIMIT_NPROC, "processes", uint64(r.Pids)+16)
	}
	return nil
}

func words(b [][]byte) []string {
	s := make([]string, len(b))
	for i, w := range b {
		s[i] = string(w)
	}
	return s
}

func look(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // relative ones are relative to Dir: the child changes there first
	}
	path := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	denied := false
	for _, p := range filepath.SplitList(path) {
		if p == "" {
			p = "."
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		full := filepath.Join(p, name)
		st, err := os.Stat(full)
		if err != nil || st.IsDir() {
			continue
		}
		if st.Mode()&0o111 != 0 {
			return full, nil
		}
		denied = true
	}
	if denied {
		return "", fmt.Errorf("%q is not executable", name)
	}
	return "", fmt.Errorf("command %q was not found in PATH", name)
}

func explain(err error, path, dir string) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EACCES) {
		if st, e := os.Stat(dir); e != nil {
			return fmt.Errorf("the working folder %q cannot be entered: %w", dir, errors.Unwrap(e))
		} else if !st.IsDir() {
			return fmt.Errorf("the working folder %q is not a folder", dir)
		}
	}
	if errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("%q is neither a program for this machine nor a script with #!", path)
	}
	return fmt.Errorf("%q cannot be started: %w", path, err)
}

// Deaf makes this process take no notice of signals. They are caught rather
// than ignored: what is ignored stays so in every command started from here.
func Deaf(sigs ...os.Signal) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, sigs...)
	go func() {
		for range ch {
		}
	}()
}
