package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/event"
)

func text(kind, s string) event.ModelPart { return event.ModelPart{Kind: kind, Text: s} }

func delta(answer, kind string, offset int64, s string) *event.MessageDelta {
	return &event.MessageDelta{Turn: doorTurn, Answer: answer, Attempt: 1, Kind: kind, Offset: offset, Text: s}
}

func answered(id string, n int, parts ...event.ModelPart) *event.ModelAnswered {
	return &event.ModelAnswered{Turn: doorTurn, Answer: id, Number: n, Model: "big", Parts: parts, Stop: "end", Attempts: 1, Priced: true, CostNanos: 20_600_000,
		Usage: event.ModelUsage{Input: 4345, CacheRead: 8000, Output: 678}, Context: 13_023, Size: 200_000}
}

func ended(result string) *event.TurnEnded { return &event.TurnEnded{Turn: doorTurn, Result: result} }

func TestExitCodeSaysHowATurnEnded(t *testing.T) {
	for result, code := range map[string]int{"ok": 0, "unchecked": 0, "failed": 1, "stopped": 3, "cancelled": 4, "interrupted": 5, "something new": 1} {
		d := newDoors(t)
		d.turn = func(d *doors) {
			d.tell(&event.TurnEnded{Turn: "t_other", Result: "failed"}, ended(result))
		}
		r := line(t, "", "run", "--project", "shop", "do it")
		if r.code != code {
			t.Errorf("%s: %d %s %s", result, r.code, r.out, r.err)
		}
		has(t, r.out, "turn "+result)
		d.shut()
	}
}

// Tokens and cost belong together also where a part of them is our guess: of a server that
// counts nothing, and of attempts that broke off.
func TestTokensThatNoServerCountedAreSaid(t *testing.T) {
	for _, c := range []struct {
		usage event.ModelUsage
		lost  int64
		want  string
	}{
		{event.ModelUsage{}, 0, "1 answer, 0 in, 0 out, about 13,023 tokens that no server counted, $0.0206"},
		{event.ModelUsage{}, 1000, "1 answer, 0 in, 0 out, about 14,023 tokens that no server counted, $0.0206"},
		{event.ModelUsage{Input: 10, Output: 2}, 1000, "1 answer, 10 in, 2 out, about 1,000 tokens that no server counted, $0.0206"},
		{event.ModelUsage{Input: 10, Output: 2}, 0, "1 answer, 10 in, 2 out, $0.0206"},
	} {
		d := newDoors(t)
		d.turn = func(d *doors) {
			a := answered("a", 1, text("text", "Done."))
			a.Usage, a.Lost = c.usage, c.lost
			d.tell(a, ended("ok"))
		}
		has(t, line(t, "", "run", "--project", "shop", "do it").out, c.want)
		d.shut()
	}
}

// The whole of an answer is shown once, whatever pieces of it came.
func TestAnAnswerIsShownOnce(t *testing.T) {
	const whole = "The sum lacks the tax.\n\nI mend line 3:\n  return a + b\n"
	for name, ps := range map[string][]event.Payload{
		"in pieces":                  {delta("a", "text", 0, whole[:10]), delta("a", "text", 10, whole[10:30]), delta("a", "text", 30, whole[30:])},
		"no pieces":                  nil,
		"the last is missing":        {delta("a", "text", 0, whole[:10])},
		"one is missing":             {delta("a", "text", 0, whole[:10]), delta("a", "text", 20, whole[20:])},
		"the first is missing":       {delta("a", "text", 10, whole[10:])},
		"twice":                      {delta("a", "text", 0, whole[:10]), delta("a", "text", 0, whole[:10]), delta("a", "text", 5, whole[5:])},
		"of thoughts and a call too": {delta("a", "thought", 0, "secret musing"), delta("a", "text", 0, whole[:12]), delta("a", "call", 0, `{"x":`), delta("a", "text", 12, whole[12:])},
	} {
		d := newDoors(t)
		d.turn = func(d *doors) {
			d.tell(&event.TurnStarted{Turn: doorTurn, Prompt: "mend it", Agent: "model"})
			d.tell(ps...)
			d.tell(answered("a", 1, text("thought", "secret musing"), text("text", whole)), ended("ok"))
		}
		r := line(t, "", "run", "--project", "shop", "mend it")
		want := "  | The sum lacks the tax.\n\n  | I mend line 3:\n  |   return a + b\n"
		if strings.Count(r.out, want) != 1 || strings.Count(r.out, "The sum") != 1 || strings.Count(r.out, "return") != 1 || strings.Contains(r.out, "musing") {
			t.Errorf("%s:\n%s", name, r.out)
		}
		has(t, r.out, "turn by person: mend it", want, "─── turn ok", "1 answer, 12,345 in (8,000 cached), 678 out, $0.0206")
		d.shut()
	}
}

