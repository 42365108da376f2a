package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"glasshouse/backend/model"
)

// reply reads answers of Responses. What is streamed is for eyes; the answer is made of
// the items that the server calls done.
type reply struct {
	assembly
	shown int // bytes of deltas
	held  int // bytes of items
	items []item
	names map[int64]string // of calls whose name was not told yet
	final *responses.Response
}

type item struct {
	index int64
	it    responses.ResponseOutputItemUnion
}

func newResponses(from string, each func(model.Delta)) *reply {
	return &reply{assembly: assembly{from: from, each: each}, names: map[int64]string{}}
}

func (r *reply) event(e event) (bool, error) {
	if len(e.data) == 0 {
		return false, nil
	}
	var ev responses.ResponseStreamEventUnion
	if err := json.Unmarshal(e.data, &ev); err != nil {
		return false, protocol("the server sent an event that is none of the format: %v", err)
	}
	if ev.Type == "" {
		ev.Type = e.name
	}
	switch ev.Type {
	case "response.output_text.delta", "response.refusal.delta":
		return false, r.show(model.Delta{Kind: model.KindText, Text: ev.Delta})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return false, r.show(model.Delta{Kind: model.KindThought, Text: ev.Delta})
	case "response.reasoning_summary_part.added":
		if ev.SummaryIndex > 0 {
			return false, r.show(model.Delta{Kind: model.KindThought, Text: "\n\n"})
		}
	case "response.function_call_arguments.delta":
		name := r.names[ev.OutputIndex]
		delete(r.names, ev.OutputIndex)
		return false, r.show(model.Delta{Kind: model.KindCall, Tool: name, Text: ev.Delta})
	case "response.output_item.added":
		if ev.Item.Type == "function_call" && len(r.names) < maxCalls {
			r.names[ev.OutputIndex] = ev.Item.Name
		}
	case "response.output_item.done":
		if name, ok := r.names[ev.OutputIndex]; ok { // without arguments
			delete(r.names, ev.OutputIndex)
			if err := r.show(model.Delta{Kind: model.KindCall, Tool: name}); err != nil {
				return false, err
			}
		}
		if len(r.items) >= 2*maxCalls {
			return false, protocol("the server sent more than %d items in one answer", 2*maxCalls)
		}
		if r.held += len(ev.Item.RawJSON()); r.held > maxEvent {
			return false, tooLarge("an answer", maxEvent)
		}
		r.items = append(r.items, item{ev.OutputIndex, ev.Item})
	case "response.completed", "response.incomplete", "response.done":
		r.final = &ev.Response
		return true, nil
	case "response.failed", "response.cancelled":
		return false, failed(ev.Response, e.data)
	case "error":
		f := parseFailure(e.data)
		if !f.explicit {
			f = parseReason(e.data)
		}
		return false, f
	case "":
		if f := parseFailure(e.data); f.explicit {
			return false, f
		}
	}
	return false, nil
}

// last: the answer ends with an event of its own.
func (r *reply) last() {}

// show tells a delta. Its bytes are not kept, but a server may not send them for ever.
func (r *reply) show(d model.Delta) error {
	if r.shown += len(d.Text) + len(d.Tool); r.shown > maxAnswer {
		return tooLarge("an answer", maxAnswer)
	}
	if d.Text != "" || d.Tool != "" {
		r.tell(d)
	}
	return nil
}

// failed says why a response failed.
func failed(resp responses.Response, data []byte) error {
	raw := json.RawMessage(resp.JSON.Error.Raw())
	if present(raw) {
		return parseReason(raw)
	}
	if f := parseFailure(data); f.explicit {
		return f
	}
	return &failure{text: "the server gave up on the answer without a reason"}
}

func (r *reply) whole(body []byte) error {
	var resp responses.Response
	if err := json.Unmarshal(body, &resp); err != nil || !resp.JSON.Output.Valid() {
		return protocol("the server sent JSON that is no answer: is the address right?")
	}
	switch resp.Status {
	case "failed", "cancelled":
		return failed(resp, nil)
	case "queued", "in_progress":
		return protocol("the server put the answer off (%s), which was not asked for", resp.Status)
	}
	r.final = &resp
	return nil
}

