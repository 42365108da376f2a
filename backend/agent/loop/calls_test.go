package loop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/tool"
)

func TestCallsThatDoNotFitMakeNoStep(t *testing.T) {
	for _, c := range []struct {
		name, tool, args string
		stop             model.Stop
		want             []string
		pointer          string
	}{
		{"missing", "read", `{}`, "", []string{"do not fit"}, "/path"},
		{"nothing at all", "read", ``, "", []string{"do not fit"}, "/path"},
		{"wrong type", "exec", `{"argv":"ls"}`, "", []string{"array"}, "/argv"},
		{"unknown property", "list", `{"pth":"x"}`, "", []string{"no such property", "path"}, "/pth"},
		{"broken", "exec", `{"argv": ["ls", ]}`, "", []string{"no JSON object", "valid JSON at byte 16", `\"]}\"`}, ""},
		{"no object", "exec", `["ls"]`, "", []string{"one JSON object", `\"[\\\"ls\\\"]\"`}, ""},
		{"two objects", "list", `{}{}`, "", []string{"at byte 2"}, ""},
		{"twice the same key", "list", `{"path":"a","path":"b"}`, "", []string{"comes twice"}, "/path"},
		{"cut off", "write", `{"path":"a","content":"once upon`, model.StopLength, []string{"more JSON at byte 32", "cut at the limit of its length", "several parts"}, ""},
		{"cut before the arguments", "list", ``, model.StopLength, []string{"cut at the limit", "several parts"}, ""},
		{"unknown tool", "shell", `{}`, "", []string{`no tool \"shell\"`, "exec, read"}, ""},
		{"plan", "plan", `{"items":[{"text":"x","state":"maybe"}]}`, "", []string{"dropped"}, "/items/0/state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.tools = keepTools(t, h.tools)
			a := calls(c.tool, c.args)
			if c.stop != "" {
				a.Stop = c.stop
			}
			m := script(t, a, say("ok"))
			h.begin("x")
			mustWork(t, h, m)
			r := results(t, m.asked[1])[0]
			has(t, r.Text, c.want...)
			if !r.Failed {
				t.Error("the result is not marked as failed")
			}
			var got struct {
				Error    string         `json:"error"`
				Problems []tool.Problem `json:"problems"`
				Hint     string         `json:"hint"`
			}
			if err := json.Unmarshal([]byte(r.Text), &got); err != nil || got.Error == "" {
				t.Fatalf("%v in %s", err, r.Text)
			}
			if c.pointer != "" && (len(got.Problems) == 0 || got.Problems[0].Pointer != c.pointer || got.Problems[0].Expected == "" || got.Problems[0].Got == "") {
				t.Errorf("problems %+v", got.Problems)
			}
			if n := len(recorded[*event.StepRequested](h)); n != 0 {
				t.Errorf("%d steps came of it", n)
			}
		})
	}
}

func keepTools(t *testing.T, ts []tool.Tool) []tool.Tool {
	t.Helper()
	if len(ts) < 10 {
		t.Fatal("where are the tools?")
	}
	return ts
}

func TestTooManyCallsAtOnce(t *testing.T) {
	h := newHouse(t)
	var pairs []string
	for i := range maxCalls + 3 {
		pairs = append(pairs, "exec", run("echo", fmt.Sprint(i)))
	}
	m := script(t, calls(pairs...), say("ok"))
	h.begin("x")
	mustWork(t, h, m)
	if n := len(recorded[*event.StepRequested](h)); n != maxCalls {
		t.Errorf("%d steps", n)
	}
	rs := results(t, m.asked[1])
	has(t, rs[maxCalls].Text, "It did not run", "first 32 calls")
}