func TestWhatAFailedAttemptSaidIsSaidAnew(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		second := delta("a", "text", 0, "Hello again")
		second.Attempt = 2
		a := answered("a", 1, text("text", "Hello again, all."))
		a.Attempts = 2
		d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model"}, delta("a", "text", 0, "Hello wor"), &event.ModelRetried{Turn: doorTurn, Answer: "a", Attempt: 1, Kind: "busy", Status: 529, Reason: "overloaded\x1b[2J", WaitMS: 1500},
			second, a, ended("ok"))
	}
	r := line(t, "", "run", "--project", "shop", "hi")
	has(t, r.out, "  | Hello wor\n", "attempt 1 failed (busy, HTTP 529): overloaded\\x1b[2J; the next one in 1.5 s\n", "  | Hello again, all.\n", "turn ok")
}

// An answer that is too large for an event is shown whole; where the rest of it cannot be
// read, as it came, else cut and with where all of it is.
func TestALargeAnswer(t *testing.T) {
	const came, read = 1, 2
	for how := range 4 {
		d := newDoors(t)
		if how&read != 0 {
			d.answer["GET /v1/blobs/abc"] = reply{200, `[{"kind":"text","text":"A very long answer."},{"kind":"call","tool":"edit","args":"…"}]`}
		}
		d.turn = func(d *doors) {
			d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model"})
			if how&came != 0 {
				d.tell(delta("a", "text", 0, "A very long answer."))
			}
			a := answered("a", 1, text("text", "A very…"))
			a.PartsBlob = &event.Blob{Sha256: "abc", Size: 9}
			d.tell(a, ended("ok"))
		}
		r := line(t, "", "run", "--project", "shop", "hi")
		if how != 0 {
			has(t, r.out, "  | A very long answer.\n")
		} else {
			has(t, r.out, "  | A very…\n")
		}
		if strings.Count(r.out, "A very") != 1 || strings.Contains(r.out, "artefact abc") != (how&read == 0) {
			t.Errorf("%d\n%s", how, r.out)
		}
		d.shut()
	}
}

