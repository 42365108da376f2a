package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// Terminal is one terminal.
type Terminal struct {
	ID      string
	Project domain.ProjectID
	Title   string // what runs in it

	s     *Service
	actor domain.Actor
	ctx   context.Context
	done  chan struct{} // closed once it ended and that was recorded

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	out     ring
	notes   []Note
	proc    guest.Process // nil while it must be joined
	exit    *event.TerminalExit
	reason  string // of an end that was asked for
	queue   [][]byte
	waiting int              // bytes in queue
	seqs    map[string]int64 // the last number of each writer
	writers []string         // the oldest first
}

// Note is something a reader must be told, besides the output.
type Note struct {
	N    int
	Text string
}

func (s *Service) terminal(id string, p domain.ProjectID, title string) *Terminal {
	return &Terminal{ID: id, Project: p, Title: title, s: s, ctx: s.ctx, done: make(chan struct{}), changed: make(chan struct{}),
		out: ring{size: RingSize}, seqs: map[string]int64{}}
}

// poke is called with t.mu held.
func (t *Terminal) poke() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Ended reports whether it ended.
func (t *Terminal) Ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit != nil
}

// Exit says how it ended; nil while it runs.
func (t *Terminal) Exit() *event.TerminalExit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit
}

// Piece is what a reader gets: Lost bytes that are no longer kept, Data at Offset,
// Notes since the last piece, and at last Exit.
type Piece struct {
	Offset int64
	Lost   int64
	Data   []byte
	Notes  []string
	Exit   *event.TerminalExit
}

// Reader reads a terminal from an offset on. It belongs to one goroutine.
type Reader struct {
	t    *Terminal
	at   int64
	note int
	// End is how far the output had come when the reader was made.
	End int64
}

// Read makes a reader. An offset past the end means the end.
func (t *Terminal) Read(from int64) *Reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Reader{t: t, at: max(from, 0), End: t.out.end}
	if n := len(t.notes); n > 0 {
		r.note = t.notes[n-1].N
	}
	return r
}

// Next waits for the next piece, of at most n bytes. After the one with an Exit
// comes io.EOF; nil and no error mean that ctx is done.
func (r *Reader) Next(ctx context.Context, n int) (*Piece, error) {
	t := r.t
	for {
		t.mu.Lock()
		at, data := t.out.read(r.at, n)
		p := &Piece{Offset: at, Data: data}
		if len(data) > 0 && at > r.at {
			p.Lost = at - r.at
		}
		for _, x := range t.notes {
			if x.N > r.note {
				p.Notes, r.note = append(p.Notes, x.Text), x.N
			}
		}
		if len(data) == 0 {
			p.Exit = t.exit
		}
		ch := t.changed
		t.mu.Unlock()
		if len(data) > 0 {
			r.at = at + int64(len(data))
		}
		if len(data) > 0 || len(p.Notes) > 0 || p.Exit != nil {
			return p, nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return nil, nil
		case <-t.ctx.Done():
			return nil, io.EOF
		}
	}
}

