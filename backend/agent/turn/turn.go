// Package turn lets agents work: it starts a turn, holds it while it runs, stops it
// when the person says so, and after a restart goes on with those whose agent keeps
// its conversation in the log.
package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when its end is recorded, or the core leaves
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
	spec.Model = v.Model
	ag, err := s.cfg.Make(ctx, spec, rm)
	if err != nil {
		return "", err
	}
	r.Agent = spec.Kind
	if rm.turn, err = s.cfg.Sessions.StartTurn(ctx, id, r); err != nil {
		return "", err
	}
	s.run(rm, ag, r.Prompt)
	return rm.turn, nil
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
		s.run(rm, ag, t.Prompt)
	}
}

// maxTries is how often a turn is taken up again without an answer of its model.
const maxTries = 3

// run works on a turn to its recorded end, in the background.
func (s *Service) run(rm *room, ag agent.Agent, prompt string) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	r := &running{cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	before := s.running[rm.id]
	s.running[rm.id] = r
	s.mu.Unlock()
	s.wg.Go(func() {
		defer func() {
			cancel(nil)
			s.mu.Lock()
			if s.running[rm.id] == r {
				delete(s.running, rm.id)
			}
			s.mu.Unlock()
			close(r.done)
		}()
		if before != nil {
			<-before.done // its end is recorded; its goroutine may need a moment more
		}
		err := work(ctx, ag, rm, prompt)
		if s.ctx.Err() != nil {
			return // the next core goes on with it, or ends it as interrupted
		}
		result, reason := outcome(ctx, err)
		if result == "cancelled" {
			// A step that began while the others were being cancelled.
			if err := s.cfg.Sessions.Cancel(context.WithoutCancel(ctx), rm.id, ""); err != nil {
				s.cfg.Log.Warn("steps of a stopped turn", "session", rm.id, "err", err)
			}
		}
		if _, err := s.cfg.Sessions.EndTurn(ctx, rm.id, rm.turn, result, reason, rm.actor); err != nil && domain.CodeOf(err) != domain.CodeConflict && s.ctx.Err() == nil {
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
	s.mu.Lock()
	r := s.running[id]
	s.mu.Unlock()
	if r != nil {
		r.cancel(session.ErrCancelled)
	}
	if err := s.cfg.Sessions.Cancel(ctx, id, ""); err != nil || r == nil {
		return err
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// StopAll stops every turn and cancels every step.
func (s *Service) StopAll(ctx context.Context) error {
	s.mu.Lock()
	var ids []domain.SessionID
	for id, r := range s.running {
		r.cancel(session.ErrCancelled)
		ids = append(ids, id)
	}
	s.mu.Unlock()
	errs := []error{s.cfg.Sessions.CancelAll(ctx)}
	for _, id := range ids {
		errs = append(errs, s.Stop(ctx, id))
	}
	return errors.Join(errs...)
}

// End ends a session and what works in it; it returns once nothing does.
func (s *Service) End(ctx context.Context, id domain.SessionID, actor domain.Actor) error {
	s.mu.Lock()
	r := s.running[id]
	s.mu.Unlock()
	if r != nil {
		if err := s.Stop(ctx, id); err != nil {
			return err
		}
	}
	err := s.cfg.Sessions.End(ctx, id, actor)
	if v, gerr := s.cfg.Sessions.Get(context.WithoutCancel(ctx), id); gerr != nil || v.State != domain.SessionEnded {
		return err
	}
	// A turn that began meanwhile ended with its session, and its agent does not know.
	s.mu.Lock()
	r = s.running[id]
	s.mu.Unlock()
	if r == nil {
		return err
	}
	r.cancel(session.ErrCancelled)
	select {
	case <-r.done:
		return err
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

// Leave lets go of the turns that run; call it before the sessions leave.
func (s *Service) Leave() {
	s.leave(tool.ErrLeaving)
	s.wg.Wait()
}