func TestATurnIsShownAsItGoes(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		plan := []event.PlanItem{{Text: "look", State: "done"}, {Text: "mend\n\x1b[31m", State: "doing"}, {Text: "test", State: "open"}, {Text: "deploy", State: "dropped"}}
		d.tell(&event.PlanUpdated{Turn: doorTurn, Items: plan}, &event.PlanUpdated{Turn: doorTurn, Items: plan},
			answered("a", 1, text("thought", "hm\nhm"), event.ModelPart{Kind: "call", Key: "k", Tool: "exec", Args: "{"}),
			&event.ModelTold{Turn: doorTurn, Answer: "a", Results: []event.ToldResult{{Key: "k", Tool: "exec", Text: "/argv: missing\nmore", Failed: true}, {Key: "k2", Tool: "read", Step: "st_1", Text: "no file", Failed: true},
				{Key: "k3", Tool: "edit", Text: `{"error":"The arguments do not fit","problems":[{"pointer":"/new","expected":"a value","got":"nothing"},{"pointer":"","expected":"an object","got":"a\u001b"}]}`, Failed: true}}})
		d.tellStep("st_2", &event.StepRequested{Number: 7, Tool: "exec", Title: "ls\x07"})
		mode, limit := "plan", int64(2_500_000_000)
		d.tell(&event.SessionChanged{Mode: &mode, LimitNanos: &limit}, &event.ContextCompacted{Turn: doorTurn, Before: 98_000, After: 12_000, Reason: "nearly full"},
			&event.TurnResumed{Turn: doorTurn}, &event.Message{Role: "person", Text: "use the other file"})
		cut := answered("b", 2, text("text", "so"))
		cut.Stop, cut.Priced, cut.CostNanos = "length", false, 0
		sum := answered("c", 3, text("text", "a summary nobody asked for"))
		sum.Purpose = "summary"
		d.tell(cut, sum, &event.TurnEnded{Turn: doorTurn, Result: "failed", Reason: "\x1b]0;title\x07"})
	}
	r := line(t, "", "run", "--project", "shop", "-v", "do it")
	if r.code != 1 {
		t.Errorf("%d %s", r.code, r.err)
	}
	has(t, r.out, "    plan\n      [x] look\n      [>] mend\\n\\x1b[31m\n      [ ] test\n      [-] deploy\n", "  ~ hm\n  ~ hm\n", "answer 1 of big: 12,345 in (8,000 cached), 678 out, $0.0206; 6 % of its context",
		"✗ no call of exec: /argv: missing\n", "✗ no call of edit: The arguments do not fit\n        /new: a value, not nothing\n        an object, not a\\x1b\n", "  7 ▸ exec", `ls\x07`, "from now on: mode plan, limit $2.50", "the conversation was shortened for the model: 98,000 tokens, now about 12,000 (nearly full)",
		"turn goes on: the core was started again", "person: “use the other file”", "  | so\n", "! the answer was cut", `turn failed: \x1b]0;title\x07`,
		"3 answers, 37,035 in (24,000 cached), 2,034 out, $0.0412 and 1 answer without a known price")
	if strings.Count(r.out, "plan\n") != 1 || strings.Contains(r.out, "no file") || strings.Contains(r.out, "nobody asked") || strings.ContainsAny(r.out, "\x1b\x07") {
		t.Errorf("%q", r.out)
	}
}

// Whatever a model writes, nothing of it reaches the terminal but text.
func TestHostileText(t *testing.T) {
	const evil = "a\x1b[2Jb\x1b]52;c;AAAA\x07\u202ec\u200bd\x9be\rf\x00g\u2028h"
	d := newDoors(t)
	d.turn = func(d *doors) {
		d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: evil}, delta("a", "thought", 0, evil), delta("a", "text", 0, evil[:3]), delta("a", "text", 3, evil[3:9]),
			answered("a", 1, text("thought", evil), text("text", evil), event.ModelPart{Kind: "call", Tool: evil, Args: evil}),
			&event.ModelTold{Turn: doorTurn, Results: []event.ToldResult{{Tool: evil, Text: evil, Failed: true}}}, &event.Message{Role: "agent", Text: evil},
			&event.ModelRetried{Kind: evil, Reason: evil}, &event.ContextCompacted{Reason: evil}, ended("failed"))
	}
	for _, args := range [][]string{{"run", "--project", "shop", "-v", "x"}, {"session", "watch", "-v", doorSession}, {"log", "--session", doorSession}, {"--json", "session", "watch", "--deltas", doorSession}} {
		r := line(t, "", args...)
		for _, bad := range []string{"\x1b", "\x07", "\u202e", "\u200b", "\u0085", "\r", "\x00", "\u2028", "\u009b"} {
			if strings.Contains(r.out+r.err, bad) {
				t.Errorf("%q lets %q through:\n%q", args, bad, r.out)
			}
		}
		if r.out == "" {
			t.Errorf("%q shows nothing: %s", args, r.err)
		}
	}
}

