package machine

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// lossy is a channel whose next answer to a method is lost after the work was done.
type lossy struct {
	*vmtest.Guest
	s    *stage
	lose *atomic.Value // method
	boot *atomic.Bool  // with the machine, not the channel alone
	n    *atomic.Int32 // calls
}

func (l lossy) answer(method string, err error) error {
	if l.lose.Load() != method {
		return err
	}
	l.lose.Store("")
	if l.boot.Load() {
		l.s.w.Crash() // a power cut and a new boot; it answers again at once
	} else {
		l.s.w.Drop()
	}
	return guest.ErrGone
}

func (l lossy) Execs() guest.Execs             { return lossyExecs{l.Guest.Execs(), l} }
func (l lossy) Files() guest.Files             { return lossyFiles{l.Guest.Files(), l} }
func (l lossy) Checkpoints() guest.Checkpoints { return lossyCheckpoints{l.Guest.Checkpoints(), l} }
func (l lossy) Git() guest.Git                 { return lossyGit{l.Guest.Git(), l} }

type lossyExecs struct {
	guest.Execs
	l lossy
}

func (x lossyExecs) Start(ctx context.Context, spec guest.ExecSpec) (guest.Process, error) {
	x.l.n.Add(1)
	p, err := x.Execs.Start(ctx, spec)
	return p, x.l.answer("start", err)
}

type lossyFiles struct {
	guest.Files
	l lossy
}

func (x lossyFiles) Write(ctx context.Context, path string, data []byte, opt guest.WriteOptions) (guest.FileInfo, error) {
	i, err := x.Files.Write(ctx, path, data, opt)
	return i, x.l.answer("write", err)
}

func (x lossyFiles) Remove(ctx context.Context, path string, recursive bool) error {
	return x.l.answer("remove", x.Files.Remove(ctx, path, recursive))
}

type lossyCheckpoints struct {
	guest.Checkpoints
	l lossy
}

func (x lossyCheckpoints) Restore(ctx context.Context, commit string) (guest.Checkpoint, error) {
	x.l.n.Add(1)
	cp, err := x.Checkpoints.Restore(ctx, commit)
	return cp, x.l.answer("restore", err)
}

type lossyGit struct {
	guest.Git
	l lossy
}

func (x lossyGit) Import(ctx context.Context, req guest.ImportRequest, pack io.Reader) error {
	x.l.n.Add(1)
	return x.l.answer("import", x.Git.Import(ctx, req, pack))
}

func lossyStage(t *testing.T) (*stage, guest.Guest, lossy) {
	s := newStage(t)
	l := lossy{s: s, lose: &atomic.Value{}, boot: &atomic.Bool{}, n: &atomic.Int32{}}
	l.lose.Store("")
	s.wrap = func(g *vmtest.Guest) guest.Guest { c := l; c.Guest = g; return c }
	return s, s.ensure(), l
}

