// Package machine keeps the machines of all projects: it starts them when they
// are needed, holds the one channel to each, notices when a channel or a machine
// is lost, opens it again, and says every change of state as an event. Callers
// get a guest.Guest that survives a lost channel: see Link.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// Config of a Fleet; every edge is injected.
type Config struct {
	Managers map[string]vm.Manager // by kind
	// Open speaks the guest protocol on a fresh channel.
	Open func(ctx context.Context, conn io.ReadWriteCloser, egress guest.EgressHandler) (guest.Guest, error)
	// Egress is the gate for one project's machine.
	Egress func(project domain.ProjectID) guest.EgressHandler
	// Record appends an event.
	Record func(ctx context.Context, n event.New) error
	// Publish shows a transient event.
	Publish func(n event.New)
	// StartTimeout bounds a boot; 0 = 10 minutes (a first image build is not part of it).
	StartTimeout time.Duration
	// StopTimeout is how long a machine may take to power off before it is forced; 0 = 30 s.
	StopTimeout time.Duration
}

// Fleet is the set of machines.
type Fleet struct {
	cfg    Config
	ctx    context.Context // ends with the core
	cancel context.CancelFunc
	mu     sync.Mutex
	units  map[domain.ProjectID]*unit
	wg     sync.WaitGroup
}

// unit is one project's machine.
type unit struct {
	f       *Fleet
	project domain.Project
	// op excludes start, stop and destroy of the same machine.
	op chan struct{}

	mu    sync.Mutex
	state vm.State
	mach  vm.Machine
	cur   guest.Guest   // nil while there is no channel
	fresh chan struct{} // closed and replaced at every change of cur or state
	link  *Link
	boot  string
	// wanted is set while somebody needs the machine: from a start until a stop
	// that was asked for. A wanted machine that dies is started again by whoever
	// waits for something in it.
	wanted bool
}

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 10 * time.Minute
	}
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = 30 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Fleet{cfg: cfg, ctx: ctx, cancel: cancel, units: map[domain.ProjectID]*unit{}}
}

func (f *Fleet) unit(p domain.Project) *unit {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.units[p.ID]
	if u == nil {
		u = &unit{f: f, project: p, op: make(chan struct{}, 1), state: vm.StateAbsent, fresh: make(chan struct{})}
		u.link = &Link{u: u}
		f.units[p.ID] = u
	}
	return u
}

func (f *Fleet) manager(kind string) (vm.Manager, error) {
	m := f.cfg.Managers[kind]
	if m == nil {
		return nil, domain.E(domain.CodeInvalid, fmt.Sprintf("there is no machine kind %q here", kind), "use lima or local", nil)
	}
	return m, nil
}

// Kinds lists the managers by kind.
func (f *Fleet) Kinds() map[string]vm.Manager { return f.cfg.Managers }

// Create makes the project's machine on disk.
func (f *Fleet) Create(ctx context.Context, p domain.Project, spec vm.Spec) error {
	m, err := f.manager(p.Kind)
	if err != nil {
		return err
	}
	if err := m.Check(ctx); err != nil {
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("a %s machine cannot run here", p.Kind), "see 'glasshouse doctor'", err)
	}
	u := f.unit(p)
	if err := u.lock(ctx); err != nil {
		return err
	}
	defer u.unlock()
	spec.ID = string(p.Machine)
	mach, err := m.Create(ctx, spec, u.progress)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.mach = mach
	u.mu.Unlock()
	return u.setState(ctx, vm.StateOff, "")
}

// Ensure returns a project's guest, starting the machine when it is off.
func (f *Fleet) Ensure(ctx context.Context, p domain.Project) (guest.Guest, error) {
	u := f.unit(p)
	u.mu.Lock()
	ready := u.state == vm.StateReady && u.cur != nil
	u.mu.Unlock()
	if ready {
		return u.link, nil
	}
	if err := u.lock(ctx); err != nil {
		return nil, err
	}
	defer u.unlock()
	u.mu.Lock()
	ready = u.state == vm.StateReady && u.cur != nil
	u.mu.Unlock()
	if ready {
		return u.link, nil
	}
	sctx, cancel := context.WithTimeout(f.ctx, f.cfg.StartTimeout)
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	defer cancel()
	u.setWanted(true)
	if err := u.start(sctx); err != nil {
		return nil, err
	}
	return u.link, nil
}

// Adopt joins a machine that is still running after a restart of the core, and
// reports whether it was. It starts nothing.
func (f *Fleet) Adopt(ctx context.Context, p domain.Project) (guest.Guest, bool, error) {
	u := f.unit(p)
	if err := u.lock(ctx); err != nil {
		return nil, false, err
	}
	defer u.unlock()
	if err := u.open(ctx); err != nil {
		return nil, false, err
	}
	info, err := u.mach.Info(ctx)
	if err != nil {
		return nil, false, err
	}
	switch info.State {
	case vm.StateReady, vm.StateStarting, vm.StateTrouble:
		// Trouble may be a guestd that is just being restarted: try it.
		if err := u.connect(ctx, 20*time.Second); err == nil {
			u.setWanted(true)
			return u.link, true, nil
		}
		return nil, false, u.setState(ctx, vm.StateTrouble, "the machine runs but does not answer")
	}
	return nil, false, u.setState(ctx, info.State, info.Problem)
}