func TestJSONIsTheEventsAlone(t *testing.T) {
	for _, deltas := range []bool{false, true} {
		d := newDoors(t)
		d.turn = func(d *doors) {
			d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model"}, delta("a", "text", 0, "Hel"), &event.StepOutput{Text: "noise"}, answered("a", 1, text("text", "Hello")), ended("stopped"))
		}
		args := []string{"--json", "run", "--project", "shop", "hi"}
		want := "turn.started model.answered turn.ended"
		if deltas {
			args, want = append(args, "--deltas"), "turn.started message.delta model.answered turn.ended"
		}
		r := line(t, "", args...)
		var types []string
		for l := range strings.Lines(r.out) {
			var e event.Envelope
			if err := json.Unmarshal([]byte(l), &e); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
			types = append(types, string(e.Type))
		}
		if got := strings.Join(types, " "); got != want || r.code != 3 || r.err != "" {
			t.Errorf("%s, %d, %q", got, r.code, r.err)
		}
		d.shut()
	}
}

func TestWhatATurnIsGiven(t *testing.T) {
	dir := t.TempDir()
	book := filepath.Join(dir, "fix.yaml")
	if err := os.WriteFile(book, []byte("steps: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, in      string
		args          []string
		session, turn string
	}{
		{"a prompt", "", []string{"--project", "shop", "--mode", "ask", "--limit", "2.50", "--limit-tokens", "90000", "--model", "home", "--check", "make test", "fix the test\nand more"},
			`{"project_id":"shop","title":"fix the test","agent":"model","mode":"ask","model":"home","limit_nanos":2500000000,"limit_tokens":90000,"checks":[{"name":"make test","code":"make test"}]}`,
			`{"agent":"model","prompt":"fix the test\nand more"}`},
		{"from a pipe", "\n first line \nsecond", []string{"--project", "shop", "-"}, `{"project_id":"shop","title":"first line","agent":"model"}`, `{"agent":"model","prompt":"\n first line \nsecond"}`},
		{"a playbook", "", []string{"--project", "shop", book}, `{"project_id":"shop","title":"fix.yaml","agent":"playbook","input":"steps: []\n"}`, `{"agent":"playbook","input":"steps: []\n"}`},
		{"a file's name to a model", "", []string{"--project", "shop", "--agent", "model", book}, `{"project_id":"shop","title":"` + firstLine(book, 100) + `","agent":"model"}`, `{"agent":"model","prompt":"` + book + `"}`},
		{"going on", "", []string{"--session", doorSession, "--go-on"}, "", `{"agent":"model","go_on":true}`},
	} {
		d := newDoors(t)
		d.turn = func(d *doors) { d.tell(ended("ok")) }
		r := line(t, c.in, append([]string{"run"}, c.args...)...)
		made, turns := strings.Join(d.called("POST", "/v1/sessions"), ""), strings.Join(d.called("POST", "/v1/sessions/"+doorSession+"/turns"), "")
		if r.code != 0 || made != c.session || turns != c.turn {
			t.Errorf("%s: %d %s\n%s\n%s", c.name, r.code, r.err, made, turns)
		}
		d.shut()
	}
	// A session that is there is set first, and only in what was given.
	d := newDoors(t)
	d.turn = func(d *doors) { d.tell(ended("ok")) }
	r := line(t, "", "run", "--session", doorSession, "--limit", "0", "--mode", "plan", "more")
	if set := d.called("PATCH", "/v1/sessions/"+doorSession); r.code != 0 || len(set) != 1 || set[0] != `{"limit_nanos":0,"mode":"plan"}` || d.called("POST", "/v1/sessions") != nil {
		t.Errorf("%d %s %q", r.code, r.err, set)
	}
}

func TestWrongLinesOfRun(t *testing.T) {
	d := newDoors(t)
	missing := filepath.Join(t.TempDir(), "fix.yaml")
	for _, c := range []struct {
		code     int
		says, in string
		args     []string
	}{
		{2, "put it in quotes", "", []string{"--project", "p", "fix", "the", "test"}},
		{2, "give a prompt", "", []string{"--project", "p"}},
		{2, "either --session or --project", "", []string{"hi"}},
		{2, "either --session or --project", "", []string{"--session", "s", "--project", "p", "hi"}},
		{2, "--go-on takes no prompt", "", []string{"--session", "s", "--go-on", "hi"}},
		{2, "in a --session", "", []string{"--project", "p", "--go-on"}},
		{2, "for a new session", "", []string{"--session", "s", "--check", "true", "hi"}},
		{2, "plan, ask, auto or full", "", []string{"--project", "p", "--mode", "yolo", "hi"}},
		{2, "such as 2.50", "", []string{"--project", "p", "--limit", "2,50", "hi"}},
		{2, "such as 2.50", "", []string{"--project", "p", "--limit", "-1", "hi"}},
		{2, "at least 0", "", []string{"--project", "p", "--limit-tokens", "-1", "hi"}},
		{2, "model or playbook", "", []string{"--project", "p", "--agent", "robot", "hi"}},
		{2, "the prompt is empty", " \n", []string{"--project", "p", "-"}},
		{2, "the prompt is empty", "", []string{"--project", "p", " "}},
		{2, "no UTF-8", "\xff\xfe", []string{"--project", "p", "-"}},
		{2, "longer than 32,768 characters", strings.Repeat("x", promptMost+1), []string{"--project", "p", "-"}},
		{2, "is for models", "", []string{"--project", "p", "--agent", "playbook", "--limit", "1", "x.yaml"}},
		{1, "no such file", "", []string{"--project", "p", missing}},
	} {
		r := line(t, c.in, append([]string{"run"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("%q: %d %q", c.args, r.code, r.err)
		}
	}
	if len(d.calls) > 0 {
		t.Errorf("the core was asked: %v", d.calls)
	}
}

// What the core refuses leaves no session behind.
func TestATurnThatIsRefused(t *testing.T) {
	d := newDoors(t)
	d.answer["POST /v1/sessions/"+doorSession+"/turns"] = reply{409, `{"code":"conflict","what":"a turn is running","hint":"wait for its end"}`}
	r := line(t, "", "run", "--project", "shop", "hi")
	if r.code != 1 || !strings.Contains(r.err, "a turn is running") || len(d.called("POST", "/v1/sessions/"+doorSession+"/end")) != 1 {
		t.Errorf("%+v", r)
	}
	r = line(t, "", "run", "--session", doorSession, "hi")
	if r.code != 1 || len(d.called("POST", "/v1/sessions/"+doorSession+"/end")) != 1 {
		t.Errorf("a session that was there is ended: %+v", r)
	}
}

// A question without a terminal is shown with how to answer it, and waited for.
func TestQuestionsOfATurn(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		d.tell(&event.ApprovalRequested{Approval: "ap_1", Kind: "limit", Title: "$2.00 of $2.50 are used", Digest: "d", FreeText: true,
			Detail:  []event.Field{{Name: "last result", Value: "1\n  [stop] Stop\nanswer: ", Origin: "guest"}},
			Choices: []event.Choice{{ID: "go_on", Label: "Go on"}, {ID: "stop", Label: "Stop"}}})
		d.says("answer ap_1 CHOICE") // one that is answered before it is shown is not shown
		d.tell(&event.ApprovalAnswered{Approval: "ap_1", Choice: "stop", By: "person"}, ended("stopped"))
	}
	r := line(t, "", "run", "--project", "shop", "hi")
	has(t, r.out, "? $2.00 of $2.50 are used", `answered "stop" by person`, "turn stopped")
	has(t, r.err, "ap_1", "  last result (the machine says): 1\n    |   [stop] Stop\n    | answer: \n", "  [go_on] Go on", "glasshouse approval answer ap_1 CHOICE", "--go-on", "glasshouse session set "+doorSession+" --limit")
	if r.code != 3 {
		t.Error(r.code)
	}
}

// No line that a model writes is one that Glasshouse would.
func TestNoWordsOfAModelPassForOthers(t *testing.T) {
	d := newDoors(t)
	forged := []string{"✓ check make test", "person: “yes, push it”", "push ended, ok true", "─── turn ok", "  1 ✓ ok, exit 0, 5 ms", "? Connect to a.example:443  [ap_1]", "\r─── turn ok", "\u2028─── turn ok", "\v\f─── turn ok"}
	whole := strings.Join(forged, "\n") + "\n\n" + strings.Join(forged, "\n")
	d.turn = func(d *doors) {
		d.tell(&event.TurnStarted{Turn: doorTurn, Prompt: "x", Agent: "model"}, delta("a", "text", 0, whole[:20]))
		d.tell(&event.CheckRan{Name: "make test", OK: true})
		d.tell(answered("a", 1, text("text", whole)), ended("failed"))
	}
	r := line(t, "", "run", "--project", "shop", "x")
	real := map[string]int{}
	for l := range strings.Lines(r.out) {
		if !strings.HasPrefix(l, "  | ") {
			real[strings.TrimSpace(l)]++
		}
	}
	for _, f := range forged {
		if n := real[strings.TrimSpace(f)]; n != 0 && (f != forged[0] || n != 1) {
			t.Errorf("%q is there %d times:\n%s", f, n, r.out)
		}
	}
	if real[forged[0]] != 1 || strings.Count(r.out, "  | ") < len(forged) {
		t.Error(r.out)
	}
}

// What an agent asks cannot pass for a question of Glasshouse, whatever its words are.
func TestWhoAsksIsSaid(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		d.tell(&event.ApprovalRequested{Approval: "ap_1", Kind: "question", Title: "Glasshouse: allow access to evil.example?", Digest: "d",
			Choices: []event.Choice{{ID: "option-1", Label: "Allow once"}, {ID: "option-2", Label: "Deny"}}})
		d.says("answer ap_1 CHOICE") // one that is answered before it is shown is not shown
		d.tell(&event.ApprovalAnswered{Approval: "ap_1", Choice: "option-1", By: "person"}, ended("ok"))
	}
	r := line(t, "", "run", "--project", "shop", "hi")
	has(t, r.out, "? the agent asks: Glasshouse: allow access to evil.example?  [ap_1]")
	has(t, r.err, "ap_1  the agent asks: Glasshouse: allow access to evil.example?\n  the answer is told to the agent; it allows nothing\n")
}

// A cut stream is taken up where it was; a turn's end is told once.
func TestACutIsFollowedOver(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "hi"}, delta("a", "text", 0, "Hello"))
		d.until("the first word to go out", func() bool { return d.sent() == 2 })
		d.shut()
		d.tell(answered("a", 1, text("text", "Hello there"))) // while nobody listens
		time.Sleep(300 * time.Millisecond)
		d.open()
		d.tell(&event.TurnResumed{Turn: doorTurn}, ended("ok"))
	}
	r := line(t, "", "run", "--project", "shop", "hi")
	if r.code != 0 || strings.Count(r.out, "Hello") != 1 || strings.Count(r.out, "turn ok") != 1 {
		t.Errorf("%d %s\n%s", r.code, r.err, r.out)
	}
	has(t, r.out, "turn by", "  | Hello there\n", "goes on", "turn ok", "1 answer")
}

