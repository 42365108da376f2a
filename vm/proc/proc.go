// Package proc is the only way Glasshouse starts a process on the host. Each
// place that does so has a row in Rows that says which program and why; a
// command without a row is refused, so the table is the complete list of what
// can run outside the machines. Every start is recorded with its argv, has a
// deadline (or is detached and owned by a pid file), and is reaped.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Cmd is one process to start.
type Cmd struct {
	Role    string   // a row of Rows
	Path    string   // program: absolute, or a name looked up in PATH
	Args    []string // without argv[0]
	Dir     string
	Env     []string // the whole environment; nil = MinimalEnv()
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Files   []*os.File    // descriptors 3 and up; all others are closed
	Timeout time.Duration // default: the row's
	User    *User         // run as another user (root only)
	// Memory bounds what the process, and each child it starts, may hold of its own,
	// in bytes; 0 = no bound. Linux only: elsewhere the deadline is the only bound.
	Memory int64
	// Detach puts the process in a session of its own, with Stdout and Stderr
	// being files, so that it outlives the core. It has no deadline; its owner
	// keeps the pid and ends it.
	Detach bool
	// OwnNetwork starts the process in a network namespace of its own (and, for
	// an ordinary user, in a user namespace in which it may configure that). Linux only.
	OwnNetwork bool
}

// User is who a process runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary, such as kvm
	Name     string
	Home     string
}

// Record is what is kept of one start.
type Record struct {
	Role  string
	Argv  []string
	Dir   string
	Pid   int
	Start time.Time
	End   time.Time // zero while running
	Code  int       // -1: signal or not started
	Error string
}

// Result of a finished process.
type Result struct {
	Code   int
	Stdout []byte // when Cmd.Stdout was nil: at most MaxCapture bytes
	Stderr []byte // likewise; the last bytes
}

// MaxCapture bounds what Run keeps of a stream nobody else reads.
const MaxCapture = 4 << 20

const maxRecords = 10_000

// Runner starts processes and remembers what it started. The zero value works.
type Runner struct {
	// OnStart, when set, is told of each start before the process runs.
	OnStart func(Record)

	mu   sync.Mutex
	recs []*Record
	live map[*Process]struct{}
}

