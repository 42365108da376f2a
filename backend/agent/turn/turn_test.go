package turn

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/agent"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/policy"
	"glasshouse/backend/session"
	"glasshouse/backend/tool"
	"glasshouse/backend/tool/builtin"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

var project = domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}

// bench is the service over a real log and real sessions, with a machine in memory and
// agents that do what a test says.
type bench struct {
	t       *testing.T
	dir     string
	w       *vmtest.World
	g       *vmtest.Guest
	log     *eventlog.Log
	ses     *session.Service
	svc     *Service
	turn    func(ctx context.Context, r agent.Room, prompt string) error
	makeErr error
	mu      sync.Mutex
	made    []Spec
	execs   int
}

type fakeAgent struct {
	b *bench
	r agent.Room
}

func (f fakeAgent) Name() string { return "model" }
func (f fakeAgent) Turn(ctx context.Context, _ agent.Work, prompt string) error {
	return f.b.turn(ctx, f.r, prompt)
}

func (b *bench) Ensure(ctx context.Context, _ domain.Project) (guest.Guest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.g == nil || b.g.Err() != nil {
		b.g = b.w.Open()
	}
	return b.g, context.Cause(ctx)
}

func (b *bench) Running(domain.ProjectID) (guest.Guest, bool) {
	g, err := b.Ensure(context.Background(), project)
	return g, err == nil
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), w: vmtest.NewWorld()}
	b.w.OnExec = func(ctx context.Context, spec guest.ExecSpec, _ *vmtest.Exec) guest.Exit {
		b.mu.Lock()
		b.execs++
		b.mu.Unlock()
		if spec.Argv[0] == "hang" {
			<-ctx.Done()
			return guest.Exit{Code: 137}
		}
		return guest.Exit{}
	}
	b.open()
	t.Cleanup(b.close)
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	if b.log, err = eventlog.Open(b.dir, eventlog.Options{}); err != nil {
		b.t.Fatal(err)
	}
	ledger := approval.New(b.log, nil)
	if err := ledger.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	tools, err := tool.NewRegistry(builtin.All()...)
	if err != nil {
		b.t.Fatal(err)
	}
	rules := policy.Builtin()
	find := func(domain.ProjectID) (domain.Project, error) { return project, nil }
	b.ses = session.New(session.Config{Log: b.log, Ledger: ledger, Machines: b, Tools: tools, Project: find, Resumes: Resumes,
		Decide: func(_ domain.ProjectID, a policy.Action) (policy.Decision, string) {
			return policy.Decide(a, rules), rules.Version()
		}})
	b.svc = New(Config{Sessions: b.ses, Project: find, Tools: tools.List, Blobs: b.log, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Make: func(_ context.Context, s Spec, r agent.Room) (agent.Agent, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.made = append(b.made, s)
			return fakeAgent{b, r}, b.makeErr
		}})
	if err := b.ses.Recover(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.svc.Resume(b.t.Context())
}

func (b *bench) close() {
	b.svc.Leave()
	b.ses.Leave()
	if b.log != nil {
		if err := b.log.Close(); err != nil {
			b.t.Error(err)
		}
	}
	b.log = nil
}

func (b *bench) session(checks ...event.Check) domain.SessionID {
	b.t.Helper()
	d, err := b.ses.Create(b.t.Context(), session.CreateRequest{Project: project.ID, Agent: "model", Model: "m", Actor: "person", Checks: checks})
	if err != nil {
		b.t.Fatal(err)
	}
	return d.ID
}

