//go:build linux

// Package execs is the worker's view of executions: it hands commands to shims,
// follows their spooled output, and finds everything again after a restart.
package execs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/journal"
	"glasshouse/vm/guest/agent/shim"
	"glasshouse/vm/guest/agent/spawn"
)

// Config of a Manager.
type Config struct {
	Journal  string // folder, kept over reboots
	Sockets  string // folder of the shims' sockets
	BootID   string
	UID, GID int // of commands; below 0 = as guestd
	Root     bool
	Shim     shim.Config // Socket is filled in for each shim
	Env      [][]byte    // NAME=VALUE, the base environment
	RootEnv  [][]byte
	Dir      string // where commands run when they say nothing
	Pool     int    // idle shims kept ready
	// FixedAddresses gives commands no random addresses, see spawn.FixedAddresses.
	FixedAddresses bool
}

const (
	maxIdle    = 4
	maxRunning = 256
	shimWait   = 60 * time.Second
)

// Manager owns the journal and the shims' connections.
type Manager struct {
	cfg Config
	j   *journal.Journal

	mu       sync.Mutex
	execs    map[string]*Exec
	shims    map[*conn]bool
	idle     []*conn
	starting int
	waiters  []chan *conn
	closed   bool
}

// New reads the journal, joins the shims that live on, and closes what ended
// unseen as unknown.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	j, err := journal.Open(cfg.Journal)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Sockets, 0o700); err != nil {
		return nil, fmt.Errorf("the shims' folder cannot be made: %w", err)
	}
	m := &Manager{cfg: cfg, j: j, execs: map[string]*Exec{}, shims: map[*conn]bool{}}
	ids, err := j.IDs()
	if err != nil {
		return nil, fmt.Errorf("the journal cannot be read: %w", err)
	}
	for _, id := range ids {
		meta, err := j.Meta(id)
		if err != nil {
			log.Printf("journal: %v", errors.Join(err, j.Remove(id)))
			continue
		}
		e := newExec(m, meta)
		if _, err := j.Exit(id); err == nil {
			e.ended, e.empty, e.gone = true, true, true
		}
		e.kept = j.Sizes(meta)
		m.execs[id] = e
	}
	m.rejoin(ctx)
	for _, e := range m.execs {
		if e.shim == nil && !e.ended {
			m.settle(e)
		}
	}
	m.sweepCgroups()
	m.trim()
	m.fill()
	return m, nil
}

// settle closes an execution that no shim holds any more.
func (m *Manager) settle(e *Exec) {
	x, err := m.j.Exit(e.Meta.ID)
	if err != nil {
		x = guest.Exit{Code: -1, Unknown: true, StartedAt: e.Meta.At, EndedAt: time.Now()}
		n := m.j.Sizes(e.Meta)
		x.Stdout.Total, x.Stderr.Total = n[0], n[1]
		if record, err := json.Marshal(x); err == nil {
			sync, err := journal.WriteExit(m.j.Dir(e.Meta.ID), record)
			if err == nil {
				err = sync()
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				log.Printf("journal: end of %s: %v", e.Meta.ID, err)
			}
		}
	}
	e.mu.Lock()
	e.kept = m.j.Sizes(e.Meta)
	e.mu.Unlock()
	e.finish(x)
	e.leave()
}

// Enter makes an execution known by its id, in the journal too. Launch runs it.
func (m *Manager) Enter(spec guest.ExecSpec) (*Exec, error) {
	if spec.Root && !m.cfg.Root {
		return nil, errors.New("this machine runs no command as root")
	}
	meta := journal.Meta{ID: spec.ID, Session: spec.Session, Step: spec.Step, BootID: m.cfg.BootID, At: time.Now()}
	if spec.TTY != nil {
		meta.Window = spec.OutputLimit
	}
	for _, a := range spec.Argv {
		meta.Argv = append(meta.Argv, []byte(a))
	}
	m.mu.Lock()
	running := 0
	for c := range m.shims {
		if c.exec != nil {
			running++
		}
	}
	m.mu.Unlock()
	if running >= maxRunning {
		return nil, fmt.Errorf("%d executions run already; end some first", running)
	}
	if err := m.j.Create(meta); err != nil {
		return nil, err
	}
	e := newExec(m, meta)
	m.mu.Lock()
	m.execs[spec.ID] = e
	m.mu.Unlock()
	return e, nil
}

// Launch runs an execution that was entered; it returns once the command runs or could
// not be started (then the execution has ended with StartError). After an error the
// execution is not known any more.
func (m *Manager) Launch(ctx context.Context, e *Exec, spec guest.ExecSpec) error {
	m.trim()
	c, err := m.acquire(ctx, e)
	if err != nil {
		m.mu.Lock()
		delete(m.execs, spec.ID)
		m.mu.Unlock()
		// Left over, it would be found again as an execution of unknown end.
		return errors.Join(err, m.j.Remove(spec.ID))
	}
	c.tell(shim.FrRun, m.request(spec))
	return e.waitStarted(ctx)
}

