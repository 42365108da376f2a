//go:build linux

package execs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/frame"
	"glasshouse/vm/guest/agent/shim"
	"glasshouse/vm/guest/agent/spawn"
)

// conn is the worker's end of one shim.
type conn struct {
	m *Manager
	f *frame.Conn

	// guarded by m.mu
	pid    int
	exec   *Exec
	cgroup string
	ready  chan struct{} // closed at its first state
	idle   bool          // offered for the next execution
}

var shimSeq atomic.Int64

// startShim runs a new shim and waits for nothing.
func (m *Manager) startShim() (*conn, error) {
	f, theirs, err := frame.Pair()
	if err != nil {
		return nil, err
	}
	cfg := m.cfg.Shim
	name := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixMilli()%1e9, 36) + strconv.FormatInt(shimSeq.Add(1), 36) + ".sock"
	cfg.Socket = filepath.Join(m.cfg.Sockets, name)
	arg, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", "shim", string(arg))
	cmd.Args[0] = "guestd"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=2"}, testEnv()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := cmd.Start
	if m.cfg.FixedAddresses {
		start = func() error { return spawn.FixedAddresses(cmd.Start) }
	}
	err = start()
	theirs.Close()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("a shim cannot be started: %w", err)
	}
	go func() { _ = cmd.Wait() }() // only reaps it: its connection's end is what counts
	return m.join(f, cmd.Process.Pid), nil
}

// testEnv passes on what lets a test binary act as guestd.
func testEnv() (out []string) {
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "GUESTD_TEST_") || strings.HasPrefix(e, "GOCOVERDIR=") {
			out = append(out, e)
		}
	}
	return out
}

func (m *Manager) join(f *frame.Conn, pid int) *conn {
	c := &conn{m: m, f: f, pid: pid, ready: make(chan struct{})}
	m.mu.Lock()
	m.shims[c] = true
	m.mu.Unlock()
	go c.read()
	return c
}

// rejoin connects to the shims a former worker left behind.
func (m *Manager) rejoin(ctx context.Context) {
	names, _ := filepath.Glob(filepath.Join(m.cfg.Sockets, "*.sock"))
	for _, name := range names {
		var d net.Dialer
		d.Timeout = 5 * time.Second
		u, err := d.DialContext(ctx, "unix", name)
		if err != nil {
			os.Remove(name) // its shim is dead
			continue
		}
		c := m.join(frame.New(u.(*net.UnixConn)), 0)
		select {
		case <-c.ready:
		case <-time.After(10 * time.Second):
			log.Printf("execs: the shim %s does not answer", filepath.Base(name))
			c.f.Close()
		}
	}
}

// fill keeps idle shims in reserve.
func (m *Manager) fill() {
	m.mu.Lock()
	n := m.cfg.Pool + len(m.waiters) - len(m.idle) - m.starting
	if m.closed {
		n = 0
	}
	m.starting += max(n, 0)
	m.mu.Unlock()
	for ; n > 0; n-- {
		go func() {
			c, err := m.startShim()
			if err == nil {
				select {
				case <-c.ready:
				case <-time.After(shimWait):
					c.f.Close()
					err = errors.New("a shim does not come up")
				}
			}
			m.mu.Lock()
			m.starting--
			m.mu.Unlock()
			if err != nil {
				log.Printf("execs: %v", err)
				time.Sleep(time.Second)
			}
		}()
	}
}

// acquire takes an idle shim for e.
func (m *Manager) acquire(ctx context.Context, e *Exec) (*conn, error) {
	end := time.NewTimer(shimWait)
	defer end.Stop()
	retry := time.NewTicker(2 * time.Second)
	defer retry.Stop()
	for {
		m.mu.Lock()
		if n := len(m.idle); n > 0 {
			c := m.idle[n-1]
			m.idle = m.idle[:n-1]
			c.take(e)
			m.mu.Unlock()
			m.fill()
			return c, nil
		}
		w := make(chan *conn, 1)
		m.waiters = append(m.waiters, w)
		m.mu.Unlock()
		m.fill()
		var err error
		select {
		case c := <-w:
			if m.claim(c, e) {
				return c, nil
			}
			continue
		case <-retry.C: // in case a shim did not come up
		case <-ctx.Done():
			err = ctx.Err()
		case <-end.C:
			err = errors.New("no process to run the command in could be started; see the guest's log")
		}
		if !m.unwait(w) { // handed over in this very moment
			if c := <-w; m.claim(c, e) {
				return c, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// claim takes a shim that was handed over, unless it died in the meantime.
func (m *Manager) claim(c *conn, e *Exec) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.shims[c] {
		return false
	}
	c.take(e)
	return true
}

func (m *Manager) unwait(w chan *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, x := range m.waiters {
		if x == w {
			m.waiters = append(m.waiters[:i], m.waiters[i+1:]...)
			return true
		}
	}
	return false
}

// take is called with m.mu held.
func (c *conn) take(e *Exec) {
	c.exec, c.idle = e, false
	e.hold(c)
}

func (c *conn) read() {
	defer c.end()
	for {
		typ, b, files, err := c.f.Recv()
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			return
		}
		switch typ {
		case shim.FrState:
			var st shim.State
			if json.Unmarshal(b, &st) != nil {
				return
			}
			c.state(st)
		case shim.FrExit:
			var x guest.Exit
			if json.Unmarshal(b, &x) != nil {
				return
			}
			c.m.mu.Lock()
			e := c.exec
			c.m.mu.Unlock()
			if e != nil {
				e.finish(x)
			}
		}
	}
}

func (c *conn) state(st shim.State) {
	m := c.m
	m.mu.Lock()
	c.pid, c.cgroup = st.Pid, st.Cgroup
	first := false
	select {
	case <-c.ready:
	default:
		first = true
		close(c.ready)
	}
	e := c.exec
	if st.ID != "" {
		if e == nil && first { // found again after a restart
			if e = m.execs[st.ID]; e != nil {
				c.take(e)
			}
		}
		m.mu.Unlock()
		if e != nil && e.Meta.ID == st.ID {
			e.update(st)
		}
		return
	}
	if e != nil {
		if !e.Ended() { // handed over, but the shim has not read it yet
			m.mu.Unlock()
			return
		}
		c.exec = nil
	}
	if c.idle {
		m.mu.Unlock()
		return
	}
	c.idle = true
	quit := st.Worn || m.closed
	if !quit {
		switch {
		case len(m.waiters) > 0:
			m.waiters[0] <- c
			m.waiters = m.waiters[1:]
		case len(m.idle) < maxIdle:
			m.idle = append(m.idle, c)
		default:
			quit = true
		}
	}
	m.mu.Unlock()
	if e != nil {
		e.leave()
	}
	if quit {
		c.tell(shim.FrQuit, nil)
	}
}

// tell sends a frame. A shim that cannot be told anything is given up: the
// connection's reader settles what it held.
func (c *conn) tell(typ byte, v any) {
	if c.f.Send(typ, v) != nil {
		c.f.Close()
	}
}

// end is called when the shim is gone.
func (c *conn) end() {
	m := c.m
	c.f.Close()
	m.mu.Lock()
	delete(m.shims, c)
	for i, x := range m.idle {
		if x == c {
			m.idle = append(m.idle[:i], m.idle[i+1:]...)
			break
		}
	}
	e := c.exec
	c.exec = nil
	cg := c.cgroup
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
	m.mu.Unlock()
	if e == nil {
		return
	}
	if cg != "" { // nobody else will end what the shim left
		spawn.KillCgroup(cg)
	}
	if e.Ended() {
		e.leave()
	} else {
		m.settle(e)
	}
}