func (b *bench) start(s domain.SessionID) domain.TurnID {
	b.t.Helper()
	id, err := b.svc.Start(b.t.Context(), s, Spec{Kind: "model"}, session.TurnRequest{Prompt: "work", Actor: "person"})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// ends are the results of a session's turns so far.
func (b *bench) ends(s domain.SessionID) (out []string) {
	b.t.Helper()
	if err := b.log.Fold(b.t.Context(), eventlog.Filter{Session: s, Types: []event.Type{"turn.ended"}}, func(e event.Envelope) error {
		var p event.TurnEnded
		err := json.Unmarshal(e.Data, &p)
		out = append(out, p.Result+": "+p.Reason)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) until(what string, f func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("never: %s", what)
		}
	}
}

func (b *bench) untilEnd(s domain.SessionID, n int) string {
	b.t.Helper()
	b.until("the turn's end", func() bool { return len(b.ends(s)) == n })
	return b.ends(s)[n-1]
}

func TestHowTurnsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		turn   func(ctx context.Context, r agent.Room, prompt string) error
		checks []event.Check
		want   string
	}{
		"done":               {func(context.Context, agent.Room, string) error { return nil }, nil, "unchecked: no check"},
		"done and right":     {func(context.Context, agent.Room, string) error { return nil }, []event.Check{{Name: "c", Argv: []string{"true"}}}, "ok: "},
		"done and wrong":     {func(context.Context, agent.Room, string) error { return nil }, []event.Check{{Name: "c", Argv: []string{"true"}, Exit: 3}}, "failed: the check"},
		"failed":             {func(context.Context, agent.Room, string) error { return errors.New("no model") }, []event.Check{{Name: "c", Argv: []string{"true"}}}, "failed: no model"},
		"stopped by a limit": {func(context.Context, agent.Room, string) error { return &agent.Stopped{Reason: "$2 are spent"} }, nil, "stopped: $2 are spent"},
		"a panic of ours":    {func(context.Context, agent.Room, string) error { panic("oops") }, nil, "failed: the agent failed inside Glasshouse: oops"},
		"its prompt and step": {func(ctx context.Context, r agent.Room, prompt string) error {
			if prompt != "work" {
				return errors.New("another prompt: " + prompt)
			}
			v, err := r.Call(ctx, "exec", json.RawMessage(`{"argv":["true"]}`), domain.StepEnded)
			if err != nil || v.Ended.Outcome != domain.OutcomeOK {
				return errors.New("the step")
			}
			return errors.Join(r.Say(ctx, "hello"), r.Record(ctx, &event.PlanUpdated{Turn: r.Turn(), Items: []event.PlanItem{{Text: "x", State: "open"}}}))
		}, nil, "unchecked: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.turn = tc.turn
			s := b.session(tc.checks...)
			b.start(s)
			if got := b.untilEnd(s, 1); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s", got)
			}
			// Another one may begin at once.
			b.start(s)
			b.untilEnd(s, 2)
		})
	}
}

