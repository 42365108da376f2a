package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/agent/turn"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/backend/session"
)

// SessionAnswer is a session with the text that tells a model where it works.
type SessionAnswer struct {
	session.View
	Spent  Spent  `json:"spent" doc:"what its model's answers took"`
	Preset string `json:"preset" doc:"for a model's system text: where it works and what its walls are"`
}

// Spent is the sum over a session's answers.
type Spent struct {
	Usage     event.ModelUsage `json:"usage"`
	Uncounted int64            `json:"uncounted,omitempty" doc:"tokens more by our guess, which no server counted; limits and cost hold them"`
	CostNanos int64            `json:"cost_nanos" doc:"billionths of a US dollar"`
	Priced    bool             `json:"priced" doc:"false: some answers came of a model without a price"`
	Answers   int              `json:"answers"`
}

// ExecAnswer is what came of an exec. Which fields are set depends on how long
// the Caller waited.
type ExecAnswer struct {
	ExecutionID domain.StepID      `json:"execution_id"`
	State       domain.StepState   `json:"state"`
	ApprovalID  domain.ApprovalID  `json:"approval_id,omitempty" doc:"the question that waits, when state is asking"`
	Outcome     domain.Outcome     `json:"outcome,omitempty"`
	ExitCode    *int               `json:"exit_code,omitempty"`
	Stdout      string             `json:"stdout,omitempty" doc:"head and tail; all of it is in the artefact"`
	Stderr      string             `json:"stderr,omitempty"`
	Logs        []string           `json:"logs,omitempty" doc:"what Glasshouse has to say: dropped output, children left running, why it was refused"`
	FileChanges []event.FileChange `json:"file_changes,omitempty"`
	Checkpoint  string             `json:"checkpoint,omitempty"`
	Artefacts   []event.Blob       `json:"artefacts,omitempty"`
	DurationMS  int64              `json:"duration_ms,omitempty"`
}

func execAnswer(v session.StepView) ExecAnswer {
	a := ExecAnswer{ExecutionID: v.ID, State: v.State, ApprovalID: v.Approval}
	if v.Refused != nil {
		a.Logs = append(a.Logs, v.Refused.Reason)
		if v.Refused.Allowed != "" {
			a.Logs = append(a.Logs, "what would be allowed: "+v.Refused.Allowed)
		}
	}
	if e := v.Ended; e != nil {
		a.Outcome, a.ExitCode, a.DurationMS, a.Artefacts = e.Outcome, e.ExitCode, e.DurationMS, e.Artefacts
		a.Stdout, a.Logs = streamText("stdout", e.Stdout, a.Logs, &a.Artefacts)
		a.Stderr, a.Logs = streamText("stderr", e.Stderr, a.Logs, &a.Artefacts)
		// An exit code says by itself that the command failed.
		if e.Error != "" && (e.ExitCode == nil || e.Outcome != domain.OutcomeFailed) {
			a.Logs = append(a.Logs, e.Error)
		}
		if e.Signal != "" {
			a.Logs = append(a.Logs, "ended by "+e.Signal)
		}
		for _, b := range e.Background {
			a.Logs = append(a.Logs, "still running: "+b)
		}
	}
	if s := v.Sealed; s != nil {
		a.FileChanges, a.Checkpoint = s.Changes, s.Commit
		if s.Failed != "" {
			a.Logs = append(a.Logs, "no checkpoint: "+s.Failed)
		}
	}
	return a
}

func streamText(name string, o *event.OutputStream, logs []string, arts *[]event.Blob) (string, []string) {
	if o == nil {
		return "", logs
	}
	if o.Blob != nil {
		*arts = append(*arts, *o.Blob)
	}
	if o.Dropped > 0 {
		logs = append(logs, fmt.Sprintf("%s: %d of %d bytes were dropped", name, o.Dropped, o.Total))
	}
	if o.Tail == "" {
		return o.Head, logs
	}
	return o.Head + "\n[…]\n" + o.Tail, logs
}

// WaitFor says how long a caller waits for a step. It is exported, like Caller, for
// the API library looks only at exported parts of an input.
type WaitFor struct {
	Wait      string `query:"wait" enum:"started,ended,sealed" default:"started" doc:"started: answer at once; ended: with exit and output; sealed: with file changes too"`
	TimeoutMS int64  `query:"wait_ms" minimum:"0" maximum:"86400000" doc:"answer with what is known after this long; 0 = no limit"`
}

