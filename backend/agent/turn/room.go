package turn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"glasshouse/backend/agent"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
)

// room is one session during one turn.
type room struct {
	s     *Service
	id    domain.SessionID
	turn  domain.TurnID
	actor domain.Actor
}

var _ agent.Room = (*room)(nil)

func (r *room) Turn() domain.TurnID { return r.turn }

func (r *room) Session(ctx context.Context) (session.View, error) {
	return r.s.cfg.Sessions.Get(ctx, r.id)
}

func (r *room) Project() (domain.Project, error) {
	v, err := r.s.cfg.Sessions.Get(r.s.ctx, r.id)
	if err != nil {
		return domain.Project{}, err
	}
	return r.s.cfg.Project(v.ProjectID)
}

func (r *room) Tools() []tool.Tool { return r.s.cfg.Tools() }

func (r *room) Call(ctx context.Context, tool string, args json.RawMessage, until domain.StepState) (session.StepView, error) {
	st, err := r.Begin(ctx, tool, args, "")
	if err != nil {
		return session.StepView{}, err
	}
	return st.Wait(ctx, until)
}

func (r *room) Begin(ctx context.Context, tool string, args json.RawMessage, key string) (agent.Step, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // nothing begins in a turn that is being stopped
	}
	st, err := r.s.cfg.Sessions.Call(ctx, r.id, session.CallRequest{Tool: tool, Args: args, Key: key, Turn: r.turn, Actor: r.actor})
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (r *room) Step(ctx context.Context, id domain.StepID) (agent.Step, error) {
	st, err := r.s.cfg.Sessions.Step(ctx, r.id, id)
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (r *room) Say(ctx context.Context, text string) error {
	return r.s.cfg.Sessions.Say(ctx, r.id, r.turn, "agent", text, r.actor, domain.OriginAgent)
}

func (r *room) Ask(ctx context.Context, q agent.Question) (agent.Reply, error) {
	// The figures in a question's words may differ when a later core puts it again; what
	// it is about may not.
	sum := sha256.Sum256([]byte(q.Kind + "\x00" + string(r.turn) + "\x00" + q.Key))
	out, err := r.s.cfg.Sessions.Ask(ctx, r.id, approval.Request{Actor: r.actor, Kind: q.Kind, Title: q.Title, Detail: q.Detail,
		Digest: hex.EncodeToString(sum[:]), Choices: q.Choices, FreeText: q.Free})
	if err != nil {
		return agent.Reply{State: string(approval.Cancelled)}, err
	}
	return agent.Reply{State: string(out.State), Choice: out.Choice, Text: out.Text}, nil
}

func (r *room) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	p, err := r.Project()
	if err != nil {
		return nil, err
	}
	return r.s.cfg.ReadFile(ctx, p, path, limit)
}

func (r *room) Record(ctx context.Context, ps ...event.Payload) error {
	return r.s.cfg.Sessions.Record(ctx, r.id, r.actor, ps...)
}

func (r *room) Publish(p event.Payload) { r.s.cfg.Sessions.Publish(r.id, r.actor, p) }

func (r *room) Fold(ctx context.Context, after int64, fn func(event.Envelope) error) error {
	return r.s.cfg.Sessions.Fold(ctx, r.id, after, fn)
}

func (r *room) PutBlob(ctx context.Context, data []byte, mime, name string) (event.Blob, error) {
	b, err := r.s.cfg.Blobs.PutBlob(ctx, bytes.NewReader(data), int64(len(data)))
	b.Mime, b.Name = mime, name
	return b, err
}

func (r *room) ReadBlob(sha string, limit int64) ([]byte, error) {
	return r.s.cfg.Blobs.ReadBlob(sha, limit)
}