// To go on needs a turn of that agent before: nothing is made, asked or recorded for one
// that has none.
func TestGoOnNeedsATurnBefore(t *testing.T) {
	b := newBench(t)
	b.turn = func(context.Context, agent.Room, string) error { return nil }
	s, other := b.session(), b.session()
	refused := func(when string) {
		t.Helper()
		var e *domain.Error
		made := len(b.made)
		_, err := b.svc.Start(t.Context(), s, Spec{Kind: "model"}, session.TurnRequest{GoOn: true, Actor: "person"})
		if !errors.As(err, &e) || e.Code != domain.CodeConflict || !strings.Contains(e.Hint, "glasshouse run --session "+string(s)+" '") || len(b.made) != made {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("of an empty session")
	b.start(other)
	b.untilEnd(other, 1)
	refused("where another session has a turn")
	if _, err := b.svc.Start(t.Context(), s, Spec{Kind: "playbook"}, session.TurnRequest{Actor: "person"}); err != nil {
		t.Fatal(err)
	}
	b.untilEnd(s, 1)
	refused("after a playbook")
	b.start(s)
	b.untilEnd(s, 2)
	if _, err := b.svc.Start(t.Context(), s, Spec{Kind: "model"}, session.TurnRequest{GoOn: true, Actor: "person"}); err != nil {
		t.Errorf("after a turn of a model: %v", err)
	}
	b.untilEnd(s, 3)
}

func TestWhatCannotStart(t *testing.T) {
	b := newBench(t)
	b.turn = func(ctx context.Context, _ agent.Room, _ string) error { <-ctx.Done(); return context.Cause(ctx) }
	s := b.session()
	for _, r := range []struct {
		spec Spec
		req  session.TurnRequest
	}{{Spec{Kind: "model"}, session.TurnRequest{Prompt: " \n"}}, {Spec{Kind: "playbook"}, session.TurnRequest{GoOn: true}}} {
		var e *domain.Error
		if _, err := b.svc.Start(t.Context(), s, r.spec, r.req); !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer == "" {
			t.Errorf("%+v: %v", r, err)
		}
	}
	b.makeErr = domain.E(domain.CodeUnavailable, "there is no model", "add one", nil)
	if _, err := b.svc.Start(t.Context(), s, Spec{Kind: "model"}, session.TurnRequest{Prompt: "x"}); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Error(err)
	}
	b.makeErr = nil
	b.start(s)
	if _, err := b.svc.Start(t.Context(), s, Spec{Kind: "model"}, session.TurnRequest{Prompt: "x"}); domain.CodeOf(err) != domain.CodeConflict {
		t.Error(err)
	}
	if len(b.ends(s)) != 0 {
		t.Error("what could not start ended")
	}
	if got := b.made[len(b.made)-1]; got.Model != "m" {
		t.Errorf("the session's model was not asked for: %+v", got)
	}
}

// A stop ends the model's answer, the steps, the turn: in one call, and for good.
func TestStop(t *testing.T) {
	b := newBench(t)
	begun := make(chan struct{})
	b.turn = func(ctx context.Context, r agent.Room, _ string) error {
		for i := range 5 {
			if _, err := r.Begin(ctx, "exec", json.RawMessage(`{"argv":["hang"]}`), string(rune('a'+i))); err != nil {
				return err
			}
		}
		close(begun)
		<-ctx.Done()
		// An agent that does not listen cannot begin anything either.
		if _, err := r.Begin(ctx, "exec", json.RawMessage(`{"argv":["hang"]}`), "late"); err == nil {
			t.Error("a step began in a stopped turn")
		}
		return context.Cause(ctx)
	}
	s := b.session(event.Check{Name: "c", Argv: []string{"true"}})
	b.start(s)
	<-begun
	b.until("a command", func() bool { return len(b.w.Started()) == 1 })
	if err := b.svc.Stop(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := b.ends(s); !slices.Equal(got, []string{"cancelled: it was stopped"}) {
		t.Errorf("%v", got)
	}
	if n := b.ses.Running(t.Context())[s]; n != 0 {
		t.Errorf("%d steps run on", n)
	}
	execs, err := b.g.Execs().List(t.Context())
	for _, x := range execs {
		if x.Running {
			t.Errorf("it runs on: %+v", x)
		}
	}
	if err != nil || b.execs != 1 {
		t.Errorf("%d commands ran, %v", b.execs, err)
	}
	if err := b.svc.Stop(t.Context(), s); err != nil {
		t.Errorf("a stop of nothing: %v", err)
	}
}

// A stop that comes with the very record of a turn's start stops that turn.
func TestStopAtTheStart(t *testing.T) {
	b := newBench(t)
	b.turn = func(ctx context.Context, _ agent.Room, _ string) error { <-ctx.Done(); return context.Cause(ctx) }
	s := b.session()
	sub := b.log.Subscribe(eventlog.Filter{Session: s, Types: []event.Type{"turn.started"}}, b.log.LatestID())
	defer sub.Close()
	for i := range 40 {
		stopped := make(chan error, 1)
		go func() {
			for range sub.All(t.Context()) {
				stopped <- b.svc.Stop(t.Context(), s)
				return
			}
		}()
		b.start(s)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if n := len(b.ends(s)); n != i+1 {
			t.Fatalf("the stop was answered and turn %d goes on", i+1)
		}
	}
}

// One that is refused because a turn runs leaves that turn to be stopped.
func TestRefusedStartLeavesTheTurn(t *testing.T) {
	b := newBench(t)
	b.turn = func(ctx context.Context, _ agent.Room, _ string) error { <-ctx.Done(); return context.Cause(ctx) }
	s := b.session()
	b.start(s)
	for range 3 {
		if _, err := b.svc.Start(t.Context(), s, Spec{Kind: "model"}, session.TurnRequest{Prompt: "x"}); domain.CodeOf(err) != domain.CodeConflict {
			t.Fatal(err)
		}
	}
	if err := b.svc.Stop(t.Context(), s); err != nil || len(b.ends(s)) != 1 {
		t.Errorf("%v %v", err, b.ends(s))
	}
	b.until("nothing to be kept", func() bool { b.svc.mu.Lock(); defer b.svc.mu.Unlock(); return len(b.svc.running) == 0 })
}

// Checks are part of the turn: stopped with it.
func TestStopOfTheChecks(t *testing.T) {
	b := newBench(t)
	b.turn = func(context.Context, agent.Room, string) error { return nil }
	s := b.session(event.Check{Name: "slow", Argv: []string{"hang"}})
	b.start(s)
	b.until("the check", func() bool { return len(b.w.Started()) == 1 })
	if err := b.svc.Stop(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := b.ends(s); len(got) != 1 || !strings.HasPrefix(got[0], "cancelled: ") {
		t.Errorf("%v", got)
	}
}

func TestEndOfASessionEndsItsTurn(t *testing.T) {
	b := newBench(t)
	gone := make(chan struct{})
	b.turn = func(ctx context.Context, _ agent.Room, _ string) error {
		<-ctx.Done()
		close(gone)
		return context.Cause(ctx)
	}
	s, other := b.session(), b.session()
	b.start(s)
	if err := b.svc.End(t.Context(), s, "person"); err != nil {
		t.Fatal(err)
	}
	<-gone
	if got := b.ends(s); len(got) != 1 || !strings.HasPrefix(got[0], "cancelled: ") {
		t.Errorf("%v", got)
	}
	if err := b.svc.StopAll(t.Context()); err != nil || len(b.ends(other)) != 0 {
		t.Error(err)
	}
}

// A core that leaves ends no turn; the next one goes on with it, with the same id and
// prompt, and gives one up that never gets anywhere.
func TestGoesOnAfterARestart(t *testing.T) {
	b := newBench(t)
	type entry struct {
		turn   domain.TurnID
		prompt string
	}
	entered := make(chan entry, 10)
	b.turn = func(ctx context.Context, r agent.Room, prompt string) error {
		entered <- entry{r.Turn(), prompt}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s := b.session()
	id := b.start(s)
	for i := range maxTries + 1 {
		if got := <-entered; got != (entry{id, "work"}) {
			t.Fatalf("%d: %+v", i, got)
		}
		b.close()
		b.open()
	}
	if got := b.untilEnd(s, 1); !strings.HasPrefix(got, "interrupted: ") {
		t.Errorf("%s", got)
	}
	if len(entered) != 0 {
		t.Error("it was taken up once more")
	}
	// What cannot be made again ends, and says why.
	s2 := b.session()
	b.start(s2)
	<-entered
	b.close()
	b.makeErr = errors.New("the model was removed")
	b.open()
	if got := b.untilEnd(s2, 1); !strings.HasPrefix(got, "interrupted: ") || !strings.Contains(got, "the model was removed") {
		t.Errorf("%s", got)
	}
}

// A question of an earlier core is not put twice, though its figures may differ.
func TestAskIsBoundToWhatItIsAbout(t *testing.T) {
	b := newBench(t)
	titles := []string{"80 %", "81 %"}
	replies := make(chan agent.Reply, 2)
	b.turn = func(ctx context.Context, r agent.Room, _ string) error {
		title := titles[0]
		if len(titles) > 1 {
			titles = titles[1:]
		}
		rep, err := r.Ask(ctx, agent.Question{Kind: "limit", Key: "k", Title: title, Choices: []event.Choice{{ID: "go_on", Label: "Go on"}, {ID: "stop", Label: "Stop"}}})
		if err == nil {
			replies <- rep
		}
		return err
	}
	s := b.session()
	b.start(s)
	asked := func() (n int) {
		_ = b.log.Fold(t.Context(), eventlog.Filter{Session: s, Types: []event.Type{"approval.requested"}}, func(event.Envelope) error { n++; return nil })
		return n
	}
	b.until("the question", func() bool { return asked() == 1 })
	b.close()
	b.open()
	time.Sleep(20 * time.Millisecond) // a second question would come now
	if n := asked(); n != 1 {
		t.Fatalf("%d questions", n)
	}
	if err := b.svc.Stop(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := asked(); n != 1 || len(replies) != 0 {
		t.Errorf("%d questions, %d replies", n, len(replies))
	}
}
