package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"glasshouse/backend/event"
)

// spoken is an answer while it is written: what of it is shown already. The answer
// itself comes whole at its end, so nothing is lost when pieces are.
type spoken struct {
	answer  string
	attempt int
	kinds   map[string]*shown
}

type shown struct {
	text strings.Builder
	gap  bool // a piece was missed: the rest is shown when the answer is there
}

func (t *timeline) piece(p *event.MessageDelta) {
	if p.Kind != "text" && (p.Kind != "thought" || !t.verbose) {
		return
	}
	if t.now.answer != p.Answer || t.now.attempt != p.Attempt {
		t.closeText()
		t.now = spoken{answer: p.Answer, attempt: p.Attempt, kinds: map[string]*shown{}}
	}
	s := t.now.kinds[p.Kind]
	if s == nil {
		s = &shown{}
		t.now.kinds[p.Kind] = s
	}
	have := int64(s.text.Len())
	switch {
	case s.gap, p.Offset+int64(len(p.Text)) <= have:
		return
	case p.Offset > have:
		s.gap = true
		return
	}
	rest := p.Text[have-p.Offset:]
	s.text.WriteString(rest)
	t.say(p.Kind, rest)
}

// answered shows what of an answer was not shown while it came.
func (t *timeline) answered(p *event.ModelAnswered) {
	t.tally.add(p)
	cut := p.PartsBlob != nil
	if cut && t.whole != nil {
		if parts, err := t.whole(*p.PartsBlob); err == nil {
			p.Parts, cut = parts, false
		}
	}
	if p.Purpose == "" || p.Purpose == event.PurposeBroken {
		for _, kind := range []string{"thought", "text"} {
			if kind == "thought" && !t.verbose {
				continue
			}
			var all strings.Builder
			for _, part := range p.Parts {
				if part.Kind == kind {
					all.WriteString(part.Text)
				}
			}
			before := ""
			if s := t.now.kinds[kind]; s != nil && t.now.answer == p.Answer && t.now.attempt == p.Attempts {
				before = s.text.String()
			}
			rest, goesOn := strings.CutPrefix(all.String(), before)
			switch {
			case goesOn:
			case cut: // more was shown while it came
				rest = ""
			default:
				t.closeText()
			}
			t.say(kind, rest)
		}
		t.closeText()
		if cut {
			t.note("", "the answer is larger than what is shown; all of it is artefact %s", one(p.PartsBlob.Sha256))
		}
	}
	t.now = spoken{}
	switch p.Stop {
	case "length":
		t.note(bad, "! the answer was cut: it reached the most tokens an answer may have")
	case event.PurposeBroken:
		if len(p.Parts) > 0 {
			t.note(bad, "! the answer broke off here")
		}
	case "refused":
		t.note(bad, "! the model, or its server, declines to answer")
	}
	if t.verbose {
		var one tally
		one.add(p)
		text := "answer " + strconv.Itoa(p.Number) + " of " + safe(p.Model, false) + ": " + one.tokens()
		if p.Size > 0 {
			text += fmt.Sprintf("; %d %% of its context", p.Context*100/p.Size)
		}
		t.note(dim, "%s; %.1f s", text, float64(p.TookMS)/1000)
	}
}

// say goes on with text of an answer. Each of its lines is marked as the model's, so
// that none passes for one of Glasshouse, a check or a person's words; what is thought
// is marked otherwise.
func (t *timeline) say(kind, text string) {
	if t.kind != kind {
		t.closeText()
	}
	gutter := "  | "
	if kind == "thought" {
		gutter = "  ~ "
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		body, ended := strings.CutSuffix(line, "\n")
		if body != "" {
			if t.kind == "" {
				t.kind, t.ends = kind, 1
				b.WriteString(gutter)
			} else if t.ends > 0 {
				b.WriteString(strings.Repeat("\n", min(t.ends, 2)) + gutter)
			}
			t.ends = 0
			shown := safe(body, false)
			if kind == "thought" {
				shown = t.s.paint(dim, shown)
			}
			b.WriteString(shown)
		}
		if ended && t.kind != "" {
			t.ends++ // written when something follows
		}
	}
	t.s.text(gutter, b.String())
}

// closeText ends the text that is being written.
func (t *timeline) closeText() {
	if t.kind != "" {
		t.s.end()
		t.kind, t.ends = "", 0
	}
}

func (t *timeline) note(colour, format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if colour != "" {
		text = t.s.paint(colour, text)
	}
	fmt.Fprintf(t.w, "    %s\n", text)
}

// told shows the calls of which no step came; a step tells of itself.
func (t *timeline) told(p *event.ModelTold) {
	for _, r := range p.Results {
		if r.Step == "" && r.Failed {
			why := refusal(r.Text)
			t.note("", "%s no call of %s: %s", t.s.paint(bad, "✗"), one(clip(r.Tool, 60)), one(clip(why[0], 300)))
			for _, w := range why[1:] {
				t.note("", "    %s", one(clip(w, 300)))
			}
		}
	}
}

