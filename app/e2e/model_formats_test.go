package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

// mixedModel is one of several that work in one session.
type mixedModel struct {
	name, like string
	format     model.Format
	model      string // the server's name for it
	more       string // of its table
	thinks     bool   // it shows its thoughts
	taught     int    // refusals from which the program learns its ways
	srv        *modeltest.Server
	said       int // turns
}

// turns of a model's script, each with a thought, two calls at once and a last word.
func (m *mixedModel) turns(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "like: %q\nanswers:\n", m.like)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `
  - think: THOUGHT of %[1]s, turn %[2]d, before calls.
    say: SAID by %[1]s in turn %[2]d.
    calls: [{tool: exec, args: {argv: [echo, "%[1]s-%[2]d-a"]}}, {tool: exec, args: {argv: [echo, "%[1]s-%[2]d-b"]}}]
  - expect: {has: ["%[1]s-%[2]d-a", "%[1]s-%[2]d-b"], results: 2}
    think: THOUGHT of %[1]s, turn %[2]d, at the end.
    say: DONE by %[1]s in turn %[2]d.
`, m.name, i)
	}
	return b.String()
}

// newMixedWorld makes a world with several models, each with a server and a script of its
// own, and a started core.
func newMixedWorld(t *testing.T, kind string, ms []*mixedModel, text func(*mixedModel) string) *modelWorld {
	t.Helper()
	w := &modelWorld{World: NewWorld(t, kind), key: "gh-key<" + domain.NewID("k") + "/&+=%"}
	w.Settings("resolver = \"127.0.0.1:9\"\n")
	var conf strings.Builder
	for _, m := range ms {
		m.srv = modeltest.New(t, script(t, text(m)), modeltest.Options{Key: w.key})
		fmt.Fprintf(&conf, "[[model]]\nname = %q\nformat = %q\nmodel = %q\nbase_url = %q\nkey_env = %q\nprice = { input = %v, cache_read = %v, cache_write = %v, output = %v }\n%s\n\n",
			m.name, m.format, m.model, m.srv.URL(), modelKey, prices.Input, prices.CacheRead, prices.CacheWrite, prices.Output, m.more)
	}
	for name, text := range map[string]string{"models.toml": conf.String(), "policy.toml": ""} {
		if err := os.WriteFile(filepath.Join(w.Dir, "c", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Env = append(w.Env, modelKey+"="+w.key)
	w.Start()
	w.p = w.Project("")
	return w
}

func (w *modelWorld) change(session, model string) {
	w.t.Helper()
	w.Call("PATCH", "/v1/sessions/"+session, map[string]any{"model": model}, nil)
}

// foreign fails the test for each thought of another model in a request, and for each
// of its own that should be there and is not.
func foreign(t *testing.T, ms []*mixedModel) {
	t.Helper()
	for _, m := range ms {
		own := 0
		for _, r := range m.srv.Requests() {
			body := string(r.Body)
			for _, other := range ms {
				if n := strings.Count(body, "THOUGHT of "+other.name+","); n > 0 && other != m {
					t.Errorf("request %d to %s holds %d thoughts of %s", r.Number, m.name, n, other.name)
				} else if other == m {
					own += n
				}
			}
			if r.Asked == nil && r.Status == 200 {
				t.Errorf("request %d to %s was not understood", r.Number, m.name)
			}
		}
		if (own > 0) != m.thinks {
			t.Errorf("%d thoughts of %s went back to it", own, m.name)
		}
	}
}

// TestFormatsChangeInOneSession lets models of all wire formats, and of servers that
// speak one in their own ways, work in one session in turn. Each gets the whole
// conversation in its own form, with the calls and results of all others, and the
// thoughts of none but itself.
func TestFormatsChangeInOneSession(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		onlyLocal(t, kind)
		ms := []*mixedModel{
			{name: "router", like: "openrouter", format: model.FormatChat, model: "same-1", more: `effort = "low"`, thinks: true},
			{name: "messages", format: model.FormatMessages, model: "same-1", more: `effort = "low"`, thinks: true},
			{name: "responses", format: model.FormatResponses, model: "same-1", more: `effort = "low"`, thinks: true},
			{name: "mistral", like: "mistral", format: model.FormatChat, model: "devstral-1", taught: 1},
			{name: "gemini", like: "gemini", format: model.FormatChat, model: "gemini-1", taught: 2},
			{name: "deepseek", like: "deepseek", format: model.FormatChat, model: "deep-1", taught: 1, thinks: true},
			{name: "ollama", like: "ollama", format: model.FormatChat, model: "qwen-1", thinks: true},
			{name: "gpt", like: "openai", format: model.FormatChat, model: "o9", taught: 1},
		}
		w := newMixedWorld(t, kind, ms, func(m *mixedModel) string { return m.turns(3) })
		order := []int{0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 2, 5, 3, 4, 1}
		ses := w.modelSession(map[string]any{"model": ms[order[0]].name})
		var said []string // what each conversation must hold from here on
		for i, k := range order {
			m := ms[k]
			w.change(ses, m.name)
			prompt := fmt.Sprintf("PROMPT %d for %s.", i+1, m.name)
			if end := w.ended(ses, w.prompt(ses, prompt)); end.Result != "ok" && end.Result != "unchecked" {
				t.Fatalf("turn %d, of %s, ended %s: %s\n%v", i+1, m.name, end.Result, end.Reason, m.srv.Faults())
			}
			m.said++
			said = append(said, prompt)
			rs := m.srv.Requests()
			all := rs[len(rs)-1].Asked.AllText()
			for _, s := range said {
				if !strings.Contains(all, s) {
					t.Errorf("turn %d, of %s: the conversation lacks %q", i+1, m.name, s)
				}
			}
			said = append(said, fmt.Sprintf("SAID by %s in turn %d.", m.name, m.said), fmt.Sprintf("%s-%d-a", m.name, m.said), fmt.Sprintf("%s-%d-b", m.name, m.said), fmt.Sprintf("DONE by %s in turn %d.", m.name, m.said))
		}
		foreign(t, ms)
		var used model.Usage
		answers := 0
		for _, m := range ms {
			if f := m.srv.Faults(); len(f) != m.taught {
				t.Errorf("%s refused %d requests, not %d: %v", m.name, len(f), m.taught, f)
			}
			u := m.srv.Usage()
			if m.format == model.FormatMessages {
				u.Reasoning = 0 // that format does not tell
			}
			used = used.Plus(u)
			answers += 2 * m.said
		}
		// No refusal counts as an attempt, and what all of them used is what is shown.
		if r := payloads[*event.ModelRetried](w.World, ses); len(r) != 0 {
			t.Errorf("%d attempts were recorded as failed: %+v", len(r), r[0])
		}
		var v httpapi.SessionAnswer
		w.Call("GET", "/v1/sessions/"+ses, nil, &v)
		if got := model.Usage(v.Spent.Usage); got != used || v.Spent.Answers != answers {
			t.Errorf("the session used %+v in %d answers, the servers reported %+v in %d", got, v.Spent.Answers, used, answers)
		}
		told := map[string]int{}
		for _, e := range payloads[*event.ModelTold](w.World, ses) {
			for _, r := range e.Results {
				told[r.Key]++
			}
		}
		for _, a := range payloads[*event.ModelAnswered](w.World, ses) {
			for _, p := range a.Parts {
				if p.Kind == "call" && told[p.Key] != 1 {
					t.Errorf("the call %s of %s was told %d results", p.Key, a.Model, told[p.Key])
				}
			}
		}
	})
}

// onlyLocal passes a test over in a VM: nothing of it is in the guest.
func onlyLocal(t *testing.T, kind string) {
	t.Helper()
	if kind != "local" && os.Getenv("GLASSHOUSE_E2E_FORMATS") != "all" {
		t.Skip("skipped: nothing of a wire format is in the guest; GLASSHOUSE_E2E_FORMATS=all runs it in a VM too")
	}
}

// TestTheModelChangesInATurn changes the model while its call runs, and says something
// meanwhile: the next answer is of the other model, in another format, which must take
// the calls of the first with their results and the person's words behind them.
func TestTheModelChangesInATurn(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		onlyLocal(t, kind)
		const wait = "touch /home/agent/at-%[1]s; until test -e /home/agent/go-%[1]s; do sleep 0.1; done; echo went-%[1]s"
		ms := []*mixedModel{
			{name: "messages", format: model.FormatMessages, model: "same-1", more: `effort = "low"`},
			{name: "router", like: "openrouter", format: model.FormatChat, model: "same-1"},
			{name: "mistral", like: "mistral", format: model.FormatChat, model: "devstral-1", taught: 1},
			{name: "responses", format: model.FormatResponses, model: "same-1", more: `effort = "low"`},
			{name: "gemini", like: "gemini", format: model.FormatChat, model: "gemini-1", taught: 2},
			{name: "deepseek", like: "deepseek", format: model.FormatChat, model: "deep-1", taught: 1},
		}
		// Each answers once, with a call that waits, and the first again at the end.
		w := newMixedWorld(t, kind, ms, func(m *mixedModel) string {
			s := fmt.Sprintf("like: %q\nanswers:\n  - think: THOUGHT of %[2]s, once.\n    say: SAID by %[2]s.\n    calls: [{tool: exec, args: {lang: bash, code: %[3]q, timeout_ms: 900000}}]\n", m.like, m.name, fmt.Sprintf(wait, m.name))
			if m == ms[0] {
				s += "  - {think: \"THOUGHT of messages, at the end.\", say: DONE., expect: {has: [went-deepseek, WORD after deepseek]}}\n"
			}
			return s
		})
		ses, other := w.modelSession(map[string]any{"model": "messages"}), w.Session(w.p)
		turn := w.prompt(ses, "Begin.")
		for i, m := range ms {
			w.Until("the call of "+m.name, func() bool {
				return w.Bash(other, "test -e /home/agent/at-"+m.name).Outcome == domain.OutcomeOK || len(m.srv.Faults()) > m.taught
			})
			w.change(ses, ms[(i+1)%len(ms)].name)
			w.Call("POST", "/v1/sessions/"+ses+"/messages", map[string]any{"text": "WORD after " + m.name + "."}, nil)
			w.Bash(other, "touch /home/agent/go-"+m.name)
		}
		if end := w.ended(ses, turn); end.Result != "ok" && end.Result != "unchecked" {
			t.Errorf("the turn ended %s: %s", end.Result, end.Reason)
		}
		foreign(t, ms[1:]) // none of which was asked again
		var by []string
		for _, a := range payloads[*event.ModelAnswered](w.World, ses) {
			by = append(by, a.Model)
		}
		if want := []string{"messages", "router", "mistral", "responses", "gemini", "deepseek", "messages"}; !slices.Equal(by, want) {
			t.Errorf("answers of %v, want %v", by, want)
		}
		for _, m := range ms {
			if f := m.srv.Faults(); len(f) != m.taught {
				t.Errorf("%s refused %d requests, not %d: %v", m.name, len(f), m.taught, f)
			}
		}
	})
}
