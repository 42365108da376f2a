package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
)

func (s *server) approvals(api huma.API) {
	type listIn struct {
		Project string `query:"project_id"`
		Session string `query:"session_id"`
	}
	huma.Register(api, op("list-approvals", http.MethodGet, "/v1/approvals", "Questions that wait, oldest first"), func(ctx context.Context, in *listIn) (*body[[]approval.Approval], error) {
		out := s.Ledger.Pending(approval.Scope{Project: domain.ProjectID(in.Project), Session: domain.SessionID(in.Session)})
		if out == nil {
			out = []approval.Approval{}
		}
		return ok(out, nil)
	})
	type getIn struct {
		ID string `path:"id"`
	}
	huma.Register(api, op("get-approval", http.MethodGet, "/v1/approvals/{id}", "One question"), func(ctx context.Context, in *getIn) (*body[approval.Approval], error) {
		a, err := s.Ledger.Get(domain.ApprovalID(in.ID))
		return ok(a, err)
	})
	type answerIn struct {
		Caller
		ID   string `path:"id"`
		Body struct {
			Digest string `json:"digest" doc:"the digest of what was shown"`
			Choice string `json:"choice" doc:"one of the question's choices"`
			Text   string `json:"text,omitempty" maxLength:"8000"`
		}
	}
	huma.Register(api, op("answer-approval", http.MethodPost, "/v1/approvals/{id}/answer", "Answer a question; the first answer wins"), func(ctx context.Context, in *answerIn) (*body[approval.Outcome], error) {
		a, err := s.Ledger.Answer(ctx, domain.ApprovalID(in.ID), in.Body.Digest, in.Body.Choice, in.Body.Text, in.actor())
		return ok(a, err)
	})
	type rulesIn struct {
		ID string `path:"project"`
	}
	huma.Register(api, op("list-rules", http.MethodGet, "/v1/projects/{project}/rules", "Egress rules and remembered answers"), func(ctx context.Context, in *rulesIn) (*body[[]approval.Grant], error) {
		p, err := s.Projects.Get(domain.ProjectID(in.ID))
		if err != nil {
			return nil, fail(err)
		}
		out := s.Ledger.Grants(p.ID, "")
		if out == nil {
			out = []approval.Grant{}
		}
		return ok(out, nil)
	})
	type addIn struct {
		Caller
		ID   string `path:"project"`
		Body struct {
			Host     string          `json:"host" doc:"a host name, or host:port"`
			Port     int             `json:"port,omitempty" minimum:"0" maximum:"65535"`
			Decision domain.Decision `json:"decision" enum:"allow,deny"`
		}
	}
	huma.Register(api, op("add-rule", http.MethodPost, "/v1/projects/{project}/rules", "Allow or deny a host for a project"), func(ctx context.Context, in *addIn) (*body[approval.Grant], error) {
		p, err := s.Projects.Get(domain.ProjectID(in.ID))
		if err != nil {
			return nil, fail(err)
		}
		t, err := egress.ParseTarget(in.Body.Host, cmp.Or(in.Body.Port, 443))
		if err != nil {
			return nil, fail(&domain.Error{Code: domain.CodeInvalid, Pointer: "/host", What: err.Error(), Hint: "give a name like example.com or example.com:8080"})
		}
		g, err := s.Projects.AddEgressRule(ctx, p.ID, t, in.Body.Decision, in.actor())
		return ok(g, err)
	})
	type removeIn struct {
		Caller
		Project string `path:"project"`
		ID      string `path:"id"`
	}
	huma.Register(api, op("remove-rule", http.MethodDelete, "/v1/projects/{project}/rules/{id}", "Remove a rule or remembered answer"), func(ctx context.Context, in *removeIn) (*body[none], error) {
		return ok(none{}, s.Ledger.RemoveGrant(ctx, in.ID, in.actor()))
	})
}
