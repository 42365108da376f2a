package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"glasshouse/backend/model"
)

// askResponses sends a request of Responses and returns the response, unread.
func (c *client) askResponses(ctx context.Context, r model.Request, h habits) (*http.Response, error) {
	p, err := c.responsesParams(ctx, r, h)
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	service := responses.NewResponseService(c.opts...)
	if h.noStream {
		_, err := service.New(ctx, p, option.WithResponseBodyInto(&resp))
		return resp, err
	}
	stream := service.NewStreaming(ctx, p, option.WithResponseInto(&resp))
	return resp, stream.Err()
}

func (c *client) responsesParams(ctx context.Context, r model.Request, h habits) (responses.ResponseNewParams, error) {
	w := &itemWriter{client: c, r: r, h: h}
	for i := range r.Messages {
		if err := w.message(ctx, &r.Messages[i]); err != nil {
			return responses.ResponseNewParams{}, err
		}
	}
	w.flush()
	p := responses.ResponseNewParams{
		Model:           c.cfg.Model,
		Input:           responses.ResponseNewParamsInputUnion{OfInputItemList: w.out},
		MaxOutputTokens: openai.Int(c.most(r)),
		// Nothing stays with the server; what it needs of its thoughts it gets back.
		Store: openai.Bool(false),
	}
	if !h.noSealed {
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if r.System != "" {
		p.Instructions = openai.String(r.System)
	}
	if c.cfg.Effort != "" {
		p.Reasoning.Effort = shared.ReasoningEffort(c.cfg.Effort)
		if !h.noSummary {
			p.Reasoning.Summary = shared.ReasoningSummaryAuto
		}
	}
	for _, t := range r.Tools {
		// Not strict: that needs schemas without optional arguments, and is on if not said.
		f := &responses.FunctionToolParam{Name: t.Name, Parameters: schema(t.Schema), Strict: openai.Bool(false)}
		if t.Description != "" {
			f.Description = openai.String(t.Description)
		}
		p.Tools = append(p.Tools, responses.ToolUnionParam{OfFunction: f})
	}
	if len(p.Tools) > 0 {
		p.ParallelToolCalls = openai.Bool(true)
		if r.Quiet {
			p.ToolChoice.OfToolChoiceMode = openai.Opt(responses.ToolChoiceOptionsNone)
		}
	}
	return p, nil
}

// itemWriter writes the conversation as items.
type itemWriter struct {
	*client
	r    model.Request
	h    habits
	out  responses.ResponseInputParam
	user responses.ResponseInputMessageContentListParam // not yet in out
	ids  map[string]string                              // of the newest calls: ours → as sent
}

func (w *itemWriter) message(ctx context.Context, m *model.Message) error {
	switch m.Role {
	case model.RoleAssistant:
		w.flush()
		w.assistant(m)
	case model.RoleTool:
		w.flush()
		return w.results(ctx, m)
	default:
		for _, p := range m.Parts {
			switch {
			case p.Kind == model.KindImage && p.Image != nil:
				url, instead, err := w.picture(ctx, w.r, *p.Image)
				if err != nil {
					return err
				}
				w.show(url, instead)
			case p.Text != "":
				w.say(p.Text)
			}
		}
	}
	return nil
}

func (w *itemWriter) say(text string) {
	w.user = append(w.user, responses.ResponseInputContentParamOfInputText(text))
}

func (w *itemWriter) show(url, instead string) {
	if instead != "" {
		w.say(instead)
		return
	}
	w.user = append(w.user, responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
		Detail: responses.ResponseInputImageDetailAuto, ImageURL: openai.String(url)}})
}

// flush writes what the user said: as one string where it is text alone, which every
// server takes.
func (w *itemWriter) flush() {
	if len(w.user) == 0 {
		return
	}
	var texts []string
	for _, p := range w.user {
		if p.OfInputText != nil {
			texts = append(texts, p.OfInputText.Text)
		}
	}
	m := &responses.EasyInputMessageParam{Role: responses.EasyInputMessageRoleUser, Type: responses.EasyInputMessageTypeMessage}
	if len(texts) == len(w.user) {
		m.Content.OfString = openai.String(strings.Join(texts, "\n\n"))
	} else {
		m.Content.OfInputItemContentList = w.user
	}
	w.out = append(w.out, responses.ResponseInputItemUnionParam{OfMessage: m})
	w.user = nil
}

