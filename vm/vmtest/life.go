package vmtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// life walks one machine through its states, with the core "restarting" between
// steps, so that nothing can hang on memory.
func (s *suite) life(t *testing.T) {
	const id = "life"
	anew := func() vm.Machine {
		t.Helper()
		m, err := s.f.New(t).Open(s.ctx(t), id)
		must(t, err)
		return m
	}
	if _, err := s.m.Open(s.ctx(t), id); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("open of what was never made: %v", err)
	}
	if err := s.m.Destroy(s.ctx(t), id); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("destroy of what was never made: %v", err)
	}
	m := s.create(t, id)
	defer s.destroy(t, id)
	if m.ID() != id || m.Kind() != s.m.Kind() {
		t.Errorf("made %s of kind %s", m.ID(), m.Kind())
	}
	if i := s.info(t, m); i.State != vm.StateOff || i.ID != id || i.Kind != s.m.Kind() {
		t.Fatalf("made: %+v", i)
	}
	if _, err := s.f.New(t).Create(s.ctx(t), s.spec(id), nil); !errors.Is(err, vm.ErrExists) {
		t.Fatalf("made twice: %v", err)
	}
	if ids, err := s.f.New(t).List(s.ctx(t)); err != nil || !slices.Contains(ids, id) {
		t.Fatalf("list: %v %v", ids, err)
	}
	if _, err := m.Dial(s.ctx(t)); !errors.Is(err, vm.ErrNotRunning) {
		t.Fatalf("dial of a machine that is off: %v", err)
	}
	must(t, m.Stop(s.ctx(t))) // already off

	var steps []vm.Progress
	must(t, m.Start(s.ctx(t), func(p vm.Progress) { steps = append(steps, p) }))
	if len(steps) == 0 || steps[0].Phase == "" || steps[0].Text == "" {
		t.Errorf("progress of the start: %+v", steps)
	}
	first := s.info(t, anew())
	if first.State != vm.StateReady || len(first.Pids) == 0 {
		t.Fatalf("started: %+v", first)
	}
	g := s.openTo(t, m, nil)
	boot := g.Hello().BootID
	_, err := g.Files().Write(s.ctx(t), "kept.txt", []byte("kept\n"), guest.WriteOptions{})
	must(t, err)
	_, err = g.Files().Write(s.ctx(t), guest.Home+"/kept.txt", []byte("kept at home\n"), guest.WriteOptions{})
	must(t, err)

	// Starting what runs adopts it, with the channel and all.
	must(t, anew().Start(s.ctx(t), nil))
	if now := s.info(t, m); now.State != vm.StateReady || !samePids(now.Pids, first.Pids) {
		t.Fatalf("adopted: %+v, was %+v", now, first)
	}
	select {
	case <-g.Done():
		t.Fatalf("a second start ended the channel: %v", g.Err())
	default:
	}
	if again := s.openTo(t, anew(), nil); again.Hello().BootID != boot {
		t.Fatal("a second start booted again")
	}

	must(t, anew().Stop(stopNow()))
	if i := s.info(t, m); i.State != vm.StateOff || len(i.Pids) != 0 {
		t.Fatalf("stopped: %+v", i)
	}
	if left := s.f.Left(t, id); len(left) > 0 {
		t.Fatalf("after Stop these run: %v", left)
	}
	<-g.Done()
	if g.Err() == nil || !errors.Is(g.Err(), guest.ErrGone) {
		t.Errorf("the channel of a stopped machine says %v", g.Err())
	}

	m = anew()
	s.start(t, m)
	g = s.openTo(t, m, nil)
	if g.Hello().BootID == boot {
		t.Error("two boots with one boot id")
	}
	for path, want := range map[string]string{"kept.txt": "kept\n", guest.Home + "/kept.txt": "kept at home\n"} {
		d, err := g.Files().Read(s.ctx(t), path, 0, 100)
		if err != nil || string(d.Data) != want {
			t.Errorf("%s after stop and start: %q %v", path, d.Data, err)
		}
	}

	must(t, s.f.New(t).Destroy(s.ctx(t), id)) // while it runs
	if left := s.f.Left(t, id); len(left) > 0 {
		t.Fatalf("after Destroy these run: %v", left)
	}
	if _, err := s.m.Open(s.ctx(t), id); !errors.Is(err, vm.ErrNotExist) {
		t.Fatalf("open of a destroyed machine: %v", err)
	}
	if i := s.info(t, m); i.State != vm.StateAbsent {
		t.Errorf("destroyed: %+v", i)
	}
	if err := m.Start(s.ctx(t), nil); !errors.Is(err, vm.ErrNotExist) {
		t.Errorf("start of a destroyed machine: %v", err)
	}
	if ids, err := s.m.List(s.ctx(t)); err != nil || slices.Contains(ids, id) {
		t.Errorf("list after destroy: %v %v", ids, err)
	}
	if !s.f.Trashed(t, id) {
		t.Error("a destroyed machine is not in the trash")
	}
}

func samePids(a, b map[string]int) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// stopNow is a context that is done: Stop forces at once.
func stopNow() context.Context {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	return c
}

func (s *suite) hello(t *testing.T) {
	s.can(t)
	h := s.open(t).Hello()
	if h.Generation != guest.Generation || h.Kind != s.f.GuestKind || h.BootID == "" || len(h.AgentHash) != 64 || h.Hostname == "" {
		t.Fatalf("hello: %+v", h)
	}
}

func (s *suite) stats(t *testing.T) {
	s.can(t)
	st, err := s.open(t).Stats(s.ctx(t))
	must(t, err)
	if st.MemTotalKiB <= 0 || st.MemUsedKiB <= 0 || st.MemUsedKiB > st.MemTotalKiB || st.DiskTotalKiB <= 0 ||
		st.DiskUsedKiB < 0 || st.Procs <= 0 || st.Uptime <= 0 || st.CPUPercent < 0 || st.Load1 < 0 {
		t.Fatalf("stats: %+v", st)
	}
}

// channel: a newer channel takes the place of an older one, which learns it.
func (s *suite) channel(t *testing.T) {
	s.sub(t, "supersede", func(t *testing.T) {
		old := s.open(t)
		young := s.open(t)
		select {
		case <-old.Done():
		case <-s.ctx(t).Done():
			t.Fatal("an older channel lives on beside a newer one")
		}
		if !errors.Is(old.Err(), guest.ErrGone) {
			t.Errorf("the older one says: %v", old.Err())
		}
		if _, err := old.Stats(s.ctx(t)); !errors.Is(err, guest.ErrGone) {
			t.Errorf("a call on the older one: %v", err)
		}
		if r := s.run(t, young, guest.ExecSpec{Argv: []string{"/bin/echo", "on"}}); r.out() != "on\n" {
			t.Fatalf("on the newer one: %+v", r)
		}
	})
	// A connection that never says hello must not take the place of one that did.
	s.sub(t, "mute", func(t *testing.T) {
		g := s.open(t)
		conn, err := s.work.Dial(s.ctx(t))
		must(t, err)
		defer conn.Close()
		_, _ = conn.Write([]byte("\x00GET / HTTP/1.1\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff"))
		if r := s.run(t, g, guest.ExecSpec{Argv: []string{"/bin/echo", "on"}}); r.out() != "on\n" {
			t.Fatalf("beside a mute connection: %+v", r)
		}
	})
}
