package vmtest

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
)

func TestMain(m *testing.M) {
	code := m.Run()
	RemoveGuestd()
	os.Exit(code)
}

// The stand-in keeps the promises that the suite asks of the real thing, as far as it goes.
func TestFakeExecutions(t *testing.T) {
	c, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	w := NewWorld()
	step := make(chan string)
	w.OnExec = func(ctx context.Context, spec guest.ExecSpec, x *Exec) guest.Exit {
		if spec.Stdin {
			b, _ := io.ReadAll(x.Stdin)
			x.Stdout(string(b))
			return guest.Exit{}
		}
		for {
			select {
			case s := <-step:
				if s == "" {
					return guest.Exit{Code: 7}
				}
				x.Stdout(s)
				x.Stderr("!" + s)
			case <-ctx.Done():
				return guest.Exit{Code: -1}
			}
		}
	}
	g := w.Open()
	p, err := g.Execs().Start(c, guest.ExecSpec{ID: "x1", Session: "s", Argv: []string{"true"}})
	must(t, err)
	if _, err := g.Execs().Start(c, guest.ExecSpec{ID: "x1", Argv: []string{"true"}}); err == nil {
		t.Fatal("one id twice")
	}
	step <- "hello"
	if o, err := p.Next(); err != nil || string(o.Data) != "hello" {
		t.Fatalf("%+v %v", o, err)
	}
	w.Drop()
	if _, err := p.Next(); err == nil {
		_, err = p.Next()
		if !errors.Is(err, guest.ErrGone) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := g.Stats(c); !errors.Is(err, guest.ErrGone) {
		t.Fatalf("%v", err)
	}
	g = w.Open()
	step <- "world"
	step <- ""
	p, err = g.Execs().Attach(c, "x1", 3, 1)
	must(t, err)
	r, err := drainFrom(p, 3, 1)
	if err != nil || r.out() != "loworld" || string(r.stderr) != "hello!world" || r.exit.Code != 7 || r.exit.Stdout.Total != 10 {
		t.Fatalf("%v %v", r, err)
	}
	must(t, g.Execs().Forget(c, "x1"))
	if _, err := g.Execs().Attach(c, "x1", 0, 0); !errors.Is(err, guest.ErrNoExec) {
		t.Fatalf("%v", err)
	}

	p, err = g.Execs().Start(c, guest.ExecSpec{ID: "x2", Argv: []string{"cat"}, Stdin: true})
	must(t, err)
	_, err = p.Write([]byte("in"))
	must(t, err)
	must(t, p.CloseStdin())
	if r, err := drain(p); err != nil || r.out() != "in" {
		t.Fatalf("%v %v", r, err)
	}

	p, err = g.Execs().Start(c, guest.ExecSpec{ID: "x3", Argv: []string{"true"}})
	must(t, err)
	must(t, g.Execs().Kill(c, "x3", 0))
	if r, err := drain(p); err != nil || !r.exit.Killed || r.exit.TimedOut {
		t.Fatalf("%v %v", r, err)
	}
	p, err = g.Execs().Start(c, guest.ExecSpec{ID: "x4", Argv: []string{"true"}, Timeout: time.Millisecond})
	must(t, err)
	if r, err := drain(p); err != nil || !r.exit.TimedOut {
		t.Fatalf("%v %v", r, err)
	}

	_, err = g.Execs().Start(c, guest.ExecSpec{ID: "x5", Argv: []string{"true"}})
	must(t, err)
	boot := g.Hello().BootID
	w.Crash()
	g = w.Open()
	if _, err := g.Execs().Attach(c, "x5", 0, 0); !errors.Is(err, guest.ErrNoExec) || g.Hello().BootID == boot {
		t.Fatalf("after a crash: %v, boot %s then %s", err, boot, g.Hello().BootID)
	}
	if _, err := g.Execs().Attach(c, "x2", 0, 0); err != nil {
		t.Fatalf("what had ended before the crash: %v", err)
	}
}

func TestFakeCheckpoints(t *testing.T) {
	c, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	w := NewWorld()
	g := w.Open()
	ch, err := g.Watch(c)
	must(t, err)
	<-ch
	w.Put("a", []byte("1"))
	if b := <-ch; len(b.Changes) != 1 || b.Changes[0].Path != "a" || b.Changes[0].Op != "add" {
		t.Fatalf("%+v", b)
	}
	one, err := g.Checkpoints().Take(c, guest.CheckpointRequest{Session: "s", Step: "one"})
	must(t, err)
	if same, _ := g.Checkpoints().Take(c, guest.CheckpointRequest{}); !same.Same || same.Commit != one.Commit {
		t.Fatalf("%+v", same)
	}
	w.Put("a", []byte("2"))
	w.Put("b", []byte("3"))
	before, err := g.Checkpoints().Restore(c, one.Commit)
	must(t, err)
	if b, ok := w.Get("a"); string(b) != "1" || !ok {
		t.Fatalf("a is %q", b)
	}
	if _, ok := w.Get("b"); ok {
		t.Fatal("b is still there")
	}
	diff, _, err := g.Checkpoints().Diff(c, one.Commit, before.Commit)
	if err != nil || len(diff) != 2 || diff[0].Op != "modify" || diff[1].Op != "add" {
		t.Fatalf("%+v %v", diff, err)
	}
	w.Fail = func(method string) error {
		if method == "checkpoints.take" {
			return errors.New("no space left")
		}
		return nil
	}
	if _, err := g.Checkpoints().Take(c, guest.CheckpointRequest{}); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("%v", err)
	}
	if _, err := g.Files().Read(c, "/etc/passwd", 0, 1); !errors.Is(err, guest.ErrRefused) {
		t.Fatalf("%v", err)
	}
}

