package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/backend/tool/builtin"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// faultyLog is the real log with a fault in front of it.
type faultyLog struct {
	*eventlog.Log
	mu      sync.Mutex
	refuse  func(n event.New) error // before it is stored
	after   func(e event.Envelope)  // once it is stored
	watched func(es []event.Envelope)
	crashed chan struct{}
	dead    bool
}

func (l *faultyLog) Append(ctx context.Context, events ...event.New) ([]event.Envelope, error) {
	l.mu.Lock()
	dead, refuse := l.dead, l.refuse
	l.mu.Unlock()
	if dead {
		return nil, eventlog.ErrClosed
	}
	for _, n := range events {
		if refuse != nil {
			if err := refuse(n); err != nil {
				return nil, err
			}
		}
	}
	out, err := l.Log.Append(ctx, events...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.watched != nil {
		l.watched(out)
	}
	if err == nil && l.after != nil {
		for _, e := range out {
			l.after(e)
		}
	}
	return out, err
}

// crashAfter makes the log dead once an event of a type was stored, as when the core was killed then.
func (l *faultyLog) crashAfter(t event.Type) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed = make(chan struct{})
	l.after = func(e event.Envelope) {
		if e.Type == t && !l.dead {
			l.dead = true
			close(l.crashed)
		}
	}
}

// watch sees what is stored together.
func (l *faultyLog) watch(f func(es []event.Envelope)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = f
}

func (l *faultyLog) setRefuse(f func(n event.New) error) {
	l.mu.Lock()
	l.refuse = f
	l.mu.Unlock()
}

var errFull = domain.E(domain.CodeUnavailable, "the disk is full", "", nil)

// machines is the one machine of the one project.
type machines struct {
	mu     sync.Mutex
	w      *vmtest.World
	g      *vmtest.Guest
	state  string // "on", "off", "gone"
	starts int
}

func (m *machines) Ensure(ctx context.Context, _ domain.Project) (guest.Guest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case m.state == "gone":
		return nil, domain.E(domain.CodeNotFound, "the machine is missing", "", nil)
	case m.state == "off":
		m.starts++
		m.state = "on"
	}
	if m.g == nil || m.g.Err() != nil {
		m.g = m.w.Open()
	}
	return m.g, nil
}

func (m *machines) Running(domain.ProjectID) (guest.Guest, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.g, m.state == "on" && m.g != nil
}

func (m *machines) set(state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state != "on" {
		m.w.Crash()
		m.g = nil
	}
	m.state = state
}

func (m *machines) started() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}

// bench is a session service over a real log and a machine in memory.
type bench struct {
	t        *testing.T
	dir      string
	log      *faultyLog
	ledger   *approval.Ledger
	m        *machines
	w        *vmtest.World
	svc      *Service
	tools    []tool.Tool
	project  domain.Project
	gone     bool // the project
	life     time.Duration
	deny     bool
	mode     policy.Mode
	resumes  func(string) bool
	mu       sync.Mutex
	waiting  map[string]chan struct{} // commands that wait, by name
	work     func(context.Context) error
	browsers []domain.SessionID // closed ones
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), w: vmtest.NewWorld(), waiting: map[string]chan struct{}{},
		project: domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}}
	b.m = &machines{w: b.w, state: "on"}
	b.w.OnExec = b.play
	b.tools = append(builtin.All(), b.look(), b.hold())
	b.open()
	t.Cleanup(b.close)
	return b
}

