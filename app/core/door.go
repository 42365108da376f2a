package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// door is one project's way to the gate.
type door struct {
	c       *Core
	project domain.ProjectID
}

// ServeEgress places a connection on the card that its claim names, if such a
// session and step exist, and hands it to the gate.
func (d door) ServeEgress(ctx context.Context, claim guest.EgressClaim, conn io.ReadWriteCloser) {
	s := egress.Scope{Project: d.project, Claim: claimText(claim)}
	if ok, step := d.c.sessions.Known(d.project, domain.SessionID(claim.Session), domain.StepID(claim.Step)); ok {
		s.Session = domain.SessionID(claim.Session)
		if step {
			s.Step = domain.StepID(claim.Step)
		}
	}
	d.c.gate.Serve(ctx, s, conn)
}

// claimText is who connected, as the guest says: bounded, on one line.
func claimText(c guest.EgressClaim) string {
	if c.Browser {
		return "the browser"
	}
	if len(c.Argv) == 0 {
		return ""
	}
	return tool.OneLine(strings.Join(c.Argv, " "), 300)
}

func (c *Core) matchEgress(s egress.Scope, t egress.Target) (egress.Rule, bool) {
	// Asked again for each request: a connection can outlive its session, whose
	// rules are over then.
	var mode policy.Mode
	if s.Session != "" {
		if ok, _ := c.sessions.Known(s.Project, s.Session, ""); !ok {
			s.Session = ""
		} else if c.sessions.Mode(s.Session) == policy.ModeFull {
			mode = policy.ModeFull
		}
	}
	// Of what a person answered and what the rules files say the stricter holds; a
	// file that asks has been answered by what the person said.
	file, written := c.hostRule(s.Project, mode, t)
	if written && file.Decision == domain.Deny {
		return file, true
	}
	g, ok := c.ledger.Match(approval.Query{Project: s.Project, Session: s.Session, Host: t.Host, Port: t.Port})
	if !ok {
		return file, written
	}
	return egress.Rule{Name: g.RuleName(), Text: g.Rule.Text, Decision: g.Rule.Decision}, true
}

// askEgress puts a host on the card of the step that caused it.
func (c *Core) askEgress(ctx context.Context, s egress.Scope, t egress.Target, method string) (egress.Verdict, error) {
	remember := func(id, label, scope string, d domain.Decision) event.Choice {
		return event.Choice{ID: id, Label: label, Covers: fmt.Sprintf("%s connections to %s, in this %s", d, t, scope),
			Grant: &event.Grant{Kind: "egress", Scope: scope, Decision: d, Host: t.Host, Port: t.Port}}
	}
	choices := []event.Choice{{ID: "once", Label: "Allow once"}}
	if s.Session != "" {
		choices = append(choices, remember("session", "Allow in this session", "session", domain.Allow))
	}
	choices = append(choices, remember("project", "Allow in this project", "project", domain.Allow),
		event.Choice{ID: "deny", Label: "Deny"}, remember("never", "Never in this project", "project", domain.Deny))
	detail := []event.Field{{Name: "host", Value: t.String(), Origin: domain.OriginHost}}
	if t.IP.IsValid() {
		detail = append(detail, event.Field{Name: "note", Value: "this is an address, not a name", Origin: domain.OriginHost})
	}
	if method != "" {
		detail = append(detail, event.Field{Name: "method", Value: tool.OneLine(method, 40), Origin: domain.OriginGuest})
	}
	if s.Claim != "" {
		detail = append(detail, event.Field{Name: "from", Value: s.Claim, Origin: domain.OriginGuest})
	}
	sum := sha256.Sum256([]byte("egress\x00" + string(s.Project) + "\x00" + t.String()))
	ap, err := c.ledger.Ask(ctx, approval.Request{Project: s.Project, Session: s.Session, Step: s.Step, Actor: "host", Kind: "egress",
		Title: "Connect to " + t.String(), Detail: detail, Digest: hex.EncodeToString(sum[:]), Choices: choices, Host: t.Host, Port: t.Port,
		Expires: c.questionLife()})
	if err != nil {
		return egress.Verdict{}, err
	}
	return c.egressVerdict(ctx, ap.ID)
}

// rejoinQuestions gives the questions about hosts that an earlier core put back to
// the gate; their connections ended with that core.
func (c *Core) rejoinQuestions() {
	for _, ap := range c.ledger.Pending(approval.Scope{}) {
		if ap.Asked.Kind != "egress" {
			continue
		}
		t, err := egress.ParseTarget(net.JoinHostPort(ap.Asked.Host, strconv.Itoa(ap.Asked.Port)), 0)
		if err != nil {
			continue // answering it still makes the rule it names
		}
		c.gate.Rejoin(c.ctx, egress.Scope{Project: ap.Project, Session: ap.Session, Step: ap.Step}, t,
			func(ctx context.Context) (egress.Verdict, error) { return c.egressVerdict(ctx, ap.ID) })
	}
}

// egressVerdict waits for the answer to a question about a host.
func (c *Core) egressVerdict(ctx context.Context, id domain.ApprovalID) (egress.Verdict, error) {
	out, err := c.ledger.Wait(ctx, id)
	if err != nil {
		return egress.Verdict{}, err
	}
	v := egress.Verdict{Asked: id}
	switch {
	case out.State == approval.Expired:
		v.Reason = "nobody answered in time; that is not a no"
	case out.State != approval.Answered:
		v.Reason = "the question was closed: " + string(out.State)
	case out.Choice == "once":
		v.Allow, v.Rule = true, "once"
	case out.Choice == "session" || out.Choice == "project":
		v.Allow, v.Rule = true, approval.RulePrefix+out.GrantID
	default:
		v.Reason = "the person said no"
		if out.Text != "" {
			v.Reason += ": " + tool.OneLine(out.Text, 300)
		}
	}
	return v, nil
}
