package approval

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// RulePrefix stands before a grant's id where an event names the rule that decided
// ("grant:gr_…" in step.decided and egress.opened); hits are counted by it.
const RulePrefix = "grant:"

// RuleName is how an event names the grant.
func (g *Grant) RuleName() string { return RulePrefix + g.ID }

func (l *Ledger) grantOf(a *Approval, c *event.Choice, by domain.Actor) *Grant {
	s := c.Grant
	g := &Grant{ID: domain.NewID("gr"), Project: a.Project, Rule: event.RuleAdded{
		Kind: s.Kind, Scope: s.Scope, Host: s.Host, Port: s.Port, Match: s.Match, Decision: s.Decision,
		Text: c.Covers, By: by, FromApproval: a.ID,
	}}
	g.Rule.ID = g.ID
	if s.Scope == "session" {
		g.Session = a.Session
	}
	if s.TTLMS > 0 {
		g.Rule.ExpiresAt = l.now().UnixMilli() + s.TTLMS
	}
	return g
}

func (g *Grant) stream() event.Stream {
	if g.Session != "" {
		return event.SessionStream(g.Session)
	}
	return event.ProjectStream(g.Project)
}

func (g *Grant) added(by domain.Actor) event.New {
	rule := g.Rule
	return event.New{Stream: g.stream(), Origin: domain.OriginHost, Actor: by, ProjectID: g.Project, SessionID: g.Session, Payload: &rule}
}

// AddGrant records a rule that a person wrote. The rule's ID is made here; Text is required.
func (l *Ledger) AddGrant(ctx context.Context, project domain.ProjectID, session domain.SessionID, rule event.RuleAdded, by domain.Actor) (Grant, error) {
	fault := grantFault(&event.Grant{Kind: rule.Kind, Scope: rule.Scope, Decision: rule.Decision, Host: rule.Host, Port: rule.Port, Match: rule.Match}, project, session)
	switch {
	case !human(by):
		return Grant{}, domain.E(domain.CodeDenied, fmt.Sprintf("%q may not make rules", by), "a person makes them", nil)
	case fault != "":
		return Grant{}, domain.E(domain.CodeInvalid, "The rule cannot be saved: "+fault, "", nil)
	case rule.Text == "":
		return Grant{}, domain.E(domain.CodeInvalid, "The rule cannot be saved: it does not say in words what it covers", "", nil)
	}
	g := &Grant{ID: domain.NewID("gr"), Project: project, Rule: rule}
	g.Rule.ID, g.Rule.By = g.ID, by
	if rule.Scope == "session" {
		g.Session = session
	}
	out, err := l.log.Append(ctx, g.added(by))
	if err != nil {
		return Grant{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g.CreatedAt = out[0].At
	l.grants[g.ID] = g
	return *g, nil
}

// RemoveGrant takes a remembered answer back.
func (l *Ledger) RemoveGrant(ctx context.Context, id string, by domain.Actor) error {
	if !human(by) {
		return domain.E(domain.CodeDenied, fmt.Sprintf("%q may not remove rules", by), "a person removes them", nil)
	}
	l.mu.Lock()
	g := l.grants[id]
	l.mu.Unlock()
	if g == nil {
		return domain.E(domain.CodeNotFound, fmt.Sprintf("There is no rule %q", id), "list them with glasshouse rule list", nil)
	}
	if _, err := l.log.Append(ctx, event.New{Stream: g.stream(), Origin: domain.OriginHost, Actor: by,
		ProjectID: g.Project, SessionID: g.Session, Payload: &event.RuleRemoved{ID: id}}); err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.grants, id)
	l.mu.Unlock()
	return nil
}

// Grants lists the rules that are in force for a project (and, when it is given, a
// session of it), oldest first. An empty project lists all.
func (l *Ledger) Grants(project domain.ProjectID, session domain.SessionID) []Grant {
	now := l.now().UnixMilli()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Grant
	for _, g := range l.grants {
		if (project == "" || g.Project == project) && (session == "" || g.Session == "" || g.Session == session) && !g.over(now) {
			out = append(out, *g)
		}
	}
	slices.SortFunc(out, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out
}

func (g *Grant) over(now int64) bool { return g.Rule.ExpiresAt > 0 && now >= g.Rule.ExpiresAt }

// Query asks for a grant: a tool call by its exact Match, or a connection by host and port.
type Query struct {
	Project domain.ProjectID
	Session domain.SessionID
	Match   string // kind "tool"
	Host    string // kind "egress", in lower case without a dot at the end
	Port    int
}

// Match finds the grant that covers a call: the strictest decision, and of these
// the oldest. It counts as a hit; name it in the event (RuleName), so that the
// count survives a restart.
func (l *Ledger) Match(q Query) (Grant, bool) {
	if q.Project == "" || (q.Match == "") == (q.Host == "") {
		return Grant{}, false
	}
	var best *Grant
	now := l.now().UnixMilli()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.grants {
		if g.Project != q.Project || (g.Session != "" && g.Session != q.Session) || g.over(now) {
			continue
		}
		if g.Rule.Kind == "tool" && (q.Match == "" || g.Rule.Match != q.Match) {
			continue
		}
		if g.Rule.Kind == "egress" && (q.Host == "" || g.Rule.Host != q.Host || (g.Rule.Port != 0 && g.Rule.Port != q.Port)) {
			continue
		}
		if best == nil || strict(g.Rule.Decision) > strict(best.Rule.Decision) ||
			(g.Rule.Decision == best.Rule.Decision && cmp.Or(cmp.Compare(g.CreatedAt, best.CreatedAt), strings.Compare(g.ID, best.ID)) < 0) {
			best = g
		}
	}
	if best == nil {
		return Grant{}, false
	}
	best.Hits++
	best.LastHit = now
	return *best, true
}

func strict(d domain.Decision) int {
	switch d {
	case domain.Deny:
		return 2
	case domain.Ask:
		return 1
	}
	return 0
}
