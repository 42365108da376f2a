package project

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git"
	"glasshouse/backend/review"
)

// desk is where changes of a machine wait for decisions. What it holds is a fold
// of review and push events; the diff itself is computed from the mirror's objects
// whenever it is asked for.
type desk struct {
	s   *Service
	mu  sync.Mutex
	all map[domain.ReviewID]*sheet

	comments map[string]*comment
	viewed   map[domain.ProjectID]map[string]bool // files by id
	heard    int64                                // the last event whose message was read
}

// sheet is one review.
type sheet struct {
	// mu is held while it is decided or pushed, which may take as long as a remote
	// does. What views read is changed under both locks, so that they wait for no push.
	mu      sync.Mutex
	id      domain.ReviewID
	project domain.ProjectID
	opened  event.ReviewOpened
	at      int64
	replay  []event.ReviewDecided // decisions of an earlier core, until the diff is built

	seen      sync.Mutex
	decisions review.Decisions
	pushes    []PushView
	diff      *review.Review
	placed    map[string]place // comments that were looked for

	sending sync.Mutex // held while comments go out
}

func newDesk(s *Service) *desk {
	return &desk{s: s, all: map[domain.ReviewID]*sheet{}, comments: map[string]*comment{}, viewed: map[domain.ProjectID]map[string]bool{}}
}

func (d *desk) fold(e event.Envelope, p event.Payload) {
	switch p := p.(type) {
	case *event.ReviewOpened:
		d.all[p.Review] = &sheet{id: p.Review, project: e.ProjectID, opened: *p, at: e.At, decisions: review.Decisions{}}
	case *event.ReviewDecided:
		if sh := d.all[p.Review]; sh != nil {
			sh.replay = append(sh.replay, *p)
		}
	case *event.PushStarted:
		if sh := d.all[p.Review]; sh != nil {
			sh.pushes = append(sh.pushes, PushView{Remote: p.Remote, Ref: p.Ref, Commit: p.Commit, Tree: p.Tree, State: "unknown", At: e.At})
		}
	case *event.PushEnded:
		if sh := d.all[p.Review]; sh != nil && len(sh.pushes) > 0 {
			sh.pushes[len(sh.pushes)-1].end(p)
		}
	default:
		d.talk(e, p)
	}
}

// ReviewView is a review as a person sees it.
type ReviewView struct {
	ID        domain.ReviewID  `json:"id"`
	ProjectID domain.ProjectID `json:"project_id"`
	At        int64            `json:"opened_at"`
	Base      string           `json:"base,omitempty"`
	Candidate string           `json:"candidate"`
	Remote    string           `json:"remote,omitempty"`
	Ref       string           `json:"ref,omitempty"`
	Expected  string           `json:"expected,omitempty"`
	Accepted  int              `json:"accepted"`
	Rejected  int              `json:"rejected"`
	Undecided int              `json:"undecided"`
	Files     []FileView       `json:"files,omitempty"`
	Pushes    []PushView       `json:"pushes,omitempty"`
	Comments  []CommentView    `json:"comments,omitempty" doc:"of this review and of those before it, oldest first"`
}

// Brief leaves the lines away: what a client that has them asks for.
func (v ReviewView) Brief() ReviewView {
	for i := range v.Files {
		v.Files[i].Hunks = nil
	}
	return v
}

// FileView is a file of a review with its decisions.
type FileView struct {
	review.File
	Decisions map[string]review.Decision `json:"decisions" doc:"by unit"`
	Viewed    bool                       `json:"viewed" doc:"a person looked at this very change, here or in a review before"`
}

// PushView is one try to push.
type PushView struct {
	Remote string `json:"remote"`
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
	Tree   string `json:"tree"`
	State  string `json:"state" enum:"running,ok,failed,unknown" doc:"unknown: the core ended while it ran"`
	Reason string `json:"reason,omitempty"`
	Output string `json:"output,omitempty" doc:"the remote's answer"`
	At     int64  `json:"at"`
}

func (v *PushView) end(p *event.PushEnded) {
	v.State, v.Reason, v.Output = "failed", p.Reason, p.Output
	if p.OK {
		v.State = "ok"
	}
}

func reviewRef(id domain.ReviewID) string { return "refs/glasshouse/reviews/" + string(id) }

