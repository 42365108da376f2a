//go:build linux

package execs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/journal"
	"glasshouse/vm/guest/agent/shim"
	"glasshouse/vm/guest/proto"
)

// stdinAhead is how much input may be under way to a command that does not read.
const stdinAhead = 1 << 20

var chunks = sync.Pool{New: func() any {
	b := make([]byte, proto.MaxChunk)
	return &b
}}

// Exec is one execution.
type Exec struct {
	m    *Manager
	Meta journal.Meta

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	kept    [2]int64
	started bool
	ended   bool
	empty   bool        // no process of it is left
	gone    bool        // nor anything else, and its end is durable
	exit    *guest.Exit // nil when it must be read from the journal
	shim    *conn
	sent    int64 // stdin
	put     int64
}

func newExec(m *Manager, meta journal.Meta) *Exec {
	return &Exec{m: m, Meta: meta, changed: make(chan struct{})}
}

// poke is called with e.mu held.
func (e *Exec) poke() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *Exec) hold(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shim = c
}

func (e *Exec) held() *conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shim
}

// leave marks that nothing of the execution is left.
func (e *Exec) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shim, e.empty, e.gone = nil, true, true
	e.poke()
}

func (e *Exec) update(st shim.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sent := max(e.sent, st.StdinGot)
	empty := e.empty || st.Ended && st.Empty
	if e.started && e.kept == st.Kept && e.put == st.StdinPut && e.sent == sent && e.empty == empty {
		return // nothing that anybody waits for
	}
	e.started, e.kept, e.put, e.sent, e.empty = true, st.Kept, st.StdinPut, sent, empty
	e.poke()
}

func (e *Exec) finish(x guest.Exit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.ended = true
	if len(x.Stdout.Tail)+len(x.Stderr.Tail) == 0 || !e.m.j.Ended(e.Meta.ID) {
		e.exit = &x // tails stay on disk, where there was room for them
	}
	e.poke()
}

// Ended reports whether the command ended (children of it may live on).
func (e *Exec) Ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// Exit of an ended execution.
func (e *Exec) Exit() (guest.Exit, error) {
	e.mu.Lock()
	x := e.exit
	e.mu.Unlock()
	if x != nil {
		return *x, nil
	}
	got, err := e.m.j.Exit(e.Meta.ID)
	if err != nil {
		return got, fmt.Errorf("the end of %s cannot be read: %w", e.Meta.ID, err)
	}
	return got, nil
}

// State is the execution as List tells it.
func (e *Exec) State() guest.ExecState {
	st := guest.ExecState{ID: e.Meta.ID, Session: e.Meta.Session, Step: e.Meta.Step}
	for _, a := range e.Meta.Argv {
		st.Argv = append(st.Argv, string(a))
	}
	e.mu.Lock()
	st.Running, st.Stdout, st.Stderr = !e.ended, e.kept[0], e.kept[1]
	e.mu.Unlock()
	if !st.Running {
		x, err := e.Exit()
		if err != nil {
			x = guest.Exit{Code: -1, Unknown: true}
		}
		st.Exit = x
	}
	return st
}

func (e *Exec) wait(ctx context.Context, done func() bool) error {
	for {
		e.mu.Lock()
		ok, ch := done(), e.changed
		e.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *Exec) waitStarted(ctx context.Context) error {
	return e.wait(ctx, func() bool { return e.started || e.ended })
}

// waitEmpty returns once no process is left and the end is known to Follow and List.
func (e *Exec) waitEmpty(ctx context.Context) error {
	return e.wait(ctx, func() bool { return e.empty && e.ended })
}

func (e *Exec) waitGone(ctx context.Context) error {
	return e.wait(ctx, func() bool { return e.gone })
}

// Stdin hands bytes on and waits while too much is under way.
func (e *Exec) Stdin(ctx context.Context, p []byte) error {
	err := e.wait(ctx, func() bool { return e.ended || e.shim == nil || e.sent-e.put < stdinAhead })
	if err != nil {
		return err
	}
	e.mu.Lock()
	c := e.shim
	if e.ended {
		c = nil
	}
	if c != nil {
		e.sent += int64(len(p))
	}
	e.mu.Unlock()
	if c == nil {
		return nil // nobody reads it any more
	}
	return c.f.SendRaw(shim.FrStdin, p)
}

// CloseStdin ends the input.
func (e *Exec) CloseStdin() error {
	if c := e.held(); c != nil {
		return c.f.Send(shim.FrCloseStdin, nil)
	}
	return nil
}

// Steer signals or resizes a running execution.
func (e *Exec) Steer(s shim.Steer) error {
	c := e.held()
	if c == nil || e.Ended() {
		return errors.New("the execution has ended")
	}
	return c.f.Send(shim.FrSteer, s)
}