// State returns what is known of a project's machine without asking the world.
func (f *Fleet) State(id domain.ProjectID) vm.State {
	f.mu.Lock()
	u := f.units[id]
	f.mu.Unlock()
	if u == nil {
		return vm.StateOff
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// Running returns a project's guest when there is a channel to it; it starts nothing.
func (f *Fleet) Running(id domain.ProjectID) (guest.Guest, bool) {
	f.mu.Lock()
	u := f.units[id]
	f.mu.Unlock()
	if u == nil {
		return nil, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.link, u.state == vm.StateReady && u.cur != nil
}

// Info asks the driver about a project's machine.
func (f *Fleet) Info(ctx context.Context, p domain.Project) (vm.Info, error) {
	u := f.unit(p)
	if err := u.open(ctx); err != nil {
		return vm.Info{}, err
	}
	return u.mach.Info(ctx)
}

// Stop powers a project's machine off.
func (f *Fleet) Stop(ctx context.Context, p domain.Project) error {
	u := f.unit(p)
	if err := u.lock(ctx); err != nil {
		return err
	}
	defer u.unlock()
	return u.stop(ctx)
}

// Destroy stops a project's machine and moves it to the trash.
func (f *Fleet) Destroy(ctx context.Context, p domain.Project) error {
	m, err := f.manager(p.Kind)
	if err != nil {
		return err
	}
	u := f.unit(p)
	if err := u.lock(ctx); err != nil {
		return err
	}
	defer u.unlock()
	if err := u.stop(ctx); err != nil && !errors.Is(err, vm.ErrNotExist) {
		return err
	}
	if err := m.Destroy(ctx, string(p.Machine)); err != nil && !errors.Is(err, vm.ErrNotExist) {
		return err
	}
	return u.setState(ctx, vm.StateAbsent, "")
}

// Shutdown powers off every machine that runs, all at once, and returns when
// none is left or ctx is done. Projects that were never touched in this run are
// passed in, so that machines of an earlier core end too.
func (f *Fleet) Shutdown(ctx context.Context, projects []domain.Project) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, p := range projects {
		wg.Go(func() {
			if err := f.Stop(ctx, p); err != nil && !errors.Is(err, vm.ErrNotExist) {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	f.cancel()
	f.wg.Wait()
	return errors.Join(errs...)
}

// Leave lets go of all channels without stopping the machines.
func (f *Fleet) Leave() {
	f.cancel()
	f.mu.Lock()
	for _, u := range f.units {
		u.mu.Lock()
		if u.cur != nil {
			u.cur.Close()
		}
		u.mu.Unlock()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

func (u *unit) lock(ctx context.Context) error {
	select {
	case u.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-u.f.ctx.Done():
		return domain.E(domain.CodeUnavailable, "Glasshouse is shutting down", "start it again", nil)
	}
}

func (u *unit) unlock() { <-u.op }

// open finds the machine on disk.
func (u *unit) open(ctx context.Context) error {
	u.mu.Lock()
	have := u.mach != nil
	u.mu.Unlock()
	if have {
		return nil
	}
	m, err := u.f.manager(u.project.Kind)
	if err != nil {
		return err
	}
	mach, err := m.Open(ctx, string(u.project.Machine))
	if err != nil {
		return domain.E(domain.CodeNotFound, fmt.Sprintf("the machine of project %s is missing", u.project.Name), "its disk was removed outside Glasshouse; create a new machine with 'glasshouse machine create'", err)
	}
	u.mu.Lock()
	u.mach = mach
	u.mu.Unlock()
	return nil
}

func (u *unit) progress(p vm.Progress) {
	u.f.cfg.Publish(event.New{Stream: event.ProjectStream(u.project.ID), Origin: domain.OriginHost, ProjectID: u.project.ID,
		Payload: &event.MachineProgress{Machine: u.project.Machine, Phase: p.Phase, Text: p.Text, Done: p.Done, Total: p.Total}})
}

func (u *unit) start(ctx context.Context) error {
	if err := u.open(ctx); err != nil {
		return err
	}
	if err := u.setState(ctx, vm.StateStarting, ""); err != nil {
		return err
	}
	if err := u.mach.Start(ctx, u.progress); err != nil {
		_ = u.setState(u.f.ctx, vm.StateTrouble, err.Error())
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("the machine of project %s did not start", u.project.Name), "see 'glasshouse machine log'", err)
	}
	if err := u.connect(ctx, time.Minute); err != nil {
		_ = u.setState(u.f.ctx, vm.StateTrouble, err.Error())
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("the machine of project %s started but does not answer", u.project.Name), "stop and start it", err)
	}
	return nil
}

// connect opens the channel, trying until the wait is over, and starts the
// keeper of it.
func (u *unit) connect(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	delay := 20 * time.Millisecond
	for {
		g, err := u.dial(ctx)
		if err == nil {
			u.mu.Lock()
			u.cur, u.boot = g, g.Hello().BootID
			u.mu.Unlock()
			if err := u.setState(u.f.ctx, vm.StateReady, ""); err != nil {
				g.Close()
				return err
			}
			u.f.wg.Go(func() { u.keep(g) })
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
		delay = min(delay*2, time.Second)
	}
}

func (u *unit) dial(ctx context.Context) (guest.Guest, error) {
	conn, err := u.mach.Dial(ctx)
	if err != nil {
		return nil, err
	}
	g, err := u.f.cfg.Open(ctx, conn, u.f.cfg.Egress(u.project.ID))
	if err != nil {
		conn.Close()
		return nil, err
	}
	return g, nil
}

// keep waits for the end of a channel. When the machine still runs it opens a
// new one (guestd was restarted); else it says that the machine is off.
func (u *unit) keep(g guest.Guest) {
	select {
	case <-g.Done():
	case <-u.f.ctx.Done():
		g.Close()
		return
	}
	u.mu.Lock()
	if u.cur != g {
		u.mu.Unlock()
		return
	}
	u.cur = nil
	stopping := u.state == vm.StateStopping
	u.wake()
	u.mu.Unlock()
	if stopping {
		return
	}
	if err := u.lock(u.f.ctx); err != nil {
		return
	}
	defer u.unlock()
	u.mu.Lock()
	again := u.cur == nil && u.state == vm.StateReady
	u.mu.Unlock()
	if !again {
		return
	}
	for giveUp := time.Now().Add(time.Minute); ; {
		info, err := u.mach.Info(u.f.ctx)
		if err == nil && (info.State == vm.StateOff || info.State == vm.StateAbsent) {
			_ = u.setState(u.f.ctx, vm.StateOff, "the machine ended by itself")
			return
		}
		if err := u.connect(u.f.ctx, 3*time.Second); err == nil || u.f.ctx.Err() != nil {
			return
		}
		if err == nil && info.State == vm.StateTrouble || time.Now().After(giveUp) {
			if info.Problem == "" {
				info.Problem = "the machine runs but no longer answers"
			}
			_ = u.setState(u.f.ctx, vm.StateTrouble, info.Problem)
			return
		}
	}
}

func (u *unit) setWanted(w bool) {
	u.mu.Lock()
	u.wanted = w
	u.mu.Unlock()
}

func (u *unit) stop(ctx context.Context) error {
	u.setWanted(false)
	if err := u.open(ctx); err != nil {
		return err
	}
	info, err := u.mach.Info(ctx)
	if err != nil {
		return err
	}
	if info.State == vm.StateOff || info.State == vm.StateAbsent {
		return u.setState(ctx, vm.StateOff, "")
	}
	if err := u.setState(ctx, vm.StateStopping, ""); err != nil {
		return err
	}
	u.mu.Lock()
	g := u.cur
	u.mu.Unlock()
	if g == nil {
		// No channel yet in this run: the orderly way still needs one.
		dctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		g, _ = u.dial(dctx)
		cancel()
	}
	if g != nil {
		sctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		_ = g.Shutdown(sctx) // a guest that cannot is stopped from outside
		cancel()
	}
	sctx, cancel := context.WithTimeout(ctx, u.f.cfg.StopTimeout)
	err = u.mach.Stop(sctx)
	cancel()
	if g != nil {
		g.Close()
	}
	u.mu.Lock()
	u.cur = nil
	u.mu.Unlock()
	if err != nil {
		_ = u.setState(ctx, vm.StateTrouble, err.Error())
		return err
	}
	return u.setState(ctx, vm.StateOff, "")
}

// setState records a change of state and wakes those who wait for one.
func (u *unit) setState(ctx context.Context, s vm.State, problem string) error {
	u.mu.Lock()
	if u.state == s && problem == "" {
		u.wake()
		u.mu.Unlock()
		return nil
	}
	u.state = s
	boot := u.boot
	u.wake()
	u.mu.Unlock()
	return u.f.cfg.Record(context.WithoutCancel(ctx), event.New{
		Stream: event.ProjectStream(u.project.ID), Origin: domain.OriginHost, Actor: "host", ProjectID: u.project.ID,
		Payload: &event.MachineState{Machine: u.project.Machine, Kind: u.project.Kind, State: string(s), Problem: problem, BootID: boot},
	})
}

// wake tells waiters that something changed; u.mu is held.
func (u *unit) wake() {
	close(u.fresh)
	u.fresh = make(chan struct{})
}
