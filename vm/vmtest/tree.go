package vmtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

// holder is a script that leaves a descendant which tries to get away: in a
// session of its own, its parent gone, deaf to SIGTERM, its output closed. The
// descendant holds a lock, which it cannot do when it is dead.
func holder(lock string) string {
	inner := "trap \"\" TERM HUP INT; exec 9>/workspace/" + lock + "; flock 9; echo held > /workspace/" + lock + ".up; sleep 1000; :"
	return "(setsid bash -c '" + inner + "' </dev/null >/dev/null 2>&1 &) ; while ! test -s /workspace/" + lock + ".up; do sleep 0.02; done; "
}

func (s *suite) tree(t *testing.T) {
	g := s.open(t)
	s.sub(t, "kill", func(t *testing.T) {
		lock := unique("lock")
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", holder(lock) + "echo up; trap '' TERM; sleep 1000 & wait; wait"}})
		waitFor(t, p, "up\n")
		if !s.held(t, g, lock) {
			t.Fatal("the lock is not held: the test cannot tell anything")
		}
		must(t, g.Execs().Kill(s.ctx(t), p.ID(), 200*time.Millisecond))
		r := s.collectRest(t, p)
		if !r.exit.Killed || r.exit.Code != -1 {
			t.Errorf("killed: %+v", r.exit)
		}
		until(t, "a grandchild in a session of its own to end with the kill", func() bool { return !s.held(t, g, lock) })
		// Killing what has ended is no error; what never was is one.
		must(t, g.Execs().Kill(s.ctx(t), p.ID(), 0))
		if err := g.Execs().Kill(s.ctx(t), unique("x"), 0); !errors.Is(err, guest.ErrNoExec) {
			t.Errorf("kill of an unknown execution: %v", err)
		}
	})
	s.sub(t, "timeout", func(t *testing.T) {
		lock := unique("lock")
		s.timedOut(t, g, "up", 3*time.Second, holder(lock)+"echo up; sleep 1000")
		// It may have a last grace of its own after the command's end, and no more.
		until(t, "a grandchild in a session of its own to end with the timeout", func() bool { return !s.held(t, g, lock) })
	})
	s.sub(t, "polite", func(t *testing.T) {
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.05; done"}})
		waitFor(t, p, "up\n")
		must(t, g.Execs().Kill(s.ctx(t), p.ID(), 30*time.Second))
		if r := s.collectRest(t, p); !strings.Contains(r.out(), "saved") || r.exit.Code != 3 {
			t.Errorf("a command that ends by itself on SIGTERM: %v", r)
		}
	})
	s.sub(t, "background", func(t *testing.T) {
		lock, session := unique("lock"), unique("s")
		r := s.run(t, g, guest.ExecSpec{Session: session, Argv: []string{"/bin/bash", "-c", holder(lock) + "echo done"}})
		if r.out() != "done\n" || r.exit.Code != 0 {
			t.Fatalf("%v", r)
		}
		seen := false
		for _, b := range r.exit.Background {
			seen = seen || b.Pid > 0 && strings.Contains(strings.Join(b.Argv, " "), lock)
		}
		if !seen {
			t.Errorf("what runs on is not listed: %+v", r.exit.Background)
		}
		if !s.held(t, g, lock) {
			t.Fatal("a background child ended with its command; it belongs to the session")
		}
		must(t, g.Execs().EndSession(s.ctx(t), unique("other")))
		if !s.held(t, g, lock) {
			t.Fatal("another session's end took it along")
		}
		must(t, g.Execs().EndSession(s.ctx(t), session))
		// The kernel may take a moment to tear its namespace down.
		until(t, "it to end with its session", func() bool { return !s.held(t, g, lock) })
	})
	// A command ends when it ends, also when a child keeps its output open.
	s.sub(t, "open-pipe", func(t *testing.T) {
		session := unique("s")
		r := s.run(t, g, guest.ExecSpec{Session: session, Argv: []string{"/bin/bash", "-c", "sleep 1000 & echo done"}})
		if r.out() != "done\n" || r.exit.Code != 0 {
			t.Fatalf("%v", r)
		}
		must(t, g.Execs().EndSession(s.ctx(t), session))
	})
	s.sub(t, "fork-bomb", func(t *testing.T) {
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "echo up; f() { f | f & }; for i in 1 2 3 4 5 6 7 8; do ( while :; do sleep 1000 & done ) 2>/dev/null & done; wait"}, Limits: guest.Limits{Pids: 300}})
		waitFor(t, p, "up\n")
		must(t, g.Execs().Kill(s.ctx(t), p.ID(), 0))
		if r := s.collectRest(t, p); !r.exit.Killed {
			t.Errorf("%+v", r.exit)
		}
		if r := s.sh(t, g, "echo on"); r.out() != "on\n" {
			t.Errorf("after it: %v", r)
		}
	})
}
