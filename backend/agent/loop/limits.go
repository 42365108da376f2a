package loop

import (
	"context"
	"fmt"
	"strings"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/session"
)

const (
	askAt = 80 // percent of a limit at which the person is asked, once
	// leastOutput is what a request asks for at least: with less no answer says anything.
	leastOutput = 256
)

var choices = []event.Choice{{ID: goOn, Label: "Go on"}, {ID: stop, Label: "Stop"}}

func fact(name, value string) event.Field {
	return event.Field{Name: name, Value: value, Origin: domain.OriginHost}
}

// put asks the person whether to go on; everything but a yes ends the turn.
func (t *turn) put(ctx context.Context, q agent.Question) error {
	q.Choices, q.Free = choices, true
	r, err := t.room.Ask(ctx, q)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case r.State != "answered":
		return &agent.Stopped{Reason: unanswered(q.Title, r.State)}
	case r.Choice != goOn:
		return &agent.Stopped{Reason: stoppedBy(q.Title, r.Text)}
	}
	return nil
}

// callLimit asks when a turn makes more calls than it may.
func (t *turn) callLimit(ctx context.Context, n int) error {
	now := &t.conv.now
	most := t.l.cfg.Calls * (1 + now.more)
	if now.used+n <= most {
		return nil
	}
	return t.put(ctx, agent.Question{Kind: kindLimit, Key: fmt.Sprintf("calls:%d", most),
		Title:  fmt.Sprintf("The model made %d calls in this turn. May it make %d more?", now.used, t.l.cfg.Calls),
		Detail: []event.Field{fact(fieldCalls, fmt.Sprint(now.used)), fact("calls it wants to make now", fmt.Sprint(n))}})
}

// limit is one of a session's.
type limit struct {
	key, name   string
	used, most  int64
	show, exact func(int64) string
}

func (t *turn) limits(v session.View) (out []limit) {
	if v.Nanos > 0 {
		out = append(out, limit{"nanos", "what the session may cost", t.conv.cost + t.lost.nanos, v.Nanos, roughly, dollars})
	}
	if v.Tokens > 0 {
		n := func(n int64) string { return thousands(n) + " tokens" }
		out = append(out, limit{"tokens", "the session's tokens", t.conv.tokens + t.lost.tokens, v.Tokens, n, n})
	}
	return out
}

// reached keeps the session's limits before an answer.
func (t *turn) reached(v session.View, cfg model.Config) error {
	if v.Nanos > 0 && cfg.Price == nil {
		return &agent.Stopped{Reason: fmt.Sprintf("the session may cost at most %s, but no price is known for the model %s, so that cannot be kept; set the model's price in its settings, or take the limit away",
			dollars(v.Nanos), cfg.Name)}
	}
	for _, l := range t.limits(v) {
		if l.used >= l.most {
			return &agent.Stopped{Reason: fmt.Sprintf("the limit of %s is reached: %s of %s are used; raise it to go on", l.name, l.show(l.used), l.exact(l.most))}
		}
	}
	return nil
}

// near asks the person before a limit of the session is reached, once for each. It
// reports whether they were asked, and said to go on.
func (t *turn) near(ctx context.Context, v session.View) (asked bool, err error) {
	for _, l := range t.limits(v) {
		// 80 % without overflow.
		if l.used < l.most-l.most/100*(100-askAt) || t.conv.now.agreed[l.exact(l.most)] {
			continue
		}
		detail := []event.Field{fact(fieldLimit, l.exact(l.most)), fact("used", l.show(l.used)), fact("answers of models", fmt.Sprint(t.conv.answers))}
		if l.key == "nanos" && t.conv.unknown > 0 {
			detail = append(detail, fact("not counted", fmt.Sprintf("%s of models without a known price", plural(t.conv.unknown, "answer", "answers"))))
		}
		if err := t.put(ctx, agent.Question{Kind: kindLimit, Key: fmt.Sprintf("%s:%d", l.key, l.most),
			Title:  fmt.Sprintf("%d %% of the limit of %s is used: %s of %s. Go on?", percent(l.used, l.most), l.name, l.show(l.used), l.exact(l.most)),
			Detail: detail}); err != nil {
			return false, err
		}
		t.conv.now.agree(l.exact(l.most))
		return true, nil
	}
	return false, nil
}

