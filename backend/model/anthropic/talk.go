package anthropic

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"glasshouse/backend/model"
)

type blockParam = anthropic.ContentBlockParamUnion

// turn is a message of the wire. Roles alternate there, beginning with the user's.
type turn struct {
	user   bool
	blocks []blockParam // never none
}

// call that waits for its result.
type call struct {
	id     string // of the conversation
	wire   string
	tool   string
	result *blockParam
}

// talk makes turns of messages.
type talk struct {
	c     *client
	ctx   context.Context
	bytes func(context.Context, model.Image) ([]byte, error)
	names names
	ids   ids

	turns []turn
	calls []*call      // of the newest answer
	said  []blockParam // of the user's turn that is being made, behind the results
}

func (t *talk) add(m model.Message) error {
	if m.Role == model.RoleAssistant {
		t.closeUser()
		return t.answer(m)
	}
	for _, p := range m.Parts {
		switch p.Kind {
		case model.KindText:
			t.said = appendText(t.said, p.Text)
		case model.KindImage:
			if p.Image == nil {
				continue
			}
			img, text, err := t.image(*p.Image)
			if err != nil {
				return err
			}
			if img != nil {
				t.said = append(t.said, blockParam{OfImage: img})
			}
			t.said = appendText(t.said, text)
		case model.KindResult:
			if p.Result == nil {
				continue
			}
			if err := t.result(*p.Result); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendText leaves out what the server refuses: text of nothing but space.
func appendText(to []blockParam, text string) []blockParam {
	if blank(text) {
		return to
	}
	return append(to, anthropic.NewTextBlock(valid(text)))
}

// result goes to the first call of its id that has none yet.
func (t *talk) result(r model.Result) error {
	content, err := t.content(r)
	if err != nil {
		return err
	}
	for _, c := range t.calls {
		if c.id == r.ID && c.result == nil {
			c.result = toolResult(c.wire, content, r.Failed)
			return nil
		}
	}
	// Of no call that the server knows: it would refuse it as a result.
	t.said = appendText(t.said, fmt.Sprintf("Result of %s:", r.Tool))
	for _, part := range content {
		t.said = append(t.said, blockParam{OfText: part.OfText, OfImage: part.OfImage})
	}
	return nil
}

type contentParam = anthropic.ToolResultBlockParamContentUnion

func toolResult(id string, content []contentParam, failed bool) *blockParam {
	r := &anthropic.ToolResultBlockParam{ToolUseID: id, Content: content}
	if failed {
		r.IsError = anthropic.Bool(true)
	}
	return &blockParam{OfToolResult: r}
}

func (t *talk) content(r model.Result) ([]contentParam, error) {
	text := r.Text
	if blank(text) {
		text = "(empty)"
	}
	out := []contentParam{{OfText: &anthropic.TextBlockParam{Text: valid(text)}}}
	for _, i := range r.Images {
		img, instead, err := t.image(i)
		if err != nil {
			return nil, err
		}
		if img != nil {
			out = append(out, contentParam{OfImage: img})
		} else {
			out = append(out, contentParam{OfText: &anthropic.TextBlockParam{Text: instead}})
		}
	}
	return out, nil
}

// maxImage is the most bytes of a picture that the server takes: 5 MB in base64.
const maxImage = 5_000_000 / 4 * 3

// image or the text that stands for it.
func (t *talk) image(i model.Image) (*anthropic.ImageBlockParam, string, error) {
	note := func(why string) string {
		return fmt.Sprintf("[a picture (%s, %d bytes) is not shown: %s]", valid(i.Mime), i.Size, why)
	}
	switch {
	case t.c.cfg.TextOnly:
		return nil, note("this model sees text alone"), nil
	case t.bytes == nil:
		return nil, note("its bytes are not at hand"), nil
	case i.Size > maxImage:
		return nil, note("it is too large"), nil
	}
	b, err := t.bytes(t.ctx, i)
	switch {
	case t.ctx.Err() != nil:
		return nil, "", context.Cause(t.ctx)
	case err != nil:
		return nil, note("it could not be read"), nil //nolint:nilerr // one lost picture must not end a conversation
	case len(b) > maxImage:
		return nil, note("it is too large"), nil
	}
	// The server refuses a picture that is not what it is called.
	kind := http.DetectContentType(b)
	switch kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return anthropic.NewImageBlockBase64(kind, base64.StdEncoding.EncodeToString(b)).OfImage, "", nil
	}
	return nil, note("its format is not one that this model sees"), nil
}

// closeUser ends the user's turn: results first, of all calls and in their order, then
// what was said.
func (t *talk) closeUser() {
	var blocks []blockParam
	for _, c := range t.calls {
		if c.result == nil {
			c.result = toolResult(c.wire, []contentParam{{OfText: &anthropic.TextBlockParam{Text: "No result was recorded."}}}, true)
		}
		blocks = append(blocks, *c.result)
	}
	blocks = append(blocks, t.said...)
	t.calls, t.said = nil, nil
	t.push(true, blocks)
}

func (t *talk) answer(m model.Message) error {
	var blocks []blockParam
	for _, p := range m.Parts {
		switch p.Kind {
		case model.KindText:
			blocks = appendText(blocks, p.Text)
		case model.KindThought:
			if b, ok := t.c.thought(p); ok {
				blocks = append(blocks, b)
			}
		case model.KindCall:
			if p.Call == nil {
				continue
			}
			c := &call{id: p.Call.ID, wire: t.ids.wire(p.Call.ID), tool: p.Call.Tool}
			t.calls = append(t.calls, c)
			blocks = append(blocks, anthropic.NewToolUseBlock(c.wire, arguments(p.Call.Args), t.names.wire(c.tool)))
		}
	}
	t.push(false, blocks)
	return nil
}

// thought in the server's own form, where it is one of this model.
func (c *client) thought(p model.Part) (blockParam, bool) {
	var o opaque
	h := c.how.get()
	if p.From != c.from() || h.bare || json.Unmarshal(p.Opaque, &o) != nil {
		return blockParam{}, false
	}
	if o.Type == "thinking" && o.Signature == "" && h.unsigned && p.Text != "" {
		return anthropic.NewThinkingBlock("", p.Text), true
	}
	if !o.whole() {
		return blockParam{}, false
	}
	if o.Type == "thinking" {
		return anthropic.NewThinkingBlock(o.Signature, o.Thinking), true
	}
	return anthropic.NewRedactedThinkingBlock(o.Data), true
}

// push merges neighbours of one role.
func (t *talk) push(user bool, blocks []blockParam) {
	if len(blocks) == 0 {
		return
	}
	if n := len(t.turns); n > 0 && t.turns[n-1].user == user {
		t.turns[n-1].blocks = append(t.turns[n-1].blocks, blocks...)
		return
	}
	t.turns = append(t.turns, turn{user, blocks})
}

// end of the conversation: the server wants it to begin and end with the user, and no
// answer to end with a thought.
func (t *talk) end() []turn {
	t.closeUser()
	all := t.turns
	t.turns = nil
	goOn := func() []blockParam { return []blockParam{anthropic.NewTextBlock("Go on.")} }
	for _, next := range all {
		if !next.user {
			for n := len(next.blocks); n > 0 && (next.blocks[n-1].OfThinking != nil || next.blocks[n-1].OfRedactedThinking != nil); n-- {
				next.blocks = next.blocks[:n-1]
			}
			if len(t.turns) == 0 && len(next.blocks) > 0 {
				t.push(true, goOn())
			}
		}
		t.push(next.user, next.blocks)
	}
	if n := len(t.turns); n == 0 || !t.turns[n-1].user {
		t.push(true, goOn())
	}
	return t.turns
}
