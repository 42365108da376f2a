package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// The ring holds the newest bytes under their offsets, whatever the pieces.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		r := ring{size: 1 + rng.IntN(5000)}
		var all []byte
		var from int64 // what is joined to the end begins here
		for range rng.IntN(40) {
			p := make([]byte, rng.IntN(1<<rng.IntN(14)))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			at := int64(len(all))
			switch rng.IntN(6) {
			case 0: // a repetition
				back := rng.IntN(len(all) + 1)
				at -= int64(back)
				n := copy(p, all[at:])
				r.add(at, p)
				all = append(all, p[n:]...)
				continue
			case 1: // a gap
				if len(p) > 0 {
					gap := 1 + rng.IntN(100)
					all = append(all, make([]byte, gap)...)
					at += int64(gap)
					from = at
				}
			}
			r.add(at, p)
			all = append(all, p...)
		}
		end := int64(len(all))
		want := max(from, end-int64(r.size), 0)
		if r.end != end || end > 0 && r.start() != want {
			t.Fatalf("it holds %d to %d, want %d to %d", r.start(), r.end, want, end)
		}
		at, p := r.read(0, 1<<30)
		if !bytes.Equal(p, all[at:]) {
			t.Fatalf("from %d on it holds %d bytes that are not those of the stream", at, len(p))
		}
		if at, p := r.read(end+10, 10); at != end+10 || p != nil {
			t.Fatalf("past the end: %d %v", at, p)
		}
	}
}

type machines struct {
	w     *vmtest.World
	mu    sync.Mutex
	state vm.State
	g     *vmtest.Guest
}

func (m *machines) set(s vm.State) { m.mu.Lock(); defer m.mu.Unlock(); m.state = s }
func (m *machines) State(domain.ProjectID) vm.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}
func (m *machines) Ensure(context.Context, domain.Project) (guest.Guest, error) {
	m.set(vm.StateReady)
	g, _ := m.Running("")
	return g, nil
}
func (m *machines) Running(domain.ProjectID) (guest.Guest, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.g == nil || m.g.Err() != nil {
		m.g = m.w.Open()
	}
	return m.g, m.state == vm.StateReady
}

type bench struct {
	t   *testing.T
	w   *vmtest.World
	m   *machines
	log *eventlog.Log
	s   *Service
	p   domain.Project
}

func newBench(t *testing.T) *bench {
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	b := &bench{t: t, w: vmtest.NewWorld(), log: log, p: domain.Project{ID: "p_1", Name: "one"}}
	b.m = &machines{w: b.w, state: vm.StateOff}
	// A shell that says what it reads, line by line; "exit N" ends it, "flood" says much.
	b.w.OnExec = func(ctx context.Context, _ guest.ExecSpec, x *vmtest.Exec) guest.Exit {
		lines := make(chan string)
		go func() {
			defer close(lines)
			var buf []byte
			one := make([]byte, 1)
			for {
				if _, err := x.Stdin.Read(one); err != nil {
					return
				}
				if buf = append(buf, one[0]); one[0] == '\n' {
					select {
					case lines <- strings.TrimSuffix(string(buf), "\n"):
					case <-ctx.Done():
						return
					}
					buf = nil
				}
			}
		}()
		for {
			select {
			case <-ctx.Done():
				return guest.Exit{Code: -1, Signal: "SIGHUP", Killed: true}
			case l, ok := <-lines:
				var n int
				switch {
				case !ok:
					return guest.Exit{}
				case strings.HasPrefix(l, "exit "):
					_, _ = fmt.Sscanf(l, "exit %d", &n)
					return guest.Exit{Code: n}
				case l == "flood":
					for i := range 64 {
						x.Stdout(strings.Repeat(fmt.Sprintf("%063d\n", i), 1024))
					}
				}
				x.Stdout("<" + l + ">")
			}
		}
	}
	b.start()
	return b
}

