package project

import (
	"os"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
	"glasshouse/vm"
)

func (h *house) review(p domain.Project, remote, ref string) ReviewView {
	h.t.Helper()
	v, err := h.svc.OpenReview(h.ctx(), p.ID, remote, ref, "person")
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

func (h *house) decide(v ReviewView, path string, d review.Decision) {
	h.t.Helper()
	file := ""
	for _, f := range v.Files {
		if f.Display == path {
			file = f.ID
		}
	}
	if path != "" && file == "" {
		h.t.Fatalf("the review has no %s: %v", path, names(v))
	}
	if _, err := h.svc.Decide(h.ctx(), v.ID, file, "", d, "person"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) push(v ReviewView, remote, ref string) PushView {
	h.t.Helper()
	out, err := h.svc.Push(h.ctx(), v.ID, PushRequest{Remote: remote, Ref: ref, Message: "accepted", Actor: "person"})
	if err != nil || out.State != "ok" {
		h.t.Fatalf("%+v: %v", out, err)
	}
	return out
}

func names(v ReviewView) (out []string) {
	for _, f := range v.Files {
		out = append(out, f.Display)
	}
	return out
}

// A second review begins at what was pushed: it shows what is new and what was
// rejected, and its push builds upon the branch as it is.
func TestReviewAfterAPush(t *testing.T) {
	for _, committed := range []bool{true, false} {
		name := map[bool]string{true: "the agent commits", false: "the agent leaves files"}[committed]
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			src := source(t)
			remote := gittest.InitBare(t)
			src.Git("push", "-q", remote.Dir, "main")
			p := h.create(src.Dir)
			save := func(msg string) {
				if committed {
					in := h.in(p)
					in.Git("add", "-A")
					in.Git("commit", "-q", "-m", msg)
				}
			}
			h.write(p, "good.txt", "good\n")
			h.write(p, "bad.txt", "bad\n")
			save("two files")
			v := h.review(p, remote.Dir, "main")
			if got := strings.Join(names(v), " "); got != "bad.txt good.txt" {
				t.Fatalf("%s", got)
			}
			h.decide(v, "good.txt", review.Accept)
			h.decide(v, "bad.txt", review.Reject)
			first := h.push(v, remote.Dir, "main")
			if got := strings.TrimSpace(remote.Git("rev-parse", "main")); got != first.Commit {
				t.Fatalf("the remote has %s", got)
			}
			// Nothing new: only what was rejected is there to decide.
			again := h.review(p, remote.Dir, "main")
			if got := strings.Join(names(again), " "); got != "bad.txt" || again.Base != first.Commit || again.Expected != first.Commit {
				t.Fatalf("%s on %s, %s expected", got, again.Base, again.Expected)
			}
			h.write(p, "more.txt", "more\n")
			save("one more")
			h.restart()
			for _, where := range []string{remote.Dir, ""} { // with the branch given, or not
				ref := map[bool]string{true: "main", false: ""}[where != ""]
				v = h.review(p, where, ref)
				if got := strings.Join(names(v), " "); got != "bad.txt more.txt" || v.Base != first.Commit {
					t.Fatalf("%q: %s on %s", where, got, v.Base)
				}
			}
			h.decide(v, "", review.Accept)
			second := h.push(v, remote.Dir, "main")
			if got := strings.TrimSpace(remote.Git("rev-parse", "main~1")); got != first.Commit {
				t.Errorf("%s does not build upon %s", second.Commit, first.Commit)
			}
			if got := remote.Git("ls-tree", "--name-only", "main"); got != "a.txt\nb.txt\nbad.txt\ngood.txt\nmore.txt" {
				t.Errorf("%s", got)
			}
			if _, err := h.svc.OpenReview(h.ctx(), p.ID, remote.Dir, "main", "person"); domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "last push") {
				t.Errorf("a review of nothing: %v", err)
			}
			// Another branch begins where the project did.
			other := h.review(p, remote.Dir, "other")
			if imp, _ := h.svc.Imported(p.ID); other.Base != imp.Commit || len(other.Files) != 3 {
				t.Errorf("%s: %v", other.Base, names(other))
			}
		})
	}
}

