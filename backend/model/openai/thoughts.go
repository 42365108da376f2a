package openai

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/packages/respjson"

	"glasshouse/backend/model"
)

// thoughtBack is the opaque form of a thought in Chat Completions.
type thoughtBack struct {
	Field string `json:"field,omitempty"` // the name it came under, and goes back under
	// Details are the thoughts of the whole answer in the server's own form, with their
	// signatures and what is sealed: OpenRouter's and MiniMax's reasoning_details.
	Details []json.RawMessage `json:"details,omitempty"`
}

// unsigned stands in Gemini's place of a signature for a call that has none, for another
// model made it. Its server documents the word.
var unsigned = json.RawMessage(`{"google":{"thought_signature":"skip_thought_signature_validator"}}`)

// thoughtsBack are the thoughts of a message on their way back.
type thoughtsBack struct {
	fields  map[string]string // text by the name it came under
	details []json.RawMessage
}

func (t *thoughtsBack) add(p model.Part) {
	var back thoughtBack
	if json.Unmarshal(p.Opaque, &back) != nil {
		return
	}
	if back.Field == "reasoning_content" || back.Field == "reasoning" {
		if t.fields == nil {
			t.fields = map[string]string{}
		}
		t.fields[back.Field] += p.Text
	}
	t.details = append(t.details, back.Details...)
}

// into writes them into a message. What came in the server's own form goes back in that,
// always: it is what carries the signatures. Plain thoughts before mere text are not
// wanted by servers that do not ask for them.
func (t *thoughtsBack) into(extra map[string]any, calls bool, h habits) {
	switch {
	case len(t.details) > 0:
		extra["reasoning_details"] = t.details
	case calls || h.thoughts:
		for field, text := range t.fields {
			extra[field] = text
		}
	}
	if h.thoughts && calls && len(t.details) == 0 && strings.TrimSpace(t.fields["reasoning_content"]+t.fields["reasoning"]) == "" {
		// There was no thought, or it is another model's: some versions of the server refuse
		// an empty one.
		extra["reasoning_content"] = " "
	}
}

// details put reasoning_details together from their pieces.
type details struct{ all []*detail }

type detail struct {
	fields map[string]json.RawMessage
	kind   string
	text   []byte // of the field that grows: text or summary
	grows  string
}

// maxDetails of an answer.
const maxDetails = 1024

// moreDetails takes those of a delta. It returns what of them is to be read, for servers
// that send it in no other place.
func (c *chat) moreDetails(f respjson.Field) (string, error) {
	var list []json.RawMessage
	if json.Unmarshal([]byte(f.Raw()), &list) != nil {
		return "", nil //nolint:nilerr // of another form, or none: there is nothing to keep
	}
	var told strings.Builder
	for _, raw := range list {
		if err := c.grow(len(raw)); err != nil {
			return "", err
		}
		text, ok := c.details.add(raw)
		if !ok {
			return "", protocol("the server sent more than %d pieces of thoughts in one answer", maxDetails)
		}
		told.WriteString(text)
	}
	return told.String(), nil
}

// add takes one: it goes on with one of the same kind and number, or is one of its own.
// A signature covers the whole text, and comes with its last piece.
func (d *details) add(raw json.RawMessage) (text string, ok bool) {
	n := &detail{}
	if json.Unmarshal(raw, &n.fields) != nil || len(n.fields) == 0 {
		return "", true
	}
	n.kind = n.word("type")
	for _, grows := range []string{"text", "summary"} {
		if text = n.word(grows); text != "" {
			n.grows, n.text = grows, []byte(text)
			break
		}
	}
	for _, old := range d.all {
		if old.goesOn(n) {
			old.join(n)
			return text, true
		}
	}
	if len(d.all) >= maxDetails {
		return "", false
	}
	d.all = append(d.all, n)
	return text, true
}

func (n *detail) word(field string) string {
	var s string
	_ = json.Unmarshal(n.fields[field], &s) // another kind of value, or none: no word
	return s
}

func (n *detail) goesOn(next *detail) bool {
	id, theirs := n.word("id"), next.word("id")
	return present(n.fields["index"]) && string(n.fields["index"]) == string(next.fields["index"]) && n.kind == next.kind &&
		(id == "" || theirs == "" || id == theirs) && (n.grows == "" || next.grows == "" || n.grows == next.grows) &&
		!(present(n.fields["data"]) && present(next.fields["data"])) // what is sealed comes whole
}

func (n *detail) join(next *detail) {
	for field, v := range next.fields {
		if present(v) && (!present(n.fields[field]) || field == "signature") {
			n.fields[field] = v
		}
	}
	n.text = append(n.text, next.text...)
	if n.grows == "" {
		n.grows = next.grows
	}
}

// list as it goes back.
func (d *details) list() (out []json.RawMessage) {
	if d == nil {
		return nil
	}
	for _, n := range d.all {
		if n.grows != "" {
			n.fields[n.grows] = encode(valid(string(n.text)))
		}
		out = append(out, encode(n.fields))
	}
	return out
}
