package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// unit is one project's machine.
type unit struct {
	f       *Fleet
	project domain.Project
	// op excludes start, stop and destroy of the same machine.
	op chan struct{}

	mu     sync.Mutex
	state  vm.State
	unsaid bool // state could not be recorded yet
	gone   bool // destroyed: it is never started again
	mach   vm.Machine
	cur    guest.Guest   // nil while there is no channel
	opened time.Time     // when cur was opened
	short  int           // channels in a row that were lost soon after they opened
	fresh  chan struct{} // closed and replaced at every change of cur or state
	link   *Link
	boot   string
	// busy ends the start or reconnect that holds op, so that a stop need not wait for it.
	busy context.CancelCauseFunc
	// stops counts stops that wait for op: nothing slow begins before them.
	stops int
	// tries counts failed starts and failed is the last one's error: who waited for
	// it in the queue is told the same instead of trying once more.
	tries  int
	failed error
	// wanted is set while somebody needs the machine: from a start until a stop
	// that was asked for. A wanted machine that dies is started again by whoever
	// waits for something in it.
	wanted bool
}

func (u *unit) ready() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state == vm.StateReady && u.cur != nil
}

// work is the context of a start or reconnect: it ends with the caller, with the
// core's starts, after a limit (0 = none), or when a stop wants the machine. op is held.
func (u *unit) work(ctx context.Context, limit time.Duration) (context.Context, func()) {
	wctx, cancel := context.WithCancelCause(u.f.starts)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	var timer *time.Timer
	if limit > 0 {
		timer = time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
	}
	u.mu.Lock()
	u.busy = cancel
	if u.stops > 0 {
		cancel(errStopped)
	}
	u.mu.Unlock()
	return wctx, func() {
		u.mu.Lock()
		u.busy = nil
		u.mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		stop()
		cancel(nil)
	}
}

// take takes op for a stop: a start or reconnect that holds it is given up.
func (u *unit) take(ctx context.Context) error {
	u.mu.Lock()
	u.stops++
	u.wanted = false
	if u.busy != nil {
		u.busy(errStopped)
	}
	u.mu.Unlock()
	err := u.lock(ctx)
	u.mu.Lock()
	u.stops--
	u.wanted = u.wanted && err != nil
	u.mu.Unlock()
	return err
}

func (u *unit) lock(ctx context.Context) error {
	select {
	case u.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-u.f.ctx.Done():
		return errClosing
	}
}

func (u *unit) unlock() { <-u.op }

// open finds the machine on disk.
func (u *unit) open(ctx context.Context) (vm.Machine, error) {
	u.mu.Lock()
	mach := u.mach
	u.mu.Unlock()
	if mach != nil {
		return mach, nil
	}
	m, err := u.f.manager(u.project.Kind)
	if err != nil {
		return nil, err
	}
	if mach, err = m.Open(ctx, string(u.project.Machine)); err != nil {
		return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("the machine of project %s is missing", u.project.Name), "its disk was removed outside Glasshouse; make the project again", err)
	}
	u.mu.Lock()
	u.mach = mach
	u.mu.Unlock()
	return mach, nil
}

func (u *unit) progress(p vm.Progress) {
	u.f.cfg.Publish(event.New{Stream: event.ProjectStream(u.project.ID), Origin: domain.OriginHost, ProjectID: u.project.ID,
		Payload: &event.MachineProgress{Machine: u.project.Machine, Phase: p.Phase, Text: p.Text, Done: p.Done, Total: p.Total}})
}

// start boots the machine, or only opens the channel again where it runs. op is held.
func (u *unit) start(ctx context.Context) error {
	mach, err := u.open(ctx)
	if err != nil {
		return err
	}
	u.mu.Lock()
	was := u.state
	u.mu.Unlock()
	if was == vm.StateReady {
		// The channel was lost; whether the machine was too is seen by trying.
		if info, err := mach.Info(ctx); err == nil && info.State != vm.StateOff && info.State != vm.StateAbsent {
			if u.connect(ctx, 3*time.Second) == nil {
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return u.givenUp(ctx)
	}
	if err := u.setState(ctx, vm.StateStarting, ""); err != nil {
		u.look("")
		return err
	}
	if err := mach.Start(ctx, u.progress); err != nil {
		u.look(err.Error())
		if ctx.Err() != nil {
			return u.givenUp(ctx)
		}
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("the machine of project %s did not start", u.project.Name), "see 'glasshouse machine log'", err)
	}
	if err := u.connect(ctx, time.Minute); err != nil {
		u.look(err.Error())
		if ctx.Err() != nil {
			return u.givenUp(ctx)
		}
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("the machine of project %s started but does not answer", u.project.Name), "stop and start it", err)
	}
	return nil
}

