//go:build linux

package boot_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

// countDrain reads a process without keeping its output.
func countDrain(t *testing.T, p guest.Process) (n [2]int64, x guest.Exit) {
	t.Helper()
	for {
		o, err := p.Next()
		if err == io.EOF {
			return n, p.Exit()
		}
		if err != nil {
			t.Fatalf("output: %v", err)
		}
		i := 0
		if o.Stderr {
			i = 1
		}
		if o.Offset != n[i] {
			t.Fatalf("a piece at %d, expected %d", o.Offset, n[i])
		}
		n[i] += int64(len(o.Data))
	}
}

func TestOutputCaps(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	for _, c := range []struct {
		name, script string
		limit, total int64
		tail         string
	}{
		{"yes", "yes | head -c 20000000", 1 << 20, 20000000, "y\n"},
		{"one line", "head -c 100000000 /dev/zero | tr '\\0' x", 65536, 100000000, "x"},
		{"just over", "printf 0123456789abcdef", 10, 16, "abcdef"},
		{"exact", "printf 0123456789", 10, 10, ""},
		{"binary", "head -c 3000000 /dev/urandom", 1 << 20, 3000000, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"sh", "-c", c.script + "; echo oops >&2; exit 3"}, OutputLimit: c.limit})
			if err != nil {
				t.Fatal(err)
			}
			n, x := countDrain(t, p)
			if n[0] != min(c.limit, c.total) || x.Stdout.Total != c.total || x.Code != 3 {
				t.Fatalf("kept %d, exit %d, total %d", n[0], x.Code, x.Stdout.Total)
			}
			if n[0]+x.Stdout.Dropped+int64(len(x.Stdout.Tail)) != x.Stdout.Total {
				t.Errorf("%d kept, %d dropped, %d tail do not make %d", n[0], x.Stdout.Dropped, len(x.Stdout.Tail), x.Stdout.Total)
			}
			if want := min(guest.TailBytes, c.total-n[0]); int64(len(x.Stdout.Tail)) != want {
				t.Errorf("tail of %d bytes, want %d", len(x.Stdout.Tail), want)
			}
			if !strings.HasSuffix(string(x.Stdout.Tail), c.tail) {
				t.Errorf("tail ends in %.20q", x.Stdout.Tail)
			}
			if n[1] != 5 {
				t.Errorf("stderr has %d bytes", n[1])
			}
		})
	}
}

// A reader that never reads must not hold up the command.
func TestSlowReader(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	id := newID()
	mark := h.work + "/done"
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", "head -c 60000000 /dev/zero; touch " + mark}, OutputLimit: 50 << 20})
	if err != nil {
		t.Fatal(err)
	}
	waitFile(t, mark)
	// Other calls on the channel still work while that stream is stuck.
	if r := h.run(g, sh("echo hi")); r.out != "hi\n" {
		t.Fatalf("got %q", r.out)
	}
	n, x := countDrain(t, p)
	if n[0] != 50<<20 || x.Stdout.Total != 60000000 {
		t.Fatalf("kept %d of %d", n[0], x.Stdout.Total)
	}
}

func TestStdin(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"sha256sum"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("glass\n"), 1<<20)
	go func() {
		p.Write(data)
		p.CloseStdin()
	}()
	if r, want := drain(t, p), sha(data); !strings.HasPrefix(r.out, want) {
		t.Fatalf("sha256 %q, want %s", r.out, want)
	}
	// Without Stdin there is nothing to read.
	if r := h.run(g, guest.ExecSpec{Argv: []string{"cat"}}); r.out != "" || r.exit.Code != 0 {
		t.Fatalf("got %+v", r)
	}
	// A command that does not read its input ends all the same.
	p, err = g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"sh", "-c", "exit 4"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	go p.Write(make([]byte, 32<<20))
	if r := drain(t, p); r.exit.Code != 4 {
		t.Fatalf("got %+v", r.exit)
	}
}

// A signal must reach a command that does not read its input.
func TestSignalPastStdin(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"sleep", "1000"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	go p.Write(make([]byte, 64<<20))
	if err := p.Signal(15); err != nil {
		t.Fatal(err)
	}
	if r := drain(t, p); r.exit.Signal != "SIGTERM" || r.exit.Code != -1 || r.exit.Killed {
		t.Fatalf("got %+v", r.exit)
	}
}

