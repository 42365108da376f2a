package core

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/machine"
	"glasshouse/backend/policy"
	"glasshouse/backend/project"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// onMachine is a machine that runs and notes that it was stopped.
type onMachine struct {
	vm.Machine
	stopped chan error // what the context of the stop said
}

func (m onMachine) Info(context.Context) (vm.Info, error) { return vm.Info{State: vm.StateReady}, nil }
func (m onMachine) Dial(context.Context) (io.ReadWriteCloser, error) {
	return nil, vm.ErrNotRunning
}
func (m onMachine) Stop(ctx context.Context) error {
	m.stopped <- ctx.Err()
	return nil
}

type onManager struct {
	vm.Manager
	m onMachine
}

func (o onManager) Open(context.Context, string) (vm.Machine, error) { return o.m, nil }

type worldMachines struct{ w *vmtest.World }

func (w worldMachines) Ensure(context.Context, domain.Project) (guest.Guest, error) {
	return w.w.Open(), nil
}
func (w worldMachines) Running(domain.ProjectID) (guest.Guest, bool) { return w.w.Open(), true }

// A guest that never answers about a step's seal must not keep the machines from
// being powered off, nor the end of the core from being recorded.
func TestQuitWithAGuestThatNeverSeals(t *testing.T) {
	old := settleWaitNow
	settleWaitNow = 300 * time.Millisecond
	t.Cleanup(func() { settleWaitNow = old })
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	p := domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}
	if _, err := log.Append(t.Context(), event.New{Stream: event.ProjectStream(p.ID), Origin: domain.OriginHost, Actor: "person", ProjectID: p.ID, Payload: &event.ProjectCreated{Project: p}}); err != nil {
		t.Fatal(err)
	}
	silent := make(chan struct{})
	asked := make(chan struct{}, 1)
	w := vmtest.NewWorld()
	w.Fail = func(method string) error {
		if method == "checkpoints.take" {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-silent
		}
		return nil
	}
	m := onMachine{stopped: make(chan error, 1)}
	c := &Core{log: slog.New(slog.DiscardHandler), events: log, ledger: approval.New(log, nil), browsers: newBrowsers(nil), quit: make(chan struct{}), gate: egress.New(egress.Config{})}
	c.fleet = machine.New(machine.Config{Managers: map[string]vm.Manager{"local": onManager{m: m}}, Record: c.record, Publish: func(event.New) {},
		Egress: func(domain.ProjectID) guest.EgressHandler { return nil }})
	c.projects = project.New(project.Config{Log: log, Ledger: c.ledger, Fleet: c.fleet})
	if err := c.projects.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	tools, err := tool.NewRegistry(tool.Tool{Name: "touch", Description: "changes something", Reach: domain.ReachMachine, Changes: true,
		Schema:  json.RawMessage(`{"type":"object","additionalProperties":false}`),
		Handler: func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	c.sessions = session.New(session.Config{Log: log, Ledger: c.ledger, Machines: worldMachines{w}, Project: c.projects.Get, Tools: tools,
		Decide: func(domain.ProjectID, policy.Action) (policy.Decision, string) {
			return policy.Decision{Decision: domain.Allow}, "1"
		}})
	t.Cleanup(func() {
		close(silent)
		c.sessions.Leave()
	})
	s, err := c.sessions.Create(t.Context(), session.CreateRequest{Project: p.ID, Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.sessions.Call(t.Context(), s.ID, session.CallRequest{Tool: "touch", Args: json.RawMessage("{}"), Actor: "person"}); err != nil {
		t.Fatal(err)
	}
	<-asked
	done := make(chan error, 1)
	go func() { done <- c.askQuit(t.Context(), true) }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("quit hangs on a guest that does not answer")
	}
	select {
	case err := <-m.stopped:
		if err != nil {
			t.Fatalf("the machine was stopped with a context that was over: %v", err)
		}
	default:
		t.Fatal("the machine was left running")
	}
	<-c.quit
	last, err := log.Read(t.Context(), eventlog.Filter{Stream: event.HostStream, Types: []event.Type{"core.stopped"}, Tail: true, Limit: 1})
	if err != nil || len(last) != 1 {
		t.Fatalf("the end was not recorded: %v %v", last, err)
	}
}

// A guest may claim any session. The rules of one that has ended open nothing.
func TestRulesOfAnEndedSession(t *testing.T) {
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	p := domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}
	c := &Core{events: log, ledger: approval.New(log, nil), rules: policy.NewStore("", nil)}
	c.sessions = session.New(session.Config{Log: log, Ledger: c.ledger, Machines: worldMachines{vmtest.NewWorld()},
		Project: func(domain.ProjectID) (domain.Project, error) { return p, nil }})
	t.Cleanup(c.sessions.Leave)
	s, err := c.sessions.Create(t.Context(), session.CreateRequest{Project: p.ID, Actor: "person"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ledger.AddGrant(t.Context(), p.ID, s.ID, event.RuleAdded{Kind: "egress", Scope: "session", Decision: domain.Allow, Host: "a.example", Port: 443, Text: "allow a.example"}, "person"); err != nil {
		t.Fatal(err)
	}
	to, err := egress.ParseTarget("a.example:443", 0)
	if err != nil {
		t.Fatal(err)
	}
	claim := egress.Scope{Project: p.ID, Session: s.ID}
	if _, ok := c.matchEgress(claim, to); !ok {
		t.Fatal("the rule does not count while its session lives")
	}
	if err := c.sessions.End(t.Context(), s.ID, "person"); err != nil {
		t.Fatal(err)
	}
	if r, ok := c.matchEgress(claim, to); ok {
		t.Fatalf("a rule of a session that has ended still opens the host: %+v", r)
	}
	if ok, _ := c.sessions.Known(p.ID, s.ID, ""); ok {
		t.Error("a session that has ended takes a claim")
	}
}
