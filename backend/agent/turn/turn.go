// Package turn lets agents work: it starts a turn, holds it while it runs, stops it
// when the person says so, and after a restart goes on with those whose agent keeps
// its conversation in the log.
package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
)

// Spec says which agent is to work.
type Spec struct {
	Kind  string // "playbook", "model"
	Input string // of a playbook: its text
	Model string // of a model agent: its model's name; filled in from the session at Start
}

// Config of a Service.
type Config struct {
	Sessions *session.Service
	Project  func(id domain.ProjectID) (domain.Project, error)
	Tools    func() []tool.Tool
	Blobs    Blobs
	// Make makes the agent for a turn; r is nil where only the spec is to be checked. An
	// error means that there can be no such turn.
	Make func(ctx context.Context, s Spec, r agent.Room) (agent.Agent, error)
	// ReadFile reads a file of a project's workspace, starting its machine where needed.
	ReadFile func(ctx context.Context, p domain.Project, path string, limit int64) ([]byte, error)
	Log      *slog.Logger
}

// Blobs keeps artefacts.
type Blobs interface {
	event.BlobStore
	session.BlobReader
}

// Resumes reports whether agents of a kind go on with a turn that an earlier core left.
func Resumes(kind string) bool { return kind == "model" }

// Service runs turns. It may be used from any goroutine.
type Service struct {
	cfg   Config
	ctx   context.Context
	leave context.CancelCauseFunc
	wg    sync.WaitGroup

	mu      sync.Mutex
	running map[domain.SessionID]*running
}

// running is one turn under way.
type running struct {
	ctx    context.Context
	stop   context.CancelCauseFunc
	before *running      // the one whose place it takes, which may need a moment to end
	done   chan struct{} // closed when its end is recorded, or the core leaves
}

