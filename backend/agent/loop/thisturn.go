package loop

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
)

// Kinds of questions that belong to no step.
const (
	kindLoop  = "loop"
	kindLimit = "limit"
)

const (
	goOn = "go_on"
	stop = "stop"
)

// Names of the detail fields by which a question about a limit is known again.
const (
	fieldCalls = "calls of this turn"
	fieldLimit = "limit of the session"
)

// thisTurn is what the guards need to know of the turn that is worked on. What was
// asked about limits of the session counts in later turns too.
type thisTurn struct {
	running bool
	used    int // calls of answers that got their results
	more    int // how often the person let the calls go on past their limit
	// since are the calls since the person last spoke, with what came of them.
	since []seen
	// edits counts the steps that changed the workspace: the same result after a change is
	// not the same, as when a test fails again after another try to mend it.
	edits int
	// stopped is why the person, or nobody, ended the turn by an answer to a question.
	stopped string
	// halted: a question was put after the newest answer, so that its calls did not run yet.
	halted    bool
	questions map[domain.ApprovalID]*event.ApprovalRequested
	// agreed are the limits of the session up to which the person let it go on.
	agreed map[string]bool
}

// seen is one call and its result, and how often the workspace had changed by then.
type seen struct {
	call, result string
	edits        int
}

func (t *thisTurn) begin(ours bool) {
	t.running = ours
	t.used, t.more, t.since, t.stopped, t.halted = 0, 0, nil, "", false
}

// spoke: what the model repeats from here on, it repeats anew.
func (t *thisTurn) spoke() { t.since = nil }

// calls of a new answer: no question was put about them yet.
func (t *thisTurn) calls() { t.halted = false }

func (t *thisTurn) results(a *answer) {
	byKey := map[string]event.ToldResult{}
	for _, r := range a.results {
		byKey[r.Key] = r
	}
	t.used += min(len(a.calls()), maxCalls) // no more of them may run
	for _, c := range a.calls() {
		t.since = append(t.since, seen{signature(c), print(byKey[c.Key]), t.edits})
	}
	if n := len(t.since) - window; n > 0 {
		t.since = t.since[n:]
	}
}

// signature of a call: what is the same after its arguments are put into one form.
func signature(c event.ModelPart) string {
	raw := []byte(c.Args)
	if len(strings.TrimSpace(c.Args)) == 0 {
		raw = []byte("{}")
	}
	if canon, err := tool.Canonical(raw); err == nil {
		raw = canon
	}
	return c.Tool + " " + string(raw)
}

func print(r event.ToldResult) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	_ = enc.Encode([]any{r.Text, r.Failed})
	for _, i := range r.Images {
		_ = enc.Encode(i.Sha256)
	}
	return string(h.Sum(nil))
}

func (t *thisTurn) asked(v *event.ApprovalRequested) {
	if v.Kind != kindLoop && v.Kind != kindLimit && v.Kind != "question" {
		return
	}
	if t.questions == nil {
		t.questions = map[domain.ApprovalID]*event.ApprovalRequested{}
	}
	t.questions[v.Approval] = v
	if v.Kind != "question" {
		t.halted = true
	}
}

func field(v *event.ApprovalRequested, name string) string {
	for _, f := range v.Detail {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// answered returns what the person said with the answer, for the model.
func (t *thisTurn) answered(v *event.ApprovalAnswered) string {
	q := t.questions[v.Approval]
	if q == nil {
		return ""
	}
	delete(t.questions, v.Approval)
	t.spoke()
	if q.Kind == "question" {
		return "" // the step's result tells it
	}
	if v.Choice == goOn {
		if l := field(q, fieldLimit); l != "" {
			t.agree(l)
		}
		if field(q, fieldCalls) != "" {
			t.more++
		}
	} else {
		t.stopped = stoppedBy(q.Title, v.Text)
	}
	return v.Text
}

// agree: the person let the session go on up to a limit.
func (t *thisTurn) agree(limit string) {
	if t.agreed == nil {
		t.agreed = map[string]bool{}
	}
	t.agreed[limit] = true
}

func stoppedBy(title, text string) string {
	s := "the person stopped it, asked: " + title
	if text = strings.TrimSpace(text); text != "" {
		s += "; and said: " + text
	}
	return s
}

func (t *thisTurn) closed(v *event.ApprovalClosed) {
	q := t.questions[v.Approval]
	delete(t.questions, v.Approval)
	if q != nil && q.Kind != "question" && v.Why == "expired" {
		t.stopped = unanswered(q.Title, v.Why)
	}
}

// unanswered words a question that ended without an answer.
func unanswered(title, why string) string {
	return fmt.Sprintf("nobody answered the question (%s), which is neither a yes nor a no: %s", why, title)
}
