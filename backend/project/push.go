package project

import (
	"context"
	"errors"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/review"
)

// PushRequest is what a person wants pushed where.
type PushRequest struct {
	Remote  string
	Ref     string
	Message string
	// Digest of the plan that was shown; empty = the call itself is the approval of
	// what the decisions make now.
	Digest string
	// History sends the candidate's own commits one by one.
	History bool
	Actor   domain.Actor
}

// Plan says exactly what a push would do, without sending anything.
func (s *Service) Plan(ctx context.Context, id domain.ReviewID, r PushRequest) (review.Plan, error) {
	sh, m, err := s.sheet(id)
	if err != nil {
		return review.Plan{}, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.plan(ctx, sh, m, r)
}

// plan makes the plan; sh.mu is held.
func (s *Service) plan(ctx context.Context, sh *sheet, m *git.Mirror, r PushRequest) (review.Plan, error) {
	if r.Remote == "" || r.Ref == "" {
		return review.Plan{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/remote", What: "a push needs a remote and a ref", Hint: "give an address and a branch, such as refs/heads/fix"}
	}
	if err := s.ready(ctx, sh, m); err != nil {
		return review.Plan{}, err
	}
	ref := fullRef(r.Ref)
	shown, err := m.Target(ctx, r.Remote)
	if err != nil {
		return review.Plan{}, err
	}
	expected := sh.opened.Expected
	if shown != sh.opened.Remote || ref != sh.opened.Ref {
		// Nobody looked at this branch when the review opened: what it holds now counts,
		// and the plan refuses it unless the changes build upon it.
		if _, _, expected, err = lookAtRemote(ctx, m, r.Remote, ref); err != nil {
			return review.Plan{}, err
		}
	}
	who := s.cfg.Author(ctx)
	return review.MakePlan(ctx, m, review.PushRequest{Review: sh.diff, Decisions: sh.decisions, URL: r.Remote, Ref: ref, Expected: expected,
		Author: who, Committer: who, Message: r.Message, History: r.History})
}

// Push sends exactly what the decisions make of the candidate. It is recorded
// before anything is sent, and its end with the remote's answer.
func (s *Service) Push(ctx context.Context, id domain.ReviewID, r PushRequest) (PushView, error) {
	if err := byPerson(r.Actor, "push"); err != nil {
		return PushView{}, err
	}
	sh, m, err := s.sheet(id)
	if err != nil {
		return PushView{}, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	plan, err := s.plan(ctx, sh, m, r)
	if err != nil {
		return PushView{}, err
	}
	if r.Digest == "" {
		r.Digest = plan.Digest
	}
	if err := m.SetRef("refs/glasshouse/pushes/"+string(id), plan.Commit, "*"); err != nil {
		return PushView{}, err
	}
	if err := s.append(ctx, sh.project, r.Actor, &event.PushStarted{Review: id, Remote: plan.Address, Ref: plan.Ref, Expected: plan.Expected, Commit: plan.Commit, Tree: plan.Tree}); err != nil {
		return PushView{}, err
	}
	v := PushView{Remote: plan.Address, Ref: plan.Ref, Commit: plan.Commit, Tree: plan.Tree, State: "running", At: time.Now().UnixMilli()}
	sh.seen.Lock()
	sh.pushes = append(sh.pushes, v)
	mine := len(sh.pushes) - 1
	sh.seen.Unlock()
	// A push under way is not given up because the caller went.
	res, err := plan.Push(context.WithoutCancel(ctx), m, r.Digest, sh.decisions)
	end := &event.PushEnded{Review: id, OK: err == nil && res.OK, Output: text(clip(res.Output, 32<<10))}
	if err != nil {
		end.Reason = text(clip(err.Error(), 4000))
	}
	if aerr := s.recordEnd(ctx, sh.project, end); aerr != nil && err == nil {
		err = aerr
	}
	v.end(end)
	sh.seen.Lock()
	sh.pushes[mine] = v
	sh.seen.Unlock()
	return v, err
}

// recordEnd records a push's outcome, trying for a while when the log is full: what
// is not recorded is "unknown" to the next core.
func (s *Service) recordEnd(ctx context.Context, id domain.ProjectID, end *event.PushEnded) error {
	var err error
	for delay := 20 * time.Millisecond; delay < 6*time.Second; delay *= 2 {
		if err = s.append(ctx, id, "host", end); err == nil || domain.CodeOf(err) == domain.CodeInvalid || errors.Is(err, eventlog.ErrClosed) {
			return err
		}
		time.Sleep(delay)
	}
	return err
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