// enter takes a session's place before its turn is recorded, so that a stop that comes
// right after the record finds it.
func (s *Service) enter(id domain.SessionID) *running {
	r := &running{done: make(chan struct{})}
	r.ctx, r.stop = context.WithCancelCause(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.before = s.running[id]
	s.running[id] = r
	return r
}

// exit gives it up again; what it took the place of and still runs has it back.
func (s *Service) exit(id domain.SessionID, r *running) {
	r.stop(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(r.done)
	if s.running[id] != r {
		return
	}
	delete(s.running, id)
	if b := r.before; b != nil && !b.over() {
		s.running[id] = b
	}
}

// wait returns when what r took the place of is over.
func (s *Service) wait(r *running) {
	s.mu.Lock()
	b := r.before
	s.mu.Unlock()
	if b == nil {
		return
	}
	<-b.done // its end is recorded; its goroutine may need a moment more
	s.mu.Lock()
	r.before = nil
	s.mu.Unlock()
}

// cancel stops what runs in a session. The function it returns waits for the end of
// that; nil = nothing runs.
func (s *Service) cancel(id domain.SessionID) func(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*running
	for r := s.running[id]; r != nil; r = r.before {
		r.stop(session.ErrCancelled)
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context) error {
		for _, r := range all {
			select {
			case <-r.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
}

func (r *running) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// New returns a service that runs nothing yet.
func New(cfg Config) *Service {
	ctx, leave := context.WithCancelCause(context.Background())
	return &Service{cfg: cfg, ctx: ctx, leave: leave, running: map[domain.SessionID]*running{}}
}

// Check reports whether an agent can be made of a spec.
func (s *Service) Check(ctx context.Context, spec Spec) error {
	_, err := s.cfg.Make(ctx, spec, nil)
	return err
}

// Start begins a turn; it goes on by itself.
func (s *Service) Start(ctx context.Context, id domain.SessionID, spec Spec, r session.TurnRequest) (domain.TurnID, error) {
	if r.GoOn && !Resumes(spec.Kind) {
		return "", &domain.Error{Code: domain.CodeInvalid, Pointer: "/go_on", What: "a " + spec.Kind + " cannot go on where it ended", Hint: "start it again"}
	}
	if Resumes(spec.Kind) && !r.GoOn && strings.TrimSpace(r.Prompt) == "" {
		return "", &domain.Error{Code: domain.CodeInvalid, Pointer: "/prompt", What: "there is nothing to do in the prompt", Hint: "say what the agent should do"}
	}
	rm := &room{s: s, id: id, actor: domain.Actor("agent:" + spec.Kind)}
	v, err := s.cfg.Sessions.Get(ctx, id)
	if err != nil {
		return "", err
	}
	if r.GoOn {
		if err := s.began(ctx, id, spec.Kind); err != nil {
			return "", err
		}
	}
	spec.Model = v.Model
	ag, err := s.cfg.Make(ctx, spec, rm)
	if err != nil {
		return "", err
	}
	r.Agent = spec.Kind
	place := s.enter(id)
	if rm.turn, err = s.cfg.Sessions.StartTurn(ctx, id, r); err != nil {
		s.exit(id, place)
		return "", err
	}
	s.run(place, rm, ag, r.Prompt)
	return rm.turn, nil
}

// errBegan ends the look for a turn at the first.
var errBegan = errors.New("a turn began")

// began says what to do instead where no agent of a kind has worked in a session: it would
// be asked to go on with nothing.
func (s *Service) began(ctx context.Context, id domain.SessionID, kind string) error {
	err := s.cfg.Sessions.Fold(ctx, id, 0, func(e event.Envelope) error {
		if e.Type != "turn.started" {
			return nil
		}
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		if t, is := p.(*event.TurnStarted); is && t.Agent == kind {
			return errBegan
		}
		return nil
	})
	switch {
	case errors.Is(err, errBegan):
		return nil
	case err != nil:
		return err
	}
	return domain.E(domain.CodeConflict, "no "+kind+" has worked in this session: there is nothing to go on with",
		fmt.Sprintf("say what it should do: glasshouse run --session %s 'what to do'", id), nil)
}

// Resume goes on with the turns that an earlier core left. One that was taken up
// several times without getting anywhere ends: it may be what ends the core.
func (s *Service) Resume(ctx context.Context) {
	for _, t := range s.cfg.Sessions.Interrupted(ctx) {
		rm := &room{s: s, id: t.Session, turn: t.Turn, actor: domain.Actor("agent:" + t.Agent)}
		giveUp := func(why string) {
			if _, err := s.cfg.Sessions.EndTurn(ctx, t.Session, t.Turn, "interrupted", why, "host"); err != nil {
				s.cfg.Log.Error("a turn could not be ended", "turn", t.Turn, "err", err)
			}
		}
		if t.Tries >= maxTries {
			giveUp(fmt.Sprintf("Glasshouse ended while the turn was running, and %d times more before its agent got anywhere; its steps are kept", maxTries))
			continue
		}
		var ag agent.Agent
		v, err := s.cfg.Sessions.Get(ctx, t.Session)
		if err == nil {
			ag, err = s.cfg.Make(ctx, Spec{Kind: t.Agent, Model: v.Model}, rm)
		}
		if err == nil {
			err = s.cfg.Sessions.Record(ctx, t.Session, "host", &event.TurnResumed{Turn: t.Turn})
		}
		if err != nil {
			giveUp("Glasshouse ended while the turn was running, and its agent could not go on: " + err.Error())
			continue
		}
		s.run(s.enter(t.Session), rm, ag, t.Prompt)
	}
}

// maxTries is how often a turn is taken up again without an answer of its model.
const maxTries = 3

// run works on a turn to its recorded end, in the background.
func (s *Service) run(r *running, rm *room, ag agent.Agent, prompt string) {
	ctx := r.ctx
	s.wg.Go(func() {
		defer s.exit(rm.id, r)
		s.wait(r)
		err := work(ctx, ag, rm, prompt)
		if s.ctx.Err() != nil {
			return // the next core goes on with it, or ends it as interrupted
		}
		result, reason := outcome(ctx, err)
		if result == "cancelled" {
			// With what began while the others were being cancelled.
			_, err = s.cfg.Sessions.StopTurn(ctx, rm.id, rm.turn, reason, rm.actor)
		} else {
			_, err = s.cfg.Sessions.EndTurn(ctx, rm.id, rm.turn, result, reason, rm.actor)
		}
		if err != nil && domain.CodeOf(err) != domain.CodeConflict && s.ctx.Err() == nil {
			s.cfg.Log.Error("a turn's end could not be recorded", "turn", rm.turn, "err", err)
		}
	})
}

// work calls the agent; a panic of ours ends the turn, not the core.
func work(ctx context.Context, ag agent.Agent, rm *room, prompt string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the agent failed inside Glasshouse: %v", r)
		}
	}()
	return ag.Turn(ctx, rm, prompt)
}

func outcome(ctx context.Context, err error) (result, reason string) {
	var stopped *agent.Stopped
	switch {
	case errors.Is(context.Cause(ctx), session.ErrCancelled):
		return "cancelled", "it was stopped"
	case err == nil:
		return "", ""
	case errors.As(err, &stopped):
		return "stopped", stopped.Reason
	}
	return "failed", err.Error()
}

// Stop ends what a session does: its turn, if one runs, and all its steps. It returns
// once they ended.
func (s *Service) Stop(ctx context.Context, id domain.SessionID) error {
	wait := s.cancel(id)
	if err := s.cfg.Sessions.Cancel(ctx, id, ""); err != nil || wait == nil {
		return err
	}
	return wait(ctx)
}

// StopAll stops every turn and cancels every step.
func (s *Service) StopAll(ctx context.Context) error {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, id := range ids {
		s.cancel(id) // all at once, before anything is waited for
	}
	errs := []error{s.cfg.Sessions.CancelAll(ctx)}
	for _, id := range ids {
		errs = append(errs, s.Stop(ctx, id))
	}
	return errors.Join(errs...)
}

// End ends a session and what works in it; it returns once nothing does.
func (s *Service) End(ctx context.Context, id domain.SessionID, actor domain.Actor) error {
	if wait := s.cancel(id); wait != nil {
		if err := s.Stop(ctx, id); err != nil {
			return err
		}
	}
	err := s.cfg.Sessions.End(ctx, id, actor)
	if v, gerr := s.cfg.Sessions.Get(context.WithoutCancel(ctx), id); gerr != nil || v.State != domain.SessionEnded {
		return err
	}
	// A turn that began meanwhile ended with its session, and its agent does not know.
	if wait := s.cancel(id); wait != nil {
		err = errors.Join(err, wait(ctx))
	}
	return err
}

// Leave lets go of the turns that run; call it before the sessions leave.
func (s *Service) Leave() {
	s.leave(tool.ErrLeaving)
	s.wg.Wait()
}
