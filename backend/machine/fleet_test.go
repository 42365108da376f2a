package machine

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// scripted is a manager with one machine, whose world does what a test says.
type scripted struct {
	w  *vmtest.World
	mu sync.Mutex

	exists, on, deaf bool
	infoErr          error
	startErr         error
	stopErr          error
	startGate        chan struct{} // Start waits for it, or for its context
	starting         chan struct{} // told at each Start
	wrap             func(*vmtest.Guest) guest.Guest

	starts, stops, dials, destroys int
	stopCtx                        []error
}

func newScripted() *scripted {
	return &scripted{w: vmtest.NewWorld(), starting: make(chan struct{}, 1000)}
}

func (s *scripted) with(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

func (s *scripted) count(n *int) int { s.mu.Lock(); defer s.mu.Unlock(); return *n }

// die is a machine that ends by itself.
func (s *scripted) die() {
	s.with(func() { s.on = false })
	s.w.Crash()
}

func (s *scripted) ID() string                  { return "m1" }
func (s *scripted) Kind() vm.Kind               { return "local" }
func (s *scripted) Features() vm.Features       { return vm.Features{} }
func (s *scripted) Check(context.Context) error { return nil }
func (s *scripted) Create(context.Context, vm.Spec, func(vm.Progress)) (vm.Machine, error) {
	s.with(func() { s.exists = true })
	return s, nil
}

func (s *scripted) Open(context.Context, string) (vm.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exists {
		return nil, vm.ErrNotExist
	}
	return s, nil
}
func (s *scripted) List(context.Context) ([]string, error) { return nil, nil }
func (s *scripted) Destroy(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.destroys++
	if !s.exists {
		return vm.ErrNotExist
	}
	s.exists, s.on = false, false
	return nil
}

func (s *scripted) Info(context.Context) (vm.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.infoErr != nil:
		return vm.Info{}, s.infoErr
	case !s.exists:
		return vm.Info{State: vm.StateAbsent}, nil
	case !s.on:
		return vm.Info{State: vm.StateOff}, nil
	case s.deaf:
		return vm.Info{State: vm.StateTrouble, Problem: "it is deaf"}, nil
	}
	return vm.Info{State: vm.StateReady}, nil
}

func (s *scripted) Start(ctx context.Context, _ func(vm.Progress)) error {
	s.mu.Lock()
	s.starts++
	gate, err := s.startGate, s.startErr
	s.mu.Unlock()
	s.starting <- struct{}{}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	s.with(func() { s.on = true })
	return nil
}

type conn struct {
	io.ReadWriteCloser
	g guest.Guest
}

func (conn) Close() error { return nil }

func (s *scripted) Dial(context.Context) (io.ReadWriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	if !s.on || s.deaf {
		return nil, vm.ErrNotRunning
	}
	g := s.w.Open()
	if s.wrap != nil {
		return conn{g: s.wrap(g)}, nil
	}
	return conn{g: g}, nil
}

func (s *scripted) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops++
	s.stopCtx = append(s.stopCtx, ctx.Err())
	if s.stopErr != nil {
		return s.stopErr
	}
	s.on = false
	return nil
}

// stage is a fleet with one project.
type stage struct {
	t *testing.T
	*scripted
	f *Fleet
	p domain.Project

	lmu    sync.Mutex
	states []string
	full   bool
}

func newStage(t *testing.T) *stage {
	st := &stage{t: t, scripted: newScripted(), p: domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}}
	st.exists = true
	st.f = New(Config{Managers: map[string]vm.Manager{"local": st.scripted}, Egress: func(domain.ProjectID) guest.EgressHandler { return nil },
		Open: func(_ context.Context, c io.ReadWriteCloser, _ guest.EgressHandler) (guest.Guest, error) {
			return c.(conn).g, nil
		},
		Publish: func(event.New) {},
		Record: func(_ context.Context, n event.New) error {
			st.lmu.Lock()
			defer st.lmu.Unlock()
			if st.full {
				return domain.E(domain.CodeUnavailable, "the disk is full", "", nil)
			}
			e := n.Payload.(*event.MachineState)
			st.states = append(st.states, strings.TrimSpace(e.State+" "+e.Problem))
			return nil
		}})
	t.Cleanup(func() { st.f.Leave() })
	return st
}

func (s *stage) recorded() []string {
	s.lmu.Lock()
	defer s.lmu.Unlock()
	return slices.Clone(s.states)
}

func (s *stage) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) ensure() guest.Guest {
	s.t.Helper()
	g, err := s.f.Ensure(s.ctx(), s.p)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *stage) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("never: %s; %v", what, s.recorded())
		}
	}
}