func drain(t *testing.T, p guest.Process) (string, guest.Exit) {
	t.Helper()
	var b strings.Builder
	for {
		o, err := p.Next()
		if errors.Is(err, io.EOF) {
			return b.String(), p.Exit()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(o.Data)
	}
}

// A start whose answer was lost is joined, never made twice; when the machine was
// booted anew meanwhile nobody knows, and it is not made again either.
func TestLostAnswerToAStart(t *testing.T) {
	s, g, l := lossyStage(t)
	s.w.OnExec = func(_ context.Context, _ guest.ExecSpec, x *vmtest.Exec) guest.Exit {
		x.Stdout("once")
		return guest.Exit{}
	}
	l.lose.Store("start")
	p, err := g.Execs().Start(s.ctx(), guest.ExecSpec{ID: "a", Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if out, exit := drain(t, p); out != "once" || exit.Unknown || l.n.Load() != 1 {
		t.Errorf("%q %+v, %d starts", out, exit, l.n.Load())
	}
	hold := make(chan struct{})
	defer close(hold)
	s.w.OnExec = func(ctx context.Context, _ guest.ExecSpec, x *vmtest.Exec) guest.Exit {
		<-ctx.Done()
		return guest.Exit{}
	}
	l.lose.Store("start")
	l.boot.Store(true)
	if _, err := g.Execs().Start(s.ctx(), guest.ExecSpec{ID: "b", Argv: []string{"x"}}); !errors.Is(err, guest.ErrGone) {
		t.Errorf("%v", err)
	}
	if l.n.Load() != 2 {
		t.Errorf("it was started again after the boot: %d starts", l.n.Load())
	}
}

func TestLostAnswersToChanges(t *testing.T) {
	s, g, l := lossyStage(t)
	l.lose.Store("write")
	if _, err := g.Files().Write(s.ctx(), "f", []byte("x"), guest.WriteOptions{IfMatch: "absent"}); err != nil {
		t.Errorf("a conditional write that was done: %v", err)
	}
	l.lose.Store("write")
	if _, err := g.Files().Write(s.ctx(), "f", []byte("y"), guest.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if b, _ := s.w.Get("f"); string(b) != "y" {
		t.Errorf("%q", b)
	}
	if _, err := g.Files().Write(s.ctx(), "f", []byte("z"), guest.WriteOptions{IfMatch: "absent"}); !errors.Is(err, guest.ErrConflict) {
		t.Errorf("a real conflict: %v", err)
	}
	l.lose.Store("remove")
	if err := g.Files().Remove(s.ctx(), "f", false); err != nil {
		t.Errorf("a removal that was done: %v", err)
	}
	if err := g.Files().Remove(s.ctx(), "f", false); !errors.Is(err, guest.ErrNotFound) {
		t.Errorf("%v", err)
	}
	cp, err := g.Checkpoints().Take(s.ctx(), guest.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for method, call := range map[string]func() error{
		"restore": func() error { _, err := g.Checkpoints().Restore(s.ctx(), cp.Commit); return err },
		"import": func() error {
			return g.Git().Import(s.ctx(), guest.ImportRequest{}, strings.NewReader("pack"))
		},
	} {
		l.n.Store(0)
		l.lose.Store(method)
		if err := call(); !errors.Is(err, guest.ErrGone) || l.n.Load() != 1 {
			t.Errorf("%s: %v, %d times", method, err, l.n.Load())
		}
		s.until("the next channel", s.f.unit(s.p).ready)
	}
}

// A restore that was lost is not repeated by the link, but by who knows that it may be:
// at once, for which the next channel is waited for.
func TestLostRestoreBegunAgain(t *testing.T) {
	s, g, l := lossyStage(t)
	cp, err := g.Checkpoints().Take(s.ctx(), guest.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.lose.Store("restore")
		if _, err := g.Checkpoints().Restore(s.ctx(), cp.Commit); !errors.Is(err, guest.ErrGone) {
			t.Fatal(err)
		}
		if _, err := g.Checkpoints().Restore(s.ctx(), cp.Commit); err != nil {
			t.Fatal(err)
		}
	}
}

// Output goes on over lost channels without a gap or a double.
func TestOutputOverLostChannels(t *testing.T) {
	s, g, _ := lossyStage(t)
	next := make(chan string)
	s.w.OnExec = func(_ context.Context, _ guest.ExecSpec, x *vmtest.Exec) guest.Exit {
		for line := range next {
			x.Stdout(line)
		}
		return guest.Exit{Code: 3}
	}
	p, err := g.Execs().Start(s.ctx(), guest.ExecSpec{ID: "a", Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	go func() {
		for i := range 10 {
			next <- strings.Repeat(string(rune('a'+i)), i+1)
			if i%3 == 0 {
				s.w.Drop()
				s.until("the next channel", s.f.unit(s.p).ready)
			}
		}
		close(next)
	}()
	for i := range 10 {
		want += strings.Repeat(string(rune('a'+i)), i+1)
	}
	if out, exit := drain(t, p); out != want || exit.Code != 3 {
		t.Errorf("%q %+v", out, exit)
	}
}

// A machine that dies under a command is started once to ask its journal; one that
// was told to stop stays off.
func TestMachineEndsUnderACommand(t *testing.T) {
	for _, how := range []string{"dies", "is stopped"} {
		t.Run(how, func(t *testing.T) {
			s, g, _ := lossyStage(t)
			s.w.OnExec = func(ctx context.Context, _ guest.ExecSpec, _ *vmtest.Exec) guest.Exit {
				<-ctx.Done()
				return guest.Exit{}
			}
			p, err := g.Execs().Start(s.ctx(), guest.ExecSpec{ID: "a", Argv: []string{"x"}})
			if err != nil {
				t.Fatal(err)
			}
			if how == "dies" {
				s.die()
			} else if err := s.f.Stop(s.ctx(), s.p); err != nil {
				t.Fatal(err)
			}
			if _, exit := drain(t, p); !exit.Unknown {
				t.Errorf("%+v", exit)
			}
			want := map[string]int{"dies": 2, "is stopped": 1}[how]
			if n := s.count(&s.starts); n != want {
				t.Errorf("%d starts, not %d", n, want)
			}
			if how == "is stopped" {
				s.is(vm.StateOff)
			}
		})
	}
}

// A machine that dies under a checkpoint is started for it, as it is for a command;
// one that a person stopped is not.
func TestMachineEndsUnderACheckpoint(t *testing.T) {
	for _, how := range []string{"dies", "is stopped"} {
		t.Run(how, func(t *testing.T) {
			s, g, _ := lossyStage(t)
			if how == "dies" {
				s.die()
			} else if err := s.f.Stop(s.ctx(), s.p); err != nil {
				t.Fatal(err)
			}
			cp, err := g.Checkpoints().Take(s.ctx(), guest.CheckpointRequest{Session: "s", Step: "a"})
			want := map[string]int{"dies": 2, "is stopped": 1}[how]
			if n := s.count(&s.starts); n != want {
				t.Errorf("%d starts, not %d", n, want)
			}
			if how == "dies" && (err != nil || cp.Commit == "") || how != "dies" && !errors.Is(err, guest.ErrGone) {
				t.Errorf("%+v %v", cp, err)
			}
		})
	}
}

// A caller that goes gets its own cause at once, not a lost machine's.
func TestLinkAndAContextThatEnds(t *testing.T) {
	s := newStage(t)
	g := s.ensure()
	// Nobody can say what it is at: the next channel is waited for as long as that lasts.
	s.with(func() { s.deaf, s.infoErr = true, errors.New("no answer") })
	s.w.Drop()
	s.until("its loss", func() bool { return !s.f.unit(s.p).ready() })
	cause := errors.New("a person's cancel")
	inner, cancel := context.WithCancelCause(context.Background())
	ctx := &noticed{Context: inner, told: func() { go cancel(cause) }}
	if _, err := g.Stats(ctx); !errors.Is(err, cause) || errors.Is(err, guest.ErrGone) {
		t.Errorf("%v", err)
	}
	if err := g.Shutdown(s.ctx()); !errors.Is(err, vm.ErrUnsupported) {
		t.Error(err)
	}
}
