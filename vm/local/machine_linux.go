//go:build amd64 || arm64

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"glasshouse/vm"
)

type machine struct {
	m    *manager
	id   string
	dir  string
	spec vm.Spec
}

const (
	// bootPatience is how long a sandbox that does not listen yet is "starting" and not "trouble".
	bootPatience = 30 * time.Second
	// stopPatience bounds Stop when the caller's context has no end.
	stopPatience = 30 * time.Second
	insideSocket = "/run/glasshouse/" + socketName
)

func (mc *machine) ID() string            { return mc.id }
func (mc *machine) Kind() vm.Kind         { return vm.KindLocal }
func (mc *machine) Features() vm.Features { return mc.m.Features() }

func (mc *machine) runPath() string { return filepath.Join(mc.dir, runName) }

// readRun returns nil when no sandbox was started since the last stop. A
// run.json that cannot be read is an error: it may name a living sandbox.
func (mc *machine) readRun() (*run, error) {
	var r run
	err := readJSON(mc.runPath(), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", mc.runPath(), err)
	}
	return &r, nil
}

func (mc *machine) Info(context.Context) (vm.Info, error) {
	info := vm.Info{ID: mc.id, Kind: vm.KindLocal, State: vm.StateAbsent}
	if _, err := readMarker(mc.dir, mc.id); err != nil {
		if errors.Is(err, vm.ErrNotExist) {
			return info, nil
		}
		return info, err
	}
	r, err := mc.readRun()
	if err != nil {
		// Not knowing is not "off".
		info.State, info.Problem = vm.StateTrouble, err.Error()+"; stop the machine to repair it"
		return info, nil //nolint:nilerr // the answer holds it
	}
	if r == nil {
		if left := strays(mc.dir); len(left) > 0 {
			info.State = vm.StateTrouble
			info.Problem = "a sandbox runs that was not noted (the core ended while it started it); start the machine to replace it, or stop it"
			info.Pids = map[string]int{"bwrap": left[len(left)-1].Pid}
			return info, nil
		}
		info.State = vm.StateOff
		if fi, err := os.Stat(filepath.Join(mc.dir, markerName)); err == nil {
			info.Since = fi.ModTime()
		}
		return info, nil
	}
	info.Since = r.Started
	info.Pids = map[string]int{}
	if r.Monitor.alive(r.BootID) {
		info.Pids["bwrap"] = r.Monitor.Pid
	}
	if !r.Init.alive(r.BootID) {
		switch {
		case r.Stopping, r.BootID != hostBootID():
			info.State = vm.StateOff
		default:
			info.State = vm.StateTrouble
			info.Problem = "the sandbox ended by itself; start the machine again (its workspace is kept)"
		}
		return info, nil
	}
	info.Pids["guestd"] = r.Init.Pid
	switch {
	case r.Stopping:
		info.State = vm.StateStopping
	case r.Init.listening(insideSocket):
		info.State = vm.StateReady
	case time.Since(r.Started) < bootPatience:
		info.State = vm.StateStarting
	default:
		info.State = vm.StateTrouble
		info.Problem = "the sandbox runs but does not listen; stop it and start it again. " + mc.logEnd()
	}
	return info, nil
}

func (mc *machine) Start(ctx context.Context, progress func(vm.Progress)) error {
	if err := mc.m.rootRefusal(); err != nil {
		return err
	}
	unlock, err := mc.m.lock(ctx, mc.id)
	if err != nil {
		return err
	}
	defer unlock()
	// Asked again under the lock: it may have been destroyed since Open.
	if _, err := mc.m.Open(ctx, mc.id); err != nil {
		return err
	}
	info, err := mc.Info(ctx)
	if err != nil {
		return err
	}
	switch info.State {
	case vm.StateReady:
		report(progress, "connect", "The machine runs already")
		return nil
	case vm.StateStarting:
		// Another core started it a moment ago, or it is just dying and listens no more.
		if err := mc.await(ctx, progress); err == nil || ctx.Err() != nil {
			return err
		}
	}
	// Off, or the rest of something that ended or hangs: nothing of it may be left
	// before a new one writes to the same workspace.
	now, cancel := context.WithCancel(ctx)
	cancel()
	if err := mc.stopLocked(now); err != nil {
		return fmt.Errorf("the rest of the last run of machine %s cannot be ended: %w", mc.id, err)
	}
	if err := mc.launch(ctx, progress); err != nil {
		return err
	}
	if err := mc.await(ctx, progress); err != nil {
		_ = mc.stopLocked(now)
		return err
	}
	return nil
}