func (s *stage) is(want vm.State) {
	s.t.Helper()
	if got := s.f.State("p_1"); got != want {
		s.t.Fatalf("the machine is %s, not %s: %v", got, want, s.recorded())
	}
}

func TestOneStartForAll(t *testing.T) {
	s := newStage(t)
	s.startGate = make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.f.Ensure(s.ctx(), s.p); err != nil {
				t.Error(err)
			}
		})
	}
	<-s.starting
	close(s.startGate)
	wg.Wait()
	if n := s.count(&s.starts); n != 1 || !slices.Equal(s.recorded(), []string{"starting", "ready"}) {
		t.Fatalf("%d starts, %v", n, s.recorded())
	}
}

// noticed is a context that tells when it is waited for first.
type noticed struct {
	context.Context
	once sync.Once
	told func()
}

func (n *noticed) Done() <-chan struct{} {
	n.once.Do(n.told)
	return n.Context.Done()
}

// Those who wait for a start that fails are told why, without one more try each;
// whoever comes later tries again.
func TestFailedStart(t *testing.T) {
	s := newStage(t)
	s.startGate, s.startErr = make(chan struct{}), errors.New("no kernel")
	var wg, queued sync.WaitGroup
	call := func() {
		ctx := &noticed{Context: s.ctx(), told: queued.Done}
		queued.Add(1)
		wg.Go(func() {
			if _, err := s.f.Ensure(ctx, s.p); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "no kernel") {
				t.Error(err)
			}
		})
	}
	call()
	<-s.starting
	for range 8 {
		call()
	}
	u := s.f.unit(s.p)
	queued.Wait() // one that comes after the failure would try once more
	close(s.startGate)
	wg.Wait()
	if n := s.count(&s.starts); n != 1 {
		t.Errorf("%d starts for one failure", n)
	}
	s.is(vm.StateOff)
	if got := s.recorded(); !slices.Contains(got, "off no kernel") {
		t.Errorf("%v", got)
	}
	s.with(func() { s.startErr = nil })
	s.ensure()
	s.is(vm.StateReady)
	if u != s.f.unit(s.p) {
		t.Error("two units of one project")
	}
}

// A caller that goes gives its start up, and leaves a state that is true; others start for themselves.
func TestCallerGoesDuringStart(t *testing.T) {
	s := newStage(t)
	s.startGate = make(chan struct{})
	ctx, cancel := context.WithCancelCause(context.Background())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.f.Ensure(ctx, s.p); first <- err }()
	<-s.starting
	go func() { _, err := s.f.Ensure(s.ctx(), s.p); second <- err }()
	gone := errors.New("the caller went")
	cancel(gone)
	if err := <-first; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	<-s.starting
	close(s.startGate)
	if err := <-second; err != nil {
		t.Errorf("who stayed was told of the one who went: %v", err)
	}
	s.is(vm.StateReady)
	if got := s.recorded(); got[1] != "off the caller went" {
		t.Errorf("%v", got)
	}
}

// A stop does not wait for a boot.
func TestStopDuringStart(t *testing.T) {
	s := newStage(t)
	s.startGate = make(chan struct{})
	first := make(chan error, 1)
	go func() { _, err := s.f.Ensure(s.ctx(), s.p); first <- err }()
	<-s.starting
	if err := s.f.Stop(s.ctx(), s.p); err != nil {
		t.Fatal(err)
	}
	if err := <-first; domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "told to stop") {
		t.Errorf("%v", err)
	}
	s.is(vm.StateOff)
}

// From its beginning a shutdown lets nothing start, ends a start that is under way,
// and leaves nothing that runs, in the world or here.
func TestShutdownDuringStart(t *testing.T) {
	s := newStage(t)
	s.startGate = make(chan struct{})
	first := make(chan error, 1)
	go func() { _, err := s.f.Ensure(s.ctx(), s.p); first <- err }()
	<-s.starting
	if err := s.f.Shutdown(s.ctx(), []domain.Project{s.p}); err != nil {
		t.Fatal(err)
	}
	if err := <-first; domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("%v", err)
	}
	if _, err := s.f.Ensure(s.ctx(), s.p); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("started after the end: %v", err)
	}
	if s.on || s.count(&s.starts) != 1 {
		t.Error("the machine runs")
	}
}

func TestShutdownStopsWhatRuns(t *testing.T) {
	s := newStage(t)
	s.ensure()
	// Callers that go on asking while all is powered off start nothing again.
	stop := make(chan struct{})
	ctx := s.ctx()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				_, _ = s.f.Ensure(ctx, s.p)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	if err := s.f.Shutdown(s.ctx(), []domain.Project{s.p}); err != nil {
		t.Fatal(err)
	}
	close(stop)
	wg.Wait()
	if s.on || s.count(&s.starts) != 1 {
		t.Errorf("on %v after %d starts", s.on, s.starts)
	}
	s.is(vm.StateOff)
}