// wait waits for a step as asked. A step whose question waits answers at once:
// nobody should hang on a person. One that was answered just now is no such step.
func (s *server) wait(ctx context.Context, w WaitFor, st *session.Step) (session.StepView, error) {
	if w.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	until := domain.StepRunning
	switch w.Wait {
	case "ended":
		until = domain.StepEnded
	case "sealed":
		until = domain.StepSealed
	}
	v, err := st.Wait(ctx, domain.StepRunning)
	if err == nil && until != domain.StepRunning && !s.waits(v) {
		v, err = st.Wait(ctx, until)
	}
	if err != nil && w.TimeoutMS > 0 && ctx.Err() != nil {
		err = nil
	}
	return v, err
}

// waits reports whether a step's question is open.
func (s *server) waits(v session.StepView) bool {
	if v.State != domain.StepAsking {
		return false
	}
	a, err := s.Ledger.Get(v.Approval)
	return err != nil || a.Outcome.State == approval.Pending
}

func (s *server) sessions(api huma.API) {
	type createIn struct {
		Caller
		Body struct {
			Project domain.ProjectID `json:"project_id"`
			Title   string           `json:"title,omitempty" maxLength:"200"`
			Class   domain.Class     `json:"class,omitempty" enum:"ephemeral,task,workspace"`
			Agent   string           `json:"agent,omitempty" maxLength:"60"`
			Input   string           `json:"input,omitempty" maxLength:"1048576" doc:"what the agent will be given: when it is refused, no session is made. Give it to the turn too"`
			Mode    policy.Mode      `json:"mode,omitempty" enum:"auto,ask,plan,full"`
			Model   string           `json:"model,omitempty" maxLength:"40" doc:"which of the models; empty = the default one"`
			Checks  []event.Check    `json:"checks,omitempty" maxItems:"20" doc:"commands whose success says whether a turn's result is right"`
			session.Limits
		}
	}
	o := op("create-session", http.MethodPost, "/v1/sessions", "Start a session in a project")
	huma.Register(api, o, func(ctx context.Context, in *createIn) (*body[SessionAnswer], error) {
		if in.Body.Input != "" || turn.Resumes(in.Body.Agent) {
			if err := s.Turns.Check(ctx, turn.Spec{Kind: in.Body.Agent, Input: in.Body.Input, Model: in.Body.Model}); err != nil {
				return nil, fail(err)
			}
		}
		d, err := s.Sessions.Create(ctx, session.CreateRequest{Project: in.Body.Project, Title: in.Body.Title, Class: in.Body.Class, Agent: in.Body.Agent,
			Mode: in.Body.Mode, Model: in.Body.Model, Checks: in.Body.Checks, Limits: in.Body.Limits, Actor: in.actor()})
		if err != nil {
			return nil, fail(err)
		}
		return s.session(ctx, d.ID)
	})
	type listIn struct {
		Project string `query:"project_id"`
	}
	huma.Register(api, op("list-sessions", http.MethodGet, "/v1/sessions", "Sessions, oldest first"), func(ctx context.Context, in *listIn) (*body[[]domain.Session], error) {
		out := s.Sessions.List(ctx, domain.ProjectID(in.Project))
		if out == nil {
			out = []domain.Session{}
		}
		return ok(out, nil)
	})
	type oneIn struct {
		Caller
		ID string `path:"id"`
	}
	huma.Register(api, op("get-session", http.MethodGet, "/v1/sessions/{id}", "A session now"), func(ctx context.Context, in *oneIn) (*body[SessionAnswer], error) {
		return s.session(ctx, domain.SessionID(in.ID))
	})
	type changeIn struct {
		Caller
		ID   string `path:"id"`
		Body struct {
			Mode   *policy.Mode `json:"mode,omitempty" enum:"auto,ask,plan,full"`
			Model  *string      `json:"model,omitempty" maxLength:"40" doc:"empty = the default one"`
			Nanos  *int64       `json:"limit_nanos,omitempty" minimum:"0" doc:"the most it may cost, in billionths of a US dollar; 0 = no limit"`
			Tokens *int64       `json:"limit_tokens,omitempty" minimum:"0" doc:"the most tokens it may use; 0 = no limit"`
		}
	}
	huma.Register(api, op("change-session", http.MethodPatch, "/v1/sessions/{id}", "Change a session's mode, model or limits; they hold from its next call and answer on"), func(ctx context.Context, in *changeIn) (*body[SessionAnswer], error) {
		if m := in.Body.Model; m != nil && *m != "" {
			if err := s.Turns.Check(ctx, turn.Spec{Kind: "model", Model: *m}); err != nil {
				return nil, fail(err)
			}
		}
		if err := s.Sessions.Change(ctx, domain.SessionID(in.ID), session.Change{Mode: in.Body.Mode, Model: in.Body.Model, Nanos: in.Body.Nanos, Tokens: in.Body.Tokens}, in.actor()); err != nil {
			return nil, fail(err)
		}
		return s.session(ctx, domain.SessionID(in.ID))
	})
	huma.Register(api, op("end-session", http.MethodPost, "/v1/sessions/{id}/end", "End a session and what it left running"), func(ctx context.Context, in *oneIn) (*body[none], error) {
		return ok(none{}, s.Turns.End(ctx, domain.SessionID(in.ID), in.actor()))
	})
	type cancelIn struct {
		Caller
		ID   string `path:"id"`
		Body struct {
			Step domain.StepID `json:"step_id,omitempty" doc:"empty = everything the session does: its turn and all its steps"`
		}
	}
	huma.Register(api, op("cancel", http.MethodPost, "/v1/sessions/{id}/cancel", "Cancel a step, or stop all that a session does"), func(ctx context.Context, in *cancelIn) (*body[none], error) {
		if in.Body.Step == "" {
			return ok(none{}, s.Turns.Stop(ctx, domain.SessionID(in.ID)))
		}
		return ok(none{}, s.Sessions.Cancel(ctx, domain.SessionID(in.ID), in.Body.Step))
	})
	type execIn struct {
		Caller
		WaitFor
		ID   string `path:"id"`
		Body struct {
			Code      string            `json:"code,omitempty" doc:"a script; needs lang"`
			Lang      string            `json:"lang,omitempty" doc:"bash, python, node, …"`
			Argv      []string          `json:"argv,omitempty" doc:"a command as it is, never through a shell"`
			Workdir   string            `json:"workdir,omitempty" doc:"default /workspace"`
			Env       map[string]string `json:"env,omitempty"`
			TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" maximum:"86400000"`
		}
	}
	huma.Register(api, op("exec", http.MethodPost, "/v1/sessions/{id}/exec", "Run a command or script in the session's machine"), func(ctx context.Context, in *execIn) (*body[ExecAnswer], error) {
		// The tool's own schema says what is right; the body is handed on as it came.
		raw, err := json.Marshal(in.Body)
		if err != nil {
			return nil, fail(err)
		}
		st, err := s.Sessions.Call(ctx, domain.SessionID(in.ID), session.CallRequest{Tool: "exec", Args: raw, Actor: in.actor()})
		if err != nil {
			return nil, fail(err)
		}
		v, err := s.wait(ctx, in.WaitFor, st)
		return ok(execAnswer(v), err)
	})
	type callIn struct {
		Caller
		WaitFor
		ID   string `path:"id"`
		Body struct {
			Tool string          `json:"tool"`
			Args json.RawMessage `json:"args,omitempty"`
		}
	}
	huma.Register(api, op("call-tool", http.MethodPost, "/v1/sessions/{id}/calls", "Call a tool as a step of the session"), func(ctx context.Context, in *callIn) (*body[session.StepView], error) {
		args := in.Body.Args
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		st, err := s.Sessions.Call(ctx, domain.SessionID(in.ID), session.CallRequest{Tool: in.Body.Tool, Args: args, Actor: in.actor()})
		if err != nil {
			return nil, fail(err)
		}
		v, err := s.wait(ctx, in.WaitFor, st)
		return ok(v, err)
	})
	type stepIn struct {
		WaitFor
		ID   string `path:"id"`
		Step string `path:"step"`
	}
	huma.Register(api, op("get-step", http.MethodGet, "/v1/sessions/{id}/steps/{step}", "A step now, or once it reached a state"), func(ctx context.Context, in *stepIn) (*body[session.StepView], error) {
		st, err := s.Sessions.Step(ctx, domain.SessionID(in.ID), domain.StepID(in.Step))
		if err != nil {
			return nil, fail(err)
		}
		v, err := s.wait(ctx, in.WaitFor, st)
		return ok(v, err)
	})
	huma.Register(api, op("get-exec", http.MethodGet, "/v1/sessions/{id}/steps/{step}/exec", "An exec's outcome now, or once it reached a state"), func(ctx context.Context, in *stepIn) (*body[ExecAnswer], error) {
		st, err := s.Sessions.Step(ctx, domain.SessionID(in.ID), domain.StepID(in.Step))
		if err != nil {
			return nil, fail(err)
		}
		v, err := s.wait(ctx, in.WaitFor, st)
		return ok(execAnswer(v), err)
	})
	type turnIn struct {
		Caller
		ID   string `path:"id"`
		Body struct {
			Agent  string `json:"agent" enum:"model,playbook" doc:"which agent works"`
			Input  string `json:"input,omitempty" maxLength:"1048576" doc:"a playbook's text"`
			Prompt string `json:"prompt,omitempty" maxLength:"32768" doc:"what a model should do"`
			GoOn   bool   `json:"go_on,omitempty" doc:"a model goes on where its last turn ended, without a new prompt"`
		}
	}
	type turnOut struct {
		Turn domain.TurnID `json:"turn_id"`
	}
	huma.Register(api, op("start-turn", http.MethodPost, "/v1/sessions/{id}/turns", "Let an agent work; its end is the event turn.ended"), func(ctx context.Context, in *turnIn) (*body[turnOut], error) {
		id, err := s.Turns.Start(ctx, domain.SessionID(in.ID), turn.Spec{Kind: in.Body.Agent, Input: in.Body.Input},
			session.TurnRequest{Prompt: in.Body.Prompt, GoOn: in.Body.GoOn, Actor: in.actor()})
		return ok(turnOut{id}, err)
	})
	type sayIn struct {
		Caller
		ID   string `path:"id"`
		Body struct {
			Text string `json:"text" maxLength:"32768"`
		}
	}
	huma.Register(api, op("say", http.MethodPost, "/v1/sessions/{id}/messages", "Leave a message in the session"), func(ctx context.Context, in *sayIn) (*body[none], error) {
		role, origin := "person", domain.OriginHost
		if strings.HasPrefix(string(in.actor()), "agent") {
			role, origin = "agent", domain.OriginAgent
		}
		return ok(none{}, s.Sessions.Say(ctx, domain.SessionID(in.ID), "", role, in.Body.Text, in.actor(), origin))
	})
}