func (r *reply) end() (model.Answer, error) {
	if r.final == nil {
		return model.Answer{}, cutOff()
	}
	slices.SortStableFunc(r.items, func(a, b item) int {
		switch {
		case a.index < b.index:
			return -1
		case a.index > b.index:
			return 1
		}
		return 0
	})
	// Not all servers tell of every item that it is done, or repeat all at the end.
	if len(r.final.Output) > len(r.items) {
		r.items = nil
		for _, it := range r.final.Output {
			r.items = append(r.items, item{it: it})
		}
	}
	refused := false
	for _, it := range r.items {
		no, err := r.item(it.it)
		if err != nil {
			return model.Answer{}, err
		}
		refused = refused || no
	}
	u := r.final.Usage
	a := model.Answer{
		Parts:  r.done(),
		Stop:   model.StopEnd,
		Usage:  usage(u.InputTokens, u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, u.OutputTokens, u.OutputTokensDetails.ReasoningTokens),
		Served: valid(r.final.Model),
		ID:     valid(r.final.ID),
	}
	switch why := r.final.IncompleteDetails.Reason; {
	case why == "content_filter":
		a.Stop = model.StopRefused
	case why != "" || r.final.Status == "incomplete":
		a.Stop = model.StopLength
	case r.calls > 0:
		a.Stop = model.StopCalls
	case refused:
		a.Stop = model.StopRefused
	}
	return a, nil
}

// item makes parts of one item of the output; those of kinds that were not asked for
// are left out.
func (r *reply) item(it responses.ResponseOutputItemUnion) (refused bool, err error) {
	switch it.Type {
	case "message":
		m := it.AsMessage()
		p := &piece{kind: model.KindText}
		for _, c := range m.Content {
			p.text = append(p.text, c.Text...)
			if c.Type == "refusal" {
				refused = true
				p.text = append(p.text, c.Refusal...)
			}
		}
		if len(p.text) == 0 {
			return refused, nil
		}
		if m.Phase != "" {
			p.opaque = encode(textBack{Phase: string(m.Phase)})
		}
		r.parts = append(r.parts, p)
		return refused, r.grow(len(p.text))
	case "reasoning":
		i := it.AsReasoning()
		back := reasoningBack{ID: i.ID, Encrypted: i.EncryptedContent}
		var texts, inner []string
		for _, s := range i.Summary {
			back.Summary = append(back.Summary, valid(s.Text))
			texts = append(texts, s.Text)
		}
		for _, c := range i.Content {
			inner = append(inner, c.Text)
		}
		if len(texts) == 0 {
			texts = inner // a server that shows the thoughts themselves
		}
		p := &piece{kind: model.KindThought, text: []byte(strings.Join(texts, "\n\n"))}
		// Without its encrypted text it says nothing to a server that kept nothing.
		if back.Encrypted != "" {
			p.opaque = encode(back)
		}
		if len(p.text) == 0 && p.opaque == nil {
			return false, nil
		}
		r.parts = append(r.parts, p)
		return false, r.grow(len(p.text) + len(p.opaque))
	case "function_call":
		f := it.AsFunctionCall()
		p, err := r.call()
		if err != nil {
			return false, err
		}
		p.tool, p.id, p.told = []byte(f.Name), f.CallID, true
		if p.id == "" {
			p.id = f.ID
		}
		p.text = []byte(f.Arguments)
		if raw := f.JSON.Arguments.Raw(); strings.HasPrefix(raw, "{") {
			p.text = []byte(raw) // an object where a string should be
		}
		return false, r.grow(len(p.tool) + len(p.id) + len(p.text))
	}
	return false, nil
}

// reasoningBack and textBack are the opaque forms of Responses.
type reasoningBack struct {
	ID        string   `json:"id"`
	Summary   []string `json:"summary,omitempty"`
	Encrypted string   `json:"encrypted_content"`
}

type textBack struct {
	Phase string `json:"phase"`
}