// A stop is not cut short when its caller goes: that would be a power cut.
func TestStopOutlivesItsCaller(t *testing.T) {
	s := newStage(t)
	s.ensure()
	ctx, cancel := context.WithCancel(context.Background())
	s.w.Fail = func(m string) error {
		if m == "shutdown" {
			cancel()
		}
		return nil
	}
	if err := s.f.Stop(ctx, s.p); err != nil {
		t.Fatal(err)
	}
	if len(s.stopCtx) != 1 || s.stopCtx[0] != nil {
		t.Errorf("the driver was told to force it: %v", s.stopCtx)
	}
	s.is(vm.StateOff)
}

func TestFailedStopAndLaterStart(t *testing.T) {
	s := newStage(t)
	s.ensure()
	s.with(func() { s.stopErr = errors.New("a process does not die") })
	if err := s.f.Stop(s.ctx(), s.p); err == nil {
		t.Fatal("no error")
	}
	s.is(vm.StateTrouble)
	s.with(func() { s.stopErr = nil })
	s.ensure()
	s.is(vm.StateReady)
	want := []string{"starting", "ready", "stopping", "trouble a process does not die", "starting", "ready"}
	if got := s.recorded(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestDestroy(t *testing.T) {
	s := newStage(t)
	s.ensure()
	s.with(func() { s.stopErr = errors.New("it does not stop") })
	if err := s.f.Destroy(s.ctx(), s.p); err != nil {
		t.Fatalf("the driver destroys what does not stop in order: %v", err)
	}
	if s.count(&s.destroys) != 1 {
		t.Error("it was left on disk")
	}
	s.is(vm.StateAbsent)
	if _, err := s.f.Ensure(s.ctx(), s.p); domain.CodeOf(err) != domain.CodeNotFound || s.count(&s.starts) != 1 {
		t.Errorf("a deleted machine was started: %v", err)
	}
	if _, on := s.f.Running("p_1"); on {
		t.Error("it runs")
	}
	if err := s.f.Destroy(s.ctx(), s.p); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestMissingMachine(t *testing.T) {
	s := newStage(t)
	s.exists = false
	if _, err := s.f.Ensure(s.ctx(), s.p); domain.CodeOf(err) != domain.CodeNotFound || !errors.Is(err, vm.ErrNotExist) {
		t.Error(err)
	}
	if err := s.f.Shutdown(s.ctx(), []domain.Project{s.p}); err != nil {
		t.Errorf("a machine that is not there keeps nobody: %v", err)
	}
}

func TestAdopt(t *testing.T) {
	for name, tc := range map[string]struct {
		on, deaf bool
		up       bool
		state    vm.State
	}{"off": {state: vm.StateOff}, "on": {on: true, up: true, state: vm.StateReady}, "deaf": {on: true, deaf: true, state: vm.StateTrouble}} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.on, s.deaf = tc.on, tc.deaf
			ctx := s.ctx()
			if tc.deaf { // the wait for an answer is the caller's to cut short, once it has begun
				c, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() {
					s.until("a try to reach it", func() bool { return s.count(&s.dials) > 0 || c.Err() != nil })
					cancel()
				}()
				ctx = c
			}
			_, up, err := s.f.Adopt(ctx, s.p)
			if err != nil || up != tc.up || s.count(&s.starts) != 0 {
				t.Fatal(up, err)
			}
			s.is(tc.state)
			s.with(func() { s.deaf = false })
			s.ensure() // trouble is no dead end
			s.is(vm.StateReady)
		})
	}
}