// A model that has lost its mind does not end the session.
func TestAThousandCallsAtOnce(t *testing.T) {
	h := newHouse(t)
	var pairs []string
	for i := range 1000 {
		pairs = append(pairs, "exec", run("echo", fmt.Sprint(i), strings.Repeat("long ", 40)))
	}
	m := script(t, calls(pairs...), say("ok"))
	h.begin("x")
	mustWork(t, h, m)
	if n := len(recorded[*event.StepRequested](h)); n != maxCalls {
		t.Errorf("%d steps", n)
	}
	// OpenAI refuses every request that holds an answer of more than 128 calls.
	rs := results(t, m.asked[1])
	if len(rs) != 128 {
		t.Errorf("%d results", len(rs))
	}
	has(t, rs[127].Text, "made 872 calls more", "None of them ran")
	told := 0
	for _, p := range recorded[*event.ModelTold](h) {
		if p.ResultsBlob == nil {
			t.Errorf("the results are not kept whole: %d", len(p.Results))
		}
		told++
	}
	if told != 1 {
		t.Errorf("results were told %d times", told)
	}
	h.lost = true
	h.begin("y")
	m.think = func(_ int, r model.Request) (model.Answer, error) { return say("ok"), nil }
	mustWork(t, h, m)
}

func TestServersThatGiveOddIds(t *testing.T) {
	h := newHouse(t)
	a := calls("exec", run("a"), "exec", run("b"), "exec", run("c"))
	a.Parts[0].Call.ID, a.Parts[1].Call.ID, a.Parts[2].Call.ID = "same", "same", ""
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) { return wrote(0, r.Title), nil }
	m := script(t, a, say("ok")) // the mind refuses ids that come twice
	h.begin("x")
	mustWork(t, h, m)
	for i, want := range []string{"Run a", "Run b", "Run c"} {
		has(t, results(t, m.asked[1])[i].Text, want)
	}
}

func TestResultsSayWhatHappened(t *testing.T) {
	code := 3
	for _, c := range []struct {
		name    string
		tool    string
		args    string
		ended   *event.StepEnded
		refused *event.StepRefused
		want    []string
		not     []string
		failed  bool
	}{
		{"denied", "exec", run("x"), nil, &event.StepRefused{State: domain.StepDenied, Reason: "the person said no: not today", Allowed: "reading"},
			[]string{`{"denied":true,"reason":"the person said no: not today","what_would_be_allowed":"reading"}`}, nil, true},
		{"expired", "exec", run("x"), nil, &event.StepRefused{State: domain.StepExpired, Reason: "nobody answered in time", Allowed: "ask again"},
			[]string{"It did not run", "This is not a no", "ask again"}, []string{"denied"}, true},
		{"cancelled before", "exec", run("x"), nil, &event.StepRefused{State: domain.StepCancelled, Reason: "cancelled before it ran"},
			[]string{"did not run", "not a no"}, []string{"denied"}, true},
		{"unknown", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeUnknown, Error: "The connection was lost"}, nil,
			[]string{"unknown", "look before you do it again", "The connection was lost"}, nil, true},
		{"unavailable", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeUnavailable, Error: "no machine"}, nil,
			[]string{"nothing ran", "not a no", "no machine"}, nil, true},
		{"timeout", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeTimeout, Error: "did not end within 2m", Stdout: &event.OutputStream{Total: 4, Head: "half"}}, nil,
			[]string{"Its time ran out", "within 2m", "half"}, nil, true},
		{"background", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: new(int), Background: []string{"77 server --port 1"}}, nil,
			[]string{"exit code 0", "still running in the background\n77 server --port 1"}, nil, false},
		{"no output", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: new(int), DurationMS: 98765}, nil,
			[]string{"exit code 0", "(no output)"}, []string{"98765"}, false},
		{"only heads and tails", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeFailed, ExitCode: &code, Error: "The command ended with exit code 3",
			Stdout: &event.OutputStream{Total: 100000, Head: "HEAD", Tail: "TAIL"}, Stderr: &event.OutputStream{Total: 3, Head: "bad"}}, nil,
			[]string{"exit code 3", "HEAD\n[… 99992 bytes left out …]\nTAIL", "100000 bytes in all", "in a file", "--- stderr\nbad"}, []string{"The command ended"}, true},
		{"a tool's JSON", "read", `{"path":"a"}`, &event.StepEnded{Outcome: domain.OutcomeOK, Result: json.RawMessage(`{"path":"/workspace/a","text":"one\n\ttwo <b>\n","first_line":1,"last_line":2}`)}, nil,
			[]string{`{"path":"/workspace/a","first_line":1,"last_line":2}` + "\n--- text\none\n\ttwo <b>"}, []string{`\n`}, false},
		{"a tool's error", "read", `{"path":"a"}`, &event.StepEnded{Outcome: domain.OutcomeFailed, Error: "There is no a (look with list)"}, nil,
			[]string{"There is no a (look with list)"}, nil, true},
		{"binary", "exec", run("x"), &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: new(int), Stdout: &event.OutputStream{Total: 9, Binary: true}}, nil,
			[]string{"9 bytes that are no text"}, nil, false},
		{"hostile", "exec", run("x"), wrote(0, "\x1b[2J\x07ok \u202eevil \u0000\xff\r\nline\rover"), nil,
			[]string{"<U+001B>[2J<U+0007>ok <U+202E>evil <U+0000>\uFFFD\r\nline<U+000D>over"}, []string{"\x1b", "\u202e", "\x00"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.run = func(*event.StepRequested) (*event.StepEnded, *event.StepRefused) { return c.ended, c.refused }
			m := script(t, calls(c.tool, c.args), say("ok"))
			h.begin("x")
			mustWork(t, h, m)
			r := results(t, m.asked[1])[0]
			has(t, r.Text, c.want...)
			hasNot(t, r.Text, c.not...)
			if r.Failed != c.failed {
				t.Errorf("failed is %v", r.Failed)
			}
			if !utf8.ValidString(r.Text) {
				t.Error("not valid UTF-8")
			}
		})
	}
}

