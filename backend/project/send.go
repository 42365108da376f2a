package project

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/review"
)

// Bounds of the message that carries comments.
const (
	maxBatch         = 30 << 10 // bytes; a session takes a little more
	maxRejectedLines = 12       // shown of one rejected change
	maxQuote         = 300
)

// SendRequest names what goes to a session.
type SendRequest struct {
	Session domain.SessionID
	// Comments to send; empty: every draft that the review shows.
	Comments []string
	// Rejected names the rejected changes as well.
	Rejected bool
	Actor    domain.Actor
	// Say leaves one message in the session; it refuses where the session takes none.
	Say func(ctx context.Context, id domain.SessionID, text string) error
}

// SendComments gives the review's drafts to a session, all in one message, each by
// its id, place and quoted line, and records them as sent.
func (s *Service) SendComments(ctx context.Context, id domain.ReviewID, r SendRequest) (ReviewView, error) {
	sh, m, _, err := s.person(ctx, id, "", r.Actor, "send comments")
	if err != nil {
		return ReviewView{}, err
	}
	// One at a time: nothing is sent twice.
	sh.sending.Lock()
	defer sh.sending.Unlock()
	v, err := s.show(ctx, sh, m)
	if err != nil {
		return ReviewView{}, err
	}
	var batch []CommentView
	for _, c := range v.Comments {
		switch {
		case len(r.Comments) == 0 && c.State == CommentDraft:
			batch = append(batch, c)
		case slices.Contains(r.Comments, c.ID) && c.State != CommentDraft:
			return ReviewView{}, domain.E(domain.CodeConflict, "comment "+c.ID+" was sent already", "leave it out", nil)
		case slices.Contains(r.Comments, c.ID):
			batch = append(batch, c)
		}
	}
	if len(batch) < len(r.Comments) {
		return ReviewView{}, domain.E(domain.CodeNotFound, "a comment to be sent is not there", "it may have been removed; look at the review again", nil)
	}
	words, rejected := batchText(v, batch, r.Rejected)
	switch {
	case len(batch) == 0 && rejected == 0:
		return ReviewView{}, domain.E(domain.CodeConflict, "there is nothing to send", "write a comment first", nil)
	case len(words) > maxBatch:
		return ReviewView{}, domain.E(domain.CodeTooLarge, fmt.Sprintf("%d comments are more than one message takes", len(batch)), "send them in parts, or shorten them", nil)
	}
	if err := r.Say(ctx, r.Session, words); err != nil {
		return ReviewView{}, err
	}
	ev := &event.ReviewCommentsSent{Review: id, Session: r.Session, Comments: []string{}, Rejected: rejected}
	for _, c := range batch {
		ev.Comments = append(ev.Comments, c.ID)
	}
	if err := s.tell(ctx, sh, r.Actor, ev); err != nil {
		return ReviewView{}, err
	}
	return s.show(ctx, sh, m)
}

// batchText is the message: what an agent needs to find each place, and how to answer.
func batchText(v ReviewView, batch []CommentView, withRejected bool) (string, int) {
	var b strings.Builder
	fmt.Fprintf(&b, "Comments from the review of %s. Answer each by naming its id in brackets, then your words.\n", v.Candidate[:min(10, len(v.Candidate))])
	for _, c := range batch {
		fmt.Fprintf(&b, "\n[%s] %s", c.ID, c.Path)
		if n := c.Line; n > 0 || c.WasLine > 0 {
			if n == 0 {
				n = c.WasLine
			}
			fmt.Fprintf(&b, ":%d", n)
			if c.Side == review.SideOld {
				b.WriteString(" (before the change)")
			}
		}
		if c.Outdated {
			fmt.Fprintf(&b, " (outdated: %s)", c.Why)
		}
		b.WriteString("\n")
		if c.Quoted != "" {
			fmt.Fprintf(&b, "> %s\n", clip(c.Quoted, maxQuote))
		}
		b.WriteString(c.Text + "\n")
	}
	if !withRejected {
		return b.String(), 0
	}
	n := 0
	for _, f := range v.Files {
		for _, u := range f.Units {
			if f.Decisions[u] != review.Reject {
				continue
			}
			if n++; n == 1 {
				b.WriteString("\nRejected, and not part of what is pushed:\n")
			}
			h, ok := f.Hunk(u)
			if !ok {
				fmt.Fprintf(&b, "- %s: %s\n", f.Display, map[string]string{review.UnitFile: "the whole change", review.UnitContent: "its content", review.UnitRename: "its new name", review.UnitMode: "its mode"}[u])
				continue
			}
			fmt.Fprintf(&b, "- %s, lines %d to %d\n", f.Display, h.NewStart, h.NewStart+max(0, h.NewLines-1))
			shown := 0
			for _, l := range h.Lines {
				if l.Op == " " {
					continue
				}
				if shown++; shown > maxRejectedLines {
					b.WriteString("  …\n")
					break
				}
				fmt.Fprintf(&b, "  %s %s\n", l.Op, clip(l.Text, maxQuote))
			}
		}
	}
	return b.String(), n
}

// ReviewProject names the project of a review.
func (s *Service) ReviewProject(id domain.ReviewID) (domain.ProjectID, error) {
	sh, _, err := s.sheet(id)
	if err != nil {
		return "", err
	}
	return sh.project, nil
}
