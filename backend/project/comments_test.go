package project

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/review"
)

func (v ReviewView) file(t *testing.T, path string) FileView {
	t.Helper()
	for _, f := range v.Files {
		if f.Display == path {
			return f
		}
	}
	t.Fatalf("the review has no %s: %v", path, names(v))
	return FileView{}
}

func (h *house) look(id domain.ReviewID) ReviewView {
	h.t.Helper()
	v, err := h.svc.Review(h.ctx(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

func (h *house) comment(v ReviewView, path, side string, line int, words string) CommentView {
	h.t.Helper()
	got, err := h.svc.Comment(h.ctx(), v.ID, NewComment{File: v.file(h.t, path).ID, Side: side, Line: line, Text: words}, "person")
	if err != nil {
		h.t.Fatal(err)
	}
	return got.Comments[len(got.Comments)-1]
}

// say is a session's message, as the session service records it.
func (h *house) say(p domain.Project, role, words string) {
	h.t.Helper()
	if _, err := h.log.Append(h.ctx(), event.New{Stream: event.SessionStream("s_1"), Origin: domain.OriginHost, Actor: "person", ProjectID: p.ID, SessionID: "s_1",
		Payload: &event.Message{Role: role, Text: words}}); err != nil {
		h.t.Fatal(err)
	}
}

func (v ReviewView) comment(id string) (c CommentView) {
	for _, x := range v.Comments {
		if x.ID == id {
			return x
		}
	}
	return c
}

// Marks hold by content: over another review, a commit that leaves a file as it is,
// and a restart; they do not hold for content nobody saw.
func TestViewedMarksAreOfContent(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	h.write(p, "a.txt", "one\nTWO\nthree\n")
	h.write(p, "b.txt", "changed\n")
	h.write(p, "new.txt", "new\n")
	first := h.review(p, "", "")
	for _, f := range first.Files {
		if f.Viewed {
			t.Errorf("%s is viewed before anybody looked", f.Display)
		}
	}
	for _, path := range []string{"a.txt", "b.txt", "new.txt"} {
		v, err := h.svc.MarkViewed(h.ctx(), first.ID, first.file(t, path).ID, true, "person")
		if err != nil || !v.file(t, path).Viewed {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if v, err := h.svc.MarkViewed(h.ctx(), first.ID, first.file(t, "new.txt").ID, false, "person"); err != nil || v.file(t, "new.txt").Viewed {
		t.Errorf("taken away: %v", err)
	}
	in := h.in(p)
	in.Git("add", "-A")
	in.Git("commit", "-q", "-m", "as it was seen")
	h.write(p, "b.txt", "changed again\n")
	h.restart()
	second := h.review(p, "", "")
	if second.Candidate == first.Candidate {
		t.Fatal("it is the same candidate")
	}
	for path, want := range map[string]bool{"a.txt": true, "b.txt": false, "new.txt": false} {
		if got := second.file(t, path).Viewed; got != want {
			t.Errorf("%s viewed: %v, want %v", path, got, want)
		}
	}
	if v := h.look(first.ID); !v.file(t, "b.txt").Viewed {
		t.Error("the first review forgot")
	}
	// The same bytes with another mode were not seen.
	in.Git("update-index", "--chmod=+x", "a.txt")
	in.Git("config", "core.filemode", "false")
	in.Git("commit", "-q", "-m", "executable")
	third := h.review(p, "", "")
	if f := third.file(t, "a.txt"); f.NewMode == f.OldMode || f.Viewed {
		t.Errorf("mode %o, viewed %v", f.NewMode, f.Viewed)
	}
	if _, err := h.svc.MarkViewed(h.ctx(), first.ID, "no such file", true, "person"); domain.CodeOf(err) != domain.CodeInvalid {
		t.Errorf("%v", err)
	}
	h.f.set("log review.viewed")
	if _, err := h.svc.MarkViewed(h.ctx(), first.ID, first.file(t, "new.txt").ID, true, "person"); err == nil {
		t.Error("a mark that is not recorded is no mark")
	}
	h.f.set()
	if h.look(first.ID).file(t, "new.txt").Viewed {
		t.Error("it shows although it was not recorded")
	}
}

func TestCommentsAreKeptSentAndAnswered(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	h.write(p, "a.txt", "one\nTWO\nthree\nfour\n")
	h.write(p, "new.txt", "new\n")
	v := h.review(p, "", "")
	on := h.comment(v, "a.txt", "new", 2, "  why in capitals?  ")
	gone := h.comment(v, "a.txt", "old", 2, "this was fine")
	whole := h.comment(v, "new.txt", "", 0, "is this file needed?")
	if on.State != "draft" || on.Text != "why in capitals?" || on.Quoted != "TWO" || gone.Quoted != "two" || whole.Line != 0 || on.File != v.file(t, "a.txt").ID {
		t.Errorf("%+v\n%+v\n%+v", on, gone, whole)
	}
	got, err := h.svc.EditComment(h.ctx(), v.ID, on.ID, "why?", "person")
	if err != nil || got.comment(on.ID).Text != "why?" {
		t.Fatalf("%+v %v", got.Comments, err)
	}
	h.restart()
	if got = h.look(v.ID); len(got.Comments) != 3 || got.comment(on.ID).Text != "why?" || got.comment(on.ID).Line != 2 {
		t.Fatalf("after a restart: %+v", got.Comments)
	}
	h.decide(v, "new.txt", review.Reject)
	said := []string{}
	send := func(ids ...string) (ReviewView, error) {
		return h.svc.SendComments(h.ctx(), v.ID, SendRequest{Session: "s_1", Comments: ids, Rejected: true, Actor: "person",
			Say: func(_ context.Context, _ domain.SessionID, words string) error {
				said = append(said, words)
				h.say(p, "person", words)
				return nil
			}})
	}
	if _, err := h.svc.SendComments(h.ctx(), v.ID, SendRequest{Session: "s_2", Actor: "person", Say: func(context.Context, domain.SessionID, string) error {
		return domain.E(domain.CodeConflict, "the session has ended", "", nil)
	}}); domain.CodeOf(err) != domain.CodeConflict || h.look(v.ID).comment(on.ID).State != "draft" {
		t.Errorf("an ended session: %v", err)
	}
	if got, err = send(); err != nil || len(said) != 1 {
		t.Fatalf("%d messages: %v", len(said), err)
	}
	for _, want := range []string{"[" + on.ID + "] a.txt:2\n> TWO\nwhy?\n", "[" + gone.ID + "] a.txt:2 (before the change)\n> two\n", "[" + whole.ID + "] new.txt\nis this", "- new.txt: the whole change"} {
		if !strings.Contains(said[0], want) {
			t.Errorf("%q is not in\n%s", want, said[0])
		}
	}
	for _, c := range got.Comments {
		if c.State != "sent" || c.Session != "s_1" {
			t.Errorf("%+v", c)
		}
	}
	if _, err := h.svc.EditComment(h.ctx(), v.ID, on.ID, "other words", "person"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("what was sent is edited: %v", err)
	}
	if _, err := send(on.ID); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("sent twice: %v", err)
	}
	h.say(p, "agent", "Both looked at. ["+on.ID+"] It is a constant, so capitals.\n["+gone.ID+"]: Put back.")
	h.say(p, "agent", "["+strings.Repeat("x", 18)+"] [c_0000000000000000] nothing of ours")
	check := func() {
		t.Helper()
		got := h.look(v.ID)
		if a := got.comment(on.ID); a.State != "answered" || a.Answer != "It is a constant, so capitals." || a.Answered == 0 {
			t.Errorf("%+v", a)
		}
		if a := got.comment(gone.ID); a.State != "answered" || a.Answer != "Put back." {
			t.Errorf("%+v", a)
		}
		if a := got.comment(whole.ID); a.State != "sent" {
			t.Errorf("%+v", a)
		}
	}
	check()
	h.restart()
	check()
	if got, err = h.svc.RemoveComment(h.ctx(), v.ID, whole.ID, "person"); err != nil || len(got.Comments) != 2 {
		t.Errorf("%d left: %v", len(got.Comments), err)
	}
	// An agent's words about another project's comment change nothing.
	other := h.create("")
	late := h.comment(v, "a.txt", "new", 4, "and this?")
	h.say(p, "person", "["+late.ID+"] said by hand")
	h.say(other, "agent", "["+late.ID+"] done")
	if a := h.look(v.ID).comment(late.ID); a.State != "sent" {
		t.Errorf("%+v", a)
	}
}

// The core died between the message and its record: the comments are sent, not sent twice.
func TestCommentsSentOverACrash(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	h.write(p, "a.txt", "one\nTWO\nthree\n")
	v := h.review(p, "", "")
	c := h.comment(v, "a.txt", "new", 2, "why?")
	h.f.set("log review.comments_sent")
	n := 0
	send := func() error {
		_, err := h.svc.SendComments(h.ctx(), v.ID, SendRequest{Session: "s_1", Actor: "person", Say: func(_ context.Context, _ domain.SessionID, words string) error {
			n++
			h.say(p, "person", words)
			return nil
		}})
		return err
	}
	if err := send(); err == nil {
		t.Error("what is not recorded is no success")
	}
	h.f.set()
	h.restart()
	if err := send(); domain.CodeOf(err) != domain.CodeConflict || n != 1 {
		t.Errorf("%d messages: %v", n, err)
	}
	if got := h.look(v.ID).comment(c.ID); got.State != "sent" || got.Session != "s_1" {
		t.Errorf("%+v", got)
	}
}

// In a later review a comment stands where its line is now; one whose line is gone is
// listed as outdated, never dropped.
func TestCommentsInALaterReview(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "line number %d\n", i+1)
	}
	h.write(p, "new.txt", b.String())
	h.write(p, "a.txt", "one\nTWO\nthree\n")
	h.write(p, "away.txt", "soon gone\n")
	v := h.review(p, "", "")
	stays := h.comment(v, "new.txt", "new", 20, "stays")
	goes := h.comment(v, "new.txt", "new", 10, "goes")
	old := h.comment(v, "a.txt", "old", 2, "the old side")
	file := h.comment(v, "away.txt", "", 0, "the file")
	h.write(p, "new.txt", "first\nsecond\n"+strings.Replace(b.String(), "line number 10\n", "", 1))
	if err := osRemove(h, p, "away.txt"); err != nil {
		t.Fatal(err)
	}
	h.restart()
	next := h.review(p, "", "")
	for _, c := range []struct {
		id       string
		line     int
		outdated bool
	}{{stays.ID, 21, false}, {goes.ID, 0, true}, {old.ID, 2, false}, {file.ID, 0, true}} {
		got := next.comment(c.id)
		if got.Line != c.line || got.Outdated != c.outdated || got.Text == "" || (got.Why != "") != c.outdated {
			t.Errorf("%+v, want line %d, outdated %v", got, c.line, c.outdated)
		}
	}
	if got := next.comment(goes.ID); got.Quoted != "line number 10" || got.WasLine != 10 || got.File == "" {
		t.Errorf("what it was about is lost: %+v", got)
	}
	// The first review shows its own where they were, and nothing of the later one.
	h.comment(next, "new.txt", "new", 1, "later")
	first := h.look(v.ID)
	if len(first.Comments) != 4 || first.comment(stays.ID).Line != 20 || first.comment(goes.ID).Outdated {
		t.Errorf("%+v", first.Comments)
	}
}

func TestCommentsThatAreRefused(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	h.write(p, "a.txt", "one\nTWO\nthree\n")
	h.write(p, "bin", "\x00\x01")
	h.write(p, "empty", "")
	v := h.review(p, "", "")
	id := func(path string) string { return v.file(t, path).ID }
	for name, c := range map[string]NewComment{
		"no file":            {Side: "new", Line: 1, Text: "x"},
		"another file":       {File: "nowhere", Side: "new", Line: 1, Text: "x"},
		"no side":            {File: id("a.txt"), Line: 1, Text: "x"},
		"a line too far":     {File: id("a.txt"), Side: "new", Line: 4, Text: "x"},
		"a line before all":  {File: id("a.txt"), Side: "new", Line: -1, Text: "x"},
		"nothing said":       {File: id("a.txt"), Side: "new", Line: 1, Text: " \n"},
		"bytes have no line": {File: id("bin"), Side: "new", Line: 1, Text: "x"},
		"an empty file":      {File: id("empty"), Side: "new", Line: 1, Text: "x"},
		"the side of before": {File: id("bin"), Side: "old", Line: 1, Text: "x"},
		"another unit":       {File: id("a.txt"), Side: "new", Line: 1, Unit: "nowhere", Text: "x"},
	} {
		if _, err := h.svc.Comment(h.ctx(), v.ID, c, "person"); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.svc.Comment(h.ctx(), v.ID, NewComment{File: id("a.txt"), Side: "new", Line: 1, Text: strings.Repeat("x", maxComment+1)}, "person"); domain.CodeOf(err) != domain.CodeTooLarge {
		t.Errorf("too long: %v", err)
	}
	if len(h.look(v.ID).Comments) != 0 {
		t.Error("something was kept of them")
	}
	c := h.comment(v, "bin", "", 0, "why a binary?")
	for what, err := range map[string]error{
		"comments": second(h.svc.Comment(h.ctx(), v.ID, NewComment{File: id("bin"), Text: "x"}, "agent:model")),
		"edits":    second(h.svc.EditComment(h.ctx(), v.ID, c.ID, "x", "agent:model")),
		"removes":  second(h.svc.RemoveComment(h.ctx(), v.ID, c.ID, "agent")),
		"views":    second(h.svc.MarkViewed(h.ctx(), v.ID, id("bin"), true, "agent")),
		"sends":    second(h.svc.SendComments(h.ctx(), v.ID, SendRequest{Actor: "agent"})),
	} {
		if domain.CodeOf(err) != domain.CodeDenied {
			t.Errorf("an agent %s: %v", what, err)
		}
	}
	if _, err := h.svc.RemoveComment(h.ctx(), v.ID, "c_0000000000000000", "person"); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
	lines, err := h.svc.FileLines(h.ctx(), v.ID, id("a.txt"), "new", 2, 900)
	if err != nil || strings.Join(lines.Lines, " ") != "TWO three" || lines.From != 2 || lines.Total != 3 {
		t.Errorf("%+v %v", lines, err)
	}
	if _, err := h.svc.FileLines(h.ctx(), v.ID, id("bin"), "new", 1, 9); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("%v", err)
	}
}

func second(_ ReviewView, err error) error { return err }

func osRemove(h *house, p domain.Project, name string) error {
	return os.Remove(filepath.Join(h.d.Workspace(string(p.Machine)), name))
}

// A folder's own origin is what a push is suggested to; one with credentials is not.
func TestOriginIsSuggested(t *testing.T) {
	h := newHouse(t)
	for origin, want := range map[string]string{
		"https://git.example/team/shop.git":         "https://git.example/team/shop.git",
		"git@git.example:team/shop.git":             "git@git.example:team/shop.git",
		"https://pat:secret@git.example/team/x.git": "",
		"../elsewhere": "",
	} {
		src := source(t)
		src.Git("remote", "add", "origin", origin)
		p := h.create(src.Dir)
		if imp, _ := h.svc.Imported(p.ID); imp.Remote != want {
			t.Errorf("%s: %q, want %q", origin, imp.Remote, want)
		}
	}
}
