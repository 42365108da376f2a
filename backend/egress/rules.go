package egress

import (
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Rule lets one host and port through, or names it as refused.
type Rule struct {
	ID       string
	Project  domain.ProjectID
	Session  domain.SessionID // set: gone with that session
	Host     string
	Port     int
	Decision domain.Decision
	Text     string
}

// Rules is the book of egress rules: a fold of rule.added and rule.removed
// events. A project whose book was never loaded has no rules, which denies.
type Rules struct {
	mu   sync.RWMutex
	byID map[string]Rule
	pass map[passKey]time.Time // one-time passes by "allow once", with their expiry
}

type passKey struct {
	project domain.ProjectID
	host    string
	port    int
}

// NewRules returns an empty book.
func NewRules() *Rules { return &Rules{byID: map[string]Rule{}, pass: map[passKey]time.Time{}} }

// Apply folds one event; events of other types are ignored.
func (b *Rules) Apply(e event.Envelope) error {
	switch e.Type {
	case "rule.added", "rule.removed", "session.state":
	default:
		return nil
	}
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch p := p.(type) {
	case *event.RuleAdded:
		if p.Kind == "egress" {
			r := Rule{ID: p.ID, Project: e.ProjectID, Host: p.Host, Port: p.Port, Decision: p.Decision, Text: p.Text}
			if p.Scope == "session" {
				r.Session = e.SessionID
			}
			b.byID[p.ID] = r
		}
	case *event.RuleRemoved:
		delete(b.byID, p.ID)
	case *event.SessionState:
		if p.State == domain.SessionEnded {
			for id, r := range b.byID {
				if r.Session != "" && r.Session == e.SessionID {
					delete(b.byID, id)
				}
			}
		}
	}
	return nil
}

// Match finds what the book says of a target. A refusal beats a permission.
// Every process of a machine is one identity, so a session's rule opens the host
// for the whole machine while that session lives.
func (b *Rules) Match(project domain.ProjectID, t Target) (Rule, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var found Rule
	ok := false
	for _, r := range b.byID {
		if r.Project != project || r.Host != t.Host || (r.Port != 0 && r.Port != t.Port) {
			continue
		}
		if !ok || r.Decision == domain.Deny {
			found, ok = r, true
		}
	}
	return found, ok
}

// List returns a project's rules.
func (b *Rules) List(project domain.ProjectID) []Rule {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []Rule
	for _, r := range b.byID {
		if r.Project == project {
			out = append(out, r)
		}
	}
	return out
}

// AddPass lets the next connection to a target through, once, for a short time:
// the program that asked may have given up and tries again.
func (b *Rules) AddPass(project domain.ProjectID, t Target, life time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass[passKey{project, t.Host, t.Port}] = time.Now().Add(life)
}

func (b *Rules) takePass(project domain.ProjectID, t Target) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := passKey{project, t.Host, t.Port}
	until, ok := b.pass[k]
	delete(b.pass, k)
	return ok && time.Now().Before(until)
}
