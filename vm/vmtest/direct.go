package vmtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm"
)

// Direct is a manager whose machines are the real guestd on folders of the
// host, with no walls around it: what runs "inside" runs as the test does. It
// is for tests of what stands above a machine, and needs neither image nor
// sandbox. The workspace is Workspace(id), not /workspace.
type Direct struct {
	root, guestd string

	mu   sync.Mutex
	made map[string]*directMachine
}

// NewDirect returns a manager without machines; all are ended with the test.
func NewDirect(t testing.TB) *Direct {
	t.Helper()
	root, err := os.MkdirTemp("", "gh") // short: a socket's path holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	d := &Direct{root: root, guestd: Guestd(t), made: map[string]*directMachine{}}
	t.Cleanup(func() {
		c, cancel := stopSoon()
		defer cancel()
		for _, m := range d.all() {
			if err := m.Stop(c); err != nil {
				t.Errorf("guestd of %s: %v", m.id, err)
			}
		}
		if err := os.RemoveAll(root); err != nil {
			t.Errorf("left: %v", err)
		}
	})
	return d
}

func (d *Direct) all() (out []*directMachine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.made {
		out = append(out, m)
	}
	return out
}

// Workspace is the folder that a machine's commands start in.
func (d *Direct) Workspace(id string) string { return filepath.Join(d.root, id, "workspace") }

// PowerLoss kills guestd and everything it started at once.
func (d *Direct) PowerLoss(id string) {
	d.mu.Lock()
	m := d.made[id]
	d.mu.Unlock()
	if m != nil {
		_ = m.Stop(stopNow())
		m.mu.Lock()
		m.lost = true
		m.mu.Unlock()
	}
}

func (d *Direct) Kind() vm.Kind { return vm.KindLocal }

func (d *Direct) Features() vm.Features {
	return vm.Features{Limits: "none: a machine of tests", Missing: []string{"walls"}}
}

func (d *Direct) Check(context.Context) error { return nil }

