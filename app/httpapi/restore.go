package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
)

// RestoreView is what restoring would do.
type RestoreView struct {
	Checkpoint string             `json:"checkpoint"`
	Label      string             `json:"label" doc:"what a person calls that state: after step 12"`
	Session    domain.SessionID   `json:"session_id,omitempty" doc:"in whose timeline it would stand; empty = in a new one"`
	Changes    []event.FileChange `json:"changes" doc:"from the newest sealed step to that state; what was written since that step is not in it"`
	More       bool               `json:"more,omitempty" doc:"there are more changes than are listed"`
}

// RestoreAnswer is a restore's step.
type RestoreAnswer struct {
	Session domain.SessionID `json:"session_id"`
	ExecAnswer
	Before string `json:"before,omitempty" doc:"a checkpoint of what was there; restoring to it undoes this"`
	Files  int    `json:"files" doc:"how many files differ between before and now"`
	// Repository is what came of .git.
	Repository string `json:"repository,omitempty" doc:"set where .git was destroyed: made anew, or why it could not be"`
}

func (s *server) restores(api huma.API) {
	type viewIn struct {
		Project    string `path:"project"`
		Step       string `query:"step" maxLength:"60"`
		Side       string `query:"side" enum:"before,after" default:"after"`
		Checkpoint string `query:"checkpoint" pattern:"^([0-9a-f]{40}|[0-9a-f]{64})?$"`
		Start      bool   `query:"start" doc:"start the machine where it is off"`
	}
	huma.Register(api, op("view-restore", http.MethodGet, "/v1/projects/{project}/restore", "What restoring the workspace would change"), func(ctx context.Context, in *viewIn) (*body[RestoreView], error) {
		p, err := s.Projects.Get(domain.ProjectID(in.Project))
		if err != nil {
			return nil, fail(err)
		}
		t, err := s.Sessions.RestoreTarget(ctx, session.RestoreRequest{Project: p.ID, Step: domain.StepID(in.Step), Before: in.Side == "before", Checkpoint: in.Checkpoint})
		if err != nil {
			return nil, fail(err)
		}
		v := RestoreView{Checkpoint: t.Checkpoint, Label: t.Label, Session: t.Session, Changes: []event.FileChange{}}
		if t.Newest == "" || t.Newest == t.Checkpoint {
			return ok(v, nil)
		}
		g, err := s.running(ctx, p, in.Start)
		if err != nil {
			return nil, fail(err)
		}
		changes, more, err := g.Checkpoints().Diff(ctx, t.Newest, t.Checkpoint)
		if err != nil {
			return nil, fail(fileErr(err))
		}
		list, cut := session.FileChanges(changes, 256<<10)
		v.Changes, v.More = append(v.Changes, list...), cut || more
		return ok(v, nil)
	})
	type in struct {
		Caller
		Wait    string `query:"wait" enum:"started,ended,sealed" default:"sealed" doc:"when to answer"`
		Project string `path:"project"`
		Body    struct {
			Step       domain.StepID    `json:"step,omitempty" maxLength:"60" doc:"restore to the state on one side of this step"`
			Side       string           `json:"side,omitempty" enum:"before,after" doc:"of the step; default after"`
			Checkpoint string           `json:"checkpoint,omitempty" pattern:"^([0-9a-f]{40}|[0-9a-f]{64})?$" doc:"or to this checkpoint"`
			Session    domain.SessionID `json:"session_id,omitempty" maxLength:"60" doc:"in whose timeline it stands; default the step's, or a new one"`
		}
	}
	huma.Register(api, op("restore", http.MethodPost, "/v1/projects/{project}/restore", "Put the workspace back to what it was at a step; what is there now is kept first"), func(ctx context.Context, in *in) (*body[RestoreAnswer], error) {
		id, st, err := s.Sessions.Restore(ctx, session.RestoreRequest{Project: domain.ProjectID(in.Project), Session: in.Body.Session, Step: in.Body.Step,
			Before: in.Body.Side == "before", Checkpoint: in.Body.Checkpoint, Actor: in.actor()})
		if err != nil {
			return nil, fail(err)
		}
		v, err := s.wait(ctx, WaitFor{Wait: in.Wait}, st)
		return ok(restoreAnswer(id, v), err)
	})
}

func restoreAnswer(id domain.SessionID, v session.StepView) RestoreAnswer {
	a := RestoreAnswer{Session: id, ExecAnswer: execAnswer(v)}
	if v.Ended != nil {
		var r tool.Restored
		if json.Unmarshal(v.Ended.Result, &r) == nil {
			a.Before, a.Files, a.Repository = r.Before, r.Files, r.Repository
		}
	}
	return a
}
