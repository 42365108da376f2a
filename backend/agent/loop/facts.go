package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
)

// facts are what is kept of a session when the beginning of its conversation is taken
// out: what the person said and decided, and what was really done. They are folded from
// all of the log, whatever was taken out of the conversation before.
type facts struct {
	said      []said
	decisions []decision
	open      map[domain.ApprovalID]*question
	steps     map[domain.StepID]*stepFact
	plan      []event.PlanItem
	files     map[string]*fileFact
	reads     []string // newest last
	checks    []checkFact
	execs     []*stepFact
	left      []string // processes in the background, newest last
	mode      string
	model     string
}

type said struct {
	id   int64 // of the event
	text string
}

// decision in words. A plain one is a yes to one step and nothing more.
type decision struct {
	text  string
	plain bool
	times int
}

type question struct {
	id   domain.ApprovalID
	kind string
	text string
	step domain.StepID
	opts map[string]string
}

type stepFact struct {
	number  int
	tool    string
	title   string
	started bool
	asked   bool // a person answered about it
	over    bool
	end     string
}

type fileFact struct {
	op             string
	added, deleted int
	binary         bool
	step           int
}

type checkFact struct {
	name string
	ok   bool
	why  string
}

func newFacts() facts {
	return facts{open: map[domain.ApprovalID]*question{}, steps: map[domain.StepID]*stepFact{}, files: map[string]*fileFact{}}
}

// Most of what is remembered of each kind; the budget of what is shown is below it.
const (
	mostExecs = 20
	mostReads = 200
	mostLeft  = 10
)

func (f *facts) fold(e event.Envelope, p event.Payload) {
	switch v := p.(type) {
	case *event.TurnStarted:
		if v.Agent == "model" {
			f.say(e.ID, v.Prompt)
		}
	case *event.Message:
		if v.Role == "person" {
			f.say(e.ID, v.Text)
		}
	case *event.SessionCreated:
		f.mode, f.model = v.Mode, v.Model
	case *event.SessionChanged:
		f.changed(v)
	case *event.PlanUpdated:
		f.plan = v.Items
	case *event.CheckRan:
		i := slices.IndexFunc(f.checks, func(c checkFact) bool { return c.name == v.Name })
		if i < 0 {
			i, f.checks = len(f.checks), append(f.checks, checkFact{name: v.Name})
		}
		f.checks[i].ok, f.checks[i].why = v.OK, v.Reason
	case *event.ApprovalRequested:
		q := &question{id: v.Approval, kind: v.Kind, text: line(v.Title, 1000), step: e.StepID, opts: map[string]string{}}
		for _, c := range v.Choices {
			q.opts[c.ID] = c.Label
		}
		f.open[v.Approval] = q
	case *event.ApprovalAnswered:
		f.answered(v)
	case *event.ApprovalClosed:
		if q := f.open[v.Approval]; q != nil && v.Why == "expired" {
			f.decide("nobody answered in time, which is neither a yes nor a no: "+q.text, false)
		}
		delete(f.open, v.Approval)
	default:
		f.step(e, p)
	}
}

func (f *facts) say(id int64, text string) {
	if text = strings.TrimSpace(text); text != "" {
		f.said = append(f.said, said{id, clean(text)})
	}
}

func (f *facts) decide(text string, plain bool) {
	for i := range f.decisions {
		if f.decisions[i].text == text {
			d := f.decisions[i]
			d.times++
			f.decisions = append(slices.Delete(f.decisions, i, i+1), d)
			return
		}
	}
	f.decisions = append(f.decisions, decision{text, plain, 1})
}

func (f *facts) changed(v *event.SessionChanged) {
	if v.Mode != nil && *v.Mode != f.mode {
		f.mode = *v.Mode
		f.decide("the person changed the session's mode to "+line(*v.Mode, 40), false)
	}
	if v.Model != nil && *v.Model != f.model {
		f.model = *v.Model
		f.decide("the person changed the model to "+line(*v.Model, 60), false)
	}
	if v.LimitNanos != nil {
		f.decide("the person set the limit of what the session may cost to "+orNone(*v.LimitNanos, dollars), false)
	}
	if v.LimitTokens != nil {
		f.decide("the person set the limit of the session's tokens to "+orNone(*v.LimitTokens, thousands), false)
	}
}

