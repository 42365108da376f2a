package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

// RestoreRequest says to which state a project's workspace is put back: to that on
// one side of a step, or to a checkpoint.
type RestoreRequest struct {
	Project    domain.ProjectID
	Session    domain.SessionID // in whose timeline it stands; empty = the step's, or a new one
	Step       domain.StepID
	Before     bool // the state before the step, not the one after it
	Checkpoint string
	Actor      domain.Actor
}

// RestoreTarget is what a RestoreRequest names.
type RestoreTarget struct {
	Session    domain.SessionID // empty = a new one will be made
	Checkpoint string
	Label      string // "after step 12"
	Newest     string // the checkpoint of the last step that was sealed; empty = there is none
}

// RestoreTarget finds out what a request names. It changes nothing.
func (s *Service) RestoreTarget(ctx context.Context, r RestoreRequest) (RestoreTarget, error) {
	t := RestoreTarget{Session: r.Session, Checkpoint: r.Checkpoint, Label: "checkpoint " + r.Checkpoint[:min(12, len(r.Checkpoint))]}
	switch {
	case (r.Step == "") == (r.Checkpoint == ""):
		return t, &domain.Error{Code: domain.CodeInvalid, Pointer: "/step", What: "a step or a checkpoint says what to restore to", Hint: "give one of the two"}
	case r.Checkpoint != "" && r.Before:
		return t, &domain.Error{Code: domain.CodeInvalid, Pointer: "/side", What: "a checkpoint has no side", Hint: "give a step, or the checkpoint before"}
	}
	var of domain.SessionID // whose step it is
	if r.Step != "" {
		a, v, err := s.find(ctx, r.Project, r.Step)
		if err != nil {
			return t, err
		}
		if t.Checkpoint, t.Label, err = sideOf(v, r.Before); err != nil {
			return t, err
		}
		of = a.who.ID
		if t.Session == "" {
			t.Session = of
		}
	}
	if t.Session != "" {
		a, err := s.actor(t.Session)
		if err != nil {
			return t, err
		}
		if a.who.ProjectID != r.Project {
			return t, &domain.Error{Code: domain.CodeInvalid, Pointer: "/session", What: fmt.Sprintf("session %s belongs to another project", t.Session), Hint: "name one of this project"}
		}
		over := false
		if err := a.do(ctx, func() { over = a.d.State == domain.SessionEnded }); err != nil {
			return t, err
		}
		if over && r.Session == "" {
			t.Session = ""
		}
	}
	if of != "" && of != t.Session {
		t.Label += " of session " + string(of) // each counts its steps by itself
	}
	w := s.workspace(r.Project)
	w.mu.Lock()
	t.Newest = w.last
	w.mu.Unlock()
	return t, nil
}

// sideOf is the checkpoint on one side of a step.
func sideOf(v StepView, before bool) (commit, label string, err error) {
	side := "after"
	if before {
		side = "before"
	}
	label = fmt.Sprintf("%s step %d", side, v.Number)
	if v.Sealed == nil || v.Sealed.Commit == "" {
		what := fmt.Sprintf("step %d has no checkpoint", v.Number)
		if v.Sealed != nil && v.Sealed.Failed != "" {
			what += ": " + v.Sealed.Failed
		}
		return "", "", domain.E(domain.CodeConflict, what, "only a step that may change the workspace has one, once it is sealed; take one near it", nil)
	}
	switch {
	case !before || v.Sealed.Same:
		return v.Sealed.Commit, label, nil
	case v.Sealed.Base == "":
		return "", "", domain.E(domain.CodeConflict, fmt.Sprintf("what was before step %d is in no checkpoint", v.Number), "it is the first there is; restore to after it", nil)
	}
	return v.Sealed.Base, label, nil
}

// find finds a step in any session of a project.
func (s *Service) find(ctx context.Context, project domain.ProjectID, step domain.StepID) (*actor, StepView, error) {
	for _, a := range s.actors() {
		if a.who.ProjectID != project {
			continue
		}
		known := false
		if err := a.do(ctx, func() { known = a.knows(step) }); err != nil {
			return nil, StepView{}, err
		}
		if known {
			st, err := s.Step(ctx, a.who.ID, step)
			if err != nil {
				return nil, StepView{}, err
			}
			return a, st.View(), nil
		}
	}
	return nil, StepView{}, &domain.Error{Code: domain.CodeNotFound, Pointer: "/step", What: fmt.Sprintf("this project has no step %q", clip(string(step), 80)), Hint: "list its events with 'glasshouse log'"}
}

