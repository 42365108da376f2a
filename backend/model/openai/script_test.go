package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
	"glasshouse/backend/model/wire"
)

// A conversation of several answers with a server that is as strict as the real ones.
func TestAConversationWithAStrictServer(t *testing.T) {
	const script = `
answers:
  - think: The test comes first.
    say: I run it.
    calls:
      - {tool: exec, args: {argv: [go, test]}}
      - {tool: status, args: {}}
  - think: Now the picture.
    calls: [{tool: exec, raw: '{"argv": ['}]
  - expect: {results: 1, images: 1}
    say: Done.
    usage: {input: 70, cache_read: 30, output: 9, reasoning: 4}
summary: In short.
`
	for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
		for _, effort := range []string{"", "high"} {
			s := modeltest.Text(t, script, modeltest.Options{Key: testKey})
			hc := wire.NewClient(wire.Options{Key: testKey})
			t.Cleanup(hc.CloseIdleConnections)
			cfg := config(f, s.URL())
			cfg.Effort = effort
			cl := New(cfg, testKey, hc)
			r := model.Request{System: "You are careful.", Tools: tools, Bytes: pixels, Messages: []model.Message{user(text("go"), image(png("aa")))}}
			var answers []model.Answer
			for i := range 3 {
				a, err := cl.Answer(t.Context(), r, nil)
				if err != nil {
					t.Fatalf("%s, answer %d: %v", f, i+1, err)
				}
				answers = append(answers, a)
				r.Messages = append(r.Messages, assistant(a.Parts...))
				var rs []model.Result
				for _, c := range a.Calls() {
					res := model.Result{ID: c.ID, Tool: c.Tool, Text: "result"}
					if i == 1 {
						res.Images = []model.Image{png("bb")}
					}
					rs = append(rs, res)
				}
				if len(rs) > 0 {
					r.Messages = append(r.Messages, results(rs...))
				}
			}
			if faults := s.Faults(); len(faults) > 0 {
				t.Errorf("%s: %v", f, faults)
			}
			if n := len(answers[0].Calls()); n != 2 || answers[0].Stop != model.StopCalls {
				t.Errorf("%s: %d calls, stop %q", f, n, answers[0].Stop)
			}
			if got := answers[1].Calls()[0].Args; got != `{"argv": [` {
				t.Errorf("%s: arguments %q", f, got)
			}
			last := answers[2]
			if last.Usage != (model.Usage{Input: 70, CacheRead: 30, Output: 9, Reasoning: 4}) || last.Stop != model.StopEnd || last.Parts[len(last.Parts)-1].Text != "Done." {
				t.Errorf("%s: %s", f, asJSON(t, last))
			}
			r.Quiet = true
			r.Messages = append(r.Messages, user(text("Sum it up.")))
			sum, err := cl.Answer(t.Context(), r, nil)
			if err != nil || len(sum.Parts) == 0 || sum.Parts[len(sum.Parts)-1].Text != "In short." {
				t.Errorf("%s: summary %s, error %v", f, asJSON(t, sum), err)
			}
			var total model.Usage
			for _, a := range append(answers, sum) {
				total = total.Plus(a.Usage)
			}
			if total != s.Usage() {
				t.Errorf("%s: counted %+v, the server %+v", f, total, s.Usage())
			}
		}
	}
}

