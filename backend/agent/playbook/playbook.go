// Package playbook runs a written list of tool calls as an agent. It needs no
// model: each call's arguments are given, and each says what it expects; the
// first expectation that does not hold ends the turn.
//
// ${name} in arguments and sentences stands for what an earlier step captured under
// that name, put in once and as it is. A name that no step captures is left alone,
// for it may be a shell's own variable.
//
//	name: fix the failing test
//	steps:
//	  - say: The test fails first.
//	  - tool: exec
//	    args: {argv: [python3, -m, unittest]}
//	    expect: {exit: 1, has: "FAILED"}
//	  - tool: browser_snapshot
//	    capture: {save: 'button "Save" \[(e\d+)\]'}
//	  - tool: browser_click
//	    args: {ref: "${save}"}
package playbook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
)

// Playbook is a parsed list.
type Playbook struct {
	Name  string `yaml:"name"`
	Steps []Step `yaml:"steps"`
}

// Step is one call or one sentence.
type Step struct {
	Say     string            `yaml:"say,omitempty"`
	Tool    string            `yaml:"tool,omitempty"`
	Args    map[string]any    `yaml:"args,omitempty"`
	Expect  Expect            `yaml:"expect,omitempty"`
	Capture map[string]string `yaml:"capture,omitempty"` // name → regular expression with one group, over the answer's text
	// Until is the state to wait for: "ended" or "sealed" (default).
	Until string `yaml:"until,omitempty"`

	line int
}

// Expect says what must hold of the answer. Without anything the outcome must be ok.
type Expect struct {
	Outcome string   `yaml:"outcome,omitempty"` // ok, failed, denied, …
	Exit    *int     `yaml:"exit,omitempty"`
	Has     string   `yaml:"has,omitempty"`
	HasNot  string   `yaml:"has_not,omitempty"`
	Matches string   `yaml:"matches,omitempty"` // regular expression
	Changed []string `yaml:"changed,omitempty"` // paths the step's checkpoint must list
}

// maxSize of a playbook's text.
const maxSize = 1 << 20

