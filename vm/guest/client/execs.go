package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// maxStates bounds the journal a guest may list.
const maxStates = 20000

// ErrExists: an execution of that id was started before. Attach to it.
var ErrExists = errors.New("an execution of that id exists")

type execs struct {
	c *client
	p proto.ExecClient
}

func (c *client) Execs() guest.Execs { return &execs{c, proto.NewExecClient(c.cc)} }

func (x *execs) Start(ctx context.Context, spec guest.ExecSpec) (guest.Process, error) {
	m := proto.FromSpec(spec)
	if err := proto.CheckStart(m); err != nil {
		return nil, fmt.Errorf("the command is refused: %w", err)
	}
	limit := spec.OutputLimit
	if limit == 0 {
		limit = proto.DefaultOutputLimit
	}
	return x.open(ctx, spec.ID, &proto.ExecIn{Msg: &proto.ExecIn_Start{Start: m}}, [2]int64{}, limit, spec.TTY != nil)
}

func (x *execs) Attach(ctx context.Context, id string, stdoutFrom, stderrFrom int64) (guest.Process, error) {
	if err := proto.CheckID("id", id); err != nil {
		return nil, err
	}
	if stdoutFrom < 0 || stderrFrom < 0 {
		return nil, errors.New("an output offset is negative")
	}
	m := &proto.ExecAttach{Id: id, StdoutFrom: stdoutFrom, StderrFrom: stderrFrom}
	return x.open(ctx, id, &proto.ExecIn{Msg: &proto.ExecIn_Attach{Attach: m}}, [2]int64{stdoutFrom, stderrFrom}, proto.MaxOutputLimit, false)
}

func (x *execs) Terminal(ctx context.Context, id string, from int64) (guest.Process, error) {
	if err := proto.CheckID("id", id); err != nil {
		return nil, err
	}
	if from < 0 {
		return nil, errors.New("an output offset is negative")
	}
	m := &proto.ExecAttach{Id: id, StdoutFrom: from}
	return x.open(ctx, id, &proto.ExecIn{Msg: &proto.ExecIn_Attach{Attach: m}}, [2]int64{from, 0}, 0, true)
}

func (x *execs) open(ctx context.Context, id string, first *proto.ExecIn, from [2]int64, limit int64, window bool) (guest.Process, error) {
	sctx, cancel := context.WithCancel(ctx)
	st, err := x.p.Run(sctx)
	if err == nil {
		err = st.Send(first)
	}
	var m *proto.ExecOut
	if err == nil || errors.Is(err, io.EOF) { // after EOF of Send the answer says why
		m, err = st.Recv()
	}
	if err != nil {
		cancel()
		if status.Code(err) == codes.AlreadyExists {
			return nil, fmt.Errorf("%w: %s", ErrExists, id)
		}
		return nil, x.c.wrap(ctx, err, guest.ErrNoExec)
	}
	if m.GetStarted() == nil {
		cancel()
		return nil, errors.New("guestd answered a start with something else")
	}
	return &process{x: x, id: id, ctx: sctx, cancel: cancel, st: st, at: from, limit: limit, window: window}, nil
}

type process struct {
	x      *execs
	id     string
	ctx    context.Context
	cancel context.CancelFunc
	st     grpc.BidiStreamingClient[proto.ExecIn, proto.ExecOut]
	at     [2]int64
	limit  int64
	window bool // a terminal: no limit in all, and what was not kept is leapt over

	mu   sync.Mutex // of exit and over
	exit guest.Exit
	over error // what Next says from now on

	wr sync.Mutex
}

func (p *process) ID() string { return p.id }

