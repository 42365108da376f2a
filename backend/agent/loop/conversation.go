package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/tool"
)

// conversation is a session's log as a model's conversation. It is folded, never
// written: what is not in the log did not happen.
type conversation struct {
	turn domain.TurnID // the one that is worked on
	last int64         // newest event that is folded in
	read func(sha string, limit int64) ([]byte, error)

	head    *event.ContextCompacted // what stands in place of what came before
	entries []*entry
	waiting []*entry // of the person, and no answer knew of them yet
	// sinceHead are the answers since the conversation's beginning was last taken out.
	sinceHead int

	keys map[string]domain.StepID // of all calls that became steps
	// restores are the steps that put the workspace back, with their titles.
	restores map[domain.StepID]string
	answers  int         // of the session, also those about the conversation
	usage    model.Usage // of all of them, as servers counted
	tokens   int64       // the same, with our guess for those that did not, and for what was lost
	cost     int64       // nanos
	unknown  int         // answers whose cost is not known
	facts    facts
	now      thisTurn
	failed   []string // checks of a turn that failed, until it ends
}

// entry is what the person said, or an answer of the model with its results.
type entry struct {
	id   int64
	at   int64 // the event with which it is over: it is replaced with all up to that
	said string
	note bool // said by Glasshouse, not by the person
	ans  *answer
}

type answer struct {
	id      string
	turn    domain.TurnID
	model   string
	stop    model.Stop
	parts   []event.ModelPart
	context int64 // tokens of request and answer
	input   int64 // of the request
	cut     bool  // the request did not hold all of the conversation's words
	told    bool
	results []event.ToldResult
}

// calls that count: a refused answer asks for nothing.
func (a *answer) calls() (out []event.ModelPart) {
	if a.stop == model.StopRefused {
		return nil
	}
	for _, p := range a.parts {
		if p.Kind == string(model.KindCall) {
			out = append(out, p)
		}
	}
	return out
}

// empty reports whether it holds neither words nor calls.
func (a *answer) empty() bool {
	for _, p := range a.parts {
		if p.Kind == string(model.KindCall) || p.Kind == string(model.KindText) && strings.TrimSpace(p.Text) != "" {
			return false
		}
	}
	return true
}

func newConversation(turn domain.TurnID, read func(string, int64) ([]byte, error)) *conversation {
	return &conversation{turn: turn, read: read, keys: map[string]domain.StepID{}, restores: map[domain.StepID]string{}, facts: newFacts()}
}

// fold takes one more event. One that is not known or cannot be read is passed over: a
// newer Glasshouse may have written it.
func (c *conversation) fold(e event.Envelope) error {
	c.last = max(c.last, e.ID)
	p, err := event.Decode(e)
	if err != nil {
		return nil //nolint:nilerr // one event that cannot be read must not end the session's work
	}
	switch v := p.(type) {
	case *event.TurnStarted:
		c.now.begin(v.Turn == c.turn)
		c.failed = nil
		if v.Agent == "model" && strings.TrimSpace(v.Prompt) != "" {
			c.say(e.ID, v.Prompt)
		}
	case *event.Message:
		if v.Role == "person" && strings.TrimSpace(v.Text) != "" {
			c.say(e.ID, v.Text)
			c.now.spoke()
		}
		if v.Role == "host" {
			c.note(e.ID, v.Text)
		}
	case *event.CheckRan:
		if !v.OK {
			c.failed = append(c.failed, fmt.Sprintf("- %s: %s", line(v.Name, 100), line(v.Reason, 1000)))
		}
	case *event.TurnEnded:
		if len(c.failed) > 0 && c.newest() != nil {
			c.note(e.ID, words["checks"]+"\n"+strings.Join(c.failed, "\n"))
		}
		c.failed = nil
	case *event.ModelAnswered:
		c.answered(e.ID, v)
	case *event.ModelTold:
		c.told(e.ID, v)
	case *event.StepRequested:
		if v.Key != "" {
			c.keys[v.Key] = e.StepID
		}
		if v.Tool == tool.Restore {
			c.restores[e.StepID] = v.Title
		}
	case *event.StepEnded:
		if title, ok := c.restores[e.StepID]; ok && len(c.entries)+len(c.waiting) > 0 {
			c.note(e.ID, tool.RestoredText(title, v.Outcome))
		}
	case *event.StepSealed:
		if len(v.Changes) > 0 || v.More {
			c.now.edits++
		}
	case *event.ContextCompacted:
		c.compacted(v)
	case *event.ApprovalRequested:
		c.now.asked(v)
	case *event.ApprovalAnswered:
		if text := c.now.answered(v); text != "" {
			c.say(e.ID, text)
		}
	case *event.ApprovalClosed:
		c.now.closed(v)
	}
	c.facts.fold(e, p)
	return nil
}

func (c *conversation) say(id int64, text string) {
	c.waiting = append(c.waiting, &entry{id: id, at: id, said: strings.ToValidUTF8(text, "\uFFFD")})
}