// Parse reads a playbook. Unknown fields, missing tools and bad expressions are
// errors with their line.
func Parse(src []byte) (*Playbook, error) {
	if len(src) > maxSize {
		return nil, domain.E(domain.CodeTooLarge, "the playbook is larger than 1 MiB", "split it", nil)
	}
	bad := func(line int, format string, a ...any) error {
		return &domain.Error{Code: domain.CodeInvalid, What: fmt.Sprintf("playbook, line %d: ", line) + fmt.Sprintf(format, a...), Hint: "mend the playbook and run it again"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	dec.KnownFields(true)
	var pb Playbook
	if err := dec.Decode(&pb); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, domain.E(domain.CodeInvalid, "the playbook cannot be read", "see the README for its form", err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, domain.E(domain.CodeInvalid, "the playbook has a second document after ---", "put all steps into one", nil)
	}
	var tree yaml.Node
	_ = yaml.Unmarshal(src, &tree)
	for i, n := range stepNodes(&tree) {
		if i < len(pb.Steps) {
			pb.Steps[i].line = n.Line
		}
	}
	if len(pb.Steps) == 0 {
		return nil, domain.E(domain.CodeInvalid, "the playbook has no steps", "list them under steps:", nil)
	}
	captures := map[string]bool{}
	for _, s := range pb.Steps {
		for name := range s.Capture {
			captures[name] = true
		}
	}
	known := map[string]bool{}
	for _, s := range pb.Steps {
		if err := s.check(); err != nil {
			return nil, bad(s.line, "%v", err)
		}
		for _, name := range refs(s.Say, s.Args) {
			if captures[name] && !known[name] {
				return nil, bad(s.line, "${%s} is used before a step captures it", name)
			}
		}
		for name := range s.Capture {
			known[name] = true
		}
	}
	return &pb, nil
}

// ends are the words that an outcome can be expected by.
var ends = []string{string(domain.OutcomeOK), string(domain.OutcomeFailed), string(domain.OutcomeTimeout), string(domain.OutcomeCancelled), string(domain.OutcomeUnknown),
	string(domain.OutcomeUnavailable), string(domain.StepDenied), string(domain.StepExpired)}

// check finds what could never work, before anything runs.
func (s *Step) check() error {
	e := &s.Expect
	switch {
	case (s.Say == "") == (s.Tool == ""):
		return errors.New("a step has either say: or tool:")
	case s.Say != "" && (s.Args != nil || s.Capture != nil || s.Until != "" || !reflect.ValueOf(*e).IsZero()):
		return errors.New("a say: has nothing beside it")
	case s.Until != "" && s.Until != "ended" && s.Until != "sealed":
		return fmt.Errorf("until: is ended or sealed, not %q", s.Until)
	case s.Until == "ended" && len(e.Changed) > 0:
		return errors.New("changed: is known when the step is sealed; take until: ended away")
	case e.Outcome != "" && !slices.Contains(ends, e.Outcome):
		return fmt.Errorf("there is no outcome %q; there are %s", e.Outcome, strings.Join(ends, ", "))
	}
	if err := plain(s.Args); err != nil {
		return fmt.Errorf("args: %w", err)
	}
	if _, err := regexp.Compile(e.Matches); err != nil {
		return fmt.Errorf("matches: %w", err)
	}
	for name, re := range s.Capture {
		if !varName.MatchString(name) {
			return fmt.Errorf("capture %q: a name has small letters, digits and _, so that ${%s} finds it", name, name)
		}
		r, err := regexp.Compile(re)
		if err != nil {
			return fmt.Errorf("capture %s: %w", name, err)
		}
		if r.NumSubexp() != 1 {
			return fmt.Errorf("capture %s needs exactly one group in parentheses", name)
		}
	}
	return nil
}

// plain accepts what JSON can hold and means the same there.
func plain(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if err := plain(x); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
	case []any:
		for _, x := range v {
			if err := plain(x); err != nil {
				return err
			}
		}
	case time.Time:
		return errors.New("a date must stand in quotes")
	case map[any]any:
		return errors.New("a key that is no text must stand in quotes")
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("a number must be finite")
		}
	}
	return nil
}

// refs lists the names that a step's texts refer to.
func refs(vs ...any) (out []string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			for _, m := range varRef.FindAllStringSubmatch(v, -1) {
				out = append(out, m[1])
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	for _, v := range vs {
		walk(v)
	}
	return out
}

func stepNodes(doc *yaml.Node) []*yaml.Node {
	if len(doc.Content) == 0 {
		return nil
	}
	m := doc.Content[0]
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == "steps" {
			return m.Content[i+1].Content
		}
	}
	return nil
}

// Agent runs one playbook.
type Agent struct{ pb *Playbook }

var _ agent.Agent = (*Agent)(nil)

// New returns an agent that runs pb at each turn.
func New(pb *Playbook) *Agent { return &Agent{pb} }

// Name of the agent kind.
func (*Agent) Name() string { return "playbook" }

// Turn runs the steps in order.
func (p *Agent) Turn(ctx context.Context, w agent.Work, _ string) error {
	vars := map[string]string{}
	for i, s := range p.pb.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.Say != "" {
			if err := w.Say(ctx, expand(s.Say, vars)); err != nil {
				return err
			}
			continue
		}
		fail := func(err error) error {
			return fmt.Errorf("playbook step %d (line %d, %s): %w", i+1, s.line, s.Tool, err)
		}
		args, err := json.Marshal(expandAll(s.Args, vars))
		if err != nil {
			return fail(err)
		}
		if s.Args == nil {
			args = []byte("{}")
		}
		until := domain.StepSealed
		if s.Until == "ended" {
			until = domain.StepEnded
		}
		v, err := w.Call(ctx, s.Tool, args, until)
		if err != nil {
			return fail(err)
		}
		if err := s.Expect.check(v); err != nil {
			return fail(err)
		}
		text := answer(v)
		for name, re := range s.Capture {
			m := regexp.MustCompile(re).FindStringSubmatch(text)
			if m == nil {
				return fail(fmt.Errorf("nothing in the answer matches the capture %s (%s); the answer is: %s", name, re, short(text)))
			}
			vars[name] = m[1]
		}
	}
	return nil
}

