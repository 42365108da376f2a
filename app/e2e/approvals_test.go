package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"glasshouse/app/httpapi"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/session"
)

const approvalPolicy = `
[[rule]]
id = "touch"
decision = "ask"
reason = "Touching asks here."
argv = ["touch", "**"]

[[rule]]
id = "no-push"
decision = "deny"
reason = "Pushing goes through a review."
would_allow = "git commit, then a review"
argv = ["git", "push", "**"]
`

// desk is a world with one project, and the calls these tests make again and again.
type desk struct {
	*World
	p httpapi.ProjectView
}

func newDesk(t *testing.T, kind, settings string) *desk {
	w := NewWorld(t, kind)
	w.Settings(settings)
	if err := os.WriteFile(filepath.Join(w.Dir, "c", "policy.toml"), []byte(approvalPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Start()
	return &desk{w, w.Project("")}
}

// in runs a part of the test on the same world.
func (d *desk) in(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		old := d.t
		d.t = t
		defer func() { d.t = old }()
		f(t)
	})
}

func (d *desk) start(s string, body map[string]any) httpapi.ExecAnswer {
	d.t.Helper()
	var a httpapi.ExecAnswer
	d.Call("POST", "/v1/sessions/"+s+"/exec?wait=sealed", body, &a)
	return a
}

// asks starts a command that must ask, and returns its question.
func (d *desk) asks(s string, body map[string]any) (httpapi.ExecAnswer, approval.Approval) {
	d.t.Helper()
	a := d.start(s, body)
	if a.State != domain.StepAsking || a.ApprovalID == "" {
		d.t.Fatalf("%v does not ask: %+v", body, a)
	}
	return a, d.question(a.ApprovalID)
}

func (d *desk) question(id domain.ApprovalID) (ap approval.Approval) {
	d.t.Helper()
	d.Call("GET", "/v1/approvals/"+string(id), nil, &ap)
	return ap
}

func (d *desk) answer(actor string, ap approval.Approval, choice string) error {
	return d.TryAs(actor, "POST", "/v1/approvals/"+string(ap.ID)+"/answer", map[string]string{"digest": ap.Asked.Digest, "choice": choice}, nil)
}

func (d *desk) step(s string, id domain.StepID, wait string) (v session.StepView) {
	d.t.Helper()
	d.Call("GET", "/v1/sessions/"+s+"/steps/"+string(id)+"?wait="+wait, nil, &v)
	return v
}

// refused waits until a step that asks has ended without running.
func (d *desk) refused(s string, id domain.StepID) session.StepView {
	d.t.Helper()
	var v session.StepView
	d.Until("the end of the question", func() bool {
		v = d.step(s, id, "started")
		return v.State != domain.StepAsking
	})
	if v.Refused == nil || v.Ended != nil {
		d.t.Fatalf("the step was not refused: %+v", v)
	}
	return v
}

// ends lists the events that ended a question.
func (d *desk) ends(id domain.ApprovalID) (out []event.Payload) {
	d.t.Helper()
	for _, e := range d.Log(nil) {
		if e.Type != "approval.answered" && e.Type != "approval.closed" {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			d.t.Fatal(err)
		}
		switch x := p.(type) {
		case *event.ApprovalAnswered:
			if x.Approval == id {
				out = append(out, x)
			}
		case *event.ApprovalClosed:
			if x.Approval == id {
				out = append(out, x)
			}
		}
	}
	return out
}

func touch(name string) map[string]any { return map[string]any{"argv": []string{"touch", name}} }