// open opens what a core opens, in its order.
func (b *bench) open() {
	b.t.Helper()
	l, err := eventlog.Open(b.dir, eventlog.Options{Ring: 64})
	if err != nil {
		b.t.Fatal(err)
	}
	b.log = &faultyLog{Log: l}
	b.ledger = approval.New(b.log, nil)
	if err := b.ledger.Load(b.ctx()); err != nil {
		b.t.Fatal(err)
	}
	reg, err := tool.NewRegistry(b.tools...)
	if err != nil {
		b.t.Fatal(err)
	}
	rules := policy.Builtin()
	b.svc = New(Config{Resumes: b.resumes, Log: b.log, Ledger: b.ledger, Machines: b.m, Tools: reg, QuestionLife: b.life,
		Project: func(id domain.ProjectID) (domain.Project, error) {
			if b.gone || id != b.project.ID {
				return domain.Project{}, domain.E(domain.CodeNotFound, "there is no such project", "", nil)
			}
			return b.project, nil
		},
		Decide: func(_ domain.ProjectID, a policy.Action) (policy.Decision, string) {
			if b.deny {
				return policy.Decision{Decision: domain.Deny, Rule: "test", Reason: "a test denies it", WouldAllow: "nothing"}, "v1"
			}
			return policy.Decide(a, rules), rules.Version()
		},
		CloseBrowser: func(id domain.SessionID) { b.mu.Lock(); b.browsers = append(b.browsers, id); b.mu.Unlock() },
	})
	if err := b.svc.Recover(b.ctx()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) close() {
	if b.log == nil {
		return
	}
	b.svc.Leave()
	if err := b.log.Log.Close(); err != nil {
		b.t.Error(err)
	}
	b.log = nil
}

// restart is the end of a core and the start of the next one. between may change
// the world in which that happens.
func (b *bench) restart(between func()) {
	b.t.Helper()
	b.close()
	if between != nil {
		between()
	}
	b.open()
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *bench) session() domain.SessionID {
	b.t.Helper()
	d, err := b.svc.Create(b.ctx(), CreateRequest{Project: b.project.ID, Mode: b.mode, Actor: "person"})
	if err != nil {
		b.t.Fatal(err)
	}
	return d.ID
}

func (b *bench) call(s domain.SessionID, name string, args any) *Step {
	b.t.Helper()
	st, err := b.try(s, name, args)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

func (b *bench) try(s domain.SessionID, name string, args any) (*Step, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.svc.Call(b.ctx(), s, CallRequest{Tool: name, Args: raw, Actor: "person"})
}

func argv(words ...string) any { return map[string]any{"argv": words} }

func (b *bench) wait(st *Step, until domain.StepState) StepView {
	b.t.Helper()
	v, err := st.Wait(b.ctx(), until)
	if err != nil {
		b.t.Fatalf("step %d %s: %v (%+v)", st.number, st.ID, err, v)
	}
	return v
}

func (b *bench) step(s domain.SessionID, id domain.StepID) *Step {
	b.t.Helper()
	st, err := b.svc.Step(b.ctx(), s, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// until waits for something that has no channel to wait on.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("never: %s", what)
		}
	}
}

// events lists the types of a session's events (of one step, if given).
func (b *bench) events(s domain.SessionID, step domain.StepID) (out []string) {
	b.t.Helper()
	err := b.log.Log.Fold(b.ctx(), eventlog.Filter{Session: s, Step: step}, func(e event.Envelope) error {
		out = append(out, string(e.Type))
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) answer(s domain.SessionID, choice, text string) {
	b.t.Helper()
	b.until("a question", func() bool { return len(b.ledger.Pending(approval.Scope{Session: s})) > 0 })
	q := b.ledger.Pending(approval.Scope{Session: s})[0]
	if _, err := b.ledger.Answer(b.ctx(), q.ID, q.Asked.Digest, choice, text, "person"); err != nil && !errors.Is(err, eventlog.ErrClosed) {
		b.t.Fatal(err)
	}
}

// gate is what a waiting command of a name waits for.
func (b *bench) gate(name string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[name] == nil {
		b.waiting[name] = make(chan struct{})
	}
	return b.waiting[name]
}

// play is the machine's shell: echo TEXT, put FILE TEXT, wait NAME, fail.
func (b *bench) play(ctx context.Context, spec guest.ExecSpec, x *vmtest.Exec) guest.Exit {
	switch spec.Argv[0] {
	case "echo":
		x.Stdout(strings.Join(spec.Argv[1:], " "))
	case "put":
		b.w.Put(spec.Argv[1], []byte(spec.Argv[2]))
	case "wait":
		select {
		case <-b.gate(spec.Argv[1]):
		case <-ctx.Done():
		}
	case "fail":
		return guest.Exit{Code: 1}
	}
	return guest.Exit{}
}

// look changes nothing, and cannot be joined again.
func (b *bench) look() tool.Tool {
	return tool.Tool{Name: "look", Description: "Looks.", Reach: domain.ReachRead,
		Schema: json.RawMessage(`{"type":"object","properties":{"wait":{"type":"string"},"say":{"type":"string"}},"additionalProperties":false}`),
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			return b.handle(ctx, c)
		}}
}

// hold changes something, and cannot be joined again.
func (b *bench) hold() tool.Tool {
	t := b.look()
	t.Name, t.Changes, t.Reach = "hold", true, domain.ReachMachine
	return t
}

// stepWith calls a changing tool whose work is f.
func (b *bench) stepWith(s domain.SessionID, f func(context.Context) error) *Step {
	b.t.Helper()
	b.mu.Lock()
	b.work = f
	b.mu.Unlock()
	return b.call(s, "hold", map[string]any{"say": "work"})
}

func (b *bench) handle(ctx context.Context, c tool.Call) (tool.Result, error) {
	var a struct{ Wait, Say string }
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return tool.Result{}, err
	}
	if a.Wait != "" {
		select {
		case <-b.gate(a.Wait):
		case <-ctx.Done():
			return tool.Result{}, context.Cause(ctx)
		}
	}
	switch a.Say {
	case "work":
		b.mu.Lock()
		f := b.work
		b.mu.Unlock()
		if err := f(ctx); err != nil {
			return tool.Result{}, err
		}
	case "panic":
		panic("a fault of the tool")
	case "huge":
		out := tool.Result{JSON: json.RawMessage(`"` + strings.Repeat("x", 70<<10) + `"`)}
		for i := range 500 {
			out.Artefacts = append(out.Artefacts, event.Blob{Sha256: fmt.Sprintf("%064d", i), Name: strings.Repeat("n", 200)})
		}
		return out, nil
	case "broken":
		return tool.Result{JSON: json.RawMessage(`{"a":`)}, nil
	case "put":
		b.w.Put("held", []byte(c.Step))
	}
	return tool.Result{JSON: json.RawMessage(`{"said":"` + a.Say + `"}`)}, nil
}

func has(list []string, want string) bool { return slices.Contains(list, want) }

func count(list []string, want string) (n int) {
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

func (b *bench) all(s domain.SessionID) (out []event.Envelope) {
	b.t.Helper()
	if err := b.log.Log.Fold(b.ctx(), eventlog.Filter{Session: s}, func(e event.Envelope) error { out = append(out, e); return nil }); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// removeBlobs loses every artefact.
func removeBlobs(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, eventlog.BlobFolder)); err != nil {
		t.Fatal(err)
	}
}
