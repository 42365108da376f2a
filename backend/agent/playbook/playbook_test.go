package playbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
)

// script is a session that answers what a test says, and notes what it was asked.
type script struct {
	answers []session.StepView
	err     error
	called  []string
	said    []string
}

func (s *script) Call(_ context.Context, tool string, args json.RawMessage, until domain.StepState) (session.StepView, error) {
	s.called = append(s.called, fmt.Sprintf("%s %s %s", tool, args, until))
	if s.err != nil {
		return session.StepView{}, s.err
	}
	if len(s.answers) == 0 {
		return ok("", ""), nil
	}
	v := s.answers[0]
	s.answers = s.answers[1:]
	return v, nil
}

func (s *script) Say(_ context.Context, text string) error {
	s.said = append(s.said, text)
	return nil
}

func ok(stdout, result string) session.StepView {
	zero := 0
	v := session.StepView{State: domain.StepSealed, Ended: &event.StepEnded{Outcome: domain.OutcomeOK, ExitCode: &zero}, Sealed: &event.StepSealed{}}
	if stdout != "" {
		v.Ended.Stdout = &event.OutputStream{Head: stdout}
	}
	if result != "" {
		v.Ended.Result = json.RawMessage(result)
	}
	return v
}

func failed(code int, why string) session.StepView {
	v := ok("", "")
	v.Ended.Outcome, v.Ended.ExitCode, v.Ended.Error = domain.OutcomeFailed, &code, why
	return v
}

func refused(s domain.StepState, why string) session.StepView {
	return session.StepView{State: s, Refused: &event.StepRefused{State: s, Reason: why}}
}

func play(t *testing.T, text string, s *script) error {
	t.Helper()
	pb, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return New(pb).Turn(t.Context(), s, "")
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "empty",
		"steps: []":                        "no steps",
		"name: x":                          "no steps",
		"steps: [":                         "cannot be read",
		"steps:\n  - {}":                   "line 2: a step has either",
		"steps:\n  - {say: a, tool: exec}": "line 2: a step has either",
		"steps:\n  - say: a\n  - say: b\n    expect: {has: x}":                            "line 3: a say: has nothing",
		"steps:\n  - say: a\n    args: {x: 1}":                                            "line 2: a say: has nothing",
		"stepps:\n  - say: a":                                                             "stepps",
		"steps:\n  - {tool: exec, arg: {}}":                                               "arg",
		"steps:\n  - {tool: exec, expect: {haz: x}}":                                      "haz",
		"steps:\n  - {tool: exec, until: soon}":                                           `not "soon"`,
		"steps:\n  - {tool: exec, until: ended, expect: {changed: [a]}}":                  "line 2: changed:",
		"steps:\n  - {tool: exec, expect: {outcome: okay}}":                               `no outcome "okay"`,
		"steps:\n  - {tool: exec, expect: {matches: '('}}":                                "matches",
		"steps:\n  - {tool: exec, capture: {a: '('}}":                                     "capture a",
		"steps:\n  - {tool: exec, capture: {a: 'x'}}":                                     "exactly one group",
		"steps:\n  - {tool: exec, capture: {Save: '(x)'}}":                                "small letters",
		"steps:\n  - {tool: exec, args: {a: '${b}'}}\n  - {tool: x, capture: {b: '(x)'}}": "line 2: ${b} is used before",
		"steps:\n  - {tool: exec, args: {a: '${b}'}, capture: {b: '(x)'}}":                "used before",
		"steps:\n  - {tool: exec, args: {a: [{b: 2024-01-01}]}}":                          "a: b: a date",
		"steps:\n  - {tool: exec, args: {a: {1: x}}}":                                     "a key that is no text",
		"steps:\n  - {tool: exec, args: {a: .nan}}":                                       "finite",
		"steps:\n  - say: a\n---\nsteps:\n  - say: b":                                     "second document",
		"steps:\n  - say: a\n    say: b":                                                  "already defined",
		strings.Repeat("#", maxSize+1):                                                    "larger than",
	} {
		_, err := Parse([]byte(text))
		var e *domain.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || e.Hint == "" {
			t.Errorf("%.80q: %v, not %q", text, err, want)
		}
	}
}

func TestTurn(t *testing.T) {
	s := &script{answers: []session.StepView{ok("", `{"tree":["- button \"Save\" [e12]"]}`), ok("v=${save} $1", ""), ok("", "")}}
	err := play(t, `
name: a name
steps:
  - say: Look first.
  - tool: browser_snapshot
    capture: {save: 'button "Save" \[(e\d+)\]'}
  - tool: exec
    args: {argv: [echo, "${save}", 3, {deep: "${save}-${HOME}-${other}"}]}
    capture: {out: 'v=(.*)'}
    until: ended
  - tool: note
    args: {text: "${out}"}
  - say: "Pressed ${save}."
`, s)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`browser_snapshot {} sealed`,
		`exec {"argv":["echo","e12",3,{"deep":"e12-${HOME}-${other}"}]} ended`,
		`note {"text":"${save} $1"} sealed`, // put in once and as it is
	}
	if strings.Join(s.called, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(s.called, "\n"))
	}
	if strings.Join(s.said, "|") != "Look first.|Pressed e12." {
		t.Errorf("%v", s.said)
	}
}

