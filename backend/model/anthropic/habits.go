package anthropic

import (
	"errors"
	"net/url"
	"strings"
	"sync"

	"glasshouse/backend/model"
)

// habits are what a server wants in another way than most: known by its address, or
// learned from the words with which it refuses a request, which is then sent again in
// the other way. Nothing was answered and nothing is paid for by then.
type habits struct {
	// unsigned: thoughts go back although nobody signed them. Servers of other models than
	// Claude offer this format without signatures, and some insist on their thoughts.
	unsigned bool
	// thoughts: while it thinks, each call must have a thought before it. Where another
	// model made one of the calls, it is told not to think.
	thoughts bool
	// bare: thoughts are not taken back, of another account perhaps.
	bare bool
}

func known(cfg model.Config) habits {
	h := habits{unsigned: address(cfg.BaseURL) != ownAddress && !strings.Contains(strings.ToLower(cfg.Model), "claude")}
	if u, err := url.Parse(cfg.BaseURL); err == nil {
		host := strings.ToLower(u.Hostname())
		h.thoughts = host == "deepseek.com" || strings.HasSuffix(host, ".deepseek.com")
	}
	return h
}

// learned are the habits of a client, from any goroutine.
type learned struct {
	mu sync.Mutex
	h  habits
}

func (l *learned) get() habits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.h
}

// refused takes what the refusal of a request that was written by the habits was teaches;
// false = nothing new. A habit is learned once, so this ends.
func (l *learned) refused(was habits, err error) bool {
	var e *model.Error
	if !errors.As(err, &e) || e.Status != 400 && e.Status != 422 {
		return false
	}
	text := strings.ToLower(e.Message)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.h != was { // it was taught to another meanwhile
		return true
	}
	switch {
	case strings.Contains(text, "thinking") && strings.Contains(text, "must be passed back"):
		l.h.thoughts = true
	case strings.Contains(text, "`signature` in `thinking`"), strings.Contains(text, "thinking") && strings.Contains(text, "cannot be modified"):
		l.h.bare = true
	}
	return l.h != was
}
