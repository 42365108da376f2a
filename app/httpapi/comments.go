package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/project"
)

// comments are what a person does in a review beside deciding: marks and words.
func (s *server) comments(api huma.API) {
	type viewedIn struct {
		Caller
		Brief
		ID   string `path:"id"`
		Body struct {
			File   string `json:"file" minLength:"1" maxLength:"80" doc:"the file's id"`
			Viewed bool   `json:"viewed"`
		}
	}
	huma.Register(api, op("mark-viewed", http.MethodPost, "/v1/reviews/{id}/viewed", "Mark a file's change as viewed, in every review that shows it"), func(ctx context.Context, in *viewedIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.MarkViewed(ctx, domain.ReviewID(in.ID), in.Body.File, in.Body.Viewed, in.actor())
		return ok(in.of(v), err)
	})
	type linesIn struct {
		ID   string `path:"id"`
		File string `path:"file"`
		Side string `query:"side" enum:"old,new" default:"new"`
		From int    `query:"from" minimum:"1" default:"1"`
		To   int    `query:"to" minimum:"1" default:"200"`
	}
	huma.Register(api, op("review-lines", http.MethodGet, "/v1/reviews/{id}/files/{file}/lines", "Lines of a file in a review, at most 2000 at once"), func(ctx context.Context, in *linesIn) (*body[project.FileLines], error) {
		v, err := s.Projects.FileLines(ctx, domain.ReviewID(in.ID), in.File, in.Side, in.From, in.To)
		return ok(v, err)
	})
	type commentIn struct {
		Caller
		Brief
		ID   string `path:"id"`
		Body struct {
			File string `json:"file" minLength:"1" maxLength:"80" doc:"the file's id"`
			Side string `json:"side,omitempty" enum:"old,new" doc:"with a line"`
			Line int    `json:"line,omitempty" minimum:"0" doc:"from 1; 0 = the file as a whole"`
			Unit string `json:"unit,omitempty" maxLength:"80"`
			Text string `json:"text" maxLength:"8192"`
		}
	}
	huma.Register(api, op("comment", http.MethodPost, "/v1/reviews/{id}/comments", "Write a comment; it stays a draft until it is sent"), func(ctx context.Context, in *commentIn) (*body[project.ReviewView], error) {
		b := in.Body
		v, err := s.Projects.Comment(ctx, domain.ReviewID(in.ID), project.NewComment{File: b.File, Side: b.Side, Line: b.Line, Unit: b.Unit, Text: b.Text}, in.actor())
		return ok(in.of(v), err)
	})
	type editCommentIn struct {
		Caller
		Brief
		ID      string `path:"id"`
		Comment string `path:"comment"`
		Body    struct {
			Text string `json:"text" maxLength:"8192"`
		}
	}
	huma.Register(api, op("edit-comment", http.MethodPut, "/v1/reviews/{id}/comments/{comment}", "Change a draft"), func(ctx context.Context, in *editCommentIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.EditComment(ctx, domain.ReviewID(in.ID), in.Comment, in.Body.Text, in.actor())
		return ok(in.of(v), err)
	})
	type removeIn struct {
		Caller
		Brief
		ID      string `path:"id"`
		Comment string `path:"comment"`
	}
	huma.Register(api, op("remove-comment", http.MethodDelete, "/v1/reviews/{id}/comments/{comment}", "Take a comment away"), func(ctx context.Context, in *removeIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.RemoveComment(ctx, domain.ReviewID(in.ID), in.Comment, in.actor())
		return ok(in.of(v), err)
	})
	type sendCommentsIn struct {
		Caller
		Brief
		ID   string `path:"id"`
		Body struct {
			Session  string   `json:"session_id" minLength:"1" maxLength:"80"`
			Comments []string `json:"comments,omitempty" maxItems:"500" doc:"empty = every draft of the review"`
			Rejected bool     `json:"rejected,omitempty" doc:"name the rejected changes too"`
		}
	}
	huma.Register(api, op("send-comments", http.MethodPost, "/v1/reviews/{id}/comments/send", "Give the comments to a session, in one message"), func(ctx context.Context, in *sendCommentsIn) (*body[project.ReviewView], error) {
		v, err := s.Projects.SendComments(ctx, domain.ReviewID(in.ID), project.SendRequest{Session: domain.SessionID(in.Body.Session), Comments: in.Body.Comments, Rejected: in.Body.Rejected, Actor: in.actor(),
			Say: func(ctx context.Context, id domain.SessionID, text string) error {
				return s.sayComments(ctx, domain.ReviewID(in.ID), id, text, in.actor())
			}})
		return ok(in.of(v), err)
	})
}

// sayComments leaves the batch in a session of the same project that still takes words.
func (s *server) sayComments(ctx context.Context, review domain.ReviewID, id domain.SessionID, text string, actor domain.Actor) error {
	x, err := s.Sessions.Get(ctx, id)
	if err != nil {
		return err
	}
	of, err := s.Projects.ReviewProject(review)
	switch {
	case err != nil:
		return err
	case x.ProjectID != of:
		return domain.E(domain.CodeInvalid, "the session belongs to another project", "choose a session of the review's project", nil)
	case x.State == domain.SessionEnded:
		return domain.E(domain.CodeConflict, "the session has ended and takes no comments", "start a session and send them there; they are kept", nil)
	}
	return s.Sessions.Say(ctx, id, "", "person", text, actor, domain.OriginHost)
}
