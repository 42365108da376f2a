package loop

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

// Whatever a model writes as a call, and whatever a guest answers, the turn goes on with
// a result that is valid text and within its size.
func FuzzCallAndResult(f *testing.F) {
	f.Add("exec", `{"argv":["x"]}`, "out", `{"stdout":"a"}`, 1, false)
	f.Add("read", `{"path":`, "\xff\x00", `[1,2`, 0, true)
	f.Add("pl\x00an", "\xff\xfe", strings.Repeat("\u202e", 9000), `{"a":"b\nc","d":[1],"a":{}}`, -1, false)
	f.Add("plan", `{"items":[]}`, "", ``, 300, false)
	f.Add("", ``, "\r\n\r", `null`, 9, true)
	f.Fuzz(func(t *testing.T, name, args, out, result string, code int, cut bool) {
		if len(args) > 1<<20 || len(out) > 1<<16 {
			return
		}
		h := newHouse(t)
		h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
			if code%5 == 3 {
				return nil, &event.StepRefused{State: domain.StepDenied, Reason: strings.ToValidUTF8(out, ".")[:min(len(strings.ToValidUTF8(out, ".")), 8000)]}
			}
			e := &event.StepEnded{Outcome: domain.OutcomeFailed, ExitCode: &code, Stdout: &event.OutputStream{Total: int64(len(out)), Head: head(out, 8000)}}
			if json.Valid([]byte(result)) && len(result) < 30000 {
				e.Result = json.RawMessage(result)
			}
			return e, nil
		}
		a := calls(name, args)
		if cut {
			a.Stop = model.StopLength
		}
		m := script(t, a, say("ok"))
		h.begin("x")
		mustWork(t, h, m)
		r := results(t, m.asked[1])[0]
		if !utf8.ValidString(r.Text) || len(r.Text) > maxResult || r.Text == "" || strings.ContainsAny(r.Text, "\x00\x1b\u202e") {
			t.Errorf("the result is %q", short(r.Text, 500))
		}
		oneResultEach(t, h)
	})
}