// leastShare of what we guess a request to be is what it surely is, in percent: our
// guess is a low one of bytes in a token, and part of it may come cheaper.
const leastShare = 75

// tooDear says that reading a request and saying the least would go over a limit of the
// session; "" = it would not. A limit that is only looked at after an answer would be
// overshot by all of a long conversation, or by a summary of it.
func (t *turn) tooDear(v session.View, cfg model.Config, input int) string {
	input = input * leastShare / 100
	least := int64(least(cfg))
	for _, l := range t.limits(v) {
		takes := int64(input) + least
		if l.key == "nanos" {
			takes = min(cfg.Price.Cost(model.Usage{Input: int64(input), Output: least}), cfg.Price.Cost(model.Usage{CacheRead: int64(input), Output: least}))
		}
		if takes > l.most-l.used {
			return fmt.Sprintf("the next answer would go over the limit of %s: %s of %s are used, and to read the conversation and answer with a few words takes about %s; raise it to go on, or work in a new session",
				l.name, l.show(l.used), l.exact(l.most), l.show(takes))
		}
	}
	return ""
}

// least tokens that an answer is asked with.
func least(cfg model.Config) int { return min(leastOutput, cfg.OutputSize()) }

func percent(n, of int64) int64 { return int64(float64(n) / float64(of) * 100) }

// mostOutput is how long an answer may be, so that what is written does not go over a
// limit: tooDear has seen to it that the least fits. What is read may cost more than our
// guess, and by that much a limit can be overshot.
func (t *turn) mostOutput(v session.View, cfg model.Config, input int) int {
	n := float64(cfg.OutputSize())
	if v.Tokens > 0 {
		n = min(n, float64(v.Tokens-t.conv.tokens-t.lost.tokens-int64(input)))
	}
	if v.Nanos > 0 && cfg.Price != nil && cfg.Price.Output > 0 {
		left := v.Nanos - t.conv.cost - t.lost.nanos - cfg.Price.Cost(model.Usage{Input: int64(input)})
		n = min(n, float64(left)/(cfg.Price.Output*1000))
	}
	return max(int(n), least(cfg))
}

// lost is our guess of what attempts that broke off took, until it is recorded with the
// answer or its end.
type lost struct{ tokens, nanos int64 }

// attempts asks a model within the session's limits as they are: what an attempt took that
// broke off is gone, and the next one is not made where that leaves too little.
type attempts struct {
	model.Client
	t    *turn
	cfg  model.Config
	made int
}

func (a *attempts) Answer(ctx context.Context, r model.Request, each func(model.Delta)) (model.Answer, error) {
	if a.made++; a.made > 1 && a.t.lost != (lost{}) {
		v, err := a.t.room.Session(ctx)
		if err != nil {
			return model.Answer{}, err
		}
		if err := a.t.reached(v, a.cfg); err != nil {
			return model.Answer{}, err
		}
		input := min(a.t.estimate(&r, a.cfg), a.t.budget(a.cfg))
		if why := a.t.tooDear(v, a.cfg, input); why != "" {
			return model.Answer{}, &agent.Stopped{Reason: why}
		}
		r.MaxOutput = min(r.MaxOutput, a.t.mostOutput(v, a.cfg, input))
	}
	return a.Client.Answer(ctx, r, each)
}

// dollars out of billionths, exactly, with two places at least.
func dollars(nanos int64) string {
	s := fmt.Sprintf("%d.%09d", nanos/1e9, nanos%1e9)
	whole, frac, _ := strings.Cut(s, ".")
	if frac = strings.TrimRight(frac, "0"); len(frac) < 2 {
		frac += strings.Repeat("0", 2-len(frac))
	}
	return "$" + whole + "." + frac
}

// roughly is dollars with four places at most.
func roughly(nanos int64) string { return dollars((nanos + 50_000) / 100_000 * 100_000) }

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
