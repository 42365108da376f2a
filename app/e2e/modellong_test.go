package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

const (
	longContext = 16000
	longOutput  = 1024
)

// longScript plants decisions and then works on through so many steps that the
// beginning is taken out of the conversation again and again; the model's own summary
// of it is empty.
const longScript = `
context: 16000
summary: ""
chunk: 400
answers:
  - say: A plan first.
    calls: [{tool: plan, args: {items: [{text: Count the tall herons, state: doing}, {text: Oil the brass hinges, state: open}]}}]
  - calls: [{tool: exec, args: {argv: [touch, forbidden-lamp]}}]
  - expect: {has: [the lamp belongs to the keeper]}
    calls: [{tool: ask_user, args: {question: "Which colour shall the door have?"}}]
  - expect: {has: [ultramarine with a silver rim]}
    calls: [{tool: write, args: {path: notes/herons.txt, content: "seven herons\n"}}]
  - calls: [{tool: exec, args: {argv: [seq, "${i}0000", "${i}0400"]}}]
    repeat: 300
  - say: Three hundred looks were taken.
`

// TestModelLong lets a model work through three hundred steps in a small context.
func TestModelLong(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for _, f := range formats(kind)[:1] {
			t.Run(string(f), func(t *testing.T) { modelLong(t, kind, f) })
		}
	})
}

func modelLong(t *testing.T, kind string, f model.Format) {
	w := newModelWorld(t, kind, f, script(t, longScript), fmt.Sprintf("context = %d\nmax_output = %d", longContext, longOutput), approvalPolicy)
	w.p = w.Project("")
	ses := w.modelSession(nil)
	kinds := map[string]int{}
	asked := w.answering(ses, func(q *event.ApprovalRequested) (choice, text string) {
		switch kinds[q.Kind]++; q.Kind {
		case "step":
			return "deny", "the lamp belongs to the keeper"
		case "question":
			return "reply", "ultramarine with a silver rim"
		}
		return "go_on", ""
	})
	turn := w.prompt(ses, "Take stock of the marsh, and keep to what is agreed.")
	w.Until("the question's answer", func() bool { return len(w.srv.Requests()) >= 4 })
	w.Call("POST", "/v1/sessions/"+ses+"/messages", map[string]string{"text": "By the way: never wake the miller."}, nil)
	end := w.ended(ses, turn)
	asked()
	if end.Result != "unchecked" {
		t.Errorf("the turn ended %s: %s", end.Result, end.Reason)
	}
	w.faultless()
	w.spent(ses)
	if kinds["step"] != 1 || kinds["question"] != 1 || kinds["limit"] < 2 || kinds["loop"] != 0 {
		t.Errorf("asked: %v", kinds)
	}

	steps := 0
	for _, e := range w.Log(url.Values{"session_id": {ses}}) {
		if e.Type == "step.ended" {
			steps++
		}
	}
	compactions := payloads[*event.ContextCompacted](w.World, ses)
	if steps < 300 || len(compactions) < 3 {
		t.Errorf("%d steps, %d compactions", steps, len(compactions))
	}
	most, after := int64(0), 0
	heads := map[string]bool{}
	for _, r := range w.srv.Requests() {
		if r.Asked == nil {
			continue
		}
		if most = max(most, r.Tokens); r.Tokens+r.Asked.MaxOutput > longContext {
			t.Errorf("request %d has %d tokens and asks for %d more", r.Number, r.Tokens, r.Asked.MaxOutput)
		}
		first := r.Asked.Entries[0].Text
		if r.Summary || !strings.Contains(first, "The beginning of this conversation was taken out") {
			continue
		}
		after++
		heads[first] = true
		holds(t, r, "Take stock of the marsh", "touch forbidden-lamp", "the lamp belongs to the keeper", "Which colour shall the door have?", "ultramarine with a silver rim",
			"never wake the miller", "Oil the brass hinges", "notes/herons.txt")
	}
	if len(heads) != len(compactions) {
		t.Errorf("%d compactions, but requests begin in %d ways", len(compactions), len(heads))
	}
	for _, c := range compactions {
		if c.Summary != "" || c.Before <= 0 || c.After >= c.Before {
			t.Errorf("compacted: %d to %d tokens, summary %q", c.Before, c.After, c.Summary)
		}
	}
	t.Logf("%d steps, %d requests, %d compactions, %d requests after one; the largest has %d tokens of %d", steps, len(w.srv.Requests()), len(compactions), after, most, longContext-longOutput)
}

func holds(t *testing.T, r modeltest.Request, all ...string) {
	t.Helper()
	text := r.Asked.AllText()
	for _, s := range all {
		if !strings.Contains(text, s) {
			t.Errorf("request %d was made after the beginning was taken out and does not hold %q:\n%.3000s", r.Number, s, r.Asked.Entries[0].Text)
		}
	}
}
