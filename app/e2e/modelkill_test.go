package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

// killScript calls three commands with an effect each: a line in a file that no
// checkpoint knows, written at once, and the end of the command later. A call that is
// told not to have run is made again, with a number of its own. The last one waits for
// the test, so that the turn is not over before the kill, however slow that is.
const killScript = `
replay: true
delay_ms: 3
chunk: 4
keyed:
  - match: {has: ["it did not run"]}
    say: Then once more.
    calls: [{tool: exec, args: {lang: bash, code: "echo line ${n} >>/home/agent/effects; sleep 0.7; echo end ${n}"}}]
answers:
  - think: The first.
    calls: [{tool: exec, args: {lang: bash, code: "echo line ${n} >>/home/agent/effects; sleep 0.7; echo end ${n}"}}]
  - say: A second one, after a text that is long enough to be cut somewhere in its middle, wherever that may be.
    calls:
      - {tool: exec, args: {lang: bash, code: "echo line ${n} >>/home/agent/effects; sleep 0.7; echo end ${n}"}}
      - {tool: exec, args: {lang: bash, code: "echo line ${n}b >>/home/agent/effects; sleep 0.3; echo end ${n}b"}}
  - say: And a third.
    calls: [{tool: exec, args: {lang: bash, code: "echo line ${n} >>/home/agent/effects; sleep 0.7; until test -e /home/agent/killed; do sleep 0.1; done; echo end ${n}", timeout_ms: 900000}}]
  - say: All are written.
`

// TestModelKill kills the core while a model works: while a call runs, right after an
// answer came and in the middle of one. The next core goes on by itself, and nothing
// happens twice.
func TestModelKill(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		moments := []string{"call", "answer", "stream"}
		for i, f := range formats(kind) {
			t.Run(string(f), func(t *testing.T) {
				for seed := range seeds(len(moments)) {
					moment := moments[(seed+i)%len(moments)]
					t.Run(fmt.Sprintf("%d-%s", seed, moment), func(t *testing.T) { modelKill(t, kind, f, moment, int64(seed)) })
				}
			})
		}
	})
}

