package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// follow reads events after an id until f says stop; a cut stream is taken up
// again after the last event seen.
func (c *Client) follow(ctx context.Context, q url.Values, after int64, f func(event.Envelope) (more bool, err error)) error {
	if q == nil {
		q = url.Values{}
	}
	q.Set("format", "ndjson")
	fails := 0
	for {
		q.Set("after", strconv.FormatInt(after, 10))
		b, err := c.open(ctx, "GET", at{"events"}, q, nil)
		if err == nil {
			fails = 0
			sc := bufio.NewScanner(b)
			sc.Buffer(make([]byte, 64<<10), 4<<20)
			for sc.Scan() {
				if len(sc.Bytes()) == 0 {
					continue
				}
				var e event.Envelope
				if json.Unmarshal(sc.Bytes(), &e) != nil {
					break // cut in the middle
				}
				if e.ID > 0 {
					after = e.ID
				}
				more, err := f(e)
				if err != nil || !more {
					b.Close()
					return err
				}
			}
			b.Close()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var re *remoteError
		if errors.As(err, &re) {
			return err
		}
		if fails++; fails > 20 {
			return fmt.Errorf("the core's events cannot be followed: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// showProgress prints what long calls say of themselves until stopped.
func (e *env) showProgress(ctx context.Context, c *Client) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		last := map[domain.ProjectID]string{} // progress is told again and again
		var info struct {
			Latest int64 `json:"latest_event_id"`
		}
		if c.get(ctx, at{"info"}, nil, &info) != nil {
			return
		}
		_ = c.follow(ctx, url.Values{"types": {"machine.progress,machine.state"}, "transient": {"true"}}, info.Latest, func(ev event.Envelope) (bool, error) {
			p, err := event.Decode(ev)
			if err != nil {
				return true, nil //nolint:nilerr // an event that is not known here has nothing to show
			}
			text := ""
			switch p := p.(type) {
			case *event.MachineProgress:
				text = p.Text
			case *event.MachineState:
				text = "machine " + p.State
				if p.Problem != "" {
					text += ": " + p.Problem
				}
			}
			if text != "" && text != last[ev.ProjectID] {
				last[ev.ProjectID] = text
				fmt.Fprintln(e.err, "… "+one(text))
			}
			return true, nil
		})
	}()
	return func() { cancel(); <-done }
}

// timeline prints events as a person reads them: a line a step, and what a model says
// as it says it.
type timeline struct {
	s     *screen
	w     io.Writer
	steps map[domain.StepID]*event.StepRequested
	rules map[domain.StepID]string // that denied a step

	how     bool // say how questions are answered
	silent  bool // questions are shown beside it
	verbose bool
	// whole reads all parts of an answer that is too large for its event; nil: none are read.
	whole func(event.Blob) ([]event.ModelPart, error)

	now     spoken // the answer that is being written
	kind    string // of the text on the open line
	ends    int    // line ends that are not written yet
	planned []event.PlanItem
	tally   tally
}

func newTimeline(w io.Writer) *timeline {
	s := newScreen(w)
	return &timeline{s: s, w: s, steps: map[domain.StepID]*event.StepRequested{}, rules: map[domain.StepID]string{}}
}

// by names the mode or rule that decided; nothing where none did.
func by(rule string) string {
	mode, is := strings.CutPrefix(rule, "mode:")
	switch {
	case is:
		return " by mode " + one(mode)
	case rule == "", rule == "default":
		return ""
	case rule == "person": // who called it, so that nobody else was to be asked
		return " by a person"
	}
	return " by rule " + one(clip(rule, 100))
}

func (t *timeline) line(step domain.StepID, mark, format string, a ...any) {
	n := "   "
	if r := t.steps[step]; r != nil {
		n = fmt.Sprintf("%3d", r.Number)
	}
	colour := map[string]string{"✓": good, "✗": bad, "⊘": bad, "!": bad, "?": asking}[mark]
	if colour != "" {
		mark = t.s.paint(colour, mark)
	}
	fmt.Fprintf(t.w, "%s %s %s\n", n, mark, fmt.Sprintf(format, a...))
}

func (t *timeline) show(ev event.Envelope) {
	p, err := event.Decode(ev)
	if err != nil {
		fmt.Fprintf(t.w, "      (event %d cannot be shown: %v)\n", ev.ID, err)
		return
	}
	id := ev.StepID
	if d, is := p.(*event.MessageDelta); is {
		t.piece(d)
		return
	}
	if _, is := p.(*event.ModelAnswered); !is {
		t.closeText() // what goes on after this line goes on set in
	}
	switch p := p.(type) {
	case *event.TurnStarted:
		text := "─── turn by " + one(string(ev.Actor))
		if p.Agent == "model" && p.GoOn {
			text += ": go on"
		} else if p.Agent == "model" {
			text += ": " + one(firstLine(p.Prompt, 100))
		}
		fmt.Fprintln(t.w, text)
	case *event.TurnResumed:
		fmt.Fprintln(t.w, "─── turn goes on: the core was started again")
	case *event.TurnEnded:
		text := "─── turn " + one(p.Result)
		if p.Reason != "" {
			text += ": " + one(p.Reason)
		}
		fmt.Fprintln(t.w, text)
		if t.tally.answers > 0 {
			t.note("", "%s", t.tally.String())
		}
	case *event.ModelAnswered:
		t.answered(p)
	case *event.ModelTold:
		t.told(p)
	case *event.ModelRetried:
		t.retried(p)
	case *event.PlanUpdated:
		t.plan(p)
	case *event.ContextCompacted:
		why := ""
		if p.Reason != "" {
			why = " (" + one(clip(p.Reason, 200)) + ")"
		}
		t.note("", "… the conversation was shortened for the model: %s tokens, now about %s%s", count(p.Before), count(p.After), why)
	case *event.SessionChanged:
		t.note("", "… from now on: %s, set by %s", settingsText(p), one(string(ev.Actor)))
	case *event.Message:
		if p.Role == "person" {
			fmt.Fprintf(t.w, "    %s: “%s”\n", one(string(ev.Actor)), one(p.Text))
			return
		}
		fmt.Fprintf(t.w, "    “%s”\n", one(p.Text))
	case *event.StepRequested:
		t.steps[id] = p
		t.line(id, "▸", "%-18s %s", p.Tool, one(clip(p.Title, 200)))
	case *event.StepDecided:
		switch p.Decision {
		case domain.Ask:
			t.line(id, "·", "asks%s: %s", by(p.Rule), one(p.Reason))
		case domain.Deny:
			t.rules[id] = p.Rule // the step's refusal, which says why, follows
		}
	case *event.StepRefused:
		t.line(id, "✗", "%s%s: %s", p.State, by(t.rules[id]), one(p.Reason))
		delete(t.rules, id)
		if p.Allowed != "" {
			t.line(id, " ", "  what would be allowed: %s", one(clip(p.Allowed, 300)))
		}
	case *event.StepEnded:
		mark := "✓"
		if p.Outcome != domain.OutcomeOK {
			mark = "✗"
		}
		text := string(p.Outcome)
		if p.ExitCode != nil {
			text += fmt.Sprintf(", exit %d", *p.ExitCode)
		}
		if p.Error != "" {
			text += ": " + one(clip(p.Error, 300))
		}
		if p.Source != "" {
			text += " (from the machine's journal)"
		}
		for _, b := range p.Background {
			text += "; still running: " + one(clip(b, 80))
		}
		t.line(id, mark, "%s, %d ms", text, p.DurationMS)
	case *event.StepSealed:
		if p.Failed != "" {
			t.line(id, "!", "no checkpoint: %s", one(p.Failed))
		}
		for _, c := range p.Changes {
			t.line(id, " ", "%s %s (+%d −%d)", c.Op, one(c.Path), c.Added, c.Deleted)
		}
	case *event.ApprovalRequested:
		if t.silent {
			return
		}
		t.line(id, "?", "%s  [%s]", asks(*p), p.Approval)
		if t.how {
			var ids []string
			for _, ch := range p.Choices {
				ids = append(ids, one(ch.ID))
				if p.Kind == "question" {
					ids[len(ids)-1] += " = " + one(ch.Label)
				}
			}
			if takesText(*p) {
				ids = append(ids, "or any text")
			}
			t.line(id, " ", "glasshouse approval answer %s CHOICE: %s", p.Approval, strings.Join(ids, ", "))
		}
	case *event.ApprovalAnswered:
		t.line(id, "?", "answered %q by %s", p.Choice, one(string(p.By)))
	case *event.ApprovalClosed:
		t.line(id, "?", "closed: %s", p.Why)
	case *event.EgressOpened:
		t.line(id, "→", "%s %s:%d at %s by %s", one(p.Method), one(p.Host), p.Port, p.Addr, one(p.Rule))
	case *event.EgressBlocked:
		t.line(id, "⊘", "%s:%d: %s", one(p.Host), p.Port, one(p.Reason))
	case *event.EgressClosed:
		t.line(id, "→", "closed: %d bytes out, %d in", p.BytesOut, p.BytesIn)
	case *event.CheckRan:
		mark := "✓"
		if !p.OK {
			mark = "✗"
		}
		mark = t.s.paint(map[bool]string{true: good, false: bad}[p.OK], mark)
		fmt.Fprintf(t.w, "    %s check %s %s\n", mark, one(p.Name), one(p.Reason))
	case *event.MachineState:
		fmt.Fprintf(t.w, "    machine %s is %s %s\n", p.Machine, p.State, one(p.Problem))
	case *event.ReviewOpened:
		fmt.Fprintf(t.w, "    review %s: %d files, %d decisions to make\n", p.Review, p.Files, p.Units)
	case *event.ReviewDecided:
		fmt.Fprintf(t.w, "    review: %s %s %s\n", p.Decision, one(p.Path), p.Unit)
	case *event.PushStarted:
		fmt.Fprintf(t.w, "    push %s → %s %s\n", p.Commit, one(p.Remote), one(p.Ref))
	case *event.PushEnded:
		fmt.Fprintf(t.w, "    push ended, ok %v %s\n", p.OK, one(p.Reason))
	}
}