func (b *bench) start() {
	b.s = New(Config{Machines: b.m, Record: func(ctx context.Context, n event.New) error { _, err := b.log.Append(ctx, n); return err }})
	s := b.s
	b.t.Cleanup(s.Leave)
}

func (b *bench) open() *Terminal {
	b.t.Helper()
	t, err := b.s.Open(b.t.Context(), b.p, OpenRequest{Size: guest.Winsize{Rows: 2, Cols: 3}, Actor: "person"})
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func (b *bench) typed(t *Terminal, s string) {
	b.t.Helper()
	if err := t.Input("", 0, []byte(s)); err != nil {
		b.t.Fatal(err)
	}
}

// read reads until the output ends with want.
func (b *bench) read(r *Reader, want string) (out string, lost int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for !strings.HasSuffix(out, want) {
		p, err := r.Next(ctx, 1000)
		if err != nil || p == nil || p.Exit != nil {
			b.t.Fatalf("before %q came: %+v %v; so far %.300q", want, p, err, out)
		}
		out, lost = out+string(p.Data), lost+p.Lost
	}
	return out, lost
}

func (b *bench) exit(t *Terminal) event.TerminalExit {
	b.t.Helper()
	select {
	case <-t.done:
	case <-time.After(time.Minute):
		b.t.Fatal("it never ended")
	}
	return *t.Exit()
}

// ends are the recorded ends by terminal.
func (b *bench) ends() map[string]event.TerminalExit {
	b.t.Helper()
	out := map[string]event.TerminalExit{}
	err := b.log.Fold(b.t.Context(), eventlog.Filter{Types: []event.Type{"terminal.closed"}}, func(e event.Envelope) error {
		v, err := event.Decode(e)
		if err != nil {
			return err
		}
		c := v.(*event.TerminalClosed)
		if _, twice := out[c.Terminal]; twice {
			b.t.Errorf("%s ended twice", c.Terminal)
		}
		out[c.Terminal] = c.Exit
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestReadersAndInput(t *testing.T) {
	b := newBench(t)
	x := b.open()
	one, stuck := x.Read(0), x.Read(0)
	b.typed(x, "hello\n")
	b.read(one, "<hello>")
	// The same number is typed once, the next but one not at all.
	for range 3 {
		if err := x.Input("w", 1, []byte("a\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Input("w", 3, []byte("c\n")); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("a number ahead: %v", err)
	}
	if err := x.Input("w", 2, []byte("b\n")); err != nil {
		t.Fatal(err)
	}
	if out, _ := b.read(one, "<b>"); out != "<a><b>" {
		t.Errorf("what came of it: %q", out)
	}
	// One that reads nothing holds nobody up and is told what it missed.
	b.typed(x, "flood\n")
	b.read(one, "<flood>")
	out, lost := b.read(stuck, "<flood>")
	if int64(len(out))+lost != int64(len("<hello><a><b><flood>")+64*64*1024) || len(out) != RingSize {
		t.Errorf("a slow reader got %d and missed %d", len(out), lost)
	}
	b.typed(x, "exit 4\n")
	if e := b.exit(x); e.Code != 4 || e.Unknown {
		t.Errorf("exit %+v", e)
	}
	if p, err := one.Next(t.Context(), 10); err != nil || p.Exit == nil || p.Exit.Code != 4 {
		t.Errorf("the reader at the end: %+v %v", p, err)
	}
	if len(b.w.Started()) != 0 {
		t.Errorf("the journal still has %v", b.w.Started())
	}
	if err := b.s.Close(t.Context(), x.ID); err != nil || len(b.s.List(b.p.ID)) != 0 {
		t.Errorf("after closing it: %v %v", err, b.s.List(b.p.ID))
	}
}

// A program that does not read is no reason to keep what is typed without an end.
func TestInputThatIsNotRead(t *testing.T) {
	b := newBench(t)
	b.w.OnExec = func(ctx context.Context, _ guest.ExecSpec, _ *vmtest.Exec) guest.Exit {
		<-ctx.Done()
		return guest.Exit{Code: -1, Signal: "SIGTERM"}
	}
	x := b.open()
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = x.Input("", 0, make([]byte, 60<<10))
	}
	if domain.CodeOf(err) != domain.CodeUnavailable {
		t.Fatalf("after %d calls: %v", n, err)
	}
	if err := b.s.Close(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
}

// A window has its size when it is opened, and often another one right after.
func TestSizeRightAfterTheOpening(t *testing.T) {
	b := newBench(t)
	for range MaxRunning {
		if err := b.open().Resize(guest.Winsize{Rows: 9, Cols: 9}); err != nil {
			t.Error(err)
		}
	}
}

func TestMostTerminals(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	errs := make(chan error, 40)
	for range 40 {
		wg.Go(func() {
			_, err := b.s.Open(t.Context(), b.p, OpenRequest{Actor: "person"})
			errs <- err
		})
	}
	wg.Wait()
	good := 0
	for range 40 {
		if err := <-errs; err == nil {
			good++
		} else if domain.CodeOf(err) != domain.CodeConflict {
			t.Error(err)
		}
	}
	if good != MaxRunning || b.s.Running() != MaxRunning {
		t.Errorf("%d were opened, %d run", good, b.s.Running())
	}
}

// One that has begun holds one place, not that of its start as well.
func TestAPlaceIsCountedOnce(t *testing.T) {
	b := newBench(t)
	g, err := b.m.Ensure(t.Context(), b.p)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.s.reserve(b.p.ID); err != nil {
		t.Fatal(err)
	}
	x := b.s.terminal(domain.NewID(prefix), b.p.ID, "sh")
	p, err := g.Execs().Start(t.Context(), guest.ExecSpec{ID: x.ID, Argv: []string{"sh"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if !b.s.begin(x, p) {
		t.Fatal("it did not begin")
	}
	for n := 1; n < MaxRunning; n++ {
		if err := b.s.reserve(b.p.ID); err != nil {
			t.Fatalf("beside %d others: %v", n, err)
		}
	}
	if err := b.s.reserve(b.p.ID); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("one too many: %v", err)
	}
}

// The channel is lost, the core goes and comes, the machine goes for good.
func TestTerminalsOverLosses(t *testing.T) {
	b := newBench(t)
	x := b.open()
	r := x.Read(0)
	b.typed(x, "one\n")
	b.read(r, "<one>")
	b.w.Drop()
	deadline := time.Now().Add(time.Minute)
	for {
		// While it is joined again input may be refused or lost, never doubled.
		_ = x.Input("", 0, []byte("two\n"))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		p, err := r.Next(ctx, 1000)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if p != nil && strings.Contains(string(p.Data), "<two>") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never came back")
		}
	}
	// The next core.
	b.s.Leave()
	if _, err := r.Next(t.Context(), 10); err == nil {
		for err == nil {
			_, err = r.Next(t.Context(), 1000)
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("a reader of the core that left: %v", err)
		}
	}
	if len(b.ends()) != 0 {
		t.Fatalf("leaving ended %v", b.ends())
	}
	lost := domain.NewID(prefix) // one whose end was recorded while the machine was away
	if _, err := b.m.g.Execs().Start(t.Context(), guest.ExecSpec{ID: lost, Argv: []string{"sh"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := b.s.Recover(t.Context(), b.log, []domain.Project{b.p}); err != nil {
		t.Fatal(err)
	}
	x, err := b.s.Get(x.ID)
	if err != nil {
		t.Fatal(err)
	}
	r = x.Read(0)
	b.read(r, "<two>")
	b.typed(x, "three\n")
	b.read(r, "<three>")
	for deadline = time.Now().Add(time.Minute); len(b.w.Started()) != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("what nobody knows is left: %v", b.w.Started())
		}
	}
	b.m.set(vm.StateOff)
	b.w.Crash()
	if e := b.exit(x); !e.Unknown || e.Reason != "the machine was stopped" {
		t.Errorf("exit %+v", e)
	}
	if e, ok := b.ends()[x.ID]; !ok || !e.Unknown {
		t.Errorf("recorded: %+v", b.ends())
	}
}

func TestEndAll(t *testing.T) {
	b := newBench(t)
	x, y := b.open(), b.open()
	b.s.EndAll(t.Context(), "Glasshouse was quit")
	for _, z := range []*Terminal{x, y} {
		if e := b.exit(z); e.Reason != "Glasshouse was quit" {
			t.Errorf("exit %+v", e)
		}
	}
	if _, err := b.s.Open(t.Context(), b.p, OpenRequest{}); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("opened after that: %v", err)
	}
	if len(b.ends()) != 2 || b.s.Running() != 0 {
		t.Errorf("%v, %d run", b.ends(), b.s.Running())
	}
}

// stuck is a process whose input is being written while it ends.
type stuck struct {
	guest.Process
	in, out chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	close(s.in)
	<-s.out
	return 0, io.ErrClosedPipe
}

// A terminal may end while a piece of input is on its way to the machine.
func TestEndsWhileItIsTypedInto(t *testing.T) {
	b := newBench(t)
	x := b.s.terminal(domain.NewID(prefix), b.p.ID, "sh")
	p := &stuck{in: make(chan struct{}), out: make(chan struct{})}
	x.proc = p
	if err := x.Input("w", 1, []byte("ls\n")); err != nil {
		t.Fatal(err)
	}
	fault, over := make(chan any, 1), make(chan struct{})
	go func() {
		defer close(over)
		defer func() { fault <- recover() }()
		x.write()
	}()
	<-p.in
	x.finish(guest.Exit{Code: 0}, "")
	close(p.out)
	<-over
	if v := <-fault; v != nil {
		t.Fatalf("the core would end here: %v", v)
	}
	if x.waiting != 0 {
		t.Fatalf("%d bytes wait for a terminal that ended", x.waiting)
	}
}

// Of a deleted project no terminal is kept, and all of their ends are recorded.
func TestDropOfAProject(t *testing.T) {
	b := newBench(t)
	running, ended := b.open(), b.open()
	b.typed(ended, "exit 3\n")
	b.exit(ended)
	other := b.p
	other.ID = "p_2"
	keeps, err := b.s.Open(t.Context(), other, OpenRequest{Size: guest.Winsize{Rows: 2, Cols: 3}, Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	b.s.Drop(b.p.ID)
	if left := b.s.List(b.p.ID); len(left) != 0 {
		t.Errorf("%d terminals are kept", len(left))
	}
	if _, err := b.s.Get(running.ID); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	if got := b.s.List(other.ID); len(got) != 1 || got[0] != keeps {
		t.Errorf("another project's: %v", got)
	}
	b.typed(running, "exit 4\n") // as its machine's end does
	if x := b.exit(running); x.Code != 4 {
		t.Errorf("%+v", x)
	}
	if ends := b.ends(); len(ends) != 2 {
		t.Errorf("%d ends are recorded", len(ends))
	}
}

// A command that can be none is refused before a machine is started for it.
func TestCommandThatCannotBe(t *testing.T) {
	b := newBench(t)
	for _, argv := range [][]string{{""}, {"", "x"}, {"a\x00b"}, {"sh", "-c", "\x00"}} {
		var e *domain.Error
		if _, err := b.s.Open(t.Context(), b.p, OpenRequest{Argv: argv, Size: guest.Winsize{Rows: 2, Cols: 3}}); !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer != "/command" {
			t.Errorf("%q: %v", argv, err)
		}
	}
	if b.m.State("") != vm.StateOff || b.log.LatestID() != 0 {
		t.Errorf("the machine is %s, and %d events are recorded", b.m.State(""), b.log.LatestID())
	}
}
