package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/respjson"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"glasshouse/backend/model"
)

const (
	maxAnswer = 8 << 20 // bytes of an answer's parts
	maxBlocks = 4096
	maxID     = 200     // bytes of what servers call things
	maxTokens = 1 << 40 // a count above is nonsense
)

// block of an answer as it grows. The builders keep what comes in pieces.
type block struct {
	kind      string
	text      strings.Builder // of a text or thought; of a call its arguments
	signature strings.Builder
	data      string // of a thought that is kept from us
	id, tool  string
	whole     string // arguments that came with the beginning
}

// fold puts events together.
type fold struct {
	from  string
	names names
	each  func(model.Delta)

	blocks []*block         // in the order they began
	open   map[int64]*block // by the server's number
	size   int
	begun  bool // message_start came
	ended  bool // message_stop came

	stop    anthropic.StopReason
	refusal string
	usage   model.Usage
	served  string
	id      string
}

// read takes a stream to the end of its message. Without that end there is no answer.
func read(s *ssestream.Stream[anthropic.MessageStreamEventUnion], from string, n names, each func(model.Delta)) (model.Answer, error) {
	if each == nil {
		each = func(model.Delta) {}
	}
	f := &fold{from: from, names: n, each: each, open: map[int64]*block{}}
	for s.Next() {
		if err := f.take(s.Current()); err != nil {
			return model.Answer{}, err
		}
		if f.ended {
			return f.answer(), nil
		}
	}
	if err := s.Err(); err != nil {
		return model.Answer{}, err
	}
	return model.Answer{}, &model.Error{Kind: model.ErrNetwork, Message: "the stream ended before the answer was whole"}
}

func tooMuch(what string) error {
	return &model.Error{Kind: model.ErrProtocol, Message: "the server sent an answer of more than " + what}
}

func (f *fold) grow(n int) error {
	if f.size += n; f.size > maxAnswer {
		return tooMuch(fmt.Sprintf("%d bytes", maxAnswer))
	}
	return nil
}

func (f *fold) take(ev anthropic.MessageStreamEventUnion) error {
	switch ev.Type {
	case "message_start":
		f.begun = true
		f.served, f.id = cut(ev.Message.Model), cut(ev.Message.ID)
		u := ev.Message.Usage
		count(&f.usage.Input, u.InputTokens, u.JSON.InputTokens)
		count(&f.usage.CacheWrite, u.CacheCreationInputTokens, u.JSON.CacheCreationInputTokens)
		count(&f.usage.CacheRead, u.CacheReadInputTokens, u.JSON.CacheReadInputTokens)
		count(&f.usage.Output, u.OutputTokens, u.JSON.OutputTokens)
		count(&f.usage.Reasoning, u.OutputTokensDetails.ThinkingTokens, u.OutputTokensDetails.JSON.ThinkingTokens)
	case "content_block_start":
		return f.begin(ev.Index, ev.ContentBlock)
	case "content_block_delta":
		return f.more(ev.Index, ev.Delta)
	case "content_block_stop":
		delete(f.open, ev.Index)
	case "message_delta":
		if r := ev.Delta.StopReason; r != "" {
			f.stop = r
		}
		if t := ev.Delta.StopDetails.Explanation; t != "" {
			f.refusal = t
			if err := f.grow(len(t)); err != nil {
				return err
			}
		}
		u := ev.Usage // of the whole answer so far, not of this piece
		count(&f.usage.Input, u.InputTokens, u.JSON.InputTokens)
		count(&f.usage.CacheWrite, u.CacheCreationInputTokens, u.JSON.CacheCreationInputTokens)
		count(&f.usage.CacheRead, u.CacheReadInputTokens, u.JSON.CacheReadInputTokens)
		count(&f.usage.Output, u.OutputTokens, u.JSON.OutputTokens)
		count(&f.usage.Reasoning, u.OutputTokensDetails.ThinkingTokens, u.OutputTokensDetails.JSON.ThinkingTokens)
	case "message_stop":
		if !f.begun {
			return &model.Error{Kind: model.ErrProtocol, Message: "the server ended an answer that it had not begun"}
		}
		f.ended = true
	case "error": // where the event itself has another name
		e := parseFailure([]byte(ev.RawJSON()))
		return &model.Error{Kind: e.kindOf(0), Message: e.text}
	}
	return nil
}

// count takes a number that the server gave; null and nonsense are not.
func count(to *int64, n int64, given respjson.Field) {
	if given.Valid() && n >= 0 && n <= maxTokens {
		*to = n
	}
}

func cut(s string) string { return s[:min(len(s), maxID)] }