// base is what a review's changes are compared with and built upon. At first that
// is what the workspace began with. What a push put on a branch is accepted and
// gone out, so the next review for that branch begins there: it shows what is new
// and what was rejected before, and its push builds upon what the branch holds.
// With a remote the branch itself says which push that was, whatever is recorded of
// its outcome; without one it is the newest push that went well.
func (d *desk) base(project domain.ProjectID, imported, remote, ref, expected string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	base, at := imported, int64(0)
	for _, sh := range d.all {
		if sh.project != project {
			continue
		}
		sh.seen.Lock()
		for _, v := range sh.pushes {
			switch {
			case remote != "" && v.Remote == remote && v.Ref == ref && v.Commit == expected:
				base = v.Commit
			case remote == "" && v.State == "ok" && v.At >= at:
				base, at = v.Commit, v.At
			}
		}
		sh.seen.Unlock()
	}
	return base
}

// pushing reports whether a push of a project is under way.
func (d *desk) pushing(project domain.ProjectID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, sh := range d.all {
		if sh.project != project {
			continue
		}
		sh.seen.Lock()
		running := slices.ContainsFunc(sh.pushes, func(v PushView) bool { return v.State == "running" })
		sh.seen.Unlock()
		if running {
			return true
		}
	}
	return false
}

// OpenReview takes the workspace's changes out of the machine, which is started for
// it, and opens a review of them. With a remote and a ref, what the ref holds now is
// what it must still hold at the push. See base for what they are compared with.
func (s *Service) OpenReview(ctx context.Context, id domain.ProjectID, remote, ref string, actor domain.Actor) (ReviewView, error) {
	p, err := s.Get(id)
	if err != nil {
		return ReviewView{}, err
	}
	imp, ok := s.Imported(p.ID)
	if !ok {
		return ReviewView{}, domain.E(domain.CodeConflict, "the project's workspace was never filled", "create the project again", nil)
	}
	m, err := s.mirror(p.ID)
	if err != nil {
		return ReviewView{}, err
	}
	ev := event.ReviewOpened{Review: domain.ReviewID(domain.NewID("r")), Base: imp.Commit}
	switch {
	case remote != "":
		if ev.Remote, ev.Ref, ev.Expected, err = lookAtRemote(ctx, m, remote, ref); err != nil {
			return ReviewView{}, err
		}
	case imp.Remote != "":
		// Where it came from is where it is meant for. That remote need not be there
		// to look at the changes: the push looks again.
		rctx, stop := context.WithTimeout(ctx, 20*time.Second)
		at, full, expected, err := lookAtRemote(rctx, m, imp.Remote, cmp.Or(ref, imp.Ref))
		stop()
		if err == nil {
			ev.Remote, ev.Ref, ev.Expected = at, full, expected
		} else if ctx.Err() != nil {
			return ReviewView{}, context.Cause(ctx)
		}
	}
	ev.Base = s.desk.base(p.ID, imp.Commit, ev.Remote, ev.Ref, ev.Expected)
	unchanged := domain.E(domain.CodeConflict, "nothing changed since the project was made", "", nil)
	if ev.Base != imp.Commit {
		unchanged = domain.E(domain.CodeConflict, "nothing changed since the last push", "", nil)
	}
	g, err := s.cfg.Fleet.Ensure(ctx, p)
	if err != nil {
		return ReviewView{}, err
	}
	// The machine has what it began with, but not what the host made of it.
	cand, err := g.Git().Candidate(ctx, imp.Commit, "Changes from "+p.Name)
	if err != nil {
		return ReviewView{}, domain.E(domain.CodeUnavailable, "the machine could not make a commit of its changes", "look at 'git status' in the workspace; where its repository was destroyed, restore to after the last step: that makes it anew and leaves the files as they are", err)
	}
	if cand.Commit == imp.Commit || cand.Commit == ev.Base {
		return ReviewView{}, unchanged
	}
	var have []string
	if imp.Commit != "" {
		have = []string{imp.Commit}
	}
	pack, err := g.Git().Export(ctx, []string{cand.Commit}, have, git.GuestLimits().PackBytes)
	if err != nil {
		return ReviewView{}, domain.E(domain.CodeUnavailable, "the changes could not be taken out of the machine", "try again", err)
	}
	_, err = m.Receive(ctx, pack, []string{cand.Commit}, git.GuestLimits())
	pack.Close()
	if err != nil {
		return ReviewView{}, domain.E(domain.CodeDenied, "the machine's objects were not taken", "nothing was changed; look at what the agent committed", err)
	}
	ev.Candidate = cand.Commit
	if err := m.SetRef(reviewRef(ev.Review), cand.Commit, ""); err != nil {
		return ReviewView{}, err
	}
	opened := false
	defer func() {
		if !opened {
			_ = m.DeleteRef(reviewRef(ev.Review))
		}
	}()
	diff, err := s.build(ctx, m, ev.Base, ev.Candidate)
	if err != nil {
		return ReviewView{}, err
	}
	if len(diff.Files) == 0 && ev.Base != imp.Commit {
		return ReviewView{}, unchanged
	}
	if len(diff.Files) == 0 {
		return ReviewView{}, domain.E(domain.CodeConflict, "the machine's commits change no file", "", nil)
	}
	ev.Files, ev.Units = len(diff.Files), diff.Units
	out, err := s.cfg.Log.Append(context.WithoutCancel(ctx), event.New{Stream: event.ProjectStream(p.ID), Origin: domain.OriginHost, Actor: actor, ProjectID: p.ID, Payload: &ev})
	if err != nil {
		return ReviewView{}, err
	}
	opened = true
	sh := &sheet{id: ev.Review, project: p.ID, opened: ev, at: out[0].At, decisions: review.Decisions{}, diff: diff}
	s.desk.mu.Lock()
	s.desk.all[sh.id] = sh
	s.desk.mu.Unlock()
	return s.show(ctx, sh, m)
}