// Input hands bytes to the program. They arrive in the order of the calls and at
// most once: a call that is repeated with the number it had is not handed on again.
func (t *Terminal) Input(writer string, seq int64, data []byte) error {
	if len(data) > MaxInput {
		return domain.E(domain.CodeTooLarge, fmt.Sprintf("%d bytes are too many for one call", len(data)), fmt.Sprintf("send at most %d at once", MaxInput), nil)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit != nil {
		return domain.E(domain.CodeConflict, "the terminal has ended", "open another one", nil)
	}
	last, known := t.seqs[writer]
	if seq > 0 && known {
		if seq <= last {
			return nil // it is there already
		}
		if seq > last+1 {
			return domain.E(domain.CodeConflict, fmt.Sprintf("input %d came before input %d", seq, last+1), "send what is missing first", nil)
		}
	}
	if t.waiting+len(data) > maxWaiting {
		return domain.E(domain.CodeUnavailable, fmt.Sprintf("the program does not read what is typed: %d bytes wait for it already", t.waiting), "wait until it reads, or close the terminal", nil)
	}
	if seq > 0 {
		if !known {
			t.writers = append(t.writers, writer)
			if len(t.writers) > 64 {
				delete(t.seqs, t.writers[0])
				t.writers = slices.Delete(t.writers, 0, 1)
			}
		}
		t.seqs[writer] = seq
	}
	if len(data) > 0 {
		t.queue = append(t.queue, data)
		t.waiting += len(data)
		t.poke()
	}
	return nil
}

// write hands the queue on, one piece after the other.
func (t *Terminal) write() {
	for {
		t.mu.Lock()
		p, ch, over := t.proc, t.changed, t.exit != nil
		var b []byte
		if p != nil && len(t.queue) > 0 {
			b = t.queue[0]
		}
		t.mu.Unlock()
		if over {
			return
		}
		if b == nil {
			select {
			case <-ch:
				continue
			case <-t.ctx.Done():
				return
			}
		}
		_, err := p.Write(b)
		t.mu.Lock()
		if len(t.queue) > 0 { // else it ended meanwhile
			t.queue = t.queue[1:]
			t.waiting -= len(b)
		}
		if err != nil && t.exit == nil && t.ctx.Err() == nil {
			// Part of it may be there: sent again, a command could run twice.
			t.tell("The connection to the machine was cut: what you typed last may not have arrived.")
		}
		t.mu.Unlock()
		if err != nil {
			select {
			case <-time.After(200 * time.Millisecond): // the reader finds out, and joins again
			case <-t.ctx.Done():
				return
			}
		}
	}
}

// tell is called with t.mu held.
func (t *Terminal) tell(text string) {
	n := 1
	if k := len(t.notes); k > 0 {
		n = t.notes[k-1].N + 1
	}
	t.notes = append(t.notes, Note{n, text})
	t.notes = t.notes[max(0, len(t.notes)-16):]
	t.poke()
}

// Resize sets the size in cells; the last one wins.
func (t *Terminal) Resize(w guest.Winsize) error {
	t.mu.Lock()
	p, over := t.proc, t.exit != nil
	t.mu.Unlock()
	switch {
	case over:
		return domain.E(domain.CodeConflict, "the terminal has ended", "open another one", nil)
	case p == nil:
		return domain.E(domain.CodeUnavailable, "the terminal is being joined again", "try again in a moment", nil)
	}
	if err := p.Resize(w); err != nil {
		return domain.E(domain.CodeUnavailable, "the machine does not take the terminal's size", "try again", err)
	}
	return nil
}

// run follows the output to the end, joining again where that is needed.
func (t *Terminal) run(p guest.Process) {
	for {
		if p == nil {
			var err error
			if p, err = t.join(); err != nil {
				if t.ctx.Err() == nil {
					t.finish(guest.Exit{Code: -1, Unknown: true}, "")
				}
				return
			}
		}
		t.mu.Lock()
		t.proc = p
		t.poke()
		t.mu.Unlock()
		x, err := t.follow(p)
		_ = p.Close()
		t.mu.Lock()
		t.proc = nil
		t.mu.Unlock()
		if t.ctx.Err() != nil {
			return // it goes on in the machine; the next core joins it
		}
		// A machine that does not answer may still have it.
		if err == nil && (!x.Unknown || t.s.cfg.Machines.State(t.Project) != vm.StateTrouble) {
			t.finish(x, "")
			return
		}
		p = nil
		select {
		case <-time.After(500 * time.Millisecond):
		case <-t.ctx.Done():
			return
		}
	}
}

// follow reads until the exit.
func (t *Terminal) follow(p guest.Process) (guest.Exit, error) {
	for {
		o, err := p.Next()
		if errors.Is(err, io.EOF) {
			return p.Exit(), nil
		}
		if err != nil {
			return guest.Exit{}, err
		}
		t.mu.Lock()
		t.out.add(o.Offset, o.Data)
		t.poke()
		t.mu.Unlock()
	}
}

// join finds the terminal in its machine. It waits for one that does not answer
// and starts none that is off: what ran there ended with it.
func (t *Terminal) join() (guest.Process, error) {
	for {
		if g, up := t.s.cfg.Machines.Running(t.Project); up {
			t.mu.Lock()
			from := t.out.end
			t.mu.Unlock()
			p, err := g.Execs().Terminal(t.ctx, t.ID, from)
			if err == nil || errors.Is(err, guest.ErrNoExec) {
				return p, err
			}
		}
		switch t.s.cfg.Machines.State(t.Project) {
		case vm.StateOff, vm.StateAbsent:
			return nil, guest.ErrGone
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-t.ctx.Done():
			return nil, t.ctx.Err()
		}
	}
}

// finish records the end.
func (t *Terminal) finish(x guest.Exit, reason string) {
	st := t.s.cfg.Machines.State(t.Project)
	t.mu.Lock()
	if t.reason != "" {
		reason = t.reason
	}
	if reason == "" && (st == vm.StateOff || st == vm.StateStopping || st == vm.StateAbsent) {
		reason = "the machine was stopped"
	}
	e := event.TerminalExit{Code: x.Code, Signal: oneLine(x.Signal, 20), Unknown: x.Unknown, Error: oneLine(x.StartError, 300), Reason: reason}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 30*time.Second)
	defer cancel()
	// An end that cannot be recorded is recorded by the next core, as not known.
	_ = t.s.cfg.Record(ctx, event.New{Stream: event.ProjectStream(t.Project), Origin: domain.OriginHost, Actor: t.actor, ProjectID: t.Project,
		Payload: &event.TerminalClosed{Terminal: t.ID, Title: t.Title, Exit: e}})
	if g, up := t.s.cfg.Machines.Running(t.Project); up {
		// What the shell left running has nobody any more who could see it.
		t.s.discard(ctx, g, t.ID)
	}
	t.mu.Lock()
	t.exit = &e
	t.queue, t.waiting = nil, 0
	t.poke()
	t.mu.Unlock()
	close(t.done)
}

// kill ends everything in the terminal and waits until that is recorded.
func (t *Terminal) kill(ctx context.Context, reason string) error {
	t.mu.Lock()
	over := t.exit != nil
	if t.reason == "" {
		t.reason = reason
	}
	t.mu.Unlock()
	if over {
		return nil
	}
	if g, up := t.s.cfg.Machines.Running(t.Project); up {
		kctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := g.Execs().Kill(kctx, t.ID, grace); err != nil && !errors.Is(err, guest.ErrNoExec) && !errors.Is(err, guest.ErrGone) {
			return err
		}
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.ctx.Done():
		return errLeaving
	}
}
