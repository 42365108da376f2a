package loop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/session"
)

const (
	maxResult  = 16 << 10 // bytes of one result's text
	maxResults = 48 << 10 // of all results of an answer
)

// lookFirst follows whatever may have happened and may not have.
const lookFirst = "Whether it took effect is not known: look before you do it again."

// outcome tells a model what became of a step.
func outcome(v session.StepView) (text string, failed bool, images []event.Blob) {
	switch {
	case v.Refused != nil:
		return refused(v.Refused), true, nil
	case v.Ended == nil:
		return "Interrupted; the outcome is unknown. " + lookFirst, true, nil
	}
	e := v.Ended
	for _, a := range e.Artefacts {
		switch a.Mime {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			images = append(images, a)
		}
	}
	var b strings.Builder
	switch e.Outcome {
	case domain.OutcomeOK, domain.OutcomeFailed:
	case domain.OutcomeTimeout:
		b.WriteString("Its time ran out. ")
	case domain.OutcomeCancelled:
		b.WriteString("Cancelled; this is not a no. ")
	case domain.OutcomeUnavailable:
		b.WriteString("The machine was not there; nothing ran. This is not a no. ")
	default:
		b.WriteString("The outcome is unknown. " + lookFirst + " ")
	}
	exec := v.Tool == "exec" || e.ExitCode != nil || e.Stdout != nil || e.Stderr != nil
	if e.Error != "" && !(exec && e.Outcome == domain.OutcomeFailed && e.ExitCode != nil) {
		b.WriteString(strings.TrimSpace(clean(e.Error)))
	}
	s := strings.TrimSpace(b.String())
	var body string
	switch {
	case exec:
		body = command(e)
	case len(e.Result) > 0:
		body = readable(e.Result)
	}
	if s != "" && body != "" {
		s += "\n"
	}
	if s += body; strings.TrimSpace(s) == "" {
		s = "done"
	}
	return s, e.Outcome != domain.OutcomeOK, images
}

func refused(r *event.StepRefused) string {
	reason := clean(r.Reason)
	switch r.State {
	case domain.StepDenied:
		raw, err := marshal(struct {
			Denied bool   `json:"denied"`
			Reason string `json:"reason"`
			Would  string `json:"what_would_be_allowed,omitempty"`
		}{true, reason, clean(r.Allowed)})
		if err != nil {
			return "Denied: " + reason
		}
		return string(raw)
	case domain.StepExpired:
		return withHint("It did not run: nobody answered the question whether it may. This is not a no. "+reason, r.Allowed)
	}
	return withHint("Cancelled before it ran; it did not run. This is not a no. "+reason, r.Allowed)
}

func withHint(s, hint string) string {
	if hint == "" {
		return s
	}
	return s + " (" + clean(hint) + ")"
}

// command tells how a process ended and what it wrote.
func command(e *event.StepEnded) string {
	var b strings.Builder
	if e.ExitCode != nil {
		fmt.Fprintf(&b, "exit code %d\n", *e.ExitCode)
	}
	if e.Signal != "" {
		fmt.Fprintf(&b, "ended by %s\n", clean(e.Signal))
	}
	// The tool's own answer holds more of the output than the record beside it.
	var r struct {
		Stdout *string `json:"stdout"`
		Stderr *string `json:"stderr"`
	}
	_ = json.Unmarshal(e.Result, &r)
	out := stream(&b, "stdout", e.Stdout, r.Stdout)
	err := stream(&b, "stderr", e.Stderr, r.Stderr)
	if !out && !err && e.ExitCode != nil {
		b.WriteString("(no output)\n")
	}
	if len(e.Background) > 0 {
		b.WriteString("--- still running in the background\n")
		for _, p := range e.Background {
			b.WriteString(clean(p) + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// stream writes one of the two output streams; it reports whether there was any.
func stream(b *strings.Builder, name string, o *event.OutputStream, whole *string) bool {
	var text string
	switch {
	case whole != nil && *whole != "":
		text = *whole
	case o != nil && o.Binary:
		text = fmt.Sprintf("[%d bytes that are no text]", o.Total)
	case o != nil && o.Tail != "":
		text = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", o.Head, max(0, o.Total-int64(len(o.Head)+len(o.Tail))), o.Tail)
	case o != nil:
		text = o.Head
	}
	if text == "" {
		return false
	}
	text = clean(text)
	fmt.Fprintf(b, "--- %s\n%s", name, text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	if o != nil && o.Total > int64(len(text))+64 && !o.Binary {
		fmt.Fprintf(b, "[%s has %d bytes in all. To read the rest, run it again with its output in a file, and read that in parts.]\n", name, o.Total)
	}
	return true
}

// readable writes a tool's JSON answer with its long texts unescaped, after the rest.
func readable(raw json.RawMessage) string {
	members, err := membersOf(raw)
	if err != nil {
		return clean(string(raw))
	}
	var short, long bytes.Buffer
	short.WriteByte('{')
	n := 0
	for _, m := range members {
		var s string
		if json.Unmarshal(m.value, &s) == nil && (strings.Contains(s, "\n") || len(s) > 200) {
			s = clean(s)
			fmt.Fprintf(&long, "--- %s\n%s", clean(m.name), s)
			if !strings.HasSuffix(s, "\n") {
				long.WriteByte('\n')
			}
			continue
		}
		if n++; n > 1 {
			short.WriteByte(',')
		}
		name, err := marshal(m.name)
		if err != nil {
			return clean(string(raw))
		}
		short.Write(name)
		short.WriteByte(':')
		if json.Compact(&short, m.value) != nil {
			return clean(string(raw))
		}
	}
	short.WriteByte('}')
	if long.Len() == 0 {
		return clean(short.String())
	}
	if n == 0 {
		return strings.TrimRight(long.String(), "\n")
	}
	return clean(short.String()) + "\n" + strings.TrimRight(long.String(), "\n")
}

type member struct {
	name  string
	value json.RawMessage
}

// membersOf an object in their order.
func membersOf(raw json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, errors.New("it is not an object")
	}
	var out []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		out = append(out, member{name, v})
	}
	return out, nil
}

// marshal writes JSON for eyes: < and > stay as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// fitResults cuts the results of one answer to what it may have: what is small stays
// whole, the large ones share the rest.
func fitResults(rs []event.ToldResult) {
	sizes := make([]int, len(rs))
	for i := range rs {
		sizes[i] = len(rs[i].Text)
	}
	share := split(sizes, maxResult, maxResults)
	for i := range rs {
		rs[i].Text = cutMiddle(rs[i].Text, share)
		if rs[i].Text == "" {
			rs[i].Text = "(nothing)"
		}
	}
}
