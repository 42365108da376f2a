package approval

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

const (
	maxTitle   = 4000
	maxText    = 8 << 10
	maxChoices = 16
	maxLabel   = 1000
	maxCovers  = 1500
	maxFields  = 64
	// maxShown is how many bytes of JSON a card's details take at most, so that the
	// question fits into one event.
	maxShown = 24 << 10
)

// prepare checks a request and makes the event of it.
func (l *Ledger) prepare(r *Request) (*event.ApprovalRequested, error) {
	bad := func(pointer, format string, args ...any) error {
		e := domain.E(domain.CodeInvalid, "The question cannot be asked: "+fmt.Sprintf(format, args...), "", nil)
		e.Pointer = pointer
		return e
	}
	if r.Stream == "" {
		switch {
		case r.Session != "":
			r.Stream = event.SessionStream(r.Session)
		case r.Project != "":
			r.Stream = event.ProjectStream(r.Project)
		default:
			return nil, bad("/project_id", "it belongs to no project and no session")
		}
	}
	switch r.Kind {
	case "step", "egress", "question", "push", "limit", "loop":
	default:
		return nil, bad("/kind", "its kind %q is unknown", r.Kind)
	}
	if r.Title == "" {
		return nil, bad("/title", "it has no title")
	}
	if r.Digest == "" {
		return nil, bad("/digest", "it is bound to no digest")
	}
	if len(r.Choices) > maxChoices || (len(r.Choices) == 0 && !r.FreeText) {
		return nil, bad("/choices", "it lists %d choices, 1 to %d are possible", len(r.Choices), maxChoices)
	}
	if r.Expires < 0 {
		return nil, bad("/expires", "it expired before it was asked")
	}
	// A rule that cannot be shown whole cannot be saved.
	r.Choices = slices.DeleteFunc(slices.Clone(r.Choices), func(c event.Choice) bool { return c.Grant != nil && cost(c.Covers) > maxCovers })
	seen := map[string]bool{}
	for i, c := range r.Choices {
		at := fmt.Sprintf("/choices/%d", i)
		if c.ID == "" || c.Label == "" || seen[c.ID] {
			return nil, bad(at, "a choice needs its own id and a label")
		}
		if cost(c.ID)+cost(c.Label) > maxLabel || cost(c.Covers) > maxCovers {
			return nil, bad(at, "a choice is too long to be shown")
		}
		seen[c.ID] = true
		if c.Grant == nil {
			continue
		}
		if why := grantFault(c.Grant, r.Project, r.Session); why != "" {
			return nil, bad(at+"/grant", "%s", why)
		}
		if c.Covers == "" {
			return nil, bad(at+"/covers", "a choice that saves a rule must say which")
		}
	}
	q := &event.ApprovalRequested{
		Approval: domain.ApprovalID(domain.NewID("ap")), Kind: r.Kind, Title: showable(r.Title), Digest: r.Digest,
		Choices: r.Choices, FreeText: r.FreeText, Host: r.Host, Port: r.Port,
	}
	if r.Expires > 0 {
		q.ExpiresAt = l.now().Add(r.Expires).UnixMilli()
	}
	shown, whole := 0, len(r.Detail) <= maxFields && cost(q.Title) <= maxTitle
	if !whole {
		q.Title = cut(q.Title, maxTitle)
	}
	for i, f := range r.Detail {
		if i == maxFields {
			break
		}
		f.Name, f.Value = showable(f.Name), showable(f.Value)
		if room := maxShown - shown; cost(f.Name)+cost(f.Value)+fieldCost > room {
			whole = false
			f.Name = cut(f.Name, 100)
			f.Value = cut(f.Value, max(room-cost(f.Name)-fieldCost, 0))
		}
		shown += cost(f.Name) + cost(f.Value) + fieldCost
		q.Detail = append(q.Detail, f)
	}
	if !whole {
		if r.Kind == "question" {
			return nil, domain.E(domain.CodeTooLarge, "The question is too long to be shown whole", "shorten it", nil)
		}
		if r.Kind == "limit" || r.Kind == "loop" {
			// Going on allows nothing by itself: each call is still judged.
			q.Detail = append(q.Detail, event.Field{Name: "not shown", Value: "This is too long to be shown whole.", Origin: domain.OriginHost})
			return q, nil
		}
		// What cannot be shown cannot be allowed.
		q.Detail = append(q.Detail, event.Field{Name: "not shown", Value: "This is too long to be shown whole, so it cannot be allowed.", Origin: domain.OriginHost})
		q.Choices = []event.Choice{{ID: "deny", Label: "Deny"}}
		for _, c := range r.Choices {
			if c.ID == "deny" && c.Grant == nil {
				q.Choices[0] = c
			}
		}
	}
	return q, nil
}

// showable keeps text as it is; bytes that are no text are shown by their numbers,
// so that what is shown is never something else than what runs.
func showable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// fieldCost is what a field takes beside its name and value.
const fieldCost = 50

func runeCost(r rune) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case r < 0x20 || r == '\u2028' || r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// cost is how many bytes a text takes in JSON.
func cost(s string) int {
	n := 0
	for _, r := range s {
		n += runeCost(r)
	}
	return n
}

// cut shortens text to at most n bytes of JSON.
func cut(s string, n int) string {
	for i, r := range s {
		if n -= runeCost(r); n < 0 {
			return s[:i]
		}
	}
	return s
}

func grantFault(g *event.Grant, project domain.ProjectID, session domain.SessionID) string {
	switch {
	case g.Kind != "egress" && g.Kind != "tool":
		return fmt.Sprintf("the kind %q of the rule is unknown", g.Kind)
	case g.Kind == "egress" && g.Host == "":
		return "an egress rule needs a host"
	case g.Kind == "tool" && g.Match == "":
		return "a tool rule needs the exact call it matches"
	case g.Scope != "session" && g.Scope != "project":
		return fmt.Sprintf("the scope %q of the rule is unknown", g.Scope)
	case project == "":
		return "a rule belongs to a project"
	case g.Scope == "session" && session == "":
		return "a rule for a session needs the session"
	case g.Decision != domain.Allow && g.Decision != domain.Deny && g.Decision != domain.Ask:
		return fmt.Sprintf("the decision %q of the rule is unknown", g.Decision)
	case g.TTLMS < 0:
		return "the rule ended before it began"
	case g.Port < 0 || g.Port > 65535:
		return "the port of the rule is none"
	}
	return ""
}
