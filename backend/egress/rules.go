package egress

import (
	"sync"
	"time"

	"glasshouse/backend/domain"
)

// Rule is what the rules say of a target.
type Rule struct {
	Name     string // how events name it
	Text     string // the exact rule in words
	Decision domain.Decision
}

// passes are what "allow once" leaves behind when the program that asked has
// given up meanwhile: its next try goes through, once, for a short time.
type passes struct {
	mu  sync.Mutex
	all map[passKey]time.Time
}

type passKey struct {
	project domain.ProjectID
	target  string
}

func (p *passes) add(project domain.ProjectID, t Target, life time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[passKey]time.Time{}
	}
	p.all[passKey{project, t.String()}] = time.Now().Add(life)
}

func (p *passes) take(project domain.ProjectID, t Target) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := passKey{project, t.String()}
	until, ok := p.all[k]
	delete(p.all, k)
	return ok && time.Now().Before(until)
}
