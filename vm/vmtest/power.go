package vmtest

import (
	"errors"
	"testing"

	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// power: the plug is pulled while a command writes. What was sealed before is
// there afterwards, byte by byte.
func (s *suite) power(t *testing.T) {
	s.can(t)
	const id = "power"
	m := s.create(t, id)
	defer s.destroy(t, id)
	s.start(t, m)
	g := s.openTo(t, m, nil)
	boot := g.Hello().BootID

	witness := []byte("what the sealed step wrote\n\x00\xff")
	_, err := g.Files().Write(s.ctx(t), "witness.bin", witness, guest.WriteOptions{})
	must(t, err)
	s.sh(t, g, "mkdir -p many; for i in $(seq 200); do echo file $i > many/$i; done")
	sealed, err := g.Checkpoints().Take(s.ctx(t), guest.CheckpointRequest{Session: "s", Step: "one", Full: true})
	must(t, err)
	if sealed.Commit == "" || sealed.Sum == "" {
		t.Fatalf("checkpoint: %+v", sealed)
	}

	p := s.begin(t, g, guest.ExecSpec{ID: unique("x"), Argv: []string{"/bin/bash", "-c", "echo up; i=0; while :; do i=$((i+1)); echo $i > many/new$i; echo $i >> many/1; done"}})
	waitFor(t, p, "up\n")
	s.f.PowerLoss(t, m)
	<-g.Done()
	// The kernel may take a moment to tear it down.
	until(t, "the machine to be seen without power", func() bool {
		st := s.info(t, m).State
		return st == vm.StateOff || st == vm.StateTrouble
	})
	if _, err := m.Dial(s.ctx(t)); err == nil {
		t.Fatal("a machine without power was dialled")
	}

	m, err = s.f.New(t).Open(s.ctx(t), id)
	must(t, err)
	s.start(t, m)
	g = s.openTo(t, m, nil)
	if g.Hello().BootID == boot {
		t.Error("the boot id did not change")
	}
	// The running command is lost, and that is what is said: never a made-up exit.
	q, err := g.Execs().Attach(s.ctx(t), p.ID(), 0, 0)
	if err == nil {
		var r result
		if r, err = drain(q); err == nil && !r.exit.Unknown {
			t.Errorf("a command that ran when the power went: %v", r)
		}
	}
	if err != nil && !errors.Is(err, guest.ErrNoExec) {
		t.Errorf("attach to it: %v", err)
	}
	d, err := g.Files().Read(s.ctx(t), "witness.bin", 0, 1000)
	if err != nil || string(d.Data) != string(witness) || d.Info.Sha256 != sum(witness) {
		t.Errorf("the witness: %q %v", d.Data, err)
	}
	_, err = g.Checkpoints().Restore(s.ctx(t), sealed.Commit)
	must(t, err)
	again, err := g.Checkpoints().Take(s.ctx(t), guest.CheckpointRequest{Session: "s", Step: "two", Full: true})
	must(t, err)
	if again.Sum != sealed.Sum || again.Tree != sealed.Tree {
		t.Errorf("after the restore the tree is %s (%s), sealed was %s (%s)", again.Tree, again.Sum, sealed.Tree, sealed.Sum)
	}
}

// shutdown: asked for, it ends orderly and leaves nothing.
func (s *suite) shutdown(t *testing.T) {
	s.can(t)
	const id = "shutdown"
	m := s.create(t, id)
	defer s.destroy(t, id)
	s.start(t, m)
	g := s.openTo(t, m, nil)
	p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "echo up; setsid sleep 1000 & trap '' TERM; sleep 1000"}})
	waitFor(t, p, "up\n")
	_, err := g.Files().Write(s.ctx(t), "last.txt", []byte("last words"), guest.WriteOptions{})
	must(t, err)
	if err := g.Shutdown(s.ctx(t)); err != nil && !errors.Is(err, guest.ErrGone) {
		t.Fatal(err)
	}
	must(t, m.Stop(s.ctx(t)))
	if i := s.info(t, m); i.State != vm.StateOff {
		t.Errorf("after the shutdown: %+v", i)
	}
	if left := s.f.Left(t, id); len(left) > 0 {
		t.Errorf("these run on: %v", left)
	}
	s.start(t, m)
	g = s.openTo(t, m, nil)
	if d, err := g.Files().Read(s.ctx(t), "last.txt", 0, 100); err != nil || string(d.Data) != "last words" {
		t.Errorf("what was written last: %q %v", d.Data, err)
	}
}