func TestTerminal(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	p, err := g.Execs().Start(h.ctx(), guest.ExecSpec{
		ID: newID(), Argv: []string{"sh", "-c", `test -t 0 && test -t 1 && stty size; read x; echo "got $x"; stty size; read y; echo "end:$y"; echo $TERM`},
		TTY: &guest.Winsize{Rows: 30, Cols: 100}, Stdin: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	until := func(s string) {
		t.Helper()
		for !strings.Contains(out.String(), s) {
			o, err := p.Next()
			if err != nil {
				t.Fatalf("before %q came: %v; so far %q", s, err, out.String())
			}
			out.Write(o.Data)
		}
	}
	until("30 100")
	if err := p.Resize(guest.Winsize{Rows: 41, Cols: 77}); err != nil {
		t.Fatal(err)
	}
	p.Write([]byte("hello\n"))
	until("got hello")
	until("41 77")
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	until("end:")
	for {
		o, err := p.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Write(o.Data)
	}
	if x := p.Exit(); x.Code != 0 || !strings.Contains(out.String(), "xterm-256color") {
		t.Fatalf("exit %+v, output %q", x, out.String())
	}
	// Ctrl-C is a byte like any other. (cat, because a shell may swallow it.)
	p, err = g.Execs().Start(h.ctx(), guest.ExecSpec{ID: newID(), Argv: []string{"cat"}, TTY: &guest.Winsize{Rows: 10, Cols: 10}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	p.Write([]byte("ready\n"))
	until("ready\r\nready") // the terminal's echo, then cat's
	p.Write([]byte{3})
	if r := drain(t, p); r.exit.Signal != "SIGINT" {
		t.Fatalf("got %+v", r.exit)
	}
}

func TestBadCommands(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	for name, s := range map[string]guest.ExecSpec{
		"no argv":     {ID: newID()},
		"bad id":      {ID: "../x", Argv: []string{"true"}},
		"dot id":      {ID: ".x", Argv: []string{"true"}},
		"no id":       {Argv: []string{"true"}},
		"nul":         {ID: newID(), Argv: []string{"a\x00b"}},
		"env name":    {ID: newID(), Argv: []string{"true"}, Env: map[string]string{"A=B": ""}},
		"relative":    {ID: newID(), Argv: []string{"true"}, Dir: "x"},
		"huge":        {ID: newID(), Argv: []string{"echo", strings.Repeat("x", 2<<20)}},
		"many":        {ID: newID(), Argv: make([]string, 5000)},
		"limit":       {ID: newID(), Argv: []string{"true"}, OutputLimit: 1 << 30},
		"root":        {ID: newID(), Argv: []string{"true"}, Root: true},
		"neg timeout": {ID: newID(), Argv: []string{"true"}, Timeout: -time.Second},
	} {
		if p, err := g.Execs().Start(h.ctx(), s); err == nil {
			t.Errorf("%s: started", name)
			p.Close()
		}
	}
	if _, err := g.Execs().Attach(h.ctx(), "nobody", 0, 0); !errors.Is(err, guest.ErrNoExec) {
		t.Errorf("attach: %v", err)
	}
	if err := g.Execs().Kill(h.ctx(), "nobody", 0); !errors.Is(err, guest.ErrNoExec) {
		t.Errorf("kill: %v", err)
	}
	if r := h.run(g, sh("echo alive")); r.out != "alive\n" {
		t.Fatalf("got %+v", r)
	}
}

// What guestd does with its own signals must not reach the commands.
func TestSignalsAreDefault(t *testing.T) {
	h := newHouse(t)
	g := h.open(nil)
	r := h.run(g, sh("grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd | wc -l"))
	// Signals 32 and 33 are the C library's own: no program can set them, and some
	// starters leave them ignored.
	const libc = 1<<31 | 1<<32
	var blocked, ignored uint64
	var open int
	if _, err := fmt.Sscanf(r.out, "SigBlk:\t%x\nSigIgn:\t%x\n%d\n", &blocked, &ignored, &open); err != nil || blocked != 0 || ignored&^libc != 0 || open != 4 {
		t.Fatalf("got %q: %v", r.out, err)
	}
}
