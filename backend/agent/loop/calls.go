package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"glasshouse/backend/agent"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/tool"
)

// maxCalls of one answer are run; the rest is told so.
const maxCalls = 32

// call is one of an answer's, on its way to a result.
type call struct {
	part   event.ModelPart
	step   agent.Step
	result event.ToldResult
	done   bool
	plan   *event.PlanUpdated
	checks []ran // of a call of checks
}

func (c *call) end(text string, failed bool) {
	c.result.Text, c.result.Failed, c.done = text, failed, true
}

// work runs the calls of an answer that none of was begun, and tells the results.
func (t *turn) work(ctx context.Context, a *answer) error {
	parts := a.calls()
	if err := t.repeats(ctx, parts[:min(len(parts), maxCalls)]); err != nil {
		return err
	}
	if err := t.callLimit(ctx, min(len(parts), maxCalls)); err != nil {
		return err
	}
	cs := make([]*call, len(parts))
	for i, p := range parts {
		cs[i] = &call{part: p, result: event.ToldResult{Key: p.Key, Tool: p.Tool}}
		if i >= maxCalls {
			cs[i].end(fmt.Sprintf("It did not run: only the first %d calls of an answer are. Make it again.", maxCalls), true)
			continue
		}
		cut := a.stop == model.StopLength && i == len(parts)-1
		if err := t.inOrder(ctx, cs[:i], cs[i]); err != nil {
			return err
		}
		if err := t.begin(ctx, cs[i], cut); err != nil {
			return err
		}
	}
	if err := t.wait(ctx, cs); err != nil {
		return err
	}
	return t.tell(ctx, a, cs)
}

// begin makes a step of a call, or answers it where none can come of it.
func (t *turn) begin(ctx context.Context, c *call, cut bool) error {
	raw := json.RawMessage(strings.TrimSpace(c.part.Args))
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
		if cut {
			c.end(problem("The answer was cut before the arguments of this call came", nil, wasCut), true)
			return nil
		}
	}
	if text := malformed(c.part.Tool, raw, cut); text != "" {
		c.end(text, true)
		return nil
	}
	if c.part.Tool == planName {
		p, err := t.l.own.Prepare(planName, raw)
		if err != nil {
			c.end(unfit(err, cut), true)
			return nil
		}
		if c.plan, err = planOf(t.room.Turn(), p.Args); err != nil {
			return err
		}
		c.end(planText(c.plan), false)
		return nil
	}
	if c.part.Tool == checksName {
		p, err := t.l.own.Prepare(checksName, raw)
		if err != nil {
			c.end(unfit(err, cut), true)
			return nil
		}
		return t.beginChecks(ctx, c, p.Args)
	}
	if text := unknownTool(c.part.Tool, t.room.Tools()); text != "" {
		c.end(text, true)
		return nil
	}
	st, err := t.room.Begin(ctx, c.part.Tool, raw, c.part.Key)
	if err != nil {
		var known *domain.Error
		if ctx.Err() == nil && errors.As(err, &known) {
			switch known.Code {
			case domain.CodeInvalid, domain.CodeTooLarge, domain.CodeNotFound, domain.CodeDenied:
				c.end(unfit(err, cut), true)
				return nil
			}
		}
		return err
	}
	c.step, c.result.Step = st, st.View().ID
	return nil
}

// tell records the results of an answer's calls, all or none.
func (t *turn) tell(ctx context.Context, a *answer, cs []*call) error {
	told := &event.ModelTold{Turn: t.room.Turn(), Answer: a.id}
	var ps []event.Payload
	for _, c := range cs {
		c.result.Text = clean(c.result.Text)
		told.Results = append(told.Results, c.result)
		if c.plan != nil {
			ps = append(ps, c.plan)
		}
	}
	fitResults(told.Results)
	raw, err := marshal(told.Results)
	if err != nil {
		return err
	}
	if len(raw) > inline {
		b, err := t.room.PutBlob(ctx, raw, "application/json", "results.json")
		if err != nil {
			return err
		}
		told.ResultsBlob, told.Results = &b, cutResults(told.Results)
	}
	return t.room.Record(ctx, append(ps, told)...)
}

// cutResults is what stands in the event beside the artefact with all of it.
func cutResults(rs []event.ToldResult) (out []event.ToldResult) {
	room := inline * 3 / 4
	for _, r := range rs {
		r.Text, r.Tool, r.Images = short(r.Text, 200), short(r.Tool, 80), nil
		raw, err := json.Marshal(r)
		if err != nil {
			continue
		}
		if room -= len(raw); room < 0 {
			break
		}
		out = append(out, r)
	}
	return out
}

