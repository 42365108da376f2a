package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

// modelKey is the variable of the core that holds the model's key.
const modelKey = "GLASSHOUSE_TEST_MODEL_KEY"

// prices of the tests' model, in dollars per million tokens.
var prices = model.Price{Input: 3, CacheRead: 0.3, CacheWrite: 3.75, Output: 15}

// modelWorld is a world whose model is a server of the test's own.
type modelWorld struct {
	*World
	srv *modeltest.Server
	key string
	p   httpapi.ProjectView
}

// formats that a machine kind is tried with: all of them on local, one in a VM unless
// GLASSHOUSE_E2E_FORMATS is "all", for nothing of a format is in the guest.
func formats(kind string) []model.Format {
	all := []model.Format{model.FormatChat, model.FormatResponses, model.FormatMessages}
	if kind == "local" || os.Getenv("GLASSHOUSE_E2E_FORMATS") == "all" {
		return all
	}
	return all[2:]
}

// newModelWorld makes one with a started core. more goes into the model's table of
// models.toml.
func newModelWorld(t *testing.T, kind string, f model.Format, s *modeltest.Script, more string, policy ...string) *modelWorld {
	t.Helper()
	w := &modelWorld{World: NewWorld(t, kind), key: "gh-key<" + domain.NewID("k") + "/&+=%"}
	w.srv = modeltest.New(t, s, modeltest.Options{Key: w.key})
	w.Settings("resolver = \"127.0.0.1:9\"\n")
	conf := fmt.Sprintf("default = \"fake\"\n\n[[model]]\nname = \"fake\"\nformat = %q\nmodel = \"fake-1\"\nbase_url = %q\nkey_env = %q\nprice = { input = %v, cache_read = %v, cache_write = %v, output = %v }\n%s\n",
		f, w.srv.URL(), modelKey, prices.Input, prices.CacheRead, prices.CacheWrite, prices.Output, more)
	for name, text := range map[string]string{"models.toml": conf, "policy.toml": strings.Join(policy, "\n")} {
		if err := os.WriteFile(filepath.Join(w.Dir, "c", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Env = append(w.Env, modelKey+"="+w.key)
	w.Start()
	return w
}

// script parses one.
func script(t *testing.T, text string) *modeltest.Script {
	t.Helper()
	s, err := modeltest.Parse("script", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// modelSession starts a session that the model works in.
func (w *modelWorld) modelSession(more map[string]any) string {
	w.t.Helper()
	in := map[string]any{"project_id": w.p.ID, "title": "test", "agent": "model"}
	for k, v := range more {
		in[k] = v
	}
	var s httpapi.SessionAnswer
	w.Call("POST", "/v1/sessions", in, &s)
	return string(s.ID)
}

// prompt lets the model work.
func (w *modelWorld) prompt(session, text string) domain.TurnID {
	w.t.Helper()
	var out struct {
		Turn domain.TurnID `json:"turn_id"`
	}
	w.Call("POST", "/v1/sessions/"+session+"/turns", map[string]any{"agent": "model", "prompt": text}, &out)
	return out.Turn
}

// payloads are a session's events of one type.
func payloads[P event.Payload](w *World, session string) (out []P) {
	w.t.Helper()
	for _, e := range w.Log(url.Values{"session_id": {session}}) {
		if p, ok := decoded(w.t, e).(P); ok {
			out = append(out, p)
		}
	}
	return out
}

func decoded(t *testing.T, e event.Envelope) event.Payload {
	t.Helper()
	p, err := event.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ended waits for the end of a turn.
func (w *modelWorld) ended(session string, id domain.TurnID) *event.TurnEnded {
	w.t.Helper()
	var end *event.TurnEnded
	after := int64(0)
	for end == nil {
		// A long turn may take its time: what must not be is that nothing happens.
		w.Until("the end of the turn, or anything before it,", func() bool {
			var page []event.Envelope
			w.Call("GET", fmt.Sprintf("/v1/log?session_id=%s&limit=5000&after=%d", session, after), nil, &page)
			for _, e := range page {
				after = e.ID
				if p, ok := decoded(w.t, e).(*event.TurnEnded); ok && p.Turn == id {
					end = p
				}
			}
			return len(page) > 0
		})
	}
	return end
}

// faultless fails the test for each request that the model's server did not take.
func (w *modelWorld) faultless() {
	w.t.Helper()
	for _, f := range w.srv.Faults() {
		w.t.Errorf("the model's server: %s", f)
	}
}

// spent compares what a session says it used with what the server reported.
func (w *modelWorld) spent(session string) {
	w.t.Helper()
	var v httpapi.SessionAnswer
	w.Call("GET", "/v1/sessions/"+session, nil, &v)
	u := v.Spent.Usage
	got, want := model.Usage{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning}, w.srv.Usage()
	if rs := w.srv.Requests(); rs[len(rs)-1].Format == model.FormatMessages {
		want.Reasoning = 0 // that format does not tell
	}
	if got != want {
		w.t.Errorf("the session used %+v, the server reported %+v", got, want)
	}
	answers, cost, sum, lost := 0, int64(0), int64(0), int64(0)
	for _, a := range payloads[*event.ModelAnswered](w.World, session) {
		answers++
		sum += a.CostNanos
		lost += a.Lost
		cost += prices.Cost(model.Usage{Input: a.Usage.Input, CacheRead: a.Usage.CacheRead, CacheWrite: a.Usage.CacheWrite, Output: a.Usage.Output})
	}
	if v.Spent.CostNanos != sum || !v.Spent.Priced || v.Spent.Answers != answers || cost == 0 {
		w.t.Errorf("it cost %d (priced %v) in %d answers, not %d in %d", v.Spent.CostNanos, v.Spent.Priced, v.Spent.Answers, sum, answers)
	}
	// What broke off is guessed: between all of it read and all of it written.
	least, most := cost+prices.Cost(model.Usage{Input: lost}), cost+prices.Cost(model.Usage{Output: lost})
	if sum < least-int64(answers) || sum > most+int64(answers) {
		w.t.Errorf("the answers cost %d, with %d tokens lost not within %d and %d", sum, lost, least, most)
	}
	// The whole sum at the price, within half a billionth for each answer's rounding.
	if d := prices.Cost(want) - cost; d > int64(answers) || d < -int64(answers) {
		w.t.Errorf("the tokens cost %d, the session says %d", prices.Cost(want), cost)
	}
}

// sample is the repository of the demo, with its failing test.
func sample(t *testing.T) *gittest.Repo {
	t.Helper()
	r := gittest.Init(t)
	for _, name := range []string{"total.py", "test_total.py", "server.py", "README.md"} {
		b, err := os.ReadFile(filepath.Join("..", "cli", "sample", name))
		if err != nil {
			t.Fatal(err)
		}
		r.Write(name, string(b))
	}
	r.Write(".gitignore", "__pycache__/\n")
	r.Git("add", "-A")
	r.Git("commit", "-qm", "Orders")
	return r
}

// answering answers every question of a session as it comes, until the returned
// function is called; that returns what was asked.
func (w *modelWorld) answering(session string, answer func(q *event.ApprovalRequested) (choice, text string)) func() []string {
	done, stop := make(chan []string), make(chan struct{})
	go func() {
		var asked []string
		defer func() { done <- asked }()
		for {
			var as []struct {
				ID    domain.ApprovalID       `json:"id"`
				Asked event.ApprovalRequested `json:"asked"`
			}
			if err := w.Try("GET", "/v1/approvals?session_id="+session, nil, &as); err == nil {
				for _, a := range as {
					choice, text := answer(&a.Asked)
					in := map[string]string{"digest": a.Asked.Digest, "choice": choice, "text": text}
					if err := w.Try("POST", "/v1/approvals/"+string(a.ID)+"/answer", in, nil); err != nil {
						w.t.Errorf("the answer to %q: %v", a.Asked.Title, err)
					}
					asked = append(asked, a.Asked.Kind+" "+a.Asked.Host)
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() []string { close(stop); return <-done }
}

// TestModelJob lets a model do the demo's whole job, and judges it from outside.
func TestModelJob(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for _, f := range formats(kind) {
			t.Run(string(f), func(t *testing.T) { modelJob(t, kind, f) })
		}
	})
}

func modelJob(t *testing.T, kind string, f model.Format) {
	s, err := modeltest.Load("../../backend/model/modeltest/testdata/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := newModelWorld(t, kind, f, s, "", approvalPolicy)
	w.p = w.Project(sample(t).Dir)
	ses := w.modelSession(map[string]any{"checks": []event.Check{{Name: "tests", Argv: []string{"python3", "-m", "unittest"}}}})
	asked := w.answering(ses, func(*event.ApprovalRequested) (string, string) { return "once", "" })
	end := w.ended(ses, w.prompt(ses, "Mend the failing test and see that the form works."))
	if q := asked(); !slices.Equal(q, []string{"egress rates.demo.example"}) {
		t.Errorf("asked: %q", q)
	}
	if end.Result != "ok" {
		t.Errorf("the turn ended %s: %s", end.Result, end.Reason)
	}
	w.faultless()
	if n := w.srv.Left(); n != 0 {
		t.Errorf("%d answers were not asked for", n)
	}
	w.spent(ses)

	// What is in the workspace, and whether the test passes, by other means.
	manual := w.Session(w.p)
	if a := w.Bash(manual, "python3 -m unittest 2>&1; git diff"); !strings.Contains(a.Stdout, "OK") || !strings.Contains(a.Stdout, "+    return int(net * (1 + RATES[rate]) + 0.5)") {
		t.Errorf("the workspace: %+v", a)
	}
	// The log tells all that happened.
	var tools []string
	denied, keyless := 0, 0
	for _, e := range w.Log(url.Values{"session_id": {ses}}) {
		switch p := decoded(t, e).(type) {
		case *event.StepRequested:
			// The last one is the check, which no call of the model made.
			if tools = append(tools, p.Tool); p.Key == "" {
				keyless++
			}
		case *event.StepRefused:
			if denied++; p.State != domain.StepDenied {
				t.Errorf("refused: %+v", p)
			}
		}
	}
	want := []string{"exec", "read", "search", "edit", "exec", "exec", "exec", "exec", "browser_open", "browser_snapshot", "browser_type", "browser_click", "browser_snapshot", "browser_screenshot", "exec", "exec"}
	if !slices.Equal(tools, want) || denied != 1 || keyless != 1 {
		t.Errorf("steps: %q, %d denied, %d that no call made", tools, denied, keyless)
	}
	var retried []string
	for _, r := range payloads[*event.ModelRetried](w.World, ses) {
		retried = append(retried, r.Kind)
		if r.Kind == "rate" && r.WaitMS < 1000 {
			t.Errorf("the server asked for a second and got %d ms", r.WaitMS)
		}
	}
	if !slices.Equal(retried, []string{"rate", "network"}) {
		t.Errorf("attempts that failed: %q", retried)
	}
	plans := payloads[*event.PlanUpdated](w.World, ses)
	if len(plans) != 2 || len(plans[1].Items) != 4 || plans[1].Items[3].State != "done" {
		t.Errorf("plans: %+v", plans)
	}
	thoughts := 0
	for _, a := range payloads[*event.ModelAnswered](w.World, ses) {
		for _, p := range a.Parts {
			if p.Kind == "thought" && p.Text != "" {
				thoughts++
			}
		}
	}
	if thoughts != 3 {
		t.Errorf("%d thoughts are recorded", thoughts)
	}
	w.oneResultEach(ses)
	w.Call("POST", "/v1/log/verify", nil, nil)
}

// oneResultEach checks that each call of the model was told one result, in the log and
// to the server, and the same one with every request.
func (w *modelWorld) oneResultEach(session string) {
	w.t.Helper()
	told := map[string]int{}
	for _, e := range payloads[*event.ModelTold](w.World, session) {
		for _, r := range e.Results {
			told[r.Key]++
		}
	}
	for _, a := range payloads[*event.ModelAnswered](w.World, session) {
		for _, p := range a.Parts {
			if p.Kind == "call" && told[p.Key] != 1 {
				w.t.Errorf("the call %s of %s was told %d results", p.Key, p.Tool, told[p.Key])
			}
		}
	}
	texts := map[string]string{}
	for _, r := range w.srv.Requests() {
		if r.Asked == nil {
			continue
		}
		seen := map[string]int{}
		for _, e := range r.Asked.Entries {
			for _, x := range e.Results {
				if seen[x.ID]++; seen[x.ID] > 1 {
					w.t.Errorf("request %d holds two results of %s", r.Number, x.ID)
				}
				if was, ok := texts[x.ID]; ok && was != x.Text && !strings.Contains(x.Text, "left out here") && !strings.Contains(x.Text, "no longer shown") {
					w.t.Errorf("request %d tells another result of %s: %q, before %q", r.Number, x.ID, x.Text, was)
				}
				texts[x.ID] = x.Text
			}
		}
	}
}
