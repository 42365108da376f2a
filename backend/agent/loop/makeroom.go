package loop

import (
	"context"
	"errors"
	"slices"
	"strings"

	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

const (
	maxKeptText    = 24 << 10 // bytes of what we keep
	leastKeptText  = 1500
	maxSummary     = 8 << 10
	maxHead        = 56 << 10 // bytes of both as JSON
	summaryOutput  = 4096     // tokens
	summaryTries   = 2
	purposeSummary = "summary"
)

// makeRoom takes the beginning out of a conversation: a summary of the model and what
// is kept of it by us stand in its place. It reports false where that would not help.
func (t *turn) makeRoom(ctx context.Context, client model.Client, cfg model.Config, r *model.Request, v view, before, output int) (bool, error) {
	budget := t.budget(cfg)
	bytes := func(tokens int) int { return int(float64(tokens*bytesPerToken) / t.dense) }
	free := max(0, budget-int(float64(tokens(sizeOfRest(r)))*t.dense))
	n := t.conv.cut(bytes(min(budget*tailShare/100, free*4/10)))
	if n == 0 {
		return false, nil
	}
	room := min(maxKeptText, max(leastKeptText, bytes(free/5)))
	through := t.conv.entries[n-1].at
	e := &event.ContextCompacted{Turn: t.room.Turn(), Through: through, Before: int64(before), Reason: "budget", Kept: t.conv.facts.kept(room, through)}
	if t.tooLong > 0 {
		e.Reason = "too_long"
	}
	// Whether it is worth it is known before the summary is paid for.
	after := func() int { return t.whole(t.without(n, e, r, v)) }
	if saved := before - after() - tokens(maxSummary/4); saved < budget/10 && before <= budget || saved <= 0 {
		return false, nil
	}
	summary, err := t.summary(ctx, client, cfg, r, v, n, min(output, summaryOutput))
	if err != nil {
		return false, err
	}
	e.Summary = cutMiddle(clean(summary), min(maxSummary, bytes(free/10)))
	for raw, err := marshal(e); err == nil && len(raw) > maxHead && room > leastKeptText; raw, err = marshal(e) {
		room = room * 3 / 4
		e.Kept = t.conv.facts.kept(room, through)
	}
	e.After = int64(after())
	return true, t.room.Record(ctx, e)
}

// without is a request as it will be without its first n entries.
func (t *turn) without(n int, head *event.ContextCompacted, r *model.Request, v view) *model.Request {
	c := *t.conv
	c.head, c.entries = head, slices.Clone(c.entries[n:])
	out := *r
	out.Messages = c.messages(v, t.pics)
	return &out
}

// cut says how many entries go so that at most so many bytes stay at the end. The newest
// answer and what follows it always stay; an answer is never parted from its results.
func (c *conversation) cut(most int) int {
	i, size := len(c.entries), 0
	newest := false
	for _, w := range c.waiting {
		size += len(w.said)
	}
	for i > 0 {
		e := c.entries[i-1]
		size += len(e.said)
		if e.ans != nil {
			for _, p := range e.ans.parts {
				size += len(p.Text) + len(p.Args) + len(p.Opaque) + 2*partOverhead
			}
			for _, r := range e.ans.results {
				size += len(r.Text) + 2*partOverhead
			}
		}
		if size > most && newest {
			break
		}
		newest = newest || e.ans != nil
		i--
	}
	// What is over with the same event goes or stays together.
	for i > 0 && i < len(c.entries) && c.entries[i-1].at >= c.entries[i].at {
		i--
	}
	return i
}

// summary asks the model what it needs to know of what will be taken out. That it says
// nothing is no failure: what counts is kept beside it.
func (t *turn) summary(ctx context.Context, client model.Client, cfg model.Config, r *model.Request, v view, n, output int) (string, error) {
	ask := *r
	ask.Quiet, ask.MaxOutput = true, output
	budget := t.budget(cfg)
	with := func(ms []model.Message) []model.Message {
		w := &writer{out: slices.Clone(ms)}
		if k := len(w.out); k > 0 {
			w.out[k-1].Parts = slices.Clone(w.out[k-1].Parts)
		}
		w.user(words["summary"])
		return w.out
	}
	// All of it begins as the last request did, so that a server's cache is good for it.
	ask.Messages = with(r.Messages)
	if t.tooLong > 0 || t.estimate(r, cfg)+tokens(len(words["summary"]))+partOverhead > budget {
		c := *t.conv
		c.entries, c.waiting = slices.Clone(c.entries[:n]), nil
		fits := false
		for _, cut := range []int{2 << 10, 500, 120} {
			ask.Messages = with(c.messages(view{textOnly: true, results: cut, words: cut, args: cut}, t.pics))
			if fits = t.whole(&ask) <= budget*8/10; fits {
				break
			}
		}
		if !fits {
			return "", nil
		}
	}
	q := &query{client: client, cfg: cfg, request: &ask, purpose: purposeSummary, tries: summaryTries}
	err := t.query(ctx, q)
	var e *model.Error
	switch {
	case err == nil:
		return strings.TrimSpace(q.text), nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.As(err, &e):
		return "", nil
	}
	return "", err
}
