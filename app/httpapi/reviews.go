package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/project"
	"glasshouse/backend/review"
)

// Brief lets a client that has a review's lines leave them out of the answer.
type Brief struct {
	Brief bool `query:"brief" doc:"leave the lines of the hunks out"`
}

func (b Brief) of(v project.ReviewView) project.ReviewView {
	if b.Brief {
		return v.Brief()
	}
	return v
}

func (s *server) reviews(api huma.API) {
	type openReviewIn struct {
		Caller
		ID   string `path:"project"`
		Body struct {
			Remote string `json:"remote,omitempty" maxLength:"4096" doc:"path, ssh or https address the changes are meant for"`
			Ref    string `json:"ref,omitempty" maxLength:"255" doc:"branch there; what it holds now it must still hold at the push"`
		}
	}
	huma.Register(api, op("open-review", http.MethodPost, "/v1/projects/{project}/reviews", "Take the changes out of the machine and open a review"), func(ctx context.Context, in *openReviewIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.OpenReview(ctx, domain.ProjectID(in.ID), in.Body.Remote, in.Body.Ref, in.actor())
		return ok(v, err)
	})
	type listIn struct {
		Project string `query:"project_id"`
	}
	huma.Register(api, op("list-reviews", http.MethodGet, "/v1/reviews", "Reviews, newest first"), func(ctx context.Context, in *listIn) (*body[[]project.ReviewView], error) {
		return ok(s.Projects.Reviews(domain.ProjectID(in.Project)), nil)
	})
	type getIn struct {
		ID string `path:"id"`
		Brief
	}
	huma.Register(api, op("get-review", http.MethodGet, "/v1/reviews/{id}", "A review with its files, hunks and decisions"), func(ctx context.Context, in *getIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.Review(ctx, domain.ReviewID(in.ID))
		return ok(in.of(v), err)
	})
	type decideIn struct {
		Caller
		Brief
		ID   string `path:"id"`
		Body struct {
			File     string          `json:"file,omitempty" doc:"the file's id; empty = everything"`
			Unit     string          `json:"unit,omitempty" doc:"a hunk's id, or file, content, rename, mode; empty = all of the file"`
			Decision review.Decision `json:"decision" enum:"accept,reject,undecided"`
		}
	}
	huma.Register(api, op("decide", http.MethodPost, "/v1/reviews/{id}/decisions", "Accept or reject a hunk, a file, or everything"), func(ctx context.Context, in *decideIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.Decide(ctx, domain.ReviewID(in.ID), in.Body.File, in.Body.Unit, in.Body.Decision, in.actor())
		return ok(in.of(v), err)
	})
	type pushIn struct {
		Caller
		ID   string `path:"id"`
		Body struct {
			Remote  string `json:"remote" maxLength:"4096"`
			Ref     string `json:"ref" maxLength:"255"`
			Message string `json:"message,omitempty" maxLength:"65536" doc:"of the commit, when only parts were accepted"`
			Digest  string `json:"digest,omitempty" doc:"of the plan that was shown; the push is refused when it would do anything else"`
			History bool   `json:"history,omitempty" doc:"send the agent's own commits one by one"`
		}
	}
	request := func(in *pushIn) project.PushRequest {
		return project.PushRequest{Remote: in.Body.Remote, Ref: in.Body.Ref, Message: in.Body.Message, Digest: in.Body.Digest, History: in.Body.History, Actor: in.actor()}
	}
	huma.Register(api, op("plan-push", http.MethodPost, "/v1/reviews/{id}/plan", "Say exactly what a push would do; sends nothing"), func(ctx context.Context, in *pushIn) (*body[review.Plan], error) {
		v, err := s.Projects.Plan(ctx, domain.ReviewID(in.ID), request(in))
		return ok(v, err)
	})
	huma.Register(api, op("push", http.MethodPost, "/v1/reviews/{id}/push", "Push exactly what was accepted"), func(ctx context.Context, in *pushIn) (*body[project.PushView], error) {
		v, err := s.Projects.Push(ctx, domain.ReviewID(in.ID), request(in))
		return ok(v, err)
	})
}