func (p *process) Next() (guest.Output, error) {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over != nil {
		return guest.Output{}, over
	}
	m, err := p.st.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: the stream ended without an exit", guest.ErrGone)
		} else {
			err = p.x.c.wrap(p.ctx, err, guest.ErrNoExec)
		}
		return guest.Output{}, p.end(err)
	}
	switch m := m.Msg.(type) {
	case *proto.ExecOut_Data:
		d := m.Data
		i := 0
		if d.GetStderr() {
			i = 1
		}
		n := int64(len(d.GetData()))
		// A piece may only go on from the last one, and no stream past its limit:
		// a guest cannot make us keep more than was asked for. A gap is left only by a disk that lost its end.
		ok := d.Offset == p.at[i] && p.at[i]+n <= p.limit
		if p.window {
			ok = i == 0 && d.Offset >= p.at[i] && d.Offset <= math.MaxInt64-n
		}
		if n == 0 || !ok {
			return guest.Output{}, p.end(fmt.Errorf("guestd broke the output of %s: %d bytes at %d, expected at %d and at most %d in all", p.id, n, d.Offset, p.at[i], p.limit))
		}
		p.at[i] = d.Offset + n
		return guest.Output{Stderr: d.Stderr, Offset: d.Offset, Data: d.Data}, nil
	case *proto.ExecOut_Exit:
		x, err := m.Exit.Exit()
		if err != nil {
			return guest.Output{}, p.end(err)
		}
		p.mu.Lock()
		p.exit = x
		p.mu.Unlock()
		return guest.Output{}, p.end(io.EOF)
	}
	return guest.Output{}, p.end(errors.New("guestd sent something unknown in an output"))
}

func (p *process) end(err error) error {
	p.mu.Lock()
	p.over = err
	p.mu.Unlock()
	p.cancel()
	return err
}

func (p *process) Exit() guest.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

func (p *process) send(m *proto.ExecIn) error {
	p.wr.Lock()
	defer p.wr.Unlock()
	err := p.st.Send(m)
	if errors.Is(err, io.EOF) {
		return io.ErrClosedPipe // the stream ended: Next says how
	}
	return p.x.c.wrap(p.ctx, err, guest.ErrNoExec)
}

func (p *process) Write(b []byte) (int, error) {
	n := 0
	for len(b) > 0 {
		k := min(len(b), proto.MaxChunk)
		if err := p.send(&proto.ExecIn{Msg: &proto.ExecIn_Stdin{Stdin: b[:k]}}); err != nil {
			return n, err
		}
		n, b = n+k, b[k:]
	}
	return n, nil
}

func (p *process) CloseStdin() error {
	return p.send(&proto.ExecIn{Msg: &proto.ExecIn_CloseStdin{CloseStdin: true}})
}

func (p *process) steer(q *proto.SteerRequest) error {
	_, err := p.x.p.Steer(p.ctx, q)
	return p.x.c.wrap(p.ctx, err, guest.ErrNoExec)
}

func (p *process) Signal(sig int) error {
	return p.steer(&proto.SteerRequest{Id: p.id, Signal: int32(sig)})
}

func (p *process) Resize(w guest.Winsize) error {
	return p.steer(&proto.SteerRequest{Id: p.id, Resize: proto.FromWinsize(w)})
}

func (p *process) Close() error {
	p.cancel()
	return nil
}

func (x *execs) List(ctx context.Context) ([]guest.ExecState, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := x.p.List(ctx, &proto.ExecListRequest{})
	if err != nil {
		return nil, x.c.wrap(ctx, err, nil)
	}
	var out []guest.ExecState
	budget := budget(64 << 20)
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, x.c.wrap(ctx, err, nil)
		}
		if len(out) == maxStates || !budget.take(m) {
			return nil, errors.New("guestd lists more executions than can be")
		}
		s, err := m.State()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
}

func (x *execs) Kill(ctx context.Context, id string, grace time.Duration) error {
	_, err := x.p.Kill(ctx, &proto.KillRequest{Id: id, Grace: int64(grace)})
	return x.c.wrap(ctx, err, guest.ErrNoExec)
}

func (x *execs) Forget(ctx context.Context, ids ...string) error {
	for len(ids) > 0 {
		n := min(len(ids), proto.MaxIDs)
		if _, err := x.p.Forget(ctx, &proto.ForgetRequest{Ids: ids[:n]}); err != nil {
			return x.c.wrap(ctx, err, nil)
		}
		ids = ids[n:]
	}
	return nil
}

func (x *execs) EndSession(ctx context.Context, session string) error {
	_, err := x.p.EndSession(ctx, &proto.EndSessionRequest{Session: session})
	return x.c.wrap(ctx, err, nil)
}