// lookAtRemote names a push's end and what it holds now.
func lookAtRemote(ctx context.Context, m *git.Mirror, remote, ref string) (shown, full, expected string, err error) {
	if ref == "" {
		return "", "", "", &domain.Error{Code: domain.CodeInvalid, Pointer: "/ref", What: "a remote needs a ref", Hint: "give a branch, such as refs/heads/fix"}
	}
	if shown, err = m.Target(ctx, remote); err != nil {
		return "", "", "", err
	}
	refs, err := m.RemoteRefs(ctx, remote)
	if err != nil {
		return "", "", "", err
	}
	full = fullRef(ref)
	return shown, full, refs[full], nil
}

func fullRef(ref string) string {
	if len(ref) > 5 && ref[:5] == "refs/" {
		return ref
	}
	return "refs/heads/" + ref
}

func (s *Service) build(ctx context.Context, m *git.Mirror, base, candidate string) (*review.Review, error) {
	o, err := m.Objects()
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return review.Build(ctx, o, base, candidate)
}

func (s *Service) sheet(id domain.ReviewID) (*sheet, *git.Mirror, error) {
	s.desk.mu.Lock()
	sh := s.desk.all[id]
	s.desk.mu.Unlock()
	if sh == nil {
		return nil, nil, domain.E(domain.CodeNotFound, fmt.Sprintf("there is no review %q", id), "open one with 'glasshouse review open PROJECT'", nil)
	}
	if _, err := s.Get(sh.project); err != nil {
		return nil, nil, err
	}
	m, err := s.mirror(sh.project)
	return sh, m, err
}

// ready builds the diff of a sheet when it is not there yet; sh.mu is held.
func (s *Service) ready(ctx context.Context, sh *sheet, m *git.Mirror) error {
	if sh.diff != nil {
		return nil
	}
	diff, err := s.build(ctx, m, sh.opened.Base, sh.opened.Candidate)
	if err != nil {
		return err
	}
	sh.seen.Lock()
	defer sh.seen.Unlock()
	sh.diff = diff
	for _, d := range sh.replay {
		before := sh.decisions.Clone()
		if apply(sh, d.File, d.Unit, review.Decision(d.Decision)) != nil {
			// A later version cuts the changes otherwise: what the decision was about
			// waits for one again, which a push refuses until it came.
			sh.decisions = before
		}
	}
	sh.replay = nil
	return nil
}

