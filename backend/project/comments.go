package project

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/review"
)

// Bounds of comments.
const (
	maxComment  = 8 << 10
	maxComments = 2000 // of one project
	maxAnswer   = 4000
)

// States of a comment.
const (
	CommentDraft    = "draft"
	CommentSent     = "sent"
	CommentAnswered = "answered"
)

// comment is what the events tell of one.
type comment struct {
	event.ReviewCommented
	project  domain.ProjectID
	at       int64
	state    string
	session  domain.SessionID // where it was sent
	answer   string
	answered int64
}

// place is where a comment is in one review.
type place struct {
	file string // empty: it is not in this review
	line int
	why  string // why it is outdated
}

// CommentView is a comment as one review shows it.
type CommentView struct {
	ID       string           `json:"id"`
	Review   domain.ReviewID  `json:"review_id" doc:"where it was made"`
	File     string           `json:"file,omitempty" doc:"the file's id in this review; empty: it is not in it"`
	Path     string           `json:"path"`
	Side     string           `json:"side,omitempty" enum:"old,new" doc:"empty: the file as a whole"`
	Line     int              `json:"line,omitempty" doc:"from 1, in this review; 0: the file as a whole, or outdated"`
	WasLine  int              `json:"was_line,omitempty" doc:"where it was made"`
	Unit     string           `json:"unit,omitempty"`
	Text     string           `json:"text"`
	Quoted   string           `json:"quoted,omitempty"`
	State    string           `json:"state" enum:"draft,sent,answered"`
	Outdated bool             `json:"outdated,omitempty" doc:"what it was about is no longer there"`
	Why      string           `json:"why,omitempty" doc:"why it is outdated"`
	At       int64            `json:"at"`
	Session  domain.SessionID `json:"session_id,omitempty" doc:"where it was sent"`
	Answer   string           `json:"answer,omitempty" doc:"the agent's words"`
	Answered int64            `json:"answered_at,omitempty"`
}

// NewComment is what a person says about a line, or about a file (line 0).
type NewComment struct {
	File string
	Side string
	Line int
	Unit string
	Text string
}

// talk folds what happened to comments and viewed marks; d.mu is held, or nobody else is there yet.
func (d *desk) talk(e event.Envelope, p event.Payload) {
	switch p := p.(type) {
	case *event.ReviewViewed:
		of := d.viewed[e.ProjectID]
		if of == nil {
			of = map[string]bool{}
			d.viewed[e.ProjectID] = of
		}
		if p.Viewed {
			of[p.File] = true
		} else {
			delete(of, p.File)
		}
	case *event.ReviewCommented:
		d.comments[p.Comment] = &comment{ReviewCommented: *p, project: e.ProjectID, at: e.At, state: CommentDraft}
	case *event.ReviewCommentEdited:
		if c := d.comments[p.Comment]; c != nil {
			c.Text = p.Text
		}
	case *event.ReviewCommentRemoved:
		delete(d.comments, p.Comment)
	case *event.ReviewCommentsSent:
		for _, id := range p.Comments {
			d.sent(id, e.ProjectID, p.Session)
		}
	case *event.Message:
		d.message(e, p)
	}
}

func (d *desk) sent(id string, of domain.ProjectID, to domain.SessionID) {
	if c := d.comments[id]; c != nil && c.project == of && c.state == CommentDraft {
		c.state, c.session = CommentSent, to
	}
}

var named = regexp.MustCompile(`\[(c_[0-9a-z]{16})\]`)