func TestFailuresOfAStrictServer(t *testing.T) {
	for kind, want := range map[string]model.ErrorKind{"auth": model.ErrAuth, "quota": model.ErrQuota, "rate": model.ErrRate, "busy": model.ErrBusy,
		"server": model.ErrServer, "too_long": model.ErrTooLong, "invalid": model.ErrInvalid, "not_found": model.ErrNotFound} {
		for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
			for how, script := range map[string]string{
				"at once": fmt.Sprintf("answers:\n  - fail: {kind: %s}\n", kind),
				"within":  fmt.Sprintf("answers:\n  - say: a few words that make several events\n    mid_error: {kind: %s, after_events: 3}\n", kind),
			} {
				s := modeltest.Text(t, script)
				_, _, err := ask(t, config(f, s.URL()), hello())
				want := want
				if kind == "invalid" && how == "within" && f == model.FormatResponses {
					want = model.ErrServer // the code that this format has for it
				}
				if e := modelError(t, err); e.Kind != want || strings.Contains(err.Error(), testKey) {
					t.Errorf("%s, %s, %s: %v", f, kind, how, err)
				}
			}
		}
	}
	for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
		for _, how := range []string{"reset", "close"} {
			for _, n := range []int{1, 2, 3, 4} {
				s := modeltest.Text(t, fmt.Sprintf("answers:\n  - say: a few words that make several events and more\n    cut: {after_events: %d, how: %s}\n", n, how))
				_, _, err := ask(t, config(f, s.URL()), hello())
				if e := modelError(t, err); e.Kind != model.ErrNetwork {
					t.Errorf("%s, %s after %d events: %v", f, how, n, err)
				}
			}
		}
	}
}

// Calls that a server sends in pieces come out whole, however the pieces of several
// calls are mixed and whatever is repeated with each.
func TestMixedPiecesOfCalls(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rnd.IntN(5)
		type part struct{ name, id, args string }
		want, left := make([]part, n), make([]string, n)
		begun := make([]bool, n)
		for i := range want {
			want[i] = part{name: fmt.Sprintf("tool_%d", rnd.IntN(3)), id: fmt.Sprintf("id%d", i), args: string(encode(map[string]any{"k": strings.Repeat(`ä"\`, rnd.IntN(9)), "n": rnd.IntN(1000)}))}
			left[i] = want[i].args
		}
		repeatID, repeatName := rnd.IntN(2) == 0, rnd.IntN(2) == 0
		var deltas []string
		for started := 0; ; {
			// A call begins after those before it, as servers begin them.
			var open []int
			for i := range n {
				if i < started && left[i] != "" {
					open = append(open, i)
				}
			}
			if started < n {
				open = append(open, started)
			}
			if len(open) == 0 {
				break
			}
			i := open[rnd.IntN(len(open))]
			fn, piece := map[string]any{}, map[string]any{"index": i}
			if !begun[i] {
				begun[i] = true
				started++
				fn["name"], piece["id"] = want[i].name, want[i].id
				fn["arguments"] = ""
			} else {
				cut := 1 + rnd.IntN(len(left[i]))
				for cut < len(left[i]) && left[i][cut]&0xC0 == 0x80 {
					cut++
				}
				fn["arguments"], left[i] = left[i][:cut], left[i][cut:]
				if repeatID {
					piece["id"] = want[i].id
				}
				if repeatName && repeatID {
					fn["name"] = want[i].name
				}
			}
			piece["function"] = fn
			deltas = append(deltas, calls(string(encode(piece))))
		}
		a, err := decode(t.Context(), strings.NewReader(string(chunks("tool_calls", deltas...))), newReader(model.FormatChat, nil))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := a.Calls()
		if len(got) != n {
			t.Fatalf("seed %d: %d calls, want %d: %s", seed, len(got), n, asJSON(t, got))
		}
		for i, w := range want {
			if got[i] != (model.Call{ID: w.id, Tool: w.name, Args: w.args}) {
				t.Fatalf("seed %d: call %d is %+v, want %+v", seed, i, got[i], w)
			}
		}
	}
}

// An idle client may be used by many at once.
func TestManyAtOnce(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { stream(fixture(t, "chat/parallel.sse"))(w, r) })
	hc := wire.NewClient(wire.Options{})
	t.Cleanup(hc.CloseIdleConnections)
	cl := New(config(model.FormatChat, s.URL), "", hc)
	done := make(chan error)
	for range 16 {
		go func() {
			a, err := cl.Answer(t.Context(), hello(), nil)
			if err == nil && len(a.Calls()) != 2 {
				b, _ := json.Marshal(a)
				err = fmt.Errorf("answer %s", b)
			}
			done <- err
		}()
	}
	for range 16 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
