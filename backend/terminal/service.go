// Package terminal keeps the terminals that a person opens in a project's machine.
// A terminal is an execution of the machine with a pseudo-terminal; it belongs to
// guestd's journal and not to a window, nor to this core: windows come and go,
// and a core that was restarted joins it again. It is no step: what is done in it
// is the person's, is in no event, and holds up nothing.
//
// Guarantees: the newest RingSize bytes of the output are at hand for any number of
// readers, each at its own offset; a slow reader misses what falls out of the ring
// and is told how much. Input is handed on in order and at most once; where it
// cannot be known whether it arrived, readers are told so. Every terminal.opened
// is followed by one terminal.closed, from a later core if need be.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/vm"
	"glasshouse/vm/guest"
)

// Limits.
const (
	RingSize   = 1 << 20  // output at hand
	MaxRunning = 16       // per project
	MaxInput   = 64 << 10 // bytes in one call
	maxWaiting = 256 << 10
	keepEnded  = 16 // per project, until they are closed

	// window is what guestd keeps for a core that comes back.
	window = 2 << 20
	grace  = 2 * time.Second
	// prefix of the ids: what has it in a machine's journal is a terminal's.
	prefix = "term"
)

// Machines is where terminals run; *machine.Fleet is one.
type Machines interface {
	Ensure(ctx context.Context, p domain.Project) (guest.Guest, error)
	Running(id domain.ProjectID) (guest.Guest, bool)
	State(id domain.ProjectID) vm.State
}

// Config of a Service.
type Config struct {
	Machines Machines
	Record   func(ctx context.Context, n event.New) error
}

// Service is the set of terminals. It is safe for concurrent use.
type Service struct {
	cfg    Config
	epoch  string
	first  string          // ids from here on are of this core
	ctx    context.Context // ends with the core
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	all      map[string]*Terminal
	starting map[domain.ProjectID]int
}

// New returns a service without terminals; see Recover.
func New(cfg Config) *Service {
	ctx, cancel := context.WithCancel(context.Background())
	return &Service{cfg: cfg, epoch: domain.NewID("e"), first: domain.NewID(prefix), ctx: ctx, cancel: cancel, all: map[string]*Terminal{}, starting: map[domain.ProjectID]int{}}
}

// OpenRequest asks for a terminal.
type OpenRequest struct {
	Session domain.SessionID // on whose card its connections ask; may be empty
	Argv    []string         // default: a login shell
	Size    guest.Winsize
	Actor   domain.Actor
}

// Size checks a size in cells.
func Size(rows, cols int) (guest.Winsize, error) {
	if rows < 1 || rows > 1000 || cols < 1 || cols > 2000 {
		return guest.Winsize{}, domain.E(domain.CodeInvalid, fmt.Sprintf("a terminal of %d rows and %d columns cannot be", rows, cols), "give 1 to 1000 rows and 1 to 2000 columns", nil)
	}
	return guest.Winsize{Rows: uint16(rows), Cols: uint16(cols)}, nil
}

// Open starts a terminal, and the machine where it is off.
func (s *Service) Open(ctx context.Context, p domain.Project, q OpenRequest) (*Terminal, error) {
	if len(q.Argv) == 0 {
		q.Argv = []string{"/bin/bash", "-l"}
	}
	// Before anything is recorded or a machine started.
	if q.Argv[0] == "" || slices.ContainsFunc(q.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return nil, &domain.Error{Code: domain.CodeInvalid, Pointer: "/command", What: "the command has no program, or a NUL byte in it", Hint: "give a program and its arguments, or nothing for a shell"}
	}
	if err := s.reserve(p.ID); err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			s.release(p.ID)
		}
	}()
	g, err := s.cfg.Machines.Ensure(ctx, p)
	if err != nil {
		return nil, err
	}
	t := s.terminal(domain.NewID(prefix), p.ID, titleOf(q.Argv))
	t.actor = q.Actor
	// The log first: a core that crashes here finds it there and asks the machine.
	err = s.cfg.Record(ctx, event.New{Stream: event.ProjectStream(p.ID), Origin: domain.OriginHost, Actor: q.Actor, ProjectID: p.ID,
		Payload: &event.TerminalOpened{Terminal: t.ID, Title: t.Title, Argv: cutArgv(q.Argv), Session: string(q.Session)}})
	if err != nil {
		return nil, err
	}
	spec := guest.ExecSpec{ID: t.ID, Session: string(q.Session), Argv: q.Argv, TTY: &q.Size, Stdin: true, OutputLimit: window, Grace: grace,
		Env: map[string]string{"COLORTERM": "truecolor"}}
	proc, err := g.Execs().Start(t.ctx, spec)
	if err != nil {
		// Whether it runs is not known; nobody would ever look at it.
		t.finish(guest.Exit{Code: -1, Unknown: true, StartError: err.Error()}, "")
		return nil, domain.E(domain.CodeUnavailable, "the terminal could not be started", "try again; if it stays so, stop the machine and start it", err)
	}
	if begun = s.begin(t, proc); !begun {
		return nil, errLeaving
	}
	return t, nil
}

var errLeaving = domain.E(domain.CodeUnavailable, "Glasshouse is shutting down", "start it again", nil)

func (s *Service) reserve(p domain.ProjectID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errLeaving
	}
	n := s.starting[p]
	for _, t := range s.all {
		if t.Project == p && !t.Ended() {
			n++
		}
	}
	if n >= MaxRunning {
		return domain.E(domain.CodeConflict, fmt.Sprintf("%d terminals are open in this project, the most there can be", n), "close one of them first", nil)
	}
	s.starting[p]++
	return nil
}

func (s *Service) release(p domain.ProjectID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started(p)
}

