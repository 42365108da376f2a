package loop

import (
	"fmt"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

const (
	// compactAt is the share, in percent, of what the conversation may have, past which
	// its beginning is taken out.
	compactAt = 80
	// tailShare of the budget stays as it is at the end of the conversation.
	tailShare = 25
	// bytesPerToken is a low guess, for text and code alike.
	bytesPerToken = 3
)

// tokens of so many bytes.
func tokens(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

// budget is how many tokens a request to a model may have: what its context holds
// besides the answer, or less where its server said that less was too much.
func (t *turn) budget(cfg model.Config) int {
	n := cfg.ContextSize() - cfg.OutputSize()
	if c, ok := t.ceiling[cfg.Name]; ok {
		n = min(n, c)
	}
	return n
}

// whole estimates a request from its bytes alone.
func (t *turn) whole(r *model.Request) int {
	size, images := sizeOf(r.Messages)
	return int(float64(tokens(size+sizeOfRest(r)))*t.dense) + images*pictureCost
}

// estimate of a request: what the server counted for the last one and its answer, and
// the bytes of what is new; all by its bytes where there is no such count, or it was of a
// shortened conversation.
func (t *turn) estimate(r *model.Request, cfg model.Config) int {
	a := t.conv.newest()
	if a == nil || a.context <= 0 || a.cut || a.model != cfg.Name || t.conv.head != nil && t.conv.sinceHead == 0 {
		return t.whole(r)
	}
	i := len(r.Messages)
	for i > 0 && r.Messages[i-1].Role != model.RoleAssistant {
		i--
	}
	if n := i - 1; n > 0 && !a.empty() && a.stop != model.StopRefused {
		t.learn(r, n, a.input)
	}
	size, images := sizeOf(r.Messages[i:])
	return int(a.context) + int(float64(tokens(size))*t.dense) + images*pictureCost
}

// learn how dense a model's tokens are from what its server counted for the first n
// messages: after room was made there is no count to go by.
func (t *turn) learn(r *model.Request, n int, counted int64) {
	size, images := sizeOf(r.Messages[:n])
	guess := tokens(size + sizeOfRest(r))
	if got := int(counted) - images*pictureCost; guess > 500 && got > guess {
		t.dense = max(t.dense, min(4, float64(got)/float64(guess)))
	}
}

// full reports whether a request of so many tokens leaves too little room to go on: of
// what is left beside the rules and the tools, most is taken.
func (t *turn) full(r *model.Request, n, budget int) bool {
	fixed := int(float64(tokens(sizeOfRest(r))) * t.dense)
	return n > fixed+max(0, budget-fixed)*compactAt/100
}

// fit cuts what is in a request until it is within the budget. It is the last means,
// for what even the newest words and results are too large for. It reports whether
// anything was cut.
func (t *turn) fit(r *model.Request, v view, cfg model.Config, budget int) (bool, error) {
	if t.estimate(r, cfg) <= budget {
		return false, nil
	}
	for _, c := range []view{{results: 8 << 10}, {results: 4 << 10}, {results: 2 << 10}, {results: 1 << 10, words: 16 << 10, args: 8 << 10}, {results: 512, words: 8 << 10, args: 2 << 10},
		{results: 256, words: 4 << 10, args: 512}, {results: 200, words: 1 << 10, args: 200}} {
		c.textOnly = v.textOnly
		r.Messages = t.conv.messages(c, t.pics)
		if t.whole(r) <= budget {
			return true, nil
		}
	}
	v.textOnly, v.results, v.words, v.args = true, 200, 1<<10, 200
	r.Messages = t.conv.messages(v, t.pics)
	if n := t.whole(r); n > budget {
		if t.refused != nil {
			return true, failed(cfg, t.refused) // its server holds less than is said of it
		}
		return true, domain.E(domain.CodeTooLarge, fmt.Sprintf("The conversation does not fit into the model %s: it needs about %d tokens, and of its context of %d there are %d for it",
			cfg.Name, n, cfg.ContextSize(), budget), "raise 'context' of the model in its settings if its server allows more, or choose a model with a larger context", nil)
	}
	return true, nil
}