func (f *fold) begin(index int64, c anthropic.ContentBlockStartEventContentBlockUnion) error {
	if len(f.blocks) >= maxBlocks {
		return tooMuch(fmt.Sprintf("%d blocks", maxBlocks))
	}
	b := &block{kind: c.Type}
	f.blocks = append(f.blocks, b)
	f.open[index] = b
	switch c.Type {
	case "text":
		return f.say(b, model.KindText, c.Text)
	case "thinking":
		b.signature.WriteString(c.Signature)
		if err := f.grow(len(c.Signature)); err != nil {
			return err
		}
		return f.say(b, model.KindThought, c.Thinking)
	case "redacted_thinking":
		b.data = c.Data
		return f.grow(len(c.Data))
	case "tool_use":
		b.id, b.tool = c.ID, f.names.ours(c.Name)
		// Usually {} here, with the arguments to follow in pieces.
		if raw := strings.TrimSpace(c.JSON.Input.Raw()); raw != "" && raw != "null" {
			b.whole = raw
		}
		if err := f.grow(len(b.id) + len(b.tool) + len(b.whole)); err != nil {
			return err
		}
		f.each(model.Delta{Kind: model.KindCall, Tool: b.tool})
	}
	return nil // kinds that nobody here knows are passed over, with all that comes of them
}

func (f *fold) say(b *block, kind model.Kind, text string) error {
	if text == "" {
		return nil
	}
	if err := f.grow(len(text)); err != nil {
		return err
	}
	b.text.WriteString(text)
	f.each(model.Delta{Kind: kind, Text: text})
	return nil
}

func (f *fold) more(index int64, d anthropic.MessageStreamEventUnionDelta) error {
	b := f.open[index]
	if b == nil {
		return &model.Error{Kind: model.ErrProtocol, Message: "the server sent a piece of a block that had not begun or had ended"}
	}
	switch {
	case d.Type == "text_delta" && b.kind == "text":
		return f.say(b, model.KindText, d.Text)
	case d.Type == "thinking_delta" && b.kind == "thinking":
		return f.say(b, model.KindThought, d.Thinking)
	case d.Type == "signature_delta" && b.kind == "thinking":
		b.signature.WriteString(d.Signature)
		return f.grow(len(d.Signature))
	case d.Type == "input_json_delta" && b.kind == "tool_use":
		return f.say(b, model.KindCall, d.PartialJSON)
	}
	return nil
}

func (f *fold) answer() model.Answer {
	a := model.Answer{Usage: f.usage, Served: f.served, ID: f.id}
	calls := false
	for _, b := range f.blocks {
		switch b.kind {
		case "text":
			if b.text.Len() > 0 {
				a.Parts = append(a.Parts, model.Part{Kind: model.KindText, Text: b.text.String()})
			}
		case "thinking", "redacted_thinking":
			if p, ok := f.thought(b); ok {
				a.Parts = append(a.Parts, p)
			}
		case "tool_use":
			calls = true
			args := b.text.String()
			if args == "" && b.whole != "{}" {
				args = b.whole
			}
			a.Parts = append(a.Parts, model.Part{Kind: model.KindCall, Call: &model.Call{ID: b.id, Tool: b.tool, Args: args}})
		}
	}
	switch f.stop {
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		a.Stop = model.StopLength
	case anthropic.StopReasonRefusal:
		a.Stop = model.StopRefused
		if len(a.Parts) == 0 && f.refusal != "" {
			a.Parts = []model.Part{{Kind: model.KindText, Text: f.refusal}}
		}
	default: // what it wants counts for more than what it calls its end
		a.Stop = model.StopEnd
		if calls {
			a.Stop = model.StopCalls
		}
	}
	return a
}

// thought keeps the block as it goes back to the server, which checks it to be unchanged.
func (f *fold) thought(b *block) (model.Part, bool) {
	p := model.Part{Kind: model.KindThought, Text: b.text.String()}
	o := opaque{Type: b.kind, Thinking: p.Text, Signature: b.signature.String(), Data: b.data}
	if o.Type == "thinking" && o.Signature == "" {
		o.Thinking = "" // the part's own text is all of it
	}
	if o.whole() || o.Type == "thinking" && p.Text != "" {
		raw, err := json.Marshal(o)
		if err == nil {
			p.Opaque, p.From = raw, f.from
		}
	}
	return p, p.Text != "" || p.Opaque != nil
}

// opaque is a thought in the server's form.
type opaque struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
}

// whole reports whether Claude's own server can take it back.
func (o opaque) whole() bool {
	return o.Type == "thinking" && o.Signature != "" || o.Type == "redacted_thinking" && o.Data != ""
}