// note is what Glasshouse says beside what the person does.
func (c *conversation) note(id int64, text string) {
	c.say(id, text)
	c.waiting[len(c.waiting)-1].note = true
}

// add puts an entry at the end; it is over no sooner than the one before it.
func (c *conversation) add(e *entry) {
	if n := len(c.entries); n > 0 {
		e.at = max(e.at, c.entries[n-1].at)
	}
	c.entries = append(c.entries, e)
}

func (c *conversation) answered(id int64, v *event.ModelAnswered) {
	c.answers = max(c.answers+1, v.Number)
	u := model.Usage(v.Usage)
	c.usage, c.cost = c.usage.Plus(u), c.cost+v.CostNanos
	c.tokens += max(u.Context(), v.Context) + v.Lost
	if !v.Priced {
		c.unknown++
	}
	if v.Purpose != "" {
		return
	}
	a := &answer{id: v.Answer, turn: v.Turn, model: v.Model, stop: model.Stop(v.Stop), parts: v.Parts, context: v.Context, input: u.Input + u.CacheRead + u.CacheWrite, cut: v.Shortened}
	if v.PartsBlob != nil {
		var parts []event.ModelPart
		if raw, err := c.read(v.PartsBlob.Sha256, maxKept); err == nil && json.Unmarshal(raw, &parts) == nil {
			a.parts = parts
		} else {
			a.parts = lostParts(a.parts)
		}
	}
	// What was said while the model wrote this comes after it.
	var later []*entry
	for _, w := range c.waiting {
		if v.Saw == 0 || w.id <= v.Saw {
			c.add(w)
		} else {
			later = append(later, w)
		}
	}
	c.waiting = later
	c.add(&entry{id: id, at: id, ans: a})
	c.sinceHead++
	c.now.calls()
}

// maxKept is how much of an answer or its results is read back from an artefact.
const maxKept = 64 << 20

// lostParts makes sendable what is left of an answer whose artefact is gone.
func lostParts(parts []event.ModelPart) []event.ModelPart {
	out := []event.ModelPart{{Kind: string(model.KindText), Text: "[most of this answer is lost: its artefact cannot be read]"}}
	for _, p := range parts {
		if p.Kind == string(model.KindCall) && !json.Valid([]byte(p.Args)) {
			raw, _ := json.Marshal(map[string]string{"lost": p.Args})
			p.Args = string(raw)
		}
		if p.Kind != string(model.KindThought) {
			out = append(out, p)
		}
	}
	return out
}

func (c *conversation) told(id int64, v *event.ModelTold) {
	for i := len(c.entries) - 1; i >= 0; i-- {
		e := c.entries[i]
		if e.ans == nil || e.ans.id != v.Answer {
			continue
		}
		if e.ans.told {
			return
		}
		e.ans.told, e.ans.results = true, v.Results
		if v.ResultsBlob != nil {
			var rs []event.ToldResult
			if raw, err := c.read(v.ResultsBlob.Sha256, maxKept); err == nil && json.Unmarshal(raw, &rs) == nil {
				e.ans.results = rs
			} else {
				for i := range e.ans.results {
					e.ans.results[i].Text += "\n[the rest of this result is lost: its artefact cannot be read]"
				}
			}
		}
		at := id
		for _, later := range c.entries[i:] {
			later.at = max(later.at, at)
			at = later.at
		}
		c.now.results(e.ans)
		return
	}
}

func (c *conversation) compacted(v *event.ContextCompacted) {
	c.head, c.sinceHead = v, 0
	n := 0
	for n < len(c.entries) && c.entries[n].at <= v.Through {
		n++
	}
	c.entries = append([]*entry(nil), c.entries[n:]...)
}

// open are the answers that have calls and no results yet, oldest first.
func (c *conversation) open() (out []*answer) {
	for _, e := range c.entries {
		if e.ans != nil && !e.ans.told && len(e.ans.calls()) > 0 {
			out = append(out, e.ans)
		}
	}
	return out
}

// newest is the newest answer; nil = none is left.
func (c *conversation) newest() *answer {
	for i := len(c.entries) - 1; i >= 0; i-- {
		if a := c.entries[i].ans; a != nil {
			return a
		}
	}
	return nil
}

// trailing counts the answers at the very end of the conversation, of this turn, for
// which is holds.
func (c *conversation) trailing(is func(*answer) bool) int {
	n := 0
	for i := len(c.entries) - 1; i >= 0 && len(c.waiting) == 0; i-- {
		a := c.entries[i].ans
		if a == nil || a.turn != c.turn || len(a.calls()) > 0 || !is(a) {
			break
		}
		n++
	}
	return n
}

// refresh folds what was recorded since.
func (c *conversation) refresh(ctx context.Context, fold func(context.Context, int64, func(event.Envelope) error) error) error {
	return fold(ctx, c.last, c.fold)
}
