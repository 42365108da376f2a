package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
)

// TurnRequest begins an exchange.
type TurnRequest struct {
	Prompt string
	Agent  string
	GoOn   bool // without a new prompt
	Actor  domain.Actor
}

// OpenTurn is a turn that an earlier core left running and whose agent can go on with it.
type OpenTurn struct {
	Session domain.SessionID
	Turn    domain.TurnID
	Agent   string
	Prompt  string
	// Tries counts how often it was taken up again since its agent last got anywhere.
	Tries int
}

// turnState is what is known of a session's turn. An actor's is touched on its loop only.
type turnState struct {
	id     domain.TurnID
	agent  string
	prompt string
	wrapup bool // its checks run
	tries  int
	stop   *turnStop // it is being stopped
}

// StartTurn begins an exchange; one at a time.
func (s *Service) StartTurn(ctx context.Context, id domain.SessionID, r TurnRequest) (domain.TurnID, error) {
	a, err := s.actor(id)
	if err != nil {
		return "", err
	}
	if err := sayable("/prompt", "prompt", r.Prompt); err != nil {
		return "", err
	}
	return a.startTurn(ctx, r)
}

// maxSaid is how much may be said at once, in bytes as the log keeps it: a letter may
// be four of them, and a quotation mark two.
const maxSaid = 60 << 10

// sayable says of a text that is too long in words of who wrote it.
func sayable(pointer, name, text string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		return err
	}
	if b.Len() <= maxSaid {
		return nil
	}
	return &domain.Error{Code: domain.CodeTooLarge, Pointer: pointer, What: fmt.Sprintf("the %s takes %d KiB as it is kept, at most %d can be", name, (b.Len()+1023)>>10, maxSaid>>10),
		Hint: "shorten it, or put what is long into a file of the project and name that"}
}

func (a *actor) startTurn(ctx context.Context, r TurnRequest) (domain.TurnID, error) {
	var id domain.TurnID
	var err error
	if derr := a.do(ctx, func() {
		if a.d.State == domain.SessionEnded || a.ending > 0 {
			err = domain.E(domain.CodeConflict, "the session has ended", "start a new one", nil)
			return
		}
		if a.turn.id != "" {
			err = domain.E(domain.CodeConflict, "a turn is running in this session", "wait for its end, stop it, or leave it a message", nil)
			return
		}
		turn := domain.TurnID(domain.NewID("t"))
		started := &event.TurnStarted{Turn: turn, Prompt: r.Prompt, Agent: r.Agent, GoOn: r.GoOn}
		if err = a.move(ctx, domain.SessionRunning, "", r.Actor, a.event(r.Actor, "", started)); err == nil {
			a.turn, id = turnState{id: turn, agent: r.Agent, prompt: r.Prompt}, turn
		}
	}); derr != nil {
		return "", derr
	}
	return id, err
}

// Interrupted lists the turns that Recover left running for their agents to go on with.
func (s *Service) Interrupted(ctx context.Context) []OpenTurn {
	var out []OpenTurn
	for _, a := range s.actors() {
		_ = a.do(ctx, func() {
			if a.turn.id != "" {
				out = append(out, OpenTurn{a.who.ID, a.turn.id, a.turn.agent, a.turn.prompt, a.turn.tries})
			}
		})
	}
	slices.SortFunc(out, func(x, y OpenTurn) int { return slices.Compare([]byte(x.Turn), []byte(y.Turn)) })
	return out
}

// Turns counts the turns that run, by session.
func (s *Service) Turns(ctx context.Context) map[domain.SessionID]domain.TurnID {
	out := map[domain.SessionID]domain.TurnID{}
	for _, a := range s.actors() {
		_ = a.do(ctx, func() {
			if a.turn.id != "" {
				out[a.who.ID] = a.turn.id
			}
		})
	}
	return out
}

// Mode of a session now; a session that is not there has none.
func (s *Service) Mode(id domain.SessionID) (m policy.Mode) {
	if a, err := s.actor(id); err == nil {
		_ = a.do(s.ctx, func() { m = a.mode })
	}
	return m
}

// Change of a session's settings; what is nil stays.
type Change struct {
	Mode   *policy.Mode
	Model  *string
	Nanos  *int64
	Tokens *int64
}

// Change records new settings. They hold from the next call and the next answer on: a
// step that was allowed and has not started is judged again when its mode has become
// stricter.
func (s *Service) Change(ctx context.Context, id domain.SessionID, c Change, actor domain.Actor) error {
	a, err := s.actor(id)
	if err != nil {
		return err
	}
	if c.Mode != nil {
		if err := checkMode(*c.Mode); err != nil {
			return err
		}
	}
	if c.Model != nil {
		if err := checkModel(*c.Model); err != nil {
			return err
		}
	}
	for _, n := range []*int64{c.Nanos, c.Tokens} {
		if n != nil && *n < 0 {
			return &domain.Error{Code: domain.CodeInvalid, Pointer: "/limit", What: "a limit is below zero", Hint: "give a positive limit, or 0 for none"}
		}
	}
	if derr := a.do(ctx, func() {
		if a.d.State == domain.SessionEnded {
			err = domain.E(domain.CodeConflict, "the session has ended", "start a new one", nil)
			return
		}
		e := &event.SessionChanged{}
		if c.Mode != nil && *c.Mode != a.mode {
			m := string(*c.Mode)
			e.Mode = &m
		}
		if c.Model != nil && *c.Model != a.model {
			e.Model = c.Model
		}
		if c.Nanos != nil && *c.Nanos != a.limits.Nanos {
			e.LimitNanos = c.Nanos
		}
		if c.Tokens != nil && *c.Tokens != a.limits.Tokens {
			e.LimitTokens = c.Tokens
		}
		if *e == (event.SessionChanged{}) {
			return
		}
		if _, err = a.append(ctx, a.event(actor, "", e)); err == nil {
			a.changed(e)
		}
	}); derr != nil {
		return derr
	}
	return err
}

