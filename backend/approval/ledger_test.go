package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }
func newClock() *clock                   { c := &clock{}; c.ms.Store(1_800_000_000_000); return c }
func bg() context.Context                { return context.Background() }
func hang(t *testing.T) context.Context {
	c, f := context.WithTimeout(bg(), time.Minute)
	t.Cleanup(f)
	return c
}
func openLog(t *testing.T, dir string, c *clock) *eventlog.Log {
	t.Helper()
	l, err := eventlog.Open(dir, eventlog.Options{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newLedger(t *testing.T, log Log, c *clock) *Ledger {
	t.Helper()
	l := New(log, c.now)
	if err := l.Load(bg()); err != nil {
		t.Fatal(err)
	}
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const pushText = "This session may run exactly: git push origin main"

func question(session, step string) Request {
	return Request{Project: "p1", Session: domain.SessionID(session), Step: domain.StepID(step), Actor: "agent:playbook", Kind: "step",
		Title: "Run git push origin main", Digest: "digest-" + step,
		Detail: []event.Field{{Name: "argv", Value: `["git","push","origin","main"]`, Origin: domain.OriginHost}},
		Choices: []event.Choice{{ID: "once", Label: "Allow once"}, {ID: "deny", Label: "Deny"},
			{ID: "session", Label: "Allow for this session", Covers: pushText,
				Grant: &event.Grant{Kind: "tool", Scope: "session", Decision: domain.Allow, Match: "exec|git push origin main"}}}}
}

func recorded(t *testing.T, log *eventlog.Log, types ...event.Type) []event.Envelope {
	t.Helper()
	out, err := log.Read(bg(), eventlog.Filter{Types: types, Limit: eventlog.MaxPage})
	must(t, err)
	return out
}

// told is a log whose readers act on an event before Append has returned to its caller.
type told struct {
	Log
	see func(event.Envelope)
}

func (l told) Append(ctx context.Context, events ...event.New) ([]event.Envelope, error) {
	out, err := l.Log.Append(ctx, events...)
	for _, e := range out {
		l.see(e)
	}
	return out, err
}

// Who learns of a question by its event finds it, however quick it is.
func TestQuestionIsThereWithItsEvent(t *testing.T) {
	c := newClock()
	type found struct {
		a   Approval
		err error
	}
	got := make(chan found, 1)
	var l *Ledger
	log := told{openLog(t, t.TempDir(), c), func(e event.Envelope) {
		p, err := event.Decode(e)
		must(t, err)
		early := make(chan struct{})
		go func() {
			a, err := l.Get(p.(*event.ApprovalRequested).Approval)
			got <- found{a, err}
			close(early)
		}()
		select {
		case <-early:
		case <-time.After(100 * time.Millisecond): // it waits, as it should
		}
	}}
	l = newLedger(t, log, c)
	a, err := l.Ask(bg(), question("s1", "st1"))
	must(t, err)
	if f := <-got; f.err != nil || f.a.ID != a.ID || f.a.Outcome.State != Pending || f.a.EventID != a.EventID {
		t.Errorf("%+v", f)
	}
}

func TestFirstAnswerWins(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	for round := range 20 {
		a, err := l.Ask(bg(), question("s1", fmt.Sprint("st", round)))
		must(t, err)
		got := make(chan Outcome, 2)
		for range 2 {
			go func() { o, _ := l.Wait(hang(t), a.ID); got <- o }()
		}
		var wg sync.WaitGroup
		var won atomic.Int32
		outs := make([]Outcome, 8)
		errs := make([]error, 8)
		for i := range 8 {
			wg.Go(func() {
				choice := []string{"once", "deny", "session"}[i%3]
				outs[i], errs[i] = l.Answer(bg(), a.ID, a.Asked.Digest, choice, "", domain.Actor(fmt.Sprintf("person:%d", i)))
				if errs[i] == nil {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d answers won", won.Load())
		}
		final := <-got
		if other := <-got; other != final || final.State != Answered {
			t.Fatalf("two waiters, two outcomes: %+v %+v", final, other)
		}
		for i := range 8 {
			if errs[i] == nil {
				if outs[i] != final {
					t.Fatalf("%+v is not %+v", outs[i], final)
				}
				continue
			}
			if domain.CodeOf(errs[i]) != domain.CodeConflict || !strings.Contains(errs[i].Error(), string(final.By)) ||
				!strings.Contains(errs[i].Error(), fmt.Sprintf("%q", final.Choice)) || !strings.Contains(errs[i].Error(), "2027-") || outs[i] != final {
				t.Fatalf("the loser is not told who answered what and when: %v", errs[i])
			}
		}
	}
	if n := len(recorded(t, log, "approval.answered")); n != 20 {
		t.Fatalf("%d answers recorded", n)
	}
	// Grants came from the winners alone.
	saved := 0
	for _, e := range recorded(t, log, "approval.answered") {
		if strings.Contains(string(e.Data), `"choice":"session"`) {
			saved++
		}
	}
	if n := len(recorded(t, log, "rule.added")); n != saved || len(l.Grants("p1", "s1")) != saved {
		t.Fatalf("%d rules from %d answers", n, saved)
	}
}

func TestRefusedAnswersChangeNothing(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	a, err := l.Ask(bg(), question("s1", "st1"))
	must(t, err)
	for name, tc := range map[string]struct {
		id           domain.ApprovalID
		digest, pick string
		text         string
		by           domain.Actor
		code         domain.ErrorCode
	}{
		"another digest":       {a.ID, "digest-st2", "once", "", "person", domain.CodeConflict},
		"no digest":            {a.ID, "", "once", "", "person", domain.CodeConflict},
		"a choice not offered": {a.ID, "digest-st1", "project", "", "person", domain.CodeInvalid},
		"no choice":            {a.ID, "digest-st1", "", "", "person", domain.CodeInvalid},
		"a text not asked for": {a.ID, "digest-st1", "once", "hello", "person", domain.CodeInvalid},
		"text alone":           {a.ID, "digest-st1", "", "yes", "person", domain.CodeInvalid},
		"an agent":             {a.ID, "digest-st1", "once", "", "agent:playbook", domain.CodeDenied},
		"the policy":           {a.ID, "digest-st1", "once", "", "policy", domain.CodeDenied},
		"nobody":               {a.ID, "digest-st1", "once", "", "", domain.CodeDenied},
		"the host":             {a.ID, "digest-st1", "deny", "", "host", domain.CodeDenied},
		"another question":     {"ap_x", "digest-st1", "once", "", "person", domain.CodeNotFound},
	} {
		if _, err := l.Answer(bg(), tc.id, tc.digest, tc.pick, tc.text, tc.by); domain.CodeOf(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(l.Pending(Scope{})) != 1 || len(recorded(t, log)) != 1 {
		t.Fatal("a refused answer changed something")
	}
	if _, err := l.Answer(bg(), a.ID, "digest-st1", "once", "", "person"); err != nil {
		t.Fatal(err)
	}
}

// A second question never takes the first one's place, and each waiter gets its own answer.
func TestQueueKeepsOrder(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	var wg sync.WaitGroup
	outcomes := sync.Map{}
	for i := range 30 {
		wg.Go(func() {
			a, err := l.Ask(bg(), question("s1", fmt.Sprint("st", i)))
			if err != nil {
				t.Error(err)
				return
			}
			o, err := l.Wait(hang(t), a.ID)
			if err != nil {
				t.Error(err)
			}
			outcomes.Store(a.ID, o)
		})
	}
	answered := map[domain.ApprovalID]string{}
	for len(answered) < 30 {
		queue := l.Pending(Scope{Session: "s1"})
		for i := 1; i < len(queue); i++ {
			if queue[i-1].EventID >= queue[i].EventID {
				t.Fatal("not first in, first out")
			}
		}
		if len(queue) == 0 {
			continue
		}
		pick := []string{"once", "deny"}[len(answered)%2]
		if _, err := l.Answer(bg(), queue[0].ID, queue[0].Asked.Digest, pick, "", "person"); err != nil {
			t.Fatal(err)
		}
		answered[queue[0].ID] = pick
	}
	wg.Wait()
	for id, pick := range answered {
		o, ok := outcomes.Load(id)
		if !ok || o.(Outcome).Choice != pick {
			t.Errorf("%s was answered %s, its waiter got %+v", id, pick, o)
		}
	}
}

func TestOnlyAnEndEndsIt(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	a, err := l.Ask(bg(), question("s1", "st1"))
	must(t, err)
	// Status reports on the step are not an answer.
	_, err = log.Append(bg(), event.New{Stream: "session:s1", SessionID: "s1", StepID: "st1", Origin: domain.OriginAgent, Payload: &event.StepStarted{}},
		event.New{Stream: "session:s1", SessionID: "s1", StepID: "st1", Origin: domain.OriginAgent, Payload: &event.StepDecided{Decision: domain.Allow, Rule: "default"}})
	must(t, err)
	if got, err := l.Get(a.ID); err != nil || got.Outcome.State != Pending {
		t.Fatal(got, err)
	}
	if got := newLedger(t, log, c).Pending(Scope{}); len(got) != 1 {
		t.Fatal("after a restart:", got)
	}
}

func TestCancelAnswersEveryOpenRequest(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	var ids []domain.ApprovalID
	for _, r := range []Request{question("s1", "a"), question("s1", "b"), question("s2", "c")} {
		a, err := l.Ask(bg(), r)
		must(t, err)
		ids = append(ids, a.ID)
	}
	_, err := l.Answer(bg(), ids[0], "digest-a", "once", "", "person")
	must(t, err)
	waited := make(chan Outcome, 1)
	go func() { o, _ := l.Wait(hang(t), ids[1]); waited <- o }()
	n, err := l.Cancel(bg(), Scope{Session: "s1"})
	must(t, err)
	if o := <-waited; n != 1 || o.State != Cancelled || o.Choice != "" || o.By != "" {
		t.Fatal(n, o)
	}
	if p := l.Pending(Scope{}); len(p) != 1 || p[0].ID != ids[2] {
		t.Fatal(p)
	}
	closed := recorded(t, log, "approval.closed")
	if len(closed) != 1 || !strings.Contains(string(closed[0].Data), `"why":"cancelled"`) || closed[0].StepID != "b" {
		t.Fatal(closed)
	}
	if _, err := l.Answer(bg(), ids[1], "digest-b", "once", "", "person"); domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(err.Error(), "cancelled") {
		t.Fatal(err)
	}
	if _, err := l.Cancel(bg(), Scope{}); err == nil {
		t.Fatal("everything was cancelled at once")
	}
	if _, err := l.Close(bg(), ids[2], Superseded); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Close(bg(), ids[2], Answered); err == nil {
		t.Fatal("closed as answered")
	}
}

func TestExpiryIsNobodysNo(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	ctx, stop := context.WithCancel(bg())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	r := question("s1", "st1")
	r.Expires = 20 * time.Millisecond
	a, err := l.Ask(bg(), r)
	must(t, err)
	c.advance(30 * time.Millisecond)
	o, err := l.Wait(hang(t), a.ID)
	must(t, err)
	if o.State != Expired || o.By != "" || o.Choice != "" {
		t.Fatal(o)
	}
	stop()
	<-ended
	// The answer that comes when the time is over, before Run has seen it, is too late too.
	r.Step, r.Digest = "st2", "digest-st2"
	b, err := l.Ask(bg(), r)
	must(t, err)
	c.advance(20 * time.Millisecond)
	o, err = l.Answer(bg(), b.ID, "digest-st2", "session", "", "person")
	if domain.CodeOf(err) != domain.CodeConflict || o.State != Expired || !strings.Contains(err.Error(), "expired") {
		t.Fatal(o, err)
	}
	for _, e := range recorded(t, log, "approval.closed") {
		if e.Actor != "host" || !strings.Contains(string(e.Data), `"why":"expired"`) {
			t.Fatalf("%s by %s", e.Data, e.Actor)
		}
	}
	if len(recorded(t, log, "approval.answered", "rule.added")) != 0 || len(l.Grants("", "")) != 0 {
		t.Fatal("an expiry was remembered as an answer")
	}
}

func TestRestart(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	log := openLog(t, dir, c)
	l := newLedger(t, log, c)
	var ids []domain.ApprovalID
	for _, step := range []string{"a", "b", "c", "d"} {
		r := question("s1", step)
		if step == "d" {
			r.Expires = time.Minute
		}
		a, err := l.Ask(bg(), r)
		must(t, err)
		ids = append(ids, a.ID)
	}
	_, err := l.Answer(bg(), ids[1], "digest-b", "session", "", "person")
	must(t, err)
	before := l.Pending(Scope{})
	must(t, log.Close()) // and nothing else of the old core

	c.advance(time.Hour)
	log = openLog(t, dir, c)
	l = newLedger(t, log, c)
	after := l.Pending(Scope{})
	x, _ := json.Marshal(before)
	y, _ := json.Marshal(after)
	if string(x) != string(y) {
		t.Fatalf("\n%s\n%s", x, y)
	}
	if o, err := l.Wait(bg(), ids[1]); err != nil || o.Choice != "session" || o.GrantID == "" {
		t.Fatal(o, err)
	}
	ctx, stop := context.WithCancel(bg())
	defer stop()
	go l.Run(ctx)
	if o, err := l.Wait(hang(t), ids[3]); err != nil || o.State != Expired {
		t.Fatal("ran out while nobody looked:", o, err)
	}
	waited := make(chan Outcome, 1)
	go func() { o, _ := l.Wait(hang(t), ids[0]); waited <- o }()
	if _, err := l.Answer(bg(), ids[0], "digest-WRONG", "once", "", "person"); err == nil {
		t.Fatal("a wrong digest passed after the restart")
	}
	_, err = l.Answer(bg(), ids[0], "digest-a", "session", "", "person")
	must(t, err)
	if o := <-waited; o.Choice != "session" {
		t.Fatal(o)
	}
	g := l.Grants("p1", "s1")
	if len(g) != 2 || g[1].Rule.Text != pushText || g[1].Rule.Match != "exec|git push origin main" || g[1].Rule.FromApproval != ids[0] {
		t.Fatalf("%+v", g)
	}
	if p := l.Pending(Scope{}); len(p) != 1 || p[0].ID != ids[2] {
		t.Fatal(p)
	}
}

func TestGrants(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	log := openLog(t, dir, c)
	l := newLedger(t, log, c)
	a, err := l.Ask(bg(), question("s1", "a"))
	must(t, err)
	_, err = l.Answer(bg(), a.ID, "digest-a", "session", "", "person")
	must(t, err)
	r := question("s1", "b")
	r.Kind, r.Host, r.Port = "egress", "pkg.example", 443
	r.Choices = []event.Choice{{ID: "project", Label: "Allow for the project", Covers: "pkg.example:443 for this project, for an hour",
		Grant: &event.Grant{Kind: "egress", Scope: "project", Decision: domain.Allow, Host: "pkg.example", Port: 443, TTLMS: 3_600_000}}, {ID: "deny", Label: "Deny"}}
	b, err := l.Ask(bg(), r)
	must(t, err)
	_, err = l.Answer(bg(), b.ID, "digest-b", "project", "", "person")
	must(t, err)

	check := func(name string, q Query, want bool) {
		t.Helper()
		if _, ok := l.Match(q); ok != want {
			t.Errorf("%s: matched=%v", name, ok)
		}
	}
	check("the same call", Query{Project: "p1", Session: "s1", Match: "exec|git push origin main"}, true)
	check("with an environment prefix", Query{Project: "p1", Session: "s1", Match: "exec|FOO=1 git push origin main"}, false)
	check("with more words", Query{Project: "p1", Session: "s1", Match: "exec|git push origin main --force"}, false)
	check("another session", Query{Project: "p1", Session: "s2", Match: "exec|git push origin main"}, false)
	check("another project", Query{Project: "p2", Session: "s1", Match: "exec|git push origin main"}, false)
	check("an empty query", Query{Project: "p1", Session: "s1"}, false)
	check("the host from another session", Query{Project: "p1", Session: "s2", Host: "pkg.example", Port: 443}, true)
	check("another port", Query{Project: "p1", Session: "s1", Host: "pkg.example", Port: 80}, false)
	check("a longer name", Query{Project: "p1", Session: "s1", Host: "x.pkg.example", Port: 443}, false)

	// Hits are counted by the events that name the rule, so they survive a restart.
	g, _ := l.Match(Query{Project: "p1", Session: "s1", Match: "exec|git push origin main"})
	if g.Hits != 2 {
		t.Fatal(g.Hits)
	}
	for range 2 {
		_, err := log.Append(bg(), event.New{Stream: "session:s1", SessionID: "s1", Origin: domain.OriginHost, Payload: &event.StepDecided{Decision: domain.Allow, Rule: g.RuleName()}})
		must(t, err)
	}
	must(t, log.Close())
	log = openLog(t, dir, c)
	l = newLedger(t, log, c)
	gs := l.Grants("p1", "")
	if len(gs) != 2 || gs[0].Hits != 2 || gs[0].Session != "s1" || gs[1].Session != "" || gs[1].Rule.By != "person" {
		t.Fatalf("%+v", gs)
	}
	c.advance(2 * time.Hour)
	check("after its hour", Query{Project: "p1", Session: "s1", Host: "pkg.example", Port: 443}, false)

	// A no that a person asked to be remembered is stronger than a yes.
	_, err = l.AddGrant(bg(), "p1", "", event.RuleAdded{Kind: "tool", Scope: "project", Decision: domain.Deny, Match: "exec|git push origin main", Text: "never push main"}, "person")
	must(t, err)
	if g, ok := l.Match(Query{Project: "p1", Session: "s1", Match: "exec|git push origin main"}); !ok || g.Rule.Decision != domain.Deny {
		t.Fatal(g)
	}
	for name, err := range map[string]error{
		"an agent makes a rule": second(l.AddGrant(bg(), "p1", "", event.RuleAdded{Kind: "egress", Scope: "project", Decision: domain.Allow, Host: "x.example", Text: "x"}, "agent:playbook")),
		"a rule without words":  second(l.AddGrant(bg(), "p1", "", event.RuleAdded{Kind: "egress", Scope: "project", Decision: domain.Allow, Host: "x.example"}, "person")),
		"an agent removes one":  l.RemoveGrant(bg(), gs[0].ID, "agent:playbook"),
		"one that is not there": l.RemoveGrant(bg(), "gr_x", "person"),
	} {
		if err == nil {
			t.Error(name)
		}
	}
	must(t, l.RemoveGrant(bg(), gs[0].ID, "person"))
	must(t, log.Close())
	log = openLog(t, dir, c)
	l = newLedger(t, log, c)
	for _, g := range l.Grants("p1", "") {
		if g.ID == gs[0].ID {
			t.Fatal("a removed rule came back")
		}
	}
}

func second[T any](_ T, err error) error { return err }

// What the card cannot show whole cannot be allowed.
func TestUnshowableCannotBeAllowed(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	r := question("s1", "a")
	r.Detail = append(r.Detail, event.Field{Name: "script", Value: strings.Repeat("echo \"<ü>\"\n", 4000) + "rm -rf /"})
	a, err := l.Ask(bg(), r)
	must(t, err)
	if len(a.Asked.Choices) != 1 || a.Asked.Choices[0].ID != "deny" {
		t.Fatalf("%+v", a.Asked.Choices)
	}
	if _, err := l.Answer(bg(), a.ID, "digest-a", "once", "", "person"); domain.CodeOf(err) != domain.CodeInvalid {
		t.Fatal(err)
	}
	r.Kind = "question"
	if _, err := l.Ask(bg(), r); domain.CodeOf(err) != domain.CodeTooLarge {
		t.Fatal(err)
	}
	// A rule that cannot be shown whole is not offered.
	r = question("s1", "d")
	r.Choices[2].Covers = strings.Repeat("x", 10000)
	if a, err := l.Ask(bg(), r); err != nil || len(a.Asked.Choices) != 2 || a.Asked.Choices[0].ID != "once" {
		t.Fatal(err)
	}
	// Whatever it is made of, the question fits into an event, and one that fits can be allowed.
	for name, fill := range map[string]string{"control characters": "\x1b", "quotes": `"`, "letters": "x", "runes": "€", "no text": "\xff"} {
		r := question("s1", "c")
		r.Detail = nil
		for range maxFields {
			r.Detail = append(r.Detail, event.Field{Name: strings.Repeat(fill, 500), Value: strings.Repeat(fill, 30000)})
		}
		r.Title = strings.Repeat(fill, 5000)
		if a, err := l.Ask(bg(), r); err != nil || len(a.Asked.Choices) != 1 {
			t.Fatal(name, err)
		}
		r.Title, r.Detail = "x", []event.Field{{Name: "script", Value: strings.Repeat(fill, 3000)}}
		if a, err := l.Ask(bg(), r); err != nil || len(a.Asked.Choices) != 3 {
			t.Fatal(name, err)
		}
	}
	// Bytes that are no text are shown by their numbers.
	r = question("s1", "b")
	r.Detail = []event.Field{{Name: "argv", Value: "rm \xff\xfe"}}
	a, err = l.Ask(bg(), r)
	must(t, err)
	if a.Asked.Detail[0].Value != `"rm \xff\xfe"` {
		t.Fatal(a.Asked.Detail)
	}
}

func TestAskRefuses(t *testing.T) {
	c := newClock()
	log := openLog(t, t.TempDir(), c)
	l := newLedger(t, log, c)
	for name, fn := range map[string]func(*Request){
		"no owner":              func(r *Request) { r.Project, r.Session = "", "" },
		"no digest":             func(r *Request) { r.Digest = "" },
		"no title":              func(r *Request) { r.Title = "" },
		"no choices":            func(r *Request) { r.Choices = nil },
		"two choices of one id": func(r *Request) { r.Choices = append(r.Choices, r.Choices[0]) },
		"a kind nobody knows":   func(r *Request) { r.Kind = "magic" },
		"a rule without words":  func(r *Request) { r.Choices[2].Covers = "" },
		"a rule for everything": func(r *Request) {
			r.Choices[2].Grant = &event.Grant{Kind: "tool", Scope: "session", Decision: domain.Allow}
		},
		"a rule of no scope":   func(r *Request) { r.Choices[2].Grant = &event.Grant{Kind: "tool", Decision: domain.Allow, Match: "x"} },
		"a rule of no project": func(r *Request) { r.Project = "" },
		"a negative expiry":    func(r *Request) { r.Expires = -1 },
		"an egress rule without": func(r *Request) {
			r.Choices[2].Grant = &event.Grant{Kind: "egress", Scope: "session", Decision: domain.Allow}
		},
	} {
		r := question("s1", "a")
		fn(&r)
		if _, err := l.Ask(bg(), r); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(recorded(t, log)) != 0 || len(l.Pending(Scope{})) != 0 {
		t.Fatal("something was asked")
	}
}

// A log that cannot be written: nothing is decided, and the same answer works later.
func TestAnswerNeedsTheLog(t *testing.T) {
	c := newClock()
	f := &flaky{Log: openLog(t, t.TempDir(), c)}
	l := newLedger(t, f, c)
	a, err := l.Ask(bg(), question("s1", "a"))
	must(t, err)
	f.fail.Store(true)
	if _, err := l.Answer(bg(), a.ID, "digest-a", "session", "", "person"); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if _, err := l.Ask(bg(), question("s1", "b")); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if _, err := l.Cancel(bg(), Scope{Session: "s1"}); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if len(l.Grants("", "")) != 0 || len(l.Pending(Scope{})) != 1 {
		t.Fatal("something was decided without a record")
	}
	short, stop := context.WithTimeout(bg(), time.Millisecond)
	defer stop()
	if o, err := l.Wait(short, a.ID); err == nil || o.State != Pending {
		t.Fatal(o, err)
	}
	f.fail.Store(false)
	if o, err := l.Answer(bg(), a.ID, "digest-a", "session", "", "person"); err != nil || o.GrantID == "" {
		t.Fatal(o, err)
	}
}

var errFull = errors.New("full")

type flaky struct {
	*eventlog.Log
	fail atomic.Bool
}

func (f *flaky) Append(ctx context.Context, ev ...event.New) ([]event.Envelope, error) {
	if f.fail.Load() {
		return nil, errFull
	}
	return f.Log.Append(ctx, ev...)
}

func TestFreeText(t *testing.T) {
	c := newClock()
	l := newLedger(t, openLog(t, t.TempDir(), c), c)
	r := question("s1", "a")
	r.Kind, r.Choices, r.FreeText = "question", nil, true
	a, err := l.Ask(bg(), r)
	must(t, err)
	if _, err := l.Answer(bg(), a.ID, "digest-a", "", strings.Repeat("x", maxText+1), "person"); domain.CodeOf(err) != domain.CodeTooLarge {
		t.Fatal(err)
	}
	o, err := l.Answer(bg(), a.ID, "digest-a", "", "use port 8080", "person")
	if err != nil || o.Text != "use port 8080" {
		t.Fatal(o, err)
	}
}
