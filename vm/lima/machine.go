package lima

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"glasshouse/vm"
)

// Machine is one Lima machine. What it knows comes from files and processes, so
// that a new core sees what an old one left.
type Machine struct {
	m *Manager
	l layout

	mkMu sync.Mutex
	mk   marker

	mu    sync.Mutex                         // Start and Stop
	doing atomic.Pointer[vm.State]           // starting or stopping, while one of them runs
	abort atomic.Pointer[context.CancelFunc] // ends a running Start
}

var _ vm.Machine = (*Machine)(nil)

func (x *Machine) setMarker(mk marker) {
	x.mkMu.Lock()
	defer x.mkMu.Unlock()
	x.mk = mk
}

func (x *Machine) marker() marker {
	x.mkMu.Lock()
	defer x.mkMu.Unlock()
	return x.mk
}

// ID implements vm.Machine.
func (x *Machine) ID() string { return x.l.id }

// Kind implements vm.Machine.
func (x *Machine) Kind() vm.Kind { return vm.KindLima }

// Features implements vm.Machine.
func (x *Machine) Features() vm.Features { return x.m.Features() }

const (
	// startingFor is how long a machine that another core was starting may
	// stay without an answer before it counts as trouble.
	startingFor = 4 * time.Minute

	problemNetd = "the machine runs, but its network process ended, and QEMU cannot connect to a new one; stop the machine and start it again"
)

// Info implements vm.Machine. It never opens the channel: that would take it
// from whoever has it.
func (x *Machine) Info(context.Context) (vm.Info, error) {
	i := vm.Info{ID: x.l.id, Kind: vm.KindLima, State: vm.StateOff}
	if err := x.l.hasDisk(); errors.Is(err, vm.ErrNotExist) {
		i.State = vm.StateAbsent
		return i, nil
	} else if err != nil {
		// Not knowing is not "gone".
		i.State, i.Problem = vm.StateTrouble, err.Error()
		return i, nil //nolint:nilerr // the answer holds it
	}
	doing := x.doing.Load()
	p, st := x.l.procs(), x.l.readState()
	i.Pids = p.pids()
	if st != nil {
		i.Since = st.Since
	}
	switch {
	case doing != nil:
		i.State = *doing
	case p.qemu != nil && p.netd == nil:
		i.State, i.Problem = vm.StateTrouble, problemNetd
	case p.qemu != nil && st != nil && st.Phase == "ready" && st.QEMU == p.qemu.pid:
		i.State = vm.StateReady
	case p.qemu != nil && st != nil && st.Phase == "stopping":
		i.State, i.Problem = vm.StateTrouble, "a stop of the machine was interrupted; stop it again"
	case p.qemu != nil && st != nil && time.Since(st.Since) < startingFor:
		i.State = vm.StateStarting
	case p.qemu != nil:
		i.State, i.Problem = vm.StateTrouble, "the machine runs, but guestd never answered; stop the machine and start it again"
	case st != nil && st.Phase == "starting" && p.netd != nil && time.Since(st.Since) < startingFor:
		i.State = vm.StateStarting
	case st != nil && st.Phase != "stopping":
		i.State = vm.StateTrouble
		i.Problem = "the machine ended by itself; start it again"
		if why := x.lastWords(); why != "" {
			i.Problem += ". Its last words:\n" + why
		}
	}
	return i, nil
}

// lastWords is the end of what the machine and Lima said, for error texts.
func (x *Machine) lastWords() string {
	f, err := openFolder(x.l.run, nil)
	if err != nil {
		return ""
	}
	defer f.root.Close()
	var parts []string
	for _, s := range []struct{ what, name string }{
		{"console", "l/" + instName + "/serial.log"},
		{"host agent", "l/" + instName + "/ha.stderr.log"},
		{"limactl", "limactl.log"},
		{"network", "netd.log"},
	} {
		t := tail(f.root, s.name, 4000)
		if strings.HasSuffix(s.name, "ha.stderr.log") {
			t = warnings(t)
		}
		if t != "" {
			lines := strings.Split(t, "\n")
			parts = append(parts, s.what+": "+strings.Join(lines[max(0, len(lines)-6):], "\n  "))
		}
	}
	return strings.Join(parts, "\n")
}

// warnings picks what went wrong out of the host agent's JSON lines.
func warnings(log string) string {
	var out []string
	for _, line := range strings.Split(log, "\n") {
		var e struct{ Level, Msg, Error string }
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch e.Level {
		case "warning", "error", "fatal", "panic":
			out = append(out, strings.TrimSpace(e.Msg+" "+e.Error))
		case "debug":
			if strings.HasPrefix(e.Msg, "qemu[std") {
				out = append(out, e.Msg)
			}
		}
	}
	return strings.Join(out, "\n")
}

// enter marks what is being done, for Info, and returns what undoes it.
func (x *Machine) enter(s vm.State) func() {
	x.doing.Store(&s)
	return func() { x.doing.Store(nil) }
}

// Dial implements vm.Machine. The stream is a unix socket of netd's, with
// half-close.
func (x *Machine) Dial(ctx context.Context) (io.ReadWriteCloser, error) {
	c, err := x.dial(ctx)
	if err != nil {
		if p := x.l.procs(); p.qemu == nil {
			return nil, fmt.Errorf("machine %q: %w", x.l.id, vm.ErrNotRunning)
		} else if p.netd == nil {
			return nil, fmt.Errorf("machine %q cannot be reached: %s", x.l.id, problemNetd)
		}
		return nil, fmt.Errorf("machine %q cannot be reached: %w", x.l.id, err)
	}
	return c, nil
}