// A lost channel is opened again by itself, and what was asked on it goes on.
func TestChannelIsOpenedAgain(t *testing.T) {
	s := newStage(t)
	g := s.ensure()
	for range 3 {
		s.w.Drop()
		if _, err := g.Stats(s.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.recorded(); !slices.Equal(got, []string{"starting", "ready"}) {
		t.Errorf("%v", got)
	}
	if s.count(&s.starts) != 1 {
		t.Error("a machine that runs was started again")
	}
}

// Two ends that take the channel from each other do not fight in a tight loop.
func TestSupersededAgainAndAgain(t *testing.T) {
	s := newStage(t)
	s.ensure()
	u := s.f.unit(s.p)
	last := time.Duration(-1)
	for n := 0; n < 20; n++ {
		p := pauseAfter(n)
		if p < last || p > mostPause {
			t.Fatalf("after %d short channels the pause is %v, before %v", n, p, last)
		}
		last = p
	}
	if pauseAfter(1) != 0 || last != mostPause {
		t.Fatalf("a restarted daemon waits %v, a fight ends at %v", pauseAfter(1), last)
	}
	for n := 1; n <= 3; n++ {
		u.mu.Lock()
		u.opened = time.Now().Add(time.Hour) // however long this takes, it was open for a moment
		u.mu.Unlock()
		s.w.Open() // somebody else takes it
		s.until("its loss", func() bool { u.mu.Lock(); defer u.mu.Unlock(); return u.short == n })
		s.until("the next channel", u.ready)
	}
	// One that lasted ends the count.
	u.mu.Lock()
	u.opened = time.Now().Add(-shortLife)
	u.mu.Unlock()
	s.w.Open()
	s.until("its loss", func() bool { u.mu.Lock(); defer u.mu.Unlock(); return u.short == 0 })
	s.until("the next channel", u.ready)
}

func TestMachineDies(t *testing.T) {
	s := newStage(t)
	g := s.ensure()
	s.die()
	s.until("its end to be seen", func() bool { return s.f.State("p_1") == vm.StateOff })
	if _, err := g.Stats(s.ctx()); !errors.Is(err, guest.ErrGone) {
		t.Errorf("%v", err)
	}
	// A state holds from the moment it is seen; its record follows.
	s.until("the record of its end", func() bool { got := s.recorded(); return got[len(got)-1] == "off the machine ended by itself" })
	s.ensure()
	if _, err := g.Stats(s.ctx()); err != nil { // the same link serves the next boot
		t.Error(err)
	}
}

// States are recorded late rather than never, and a full disk takes no machine down.
func TestFullLogTakesNoMachineDown(t *testing.T) {
	s := newStage(t)
	g := s.ensure()
	s.lmu.Lock()
	s.full = true
	s.lmu.Unlock()
	s.w.Drop()
	if _, err := g.Stats(s.ctx()); err != nil {
		t.Fatal(err)
	}
	s.die()
	s.until("its end to be seen", func() bool { return s.f.State("p_1") == vm.StateOff })
	if _, err := s.f.Ensure(s.ctx(), s.p); err == nil {
		t.Error("a start that cannot be recorded went on")
	}
	s.lmu.Lock()
	s.full = false
	s.lmu.Unlock()
	if err := s.f.Stop(s.ctx(), s.p); err != nil {
		t.Fatal(err)
	}
	if got := s.recorded(); got[len(got)-1] != "off" {
		t.Errorf("that it is off was never recorded: %v", got)
	}
}

// Interleavings of everything, for deadlocks and races; at the end a stop is a stop.
func TestInterleavings(t *testing.T) {
	s := newStage(t)
	var wg sync.WaitGroup
	ops := []func(ctx context.Context){
		func(ctx context.Context) { _, _ = s.f.Ensure(ctx, s.p) },
		func(ctx context.Context) { _ = s.f.Stop(ctx, s.p) },
		func(ctx context.Context) { _, _, _ = s.f.Adopt(ctx, s.p) },
		func(context.Context) { s.w.Drop() },
		func(context.Context) { s.die() },
		func(ctx context.Context) { _, _ = s.f.Info(ctx, s.p); s.f.State("p_1"); s.f.Running("p_1") },
		func(ctx context.Context) {
			if g, on := s.f.Running("p_1"); on {
				_, _ = g.Stats(ctx)
			}
		},
	}
	for i := range 3 {
		for k, op := range ops {
			wg.Go(func() {
				for j := range 12 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+(i*7+k*3+j*5)%40)*time.Millisecond)
					op(ctx)
					cancel()
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a deadlock")
	}
	if err := s.f.Stop(s.ctx(), s.p); err != nil {
		t.Fatal(err)
	}
	s.is(vm.StateOff)
	s.ensure()
	s.is(vm.StateReady)
	if err := s.f.Shutdown(s.ctx(), []domain.Project{s.p}); err != nil {
		t.Fatal(err)
	}
	s.is(vm.StateOff)
}

// Leaving lets the machine run, closes the channel, and waits for its own.
func TestLeaveDuringEverything(t *testing.T) {
	s := newStage(t)
	g := s.ensure()
	inner := s.f.unit(s.p).cur
	s.f.Leave()
	select {
	case <-inner.Done():
	default:
		t.Error("the channel is still open")
	}
	if !s.on {
		t.Error("the machine was stopped")
	}
	if _, err := s.f.Ensure(s.ctx(), domain.Project{ID: "p_2", Kind: "local"}); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := g.Stats(ctx); !errors.Is(err, guest.ErrGone) {
		t.Errorf("%v", err)
	}
}