// givenUp says why a start was not carried on.
func (u *unit) givenUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	var known *domain.Error
	if errors.As(cause, &known) {
		return known
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("the machine of project %s did not start in time", u.project.Name), "see 'glasshouse machine log'", cause)
	}
	return fmt.Errorf("the start of the machine of project %s was given up: %w", u.project.Name, cause)
}

// look sets the state to what the world says after a start failed.
func (u *unit) look(problem string) {
	ctx, cancel := context.WithTimeout(u.f.ctx, 10*time.Second)
	defer cancel()
	u.mu.Lock()
	mach := u.mach
	u.mu.Unlock()
	state := vm.StateTrouble
	if info, err := mach.Info(ctx); err == nil && (info.State == vm.StateOff || info.State == vm.StateAbsent) {
		state = vm.StateOff
	}
	_ = u.setState(ctx, state, problem)
}

func (u *unit) setWanted(w bool) {
	u.mu.Lock()
	u.wanted = w
	u.mu.Unlock()
}

// stop powers the machine off; op is held.
func (u *unit) stop(ctx context.Context) error {
	mach, err := u.open(ctx)
	if err != nil {
		return err
	}
	info, err := mach.Info(ctx)
	if err != nil {
		return err
	}
	if info.State == vm.StateOff || info.State == vm.StateAbsent {
		u.letGo()
		return u.setState(ctx, vm.StateOff, "")
	}
	// That it is being stopped is said where it can be: a full disk must not keep a
	// machine running.
	_ = u.setState(ctx, vm.StateStopping, "")
	u.mu.Lock()
	g := u.cur
	u.mu.Unlock()
	if g == nil {
		// No channel yet in this run: the orderly way still needs one.
		dctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		if fresh, err := u.dial(dctx); err == nil {
			g = fresh
			defer fresh.Close()
		}
		cancel()
	}
	if g != nil {
		sctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		_ = g.Shutdown(sctx) // a guest that cannot is stopped from outside
		cancel()
	}
	sctx, cancel := context.WithTimeout(ctx, u.f.cfg.StopTimeout)
	err = mach.Stop(sctx)
	cancel()
	u.letGo()
	if err != nil {
		_ = u.setState(ctx, vm.StateTrouble, err.Error())
		return err
	}
	return u.setState(ctx, vm.StateOff, "")
}

// letGo closes the channel, if there is one.
func (u *unit) letGo() {
	u.mu.Lock()
	g := u.cur
	u.cur = nil
	u.mu.Unlock()
	if g != nil {
		g.Close()
	}
}

// setState records a change of state and wakes those who wait for one. The state
// itself is what the world is in: it changes although it cannot be recorded, and is
// recorded the next time it is set.
func (u *unit) setState(ctx context.Context, s vm.State, problem string) error {
	u.mu.Lock()
	same := u.state == s && problem == "" && !u.unsaid
	u.state, u.unsaid = s, !same
	boot := u.boot
	u.wake()
	u.mu.Unlock()
	if same {
		return nil
	}
	err := u.f.cfg.Record(context.WithoutCancel(ctx), event.New{
		Stream: event.ProjectStream(u.project.ID), Origin: domain.OriginHost, Actor: "host", ProjectID: u.project.ID,
		Payload: &event.MachineState{Machine: u.project.Machine, Kind: u.project.Kind, State: string(s), Problem: clip(problem, 2000), BootID: boot},
	})
	if err == nil {
		u.mu.Lock()
		u.unsaid = false
		u.mu.Unlock()
	}
	return err
}

// clip bounds what drivers and guests say of a problem.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// wake tells waiters that something changed; u.mu is held.
func (u *unit) wake() {
	close(u.fresh)
	u.fresh = make(chan struct{})
}
