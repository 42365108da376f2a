// Package vmtest holds what every kind of machine must do, as one suite of
// tests that each driver runs over the real thing, and stand-ins for tests that
// boot nothing: Direct (the real guestd on a temporary folder) and Fake (a
// machine and guest in memory).
//
// The suite speaks only the contracts vm and guest. What it learns from inside
// a machine it learns by running commands there.
package vmtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
)

// Factory says how the suite makes and hurts the machines of one kind.
type Factory struct {
	// New returns a manager over the test's folder. Each call is as a core that
	// was started anew: the same disk, no memory of earlier calls.
	New func(t testing.TB) vm.Manager
	// Spec of the machine called id. Nil: an id and the driver's defaults.
	Spec func(id string) vm.Spec
	// Hello's kind: "vm" or "sandbox".
	GuestKind string
	// PowerLoss ends a running machine as pulling the plug does.
	PowerLoss func(t testing.TB, m vm.Machine)
	// KillWorker kills guestd's worker, as a fault in it would, while what it
	// started lives on.
	KillWorker func(t testing.TB, m vm.Machine)
	// Left lists the host processes of a machine that still run.
	Left func(t testing.TB, id string) []string
	// Trashed says whether the folder of a destroyed machine is kept, with a
	// file that was in its workspace where the host can see it.
	Trashed func(t testing.TB, id string) bool
	// Without names subtests ("net/loopback") that this kind cannot pass, and why.
	Without map[string]string
	// Client are the options each channel is opened with.
	Client client.Options
}

// hang bounds every call, so that a fault shows as an error and not as a test
// that never ends. Nothing is expected to take long.
const hang = 2 * time.Minute

// Run runs the suite. Subtests share one machine where they do not hurt it.
func Run(t *testing.T, f Factory) {
	m := f.New(t)
	c, cancel := context.WithTimeout(context.Background(), hang)
	err := m.Check(c)
	cancel()
	if err != nil {
		t.Skipf("SKIPPED: machines of kind %s do not work here: %v", m.Kind(), err)
	}
	s := &suite{f: f, m: m}
	t.Run("life", s.life)
	s.work = s.create(t, "work")
	s.start(t, s.work)
	t.Cleanup(func() { s.destroy(t, "work") })
	for _, p := range []struct {
		name string
		fn   func(t *testing.T)
	}{
		{"hello", s.hello}, {"exec", s.exec}, {"output", s.output}, {"tree", s.tree}, {"journal", s.journal},
		{"files", s.files}, {"watch", s.watch}, {"checkpoints", s.checkpoints}, {"git", s.git},
		{"net", s.net}, {"browser", s.browser}, {"stats", s.stats}, {"channel", s.channel},
		{"power", s.power}, {"shutdown", s.shutdown},
	} {
		t.Run(p.name, p.fn)
	}
}

type suite struct {
	f    Factory
	m    vm.Manager
	work vm.Machine // the machine most subtests share
}

var counter atomic.Int64

// unique is an id that no run of the suite uses twice.
func unique(what string) string {
	return fmt.Sprintf("%s-%d-%d", what, time.Now().UnixNano(), counter.Add(1))
}

// can skips a subtest that the kind cannot pass, saying why.
func (s *suite) can(t *testing.T) {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	for k, why := range s.f.Without {
		if name == k || strings.HasSuffix(t.Name(), "/"+k) {
			t.Skipf("SKIPPED for this kind of machine: %s", why)
		}
	}
}

func (s *suite) sub(t *testing.T, name string, fn func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		s.can(t)
		fn(t)
	})
}

func (s *suite) ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return c
}

func (s *suite) spec(id string) vm.Spec {
	if s.f.Spec != nil {
		return s.f.Spec(id)
	}
	return vm.Spec{ID: id}
}

func (s *suite) create(t testing.TB, id string) vm.Machine {
	t.Helper()
	m, err := s.m.Create(s.ctx(t), s.spec(id), nil)
	must(t, err)
	return m
}

func (s *suite) start(t testing.TB, m vm.Machine) {
	t.Helper()
	must(t, m.Start(s.ctx(t), nil))
}

func (s *suite) destroy(t testing.TB, id string) {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := s.m.Destroy(c, id); err != nil && !errors.Is(err, vm.ErrNotExist) {
		t.Errorf("destroy %s: %v", id, err)
	}
	if left := s.f.Left(t, id); len(left) > 0 {
		t.Errorf("after destroy %s these run: %v", id, left)
	}
}

func (s *suite) info(t testing.TB, m vm.Machine) vm.Info {
	t.Helper()
	i, err := m.Info(s.ctx(t))
	must(t, err)
	return i
}

// open opens a channel to the shared machine, closed at the end of the test.
func (s *suite) open(t testing.TB) guest.Guest {
	t.Helper()
	return s.openTo(t, s.work, nil)
}

func (s *suite) openTo(t testing.TB, m vm.Machine, egress guest.EgressHandler) guest.Guest {
	t.Helper()
	g, err := s.tryOpen(s.ctx(t), m, egress)
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func (s *suite) tryOpen(ctx context.Context, m vm.Machine, egress guest.EgressHandler) (guest.Guest, error) {
	conn, err := m.Dial(ctx)
	if err != nil {
		return nil, err
	}
	g, err := client.Open(ctx, conn, egress, s.f.Client)
	if errors.Is(err, client.ErrUpgraded) {
		return s.reopen(ctx, m, egress)
	}
	return g, err
}

// reopen dials until it is answered: after guestd was restarted.
func (s *suite) reopen(ctx context.Context, m vm.Machine, egress guest.EgressHandler) (guest.Guest, error) {
	for {
		conn, err := m.Dial(ctx)
		if err == nil {
			var g guest.Guest
			if g, err = client.Open(ctx, conn, egress, s.f.Client); err == nil {
				return g, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no channel: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for something to become true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s for: %s", hang, what)
		}
	}
}