func (d *Direct) Create(_ context.Context, spec vm.Spec, _ func(vm.Progress)) (vm.Machine, error) {
	if spec.ID == "" || filepath.Base(spec.ID) != spec.ID || spec.ID[0] == '.' {
		return nil, fmt.Errorf("%q is no machine id", spec.ID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made[spec.ID] != nil {
		return nil, fmt.Errorf("%w: %s", vm.ErrExists, spec.ID)
	}
	m := &directMachine{d: d, id: spec.ID, dir: filepath.Join(d.root, spec.ID), since: time.Now()}
	for _, n := range []string{"workspace", "home", "state"} {
		if err := os.MkdirAll(filepath.Join(m.dir, n), 0o700); err != nil {
			return nil, err
		}
	}
	d.made[spec.ID] = m
	return m, nil
}

func (d *Direct) Open(_ context.Context, id string) (vm.Machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.made[id]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: %s", vm.ErrNotExist, id)
}

func (d *Direct) List(context.Context) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id := range d.made {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

func (d *Direct) Destroy(_ context.Context, id string) error {
	d.mu.Lock()
	m := d.made[id]
	delete(d.made, id)
	d.mu.Unlock()
	if m == nil {
		return fmt.Errorf("%w: %s", vm.ErrNotExist, id)
	}
	if err := m.Stop(stopNow()); err != nil {
		return err
	}
	return os.Rename(m.dir, filepath.Join(d.root, ".trash-"+unique(id)))
}

// directMachine is one guestd.
type directMachine struct {
	d       *Direct
	id, dir string

	op sync.Mutex // Start and Stop exclude each other

	mu    sync.Mutex
	since time.Time
	pid   int           // 0 = off
	ended chan struct{} // closed when guestd was reaped
	lost  bool          // ended by itself or by PowerLoss
}

func (m *directMachine) ID() string            { return m.id }
func (m *directMachine) Kind() vm.Kind         { return m.d.Kind() }
func (m *directMachine) Features() vm.Features { return m.d.Features() }
func (m *directMachine) socket() string        { return filepath.Join(m.dir, "s") }

func (m *directMachine) there() bool {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.d.made[m.id] == m
}

func (m *directMachine) Info(context.Context) (vm.Info, error) {
	i := vm.Info{ID: m.id, Kind: m.Kind(), State: vm.StateAbsent}
	if !m.there() {
		return i, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i.Since = m.since
	switch {
	case m.pid != 0:
		i.State, i.Pids = vm.StateReady, map[string]int{"guestd": m.pid}
	case m.lost:
		i.State, i.Problem = vm.StateTrouble, "guestd ended by itself"
	default:
		i.State = vm.StateOff
	}
	return i, nil
}

func (m *directMachine) Start(ctx context.Context, progress func(vm.Progress)) error {
	m.op.Lock()
	defer m.op.Unlock()
	if !m.there() {
		return fmt.Errorf("%w: %s", vm.ErrNotExist, m.id)
	}
	if i, _ := m.Info(ctx); i.State == vm.StateReady {
		return nil
	}
	if progress != nil {
		progress(vm.Progress{Phase: "boot", Text: "Starting guestd"})
	}
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	_ = os.Remove(m.socket())
	p, err := os.StartProcess(m.d.guestd, []string{"guestd", "init", "--direct", "--socket", m.socket(),
		"--state", filepath.Join(m.dir, "state"), "--workspace", filepath.Join(m.dir, "workspace"),
		"--home", filepath.Join(m.dir, "home"), "--proxy", "off"},
		&os.ProcAttr{Dir: "/", Env: os.Environ(), Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("guestd cannot be started: %w", err)
	}
	ended := make(chan struct{})
	m.mu.Lock()
	m.pid, m.ended, m.since, m.lost = p.Pid, ended, time.Now(), false
	m.mu.Unlock()
	go func() {
		_, _ = p.Wait()
		m.mu.Lock()
		m.pid, m.lost = 0, true // Stop takes it back
		m.mu.Unlock()
		close(ended)
	}()
	for {
		if c, err := net.Dial("unix", m.socket()); err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			b, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			return fmt.Errorf("guestd ended at once: %s", b)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (m *directMachine) Dial(ctx context.Context) (io.ReadWriteCloser, error) {
	m.mu.Lock()
	on := m.pid != 0
	m.mu.Unlock()
	if !on {
		return nil, fmt.Errorf("%w: %s", vm.ErrNotRunning, m.id)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", m.socket())
}

func (m *directMachine) Stop(ctx context.Context) error {
	m.op.Lock()
	defer m.op.Unlock()
	m.mu.Lock()
	pid, ended := m.pid, m.ended
	m.mu.Unlock()
	if pid != 0 {
		select {
		case <-ended:
		case <-ctx.Done():
			// guestd is a subreaper: its tree hangs together until it is gone. Stopped, it
			// starts nothing anew; it goes last, when no other is left that could go on
			// writing where a test cleans up.
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			for end := time.Now().Add(hang); killed(tree(pid)) > 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			<-ended
		}
	}
	m.mu.Lock()
	m.lost = false
	m.mu.Unlock()
	return nil
}

// killed kills processes and returns how many of them had not ended already.
func killed(pids []int) (lived int) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
		if err != nil || ok && (strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")) {
			continue
		}
		lived++
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return lived
}

// tree lists the descendants of a process, deepest last.
func tree(root int) (out []int) {
	for _, list := range globPids(root) {
		out = append(out, list)
		out = append(out, tree(list)...)
	}
	return out
}

func globPids(pid int) (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		n := 0
		for _, c := range b {
			if c >= '0' && c <= '9' {
				n = n*10 + int(c-'0')
			} else if n > 0 {
				out, n = append(out, n), 0
			}
		}
	}
	return out
}
