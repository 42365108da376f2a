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
	// starts ends before ctx: from then on no machine is started any more.
	starts     context.Context
	stopStarts context.CancelCauseFunc
	mu         sync.Mutex
	units      map[domain.ProjectID]*unit
	closed     bool // no new keepers
	wg         sync.WaitGroup
}

// errClosing is why a machine is not started any more.
var errClosing = domain.E(domain.CodeUnavailable, "Glasshouse is shutting down", "start it again", nil)

// errStopped is why a start or a reconnect was given up.
var errStopped = domain.E(domain.CodeConflict, "the machine was told to stop while it was being started", "start it again", nil)

// New returns an empty fleet.
func New(cfg Config) *Fleet {
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 10 * time.Minute
	}
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = 30 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	starts, stopStarts := context.WithCancelCause(ctx)
	return &Fleet{cfg: cfg, ctx: ctx, cancel: cancel, starts: starts, stopStarts: stopStarts, units: map[domain.ProjectID]*unit{}}
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

// Ensure returns a project's guest, starting the machine when it is off. Callers
// that wait for the same start share its outcome.
func (f *Fleet) Ensure(ctx context.Context, p domain.Project) (guest.Guest, error) {
	u := f.unit(p)
	if u.ready() {
		return u.link, nil
	}
	if f.starts.Err() != nil {
		return nil, errClosing
	}
	u.mu.Lock()
	before := u.tries
	u.mu.Unlock()
	if err := u.lock(ctx); err != nil {
		return nil, err
	}
	defer u.unlock()
	if u.ready() {
		return u.link, nil
	}
	u.mu.Lock()
	gone, tries, failed := u.gone, u.tries, u.failed
	u.mu.Unlock()
	switch {
	case gone:
		return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("the machine of project %s was deleted", p.Name), "", vm.ErrNotExist)
	case f.starts.Err() != nil:
		return nil, errClosing
	case tries != before:
		return nil, failed
	}
	sctx, done := u.work(ctx, f.cfg.StartTimeout)
	defer done()
	u.setWanted(true)
	if err := u.start(sctx); err != nil {
		if sctx.Err() == nil { // else it was given up, which says nothing of the machine
			u.mu.Lock()
			u.tries++
			u.failed = err
			u.mu.Unlock()
		}
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
	if u.ready() {
		return u.link, true, nil
	}
	mach, err := u.open(ctx)
	if err != nil {
		return nil, false, err
	}
	info, err := mach.Info(ctx)
	if err != nil {
		return nil, false, err
	}
	switch info.State {
	case vm.StateReady, vm.StateStarting, vm.StateTrouble:
		// Trouble may be a guestd that is just being restarted: try it.
		wctx, done := u.work(ctx, 0)
		defer done()
		err := u.connect(wctx, 20*time.Second)
		if err == nil {
			u.setWanted(true)
			return u.link, true, nil
		}
		return nil, false, u.setState(ctx, vm.StateTrouble, "the machine runs but does not answer: "+err.Error())
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

// Running returns the guest of a machine that is on; it starts nothing and waits
// for nothing. The channel may be in the middle of being opened again: calls then wait for it.
func (f *Fleet) Running(id domain.ProjectID) (guest.Guest, bool) {
	f.mu.Lock()
	u := f.units[id]
	f.mu.Unlock()
	if u == nil {
		return nil, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.link, u.state == vm.StateReady
}

// Info asks the driver about a project's machine.
func (f *Fleet) Info(ctx context.Context, p domain.Project) (vm.Info, error) {
	u := f.unit(p)
	mach, err := u.open(ctx)
	if err != nil {
		return vm.Info{}, err
	}
	return mach.Info(ctx)
}

// Stop powers a project's machine off. A start that is under way is given up for
// it. Once it has begun it goes on although the caller goes: half a stop would be a
// power cut.
func (f *Fleet) Stop(ctx context.Context, p domain.Project) error {
	u := f.unit(p)
	if err := u.take(ctx); err != nil {
		return err
	}
	defer u.unlock()
	return u.stop(context.WithoutCancel(ctx))
}

// Destroy stops a project's machine and moves it to the trash. A machine that does
// not stop in order is left to the driver, which ends it by force.
func (f *Fleet) Destroy(ctx context.Context, p domain.Project) error {
	m, err := f.manager(p.Kind)
	if err != nil {
		return err
	}
	u := f.unit(p)
	if err := u.take(ctx); err != nil {
		return err
	}
	defer u.unlock()
	u.mu.Lock()
	u.gone = true
	u.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	stopErr := u.stop(ctx)
	if err := m.Destroy(ctx, string(p.Machine)); err != nil && !errors.Is(err, vm.ErrNotExist) {
		return errors.Join(err, stopErr)
	}
	u.mu.Lock()
	u.mach = nil
	u.mu.Unlock()
	return u.setState(ctx, vm.StateAbsent, "")
}

// Shutdown powers off every machine that runs, all at once, and returns when
// none is left or ctx is done. From its beginning no machine is started any more.
// Projects that were never touched in this run are passed in, so that machines of
// an earlier core end too.
func (f *Fleet) Shutdown(ctx context.Context, projects []domain.Project) error {
	f.stopStarts(errClosing)
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
	f.close()
	return errors.Join(errs...)
}

// Leave lets go of all channels without stopping the machines.
func (f *Fleet) Leave() { f.close() }

// close ends the keepers, and with them the channels.
func (f *Fleet) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// keeps starts a keeper, unless the fleet is closed.
func (f *Fleet) keeps(keep func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.wg.Go(keep)
	return true
}