// await waits until guestd of the running sandbox takes a connection.
func (mc *machine) await(ctx context.Context, progress func(vm.Progress)) error {
	report(progress, "connect", "Waiting for the machine to answer")
	limit := time.NewTimer(bootPatience)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := mc.readRun()
		if err != nil {
			return err
		}
		if r == nil || !r.Init.alive(r.BootID) {
			return fmt.Errorf("machine %s ended while it started. %s", mc.id, mc.logEnd())
		}
		if r.Init.listening(insideSocket) {
			// Nobody holds a channel yet, so one connection more disturbs nobody.
			conn, err := dialSocket(ctx, filepath.Join(mc.dir, "chan"), socketName, mc.uid())
			if err != nil {
				return fmt.Errorf("machine %s started but cannot be reached: %w", mc.id, err)
			}
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("machine %s did not answer before the start was given up: %w. %s", mc.id, context.Cause(ctx), mc.logEnd())
		case <-limit.C:
			return fmt.Errorf("machine %s did not answer within %s. %s", mc.id, bootPatience, mc.logEnd())
		case <-tick.C:
		}
	}
}

func (mc *machine) Dial(ctx context.Context) (io.ReadWriteCloser, error) {
	r, err := mc.readRun()
	if err != nil {
		return nil, err
	}
	if r == nil || !r.Init.alive(r.BootID) {
		return nil, fmt.Errorf("%w: %s", vm.ErrNotRunning, mc.id)
	}
	return dialSocket(ctx, filepath.Join(mc.dir, "chan"), socketName, mc.uid())
}

func (mc *machine) Stop(ctx context.Context) error {
	// A start under way is waited for even when ctx is done, since it is bounded itself.
	turn, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootPatience+killPatience)
	defer cancel()
	unlock, err := mc.m.lock(turn, mc.id)
	if err != nil {
		return err
	}
	defer unlock()
	return mc.stopLocked(ctx)
}

// stopLocked waits for the sandbox to end until ctx is done, kills it then, and
// leaves no process and no cgroup of the machine behind.
func (mc *machine) stopLocked(ctx context.Context) error {
	if _, err := readMarker(mc.dir, mc.id); err != nil {
		return err
	}
	r, rerr := mc.readRun()
	if r != nil {
		if !r.Stopping {
			r.Stopping = true
			if err := writeJSON(mc.runPath(), r); err != nil {
				mc.m.o.Log.Warn("the stop of a machine could not be noted", "id", mc.id, "err", err)
			}
		}
		wait, cancel := context.WithTimeout(ctx, stopPatience)
		err := r.Init.end(wait, r.BootID)
		cancel()
		if err != nil {
			return err
		}
		// bwrap ends with its child; a moment for that, then by force.
		soon, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = r.Monitor.end(soon, r.BootID)
		cancel()
		if err != nil {
			return err
		}
	}
	// Whatever no file names: a start that was cut short.
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range strays(mc.dir) {
		mc.m.o.Log.Warn("ending a sandbox that nobody noted", "id", mc.id, "pid", p.Pid)
		if err := p.end(gone, hostBootID()); err != nil {
			return err
		}
	}
	if err := mc.m.groups.remove(mc.id); err != nil {
		return fmt.Errorf("machine %s has ended, but its control group stays: %w", mc.id, err)
	}
	if rerr != nil {
		mc.m.o.Log.Warn("a damaged run.json is dropped; no process of the machine is left", "id", mc.id, "err", rerr)
	}
	if err := os.Remove(mc.runPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("machine %s has ended, but %s stays: %w", mc.id, mc.runPath(), err)
	}
	return nil
}

// uid is the host user the sandbox runs as.
func (mc *machine) uid() int {
	if u := mc.m.o.User; u != nil {
		return int(u.UID)
	}
	return os.Geteuid()
}

// logEnd quotes the end of what the sandbox printed, for error texts.
func (mc *machine) logEnd() string {
	b, err := tail(filepath.Join(mc.dir, "log", logName), 1500)
	if err != nil || len(b) == 0 {
		return "It printed nothing."
	}
	return fmt.Sprintf("It printed: %q", b)
}