func (w *itemWriter) assistant(m *model.Message) {
	w.ids = map[string]string{}
	begin := len(w.out)
	for _, p := range m.Parts {
		mine := p.From == w.from()
		switch {
		case p.Kind == model.KindText && p.Text != "":
			a := &responses.EasyInputMessageParam{Role: responses.EasyInputMessageRoleAssistant, Type: responses.EasyInputMessageTypeMessage}
			a.Content.OfString = openai.String(p.Text)
			var back textBack
			if mine && json.Unmarshal(p.Opaque, &back) == nil {
				a.Phase = responses.EasyInputMessagePhase(back.Phase)
			}
			w.out = append(w.out, responses.ResponseInputItemUnionParam{OfMessage: a})
		case p.Kind == model.KindThought && mine && !w.h.noThoughts:
			if it := reasoning(p.Opaque); it != nil {
				w.out = append(w.out, responses.ResponseInputItemUnionParam{OfReasoning: it})
			}
		case p.Kind == model.KindCall && p.Call != nil:
			var back callBack
			if mine {
				_ = json.Unmarshal(p.Opaque, &back) // none, or not of this form: nothing to send back
			}
			id := back.ID
			if id == "" {
				id = sendID(p.Call.ID)
			}
			w.ids[p.Call.ID] = id
			w.out = append(w.out, responses.ResponseInputItemParamOfFunctionCall(sendArgs(p.Call.Args), id, sendName(p.Call.Tool)))
		}
	}
	// A thought that nothing follows, of an answer that was cut, would be refused.
	for len(w.out) > begin && w.out[len(w.out)-1].OfReasoning != nil {
		w.out = w.out[:len(w.out)-1]
	}
}

// reasoning is the item that a server gave, nil when it is not of that form.
func reasoning(opaque json.RawMessage) *responses.ResponseReasoningItemParam {
	var back reasoningBack
	if json.Unmarshal(opaque, &back) != nil || back.Encrypted == "" {
		return nil
	}
	it := &responses.ResponseReasoningItemParam{ID: back.ID, Summary: []responses.ResponseReasoningItemSummaryParam{}, EncryptedContent: openai.String(back.Encrypted)}
	for _, s := range back.Summary {
		it.Summary = append(it.Summary, responses.ResponseReasoningItemSummaryParam{Text: s})
	}
	return it
}

// results writes the outputs of calls. OpenAI takes pictures within them; for other
// servers they are the user's, after all outputs.
func (w *itemWriter) results(ctx context.Context, m *model.Message) error {
	for _, p := range m.Parts {
		res := p.Result
		if p.Kind != model.KindResult || res == nil {
			continue
		}
		id, ok := w.ids[res.ID]
		if !ok {
			id = sendID(res.ID)
		}
		text := res.Text
		var inside responses.ResponseFunctionCallOutputItemListParam
		for _, i := range res.Images {
			url, instead, err := w.picture(ctx, w.r, i)
			switch {
			case err != nil:
				return err
			case instead != "":
				text += "\n" + instead
			case w.own:
				inside = append(inside, responses.ResponseFunctionCallOutputItemUnionParam{OfInputImage: &responses.ResponseInputImageContentParam{
					Detail: responses.ResponseInputImageContentDetailAuto, ImageURL: openai.String(url)}})
			default:
				w.say(fmt.Sprintf("Picture from the result of %s (call %s):", sendName(res.Tool), id))
				w.show(url, "")
			}
		}
		out := &responses.ResponseInputItemFunctionCallOutputParam{CallID: openai.String(id)}
		if text = notEmpty(text); inside == nil {
			out.Output.OfString = openai.String(text)
		} else {
			out.Output.OfResponseFunctionCallOutputItemArray = append(responses.ResponseFunctionCallOutputItemListParam{
				{OfInputText: &responses.ResponseInputTextContentParam{Text: text}}}, inside...)
		}
		w.out = append(w.out, responses.ResponseInputItemUnionParam{OfFunctionCallOutput: out})
	}
	return nil
}