// Process is a started process.
type Process struct {
	rec  *Record
	r    *Runner
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// ExitError says how a process failed, with the end of its stderr.
type ExitError struct {
	Role   string
	Code   int
	Stderr string
	Err    error
}

func (e *ExitError) Error() string {
	msg := strings.TrimSpace(e.Stderr)
	if len(msg) > 2000 {
		msg = "…" + msg[len(msg)-2000:]
	}
	if msg == "" {
		return fmt.Sprintf("%s failed: %v", e.Role, e.Err)
	}
	return fmt.Sprintf("%s failed: %v: %s", e.Role, e.Err, msg)
}

func (e *ExitError) Unwrap() error { return e.Err }

// ErrTimeout is wrapped by errors of processes that ran past their deadline.
var ErrTimeout = errors.New("timed out")

// MinimalEnv is a fixed environment that carries nothing of the caller's but
// HOME and PATH.
func MinimalEnv() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return []string{"PATH=" + path, "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
}

// Start starts c. The process is killed with its group when ctx ends or the
// deadline passes, unless it is detached.
func (r *Runner) Start(ctx context.Context, c Cmd) (*Process, error) {
	row, err := rowFor(c)
	if err != nil {
		return nil, err
	}
	sealInherited()
	path := c.Path
	if !filepath.IsAbs(path) {
		if path, err = exec.LookPath(c.Path); err != nil {
			return nil, fmt.Errorf("%s needs %q, which is not installed: %s", c.Role, c.Path, row.Hint)
		}
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = row.Timeout
	}
	cmd := exec.Command(path, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	if cmd.Env == nil {
		cmd.Env = MinimalEnv()
	}
	if c.User != nil && c.User.Home != "" {
		cmd.Env = append(cmd.Env, "HOME="+c.User.Home, "USER="+c.User.Name, "LOGNAME="+c.User.Name)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Stdin, c.Stdout, c.Stderr, c.Files
	cmd.WaitDelay = 5 * time.Second
	attr := &syscall.SysProcAttr{}
	if c.Detach {
		attr.Setsid = true
	} else {
		attr.Setpgid = true
	}
	if c.User != nil {
		attr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID, Groups: c.User.Groups}
	}
	if c.OwnNetwork {
		if err := ownNetwork(attr); err != nil {
			return nil, err
		}
	}
	cmd.SysProcAttr = attr
	rec := &Record{Role: c.Role, Argv: append([]string{path}, c.Args...), Dir: c.Dir, Start: time.Now(), Code: -1}
	if r.OnStart != nil {
		r.OnStart(*rec)
	}
	err = cmd.Start()
	r.mu.Lock()
	if len(r.recs) >= maxRecords {
		r.recs = append(r.recs[:0], r.recs[maxRecords/2:]...)
	}
	r.recs = append(r.recs, rec)
	if err != nil {
		rec.End, rec.Error = time.Now(), err.Error()
		r.mu.Unlock()
		return nil, fmt.Errorf("cannot start %s (%s): %w", c.Role, path, err)
	}
	rec.Pid = cmd.Process.Pid
	if c.Memory > 0 {
		boundMemory(rec.Pid, c.Memory) // one that ended already needs none
	}
	p := &Process{rec: rec, r: r, cmd: cmd, done: make(chan struct{})}
	if r.live == nil {
		r.live = map[*Process]struct{}{}
	}
	r.live[p] = struct{}{}
	r.mu.Unlock()
	go p.reap(ctx, c.Detach, timeout)
	return p, nil
}

// reap waits for the process and enforces its deadline; it is the one goroutine
// of a Process and ends with it.
func (p *Process) reap(ctx context.Context, detached bool, timeout time.Duration) {
	waited := make(chan error, 1)
	go func() { waited <- p.cmd.Wait() }()
	var deadline <-chan time.Time
	var cancelled <-chan struct{}
	if !detached {
		if timeout > 0 {
			t := time.NewTimer(timeout)
			defer t.Stop()
			deadline = t.C
		}
		cancelled = ctx.Done()
	}
	var err error
	select {
	case err = <-waited:
	case <-deadline:
		select {
		case err = <-waited: // it was done in time, only nobody had looked
		default:
			_ = p.Kill()
			<-waited //nolint:errcheck // of what was killed the end says nothing
			err = fmt.Errorf("%w after %s", ErrTimeout, timeout)
		}
	case <-cancelled:
		_ = p.Kill()
		<-waited //nolint:errcheck // of what was killed the end says nothing
		err = context.Cause(ctx)
	}
	p.r.mu.Lock()
	p.rec.End = time.Now()
	if st := p.cmd.ProcessState; st != nil {
		p.rec.Code = st.ExitCode()
	}
	if err != nil {
		p.rec.Error = err.Error()
	}
	delete(p.r.live, p)
	p.r.mu.Unlock()
	p.err = err
	close(p.done)
}

// Pid of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed once the process ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns the exit code and, for anything but a clean exit, an error.
func (p *Process) Wait() (int, error) {
	<-p.done
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	return p.rec.Code, p.err
}

// Kill ends the process's whole group at once.
func (p *Process) Kill() error {
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Signal sends sig to the process alone.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Run starts c, waits for it and returns what it printed where the caller gave
// no writer. A non-zero exit is an *ExitError; Result is valid then too.
func (r *Runner) Run(ctx context.Context, c Cmd) (Result, error) {
	out, errb := &capture{}, &capture{tail: true}
	if c.Stdout == nil {
		c.Stdout = out
	}
	if c.Stderr == nil {
		c.Stderr = errb
	}
	p, err := r.Start(ctx, c)
	if err != nil {
		return Result{Code: -1}, err
	}
	code, err := p.Wait()
	res := Result{Code: code, Stdout: out.buf.Bytes(), Stderr: errb.buf.Bytes()}
	if err != nil {
		return res, &ExitError{Role: c.Role, Code: code, Stderr: string(res.Stderr), Err: err}
	}
	return res, nil
}

// Records returns what was started, oldest first.
func (r *Runner) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Record, len(r.recs))
	for i, x := range r.recs {
		out[i] = *x
	}
	return out
}

// Live counts processes that were started, not detached, and have not ended.
func (r *Runner) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// capture keeps the first (or, with tail, the last) MaxCapture bytes.
type capture struct {
	buf  bytes.Buffer
	tail bool
}

func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	if c.tail {
		c.buf.Write(p)
		if over := c.buf.Len() - MaxCapture; over > 0 {
			c.buf.Next(over)
		}
		return n, nil
	}
	if room := MaxCapture - c.buf.Len(); room > 0 {
		c.buf.Write(p[:min(room, n)])
	}
	return n, nil
}
