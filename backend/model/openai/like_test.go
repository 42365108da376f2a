package openai

import (
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
	"glasshouse/backend/model/wire"
)

// A conversation that another model began, with servers that speak Chat Completions each
// in its own way. What is not known of them by their address is learned once.
func TestAConversationWithServersOfTheirOwnWays(t *testing.T) {
	const script = `
like: %s
answers:
  - think: The test comes first.
    say: I run it.
    calls:
      - {tool: exec, args: {argv: [go, test]}}
      - {tool: exec, args: {argv: [go, vet]}}
  - calls: [{tool: status}]
  - think: So that is that.
    say: Done.
  - expect: {has: [thanks], roles: [user, assistant, tool, assistant, tool, assistant, tool, assistant, user]}
    say: Bye.
`
	for like, c := range map[string]struct {
		name    string
		refused int    // requests that teach something
		thought string // as the next request must hold it
	}{
		"openai":     {"some-model", 1, ""},
		"deepseek":   {"some-model", 1, `"reasoning_content":"The test comes first."`},
		"mistral":    {"devstral-small", 1, ""},
		"gemini":     {"gemini-3-pro", 2, `"thought_signature"`},
		"openrouter": {"some-model", 0, `"signature"`},
		"ollama":     {"some-model", 0, `"reasoning":"The test comes first."`},
	} {
		t.Run(like, func(t *testing.T) {
			yaml := fmt.Sprintf(script, like)
			if like == "mistral" {
				yaml = strings.Replace(yaml, "roles: [user, assistant, tool, ", "roles: [user, assistant, tool, assistant, user, ", 1)
			}
			s := modeltest.Text(t, yaml, modeltest.Options{Key: testKey})
			hc := wire.NewClient(wire.Options{Key: testKey})
			t.Cleanup(hc.CloseIdleConnections)
			cfg := config(model.FormatChat, s.URL())
			cfg.Model = c.name
			cl := New(cfg, testKey, hc)
			foreign := model.Part{Kind: model.KindThought, Text: "foreign thought", Opaque: []byte(`{"field":"reasoning_content"}`), From: "openai-chat:other"}
			r := model.Request{System: "You are careful.", Tools: tools, Messages: []model.Message{
				user(text("go")), assistant(foreign, call("toolu_01A09q90qw90lq917835lq9", "exec", `{"argv":["ls"]}`)), results(model.Result{ID: "toolu_01A09q90qw90lq917835lq9", Tool: "exec", Text: "a"})}}
			if like == "mistral" { // the person stopped it, and says something else
				r.Messages = append(r.Messages, user(text("go on")))
			}
			var used model.Usage
			for i := range 3 {
				a, err := cl.Answer(t.Context(), r, nil)
				if err != nil {
					t.Fatalf("answer %d: %v", i+1, err)
				}
				if n := len(a.Calls()); n != []int{2, 1, 0}[i] || (a.Stop == model.StopCalls) != (n > 0) {
					t.Fatalf("answer %d: %s", i+1, asJSON(t, a))
				}
				used = used.Plus(a.Usage)
				r.Messages = append(r.Messages, assistant(a.Parts...))
				var rs []model.Result
				for _, k := range a.Calls() {
					rs = append(rs, model.Result{ID: k.ID, Tool: k.Tool, Text: "result of " + k.Args})
				}
				if len(rs) > 0 {
					r.Messages = append(r.Messages, results(rs...))
				}
			}
			r.Messages = append(r.Messages, user(text("thanks")))
			a, err := cl.Answer(t.Context(), r, nil)
			if err != nil || a.Parts[0].Text != "Bye." {
				t.Fatalf("%s, %v", asJSON(t, a), err)
			}
			if used = used.Plus(a.Usage); used != s.Usage() {
				t.Errorf("counted %+v, the server %+v", used, s.Usage())
			}
			if f := s.Faults(); len(f) != c.refused {
				t.Errorf("refused %d times: %v", len(f), f)
			}
			rs := s.Requests()
			for _, q := range rs {
				if strings.Contains(string(q.Body), "foreign thought") {
					t.Errorf("a foreign thought is in request %d", q.Number)
				}
			}
			if second := string(rs[c.refused+1].Body); !strings.Contains(second, c.thought) {
				t.Errorf("the thought did not go back: %s", second)
			}
		})
	}
}
