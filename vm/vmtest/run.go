package vmtest

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"glasshouse/vm/guest"
)

// result of an execution that ended.
type result struct {
	stdout, stderr []byte
	exit           guest.Exit
}

func (r result) out() string { return string(r.stdout) }

func (r result) String() string {
	return fmt.Sprintf("exit %+v\nstdout %.2000q\nstderr %.2000q", r.exit, r.stdout, r.stderr)
}

// begin starts an execution with an id of its own where the spec has none.
func (s *suite) begin(t testing.TB, g guest.Guest, spec guest.ExecSpec) guest.Process {
	t.Helper()
	if spec.ID == "" {
		spec.ID = unique("x")
	}
	if spec.Session == "" {
		spec.Session = "suite"
	}
	if spec.Step == "" {
		spec.Step = "step"
	}
	p, err := g.Execs().Start(s.ctx(t), spec)
	if err != nil {
		t.Fatalf("start of %q: %v", spec.Argv, err)
	}
	return p
}

// run starts an execution and collects it.
func (s *suite) run(t testing.TB, g guest.Guest, spec guest.ExecSpec) result {
	t.Helper()
	return s.collect(t, s.begin(t, g, spec))
}

func (s *suite) sh(t testing.TB, g guest.Guest, script string) result {
	t.Helper()
	return s.run(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", script}})
}

func (s *suite) collect(t testing.TB, p guest.Process) result {
	t.Helper()
	r, err := drain(p)
	if err != nil {
		t.Fatalf("execution %s: %v", p.ID(), err)
	}
	return r
}

// drain reads a process to its end and checks that no byte is missing or twice.
func drain(p guest.Process) (result, error) {
	return drainFrom(p, 0, 0)
}

func drainFrom(p guest.Process, stdout, stderr int64) (result, error) {
	var r result
	at := map[bool]int64{false: stdout, true: stderr}
	for {
		o, err := p.Next()
		if errors.Is(err, io.EOF) {
			r.exit = p.Exit()
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if o.Offset != at[o.Stderr] {
			return r, fmt.Errorf("output at %d, expected at %d", o.Offset, at[o.Stderr])
		}
		at[o.Stderr] += int64(len(o.Data))
		if o.Stderr {
			r.stderr = append(r.stderr, o.Data...)
		} else {
			r.stdout = append(r.stdout, o.Data...)
		}
	}
}

// waitFor reads output of p until it holds want.
func waitFor(t testing.TB, p guest.Process, want string) (got []byte) {
	t.Helper()
	for {
		o, err := p.Next()
		if err != nil {
			t.Fatalf("execution %s ended before it said %q: %v; it said %q, exit %+v", p.ID(), want, err, got, p.Exit())
		}
		got = append(got, o.Data...)
		if len(got) >= len(want) && containsString(got, want) {
			return got
		}
	}
}

func containsString(b []byte, s string) bool {
	for i := 0; i+len(s) <= len(b); i++ {
		if string(b[i:i+len(s)]) == s {
			return true
		}
	}
	return false
}

// held says whether something inside holds a lock file:
// a lock cannot outlive its holder, so it tells for sure what still lives, also
// from a cell that sees no other process.
func (s *suite) held(t testing.TB, g guest.Guest, lock string) bool {
	t.Helper()
	r := s.run(t, g, guest.ExecSpec{Argv: []string{"flock", "-n", "/workspace/" + lock, "true"}})
	if r.exit.Code != 0 && r.exit.Code != 1 {
		t.Fatalf("flock: %v", r)
	}
	return r.exit.Code == 1
}

func closeQuietly(c io.Closer) { _ = c.Close() }
