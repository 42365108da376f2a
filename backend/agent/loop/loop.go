// Package loop is the agent that asks a language model what to do, does it, tells the
// model what came of it, and goes on until the model has nothing more to do.
//
// Nothing is kept in memory alone: the conversation is folded from the session's log
// before each answer, so that a later core goes on with the same turn where this one
// ended. An answer is in the log before any of its calls runs; each of its calls becomes
// at most one step, and has exactly one result before the model is asked again.
package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/model"
	"glasshouse/backend/tool"
)

// Models gives what a session's model is asked with.
type Models interface {
	// Open finds a model by the name a person gave it; "" is the usual one.
	Open(ctx context.Context, name string) (model.Client, model.Config, error)
}

// Config of the agent; zero values are defaults.
type Config struct {
	Models Models
	// Calls is how many calls a turn may make before the person is asked; 0 = 100.
	Calls int
	// Retry is how failed attempts are repeated; its Client and Notify are set here.
	Retry model.Retry
	Now   func() time.Time
}

const usualCalls = 100

// Loop is the agent.
type Loop struct {
	cfg  Config
	room agent.Room
	own  *tool.Registry // the loop's own tools
}

var _ agent.Agent = (*Loop)(nil)

// New returns an agent for one turn in a room.
func New(cfg Config, room agent.Room) agent.Agent {
	if cfg.Calls <= 0 {
		cfg.Calls = usualCalls
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	own, err := tool.NewRegistry(planTool(), checksTool())
	if err != nil {
		panic(err) // our own schema
	}
	return &Loop{cfg: cfg, room: room, own: own}
}

// Name of the agent kind.
func (*Loop) Name() string { return "model" }

// Turn works until the model has nothing more to do, or goes on with a turn that an
// earlier core worked on: what was asked is in the log.
func (l *Loop) Turn(ctx context.Context, _ agent.Work, _ string) error {
	t := &turn{l: l, room: l.room, conv: newConversation(l.room.Turn(), l.room.ReadBlob), ceiling: map[string]int{}, dense: 1}
	err := t.run(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// turn is one exchange under way. It belongs to one goroutine.
type turn struct {
	l       *Loop
	room    agent.Room
	conv    *conversation
	fresh   string // the answer of this very run whose calls did not run yet
	agents  string // what AGENTS.md says
	agented bool
	seen    map[string][]byte // pictures of the last request
	pics    *pictures
	ceiling map[string]int // tokens by model, where its server said that more is too much
	tooLong int            // how often it said so since the last answer
	refused *model.Error   // the last time
	rooms   int            // how often room was made since the last answer
	dense   float64        // tokens for each that our guess counts
	lost    lost           // of the answer that is being asked for
}

func (t *turn) run(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.conv.refresh(ctx, t.room.Fold); err != nil {
			return err
		}
		if why := t.conv.now.stopped; why != "" {
			return &agent.Stopped{Reason: why}
		}
		if open := t.conv.open(); len(open) > 0 {
			a := open[0]
			do := t.settle
			if t.may(a) {
				do = t.work
			}
			t.fresh = ""
			if err := do(ctx, a); err != nil {
				return err
			}
			continue
		}
		done, err := t.done()
		if err != nil || done {
			return err
		}
		if err := t.ask(ctx); err != nil {
			return err
		}
	}
}

// may reports whether an answer's calls may be run: it is new, or nothing but a question
// about it was recorded after it.
func (t *turn) may(a *answer) bool {
	if a.id == t.fresh {
		return true
	}
	if a.turn != t.room.Turn() || !t.conv.now.halted || a != t.conv.newest() {
		return false
	}
	for _, c := range a.calls() {
		_, began := t.conv.keys[c.Key]
		if _, checked := t.conv.keys[checkKey(c.Key, 0)]; began || checked {
			return false
		}
	}
	return true
}

const (
	mostCut   = 3 // answers in a row that may be cut at their length
	mostEmpty = 1 // that may be empty
	mostIdle  = 5 // that may be one or the other
)

// done reports whether the turn is: its newest answer wants nothing more, and the
// person said nothing since.
func (t *turn) done() (bool, error) {
	n := len(t.conv.entries)
	if len(t.conv.waiting) > 0 || n == 0 {
		return false, nil
	}
	a := t.conv.entries[n-1].ans
	if a == nil || a.turn != t.room.Turn() || len(a.calls()) > 0 {
		return false, nil
	}
	idle := t.conv.trailing(func(a *answer) bool { return a.stop == model.StopLength || a.empty() })
	switch {
	case a.stop == model.StopRefused:
		return false, refusedAnswer(a)
	case idle > mostIdle:
		return false, domain.E(domain.CodeUnavailable, fmt.Sprintf("The model %s gave %d answers in a row that were empty or cut", a.model, idle), "go on, say more exactly what to do, or choose another model", nil)
	case a.empty() && a.stop != model.StopLength:
		if t.conv.trailing((*answer).empty) > mostEmpty {
			return false, domain.E(domain.CodeUnavailable, fmt.Sprintf("The model %s answered with nothing, twice", a.model), "go on, say more exactly what to do, or choose another model", nil)
		}
		return false, nil
	case a.stop == model.StopLength:
		if t.conv.trailing(func(a *answer) bool { return a.stop == model.StopLength }) > mostCut {
			return false, domain.E(domain.CodeUnavailable, fmt.Sprintf("The answers of the model %s were cut at the limit of their length, %d times in a row", a.model, mostCut+1),
				"raise 'max_output' of the model in its settings, or ask for less at a time", nil)
		}
		return false, nil
	}
	return true, nil
}

// ask gets one answer of the model, or makes room for it.
func (t *turn) ask(ctx context.Context) error {
	v, err := t.room.Session(ctx)
	if err != nil {
		return err
	}
	client, cfg, err := t.l.cfg.Models.Open(ctx, v.Model)
	if err != nil {
		return notOpened(v.Model, err)
	}
	p, err := t.room.Project()
	if err != nil {
		return err
	}
	if err := t.reached(v, cfg); err != nil {
		return err
	}
	if err := t.readAgents(ctx, cfg); err != nil {
		return err
	}
	vw := view{textOnly: cfg.TextOnly}
	t.pics = t.pictures(vw)
	r := &model.Request{System: system(p, v, t.agents), Tools: offered(t.room.Tools(), v.Mode, len(v.Checks) > 0), Messages: t.conv.messages(vw, t.pics), Bytes: t.pics.bytes}
	budget := t.budget(cfg)
	before := t.estimate(r, cfg)
	if why := t.tooDear(v, cfg, min(before, budget)); why != "" {
		return &agent.Stopped{Reason: why} // nor is anybody asked whether to go on
	}
	if asked, err := t.near(ctx, v); err != nil || asked {
		return err // the session may be another after the answer to a question
	}
	if t.full(r, before, budget) && t.rooms < mostRooms {
		if made, err := t.makeRoom(ctx, client, cfg, r, vw, before, t.mostOutput(v, cfg, before)); err != nil || made {
			t.rooms++
			return err
		}
	}
	shortened, err := t.fit(r, vw, cfg, budget)
	if err != nil {
		return err
	}
	r.MaxOutput = t.mostOutput(v, cfg, t.estimate(r, cfg))
	q := &query{client: client, cfg: cfg, request: r, shortened: shortened}
	err = t.query(ctx, q)
	var e *model.Error
	switch {
	case err == nil:
		t.fresh, t.tooLong, t.refused, t.rooms = q.id, 0, nil, 0
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &e) && e.Kind == model.ErrTooLong && t.tooLong < mostTooLong:
		t.tooLong, t.refused = t.tooLong+1, e
		t.ceiling[cfg.Name] = min(budget, t.estimate(r, cfg)) * 7 / 10
		return nil
	}
	return failed(cfg, err)
}

// mostTooLong is how often a conversation is made shorter because its server says that
// it is too long.
const mostTooLong = 3

// mostRooms is how often room may be made for one answer.
const mostRooms = mostTooLong + 2

func (t *turn) readAgents(ctx context.Context, cfg model.Config) error {
	if !t.agented {
		raw, err := t.room.ReadFile(ctx, "AGENTS.md", maxAgents)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// One that is missing or cannot be read is as good as none.
		t.agents, t.agented = agentsText(raw), true
	}
	// It may take a tenth of what a small model can read.
	if most := t.budget(cfg) * bytesPerToken / 10; len(t.agents) > most {
		t.agents = cutMiddle(t.agents, max(most, 200))
	}
	return nil
}
