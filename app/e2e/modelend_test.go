package e2e

import (
	"net/url"
	"strings"
	"testing"
)

// TestModelEnds takes away what a model works in, while it writes an answer and while
// its call runs. The turn ends, the model's server is let go of (it bills what it
// writes), and nothing starts the machine again.
func TestModelEnds(t *testing.T) {
	const again = `
answers:
  - calls: [{tool: exec, args: {lang: bash, timeout_ms: 900000, code: "sleep 1000"}}]
  - calls: [{tool: exec, args: {lang: bash, timeout_ms: 900000, code: "sleep 1001"}}]
`
	for name, text := range map[string]string{"answer": "answers: [{say: I write for as long as I am let., stall: true}]", "call": again} {
		for how, take := range map[string]func(w *modelWorld, ses string){
			"machine stopped": func(w *modelWorld, _ string) {
				w.Call("POST", "/v1/projects/"+string(w.p.ID)+"/machine/stop", map[string]any{}, nil)
			},
			"session ended":   func(w *modelWorld, ses string) { w.Call("POST", "/v1/sessions/"+ses+"/end", map[string]any{}, nil) },
			"project deleted": func(w *modelWorld, _ string) { w.Call("DELETE", "/v1/projects/"+string(w.p.ID), nil, nil) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				eachKind(t, func(t *testing.T, kind string) {
					w := newModelWorld(t, kind, formats(kind)[0], script(t, text), "")
					w.p = w.Project("")
					ses := w.modelSession(nil)
					log := func() []string {
						var types []string
						for _, e := range w.Log(url.Values{"session_id": {ses}}) {
							types = append(types, string(e.Type))
							if e.Type == "turn.ended" && !strings.Contains(string(e.Data), `"cancelled"`) {
								t.Errorf("the turn ended %s", e.Data)
							}
						}
						return types
					}
					w.prompt(ses, "Work.")
					w.Until("the work", func() bool {
						if name == "answer" {
							return w.srv.Conns() == 1
						}
						return strings.Contains(strings.Join(log(), " "), "step.started")
					})
					take(w, ses)
					w.Until("the server to be let go of", func() bool { return w.srv.Conns() == 0 })
					if n := len(w.srv.Requests()); n != 1 {
						t.Errorf("the model was asked %d times", n)
					}
					if how == "project deleted" {
						// What the list shows can be shown: until the core ends its session is there.
						for _, args := range [][]string{{"session", "list"}, {"session", "show", ses}} {
							if out, err := w.CLI(args...); err != nil || !strings.Contains(out, ses) || !strings.Contains(out, "ended") {
								t.Errorf("glasshouse %s: %v %s", strings.Join(args, " "), err, out)
							}
						}
						return
					}
					w.Until("the end of the turn", func() bool { return strings.Contains(strings.Join(log(), " "), "turn.ended") })
					_, after, _ := strings.Cut(strings.Join(log(), " "), "turn.ended")
					if strings.Contains(after, "requested") || strings.Contains(after, "answered") || strings.Contains(after, "turn.ended") {
						t.Errorf("after the end: %s", after)
					}
				})
			})
		}
	}
}
