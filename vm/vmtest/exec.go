package vmtest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
)

func (s *suite) exec(t *testing.T) {
	g := s.open(t)
	s.sub(t, "argv", func(t *testing.T) {
		odd := []string{"", " ", "a b", "'\"\\$`!*?[]{}~#&;|<>()", "line\nline\ttab\rret", "玻璃房 🏠 é", "\xff\xfe\x80 not utf-8", "-n", "--", "%s%n", "\x01\x1b[31m\x7f", strings.Repeat("x", 100_000)}
		r := s.run(t, g, guest.ExecSpec{Argv: append([]string{"/bin/sh", "-c", `printf '%s\0' "$@"`, "sh"}, odd...)})
		if want := strings.Join(odd, "\x00") + "\x00"; r.out() != want {
			t.Fatalf("argv came through as %.1000q", r.stdout)
		}
	})
	s.sub(t, "env", func(t *testing.T) {
		r := s.run(t, g, guest.ExecSpec{Argv: []string{"/usr/bin/env", "-0"}, Env: map[string]string{"ODD": "a=b\n'\"\xff", "EMPTY": "", "LANG": "C"}})
		env := map[string]string{}
		for _, kv := range strings.Split(strings.TrimSuffix(r.out(), "\x00"), "\x00") {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		for k, want := range map[string]string{"ODD": "a=b\n'\"\xff", "EMPTY": "", "LANG": "C", "HOME": guest.Home, "http_proxy": "http://" + guest.ProxyAddr} {
			if got, ok := env[k]; !ok || got != want {
				t.Errorf("%s = %q (there: %v), want %q", k, got, ok, want)
			}
		}
		if env["PATH"] == "" {
			t.Error("no PATH")
		}
	})
	s.sub(t, "dir", func(t *testing.T) {
		if r := s.run(t, g, guest.ExecSpec{Argv: []string{"pwd"}}); r.out() != guest.Workspace+"\n" {
			t.Errorf("default: %v", r)
		}
		if r := s.run(t, g, guest.ExecSpec{Argv: []string{"pwd"}, Dir: "/usr/share"}); r.out() != "/usr/share\n" {
			t.Errorf("given: %v", r)
		}
		if r := s.run(t, g, guest.ExecSpec{Argv: []string{"pwd"}, Dir: "/no/such/folder"}); r.exit.StartError == "" {
			t.Errorf("missing: %v", r)
		}
	})
	s.sub(t, "user", func(t *testing.T) {
		if r := s.sh(t, g, "id -u; id -un; touch /workspace/mine ~/mine /tmp/mine && echo ok"); r.out() != "1000\nagent\nok\n" {
			t.Fatalf("%v", r)
		}
	})
	s.sub(t, "stdin", func(t *testing.T) {
		if r := s.run(t, g, guest.ExecSpec{Argv: []string{"wc", "-c"}}); r.out() != "0\n" {
			t.Errorf("without stdin: %v", r)
		}
		data := bytes.Repeat([]byte("glass\x00house\xff\n"), 100_000)
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"sha256sum"}, Stdin: true})
		n, err := p.Write(data)
		must(t, err)
		if n != len(data) {
			t.Fatalf("wrote %d of %d", n, len(data))
		}
		must(t, p.CloseStdin())
		if r := s.collect(t, p); !strings.HasPrefix(r.out(), sum(data)) {
			t.Errorf("1.3 MB of stdin: %v", r)
		}
		// Writing to what does not read must not hang the channel.
		p = s.begin(t, g, guest.ExecSpec{Argv: []string{"true"}, Stdin: true})
		_, _ = p.Write(data)
		if r := s.collect(t, p); r.exit.Code != 0 {
			t.Errorf("one that does not read: %v", r)
		}
	})
	s.sub(t, "streams", func(t *testing.T) {
		r := s.sh(t, g, "echo out; echo err >&2; printf 'no newline'")
		if r.out() != "out\nno newline" || string(r.stderr) != "err\n" || r.exit.Stdout.Total != 14 || r.exit.Stderr.Total != 4 {
			t.Fatalf("%v", r)
		}
	})
	s.sub(t, "exit", func(t *testing.T) {
		for _, code := range []int{0, 1, 2, 126, 127, 137, 255} {
			r := s.run(t, g, guest.ExecSpec{Argv: []string{"/bin/sh", "-c", "exit $0", itoa(code)}})
			if r.exit.Code != code || r.exit.Signal != "" || r.exit.OOM || r.exit.Killed || r.exit.TimedOut {
				t.Errorf("exit %d: %+v", code, r.exit)
			}
		}
		r := s.sh(t, g, "kill -SEGV $$")
		if r.exit.Code != -1 || r.exit.Signal != "SIGSEGV" {
			t.Errorf("by a signal: %+v", r.exit)
		}
		r = s.run(t, g, guest.ExecSpec{Argv: []string{"/no/such/program"}})
		if r.exit.StartError == "" {
			t.Errorf("no program: %+v", r.exit)
		}
		if r.exit.EndedAt.Before(r.exit.StartedAt) {
			t.Errorf("ended before it started: %+v", r.exit)
		}
	})
	s.sub(t, "signal", func(t *testing.T) {
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "trap 'echo caught; exit 5' USR1; echo up; while :; do sleep 0.05; done"}})
		waitFor(t, p, "up\n")
		must(t, p.Signal(10))
		if r := s.collectRest(t, p); !strings.Contains(r.out(), "caught") || r.exit.Code != 5 {
			t.Fatalf("%v", r)
		}
	})
	s.sub(t, "tty", func(t *testing.T) {
		p := s.begin(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", "tty; stty size; read x; stty size; echo got $x"}, Stdin: true, TTY: &guest.Winsize{Rows: 30, Cols: 100}})
		waitFor(t, p, "30 100")
		must(t, p.Resize(guest.Winsize{Rows: 40, Cols: 120}))
		_, err := p.Write([]byte("hello\n"))
		must(t, err)
		r := s.collectRest(t, p)
		if !strings.Contains(r.out(), "40 120") || !strings.Contains(r.out(), "got hello") || len(r.stderr) > 0 {
			t.Fatalf("%v", r)
		}
	})
	s.sub(t, "refused", func(t *testing.T) {
		id := unique("x")
		s.run(t, g, guest.ExecSpec{ID: id, Argv: []string{"true"}})
		if _, err := g.Execs().Start(s.ctx(t), guest.ExecSpec{ID: id, Session: "suite", Argv: []string{"true"}}); !errors.Is(err, client.ErrExists) {
			t.Errorf("an id used twice: %v", err)
		}
		for name, spec := range map[string]guest.ExecSpec{
			"no argv": {ID: unique("x")}, "no id": {Argv: []string{"true"}}, "a path as id": {ID: "../x", Argv: []string{"true"}},
			"NUL in argv": {ID: unique("x"), Argv: []string{"a\x00b"}}, "NUL in env": {ID: unique("x"), Argv: []string{"true"}, Env: map[string]string{"A": "\x00"}},
			"= in a name": {ID: unique("x"), Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}}, "relative dir": {ID: unique("x"), Argv: []string{"true"}, Dir: "x"},
			"huge argv": {ID: unique("x"), Argv: []string{"true", strings.Repeat("x", 2<<20)}},
		} {
			p, err := g.Execs().Start(s.ctx(t), spec)
			if err == nil {
				if r, derr := drain(p); derr == nil && r.exit.StartError == "" {
					t.Errorf("%s: it ran: %v", name, r)
				}
			}
		}
		if r := s.sh(t, g, "echo on"); r.out() != "on\n" {
			t.Fatalf("after all that: %v", r)
		}
	})
	s.sub(t, "many", func(t *testing.T) {
		const n = 24
		done := make(chan error, n)
		for i := range n {
			go func() {
				p, err := g.Execs().Start(s.ctx(t), guest.ExecSpec{ID: unique("x"), Session: "suite", Argv: []string{"/bin/sh", "-c", "sleep 0.2; echo " + itoa(i)}})
				var r result
				if err == nil {
					r, err = drain(p)
				}
				if err == nil && r.out() != itoa(i)+"\n" {
					err = errors.New(r.String())
				}
				done <- err
			}()
		}
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	s.sub(t, "timeout", func(t *testing.T) {
		s.timedOut(t, g, "begun", 500*time.Millisecond, "trap '' TERM; echo begun; sleep 1000 & wait; wait")
	})
}

// timedOut runs a script that says that it has begun and goes on for ever, until its time
// is over. A time that was over before it had begun, on a busy machine, is made longer.
func (s *suite) timedOut(t testing.TB, g guest.Guest, begun string, timeout time.Duration, script string) {
	t.Helper()
	for ; ; timeout *= 3 {
		r := s.run(t, g, guest.ExecSpec{Argv: []string{"/bin/bash", "-c", script}, Timeout: timeout, Grace: 100 * time.Millisecond})
		if !r.exit.TimedOut {
			t.Fatalf("after %s: %v", timeout, r)
		}
		if r.out() == begun+"\n" {
			return
		}
		if r.out() != "" || timeout > hang/4 {
			t.Fatalf("it had begun with %v", r)
		}
	}
}

// collectRest collects a process of which something was read already.
func (s *suite) collectRest(t testing.TB, p guest.Process) result {
	t.Helper()
	var r result
	for {
		o, err := p.Next()
		if err != nil {
			if p.Exit().StartedAt.IsZero() && p.Exit().StartError == "" {
				t.Fatalf("execution %s: %v", p.ID(), err)
			}
			r.exit = p.Exit()
			return r
		}
		if o.Stderr {
			r.stderr = append(r.stderr, o.Data...)
		} else {
			r.stdout = append(r.stdout, o.Data...)
		}
	}
}