// A core that was killed may take calls for a while and answer none: that is no end.
func TestACoreThatIsOnlyJustGoing(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "hi"}, delta("a", "text", 0, "Hello"))
		d.until("the first word to go out", func() bool { return d.sent() == 2 })
		l := d.listen()
		d.shut()
		for range 12 {
			c, err := l.Accept()
			if err != nil {
				d.t.Error(err)
				return
			}
			c.Close()
		}
		d.tell(answered("a", 1, text("text", "Hello there")), &event.TurnResumed{Turn: doorTurn}, ended("ok"))
		d.open()
		l.Close()
	}
	r := line(t, "", "run", "--project", "shop", "hi")
	if r.code != 0 || strings.Count(r.out, "turn ok") != 1 {
		t.Errorf("%d %s\n%s", r.code, r.err, r.out)
	}
}

// A core that was asked to end stays ended; the command says what comes of the turn.
func TestACoreThatWasEndedStaysEnded(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "hi"})
		os.Remove(filepath.Join(d.dir, "core.sock"))
		d.shut()
	}
	r := line(t, "", "run", "--project", "shop", "hi")
	if r.code != 130 || !strings.Contains(r.err, "the core was ended") || !strings.Contains(r.err, "session watch "+doorSession) {
		t.Errorf("%d %q", r.code, r.err)
	}
}