func (m *Manager) request(spec guest.ExecSpec) shim.Run {
	r := shim.Run{
		ID: spec.ID, Dir: m.j.Dir(spec.ID), Stdin: spec.Stdin, Timeout: spec.Timeout, Grace: spec.Grace, OutputLimit: spec.OutputLimit,
		Cmd: spawn.Request{
			Dir: []byte(spec.Dir), UID: m.cfg.UID, GID: m.cfg.GID, TTY: spec.TTY,
			MemoryMiB: spec.Limits.MemoryMiB, Pids: spec.Limits.Pids,
		},
	}
	base := m.cfg.Env
	if spec.Root {
		r.Cmd.UID, r.Cmd.GID, base = 0, 0, m.cfg.RootEnv
	}
	if spec.Dir == "" {
		r.Cmd.Dir = []byte(m.cfg.Dir)
	}
	if r.Grace == 0 {
		r.Grace = 2 * time.Second
	}
	for _, a := range spec.Argv {
		r.Cmd.Argv = append(r.Cmd.Argv, []byte(a))
	}
	if spec.TTY != nil {
		base = append(base[:len(base):len(base)], []byte("TERM=xterm-256color"))
	}
	r.Cmd.Env = mergeEnv(base, spec.Env)
	return r
}

func mergeEnv(base [][]byte, add map[string]string) (out [][]byte) {
	for _, e := range base {
		name := string(e)
		for i, c := range e {
			if c == '=' {
				name = string(e[:i])
				break
			}
		}
		if _, over := add[name]; !over {
			out = append(out, e)
		}
	}
	for k, v := range add {
		out = append(out, []byte(k+"="+v))
	}
	return out
}

// Get finds an execution.
func (m *Manager) Get(id string) (*Exec, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.execs[id]; e != nil {
		return e, nil
	}
	return nil, guest.ErrNoExec
}

// List returns every execution, oldest first.
func (m *Manager) List() []*Exec {
	m.mu.Lock()
	out := make([]*Exec, 0, len(m.execs))
	for _, e := range m.execs {
		out = append(out, e)
	}
	m.mu.Unlock()
	sort.Slice(out, func(a, b int) bool {
		if !out[a].Meta.At.Equal(out[b].Meta.At) {
			return out[a].Meta.At.Before(out[b].Meta.At)
		}
		return out[a].Meta.ID < out[b].Meta.ID
	})
	return out
}

// Forget drops ended executions; running ones and unknown ids are left alone.
func (m *Manager) Forget(ids []string) error {
	var errs []error
	for _, id := range ids {
		m.mu.Lock()
		e := m.execs[id]
		m.mu.Unlock()
		if e == nil || !e.Ended() {
			continue
		}
		if err := m.j.Remove(id); err != nil {
			errs = append(errs, err)
			continue
		}
		m.mu.Lock()
		delete(m.execs, id)
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Kill ends an execution's whole tree and waits until no process is left. How it ended
// is in the journal then; a loss of power in that very moment can still take it away.
func (m *Manager) Kill(ctx context.Context, id string, grace time.Duration) error {
	e, err := m.Get(id)
	if err != nil {
		return err
	}
	if c := e.held(); c != nil {
		c.tell(shim.FrKill, shim.Kill{Grace: grace})
	}
	return e.waitEmpty(ctx)
}

// EndSession kills what ended executions of a session left running.
func (m *Manager) EndSession(ctx context.Context, session string) error {
	m.mu.Lock()
	var left []*Exec
	for c := range m.shims {
		if e := c.exec; e != nil && e.Meta.Session == session && e.Ended() {
			left = append(left, e)
		}
	}
	m.mu.Unlock()
	for _, e := range left {
		if c := e.held(); c != nil {
			c.tell(shim.FrEnd, nil)
		}
	}
	for _, e := range left {
		if err := e.waitGone(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TermAll asks every running execution to end, for a power-off.
func (m *Manager) TermAll(ctx context.Context, grace time.Duration) {
	m.mu.Lock()
	var all []*Exec
	for c := range m.shims {
		if c.exec != nil {
			all = append(all, c.exec)
		}
	}
	m.mu.Unlock()
	for _, e := range all {
		if c := e.held(); c != nil {
			c.tell(shim.FrKill, shim.Kill{Grace: grace})
		}
	}
	for _, e := range all {
		if err := e.waitGone(ctx); err != nil {
			log.Printf("execs: %s is left to the power-off: %v", e.Meta.ID, err)
		}
	}
}

// ByShim and ByCgroup find the execution a process belongs to.
func (m *Manager) ByShim(pid int) *Exec {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.shims {
		if c.pid == pid {
			return c.exec
		}
	}
	return nil
}

func (m *Manager) ByCgroup(dir string) *Exec {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.shims {
		if c.exec != nil && c.cgroup != "" && filepath.Base(c.cgroup) == filepath.Base(dir) {
			return c.exec
		}
	}
	return nil
}

// Close ends every execution for a power-off and sends the idle shims away.
func (m *Manager) Close(ctx context.Context, grace time.Duration) {
	m.mu.Lock()
	m.closed = true
	idle := m.idle
	m.idle = nil
	m.mu.Unlock()
	for _, c := range idle {
		c.tell(shim.FrQuit, nil)
	}
	m.TermAll(ctx, grace)
}