func (a *actor) changed(e *event.SessionChanged) {
	if e.Mode != nil {
		a.mode = policy.Mode(*e.Mode)
	}
	if e.Model != nil {
		a.model = *e.Model
	}
	if e.LimitNanos != nil {
		a.limits.Nanos = *e.LimitNanos
	}
	if e.LimitTokens != nil {
		a.limits.Tokens = *e.LimitTokens
	}
}

func checkMode(m policy.Mode) error {
	switch m {
	case "", policy.ModeAuto, policy.ModeAsk, policy.ModePlan, policy.ModeFull:
		return nil
	}
	return &domain.Error{Code: domain.CodeInvalid, Pointer: "/mode", What: fmt.Sprintf("there is no mode %q", m), Hint: "use plan, ask, auto or full"}
}

func checkModel(name string) error {
	if len(name) > 40 {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/model", What: "the model's name is longer than 40 bytes", Hint: "list the models with 'glasshouse model list'"}
	}
	return nil
}

// Record appends an agent's events to its session's stream, all or none.
func (s *Service) Record(ctx context.Context, id domain.SessionID, actor domain.Actor, ps ...event.Payload) error {
	a, err := s.actor(id)
	if err != nil {
		return err
	}
	_, err = a.append(ctx, a.agents(actor, ps)...)
	return err
}

// Publish tells an agent's transient event.
func (s *Service) Publish(id domain.SessionID, actor domain.Actor, p event.Payload) {
	if a, err := s.actor(id); err == nil {
		_ = s.cfg.Log.Publish(a.agents(actor, []event.Payload{p})...)
	}
}

func (a *actor) agents(actor domain.Actor, ps []event.Payload) []event.New {
	out := make([]event.New, len(ps))
	for i, p := range ps {
		out[i] = a.event(actor, "", p)
		out[i].Origin = domain.OriginAgent
	}
	return out
}

// Fold reads a session's events after an id, oldest first.
func (s *Service) Fold(ctx context.Context, id domain.SessionID, after int64, fn func(event.Envelope) error) error {
	return s.cfg.Log.Fold(ctx, eventlog.Filter{Session: id, AfterID: after}, fn)
}

// Ask puts a question of a session that belongs to no step, and waits for its end.
// One with the same digest that waits already is waited for instead. A context that
// ends for another reason than a core that leaves closes it as cancelled.
func (s *Service) Ask(ctx context.Context, id domain.SessionID, r approval.Request) (approval.Outcome, error) {
	a, err := s.actor(id)
	if err != nil {
		return approval.Outcome{}, err
	}
	r.Project, r.Session, r.Step = a.who.ProjectID, id, ""
	r.Expires = s.cfg.questionLife()
	var ask domain.ApprovalID
	for _, q := range s.cfg.Ledger.Pending(approval.Scope{Session: id}) {
		if q.Step == "" && q.Asked.Kind == r.Kind && q.Asked.Digest == r.Digest {
			ask = q.ID
		}
	}
	if ask == "" {
		ap, err := s.cfg.Ledger.Ask(ctx, r)
		if err != nil {
			return approval.Outcome{}, err
		}
		ask = ap.ID
	}
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.ctx, func() { stop(errLeaving) })()
	out, err := s.cfg.Ledger.Wait(wait, ask)
	if err == nil {
		return out, nil
	}
	if !errors.Is(context.Cause(wait), errLeaving) {
		if closed, cerr := s.cfg.Ledger.Close(context.WithoutCancel(ctx), ask, approval.Cancelled); cerr == nil {
			out = closed
		}
	}
	return out, cmp.Or(context.Cause(wait), err)
}

// agentKinds are the questions that an agent puts about its own turn.
var agentKinds = []string{"limit", "loop"}

// closeAgentQuestions ends what an agent asked that nobody waits for any more.
func (a *actor) closeAgentQuestions(ctx context.Context) error {
	for _, q := range a.s.cfg.Ledger.Pending(approval.Scope{Session: a.who.ID}) {
		if q.Step == "" && slices.Contains(agentKinds, q.Asked.Kind) {
			if _, err := a.s.cfg.Ledger.Close(context.WithoutCancel(ctx), q.ID, approval.Cancelled); err != nil && domain.CodeOf(err) != domain.CodeConflict {
				return err
			}
		}
	}
	return nil
}
