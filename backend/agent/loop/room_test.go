package loop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
	"glasshouse/backend/tool/builtin"
)

// house is a session with its log in memory. Its steps end when something waits for
// them, or at once.
type house struct {
	t  *testing.T
	mu sync.Mutex

	log     []event.Envelope
	told    []event.Payload // transient
	blobs   map[string][]byte
	view    session.View
	project domain.Project
	files   map[string]string
	turn    domain.TurnID
	tools   []tool.Tool
	reg     *tool.Registry

	// run says how a step ends; nil = exit code 0 and no output.
	run func(req *event.StepRequested) (*event.StepEnded, *event.StepRefused)
	// ask answers a question; nil = fail the test.
	ask func(q agent.Question) agent.Reply
	// onWait is called when a step is waited for.
	onWait func(ctx context.Context, st *fakeStep) error
	// onAppend is called after each event, without the lock.
	onAppend func(e event.Envelope)
	order    []string // what happened with steps: "begin KEY", "wait KEY"
	asked    []agent.Question
	lost     bool // of the artefacts
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, blobs: map[string][]byte{}, files: map[string]string{}, turn: "t_1", project: domain.Project{ID: "p_1", Name: "demo", Kind: "lima"}, tools: builtin.All()}
	h.view.Session = domain.Session{ID: "s_1", ProjectID: "p_1", Agent: "model", State: domain.SessionRunning}
	h.view.Mode = "auto"
	var err error
	if h.reg, err = tool.NewRegistry(h.tools...); err != nil {
		t.Fatal(err)
	}
	h.put("", &event.SessionCreated{Session: h.view.Session, Mode: "auto"})
	return h
}

// put appends an event.
func (h *house) put(step domain.StepID, p event.Payload) int64 {
	h.t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		h.t.Fatal(err)
	}
	if b.Len() > eventlog.MaxPayload {
		h.t.Errorf("a %s event of %d bytes would not be taken", p.EventType(), b.Len())
	}
	h.mu.Lock()
	e := event.Envelope{ID: int64(len(h.log) + 1), Seq: int64(len(h.log) + 1), Type: p.EventType(), SessionID: "s_1", StepID: step, Data: bytes.TrimSpace(b.Bytes())}
	h.log = append(h.log, e)
	f := h.onAppend
	h.mu.Unlock()
	if f != nil {
		f(e)
	}
	return e.ID
}

// begin starts a turn with a prompt.
func (h *house) begin(prompt string) {
	h.turn = domain.TurnID(fmt.Sprintf("t_%d", len(h.log)))
	h.put("", &event.TurnStarted{Turn: h.turn, Prompt: prompt, Agent: "model", GoOn: prompt == ""})
}

func (h *house) say(text string) {
	h.put("", &event.Message{Turn: h.turn, Role: "person", Text: text})
}

func (h *house) Turn() domain.TurnID { return h.turn }
func (h *house) Session(context.Context) (session.View, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.view, nil
}
func (h *house) Project() (domain.Project, error) { return h.project, nil }
func (h *house) Tools() []tool.Tool {
	return slices.DeleteFunc(slices.Clone(h.tools), func(t tool.Tool) bool { return t.PersonOnly })
}
func (h *house) Say(_ context.Context, text string) error { return nil }

func (h *house) Call(ctx context.Context, name string, args json.RawMessage, until domain.StepState) (session.StepView, error) {
	st, err := h.Begin(ctx, name, args, "")
	if err != nil {
		return session.StepView{}, err
	}
	return st.Wait(ctx, until)
}

func (h *house) Begin(ctx context.Context, name string, args json.RawMessage, key string) (agent.Step, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, err := h.reg.Prepare(name, args)
	if err != nil {
		return nil, err
	}
	n := 1
	h.mu.Lock()
	for _, e := range h.log {
		if e.Type == "step.requested" {
			n++
		}
	}
	h.order = append(h.order, "begin "+key)
	h.mu.Unlock()
	st := &fakeStep{h: h, id: domain.StepID(fmt.Sprintf("st_%04d", n)), key: key,
		req: &event.StepRequested{Number: n, Key: key, Turn: h.turn, Tool: name, Title: p.Title, Args: p.Args, Reach: p.Tool.Reach}}
	rec := *st.req
	if len(p.Args) > 32<<10 {
		b, _ := h.PutBlob(ctx, p.Args, "application/json", "")
		rec.Args, rec.ArgsBlob = json.RawMessage("{}"), &b
	}
	h.put(st.id, &rec)
	h.put(st.id, &event.StepDecided{Decision: domain.Allow})
	return st, nil
}

func (h *house) Step(_ context.Context, id domain.StepID) (agent.Step, error) {
	st := &fakeStep{h: h, id: id}
	for _, e := range h.events() {
		if e.StepID != id {
			continue
		}
		switch v := decode(h.t, e).(type) {
		case *event.StepRequested:
			st.req, st.key = v, v.Key
		case *event.StepStarted:
			st.started = true
		case *event.StepEnded:
			st.ended = v
		case *event.StepRefused:
			st.refused = v
		}
	}
	if st.req == nil {
		return nil, domain.E(domain.CodeNotFound, "no such step", "", nil)
	}
	return st, nil
}

