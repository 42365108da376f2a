package machine

import (
	"context"
	"sync"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/vm"
)

// A start that is given up ends for all who wait for it; nobody of them begins another.
func TestGiveUp(t *testing.T) {
	s := newStage(t)
	if ok, err := s.f.GiveUp(s.ctx(), s.p); ok || err != nil {
		t.Errorf("nothing is under way: %v %v", ok, err)
	}
	s.startGate = make(chan struct{})
	errs := make(chan error, 4)
	var queued sync.WaitGroup
	for range 4 {
		queued.Add(1)
		ctx := &noticed{Context: s.ctx(), told: queued.Done}
		go func() { _, err := s.f.Ensure(ctx, s.p); errs <- err }()
	}
	<-s.starting
	queued.Wait() // one that comes after the end begins a start of its own
	if ok, err := s.f.GiveUp(s.ctx(), s.p); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s.is(vm.StateOff)
	close(s.startGate)
	for range 4 {
		if err := <-errs; domain.CodeOf(err) != domain.CodeConflict {
			t.Errorf("one who waited was told %v", err)
		}
	}
	if n := s.count(&s.starts); n != 1 {
		t.Errorf("%d starts", n)
	}
	// A machine that is on stays on.
	s.ensure()
	if ok, err := s.f.GiveUp(s.ctx(), s.p); ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
	s.is(vm.StateReady)
	// One who cannot wait for the end of it is told so.
	if err := s.f.Stop(s.ctx(), s.p); err != nil {
		t.Fatal(err)
	}
	s.with(func() { s.startGate = make(chan struct{}) })
	go func() { _, err := s.f.Ensure(s.ctx(), s.p); errs <- err }()
	for len(s.starting) > 0 {
		<-s.starting
	}
	gone, cancel := context.WithCancel(s.ctx())
	cancel()
	s.until("the start", func() bool { return s.f.State(s.p.ID) == vm.StateStarting })
	if _, err := s.f.GiveUp(gone, s.p); err == nil {
		// It may have got the place at once; then the machine is off.
		s.is(vm.StateOff)
	}
	if err := <-errs; err == nil {
		t.Error("the start went on")
	}
}