func (s *server) session(ctx context.Context, id domain.SessionID) (*body[SessionAnswer], error) {
	v, err := s.Sessions.Get(ctx, id)
	if err != nil {
		return nil, fail(err)
	}
	// The sessions of a deleted project are listed until the core ends, and what they took
	// is asked for. Where they worked is nowhere any more.
	preset := ""
	switch p, err := s.Projects.Get(v.ProjectID); {
	case err == nil:
		preset = session.Preset(p, v)
	case domain.CodeOf(err) != domain.CodeNotFound:
		return nil, fail(err)
	}
	spent, err := s.spent(ctx, id)
	return ok(SessionAnswer{View: v, Spent: spent, Preset: preset}, err)
}

// spent adds up what the answers of a session took.
func (s *server) spent(ctx context.Context, id domain.SessionID) (Spent, error) {
	sum := Spent{Priced: true}
	err := s.Log.Fold(ctx, eventlog.Filter{Session: id, Types: []event.Type{"model.answered"}}, func(e event.Envelope) error {
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		a := p.(*event.ModelAnswered)
		sum.Usage.Input += a.Usage.Input
		sum.Usage.CacheRead += a.Usage.CacheRead
		sum.Usage.CacheWrite += a.Usage.CacheWrite
		sum.Usage.Output += a.Usage.Output
		sum.Usage.Reasoning += a.Usage.Reasoning
		sum.Uncounted += a.Uncounted()
		sum.CostNanos += a.CostNanos
		sum.Priced = sum.Priced && a.Priced
		sum.Answers++
		return nil
	})
	return sum, err
}