func TestLargeResultsShareTheRoom(t *testing.T) {
	h := newHouse(t)
	big := strings.Repeat("0123456789 \"quoted\" line\n", 4000)
	h.run = func(r *event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		if strings.Contains(r.Title, "small") {
			return wrote(0, "small and whole\n"), nil
		}
		return &event.StepEnded{Outcome: domain.OutcomeOK, Result: json.RawMessage(fmt.Sprintf(`{"text":%q}`, big[:30000]))}, nil
	}
	m := script(t, calls("read", `{"path":"1"}`, "exec", run("small"), "read", `{"path":"2"}`, "read", `{"path":"3"}`, "read", `{"path":"4"}`, "read", `{"path":"5"}`), say("ok"))
	h.begin("x")
	mustWork(t, h, m)
	sum := 0
	for i, r := range results(t, m.asked[1]) {
		sum += len(r.Text)
		if len(r.Text) > maxResult {
			t.Errorf("result %d has %d bytes", i, len(r.Text))
		}
		if i == 1 {
			has(t, r.Text, "small and whole")
			hasNot(t, r.Text, "left out")
		} else {
			has(t, r.Text, "left out here")
			if len(r.Text) < 8000 {
				t.Errorf("result %d got only %d bytes: the share is not fair", i, len(r.Text))
			}
		}
	}
	if sum > maxResults || sum < maxResults*9/10 {
		t.Errorf("%d bytes in all", sum)
	}
	// They are larger than an event: they lie in an artefact, and come back whole.
	told := recorded[*event.ModelTold](h)
	if told[0].ResultsBlob == nil || len(told[0].Results) != 6 {
		t.Fatalf("%+v", told[0])
	}
	before := show(m.asked[1])
	h.begin("y")
	m.think = func(_ int, r model.Request) (model.Answer, error) {
		if !strings.HasPrefix(show(r), before) {
			t.Error("the conversation folded again is another")
		}
		return say("ok"), nil
	}
	mustWork(t, h, m)
	// And when the artefact is gone, that is said and nothing fails.
	h.lost = true
	h.begin("z")
	m.think = func(_ int, r model.Request) (model.Answer, error) {
		has(t, textOf(r, model.RoleTool), "is lost", "read")
		return say("ok"), nil
	}
	mustWork(t, h, m)
}