// A push in whose middle the core died is "unknown", never "ok" or "failed", and the
// branch itself says what became of it.
func TestPushOverACrash(t *testing.T) {
	h := newHouse(t)
	src := source(t)
	remote := gittest.InitBare(t)
	src.Git("push", "-q", remote.Dir, "main")
	p := h.create(src.Dir)
	h.write(p, "new.txt", "new\n")
	v := h.review(p, remote.Dir, "main")
	h.decide(v, "", review.Accept)
	h.f.set("log push.ended") // the remote took it, and nobody could write that down
	out, err := h.svc.Push(h.ctx(), v.ID, PushRequest{Remote: remote.Dir, Ref: "main", Actor: "person"})
	if err == nil {
		t.Error("an outcome that is not recorded is no success")
	}
	h.f.set()
	h.restart()
	got, err := h.svc.Review(h.ctx(), v.ID)
	if err != nil || len(got.Pushes) != 1 || got.Pushes[0].State != "unknown" || got.Accepted == 0 || got.Undecided != 0 {
		t.Fatalf("%+v %v", got, err)
	}
	h.write(p, "more.txt", "more\n")
	next := h.review(p, remote.Dir, "main")
	if next.Base != out.Commit || strings.Join(names(next), " ") != "more.txt" {
		t.Errorf("%s: %v", next.Base, names(next))
	}
	h.decide(next, "", review.Accept)
	h.push(next, remote.Dir, "main")
}

// Decisions outlive the core, in the list too; one that no longer fits is asked for again.
func TestDecisionsOutliveTheCore(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	h.write(p, "a.txt", "one\nTWO\nthree\n")
	h.write(p, "new.txt", "new\n")
	v := h.review(p, "", "")
	h.decide(v, "a.txt", review.Accept)
	h.decide(v, "new.txt", review.Reject)
	if err := h.svc.append(h.ctx(), p.ID, "person", &event.ReviewDecided{Review: v.ID, File: "no such file", Unit: "x", Decision: "accept"}); err != nil {
		t.Fatal(err)
	}
	h.restart()
	for range 2 {
		list := h.svc.Reviews("")
		if len(list) != 1 || list[0].Accepted != 1 || list[0].Rejected != 1 || list[0].Undecided != 0 {
			t.Fatalf("%+v", list)
		}
	}
	if err := h.svc.Delete(h.ctx(), p.ID, "person"); err != nil {
		t.Fatal(err)
	}
	if list := h.svc.Reviews(""); len(list) != 0 {
		t.Errorf("reviews of a deleted project: %+v", list)
	}
	if _, err := h.svc.Review(h.ctx(), v.ID); domain.CodeOf(err) != domain.CodeNotFound {
		t.Errorf("%v", err)
	}
}

// A review starts a machine that is off, and one that cannot be opened leaves nothing in the mirror.
func TestOpenReview(t *testing.T) {
	h := newHouse(t)
	p := h.create(source(t).Dir)
	if _, err := h.svc.OpenReview(h.ctx(), p.ID, "", "", "person"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("nothing changed: %v", err)
	}
	h.write(p, "new.txt", "new\n")
	if err := h.flt.Stop(h.ctx(), p); err != nil {
		t.Fatal(err)
	}
	h.f.set("export")
	if _, err := h.svc.OpenReview(h.ctx(), p.ID, "", "", "person"); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
	h.f.set("log review.opened")
	if _, err := h.svc.OpenReview(h.ctx(), p.ID, "", "", "person"); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
	h.f.set()
	m, err := h.svc.mirror(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	refs, err := m.Refs()
	if err != nil {
		t.Fatal(err)
	}
	for name := range refs {
		if strings.HasPrefix(name, "refs/glasshouse/reviews/") {
			t.Errorf("%s is left of a review that was not opened", name)
		}
	}
	if v := h.review(p, "", ""); strings.Join(names(v), " ") != "new.txt" {
		t.Errorf("%v", names(v))
	}
	if h.flt.State(p.ID) != vm.StateReady {
		t.Error("it is not on")
	}
	if _, err := h.svc.OpenReview(h.ctx(), p.ID, t.TempDir(), "", "person"); domain.CodeOf(err) != domain.CodeInvalid {
		t.Errorf("a remote without a ref: %v", err)
	}
}

// While a push runs its project is not deleted, it shows as running, and a decision
// waits for its end rather than change what goes out.
func TestDeleteDuringAPush(t *testing.T) {
	h := newHouse(t)
	src := source(t)
	remote := gittest.InitBare(t)
	p := h.create(src.Dir)
	h.write(p, "new.txt", "new\n")
	v := h.review(p, "", "")
	h.decide(v, "", review.Accept)
	sh, _, err := h.svc.sheet(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	sh.seen.Lock()
	sh.pushes = append(sh.pushes, PushView{State: "running"})
	sh.seen.Unlock()
	if err := h.svc.Delete(h.ctx(), p.ID, "person"); domain.CodeOf(err) != domain.CodeConflict {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(h.folder(p.ID)); err != nil {
		t.Error(err)
	}
	sh.seen.Lock()
	sh.pushes = nil
	sh.seen.Unlock()
	h.push(v, remote.Dir, "main")
	if err := h.svc.Delete(h.ctx(), p.ID, "person"); err != nil {
		t.Error(err)
	}
}