// settle answers the calls of an answer that was left without results: by how their
// steps ended, where steps came of them. Nothing is begun here.
func (t *turn) settle(ctx context.Context, a *answer) error {
	var cs []*call
	for _, p := range a.calls() {
		c := &call{part: p, result: event.ToldResult{Key: p.Key, Tool: p.Tool}}
		cs = append(cs, c)
		if p.Tool == checksName {
			if err := t.settleChecks(ctx, c); err != nil {
				return err
			}
			continue
		}
		id, began := t.conv.keys[p.Key]
		if !began {
			c.end("Interrupted before it ran; it did not run.", true)
			continue
		}
		c.result.Step = id
		st, err := t.room.Step(ctx, id)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.end("Interrupted; the outcome is unknown. "+lookFirst, true)
			continue
		}
		v, err := st.Wait(ctx, domain.StepEnded)
		if err != nil {
			return err
		}
		c.result.Text, c.result.Failed, c.result.Images = outcome(v)
		if v.Ended != nil && v.Ended.Outcome == domain.OutcomeUnknown {
			c.result.Text = "Interrupted. " + c.result.Text
		}
	}
	return t.tell(ctx, a, cs)
}

const wasCut = "your answer was cut at the limit of its length: write less at once, a large file in several parts"

// problem is what a model is told of a call that cannot be made.
func problem(what string, problems []tool.Problem, hint string) string {
	raw, err := marshal(struct {
		Error    string         `json:"error"`
		Problems []tool.Problem `json:"problems,omitempty"`
		Hint     string         `json:"hint,omitempty"`
	}{what, problems, hint})
	if err != nil {
		return what
	}
	return string(raw)
}

// malformed says where arguments are no JSON object; "" = they are one.
func malformed(name string, raw json.RawMessage, cut bool) string {
	var v json.RawMessage
	err := json.Unmarshal(raw, &v)
	if err == nil && raw[0] == '{' {
		return ""
	}
	what := fmt.Sprintf("The arguments of %s are no JSON object; the call was not made", short(line(name, 80), 80))
	p := tool.Problem{Expected: "one JSON object", Got: "the value " + quoteAt(raw, 0)}
	hint := "write the arguments again, as one JSON object"
	if err != nil {
		at := int64(len(raw))
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			at = max(0, syn.Offset-1)
		}
		p.Expected = fmt.Sprintf("valid JSON at byte %d", at)
		if p.Got = quoteAt(raw, int(at)); int(at) >= len(bytes.TrimRight(raw, " \n\t\r"))-1 && strings.Contains(err.Error(), "unexpected end") {
			p.Expected, p.Got = fmt.Sprintf("more JSON at byte %d", len(raw)), "the end, after "+quoteAt(raw, max(0, len(raw)-30))
		}
	}
	if cut {
		hint = wasCut
	}
	return problem(what, []tool.Problem{p}, hint)
}

// quoteAt shows a few bytes of raw.
func quoteAt(raw []byte, at int) string {
	at = min(max(0, at), len(raw))
	s := strings.ToValidUTF8(string(raw[at:min(len(raw), at+30)]), "\uFFFD")
	return fmt.Sprintf("%q", s)
}

// unfit words arguments that do not fit their schema.
func unfit(err error, cut bool) string {
	var known *domain.Error
	var args *tool.ArgsError
	hint := ""
	what := err.Error()
	var ps []tool.Problem
	if errors.As(err, &known) {
		what, hint = known.What+"; the call was not made", known.Hint
		if known.Err != nil && !errors.As(err, &args) {
			ps = []tool.Problem{{Pointer: known.Pointer, Expected: "what the tool takes", Got: known.Err.Error()}}
		}
	}
	if errors.As(err, &args) {
		ps = args.Problems
		if args.More > 0 {
			hint += fmt.Sprintf("; there are %d more problems", args.More)
		}
	}
	if cut {
		hint = wasCut
	}
	return problem(what, ps, hint)
}

func unknownTool(name string, all []tool.Tool) string {
	names := make([]string, 0, len(all)+1)
	for _, t := range all {
		if t.Name == name {
			return ""
		}
		names = append(names, t.Name)
	}
	names = append(names, planName, checksName)
	return problem(fmt.Sprintf("There is no tool %q; the call was not made", line(name, 80)), nil, "the tools are: "+strings.Join(names, ", "))
}