func TestApprovals(t *testing.T) {
	onKind(t, "local")
	d := newDesk(t, "local", "")
	s := d.Session(d.p)
	exists := func(name string) bool {
		a := d.Bash(s, "test -e "+name)
		return a.ExitCode != nil && *a.ExitCode == 0
	}

	d.in(t, "two answers at once", func(t *testing.T) {
		won := map[string]int{}
		for i := range 40 {
			name := fmt.Sprintf("race-%d", i)
			a, ap := d.asks(s, touch(name))
			who := []string{"person", "demo"}
			choice := []string{"once", "deny"}
			if i%2 == 1 {
				choice[0], choice[1] = choice[1], choice[0]
			}
			var errs [2]error
			var ready, wg sync.WaitGroup
			ready.Add(2)
			for n := range 2 {
				wg.Go(func() {
					ready.Done()
					ready.Wait()
					errs[n] = d.answer(who[n], ap, choice[n])
				})
			}
			wg.Wait()
			win := 0
			if errs[0] != nil {
				win = 1
			}
			if errs[win] != nil || errs[1-win] == nil {
				t.Fatalf("round %d: the answers got %v and %v", i, errs[0], errs[1])
			}
			won[choice[win]]++
			out := d.question(ap.ID).Outcome
			at := time.UnixMilli(out.At).UTC().Format(time.RFC3339)
			var e *apiErr
			if !errors.As(errs[1-win], &e) || e.Code != "conflict" || e.Status != 409 {
				t.Fatalf("the loser got %v", errs[1-win])
			}
			for _, part := range []string{who[win], `"` + choice[win] + `"`, at} {
				if !strings.Contains(e.What, part) {
					t.Errorf("the loser is not told %s: %s", part, e.What)
				}
			}
			if string(out.By) != who[win] || out.Choice != choice[win] {
				t.Errorf("recorded is %+v, %s said %s", out, who[win], choice[win])
			}
			if ends := d.ends(ap.ID); len(ends) != 1 {
				t.Errorf("the question ended %d times", len(ends))
			}
			v := d.step(s, a.ExecutionID, "sealed")
			if ran := v.Ended != nil; ran != (choice[win] == "once") || ran != exists(name) {
				t.Errorf("round %d: %s won, the step is %+v", i, choice[win], v)
			}
		}
		t.Logf("won: %v", won)
	})

	d.in(t, "what is no answer", func(t *testing.T) {
		a, ap := d.asks(s, touch("wrong"))
		at := "/v1/approvals/" + string(ap.ID) + "/answer"
		other := strings.Repeat("0", len(ap.Asked.Digest))
		for name, c := range map[string]struct {
			actor, path string
			in          map[string]any
			code        string
		}{
			"a wrong digest":     {"person", at, map[string]any{"digest": other, "choice": "once"}, "conflict"},
			"no digest":          {"person", at, map[string]any{"digest": "", "choice": "once"}, "conflict"},
			"an unknown choice":  {"person", at, map[string]any{"digest": ap.Asked.Digest, "choice": "always"}, "invalid"},
			"an agent":           {"agent", at, map[string]any{"digest": ap.Asked.Digest, "choice": "once"}, "denied"},
			"a script":           {"script", at, map[string]any{"digest": ap.Asked.Digest, "choice": "once"}, "denied"},
			"an unknown actor":   {"root", at, map[string]any{"digest": ap.Asked.Digest, "choice": "once"}, "invalid"},
			"an unknown id":      {"person", "/v1/approvals/ap_none/answer", map[string]any{"digest": ap.Asked.Digest, "choice": "once"}, "not_found"},
			"a very long answer": {"person", at, map[string]any{"digest": ap.Asked.Digest, "choice": "deny", "text": strings.Repeat("x", 9000)}, "invalid"},
		} {
			if err := d.TryAs(c.actor, "POST", c.path, c.in, nil); code(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := d.question(ap.ID); got.Outcome.State != approval.Pending || d.step(s, a.ExecutionID, "started").State != domain.StepAsking {
			t.Errorf("something of that ended the question: %+v", got.Outcome)
		}
		if err := d.TryAs("person", "POST", at, map[string]any{"digest": ap.Asked.Digest, "choice": "deny", "text": "not today"}, nil); err != nil {
			t.Fatal(err)
		}
		if v := d.refused(s, a.ExecutionID); v.State != domain.StepDenied || !strings.Contains(v.Refused.Reason, "not today") {
			t.Errorf("%+v", v)
		}
		if exists("wrong") {
			t.Error("the denied command ran")
		}
	})

	d.in(t, "cancel and end close a question", func(t *testing.T) {
		own := d.Session(d.p)
		for how, path := range map[string]func(domain.StepID) (string, any){
			"the step": func(id domain.StepID) (string, any) {
				return "/v1/sessions/" + own + "/cancel", map[string]any{"step_id": id}
			},
			"the session": func(domain.StepID) (string, any) { return "/v1/sessions/" + own + "/cancel", map[string]any{} },
		} {
			a, ap := d.asks(own, touch("cancelled"))
			at, in := path(a.ExecutionID)
			d.Call("POST", at, in, nil)
			d.closed(t, how, own, a, ap)
		}
		a, ap := d.asks(own, touch("cancelled"))
		d.Call("POST", "/v1/sessions/"+own+"/end", nil, nil)
		d.closed(t, "end", own, a, ap)
		if exists("cancelled") {
			t.Error("a cancelled command ran")
		}
	})

	d.in(t, "modes", func(t *testing.T) {
		newSession := func(mode string) string {
			var a httpapi.SessionAnswer
			d.Call("POST", "/v1/sessions", map[string]any{"project_id": d.p.ID, "mode": mode}, &a)
			return string(a.ID)
		}
		call := func(s, tool string, args any) (v session.StepView) {
			d.Call("POST", "/v1/sessions/"+s+"/calls?wait=sealed", map[string]any{"tool": tool, "args": args}, &v)
			return v
		}
		for mode, want := range map[string]domain.StepState{"ask": domain.StepAsking, "plan": domain.StepDenied} {
			own := newSession(mode)
			if v := call(own, "list", map[string]any{"path": "/workspace"}); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
				t.Errorf("%s: reading gives %+v", mode, v)
			}
			v := call(own, "exec", map[string]any{"argv": []string{"true"}})
			if v.State != want || want == domain.StepDenied && (v.Refused == nil || v.Refused.Allowed == "" || !strings.Contains(v.Refused.Reason, "plan")) {
				t.Errorf("%s: a command gives %+v %+v", mode, v, v.Refused)
			}
			w := call(own, "write", map[string]any{"path": "mode-" + mode, "content": "x"})
			if w.State != want {
				t.Errorf("%s: a write gives %+v", mode, w)
			}
			if exists("mode-" + mode) {
				t.Errorf("%s: the write happened", mode)
			}
			if want == domain.StepAsking {
				if err := d.answer("person", d.question(w.Approval), "once"); err != nil {
					t.Fatal(err)
				}
				if v := d.step(own, v.ID, "started"); v.State != domain.StepAsking {
					t.Errorf("the answer to one question moved the other: %+v", v)
				}
			}
			d.Call("POST", "/v1/sessions/"+own+"/end", nil, nil)
		}
	})

	d.in(t, "a rule that denies", func(t *testing.T) {
		for _, body := range []map[string]any{
			{"argv": []string{"git", "push", "origin", "main"}},
			{"code": "cd /tmp && env X=1 git push; touch pushed", "lang": "bash"},
		} {
			a := d.start(s, body)
			logs := strings.Join(a.Logs, "\n")
			if a.State != domain.StepDenied || !strings.Contains(logs, "Pushing goes through a review.") || !strings.Contains(logs, "git commit, then a review") {
				t.Errorf("%v: %+v", body, a)
			}
			v := d.step(s, a.ExecutionID, "sealed")
			if v.Decision.Decision != domain.Deny || v.Decision.Rule != "user:no-push" || v.Ended != nil {
				t.Errorf("%+v", v)
			}
		}
		if exists("pushed") {
			t.Error("the rest of a denied script ran")
		}
	})

	d.in(t, "from a terminal", func(t *testing.T) {
		for i := range 6 {
			name, say, want := fmt.Sprintf("typed-%d", i), "once", 0
			if i%2 == 1 {
				say, want = "deny", 125
			}
			got, out := d.typed(t, say, "exec", "--session", s, "--", "bash", "-c", "touch "+name+" && echo touched")
			if got != want || strings.Contains(out, "\ntouched") != (want == 0) || !strings.Contains(out, "Touching asks here.") || exists(name) != (want == 0) {
				t.Errorf("%q gives exit code %d and %q", say, got, out)
			}
		}
		if t.Failed() {
			return // a question of theirs may be open: the next is not the only one
		}
		// Nobody at the input: the command waits, and another one answers.
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // against hanging
		defer cancel()
		c := exec.CommandContext(ctx, d.Bin, "exec", "--session", s, "--", "touch", "elsewhere")
		var out bytes.Buffer
		c.Env, c.Stdin, c.Stdout, c.Stderr = d.Env, strings.NewReader("deny\n"), &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		var open []approval.Approval
		d.Until("the question", func() bool {
			d.Call("GET", "/v1/approvals?session_id="+s, nil, &open)
			return len(open) == 1
		})
		if out, err := d.CLI("approval", "answer", string(open[0].ID), "once"); err != nil {
			t.Errorf("%v %s", err, out)
		}
		if err := c.Wait(); err != nil || !exists("elsewhere") {
			t.Errorf("%v %s", err, out.String())
		}
	})
	d.in(t, "remembered exactly", func(t *testing.T) { remembered(t, d) })
	d.in(t, "over a core's death", func(t *testing.T) { overDeath(t, d) })
}

// TestQuestionExpires lets a question's minute pass.
func TestQuestionExpires(t *testing.T) {
	onKind(t, "local")
	t.Parallel() // it only waits
	d := newDesk(t, "local", "question_minutes = 1\n")
	s := d.Session(d.p)
	a, ap := d.asks(s, touch("late"))
	if x := ap.Asked.ExpiresAt; x <= ap.CreatedAt || x > ap.CreatedAt+60000 {
		t.Errorf("asked at %d, expires at %d", ap.CreatedAt, x)
	}
	d.expired(t, s, a.ExecutionID, ap)
	if a := d.Bash(s, "test -e late"); a.ExitCode == nil || *a.ExitCode != 1 {
		t.Errorf("the command that was never allowed ran: %+v", a)
	}
}

// typed runs a command whose input is a terminal, and types a line once it is asked.
func (d *desk) typed(t *testing.T, line string, args ...string) (code int, out string) {
	t.Helper()
	m, s, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // against hanging
	defer cancel()
	c := exec.CommandContext(ctx, d.Bin, args...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = d.Env, s, s, s
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	var b bytes.Buffer
	buf := make([]byte, 4096)
	for said := false; ; {
		n, err := m.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			break // the last writer is gone
		}
		if !said && strings.Contains(b.String(), "answer: ") {
			said = true
			if _, err := m.WriteString(line + "\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait()
	return c.ProcessState.ExitCode(), strings.ReplaceAll(b.String(), "\r\n", "\n")
}

// closed checks that a step's question ended without an answer.
func (d *desk) closed(t *testing.T, how, s string, a httpapi.ExecAnswer, ap approval.Approval) {
	t.Helper()
	if v := d.refused(s, a.ExecutionID); v.State != domain.StepCancelled {
		t.Errorf("%s: the step is %+v", how, v)
	}
	ends := d.ends(ap.ID)
	if len(ends) != 1 {
		t.Fatalf("%s: the question ended %d times", how, len(ends))
	}
	if c, ok := ends[0].(*event.ApprovalClosed); !ok || c.Why != "cancelled" {
		t.Errorf("%s: the question ended by %+v", how, ends[0])
	}
	if err := d.answer("person", ap, "once"); code(err) != "conflict" || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("%s: an answer after it gives %v", how, err)
	}
}

// expired checks that a question ended by its time alone.
func (d *desk) expired(t *testing.T, s string, id domain.StepID, ap approval.Approval) {
	t.Helper()
	v := d.refused(s, id)
	if v.State != domain.StepExpired || !strings.Contains(v.Refused.Reason, "not a no") {
		t.Errorf("the step is %+v %+v", v, v.Refused)
	}
	ends := d.ends(ap.ID)
	if len(ends) != 1 {
		t.Fatalf("the question ended %d times: %+v", len(ends), ends)
	}
	if c, ok := ends[0].(*event.ApprovalClosed); !ok || c.Why != "expired" {
		t.Errorf("the question ended by %+v", ends[0])
	}
	if out := d.question(ap.ID).Outcome; out.State != approval.Expired || out.By != "" || out.Choice != "" {
		t.Errorf("%+v", out)
	}
	if err := d.answer("person", ap, "once"); code(err) != "conflict" || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an answer after it gives %v", err)
	}
}

func remembered(t *testing.T, d *desk) {
	one, two, three := d.Session(d.p), d.Session(d.p), d.Session(d.p)
	give := func(s string, body map[string]any, choice string) {
		t.Helper()
		a, ap := d.asks(s, body)
		if err := d.answer("person", ap, choice); err != nil {
			t.Fatal(err)
		}
		if v := d.step(s, a.ExecutionID, "sealed"); v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK {
			t.Fatalf("%+v", v)
		}
	}
	runs := func(s string, body map[string]any) {
		t.Helper()
		a := d.start(s, body)
		v := d.step(s, a.ExecutionID, "sealed")
		if a.State != domain.StepSealed || !strings.HasPrefix(v.Decision.Rule, "grant:") {
			t.Errorf("%v was remembered and gives %+v, decided by %+v", body, a, v.Decision)
		}
	}
	stillAsks := func(s string, body map[string]any) {
		t.Helper()
		a, _ := d.asks(s, body)
		d.Call("POST", "/v1/sessions/"+s+"/cancel", map[string]any{"step_id": a.ExecutionID}, nil)
	}
	give(one, touch("g"), "session")
	runs(one, touch("g"))
	runs(one, touch("g"))
	for _, body := range []map[string]any{
		touch("h"), touch("g "), {"argv": []string{"touch", "g", "g"}}, {"argv": []string{"touch", "--", "g"}},
		{"argv": []string{"touch", "g"}, "workdir": "/tmp"}, {"argv": []string{"touch", "g"}, "env": map[string]string{"A": "1"}},
		{"code": "touch g", "lang": "bash"},
	} {
		stillAsks(one, body)
	}
	stillAsks(two, touch("g"))
	give(two, touch("g"), "project")
	runs(three, touch("g"))
	give(one, touch("once"), "once")
	stillAsks(one, touch("once"))

	var rules []approval.Grant
	d.Call("GET", "/v1/projects/"+string(d.p.ID)+"/rules", nil, &rules)
	if len(rules) != 2 || rules[0].Rule.Scope != "session" || string(rules[0].Session) != one || rules[1].Rule.Scope != "project" {
		t.Fatalf("rules: %+v", rules)
	}
	for _, r := range rules {
		if !strings.Contains(r.Rule.Text, "touch g") || r.Rule.By != "person" || r.Hits == 0 {
			t.Errorf("rule: %+v", r)
		}
	}
	d.KillCore()
	d.World.Start()
	runs(one, touch("g"))
	runs(three, touch("g"))
	d.Call("DELETE", "/v1/projects/"+string(d.p.ID)+"/rules/"+rules[1].ID, nil, nil)
	stillAsks(three, touch("g"))
	runs(one, touch("g"))
	if err := d.TryAs("agent", "DELETE", "/v1/projects/"+string(d.p.ID)+"/rules/"+rules[0].ID, nil, nil); code(err) != "denied" {
		t.Errorf("an agent removes a rule: %v", err)
	}
	d.Call("DELETE", "/v1/projects/"+string(d.p.ID)+"/rules/"+rules[0].ID, nil, nil)
	stillAsks(one, touch("g"))
}

// overDeath kills the core while it asks.
func overDeath(t *testing.T, d *desk) {
	s := d.Session(d.p)
	yes, yesAsked := d.asks(s, touch("after-death"))
	no, noAsked := d.asks(s, touch("denied-after-death"))
	cancel, cancelAsked := d.asks(s, touch("cancelled-after-death"))
	d.KillCore()
	// A question whose time runs out while no core is there.
	late := expireOffline(t, d, s, yes.ExecutionID, yesAsked.ID)
	d.World.Start()
	for _, ap := range []approval.Approval{yesAsked, noAsked, cancelAsked} {
		if got := d.question(ap.ID); got.Outcome.State != approval.Pending || got.Asked.Digest != ap.Asked.Digest || got.Asked.Title != ap.Asked.Title {
			t.Errorf("after the restart the question is %+v", got)
		}
	}
	if err := d.answer("demo", yesAsked, "once"); err != nil {
		t.Fatal(err)
	}
	if v := d.step(s, yes.ExecutionID, "sealed"); v.State != domain.StepSealed || v.Ended.Outcome != domain.OutcomeOK || len(v.Sealed.Changes) != 1 || v.Sealed.Changes[0].Path != "after-death" {
		t.Errorf("an answer after the restart gives %+v", v)
	}
	if err := d.answer("person", noAsked, "deny"); err != nil {
		t.Fatal(err)
	}
	if v := d.refused(s, no.ExecutionID); v.State != domain.StepDenied {
		t.Errorf("%+v", v)
	}
	d.Call("POST", "/v1/sessions/"+s+"/cancel", map[string]any{"step_id": cancel.ExecutionID}, nil)
	d.closed(t, "after a restart", s, cancel, cancelAsked)
	d.expired(t, s, late.step, approval.Approval{ID: late.id, Asked: event.ApprovalRequested{Digest: late.digest}})
	if a := d.Bash(s, "ls"); strings.Contains(a.Stdout, "denied-after") || strings.Contains(a.Stdout, "cancelled-after") || strings.Contains(a.Stdout, "expired-") {
		t.Errorf("what was not allowed ran: %s", a.Stdout)
	}
}

type offline struct {
	step   domain.StepID
	id     domain.ApprovalID
	digest string
}

// expireOffline writes, as a core would have, a step like another one whose question
// was put long ago.
func expireOffline(t *testing.T, d *desk, s string, like domain.StepID, question domain.ApprovalID) offline {
	t.Helper()
	l, err := eventlog.Open(d.Data, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	evs, err := l.Read(context.Background(), eventlog.Filter{Session: domain.SessionID(s), Step: like})
	if err != nil {
		t.Fatal(err)
	}
	out := offline{step: domain.StepID(domain.NewID("st")), id: domain.ApprovalID(domain.NewID("ap"))}
	var batch []event.New
	for _, e := range evs {
		p, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		switch p := p.(type) {
		case *event.StepRequested:
			p.Number += 100
			p.Args = json.RawMessage(`{"argv":["touch","expired-offline"]}`)
			out.digest = p.Digest
		case *event.ApprovalRequested:
			p.Approval, p.ExpiresAt = out.id, time.Now().Add(-time.Minute).UnixMilli()
		}
		batch = append(batch, event.New{Stream: e.Stream, Origin: e.Origin, Actor: e.Actor, ProjectID: e.ProjectID, SessionID: e.SessionID, StepID: out.step, Payload: p})
	}
	if len(batch) != 3 {
		t.Fatalf("a step that asks has %d events", len(batch))
	}
	if _, err := l.Append(context.Background(), batch...); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEgressOnSteps looks at what the gate says on the step that caused it.
func TestEgressOnSteps(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		egressOnSteps(t, newDesk(t, kind, "resolver = \"127.0.0.1:9\"\nhold_seconds = 120\n"))
	})
}

func egressOnSteps(t *testing.T, d *desk) {
	s := d.Session(d.p)
	get := func(host string) map[string]any {
		return map[string]any{"argv": []string{"curl", "-sS", "-m", "100", "http://" + host + "/"}}
	}
	blocked := func(step domain.StepID) (out []event.EgressBlocked) {
		for _, e := range d.Log(url.Values{"session_id": {s}, "step_id": {string(step)}}) {
			if e.Type == "egress.blocked" {
				var b event.EgressBlocked
				if err := json.Unmarshal(e.Data, &b); err != nil {
					t.Fatal(err)
				}
				if e.Origin != domain.OriginHost {
					t.Errorf("origin %s", e.Origin)
				}
				out = append(out, b)
			}
		}
		return out
	}
	for _, host := range []string{"10.0.0.1", "127.0.0.1:8080", "169.254.169.254", "[::1]:80", "[fd00::1]"} {
		a := d.start(s, map[string]any{"argv": []string{"curl", "-sS", "-g", "-m", "100", "--noproxy", "", "http://" + host + "/"}})
		if !strings.Contains(a.Stdout, "glasshouse: refused") {
			t.Errorf("%s: %+v", host, a)
		}
		if b := blocked(a.ExecutionID); len(b) != 1 || !strings.Contains(b[0].Reason, "public addresses only") || !strings.Contains(b[0].Claim, "curl") {
			t.Errorf("%s: on the step stands %+v", host, b)
		}
	}
	var rule approval.Grant
	d.Call("POST", "/v1/projects/"+string(d.p.ID)+"/rules", map[string]any{"host": "blocked.example.com", "port": 80, "decision": "deny"}, &rule)
	if rule.Rule.Port != 80 {
		t.Errorf("the rule is about port %d", rule.Rule.Port)
	}
	a := d.start(s, get("blocked.example.com"))
	if b := blocked(a.ExecutionID); len(b) != 1 || b[0].Rule != "grant:"+rule.ID || !strings.Contains(a.Stdout, "refused by the rule") {
		t.Errorf("a blocked host: %+v %+v", b, a)
	}

	// asking starts a command whose connection waits, and returns the question.
	asking := func(s string, body map[string]any) (domain.StepID, approval.Approval) {
		t.Helper()
		var a httpapi.ExecAnswer
		d.Call("POST", "/v1/sessions/"+s+"/exec", body, &a)
		var ap approval.Approval
		d.Until("the question", func() bool {
			var as []approval.Approval
			d.Call("GET", "/v1/approvals?session_id="+s, nil, &as)
			for _, x := range as {
				if x.Asked.Kind == "egress" {
					ap = x
				}
			}
			return ap.ID != ""
		})
		if ap.Step != a.ExecutionID && !strings.HasPrefix(ap.Asked.Host, "later") {
			t.Errorf("the question is on step %q, %q caused it", ap.Step, a.ExecutionID)
		}
		return a.ExecutionID, ap
	}
	step, ap := asking(s, get("no.example.com"))
	if ap.Asked.Host != "no.example.com" || ap.Asked.Port != 80 {
		t.Errorf("%+v", ap.Asked)
	}
	if err := d.answer("person", ap, "deny"); err != nil {
		t.Fatal(err)
	}
	if v := d.step(s, step, "sealed"); !strings.Contains(v.Ended.Stdout.Head, "the person said no") {
		t.Errorf("%+v", v.Ended.Stdout)
	}
	if b := blocked(step); len(b) != 1 || b[0].Approval != ap.ID {
		t.Errorf("%+v", b)
	}
	// A no for ever is a rule, and asks no more.
	step, ap = asking(s, get("never.example.com"))
	if err := d.answer("person", ap, "never"); err != nil {
		t.Fatal(err)
	}
	d.step(s, step, "sealed")
	a = d.start(s, get("never.example.com"))
	if b := blocked(a.ExecutionID); len(b) != 1 || !strings.HasPrefix(b[0].Rule, "grant:") {
		t.Errorf("%+v", b)
	}
	// A yes leads past the gate: here to a resolver that does not answer.
	step, ap = asking(s, get("yes.example.com"))
	if err := d.answer("person", ap, "once"); err != nil {
		t.Fatal(err)
	}
	if v := d.step(s, step, "sealed"); !strings.Contains(v.Ended.Stdout.Head, "could not be resolved") || strings.Contains(v.Ended.Stdout.Head, "127.0.0.1") {
		t.Errorf("%+v", v.Ended.Stdout)
	}
	// A question that outlives the core is the one that is asked, not a second one.
	step, ap = asking(s, get("later.example.com"))
	d.KillCore()
	d.World.Start()
	d.step(s, step, "sealed") // its connection ended with the core
	again, same := asking(s, get("later.example.com"))
	if same.ID != ap.ID {
		t.Errorf("after the restart the host is asked about again")
	}
	if err := d.answer("person", same, "once"); err != nil {
		t.Fatal(err)
	}
	if v := d.step(s, again, "sealed"); !strings.Contains(v.Ended.Stdout.Head, "could not be resolved") {
		t.Errorf("%+v", v.Ended)
	}
	// Cancelling the step, or ending the session, ends the question too.
	step, ap = asking(s, get("cancel.example.com"))
	d.Call("POST", "/v1/sessions/"+s+"/cancel", map[string]any{"step_id": step}, nil)
	if out := d.question(ap.ID).Outcome; out.State != approval.Cancelled {
		t.Errorf("after a cancel the question is %+v", out)
	}
	// So does it for what an ended step left running.
	step, ap = asking(s, map[string]any{"code": "(curl -s -m 100 http://left.example.com/; echo >left-ran) >/dev/null 2>&1 & (while :; do echo >>/tmp/beats; sleep 0.05; done) >/dev/null 2>&1 &", "lang": "bash"})
	if v := d.step(s, step, "sealed"); v.State != domain.StepSealed || len(v.Ended.Background) == 0 {
		t.Errorf("%+v", v)
	}
	d.Call("POST", "/v1/sessions/"+s+"/end", nil, nil)
	if out := d.question(ap.ID).Outcome; out.State != approval.Cancelled {
		t.Errorf("after the session's end the question is %+v", out)
	}
	other := d.Session(d.p)
	if a := d.Bash(other, "test -s /tmp/beats && a=$(stat -c %s /tmp/beats) && sleep 1 && test $a = $(stat -c %s /tmp/beats) && test ! -e left-ran"); *a.ExitCode != 0 {
		t.Errorf("what the session left running goes on: %+v", a)
	}
}