func modelKill(t *testing.T, kind string, f model.Format, moment string, seed int64) {
	rng := rand.New(rand.NewSource(seed*7919 + int64(len(moment))))
	w := newModelWorld(t, kind, f, script(t, killScript), "")
	w.p = w.Project("")
	ses := w.modelSession(map[string]any{"checks": []event.Check{{Name: "all", Code: "test -s /home/agent/effects"}}})
	turn := w.prompt(ses, "Write the lines.")
	// The nth of what a moment waits for.
	nth := 1 + rng.Intn(3)
	w.Until("the moment", func() bool {
		switch moment {
		case "call":
			n := 0
			for _, e := range w.Log(url.Values{"session_id": {ses}}) {
				if e.Type == "step.started" {
					n++
				}
			}
			return n >= nth
		case "answer":
			n := 0
			for _, r := range w.srv.Requests() {
				if r.Whole {
					n++
				}
			}
			return n >= nth
		}
		rs := w.srv.Requests()
		return len(rs) > nth || len(rs) == nth && !rs[nth-1].Whole
	})
	time.Sleep(time.Duration(rng.Intn(map[string]int{"call": 800, "answer": 25, "stream": 100}[moment])) * time.Millisecond)
	w.KillCore()
	answered := len(w.srv.Requests())
	time.Sleep(time.Duration(rng.Intn(1200)) * time.Millisecond)
	w.Start()
	if a := w.Bash(w.Session(w.p), "touch /home/agent/killed"); a.ExitCode == nil || *a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	if end := w.ended(ses, turn); end.Result != "ok" {
		t.Errorf("the turn ended %s: %s", end.Result, end.Reason)
	}
	if n := len(payloads[*event.TurnResumed](w.World, ses)); n != 1 {
		t.Errorf("it was resumed %d times", n)
	}
	w.faultless()
	w.oneResultEach(ses)

	// Each call was told what it really did.
	a := w.Bash(w.Session(w.p), "cat /home/agent/effects")
	lines := map[string]int{}
	for line := range strings.Lines(a.Stdout) {
		lines[strings.TrimSpace(line)]++
	}
	told := map[string]event.ToldResult{}
	for _, e := range payloads[*event.ModelTold](w.World, ses) {
		for _, r := range e.Results {
			told[r.Key] = r
		}
	}
	calls, over, unknown := 0, 0, 0
	for _, e := range payloads[*event.ModelAnswered](w.World, ses) {
		for _, p := range e.Parts {
			if p.Kind != "call" {
				continue
			}
			var args struct {
				Code string `json:"code"`
			}
			if err := json.Unmarshal([]byte(p.Args), &args); err != nil {
				t.Fatal(err)
			}
			number := strings.Fields(args.Code)[2]
			n, r := lines["line "+number], told[p.Key]
			calls++
			switch {
			case strings.Contains(r.Text, "did not run"):
				over++
				if n != 0 {
					t.Errorf("call %s was told not to have run, its line is there %d times: %q", number, n, r.Text)
				}
			case strings.Contains(r.Text, "outcome is unknown") && n == 0:
				// Killed between the record that it starts and its start: nobody can say more.
				unknown++
			case n != 1:
				t.Errorf("call %s wrote its line %d times: %+v", number, n, r)
			case r.Failed || !strings.Contains(r.Text, "exit code 0") || !strings.Contains(r.Text, "end "+number):
				t.Errorf("call %s ran and ended, but was told %q", number, r.Text)
			}
			delete(lines, "line "+number)
		}
	}
	if unknown > 1 {
		t.Errorf("%d calls are unknown; one at most was about to start", unknown)
	}
	if len(lines) > 0 {
		t.Errorf("lines of no call: %v", lines)
	}
	t.Logf("killed at moment %d after %d requests; %d calls, %d of them told not to have run, %d unknown; %d requests in all", nth, answered, calls, over, unknown, len(w.srv.Requests()))
	w.Call("POST", "/v1/log/verify", nil, nil)
}

const questionScript = `
replay: true
answers:
  - calls: [{tool: exec, args: {argv: [touch, asked-for]}}]
  - expect: {has: [exit code 0]}
    calls: [{tool: ask_user, args: {question: "Which colour?"}}]
  - expect: {has: [ultramarine]}
    say: Both are answered.
`

// TestModelKillAtAQuestion kills the core while a model's call waits for a person: the
// question is still there, once, and its answer is what the model hears.
func TestModelKillAtAQuestion(t *testing.T) {
	onKind(t, "local")
	f := formats("local")[0]
	w := newModelWorld(t, "local", f, script(t, questionScript), "", approvalPolicy)
	w.p = w.Project("")
	ses := w.modelSession(nil)
	turn := w.prompt(ses, "Ask.")
	for _, q := range []struct{ kind, choice, text string }{{"step", "once", ""}, {"question", "reply", "ultramarine"}} {
		open := func() (as []approval.Approval) {
			w.Call("GET", "/v1/approvals?session_id="+ses, nil, &as)
			return as
		}
		w.Until("the question", func() bool { as := open(); return len(as) == 1 && as[0].Asked.Kind == q.kind })
		was := open()[0]
		w.KillCore()
		w.Start()
		w.Until("the question after the restart", func() bool { return len(open()) == 1 })
		now := open()
		if now[0].ID != was.ID {
			t.Errorf("after the restart %s is asked again as %s", was.ID, now[0].ID)
		}
		w.Call("POST", "/v1/approvals/"+string(now[0].ID)+"/answer", map[string]string{"digest": now[0].Asked.Digest, "choice": q.choice, "text": q.text}, nil)
	}
	if end := w.ended(ses, turn); end.Result != "unchecked" {
		t.Errorf("the turn ended %s: %s", end.Result, end.Reason)
	}
	w.faultless()
	w.oneResultEach(ses)
	if n := len(w.srv.Requests()); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
	if n := len(payloads[*event.ApprovalRequested](w.World, ses)); n != 2 {
		t.Errorf("%d questions were put", n)
	}
}
