package vmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"glasshouse/vm/guest"
)

// Exec is an execution of a World, as the one who plays it sees it.
type Exec struct {
	Spec guest.ExecSpec
	// Stdin is what the host writes; EOF when it closes it, or at once when the
	// command has none.
	Stdin io.Reader

	cancel context.CancelFunc
	stdin  *io.PipeWriter

	mu      sync.Mutex
	changed chan struct{} // closed at each change
	pieces  []guest.Output
	total   [2]int64
	signals []int
	exit    *guest.Exit
	killed  bool
}

// Stdout and Stderr give output, as the command would write it.
func (x *Exec) Stdout(s string) { x.write(false, []byte(s)) }
func (x *Exec) Stderr(s string) { x.write(true, []byte(s)) }

func (x *Exec) write(stderr bool, b []byte) {
	if len(b) == 0 {
		return
	}
	i := 0
	if stderr {
		i = 1
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pieces = append(x.pieces, guest.Output{Stderr: stderr, Offset: x.total[i], Data: slices.Clone(b)})
	x.total[i] += int64(len(b))
	x.change()
}

func (x *Exec) change() { // x.mu is held
	close(x.changed)
	x.changed = make(chan struct{})
}

// Signals lists what was sent to the command.
func (x *Exec) Signals() []int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.signals)
}

func (x *Exec) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.exit != nil
}

func (x *Exec) finish(e guest.Exit, began time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.killed {
		e.Killed, e.Code, e.Signal = true, -1, "SIGTERM"
	}
	e.Stdout.Total, e.Stderr.Total = x.total[0], x.total[1]
	if e.StartedAt.IsZero() {
		e.StartedAt = began
	}
	if e.EndedAt.IsZero() {
		e.EndedAt = time.Now()
	}
	x.exit = &e
	x.change()
}

type fakeExecs struct{ g *Guest }

func (f fakeExecs) Start(ctx context.Context, spec guest.ExecSpec) (guest.Process, error) {
	if err := f.g.ok(ctx, "execs.start"); err != nil {
		return nil, err
	}
	if spec.ID == "" || len(spec.Argv) == 0 {
		return nil, errors.New("the command is refused: it has no id or no argv")
	}
	w := f.g.w
	run, cancel := context.WithCancel(context.Background())
	if spec.Timeout > 0 {
		run, cancel = context.WithTimeoutCause(context.Background(), spec.Timeout, context.DeadlineExceeded)
	}
	pr, pw := io.Pipe()
	x := &Exec{Spec: spec, Stdin: pr, cancel: cancel, stdin: pw, changed: make(chan struct{})}
	if !spec.Stdin {
		_ = pw.Close()
	}
	w.mu.Lock()
	if w.execs[spec.ID] != nil {
		w.mu.Unlock()
		cancel()
		return nil, fmt.Errorf("an execution of that id exists: %s", spec.ID)
	}
	w.execs[spec.ID] = x
	w.order = append(w.order, spec.ID)
	play := w.OnExec
	w.mu.Unlock()
	go func() {
		defer cancel()
		began := time.Now()
		var e guest.Exit
		if play != nil {
			e = play(run, spec, x)
		}
		if errors.Is(context.Cause(run), context.DeadlineExceeded) {
			e.TimedOut, e.Code, e.Signal = true, -1, "SIGTERM"
		}
		_ = pr.Close() // nobody reads stdin any more
		x.finish(e, began)
	}()
	return &fakeProcess{g: f.g, x: x, ctx: ctx, closed: make(chan struct{})}, nil
}

func (f fakeExecs) find(ctx context.Context, method, id string) (*Exec, error) {
	if err := f.g.ok(ctx, method); err != nil {
		return nil, err
	}
	f.g.w.mu.Lock()
	defer f.g.w.mu.Unlock()
	if x := f.g.w.execs[id]; x != nil {
		return x, nil
	}
	return nil, fmt.Errorf("%w: %s", guest.ErrNoExec, id)
}

func (f fakeExecs) Attach(ctx context.Context, id string, stdoutFrom, stderrFrom int64) (guest.Process, error) {
	x, err := f.find(ctx, "execs.attach", id)
	if err != nil {
		return nil, err
	}
	return &fakeProcess{g: f.g, x: x, ctx: ctx, from: [2]int64{stdoutFrom, stderrFrom}, closed: make(chan struct{})}, nil
}

func (f fakeExecs) Terminal(ctx context.Context, id string, from int64) (guest.Process, error) {
	return f.Attach(ctx, id, from, 0)
}

