package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// reconnectWait is how long a call waits for a lost channel to come back. A
// killed guestd is restarted within a second; more is needed on slow hosts.
const reconnectWait = 45 * time.Second

// lossWaits is how many tenths of a second a channel whose call said that it is lost may
// take to end. Counted one by one: a computer that stands still meanwhile takes one of them.
const lossWaits = 20

// Link is a guest.Guest that outlives single channels. Reads are repeated on a
// new channel; executions are joined again at the byte where the old channel
// stopped; a write is looked at before it is repeated. When the machine itself
// ended, executions end as Unknown and other calls fail with guest.ErrGone.
type Link struct{ u *unit }

var _ guest.Guest = (*Link)(nil)

// current returns the open channel, waiting for one that is being reopened. A
// caller that goes meanwhile gets its own context's cause, not ErrGone.
func (l *Link) current(ctx context.Context) (guest.Guest, error) {
	limit := time.NewTimer(reconnectWait)
	defer limit.Stop()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		l.u.mu.Lock()
		g, state, fresh := l.u.cur, l.u.state, l.u.fresh
		l.u.mu.Unlock()
		if g != nil {
			return g, nil
		}
		if state != vm.StateReady && state != vm.StateStarting {
			return nil, fmt.Errorf("%w: the machine is %s", guest.ErrGone, state)
		}
		select {
		case <-fresh:
		case <-ctx.Done():
		case <-l.u.f.ctx.Done():
			return nil, fmt.Errorf("%w: %w", guest.ErrGone, errClosing)
		case <-limit.C:
			return nil, fmt.Errorf("%w: no new connection came", guest.ErrGone)
		}
	}
}

// retry runs f on the open channel, and again on a new one when the channel was
// lost under it. f must be safe to repeat.
func retry[T any](ctx context.Context, l *Link, f func(guest.Guest) (T, error)) (T, error) {
	var zero T
	for range 4 {
		g, err := l.current(ctx)
		if err != nil {
			return zero, err
		}
		v, err := f(g)
		if err == nil || !errors.Is(err, guest.ErrGone) || ctx.Err() != nil {
			return v, err
		}
		if !l.lost(ctx, g) {
			return zero, err
		}
	}
	return zero, guest.ErrGone
}

