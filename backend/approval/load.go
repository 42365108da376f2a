package approval

import (
	"context"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

// Load rebuilds the ledger from the log. Questions without an end are pending
// again; Run closes those whose time ran out while nobody looked.
func (l *Ledger) Load(ctx context.Context) error {
	items := map[domain.ApprovalID]*item{}
	grants := map[string]*Grant{}
	var order []*item
	hit := func(rule string, at int64) {
		if id, ok := strings.CutPrefix(rule, RulePrefix); ok && grants[id] != nil {
			grants[id].Hits++
			grants[id].LastHit = at
		}
	}
	end := func(id domain.ApprovalID, out Outcome) {
		// The first end stands; what a fault may have written after it does not count.
		if it := items[id]; it != nil && it.a.Outcome.State == Pending {
			it.a.Outcome = out
			close(it.done)
		}
	}
	err := l.log.Fold(ctx, eventlog.Filter{Types: []event.Type{
		"approval.requested", "approval.answered", "approval.closed", "rule.added", "rule.removed", "step.decided", "egress.opened",
	}}, func(e event.Envelope) error {
		p, err := event.Decode(e)
		if err != nil {
			return fmt.Errorf("rebuilding the open questions: %w", err)
		}
		switch p := p.(type) {
		case *event.ApprovalRequested:
			it := &item{done: make(chan struct{}), a: Approval{ID: p.Approval, EventID: e.ID, Stream: e.Stream,
				Project: e.ProjectID, Session: e.SessionID, Step: e.StepID, Asked: *p, CreatedAt: e.At, Outcome: Outcome{State: Pending}}}
			items[p.Approval] = it
			order = append(order, it)
		case *event.ApprovalAnswered:
			end(p.Approval, Outcome{State: Answered, Choice: p.Choice, Text: p.Text, By: p.By, At: e.At})
		case *event.ApprovalClosed:
			end(p.Approval, Outcome{State: State(p.Why), At: e.At})
		case *event.RuleAdded:
			g := &Grant{ID: p.ID, Project: e.ProjectID, Rule: *p, CreatedAt: e.At}
			if p.Scope == "session" {
				g.Session = e.SessionID
			}
			grants[p.ID] = g
			if it := items[p.FromApproval]; it != nil {
				it.a.Outcome.GrantID = p.ID
			}
		case *event.RuleRemoved:
			delete(grants, p.ID)
		case *event.StepDecided:
			hit(p.Rule, e.At)
		case *event.EgressOpened:
			hit(p.Rule, e.At)
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.items) > 0 {
		return domain.E(domain.CodeInternal, "The open questions were loaded already", "", nil)
	}
	l.items, l.grants, l.queue = items, grants, nil
	for _, it := range order {
		if it.a.Outcome.State == Pending {
			l.queue = append(l.queue, it)
		}
	}
	l.poke()
	return nil
}
