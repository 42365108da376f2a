package vmtest

import (
	"errors"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

// journal: executions belong to the machine. The host may go and come back, and
// guestd's worker may die, and the real outcome is still learnt.
func (s *suite) journal(t *testing.T) {
	const lines = 60
	script := "for i in $(seq 1 " + itoa(lines) + "); do echo line $i; echo err $i >&2; sleep 0.02; done; exit 7"
	var wantOut, wantErr strings.Builder
	for i := 1; i <= lines; i++ {
		wantOut.WriteString("line " + itoa(i) + "\n")
		wantErr.WriteString("err " + itoa(i) + "\n")
	}
	spec := func() guest.ExecSpec {
		return guest.ExecSpec{ID: unique("x"), Session: "suite", Step: "step", Argv: []string{"/bin/bash", "-c", script}}
	}
	whole := func(t *testing.T, r result) {
		t.Helper()
		if r.out() != wantOut.String() || string(r.stderr) != wantErr.String() || r.exit.Code != 7 {
			t.Errorf("%v", r)
		}
	}

	s.sub(t, "attach", func(t *testing.T) {
		g := s.open(t)
		sp := spec()
		p := s.begin(t, g, sp)
		var out, errs []byte
		for len(out) == 0 { // some of it is read, then the core goes
			o, err := p.Next()
			must(t, err)
			if o.Stderr {
				errs = append(errs, o.Data...)
			} else {
				out = append(out, o.Data...)
			}
		}
		must(t, g.Close())
		g = s.open(t)
		r := s.attach(t, g, sp.ID, int64(len(out)), int64(len(errs)))
		r.stdout, r.stderr = append(out, r.stdout...), append(errs, r.stderr...)
		whole(t, r)
		whole(t, s.attach(t, g, sp.ID, 0, 0)) // again, from the start, though it has ended
		if r := s.attach(t, g, sp.ID, int64(wantOut.Len()), int64(wantErr.Len())); len(r.stdout)+len(r.stderr) != 0 || r.exit.Code != 7 {
			t.Errorf("from the end: %v", r)
		}
	})
	s.sub(t, "unread", func(t *testing.T) {
		g := s.open(t)
		sp := spec()
		s.begin(t, g, sp)
		must(t, g.Close()) // nothing was read at all, and nobody is there while it ends
		g = s.open(t)
		until(t, "the execution to end", func() bool {
			st, ok := s.state(t, g, sp.ID)
			return ok && !st.Running
		})
		whole(t, s.attach(t, g, sp.ID, 0, 0))
	})
	s.sub(t, "list", func(t *testing.T) {
		g := s.open(t)
		p := s.begin(t, g, guest.ExecSpec{Session: "s1", Step: "st1", Argv: []string{"/bin/bash", "-c", "echo up; exec sleep 1000"}})
		waitFor(t, p, "up\n")
		st, ok := s.state(t, g, p.ID())
		if !ok || !st.Running || st.Session != "s1" || st.Step != "st1" || len(st.Argv) != 3 || st.Stdout != 3 {
			t.Errorf("running: %+v %v", st, ok)
		}
		must(t, g.Execs().Kill(s.ctx(t), p.ID(), 0))
		s.collectRest(t, p)
		st, ok = s.state(t, g, p.ID())
		if !ok || st.Running || !st.Exit.Killed {
			t.Errorf("ended: %+v %v", st, ok)
		}
		must(t, g.Execs().Forget(s.ctx(t), p.ID()))
		if st, ok := s.state(t, g, p.ID()); ok {
			t.Errorf("forgotten: %+v", st)
		}
		if _, err := g.Execs().Attach(s.ctx(t), p.ID(), 0, 0); !errors.Is(err, guest.ErrNoExec) {
			t.Errorf("attach to a forgotten one: %v", err)
		}
	})
	s.sub(t, "worker-killed", func(t *testing.T) {
		g := s.open(t)
		sp := spec()
		p := s.begin(t, g, sp)
		waitFor(t, p, "1\n")
		boot := g.Hello().BootID
		s.f.KillWorker(t, s.work)
		select {
		case <-g.Done():
		case <-s.ctx(t).Done():
			t.Fatal("the channel outlives the worker: it was not killed")
		}
		g, err := s.reopen(s.ctx(t), s.work, nil)
		must(t, err)
		defer closeQuietly(g)
		if g.Hello().BootID != boot {
			t.Error("another boot id although the machine did not boot")
		}
		whole(t, s.attach(t, g, sp.ID, 0, 0))
	})
}

// state finds one execution in the journal's list.
func (s *suite) state(t testing.TB, g guest.Guest, id string) (guest.ExecState, bool) {
	t.Helper()
	all, err := g.Execs().List(s.ctx(t))
	must(t, err)
	for _, st := range all {
		if st.ID == id {
			return st, true
		}
	}
	return guest.ExecState{}, false
}