// lost waits, after a call that failed with ErrGone, until that channel is known to be
// dead, and reports whether it is: then current waits for the next one.
func (l *Link) lost(ctx context.Context, g guest.Guest) bool {
	// The channel's own end may come a moment after the call's error.
	for range lossWaits {
		select {
		case <-g.Done():
			l.drop(ctx, g)
			return true
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// drop waits until the keeper has noticed that a channel is dead, so that current
// waits for the next one instead of handing this one out again.
func (l *Link) drop(ctx context.Context, g guest.Guest) {
	for {
		l.u.mu.Lock()
		noticed, fresh := l.u.cur != g, l.u.fresh
		l.u.mu.Unlock()
		if noticed {
			return
		}
		select {
		case <-fresh:
		case <-l.u.f.ctx.Done(): // from now on no keeper notices anything
			return
		case <-ctx.Done():
			return
		}
	}
}

func (l *Link) Hello() guest.Hello {
	l.u.mu.Lock()
	defer l.u.mu.Unlock()
	if l.u.cur == nil {
		return guest.Hello{BootID: l.u.boot}
	}
	return l.u.cur.Hello()
}

func (l *Link) Execs() guest.Execs             { return linkExecs{l} }
func (l *Link) Files() guest.Files             { return linkFiles{l} }
func (l *Link) Checkpoints() guest.Checkpoints { return linkCheckpoints{l} }
func (l *Link) Git() guest.Git                 { return linkGit{l} }

func (l *Link) Browser(ctx context.Context, s guest.BrowserSpec) (io.ReadWriteCloser, error) {
	return retry(ctx, l, func(g guest.Guest) (io.ReadWriteCloser, error) { return g.Browser(ctx, s) })
}

// Watch ends with the channel it was opened on; call it again.
func (l *Link) Watch(ctx context.Context) (<-chan guest.ChangeBatch, error) {
	return retry(ctx, l, func(g guest.Guest) (<-chan guest.ChangeBatch, error) { return g.Watch(ctx) })
}

func (l *Link) Stats(ctx context.Context) (guest.Stats, error) {
	return retry(ctx, l, func(g guest.Guest) (guest.Stats, error) { return g.Stats(ctx) })
}

// Shutdown and Close belong to the fleet: use Fleet.Stop.
func (l *Link) Shutdown(context.Context) error { return vm.ErrUnsupported }
func (l *Link) Close() error                   { return vm.ErrUnsupported }

// Done of the channel that is open now.
func (l *Link) Done() <-chan struct{} {
	l.u.mu.Lock()
	defer l.u.mu.Unlock()
	if l.u.cur == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return l.u.cur.Done()
}

func (l *Link) Err() error {
	l.u.mu.Lock()
	defer l.u.mu.Unlock()
	if l.u.cur == nil {
		return guest.ErrGone
	}
	return l.u.cur.Err()
}

type linkExecs struct{ l *Link }

// errRebooted: the answer to a start was lost together with the machine.
var errRebooted = errors.New("the machine was restarted while the command was being started")

func (x linkExecs) Start(ctx context.Context, spec guest.ExecSpec) (guest.Process, error) {
	// guestd writes an execution to its journal before it starts it and refuses a
	// second one of the same id, so a start whose answer was lost is looked up first.
	// The journal of a machine that was booted anew may have lost it: a command that
	// may have run is not run again.
	boot := ""
	p, err := retry(ctx, x.l, func(g guest.Guest) (guest.Process, error) {
		now := g.Hello().BootID
		if boot != "" {
			p, err := (&linkProcess{ctx: ctx, id: spec.ID, tty: spec.TTY != nil}).join(g)
			if !errors.Is(err, guest.ErrNoExec) {
				return p, err
			}
			if now != boot {
				return nil, errRebooted
			}
		}
		boot = now
		return g.Execs().Start(ctx, spec)
	})
	if errors.Is(err, errRebooted) {
		err = fmt.Errorf("%w: %w", guest.ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	return &linkProcess{l: x.l, id: spec.ID, p: p, ctx: ctx, tty: spec.TTY != nil}, nil
}

func (x linkExecs) Attach(ctx context.Context, id string, out, errs int64) (guest.Process, error) {
	p, err := retry(ctx, x.l, func(g guest.Guest) (guest.Process, error) { return g.Execs().Attach(ctx, id, out, errs) })
	if err != nil {
		return nil, err
	}
	return &linkProcess{l: x.l, id: id, p: p, out: out, errs: errs, ctx: ctx}, nil
}

func (x linkExecs) Terminal(ctx context.Context, id string, from int64) (guest.Process, error) {
	p, err := retry(ctx, x.l, func(g guest.Guest) (guest.Process, error) { return g.Execs().Terminal(ctx, id, from) })
	if err != nil {
		return nil, err
	}
	return &linkProcess{l: x.l, id: id, p: p, out: from, ctx: ctx, tty: true}, nil
}

func (x linkExecs) List(ctx context.Context) ([]guest.ExecState, error) {
	return retry(ctx, x.l, func(g guest.Guest) ([]guest.ExecState, error) { return g.Execs().List(ctx) })
}

func (x linkExecs) Kill(ctx context.Context, id string, grace time.Duration) error {
	_, err := retry(ctx, x.l, func(g guest.Guest) (struct{}, error) { return struct{}{}, g.Execs().Kill(ctx, id, grace) })
	return err
}

func (x linkExecs) Forget(ctx context.Context, ids ...string) error {
	_, err := retry(ctx, x.l, func(g guest.Guest) (struct{}, error) { return struct{}{}, g.Execs().Forget(ctx, ids...) })
	return err
}

func (x linkExecs) EndSession(ctx context.Context, s string) error {
	_, err := retry(ctx, x.l, func(g guest.Guest) (struct{}, error) { return struct{}{}, g.Execs().EndSession(ctx, s) })
	return err
}

// linkProcess joins its execution again when the channel is lost.
type linkProcess struct {
	l         *Link
	ctx       context.Context
	id        string
	mu        sync.Mutex
	p         guest.Process
	out, errs int64
	exit      guest.Exit
	ended     bool
	tty       bool // a terminal: not worth starting a machine for
}

func (p *linkProcess) ID() string { return p.id }

func (p *linkProcess) inner() guest.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p
}

func (p *linkProcess) Next() (guest.Output, error) {
	for {
		if p.ended {
			return guest.Output{}, io.EOF
		}
		cur := p.inner()
		o, err := cur.Next()
		switch {
		case err == nil:
			if o.Stderr {
				p.errs = o.Offset + int64(len(o.Data))
			} else {
				p.out = o.Offset + int64(len(o.Data))
			}
			return o, nil
		case errors.Is(err, io.EOF):
			p.exit, p.ended = cur.Exit(), true
			return guest.Output{}, io.EOF
		case !errors.Is(err, guest.ErrGone) || p.ctx.Err() != nil:
			return guest.Output{}, err
		}
		again, err := retry(p.ctx, p.l, func(g guest.Guest) (guest.Process, error) {
			return p.join(g)
		})
		if err != nil && p.ctx.Err() == nil && !errors.Is(err, guest.ErrNoExec) && !p.tty {
			again, err = p.revive()
		}
		if err != nil {
			if p.ctx.Err() != nil {
				return guest.Output{}, err
			}
			// The machine's journal cannot say how it ended: that is the outcome.
			p.exit, p.ended = guest.Exit{Code: -1, Unknown: true, EndedAt: time.Now()}, true
			continue
		}
		p.mu.Lock()
		p.p = again
		p.mu.Unlock()
		_ = cur.Close()
	}
}

func (p *linkProcess) join(g guest.Guest) (guest.Process, error) {
	if p.tty {
		return g.Execs().Terminal(p.ctx, p.id, p.out)
	}
	return g.Execs().Attach(p.ctx, p.id, p.out, p.errs)
}

// revive starts a machine that died under the execution, once, to ask its
// journal: the command may have ended before the machine did.
func (p *linkProcess) revive() (guest.Process, error) {
	g, err := p.l.again(p.ctx)
	if err != nil {
		return nil, err
	}
	return g.Execs().Attach(p.ctx, p.id, p.out, p.errs)
}

// again starts a machine that died while somebody needs it, and returns its channel. One
// that a person stopped stays off.
func (l *Link) again(ctx context.Context) (guest.Guest, error) {
	l.u.mu.Lock()
	wanted := l.u.wanted
	l.u.mu.Unlock()
	if !wanted {
		return nil, guest.ErrGone
	}
	if _, err := l.u.f.Ensure(ctx, l.u.project); err != nil {
		return nil, err
	}
	return l.current(ctx)
}

func (p *linkProcess) Exit() guest.Exit             { return p.exit }
func (p *linkProcess) Write(b []byte) (int, error)  { return p.inner().Write(b) }
func (p *linkProcess) CloseStdin() error            { return p.inner().CloseStdin() }
func (p *linkProcess) Signal(sig int) error         { return p.inner().Signal(sig) }
func (p *linkProcess) Resize(w guest.Winsize) error { return p.inner().Resize(w) }
func (p *linkProcess) Close() error                 { return p.inner().Close() }

type linkFiles struct{ l *Link }

func (x linkFiles) Stat(ctx context.Context, path string) (guest.FileInfo, error) {
	return retry(ctx, x.l, func(g guest.Guest) (guest.FileInfo, error) { return g.Files().Stat(ctx, path) })
}

func (x linkFiles) Read(ctx context.Context, path string, offset, limit int64) (guest.FileData, error) {
	return retry(ctx, x.l, func(g guest.Guest) (guest.FileData, error) { return g.Files().Read(ctx, path, offset, limit) })
}

// Write is atomic in the guest, so after a lost channel either all or nothing
// happened; a repeated conditional write that finds its own bytes is done. An
// unconditional one may, in that moment, write over what somebody else wrote last.
func (x linkFiles) Write(ctx context.Context, path string, data []byte, opt guest.WriteOptions) (guest.FileInfo, error) {
	tried := false
	return retry(ctx, x.l, func(g guest.Guest) (guest.FileInfo, error) {
		if tried && opt.IfMatch != "" {
			if cur, err := g.Files().Read(ctx, path, 0, int64(len(data))+1); err == nil && string(cur.Data) == string(data) {
				return cur.Info, nil
			}
		}
		tried = true
		return g.Files().Write(ctx, path, data, opt)
	})
}

func (x linkFiles) Remove(ctx context.Context, path string, recursive bool) error {
	tried := false
	_, err := retry(ctx, x.l, func(g guest.Guest) (struct{}, error) {
		err := g.Files().Remove(ctx, path, recursive)
		if tried && errors.Is(err, guest.ErrNotFound) {
			err = nil
		}
		tried = true
		return struct{}{}, err
	})
	return err
}

func (x linkFiles) Mkdir(ctx context.Context, path string) error {
	_, err := retry(ctx, x.l, func(g guest.Guest) (struct{}, error) { return struct{}{}, g.Files().Mkdir(ctx, path) })
	return err
}

func (x linkFiles) List(ctx context.Context, path string, limit int) ([]guest.FileInfo, bool, error) {
	type r struct {
		v    []guest.FileInfo
		more bool
	}
	out, err := retry(ctx, x.l, func(g guest.Guest) (r, error) {
		v, more, err := g.Files().List(ctx, path, limit)
		return r{v, more}, err
	})
	return out.v, out.more, err
}

func (x linkFiles) Glob(ctx context.Context, pattern string, all bool, limit int) ([]string, bool, error) {
	type r struct {
		v    []string
		more bool
	}
	out, err := retry(ctx, x.l, func(g guest.Guest) (r, error) {
		v, more, err := g.Files().Glob(ctx, pattern, all, limit)
		return r{v, more}, err
	})
	return out.v, out.more, err
}

func (x linkFiles) Search(ctx context.Context, q guest.SearchQuery) (guest.SearchResult, error) {
	return retry(ctx, x.l, func(g guest.Guest) (guest.SearchResult, error) { return g.Files().Search(ctx, q) })
}

type linkCheckpoints struct{ l *Link }

// Take starts a machine that died before the checkpoint of a step that ended was there,
// once: the workspace is on its disk, and a step without a checkpoint would stay so.
func (x linkCheckpoints) Take(ctx context.Context, req guest.CheckpointRequest) (guest.Checkpoint, error) {
	cp, err := retry(ctx, x.l, func(g guest.Guest) (guest.Checkpoint, error) { return g.Checkpoints().Take(ctx, req) })
	if !errors.Is(err, guest.ErrGone) || ctx.Err() != nil {
		return cp, err
	}
	g, aerr := x.l.again(ctx)
	if aerr != nil {
		return cp, err
	}
	return g.Checkpoints().Take(ctx, req)
}

func (x linkCheckpoints) Diff(ctx context.Context, from, to string) ([]guest.FileChange, bool, error) {
	type r struct {
		v    []guest.FileChange
		more bool
	}
	out, err := retry(ctx, x.l, func(g guest.Guest) (r, error) {
		v, more, err := g.Checkpoints().Diff(ctx, from, to)
		return r{v, more}, err
	})
	return out.v, out.more, err
}

func (x linkCheckpoints) Show(ctx context.Context, q guest.ShowRequest) (guest.KeptFile, error) {
	return retry(ctx, x.l, func(g guest.Guest) (guest.KeptFile, error) { return g.Checkpoints().Show(ctx, q) })
}

// Restore is not repeated: the checkpoint it takes first would then be of what it
// restored itself.
func (x linkCheckpoints) Restore(ctx context.Context, commit string) (guest.Checkpoint, error) {
	g, err := x.l.current(ctx)
	if err != nil {
		return guest.Checkpoint{}, err
	}
	cp, err := g.Checkpoints().Restore(ctx, commit)
	if errors.Is(err, guest.ErrGone) && ctx.Err() == nil {
		x.l.lost(ctx, g) // who begins it again shall not get the dead one
	}
	return cp, err
}

type linkGit struct{ l *Link }

// Import is not repeated: its pack can be read once only.
func (x linkGit) Import(ctx context.Context, req guest.ImportRequest, pack io.Reader) error {
	g, err := x.l.current(ctx)
	if err != nil {
		return err
	}
	return g.Git().Import(ctx, req, pack)
}

// Repair is not repeated either; a second one finds what the first has done.
func (x linkGit) Repair(ctx context.Context, req guest.ImportRequest, pack io.Reader) (bool, error) {
	g, err := x.l.current(ctx)
	if err != nil {
		return false, err
	}
	return g.Git().Repair(ctx, req, pack)
}

func (x linkGit) Head(ctx context.Context) (guest.HeadInfo, error) {
	return retry(ctx, x.l, func(g guest.Guest) (guest.HeadInfo, error) { return g.Git().Head(ctx) })
}

func (x linkGit) Candidate(ctx context.Context, base, message string) (guest.Candidate, error) {
	return retry(ctx, x.l, func(g guest.Guest) (guest.Candidate, error) { return g.Git().Candidate(ctx, base, message) })
}

func (x linkGit) Export(ctx context.Context, want, have []string, maxBytes int64) (io.ReadCloser, error) {
	return retry(ctx, x.l, func(g guest.Guest) (io.ReadCloser, error) { return g.Git().Export(ctx, want, have, maxBytes) })
}