func TestLargeAnswersLieInArtefacts(t *testing.T) {
	h := newHouse(t)
	content := strings.Repeat("x\"\n", 30000)
	raw, _ := json.Marshal(map[string]string{"path": "a.txt", "content": content})
	a := calls("write", string(raw))
	a.Parts = append([]model.Part{{Kind: model.KindThought, Text: "I think", Opaque: json.RawMessage(`{"signature":"abc"}`), From: "openai-chat test-1"}}, a.Parts...)
	m := script(t, a, say("ok"))
	h.begin("x")
	mustWork(t, h, m)
	e := recorded[*event.ModelAnswered](h)[0]
	if e.PartsBlob == nil || len(e.Parts) != 2 || len(e.Parts[1].Args) > 500 || e.Parts[1].Key == "" {
		t.Fatalf("%+v", e)
	}
	check := func(r model.Request) {
		t.Helper()
		got := r.Messages[1].Parts
		if len(got) != 2 || string(got[0].Opaque) != `{"signature":"abc"}` || got[0].From != "openai-chat test-1" || got[1].Call.Args != string(raw) {
			t.Errorf("the answer does not come back as it was: %+v", got)
		}
	}
	check(m.asked[1])
	h.begin("y")
	m.think = func(_ int, r model.Request) (model.Answer, error) { check(r); return say("ok"), nil }
	mustWork(t, h, m)
	h.lost = true
	h.begin("z")
	m.think = func(_ int, r model.Request) (model.Answer, error) {
		has(t, show(r), "most of this answer is lost")
		if c := r.Messages[1].Parts[1].Call; c == nil || !json.Valid([]byte(c.Args)) {
			t.Errorf("what is left of the call is %+v", c)
		}
		return say("ok"), nil
	}
	mustWork(t, h, m)
}

func TestPictures(t *testing.T) {
	h := newHouse(t)
	n := 0
	h.run = func(*event.StepRequested) (*event.StepEnded, *event.StepRefused) {
		n++
		b, _ := h.PutBlob(t.Context(), []byte(fmt.Sprintf("\x89PNG picture %d", n)), "image/png", "screenshot.png")
		return &event.StepEnded{Outcome: domain.OutcomeOK, Result: json.RawMessage(fmt.Sprintf(`{"sha256":%q}`, b.Sha256)), Artefacts: []event.Blob{b, {Sha256: "t", Mime: "text/plain"}}}, nil
	}
	var as []model.Answer
	for range 5 {
		as = append(as, calls("browser_screenshot", `{}`))
	}
	m := script(t, append(as, say("ok"))...)
	h.begin("x")
	mustWork(t, h, m)
	images := func(r model.Request) (sent []bool) {
		for _, msg := range r.Messages {
			for _, p := range msg.Parts {
				if p.Result != nil {
					sent = append(sent, len(p.Result.Images) == 1)
					for _, i := range p.Result.Images {
						if raw, err := r.Bytes(t.Context(), i); err != nil || !strings.Contains(string(raw), "picture") {
							t.Errorf("%q, %v", raw, err)
						}
					}
				}
			}
		}
		return sent
	}
	if got := fmt.Sprint(images(m.asked[5])); got != "[false false true true true]" {
		t.Errorf("pictures sent: %s", got)
	}
	has(t, textOf(m.asked[5], model.RoleTool), "no longer shown")
	// A model without eyes gets none, and is told.
	m.cfg.TextOnly = true
	h.begin("y")
	m.think = func(_ int, r model.Request) (model.Answer, error) {
		if got := fmt.Sprint(images(r)); got != "[false false false false false]" {
			t.Errorf("pictures sent: %s", got)
		}
		has(t, textOf(r, model.RoleTool), "cannot see pictures")
		return say("ok"), nil
	}
	mustWork(t, h, m)
	m.cfg.TextOnly, h.lost = false, true
	h.begin("z")
	m.think = func(_ int, r model.Request) (model.Answer, error) {
		if got := fmt.Sprint(images(r)); got != "[false false false false false]" {
			t.Errorf("pictures sent: %s", got)
		}
		has(t, textOf(r, model.RoleTool), "its artefact cannot be read")
		return say("ok"), nil
	}
	mustWork(t, h, m)
}