func orNone(n int64, show func(int64) string) string {
	if n == 0 {
		return "none"
	}
	return show(n)
}

func (f *facts) answered(v *event.ApprovalAnswered) {
	q := f.open[v.Approval]
	delete(f.open, v.Approval)
	if q == nil {
		return
	}
	if st := f.steps[q.step]; st != nil && q.kind == "step" {
		st.asked = true
	}
	label := q.opts[v.Choice]
	if label == "" {
		label = v.Choice
	}
	text := line(v.Text, 2000)
	if q.kind == "question" {
		if v.Choice == "reply" {
			label = ""
		}
		f.decide(fmt.Sprintf("asked: %s; the person answered: %s", q.text, strings.TrimSpace(label+" "+quoted(text))), false)
		return
	}
	s := fmt.Sprintf("%s: %s", label, q.text)
	if text != "" {
		s += "; the person said: " + quoted(text)
	}
	f.decide(s, q.kind == "step" && v.Choice == "once" && text == "")
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return `"` + s + `"`
}

func (f *facts) step(e event.Envelope, p event.Payload) {
	if v, ok := p.(*event.StepRequested); ok {
		f.steps[e.StepID] = &stepFact{number: v.Number, tool: v.Tool, title: line(v.Title, 200)}
		if v.Tool == "read" {
			f.read(v.Args)
		}
		return
	}
	st := f.steps[e.StepID]
	if st == nil {
		return
	}
	switch v := p.(type) {
	case *event.StepStarted:
		st.started = true
	case *event.StepRefused:
		st.over = true
		if v.State == domain.StepDenied && !st.asked {
			s := "denied: " + st.title + ": " + line(v.Reason, 600)
			if v.Allowed != "" {
				s += "; allowed would be: " + line(v.Allowed, 400)
			}
			f.decide(s, false)
		}
	case *event.StepEnded:
		st.over = true
		st.end = string(v.Outcome)
		if v.ExitCode != nil {
			st.end = fmt.Sprintf("exit code %d", *v.ExitCode)
		}
		if st.tool == "exec" {
			if f.execs = append(f.execs, st); len(f.execs) > mostExecs {
				f.execs = f.execs[1:]
			}
		}
		for _, b := range v.Background {
			if f.left = append(f.left, fmt.Sprintf("%s (left by step %d)", line(b, 200), st.number)); len(f.left) > mostLeft {
				f.left = f.left[1:]
			}
		}
	case *event.StepSealed:
		for _, c := range v.Changes {
			f.file(c, st.number)
		}
	}
}

func (f *facts) read(args json.RawMessage) {
	var a struct {
		Path string `json:"path"`
	}
	if json.Unmarshal(args, &a) != nil || a.Path == "" {
		return
	}
	p := line(a.Path, 300)
	if i := slices.Index(f.reads, p); i >= 0 {
		f.reads = slices.Delete(f.reads, i, i+1)
	}
	if f.reads = append(f.reads, p); len(f.reads) > mostReads {
		f.reads = f.reads[1:]
	}
}

func (f *facts) file(c event.FileChange, step int) {
	path := line(c.Path, 300)
	was := f.files[path]
	if was == nil {
		was = &fileFact{}
		f.files[path] = was
	}
	if c.OldPath != "" && c.OldPath != c.Path {
		if old := f.files[line(c.OldPath, 300)]; old != nil {
			was.added, was.deleted = was.added+old.added, was.deleted+old.deleted
			delete(f.files, line(c.OldPath, 300))
		}
	}
	was.op, was.binary, was.step = c.Op, c.Binary, step
	was.added, was.deleted = was.added+c.Added, was.deleted+c.Deleted
}

// line is text from anywhere in one line.
func line(s string, n int) string { return tool.OneLine(s, n) }