// refusal is what a model was told of a call that was not made, in lines for people;
// there is one at least.
func refusal(text string) []string {
	var e struct {
		Error    string `json:"error"`
		Problems []struct {
			Pointer  string `json:"pointer"`
			Expected string `json:"expected"`
			Got      string `json:"got"`
		} `json:"problems"`
	}
	if json.Unmarshal([]byte(text), &e) != nil || e.Error == "" {
		return []string{firstLine(text, 300)}
	}
	out := []string{e.Error}
	for i, p := range e.Problems {
		if i == 5 {
			return append(out, fmt.Sprintf("and %d more", len(e.Problems)-i))
		}
		out = append(out, strings.TrimPrefix(p.Pointer+": "+p.Expected+", not "+p.Got, ": "))
	}
	return out
}

func (t *timeline) retried(p *event.ModelRetried) {
	t.closeText()
	t.now = spoken{}
	status := ""
	if p.Status != 0 {
		status = fmt.Sprintf(", HTTP %d", p.Status)
	}
	t.note(asking, "! attempt %d failed (%s%s): %s; the next one in %.1f s", p.Attempt, one(p.Kind), status, one(clip(p.Reason, 300)), float64(p.WaitMS)/1000)
}

// boxes of a plan's items.
var boxes = map[string]string{"open": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}

func (t *timeline) plan(p *event.PlanUpdated) {
	if slices.Equal(p.Items, t.planned) {
		return
	}
	t.planned = p.Items
	t.note("", "plan")
	for i, it := range p.Items {
		if i == 50 {
			t.note("", "  and %d more", len(p.Items)-i)
			return
		}
		box := boxes[it.State]
		if box == "" {
			box = "[?]"
		}
		text := box + " " + one(clip(it.Text, 200))
		switch it.State {
		case "done", "dropped":
			text = t.s.paint(dim, text)
		}
		t.note("", "  %s", text)
	}
}

func settingsText(p *event.SessionChanged) string {
	var parts []string
	if p.Mode != nil {
		parts = append(parts, "mode "+or(one(*p.Mode), "auto"))
	}
	if p.Model != nil {
		parts = append(parts, "model "+or(one(*p.Model), "the default one"))
	}
	if p.LimitNanos != nil {
		parts = append(parts, "limit "+limitText(*p.LimitNanos))
	}
	if p.LimitTokens != nil {
		text := "no limit of tokens"
		if *p.LimitTokens > 0 {
			text = "limit " + count(*p.LimitTokens) + " tokens"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// tally adds up what answers took.
type tally struct {
	answers, unpriced int
	in, cached, out   int64
	uncounted         int64 // tokens by our guess
	nanos             int64
}

func (t *tally) add(p *event.ModelAnswered) {
	t.answers++
	t.in += p.Usage.Input + p.Usage.CacheRead + p.Usage.CacheWrite
	t.cached += p.Usage.CacheRead
	t.out += p.Usage.Output
	t.uncounted += p.Uncounted()
	t.nanos += p.CostNanos
	if !p.Priced {
		t.unpriced++
	}
}

func (t *tally) tokens() string {
	s := count(t.in) + " in"
	if t.cached > 0 {
		s += " (" + count(t.cached) + " cached)"
	}
	s += ", " + count(t.out) + " out"
	if t.uncounted > 0 {
		s += ", about " + count(t.uncounted) + " tokens that no server counted"
	}
	switch t.unpriced {
	case 0:
		s += ", " + cost(t.nanos)
	case t.answers:
		s += ", cost not known"
	default:
		s += fmt.Sprintf(", %s and %s without a known price", cost(t.nanos), plural(t.unpriced, "answer"))
	}
	return s
}

func (t *tally) String() string { return plural(t.answers, "answer") + ", " + t.tokens() }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(int64(n)) + " " + noun + "s"
}

// count writes a number with its thousands apart.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}

const dollar = 1_000_000_000 // nanos

// cost writes billionths of a US dollar for people: rounded, never to nothing.
func cost(nanos int64) string {
	switch {
	case nanos == 0:
		return "$0"
	case nanos < dollar/10_000:
		return "<$0.0001"
	case nanos < 100*dollar:
		return fmt.Sprintf("$%.4f", float64(nanos)/dollar)
	}
	return fmt.Sprintf("$%.2f", float64(nanos)/dollar)
}

// limitText writes a limit exactly.
func limitText(nanos int64) string {
	if nanos == 0 {
		return "none"
	}
	whole, part := nanos/dollar, fmt.Sprintf("%09d", nanos%dollar)
	for len(part) > 2 && strings.HasSuffix(part, "0") {
		part = part[:len(part)-1]
	}
	return "$" + strconv.FormatInt(whole, 10) + "." + part
}

// firstLine of a text, fit for a title.
func firstLine(s string, most int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.TrimSpace(line)
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most-1]) + "…"
	}
	return line
}