func (h *house) Ask(ctx context.Context, q agent.Question) (agent.Reply, error) {
	h.mu.Lock()
	h.asked = append(h.asked, q)
	ask := h.ask
	h.mu.Unlock()
	if ask == nil {
		h.t.Errorf("asked: %s %s", q.Kind, q.Title)
		return agent.Reply{State: "cancelled"}, nil
	}
	// The same question that waits is not put again.
	var id domain.ApprovalID
	for _, e := range h.events() {
		switch v := decode(h.t, e).(type) {
		case *event.ApprovalRequested:
			if v.Digest == q.Kind+q.Key {
				id = v.Approval
			}
		case *event.ApprovalAnswered:
			if v.Approval == id {
				id = ""
			}
		case *event.ApprovalClosed:
			if v.Approval == id {
				id = ""
			}
		}
	}
	if id == "" {
		id = domain.ApprovalID(domain.NewID("ap"))
		h.put("", &event.ApprovalRequested{Approval: id, Kind: q.Kind, Title: q.Title, Detail: q.Detail, Choices: q.Choices, FreeText: q.Free, Digest: q.Kind + q.Key})
	}
	r := ask(q)
	if ctx.Err() != nil {
		return agent.Reply{State: "cancelled"}, context.Cause(ctx)
	}
	if r.State == "answered" {
		h.put("", &event.ApprovalAnswered{Approval: id, Choice: r.Choice, Text: r.Text, By: "person"})
	} else {
		h.put("", &event.ApprovalClosed{Approval: id, Why: r.State})
	}
	return r, nil
}

func (h *house) ReadFile(_ context.Context, path string, limit int64) ([]byte, error) {
	s, ok := h.files[path]
	if !ok {
		return nil, domain.E(domain.CodeNotFound, "there is no "+path, "", nil)
	}
	return []byte(s[:min(len(s), int(limit))]), nil
}

func (h *house) Record(ctx context.Context, ps ...event.Payload) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, p := range ps {
		h.put("", p)
	}
	return nil
}

func (h *house) Publish(p event.Payload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, p)
}

// deltas are the pieces of answers that were told. What is said again of an answer that
// takes long is none of them.
func (h *house) deltas() (out []*event.MessageDelta) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.told {
		if d, ok := p.(*event.MessageDelta); ok {
			out = append(out, d)
		}
	}
	return out
}

func (h *house) Fold(ctx context.Context, after int64, fn func(event.Envelope) error) error {
	for _, e := range h.events() {
		if e.ID > after {
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (h *house) events() []event.Envelope {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

func (h *house) PutBlob(_ context.Context, data []byte, mime, name string) (event.Blob, error) {
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	h.mu.Lock()
	h.blobs[sha] = bytes.Clone(data)
	h.mu.Unlock()
	return event.Blob{Sha256: sha, Size: int64(len(data)), Mime: mime, Name: name}, nil
}

func (h *house) ReadBlob(sha string, limit int64) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.blobs[sha]
	if !ok || h.lost || int64(len(b)) > limit {
		return nil, domain.E(domain.CodeNotFound, "there is no such artefact", "", nil)
	}
	return b, nil
}

// fakeStep ends when it is waited for.
type fakeStep struct {
	h       *house
	id      domain.StepID
	key     string
	req     *event.StepRequested
	started bool
	ended   *event.StepEnded
	refused *event.StepRefused
}

func (s *fakeStep) View() session.StepView {
	return session.StepView{ID: s.id, Number: s.req.Number, Tool: s.req.Tool, Title: s.req.Title, Ended: s.ended, Refused: s.refused}
}

func (s *fakeStep) Wait(ctx context.Context, _ domain.StepState) (session.StepView, error) {
	s.h.mu.Lock()
	s.h.order = append(s.h.order, "wait "+s.key)
	onWait := s.h.onWait
	s.h.mu.Unlock()
	if onWait != nil {
		if err := onWait(ctx, s); err != nil {
			return s.View(), err
		}
	}
	if s.ended != nil || s.refused != nil {
		return s.View(), nil
	}
	ended, refused := &event.StepEnded{Outcome: domain.OutcomeOK}, (*event.StepRefused)(nil)
	if s.h.run != nil {
		ended, refused = s.h.run(s.req)
	}
	if refused != nil {
		s.h.put(s.id, refused)
		s.refused = refused
		return s.View(), nil
	}
	if !s.started {
		s.h.put(s.id, &event.StepStarted{Exec: string(s.id)})
	}
	s.h.put(s.id, ended)
	s.ended = ended
	return s.View(), nil
}

func decode(t *testing.T, e event.Envelope) event.Payload {
	t.Helper()
	p, err := event.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// recorded are the events of one type.
func recorded[P event.Payload](h *house) (out []P) {
	for _, e := range h.events() {
		if _, known := event.Registry[e.Type]; !known {
			continue
		}
		if p, ok := decode(h.t, e).(P); ok {
			out = append(out, p)
		}
	}
	return out
}

// wrote is a command that ended with an exit code and some output.
func wrote(code int, out string) *event.StepEnded {
	e := &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: &code, DurationMS: 5}
	if code != 0 {
		e.Outcome, e.Error = domain.OutcomeFailed, fmt.Sprintf("The command ended with exit code %d", code)
	}
	if out != "" {
		e.Stdout = &event.OutputStream{Total: int64(len(out)), Head: out[:min(len(out), 5000)]}
	}
	e.Result, _ = json.Marshal(map[string]any{"exit_code": code, "stdout": out[:min(len(out), 14000)], "stderr": ""})
	return e
}

var _ agent.Room = (*house)(nil)