func TestExpectations(t *testing.T) {
	changed := ok("", "")
	changed.Sealed.Changes = []event.FileChange{{Path: "a/b.txt"}}
	cut := ok("", "")
	cut.Ended.Stdout = &event.OutputStream{Head: "abc", Tail: "def", Total: 1000}
	unsealed := ok("", "")
	unsealed.Sealed = nil
	for name, tc := range map[string]struct {
		expect string
		got    session.StepView
		want   string // of the error; empty = it holds
	}{
		"nothing said, ok":                {"", ok("x", ""), ""},
		"nothing said, failed":            {"", failed(1, "it broke"), "it broke"},
		"nothing said, denied":            {"", refused(domain.StepDenied, "the person said no"), "the person said no"},
		"denied as expected":              {"outcome: denied", refused(domain.StepDenied, "no"), ""},
		"expired is no no":                {"outcome: denied", refused(domain.StepExpired, "nobody answered"), "nobody answered"},
		"ok, but denied expected":         {"outcome: denied", ok("", ""), `ended "ok"`},
		"exit as expected":                {"exit: 3", failed(3, ""), ""},
		"another exit":                    {"exit: 3", failed(4, ""), "exit code 3"},
		"exit 0 is ok":                    {"exit: 0", ok("", ""), ""},
		"exit where there is none":        {"exit: 0", func() session.StepView { v := ok("", ""); v.Ended.ExitCode = nil; return v }(), "exit code 0"},
		"timeout is not exit 1":           {"exit: 1", func() session.StepView { v := failed(1, ""); v.Ended.Outcome = domain.OutcomeTimeout; return v }(), "timeout"},
		"has in output":                   {"has: lo w", ok("hello world", ""), ""},
		"has in an answer":                {"has: '1000000'", ok("", `{"n":1000000,"s":"x\ny"}`), ""},
		"has not":                         {"has_not: world", ok("hello world", ""), "world"},
		"has over a cut":                  {"has: cd", cut, `does not hold "cd"`},
		"has before and after it":         {"matches: '(?s)abc.*def'", cut, ""},
		"matches":                         {"matches: '^\\d+$'", ok("12", ""), ""},
		"matches not":                     {"matches: '^\\d+$'", ok("12x", ""), "does not match"},
		"changed":                         {"changed: [a/b.txt]", changed, ""},
		"changed not":                     {"changed: [b.txt]", changed, "expected to change b.txt"},
		"changed, but nothing was sealed": {"changed: [a/b.txt]", unsealed, "expected to change"},
		"an unfinished step":              {"", session.StepView{State: domain.StepRunning}, `ended "running"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answers: []session.StepView{tc.got}}
			err := play(t, "steps:\n  - say: a\n  - tool: exec\n    expect: {"+tc.expect+"}\n  - tool: after\n", s)
			if tc.want == "" {
				if err != nil || len(s.called) != 2 {
					t.Errorf("%v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "step 2 (line 3, exec)") || len(s.called) != 1 {
				t.Errorf("%v; calls: %v", err, s.called)
			}
		})
	}
}

func TestTurnEnds(t *testing.T) {
	bad := errors.New("there is no such tool")
	s := &script{err: bad}
	if err := play(t, "steps:\n  - tool: exek\n  - tool: exec\n", s); !errors.Is(err, bad) || len(s.called) != 1 {
		t.Errorf("%v %v", err, s.called)
	}
	// Nothing to capture: the answer is shown, but not all of a huge one.
	s = &script{answers: []session.StepView{ok(strings.Repeat("é", 30000), "")}}
	err := play(t, "steps:\n  - {tool: exec, capture: {a: '(x)'}}\n  - tool: exec\n", s)
	if err == nil || !strings.Contains(err.Error(), "capture a") || len(err.Error()) > 2000 || len(s.called) != 1 || strings.ContainsRune(err.Error(), '\uFFFD') {
		t.Errorf("%.300v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the core leaves")
	cancel(why)
	pb, err := Parse([]byte("steps:\n  - say: a\n"))
	if err != nil {
		t.Fatal(err)
	}
	s = &script{}
	if err := New(pb).Turn(ctx, s, ""); !errors.Is(err, why) || len(s.said) != 0 {
		t.Errorf("%v", err)
	}
}

// The playbooks that come with Glasshouse are good ones.
func TestPlaybooksOfTheProject(t *testing.T) {
	var found []string
	const root = "../../.."
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && p != root {
			return nil // others make files here, and take them away
		}
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(p); ext == ".yaml" || ext == ".yml" {
			b, err := os.ReadFile(p)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if strings.Contains("\n"+string(b), "\nsteps:") && strings.Contains(string(b), "- tool:") {
				found = append(found, p)
				if _, err := Parse(b); err != nil {
					t.Errorf("%s: %v", p, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Error("no playbook was found")
	}
	t.Logf("%d playbooks: %v", len(found), found)
}

func FuzzParse(f *testing.F) {
	f.Add("steps:\n  - say: a\n  - tool: exec\n    args: {argv: [a, '${b}']}\n    expect: {exit: 1}\n    capture: {b: '(x)'}\n")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		pb, err := Parse([]byte(text))
		if err != nil {
			return
		}
		// What parses can be run to an end, whatever is answered.
		_ = New(pb).Turn(t.Context(), &script{}, "")
	})
}