func (f fakeExecs) List(ctx context.Context) (out []guest.ExecState, err error) {
	if err := f.g.ok(ctx, "execs.list"); err != nil {
		return nil, err
	}
	f.g.w.mu.Lock()
	defer f.g.w.mu.Unlock()
	for _, id := range f.g.w.order {
		x := f.g.w.execs[id]
		x.mu.Lock()
		st := guest.ExecState{ID: id, Session: x.Spec.Session, Step: x.Spec.Step, Argv: x.Spec.Argv, Running: x.exit == nil, Stdout: x.total[0], Stderr: x.total[1]}
		if x.exit != nil {
			st.Exit = *x.exit
		}
		x.mu.Unlock()
		out = append(out, st)
	}
	return out, nil
}

func (f fakeExecs) Kill(ctx context.Context, id string, _ time.Duration) error {
	x, err := f.find(ctx, "execs.kill", id)
	if err != nil {
		return err
	}
	x.mu.Lock()
	if x.exit == nil {
		x.killed = true
	}
	x.mu.Unlock()
	x.cancel()
	for {
		x.mu.Lock()
		over, ch := x.exit != nil, x.changed
		x.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f fakeExecs) Forget(ctx context.Context, ids ...string) error {
	if err := f.g.ok(ctx, "execs.forget"); err != nil {
		return err
	}
	w := f.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if x := w.execs[id]; x != nil && x.over() {
			delete(w.execs, id)
			w.order = slices.DeleteFunc(w.order, func(s string) bool { return s == id })
		}
	}
	return nil
}

func (f fakeExecs) EndSession(ctx context.Context, session string) error {
	if err := f.g.ok(ctx, "execs.endsession"); err != nil {
		return err
	}
	f.g.w.mu.Lock()
	defer f.g.w.mu.Unlock()
	f.g.w.ended = append(f.g.w.ended, session)
	return nil
}

// fakeProcess is one reader of an execution.
type fakeProcess struct {
	g    *Guest
	x    *Exec
	ctx  context.Context
	from [2]int64

	next   int // piece
	once   sync.Once
	closed chan struct{}
}

func (p *fakeProcess) ID() string { return p.x.Spec.ID }

func (p *fakeProcess) Next() (guest.Output, error) {
	for {
		p.x.mu.Lock()
		for p.next < len(p.x.pieces) {
			o := p.x.pieces[p.next]
			p.next++
			i := 0
			if o.Stderr {
				i = 1
			}
			if skip := p.from[i] - o.Offset; skip > 0 {
				if skip >= int64(len(o.Data)) {
					continue
				}
				o.Offset, o.Data = o.Offset+skip, o.Data[skip:]
			}
			p.x.mu.Unlock()
			return o, nil
		}
		over, ch := p.x.exit != nil, p.x.changed
		p.x.mu.Unlock()
		lost := func() (guest.Output, error) {
			return guest.Output{}, fmt.Errorf("the output of %s: %w", p.ID(), guest.ErrGone)
		}
		if over {
			select {
			case <-p.g.done: // an end that came after the loss is not told on this channel
				return lost()
			default:
			}
			return guest.Output{}, io.EOF
		}
		select {
		case <-ch:
		case <-p.g.done:
			return lost()
		case <-p.ctx.Done():
			return guest.Output{}, context.Cause(p.ctx)
		case <-p.closed:
			return guest.Output{}, io.ErrClosedPipe
		}
	}
}

func (p *fakeProcess) Exit() guest.Exit {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	if p.x.exit == nil {
		return guest.Exit{}
	}
	return *p.x.exit
}

func (p *fakeProcess) Write(b []byte) (int, error) {
	if err := p.g.ok(p.ctx, "process.write"); err != nil {
		return 0, err
	}
	return p.x.stdin.Write(b)
}

func (p *fakeProcess) CloseStdin() error {
	if err := p.g.ok(p.ctx, "process.closestdin"); err != nil {
		return err
	}
	return p.x.stdin.Close()
}

func (p *fakeProcess) Signal(sig int) error {
	if err := p.g.ok(p.ctx, "process.signal"); err != nil {
		return err
	}
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	p.x.signals = append(p.x.signals, sig)
	p.x.change()
	return nil
}

func (p *fakeProcess) Resize(guest.Winsize) error { return p.g.ok(p.ctx, "process.resize") }

func (p *fakeProcess) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}
