package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/model"
)

// assembly puts an answer together from its pieces, within bounds.
type assembly struct {
	from  string
	each  func(model.Delta)
	parts []*piece
	size  int
	calls int
}

// piece is a part that may still grow.
type piece struct {
	kind model.Kind
	text []byte // of a call: the arguments
	// field is the name that a thought came under, and goes back under.
	field   string
	details *details // of the whole answer, at its first thought
	opaque  json.RawMessage

	// Of a call.
	tool  []byte
	id    string          // the server's
	extra json.RawMessage // what a server wants back beside the call
	told  bool            // its name was told to each
}

// grow counts bytes that are kept.
func (a *assembly) grow(n int) error {
	if a.size += n; a.size > maxAnswer {
		return tooLarge("an answer", maxAnswer)
	}
	return nil
}

// add appends to the newest part if it is of the same kind and field, else begins one.
func (a *assembly) add(kind model.Kind, field, text string) error {
	if text == "" {
		return nil
	}
	if err := a.grow(len(text)); err != nil {
		return err
	}
	n := len(a.parts)
	if n == 0 || a.parts[n-1].kind != kind || a.parts[n-1].field != field {
		a.parts = append(a.parts, &piece{kind: kind, field: field})
		n++
	}
	a.parts[n-1].text = append(a.parts[n-1].text, text...)
	a.tell(model.Delta{Kind: kind, Text: text})
	return nil
}

// call begins a call.
func (a *assembly) call() (*piece, error) {
	if a.calls++; a.calls > maxCalls {
		return nil, protocol("the server sent more than %d calls in one answer", maxCalls)
	}
	p := &piece{kind: model.KindCall}
	a.parts = append(a.parts, p)
	return p, a.grow(64) // a call costs something even when it is empty
}

// args appends to a call's arguments.
func (a *assembly) args(p *piece, text string) error {
	if text == "" {
		return nil
	}
	if err := a.grow(len(text)); err != nil {
		return err
	}
	p.text = append(p.text, text...)
	a.announce(p, text)
	return nil
}

// announce tells a piece of a call. Its name goes with the first one, so that is not
// told before the name is whole, which it is when arguments come.
func (a *assembly) announce(p *piece, text string) {
	d := model.Delta{Kind: model.KindCall, Text: text}
	if !p.told {
		p.told, d.Tool = true, string(p.tool)
	}
	a.tell(d)
}

func (a *assembly) tell(d model.Delta) {
	d.Text, d.Tool = valid(d.Text), valid(d.Tool)
	a.each(d)
}

// done makes the parts of the answer.
func (a *assembly) done() []model.Part {
	var out []model.Part
	ids := map[string]bool{}
	n := 0
	for _, p := range a.parts {
		switch p.kind {
		case model.KindCall:
			n++
			if !p.told {
				a.announce(p, "")
			}
			c := &model.Call{ID: uniqueID(ids, p.id, n), Tool: valid(string(p.tool)), Args: valid(string(p.text))}
			part := model.Part{Kind: model.KindCall, Call: c}
			back := callBack{Extra: p.extra}
			if p.id != "" && c.ID != p.id {
				back.ID = p.id
			}
			if back.ID != "" || back.Extra != nil {
				part.Opaque, part.From = encode(back), a.from
			}
			out = append(out, part)
		case model.KindThought:
			part := model.Part{Kind: p.kind, Text: valid(string(p.text)), Opaque: p.opaque}
			if p.field != "" || p.details != nil {
				part.Opaque = encode(thoughtBack{Field: p.field, Details: p.details.list()})
			}
			if part.Opaque != nil {
				part.From = a.from
			}
			out = append(out, part)
		default:
			part := model.Part{Kind: p.kind, Text: valid(string(p.text)), Opaque: p.opaque}
			if part.Opaque != nil {
				part.From = a.from
			}
			out = append(out, part)
		}
	}
	return out
}

// callBack is the opaque form of a call in Chat Completions.
type callBack struct {
	ID    string          `json:"id,omitempty"`            // the server's, where the call's is another
	Extra json.RawMessage `json:"extra_content,omitempty"` // Gemini's signature of a call
}

// uniqueID is the server's id of a call, or one made from it when it is missing, was
// given to another call of the answer, or is nothing that can be sent back.
func uniqueID(taken map[string]bool, id string, n int) string {
	if !fitID(id) {
		id = fmt.Sprintf("call_%d", n)
	}
	for base, i := id, 2; taken[id]; i++ {
		id = fmt.Sprintf("%s_%d", base, i)
	}
	taken[id] = true
	return id
}

// fitID: what every server takes as an id, with room for a number behind it.
func fitID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// encode is for values that cannot fail.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

// tokens takes a count as servers give it, which may be anything.
func tokens(n int64) int64 { return min(max(n, 0), 1<<40) }

// usage in our terms: what was read from the cache or written into it is a part of what
// these formats call input.
func usage(input, cached, written, output, reasoning int64) model.Usage {
	input, output = tokens(input), tokens(output)
	cached = min(tokens(cached), input)
	written = min(tokens(written), input-cached)
	return model.Usage{Input: input - cached - written, CacheRead: cached, CacheWrite: written, Output: output, Reasoning: min(tokens(reasoning), output)}
}