func apply(sh *sheet, file, unit string, d review.Decision) error {
	if file == "" {
		return sh.decisions.SetAll(sh.diff, d)
	}
	return sh.decisions.Set(sh.diff, file, unit, d)
}

// Review returns a review with its files.
func (s *Service) Review(ctx context.Context, id domain.ReviewID) (ReviewView, error) {
	sh, m, err := s.built(ctx, id)
	if err != nil {
		return ReviewView{}, err
	}
	return s.show(ctx, sh, m)
}

// Reviews lists a project's reviews ("" = of all projects), newest first, without
// their files.
func (s *Service) Reviews(id domain.ProjectID) []ReviewView {
	s.desk.mu.Lock()
	var all []*sheet
	for _, sh := range s.desk.all {
		if id == "" || sh.project == id {
			all = append(all, sh)
		}
	}
	s.desk.mu.Unlock()
	out := []ReviewView{}
	for _, sh := range all {
		if !s.exists(sh.project) {
			continue
		}
		s.recount(sh)
		out = append(out, sh.view(false))
	}
	slices.SortFunc(out, func(a, b ReviewView) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.ID, a.ID)) })
	return out
}

// recount builds the diff of a review with decisions of an earlier core, so that
// they are counted. One that cannot be built shows as undecided.
func (s *Service) recount(sh *sheet) {
	sh.seen.Lock()
	built := sh.diff != nil
	sh.seen.Unlock()
	if built {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.replay) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if m, err := s.mirror(sh.project); err == nil {
		_ = s.ready(ctx, sh, m)
	}
}

func (sh *sheet) view(files bool) ReviewView {
	sh.seen.Lock()
	defer sh.seen.Unlock()
	v := ReviewView{ID: sh.id, ProjectID: sh.project, At: sh.at, Base: sh.opened.Base, Candidate: sh.opened.Candidate,
		Remote: sh.opened.Remote, Ref: sh.opened.Ref, Expected: sh.opened.Expected, Pushes: slices.Clone(sh.pushes)}
	if sh.diff == nil {
		v.Undecided = sh.opened.Units
		return v
	}
	v.Accepted, v.Rejected, v.Undecided = sh.decisions.Count(sh.diff)
	if files {
		for i := range sh.diff.Files {
			f := FileView{File: sh.diff.Files[i], Decisions: map[string]review.Decision{}}
			for _, u := range f.Units {
				f.Decisions[u] = sh.decisions.Of(f.ID, u)
			}
			v.Files = append(v.Files, f)
		}
	}
	return v
}

// Decide records a decision about a unit, about a file (unit "") or about
// everything (file "").
func (s *Service) Decide(ctx context.Context, id domain.ReviewID, file, unit string, d review.Decision, actor domain.Actor) (ReviewView, error) {
	if err := byPerson(actor, "decide about changes"); err != nil {
		return ReviewView{}, err
	}
	sh, m, err := s.sheet(id)
	if err != nil {
		return ReviewView{}, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err := s.ready(ctx, sh, m); err != nil {
		return ReviewView{}, err
	}
	sh.seen.Lock()
	before := sh.decisions.Clone()
	err = apply(sh, file, unit, d)
	if err != nil {
		sh.decisions = before
	}
	sh.seen.Unlock()
	if err != nil {
		return ReviewView{}, &domain.Error{Code: domain.CodeInvalid, What: err.Error(), Hint: "take the ids from the review", Err: nil}
	}
	path := ""
	if f, ok := sh.diff.File(file); ok {
		path = f.Display
	}
	if err := s.append(ctx, sh.project, actor, &event.ReviewDecided{Review: id, File: file, Path: path, Unit: unit, Decision: string(d)}); err != nil {
		sh.seen.Lock()
		sh.decisions = before
		sh.seen.Unlock()
		return ReviewView{}, err
	}
	return s.show(ctx, sh, m)
}

// byPerson refuses what only a person does. The word of who acts is the caller's,
// so this keeps honest agents to their side; machines cannot call here at all.
func byPerson(actor domain.Actor, what string) error {
	if actor == "agent" || strings.HasPrefix(string(actor), "agent:") {
		return domain.E(domain.CodeDenied, fmt.Sprintf("%q may not %s", actor, what), "a person does that, in the window or with 'glasshouse review' and 'glasshouse push'", nil)
	}
	return nil
}