func TestWatchShowsTheNewestTurn(t *testing.T) {
	d := newDoors(t)
	d.tell(&event.TurnStarted{Turn: "t_0", Agent: "model", Prompt: "the old one"}, &event.TurnEnded{Turn: "t_0", Result: "failed"},
		&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "the new one"}, answered("a", 1, text("text", "Done.")), ended("cancelled"))
	r := line(t, "", "session", "watch", doorSession)
	if r.code != 4 || strings.Contains(r.out, "old") {
		t.Errorf("%+v", r)
	}
	has(t, r.out, "the new one", "  | Done.\n", "turn cancelled")
	d.mu.Lock()
	d.log = d.log[3:4] // an answer without a turn: nothing to show, and no search without end
	d.mu.Unlock()
	if r := line(t, "", "session", "watch", doorSession); r.code != 1 || !strings.Contains(r.err, "no agent has worked") {
		t.Errorf("%+v", r)
	}
}

func TestSessionSettings(t *testing.T) {
	d := newDoors(t)
	r := line(t, "", "session", "set", doorSession, "--limit", "$0.5", "--limit-tokens", "7", "--model", "", "--mode", "full")
	if set := d.called("PATCH", "/v1/sessions/"+doorSession); r.code != 0 || len(set) != 1 || set[0] != `{"limit_nanos":500000000,"limit_tokens":7,"mode":"full","model":""}` {
		t.Errorf("%+v %q", r, set)
	}
	has(t, r.out, "mode", "auto", "model", "big", "used", "3 answers, 1,200 in (200 cached), 34 out, $0.0412", "limits", "cost $2.50, tokens none")
	for says, args := range map[string][]string{"what should change": {}, "such as 2.50": {"--limit", "much"}, "at least 0": {"--limit-tokens", "-2"}} {
		if r := line(t, "", append([]string{"session", "set", doorSession}, args...)...); r.code != 2 || !strings.Contains(r.err, says) {
			t.Errorf("%+v", r)
		}
	}
	if r := line(t, "from a pipe", "session", "say", doorSession, "-"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := line(t, "", "session", "say", doorSession, " "); r.code != 2 {
		t.Errorf("%+v", r)
	}
	if said := d.called("POST", "/v1/sessions/"+doorSession+"/messages"); len(said) != 1 || said[0] != `{"text":"from a pipe"}` {
		t.Errorf("%q", said)
	}
	if r := line(t, "", "session", "stop", doorSession); r.code != 0 || len(d.called("POST", "/v1/sessions/"+doorSession+"/cancel")) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestMoney(t *testing.T) {
	for in, want := range map[string]int64{"2.50": 2_500_000_000, "$2.5": 2_500_000_000, "0": 0, ".05": 50_000_000, "3": 3_000_000_000, "0.000000001": 1, "999999.999999999": 999_999_999_999_999} {
		if n, err := dollars(in); err != nil || n != want {
			t.Errorf("%s: %d %v", in, n, err)
		}
	}
	for _, in := range []string{"", ".", "$", "1.", "-1", "+1", "1e3", "1,5", "1.2.3", "0x1", "1000000", "0.0000000001", "NaN", "Inf", "٣"} {
		if n, err := dollars(in); err == nil {
			t.Errorf("%q is taken as %d", in, n)
		}
	}
	for n, want := range map[int64]string{0: "$0", 1: "<$0.0001", 41_200_000: "$0.0412", 2_500_000_000: "$2.5000", 123_456_000_000: "$123.46"} {
		if got := cost(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "none", 2_500_000_000: "$2.50", 1: "$0.000000001", 3_000_000_000: "$3.00", 125_000_000: "$0.125"} {
		if got := limitText(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1_234_567: "1,234,567", -1000: "-1,000"} {
		if got := count(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
