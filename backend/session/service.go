// Package session runs the work in a project: one actor per session owns its
// state, gives steps their numbers, has each tool call decided, asked about, run,
// ended and sealed, and records all of it before anyone sees it. What a session
// is can be folded from its events alone; after a crash Recover does so and
// finishes what was under way.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// Log is what sessions need of the event log.
type Log interface {
	Append(ctx context.Context, events ...event.New) ([]event.Envelope, error)
	Publish(events ...event.New) error
	Fold(ctx context.Context, f eventlog.Filter, fn func(event.Envelope) error) error
	event.BlobStore
}

// Ledger is what sessions need of the approvals.
type Ledger interface {
	Ask(ctx context.Context, r approval.Request) (approval.Approval, error)
	Wait(ctx context.Context, id domain.ApprovalID) (approval.Outcome, error)
	Pending(s approval.Scope) []approval.Approval
	Close(ctx context.Context, id domain.ApprovalID, why approval.State) (approval.Outcome, error)
	Cancel(ctx context.Context, s approval.Scope) (int, error)
	Match(q approval.Query) (approval.Grant, bool)
}

// Machines gives the guest of a project.
type Machines interface {
	// Ensure starts the machine when it is off.
	Ensure(ctx context.Context, p domain.Project) (guest.Guest, error)
	// Running gives the guest of a machine that runs; it starts nothing.
	Running(id domain.ProjectID) (guest.Guest, bool)
}

// Config of a Service; every edge is injected.
type Config struct {
	Log      Log
	Ledger   Ledger
	Machines Machines
	Project  func(id domain.ProjectID) (domain.Project, error)
	Tools    *tool.Registry
	// Decide is the policy in force for a project, and its version.
	Decide func(project domain.ProjectID, a policy.Action) (policy.Decision, string)
	// Browser gives a session's browser; nil = none.
	Browser func(s domain.Session, g guest.Guest) tool.BrowserProvider
	// CloseBrowser ends it.
	CloseBrowser func(id domain.SessionID)
	// Repair makes the repository of a project's workspace anew where it was destroyed,
	// and reports whether it had to; nil = nobody can.
	Repair func(ctx context.Context, p domain.Project, g guest.Guest) (bool, error)
	// Resumes says whether agents of a kind go on with a turn that an earlier core left;
	// nil = none does. The turns of others end as interrupted.
	Resumes func(agent string) bool
	// Refuse says why somebody's changing steps may not run now, whatever is allowed;
	// "" = they may. nil = they always may.
	Refuse func(actor domain.Actor) string
	// QuestionLife is how long a step's question waits; 0 = for ever.
	QuestionLife time.Duration
	// QuestionLifeNow, when set, is asked for it each time.
	QuestionLifeNow func() time.Duration
}

func (c *Config) questionLife() time.Duration {
	if c.QuestionLifeNow != nil {
		return c.QuestionLifeNow()
	}
	return c.QuestionLife
}

// errLeaving is the cause with which contexts end when the core goes: what runs
// in a guest goes on and is found again.
var errLeaving = tool.ErrLeaving

// ErrCancelled is the cause with which a person's cancel ends a step.
var ErrCancelled = errors.New("cancelled")

// Service holds the actors of all sessions.
type Service struct {
	cfg   Config
	ctx   context.Context
	leave context.CancelCauseFunc
	mu    sync.Mutex
	all   map[domain.SessionID]*actor
	// spaces are the projects' workspaces, which their sessions share.
	spaces map[domain.ProjectID]*workspace
	wg     sync.WaitGroup
}

// New returns a service without sessions; Recover loads them.
func New(cfg Config) *Service {
	ctx, leave := context.WithCancelCause(context.Background())
	return &Service{cfg: cfg, ctx: ctx, leave: leave, all: map[domain.SessionID]*actor{}, spaces: map[domain.ProjectID]*workspace{}}
}

// CreateRequest of a session.
type CreateRequest struct {
	Project domain.ProjectID
	Title   string
	Class   domain.Class
	Agent   string
	Mode    policy.Mode
	Model   string
	Checks  []event.Check
	Limits  Limits
	Actor   domain.Actor
}

// Limits of what a session may use; 0 = none.
type Limits struct {
	Nanos  int64 `json:"limit_nanos,omitempty"`  // billionths of a US dollar
	Tokens int64 `json:"limit_tokens,omitempty"` // read and written
}