// message reads what a session was told and answered. A comment that is named at the
// begin of a line of a person's message is sent: so it is when the core died before
// it could record the sending. An agent's words after an id are the answer to it.
func (d *desk) message(e event.Envelope, p *event.Message) {
	at := named.FindAllStringSubmatchIndex(p.Text, -1)
	for i, m := range at {
		id := p.Text[m[2]:m[3]]
		if p.Role != "agent" {
			if m[0] == 0 || p.Text[m[0]-1] == '\n' {
				d.sent(id, e.ProjectID, e.SessionID)
			}
			continue
		}
		c := d.comments[id]
		if c == nil || c.project != e.ProjectID || c.state == CommentDraft {
			continue
		}
		end := len(p.Text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		if words := strings.Trim(p.Text[m[1]:end], " \t\r\n:-–—"); words != "" || c.answer == "" {
			c.state, c.answer, c.answered = CommentAnswered, text(clip(words, maxAnswer)), e.At
		}
	}
}

// hear reads the messages that came since it was last asked.
func (s *Service) hear(ctx context.Context) error {
	d := s.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.cfg.Log.Fold(ctx, eventlog.Filter{AfterID: d.heard, Types: []event.Type{"message"}}, func(e event.Envelope) error {
		d.heard = e.ID
		p, err := event.Decode(e)
		if err == nil {
			d.talk(e, p)
		}
		return err
	})
}

// tell records something about comments or marks and takes it over, one after the other.
func (s *Service) tell(ctx context.Context, sh *sheet, actor domain.Actor, p event.Payload) error {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	out, err := s.cfg.Log.Append(context.WithoutCancel(ctx), event.New{Stream: event.ProjectStream(sh.project), Origin: domain.OriginHost, Actor: actor, ProjectID: sh.project, Payload: p})
	if err == nil {
		s.desk.talk(out[0], p)
	}
	return err
}

// MarkViewed marks a file's change as looked at. Where another review of the project
// shows the same change, it is marked there too.
func (s *Service) MarkViewed(ctx context.Context, id domain.ReviewID, file string, viewed bool, actor domain.Actor) (ReviewView, error) {
	sh, m, f, err := s.person(ctx, id, file, actor, "mark files as viewed")
	if err != nil {
		return ReviewView{}, err
	}
	if err := s.tell(ctx, sh, actor, &event.ReviewViewed{Review: id, File: f.ID, Path: f.Display, OldBlob: f.OldOID, NewBlob: f.NewOID, Viewed: viewed}); err != nil {
		return ReviewView{}, err
	}
	return s.show(ctx, sh, m)
}

// person finds a file of a review for what only a person does.
func (s *Service) person(ctx context.Context, id domain.ReviewID, file string, actor domain.Actor, what string) (*sheet, *git.Mirror, *review.File, error) {
	if err := byPerson(actor, what); err != nil {
		return nil, nil, nil, err
	}
	sh, m, err := s.built(ctx, id)
	if err != nil || file == "" {
		return sh, m, nil, err
	}
	f, ok := sh.diff.File(file)
	if !ok {
		return nil, nil, nil, &domain.Error{Code: domain.CodeInvalid, Pointer: "/file", What: fmt.Sprintf("the review has no file %q", clip(file, 80)), Hint: "take the ids from the review"}
	}
	return sh, m, f, nil
}

// built finds a review and sees to it that its diff is there; the diff never changes after.
func (s *Service) built(ctx context.Context, id domain.ReviewID) (*sheet, *git.Mirror, error) {
	sh, m, err := s.sheet(id)
	if err != nil {
		return nil, nil, err
	}
	sh.seen.Lock()
	built := sh.diff != nil
	sh.seen.Unlock()
	if !built {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if err := s.ready(ctx, sh, m); err != nil {
			return nil, nil, err
		}
	}
	return sh, m, nil
}

func commentText(t string) (string, error) {
	t = strings.TrimSpace(text(t))
	switch {
	case t == "":
		return "", &domain.Error{Code: domain.CodeInvalid, Pointer: "/text", What: "the comment is empty", Hint: "write something, or leave it"}
	case len(t) > maxComment:
		return "", &domain.Error{Code: domain.CodeTooLarge, Pointer: "/text", What: fmt.Sprintf("the comment is longer than %d KiB", maxComment>>10), Hint: "shorten it"}
	}
	return t, nil
}

// Comment records a draft about a line of a file, or about the file (line 0).
func (s *Service) Comment(ctx context.Context, id domain.ReviewID, c NewComment, actor domain.Actor) (ReviewView, error) {
	t, err := commentText(c.Text)
	if err != nil {
		return ReviewView{}, err
	}
	if c.File == "" {
		return ReviewView{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/file", What: "a comment needs a file", Hint: "take its id from the review"}
	}
	sh, m, f, err := s.person(ctx, id, c.File, actor, "comment on changes")
	if err != nil {
		return ReviewView{}, err
	}
	if c.Unit != "" && !f.Has(c.Unit) {
		return ReviewView{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/unit", What: fmt.Sprintf("%s has no change %q", f.Display, clip(c.Unit, 80)), Hint: "take the ids from the review"}
	}
	ev := event.ReviewCommented{Comment: domain.NewID("c"), Review: id, File: f.ID, Path: text(f.Path), Unit: c.Unit, Text: t}
	if c.Line != 0 {
		if c.Side != review.SideOld && c.Side != review.SideNew {
			return ReviewView{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/side", What: fmt.Sprintf("%q is no side", clip(c.Side, 40)), Hint: "use old or new"}
		}
		blob, lines, err := s.lines(m, f, c.Side)
		if err != nil {
			return ReviewView{}, domain.E(domain.CodeInvalid, "a line of "+f.Display+" cannot be named", "comment on the file as a whole, with line 0", err)
		}
		if c.Line < 1 || c.Line > len(lines) {
			return ReviewView{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/line", What: fmt.Sprintf("%s has no line %d on its %s side", f.Display, c.Line, c.Side), Hint: fmt.Sprintf("it has %d", len(lines))}
		}
		a := review.Hold(blob, lines, c.Line)
		ev.Side, ev.Line, ev.Blob, ev.Quoted, ev.Before, ev.After = c.Side, c.Line, a.Blob, text(a.Quoted), texts(a.Before), texts(a.After)
	}
	s.desk.mu.Lock()
	n := 0
	for _, other := range s.desk.comments {
		if other.project == sh.project {
			n++
		}
	}
	s.desk.mu.Unlock()
	if n >= maxComments {
		return ReviewView{}, domain.E(domain.CodeTooLarge, fmt.Sprintf("the project has %d comments", n), "remove those that are done", nil)
	}
	if err := s.tell(ctx, sh, actor, &ev); err != nil {
		return ReviewView{}, err
	}
	return s.show(ctx, sh, m)
}

func (s *Service) lines(m *git.Mirror, f *review.File, side string) (string, []string, error) {
	o, err := m.Objects()
	if err != nil {
		return "", nil, err
	}
	defer o.Close()
	return review.Lines(o, f, side)
}

// comment finds one of the project's; what a session was told is no longer edited.
func (s *Service) comment(sh *sheet, id string, draft bool) error {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	c := s.desk.comments[id]
	switch {
	case c == nil || c.project != sh.project:
		return domain.E(domain.CodeNotFound, fmt.Sprintf("there is no comment %q", clip(id, 40)), "it may have been removed", nil)
	case draft && c.state != CommentDraft:
		return domain.E(domain.CodeConflict, "the comment was sent already", "write another one; what was said stays as it was", nil)
	}
	return nil
}

// EditComment changes a draft.
func (s *Service) EditComment(ctx context.Context, id domain.ReviewID, comment, words string, actor domain.Actor) (ReviewView, error) {
	t, err := commentText(words)
	if err != nil {
		return ReviewView{}, err
	}
	return s.about(ctx, id, comment, true, actor, &event.ReviewCommentEdited{Comment: comment, Review: id, Text: t})
}

// RemoveComment takes a comment away: a draft that is not wanted, or one that is done.
func (s *Service) RemoveComment(ctx context.Context, id domain.ReviewID, comment string, actor domain.Actor) (ReviewView, error) {
	return s.about(ctx, id, comment, false, actor, &event.ReviewCommentRemoved{Comment: comment, Review: id})
}

func (s *Service) about(ctx context.Context, id domain.ReviewID, comment string, draft bool, actor domain.Actor, p event.Payload) (ReviewView, error) {
	sh, m, _, err := s.person(ctx, id, "", actor, "change comments")
	if err == nil {
		err = s.hear(ctx)
	}
	if err == nil {
		err = s.comment(sh, comment, draft)
	}
	if err == nil {
		err = s.tell(ctx, sh, actor, p)
	}
	if err != nil {
		return ReviewView{}, err
	}
	return s.show(ctx, sh, m)
}

// show is a review with its files, marks and comments.
func (s *Service) show(ctx context.Context, sh *sheet, m *git.Mirror) (ReviewView, error) {
	if err := s.hear(ctx); err != nil {
		return ReviewView{}, err
	}
	s.desk.mu.Lock()
	var all []comment
	for _, c := range s.desk.comments {
		if c.project == sh.project && s.desk.before(c.Review, sh) {
			all = append(all, *c)
		}
	}
	viewed := map[string]bool{}
	for f := range s.desk.viewed[sh.project] {
		viewed[f] = true
	}
	s.desk.mu.Unlock()
	slices.SortFunc(all, func(a, b comment) int { return strings.Compare(a.Comment, b.Comment) })
	places, err := s.places(sh, m, all)
	if err != nil {
		return ReviewView{}, err
	}
	v := sh.view(true)
	for i := range v.Files {
		v.Files[i].Viewed = viewed[v.Files[i].ID]
	}
	for i, c := range all {
		at := places[i]
		v.Comments = append(v.Comments, CommentView{ID: c.Comment, Review: c.Review, File: at.file, Path: review.Display(c.Path), Side: c.Side, Line: at.line, WasLine: c.Line, Unit: c.Unit,
			Text: c.Text, Quoted: c.Quoted, State: c.state, Outdated: at.why != "", Why: at.why, At: c.at, Session: c.session, Answer: c.answer, Answered: c.answered})
	}
	return v, nil
}

// before: a review shows its own comments and those of reviews before it.
func (d *desk) before(id domain.ReviewID, sh *sheet) bool {
	if id == sh.id {
		return true
	}
	other := d.all[id]
	return other != nil && (other.at < sh.at || other.at == sh.at && other.id < sh.id)
}

// places finds every comment in the review. Where one is never changes, so each is looked for once.
func (s *Service) places(sh *sheet, m *git.Mirror, all []comment) ([]place, error) {
	sh.seen.Lock()
	defer sh.seen.Unlock()
	out := make([]place, len(all))
	var o *git.Objects
	type side struct {
		blob  string
		lines []string
		err   error
	}
	texts := map[string]side{}
	for i, c := range all {
		at, ok := sh.placed[c.Comment]
		if !ok {
			f := fileOf(sh.diff, c)
			switch {
			case f == nil:
				at = place{why: "the file is not part of this review"}
			case c.Line == 0:
				at = place{file: f.ID}
			default:
				key := f.ID + c.Side
				t, read := texts[key]
				if !read {
					if o == nil {
						var err error
						if o, err = m.Objects(); err != nil {
							return nil, err
						}
						defer o.Close()
					}
					t.blob, t.lines, t.err = review.Lines(o, f, c.Side)
					texts[key] = t
				}
				a := review.Anchor{Line: c.Line, Blob: c.Blob, Quoted: c.Quoted, Before: c.Before, After: c.After}
				if n, found := a.Find(t.blob, t.lines); t.err == nil && found {
					at = place{file: f.ID, line: n}
				} else {
					at = place{file: f.ID, why: "the line is not there any more"}
				}
			}
			if sh.placed == nil {
				sh.placed = map[string]place{}
			}
			sh.placed[c.Comment] = at
		}
		out[i] = at
	}
	return out, nil
}

// fileOf is the file that a comment is about: by its name now, or before a rename.
func fileOf(r *review.Review, c comment) *review.File {
	var old *review.File
	for i := range r.Files {
		f := &r.Files[i]
		if f.ID == c.File || text(f.Path) == c.Path {
			return f
		}
		if text(f.OldPath) == c.Path {
			old = f
		}
	}
	return old
}

// FileLines is a part of one side of a file.
type FileLines struct {
	From  int      `json:"from"`
	Total int      `json:"total" doc:"lines of that side"`
	Lines []string `json:"lines"`
}

// maxFileLines bounds one answer.
const maxFileLines = 2000

// FileLines reads lines from..to, from 1 and both included, of a file in a review.
func (s *Service) FileLines(ctx context.Context, id domain.ReviewID, file, side string, from, to int) (FileLines, error) {
	sh, m, err := s.built(ctx, id)
	if err != nil {
		return FileLines{}, err
	}
	f, ok := sh.diff.File(file)
	if !ok {
		return FileLines{}, domain.E(domain.CodeNotFound, fmt.Sprintf("the review has no file %q", clip(file, 80)), "take the ids from the review", nil)
	}
	_, lines, err := s.lines(m, f, side)
	if errors.Is(err, review.ErrNoLines) {
		return FileLines{}, domain.E(domain.CodeConflict, f.Display+" has no lines to show", "", nil)
	}
	if err != nil {
		return FileLines{}, err
	}
	out := FileLines{From: max(1, from), Total: len(lines), Lines: []string{}}
	for n := out.From; n <= min(to, len(lines), out.From+maxFileLines-1); n++ {
		out.Lines = append(out.Lines, text(lines[n-1]))
	}
	return out, nil
}