// sealed waits for the checkpoints of what has ended in a project: whoever saw a command
// end may go back at once.
func (s *Service) sealed(ctx context.Context, project domain.ProjectID) error {
	for _, a := range s.actors() {
		if a.who.ProjectID != project {
			continue
		}
		var ended []*Step
		if err := a.do(ctx, func() {
			for _, st := range a.steps() {
				if st.p.Tool.Changes && st.over() {
					ended = append(ended, st)
				}
			}
		}); err != nil {
			return err
		}
		for _, st := range ended {
			select {
			case <-st.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-s.ctx.Done():
				return errLeaving
			}
		}
	}
	return nil
}

const restoresTitle = "Restore"

// restores is the session in which a project's restores stand that belong to no other.
func (s *Service) restores(ctx context.Context, r RestoreRequest) (domain.SessionID, error) {
	for _, d := range slices.Backward(s.List(ctx, r.Project)) {
		if d.Title == restoresTitle && d.Class == domain.ClassEphemeral && d.State != domain.SessionEnded {
			return d.ID, nil
		}
	}
	d, err := s.Create(ctx, CreateRequest{Project: r.Project, Title: restoresTitle, Class: domain.ClassEphemeral, Actor: r.Actor})
	return d.ID, err
}

// atWork says what runs in a project, as an error; nil = nothing does.
func (s *Service) atWork(ctx context.Context, project domain.ProjectID) error {
	for _, a := range s.actors() {
		if a.who.ProjectID != project {
			continue
		}
		what := ""
		if err := a.do(ctx, func() {
			if a.turn.id != "" {
				what = "a turn runs"
			}
			for _, st := range a.steps() {
				// One that only reads, or waits for an answer, is in nobody's way.
				if v := st.view(); st.p.Tool.Changes && v.State != domain.StepAsking && !st.final() {
					what = fmt.Sprintf("step %d (%s) is at work", v.Number, clip(v.Title, 80))
				}
			}
		}); err != nil {
			return err
		}
		if what != "" {
			return domain.E(domain.CodeConflict, fmt.Sprintf("%s in session %s of this project; nothing was restored", what, a.who.ID), "stop it, or wait for its end, and restore then", nil)
		}
	}
	return nil
}

// Restore puts a project's workspace back to an earlier state, as a step of a session:
// it is numbered, recorded and sealed like any other, and so can itself be undone. What
// is there now is kept in a checkpoint first. It is refused while something is at work
// in the project.
func (s *Service) Restore(ctx context.Context, r RestoreRequest) (domain.SessionID, *Step, error) {
	if isAgent(r.Actor) {
		return "", nil, noPerson(tool.Restore) // before a session is made for it
	}
	p, err := s.cfg.Project(r.Project)
	if err != nil {
		return "", nil, err
	}
	if err := s.sealed(ctx, r.Project); err != nil {
		return "", nil, err
	}
	t, err := s.RestoreTarget(ctx, r)
	if err != nil {
		return "", nil, err
	}
	if err := s.atWork(ctx, r.Project); err != nil {
		return "", nil, err
	}
	g, err := s.cfg.Machines.Ensure(ctx, p)
	if err != nil {
		return "", nil, err
	}
	// Kept and named before anything is put back, so that a core that comes in the
	// middle of it still knows what was there.
	kept, err := g.Checkpoints().Take(ctx, guest.CheckpointRequest{Step: "before-restore-" + t.Checkpoint})
	if err != nil {
		return "", nil, domain.E(domain.CodeUnavailable, "What is in the workspace now cannot be kept, so nothing was restored", "see what the machine says, and try again", err)
	}
	if t.Session == "" {
		if t.Session, err = s.restores(ctx, r); err != nil {
			return "", nil, err
		}
	}
	args, err := json.Marshal(map[string]string{"checkpoint": t.Checkpoint, "label": t.Label, "before": kept.Commit})
	if err != nil {
		return "", nil, err
	}
	st, err := s.Call(ctx, t.Session, CallRequest{Tool: tool.Restore, Args: args, Actor: r.Actor})
	return t.Session, st, err
}

// told is what the other sessions of the project hear of a step's end: their agents
// would go on believing what they read before.
func (st *Step) told(end *event.StepEnded) (out []event.New) {
	if st.p.Tool.Name != tool.Restore {
		return nil
	}
	text := tool.RestoredText(st.p.Title, end.Outcome)
	for _, a := range st.a.s.actors() {
		if a == st.a || a.who.ProjectID != st.a.who.ProjectID {
			continue
		}
		worked := false
		// One that was cancelled on the way is told of too.
		_ = a.do(context.WithoutCancel(st.ctx), func() { worked = a.d.State != domain.SessionEnded && a.number > 0 })
		if worked {
			out = append(out, a.event("host", "", &event.Message{Role: "host", Text: text}))
		}
	}
	return out
}