// Direct is the real guestd: what it lacks are the walls.
func TestDirect(t *testing.T) {
	c, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	d := NewDirect(t)
	m, err := d.Create(c, vm.Spec{ID: "m1"}, nil)
	must(t, err)
	if _, err := m.Dial(c); !errors.Is(err, vm.ErrNotRunning) {
		t.Fatalf("%v", err)
	}
	must(t, m.Start(c, nil))
	s := &suite{m: d, work: m}
	g := s.open(t)
	if g.Hello().Kind == "" {
		t.Errorf("%+v", g.Hello())
	}
	if r := s.sh(t, g, "echo hi > file; pwd"); r.out() != d.Workspace("m1")+"\n" {
		t.Fatalf("%v", r)
	}
	p := s.begin(t, g, guest.ExecSpec{ID: "long", Argv: []string{"/bin/sh", "-c", "echo up; setsid sleep 1000"}})
	waitFor(t, p, "up\n")
	pids := tree(s.info(t, m).Pids["guestd"])
	d.PowerLoss("m1")
	<-g.Done()
	if i := s.info(t, m); i.State != vm.StateTrouble {
		t.Errorf("%+v", i)
	}
	until(t, "every process to go", func() bool {
		for _, pid := range pids {
			if b, err := os.ReadFile("/proc/" + itoa(pid) + "/cmdline"); err == nil && len(b) > 0 {
				return false
			}
		}
		return true
	})
	must(t, m.Start(c, nil))
	g = s.open(t)
	if b, err := g.Files().Read(c, "file", 0, 10); err != nil || string(b.Data) != "hi\n" {
		t.Errorf("%q %v", b.Data, err)
	}
	must(t, g.Shutdown(c))
	must(t, m.Stop(c))
	if i := s.info(t, m); i.State != vm.StateOff {
		t.Errorf("%+v", i)
	}
	must(t, d.Destroy(c, "m1"))
	if _, err := d.Open(c, "m1"); !errors.Is(err, vm.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := client.Open(c, nopConn{}, nil, client.Options{}); err == nil {
		t.Error("a channel to nothing")
	}
}

type nopConn struct{}

func (nopConn) Read([]byte) (int, error)    { return 0, io.EOF }
func (nopConn) Write(b []byte) (int, error) { return len(b), nil }
func (nopConn) Close() error                { return nil }