// started is called with s.mu held.
func (s *Service) started(p domain.ProjectID) {
	if s.starting[p]--; s.starting[p] == 0 {
		delete(s.starting, p)
	}
}

// begin sets a terminal going, whose reserved place it takes. proc is nil when it must be
// joined first, for which none was reserved.
func (s *Service) begin(t *Terminal, proc guest.Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	t.proc = proc // who opened it may set its size at once
	s.all[t.ID] = t
	if proc != nil {
		s.started(t.Project) // in the same moment: counted twice it would take another's place
	}
	s.trim(t.Project)
	s.wg.Go(func() { t.run(proc) })
	s.wg.Go(t.write)
	return true
}

// trim drops the oldest ended terminals of a project. s.mu is held.
func (s *Service) trim(p domain.ProjectID) {
	var ended []string
	for id, t := range s.all {
		if t.Project == p && t.Ended() {
			ended = append(ended, id)
		}
	}
	slices.Sort(ended)
	for _, id := range ended[:max(0, len(ended)-keepEnded)] {
		delete(s.all, id)
	}
}

// List returns a project's terminals, oldest first: those that run, and those that
// ended and were not closed yet.
func (s *Service) List(p domain.ProjectID) []*Terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Terminal
	for _, t := range s.all {
		if t.Project == p {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *Terminal) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Get finds a terminal.
func (s *Service) Get(id string) (*Terminal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.all[id]; t != nil {
		return t, nil
	}
	return nil, domain.E(domain.CodeNotFound, "there is no such terminal", "it was closed, or ended with an earlier run of Glasshouse; open another one", nil)
}

// Epoch names this run of the core: input that was sent to an earlier one may have
// arrived or not.
func (s *Service) Epoch() string { return s.epoch }

// Close ends a terminal with everything that runs in it and forgets it.
func (s *Service) Close(ctx context.Context, id string) error {
	t, err := s.Get(id)
	if err != nil {
		return err
	}
	if err := t.kill(ctx, "closed by the person"); err != nil {
		return domain.E(domain.CodeUnavailable, "the terminal could not be ended", "try again, or stop the machine", err)
	}
	s.mu.Lock()
	delete(s.all, id)
	s.mu.Unlock()
	return nil
}

// Drop forgets the terminals of a project that is deleted. Its machine is gone, and
// what ran in them with it: their ends are recorded still.
func (s *Service) Drop(p domain.ProjectID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.all {
		if t.Project == p {
			delete(s.all, id)
		}
	}
}

// EndAll ends every terminal, as a quit does, and returns when they have ended or
// ctx is done.
func (s *Service) EndAll(ctx context.Context, reason string) {
	s.mu.Lock()
	s.closed = true // no new ones
	all := make([]*Terminal, 0, len(s.all))
	for _, t := range s.all {
		all = append(all, t)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, t := range all {
		wg.Go(func() { _ = t.kill(ctx, reason) }) // the machine's end will end it
	}
	wg.Wait()
}

// Running counts the terminals in which something runs.
func (s *Service) Running() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if !t.Ended() {
			n++
		}
	}
	return n
}

// Leave lets go of all terminals; they go on in their machines.
func (s *Service) Leave() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// Log is what Recover reads.
type Log interface {
	Fold(ctx context.Context, f eventlog.Filter, fn func(event.Envelope) error) error
}

// Recover joins the terminals that an earlier core left, and ends in the machines
// what no terminal is told of. Call it once the machines that run were adopted.
func (s *Service) Recover(ctx context.Context, log Log, projects []domain.Project) error {
	open := map[string]*Terminal{}
	err := log.Fold(ctx, eventlog.Filter{Types: []event.Type{"terminal.opened", "terminal.closed"}}, func(e event.Envelope) error {
		v, err := event.Decode(e)
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case *event.TerminalOpened:
			t := s.terminal(v.Terminal, e.ProjectID, v.Title)
			t.actor = e.Actor
			open[v.Terminal] = t
		case *event.TerminalClosed:
			delete(open, v.Terminal)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range open {
		if slices.ContainsFunc(projects, func(p domain.Project) bool { return p.ID == t.Project }) {
			s.begin(t, nil)
		}
	}
	for _, p := range projects {
		if g, up := s.cfg.Machines.Running(p.ID); up {
			s.wg.Go(func() { s.sweep(g, open) })
		}
	}
	return nil
}

// sweep ends executions of terminals whose end was recorded while the machine
// could not be reached.
func (s *Service) sweep(g guest.Guest, open map[string]*Terminal) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	states, err := g.Execs().List(ctx)
	if err != nil {
		return // they are looked for again at the next start
	}
	for _, st := range states {
		s.mu.Lock()
		known := open[st.ID] != nil || s.all[st.ID] != nil
		s.mu.Unlock()
		if strings.HasPrefix(st.ID, prefix+"_") && st.ID < s.first && !known {
			s.discard(ctx, g, st.ID)
		}
	}
}

// discard ends what is left of an execution and takes it out of the journal.
func (s *Service) discard(ctx context.Context, g guest.Guest, id string) {
	if err := g.Execs().Kill(ctx, id, grace); err == nil || errors.Is(err, guest.ErrNoExec) {
		_ = g.Execs().Forget(ctx, id) // else it is swept at the next start
	}
}

// titleOf names a terminal by what runs in it.
func titleOf(argv []string) string {
	return oneLine(path.Base(argv[0]), 60)
}

func oneLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		s = string(r[:n]) + "…"
	}
	return s
}

// cutArgv bounds what the log keeps of a command.
func cutArgv(argv []string) []string {
	out := []string{}
	for _, a := range argv[:min(len(argv), 32)] {
		out = append(out, oneLine(a, 256))
	}
	return out
}