// check compares an answer with what was expected.
func (e Expect) check(v session.StepView) error {
	got := string(v.State)
	if v.Ended != nil {
		got = string(v.Ended.Outcome)
	}
	want := e.Outcome
	if want == "" {
		want = "ok"
		if e.Exit != nil && *e.Exit != 0 {
			want = "failed"
		}
	}
	text := answer(v)
	if got != want {
		why := ""
		if v.Refused != nil {
			why = ": " + v.Refused.Reason
		} else if v.Ended != nil && v.Ended.Error != "" {
			why = ": " + v.Ended.Error
		}
		return fmt.Errorf("it was expected to end %q and ended %q%s; the answer is: %s", want, got, why, short(text))
	}
	if e.Exit != nil && (v.Ended == nil || v.Ended.ExitCode == nil || *v.Ended.ExitCode != *e.Exit) {
		return fmt.Errorf("exit code %d was expected; the answer is: %s", *e.Exit, short(text))
	}
	if e.Has != "" && !strings.Contains(text, e.Has) {
		return fmt.Errorf("the answer does not hold %q: %s", e.Has, short(text))
	}
	if e.HasNot != "" && strings.Contains(text, e.HasNot) {
		return fmt.Errorf("the answer holds %q: %s", e.HasNot, short(text))
	}
	if e.Matches != "" && !regexp.MustCompile(e.Matches).MatchString(text) {
		return fmt.Errorf("the answer does not match %s: %s", e.Matches, short(text))
	}
	for _, path := range e.Changed {
		if v.Sealed == nil || !slices.ContainsFunc(v.Sealed.Changes, changed(path)) {
			return fmt.Errorf("the step was expected to change %s and did not", path)
		}
	}
	return nil
}

// gap stands where an output was cut.
const gap = "\n[…]\n"

// answer is everything a step said, as one text: output, then the tool's own answer.
func answer(v session.StepView) string {
	if v.Ended == nil {
		return ""
	}
	var b strings.Builder
	for _, o := range []*event.OutputStream{v.Ended.Stdout, v.Ended.Stderr} {
		if o == nil {
			continue
		}
		b.WriteString(o.Head)
		if o.Tail != "" {
			b.WriteString(gap + o.Tail) // nothing matches across what is not there
		}
	}
	flatten(&b, v.Ended.Result)
	return b.String()
}

// flatten writes the strings of a JSON answer line by line, unescaped, so that
// expressions match what a person would read.
func flatten(b *strings.Builder, raw json.RawMessage) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // 1000000 is not 1e+06
	if dec.Decode(&v) != nil {
		return
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString("\n" + v)
		case json.Number, bool:
			fmt.Fprintf(b, "\n%v", v)
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				walk(v[k])
			}
		}
	}
	walk(v)
}

func short(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1200 {
		return strings.ToValidUTF8(s[:600], "") + " … " + strings.ToValidUTF8(s[len(s)-600:], "")
	}
	return s
}

var varName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

var varRef = regexp.MustCompile(`\$\{([a-z_][a-z0-9_]*)\}`)

// expand puts captured values in; a name that was never captured stays as it is.
func expand(s string, vars map[string]string) string {
	return varRef.ReplaceAllStringFunc(s, func(m string) string {
		if v, ok := vars[m[2:len(m)-1]]; ok {
			return v
		}
		return m
	})
}

func expandAll(v any, vars map[string]string) any {
	switch v := v.(type) {
	case string:
		return expand(v, vars)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = expandAll(x, vars)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = expandAll(x, vars)
		}
		return out
	}
	return v
}