// Create records a new session.
func (s *Service) Create(ctx context.Context, r CreateRequest) (domain.Session, error) {
	p, err := s.cfg.Project(r.Project)
	if err != nil {
		return domain.Session{}, err
	}
	switch r.Class {
	case "":
		r.Class = domain.ClassTask
	case domain.ClassEphemeral, domain.ClassTask, domain.ClassWorkspace:
	default:
		return domain.Session{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/class", What: fmt.Sprintf("there is no session class %q", r.Class), Hint: "use ephemeral, task or workspace"}
	}
	if err := errors.Join(checkMode(r.Mode), checkModel(r.Model)); err != nil {
		return domain.Session{}, err
	}
	if r.Limits.Nanos < 0 || r.Limits.Tokens < 0 {
		return domain.Session{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/limit", What: "a limit is below zero", Hint: "give a positive limit, or 0 for none"}
	}
	if len(r.Title) > 200 {
		return domain.Session{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/title", What: "the title is longer than 200 bytes", Hint: "shorten it"}
	}
	for i, c := range r.Checks {
		if (len(c.Argv) == 0) == (c.Code == "") || c.Name == "" {
			return domain.Session{}, &domain.Error{Code: domain.CodeInvalid, Pointer: fmt.Sprintf("/checks/%d", i), What: "a check needs a name and either argv or code", Hint: "give one of the two"}
		}
	}
	if r.Agent == "" {
		r.Agent = "manual"
	}
	d := domain.Session{ID: domain.SessionID(domain.NewID("s")), ProjectID: p.ID, Title: r.Title, Class: r.Class, Agent: r.Agent,
		State: domain.SessionIdle, CreatedAt: time.Now().UnixMilli()}
	a := newActor(s, d, r.Mode, r.Checks)
	a.model, a.limits = r.Model, r.Limits
	if _, err := s.cfg.Log.Append(ctx, a.event(r.Actor, "", &event.SessionCreated{Session: d, Mode: string(r.Mode), Model: r.Model, Checks: r.Checks,
		LimitNanos: r.Limits.Nanos, LimitTokens: r.Limits.Tokens})); err != nil {
		return domain.Session{}, err
	}
	if !s.add(a) {
		return domain.Session{}, errLeaving
	}
	return d, nil
}

// add sets an actor going; it reports false when the service is leaving.
func (s *Service) add(a *actor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.all[a.who.ID] = a
	s.wg.Go(a.loop)
	return true
}

func (s *Service) actor(id domain.SessionID) (*actor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.all[id]
	if a == nil {
		return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("there is no session %q", id), "list them with 'glasshouse session list'", nil)
	}
	return a, nil
}

// Get returns a session as it is now.
func (s *Service) Get(ctx context.Context, id domain.SessionID) (View, error) {
	a, err := s.actor(id)
	if err != nil {
		return View{}, err
	}
	var v View
	err = a.do(ctx, func() { v = a.view() })
	return v, err
}

// List returns the sessions of a project ("" = all), oldest first.
func (s *Service) List(ctx context.Context, project domain.ProjectID) []domain.Session {
	s.mu.Lock()
	var as []*actor
	for _, a := range s.all {
		if project == "" || a.who.ProjectID == project {
			as = append(as, a)
		}
	}
	s.mu.Unlock()
	var out []domain.Session
	for _, a := range as {
		_ = a.do(ctx, func() { out = append(out, a.d) })
	}
	sortSessions(out)
	return out
}

// Known reports whether a session that has not ended and (if given) a step of it
// exist in a project: what a guest claims is checked with it, and a rule for a
// session counts no longer than the session.
func (s *Service) Known(project domain.ProjectID, id domain.SessionID, step domain.StepID) (session, stepOK bool) {
	s.mu.Lock()
	a := s.all[id]
	s.mu.Unlock()
	if a == nil || a.who.ProjectID != project {
		return false, false
	}
	_ = a.do(s.ctx, func() { session, stepOK = a.d.State != domain.SessionEnded, a.knows(step) })
	return session, session && stepOK
}

// Call validates, records and decides a tool call and returns its step at once;
// the step goes on by itself. Invalid arguments make no step.
func (s *Service) Call(ctx context.Context, id domain.SessionID, c CallRequest) (*Step, error) {
	a, err := s.actor(id)
	if err != nil {
		return nil, err
	}
	return a.call(ctx, c)
}

// Step finds a step by id: one with something left to do as it is, one that is
// done as its events tell.
func (s *Service) Step(ctx context.Context, id domain.SessionID, step domain.StepID) (*Step, error) {
	a, err := s.actor(id)
	if err != nil {
		return nil, err
	}
	var st *Step
	var at span
	var done bool
	if err := a.do(ctx, func() { st = a.live[step]; at, done = a.past[step] }); err != nil {
		return nil, err
	}
	switch {
	case st != nil:
		return st, nil
	case done:
		return a.read(ctx, step, at)
	}
	return nil, noStep(id, step)
}

func noStep(id domain.SessionID, step domain.StepID) error {
	return domain.E(domain.CodeNotFound, fmt.Sprintf("session %s has no step %q", id, step), "list its events with 'glasshouse log --session'", nil)
}

// Cancel ends one step ("" = all of the session): running processes are killed
// with their children, open questions are closed as cancelled. It returns once the
// steps ended; they may still be sealed after that.
func (s *Service) Cancel(ctx context.Context, id domain.SessionID, step domain.StepID) error {
	a, err := s.actor(id)
	if err != nil {
		return err
	}
	var hit []*Step
	known := step == ""
	if err := a.do(ctx, func() {
		known = known || a.knows(step)
		hit = a.cancel(step)
	}); err != nil {
		return err
	}
	switch {
	case !known:
		return noStep(id, step)
	case step != "" && len(hit) == 0:
		return domain.E(domain.CodeConflict, "that step has ended already", "", nil)
	}
	return a.cancelled(ctx, hit)
}

// EndTurn ends it: the declared checks run as steps of the turn, unless the
// agent already says that it failed or was cancelled.
func (s *Service) EndTurn(ctx context.Context, id domain.SessionID, turn domain.TurnID, result, reason string, actor domain.Actor) (event.TurnEnded, error) {
	a, err := s.actor(id)
	if err != nil {
		return event.TurnEnded{}, err
	}
	return a.endTurn(ctx, turn, result, reason, actor)
}

// Say records a message.
func (s *Service) Say(ctx context.Context, id domain.SessionID, turn domain.TurnID, role, text string, actor domain.Actor, origin domain.Origin) error {
	a, err := s.actor(id)
	if err != nil {
		return err
	}
	if err := sayable("/text", "message", text); err != nil {
		return err
	}
	e := a.event(actor, "", &event.Message{Turn: turn, Role: role, Text: text})
	e.Origin = origin
	if derr := a.do(ctx, func() {
		if a.d.State == domain.SessionEnded && role == "person" {
			err = domain.E(domain.CodeConflict, "the session has ended; nobody reads the message", "start a session and say it there", nil)
			return
		}
		_, err = a.append(ctx, e)
	}); derr != nil {
		return derr
	}
	return err
}

// endTimeout bounds the end of what a session left running.
const endTimeout = 20 * time.Second

// End ends a session: no new step is taken, its steps are cancelled, and what they
// left running in the machine (background processes, its browser) is killed. A
// machine that is off is not started for that: nothing runs in it. The workspace,
// the home folder, checkpoints, events and artefacts stay with the project, whatever
// the session's class; the class says when a session is ended, not what an end
// takes away. Ending an ended session again only looks for what may still run.
func (s *Service) End(ctx context.Context, id domain.SessionID, actor domain.Actor) error {
	a, err := s.actor(id)
	if err != nil {
		return err
	}
	if err := a.do(ctx, func() { a.ending++ }); err != nil {
		return err
	}
	defer func() { _ = a.do(context.Background(), func() { a.ending-- }) }()
	if err := s.Cancel(ctx, id, ""); err != nil {
		return err
	}
	if s.cfg.CloseBrowser != nil {
		s.cfg.CloseBrowser(id)
	}
	swept := s.sweep(ctx, a)
	if err := a.end(ctx, actor); err != nil {
		return err
	}
	// What its background processes asked (a host) is nobody's question any more.
	if _, err := s.cfg.Ledger.Cancel(context.WithoutCancel(ctx), approval.Scope{Session: id}); err != nil {
		return err
	}
	if swept != nil {
		return domain.E(domain.CodeUnavailable, "the session has ended, but the machine does not say that its background processes did", "end it again, or stop the machine", swept)
	}
	return nil
}

// sweep kills what a session left running in its machine.
func (s *Service) sweep(ctx context.Context, a *actor) error {
	g, on := s.cfg.Machines.Running(a.who.ProjectID)
	if !on {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if err := g.Execs().EndSession(ctx, string(a.who.ID)); err != nil {
		if _, on := s.cfg.Machines.Running(a.who.ProjectID); !on {
			return nil // it went off meanwhile, and everything in it
		}
		return err
	}
	return nil
}

func (s *Service) actors() []*actor {
	s.mu.Lock()
	defer s.mu.Unlock()
	as := make([]*actor, 0, len(s.all))
	for _, a := range s.all {
		as = append(as, a)
	}
	return as
}

// Running counts steps that have not ended, by session.
func (s *Service) Running(ctx context.Context) map[domain.SessionID]int {
	out := map[domain.SessionID]int{}
	for _, a := range s.actors() {
		_ = a.do(ctx, func() {
			for _, st := range a.live {
				if !st.over() {
					out[a.who.ID]++
				}
			}
		})
	}
	return out
}

// Settle waits until every step there is now is done: sealed where it changes
// something.
func (s *Service) Settle(ctx context.Context) {
	for _, a := range s.actors() {
		var open []*Step
		_ = a.do(ctx, func() { open = a.steps() })
		for _, st := range open {
			select {
			case <-st.done:
			case <-ctx.Done():
				return
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// CancelAll cancels every step of every session.
func (s *Service) CancelAll(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for id := range s.Running(ctx) {
		wg.Go(func() {
			if err := s.Cancel(ctx, id, ""); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Leave ends the actors; steps that run in a guest go on there, and the next
// core's Recover joins them.
func (s *Service) Leave() {
	s.mu.Lock()
	s.leave(errLeaving)
	s.mu.Unlock()
	s.wg.Wait()
}