// dial connects to netd and waits for its line about the guest.
func (x *Machine) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", x.l.chanSock())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// Byte by byte: what follows the line is the guest's.
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := c.Read(b); err != nil {
			_ = c.Close()
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("the network process gave no answer: %w", err)
		}
		if b[0] == '\n' {
			break
		}
		if line = append(line, b[0]); len(line) > 500 {
			_ = c.Close()
			return nil, errors.New("the network process talks nonsense")
		}
	}
	if !stop() {
		_ = c.Close()
		return nil, context.Cause(ctx)
	}
	if string(line) != "ok" {
		_ = c.Close()
		return nil, errors.New(printable(strings.TrimPrefix(string(line), "no ")))
	}
	return c, nil
}

// ask opens the channel once and has guestd's multiplexer answer a ping.
func (x *Machine) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := x.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	cfg.EnableKeepAlive = false
	cfg.ConnectionWriteTimeout = 10 * time.Second
	s, err := yamux.Client(c, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	_, err = s.Ping()
	return err
}

// Stop implements vm.Machine. A guest that does not go by itself is asked through
// its kernel's magic keys; when ctx ends, it is switched off.
func (x *Machine) Stop(ctx context.Context) error {
	if f := x.abort.Load(); f != nil {
		(*f)()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop(ctx)
}

// stopPatience bounds a Stop whose context does not.
const stopPatience = 30 * time.Second

func (x *Machine) stop(ctx context.Context) error {
	p := x.l.procs()
	if p.none() {
		left := x.endStragglers()
		x.l.clear()
		return x.cannotEnd(left)
	}
	defer x.enter(vm.StateStopping)()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stopPatience)
		defer cancel()
	}
	if err := x.l.writeState(runState{Phase: "stopping"}); err != nil {
		x.m.log.Warn("the machine's state cannot be kept", "machine", x.l.id, "err", err)
	}
	var left []string
	if p.qemu != nil && !x.endQEMU(ctx, *p.qemu) {
		left = append(left, fmt.Sprintf("QEMU (pid %d)", p.qemu.pid))
	}
	// The agent takes its pid file away before it is gone, so the one that was
	// seen first counts; one may also have come up only now.
	if p.agent == nil {
		p.agent = x.l.procs().agent
	}
	if p.agent != nil {
		// It ends by itself once QEMU is gone.
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
		ended := p.agent.gone(c)
		cancel()
		if !ended && !p.agent.end(0) {
			left = append(left, fmt.Sprintf("Lima's host agent (pid %d)", p.agent.pid))
		}
	}
	if p.netd != nil && !p.netd.end(2*time.Second) {
		left = append(left, fmt.Sprintf("the network process (pid %d)", p.netd.pid))
	}
	left = append(left, x.endStragglers()...)
	if len(left) == 0 {
		x.l.clear()
	}
	return x.cannotEnd(left)
}

// endStragglers ends what came up during a stop. Without the agent nothing new is
// started, and what it started last was there at the first look; but on its way from
// the agent's copy over the wrapper to QEMU a process has another command line each
// time, and none at all for a moment. So it looks until it has seen none twice.
func (x *Machine) endStragglers() (left []string) {
	for none, looks := 0, 0; none < 2 && looks < 50; looks++ {
		if looks > 0 {
			time.Sleep(5 * time.Millisecond)
		}
		left = nil
		found := x.l.stragglers()
		for _, s := range found {
			if !s.end(0) {
				left = append(left, fmt.Sprintf("a process (pid %d)", s.pid))
			}
		}
		switch {
		case len(left) > 0:
			return left
		case len(found) == 0:
			none++
		default:
			none = 0
		}
	}
	return left
}

func (x *Machine) cannotEnd(left []string) error {
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("machine %q: %s cannot be ended; end it by hand", x.l.id, strings.Join(left, " and "))
}

// endQEMU waits for the guest to power off, then makes it.
func (x *Machine) endQEMU(ctx context.Context, q process) bool {
	soft, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	if q.gone(soft) {
		return true
	}
	if ctx.Err() == nil {
		patience := 10 * time.Second
		if end, ok := ctx.Deadline(); ok {
			patience = max(min(patience, time.Until(end)), 2*time.Second)
		}
		if err := powerOff(x.l.in("qmp.sock"), x.l.in("serial.sock"), patience); err != nil && q.alive() {
			x.m.log.Info("the machine's kernel cannot be asked to power off", "machine", x.l.id, "err", err)
		}
		if q.gone(ctx) {
			return true
		}
	}
	x.m.log.Warn("the machine does not power off and is switched off", "machine", x.l.id)
	if _, err := qmp(x.l.in("qmp.sock"), 5*time.Second, command{Execute: "quit"}); err == nil {
		c, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if q.gone(c) {
			return true
		}
	}
	return q.end(0)
}

// relRun is a path below the run folder.
func (l layout) relRun(p string) string {
	r, err := filepath.Rel(l.run, p)
	if err != nil {
		return p
	}
	return r
}
