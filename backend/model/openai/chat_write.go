package openai

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"glasshouse/backend/model"
)

// askChat sends a request of Chat Completions and returns the response, unread.
func (c *client) askChat(ctx context.Context, r model.Request, h habits) (*http.Response, error) {
	p, err := c.chatParams(ctx, r, h)
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	service := openai.NewChatCompletionService(c.opts...)
	if h.noStream {
		_, err := service.New(ctx, p, option.WithResponseBodyInto(&resp))
		return resp, err
	}
	stream := service.NewStreaming(ctx, p, option.WithResponseInto(&resp))
	return resp, stream.Err()
}

func (c *client) chatParams(ctx context.Context, r model.Request, h habits) (openai.ChatCompletionNewParams, error) {
	w := &chatWriter{client: c, r: r, h: h}
	if r.System != "" {
		w.out = append(w.out, openai.SystemMessage(r.System))
	}
	for i := range r.Messages {
		if err := w.message(ctx, &r.Messages[i]); err != nil {
			return openai.ChatCompletionNewParams{}, err
		}
	}
	w.flush()
	p := openai.ChatCompletionNewParams{
		Model:           c.cfg.Model,
		Messages:        w.out,
		ReasoningEffort: shared.ReasoningEffort(c.cfg.Effort),
	}
	if !h.noStream && !h.noUsage {
		p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	}
	if n := openai.Int(c.most(r)); h.tokens == maxCompletionTokens {
		p.MaxCompletionTokens = n
	} else {
		p.MaxTokens = n
	}
	for _, t := range r.Tools {
		if h.plain {
			t.Schema = model.PlainSchema(t.Schema)
		}
		f := shared.FunctionDefinitionParam{Name: t.Name, Parameters: schema(t.Schema)}
		if t.Description != "" {
			f.Description = openai.String(t.Description)
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(f))
	}
	if r.Quiet && len(p.Tools) > 0 {
		p.ToolChoice.OfAuto = openai.String("none")
	}
	return p, nil
}

func (c *client) most(r model.Request) int64 {
	if r.MaxOutput > 0 {
		return int64(r.MaxOutput)
	}
	return int64(c.cfg.OutputSize())
}

// chatWriter writes the conversation. What the user says in several messages that follow
// one another becomes one: the templates of many models take no other order than user
// and assistant in turn.
type chatWriter struct {
	*client
	r    model.Request
	h    habits
	out  []openai.ChatCompletionMessageParamUnion
	user []openai.ChatCompletionContentPartUnionParam // not yet in out
	ids  map[string]string                            // of the newest calls: ours → as sent
}

func (w *chatWriter) message(ctx context.Context, m *model.Message) error {
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
				if err := w.image(ctx, *p.Image); err != nil {
					return err
				}
			case p.Text != "":
				w.say(p.Text)
			}
		}
	}
	return nil
}

func (w *chatWriter) say(text string) { w.user = append(w.user, openai.TextContentPart(text)) }

func (w *chatWriter) image(ctx context.Context, i model.Image) error {
	url, instead, err := w.picture(ctx, w.r, i)
	switch {
	case err != nil:
		return err
	case instead != "":
		w.say(instead)
	default:
		w.user = append(w.user, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}))
	}
	return nil
}

// flush writes what the user said: as one string where it is text alone, which every
// server takes.
func (w *chatWriter) flush() {
	if len(w.user) == 0 {
		return
	}
	if n := len(w.out); n > 0 && w.out[n-1].OfTool != nil && w.h.bridged {
		w.out = append(w.out, openai.AssistantMessage("OK."))
	}
	var texts []string
	for _, p := range w.user {
		if t := p.GetText(); t != nil {
			texts = append(texts, *t)
		}
	}
	if len(texts) == len(w.user) {
		w.out = append(w.out, openai.UserMessage(strings.Join(texts, "\n\n")))
	} else {
		w.out = append(w.out, openai.UserMessage(w.user))
	}
	w.user = nil
}

func (w *chatWriter) assistant(m *model.Message) {
	var a openai.ChatCompletionAssistantMessageParam
	var texts []string
	var thoughts thoughtsBack
	w.ids = map[string]string{}
	for _, p := range m.Parts {
		switch {
		case p.Kind == model.KindText && p.Text != "":
			texts = append(texts, p.Text)
		case p.Kind == model.KindThought && p.From == w.from() && !w.h.noThoughts:
			thoughts.add(p)
		case p.Kind == model.KindCall && p.Call != nil:
			a.ToolCalls = append(a.ToolCalls, w.call(p, len(a.ToolCalls) == 0))
		}
	}
	calls := len(a.ToolCalls) > 0
	extra := map[string]any{}
	if !w.own {
		thoughts.into(extra, calls, w.h)
	}
	switch {
	case len(texts) > 0:
		a.Content.OfString = openai.String(strings.Join(texts, "\n\n"))
	case !calls:
		// It thought and said nothing. The turns must still alternate.
		a.Content.OfString = openai.String("(no answer)")
	case w.h.thoughts:
		a.Content.OfString = openai.String("") // null beside a thought is refused
	default:
		extra["content"] = nil // templates look at it, and fail where it is missing
	}
	if len(extra) > 0 {
		a.SetExtraFields(extra)
	}
	w.out = append(w.out, openai.ChatCompletionMessageParamUnion{OfAssistant: &a})
}

// call writes one; first: of its message, which is the one that Gemini signs.
func (w *chatWriter) call(p model.Part, first bool) openai.ChatCompletionMessageToolCallUnionParam {
	var back callBack
	if p.From == w.from() {
		_ = json.Unmarshal(p.Opaque, &back) // none, or not of this form: nothing to send back
	}
	id := w.id(p.Call.ID)
	if back.ID != "" {
		id = back.ID
	}
	w.ids[p.Call.ID] = id
	f := &openai.ChatCompletionMessageFunctionToolCallParam{
		ID:       id,
		Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: sendName(p.Call.Tool), Arguments: sendArgs(p.Call.Args)},
	}
	switch {
	case present(back.Extra) && !w.h.noThoughts:
		f.SetExtraFields(map[string]any{"extra_content": back.Extra})
	case w.h.signed && first:
		f.SetExtraFields(map[string]any{"extra_content": unsigned})
	}
	return openai.ChatCompletionMessageToolCallUnionParam{OfFunction: f}
}

// results writes the tool messages, which hold text alone, and what pictures there are
// as the user's, after all of them.
func (w *chatWriter) results(ctx context.Context, m *model.Message) error {
	for _, p := range m.Parts {
		res := p.Result
		if p.Kind != model.KindResult || res == nil {
			continue
		}
		id, ok := w.ids[res.ID]
		if !ok {
			id = w.id(res.ID)
		}
		text := res.Text
		for _, i := range res.Images {
			url, instead, err := w.picture(ctx, w.r, i)
			if err != nil {
				return err
			}
			if instead != "" {
				text += "\n" + instead
				continue
			}
			w.say(fmt.Sprintf("Picture from the result of %s (call %s):", sendName(res.Tool), id))
			w.user = append(w.user, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}))
		}
		w.out = append(w.out, openai.ToolMessage(notEmpty(text), id))
	}
	return nil
}

// notEmpty: servers refuse empty texts.
func notEmpty(text string) string {
	if strings.TrimSpace(text) == "" {
		return "(nothing)"
	}
	return text
}

// sendID makes an id that OpenAI takes of one that may come from any server: at most 40
// characters for Chat Completions.
func sendID(id string) string {
	if len(id) <= 40 && fitID(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// id of a call as the server takes it.
func (w *chatWriter) id(id string) string {
	if w.h.shortIDs {
		return shortID(id)
	}
	return sendID(id)
}

// shortID makes nine letters or digits of an id, and leaves one that is that.
func shortID(id string) string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if len(id) == 9 && strings.Trim(id, letters) == "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	out := make([]byte, 9)
	for i := range out {
		out[i] = letters[int(sum[i])%len(letters)]
	}
	return string(out)
}

// sendName makes a tool's name of what a model wrote as one, for a name that no tool
// can have would have every later request refused.
func sendName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "unknown"
	}
	return name[:min(len(name), 64)]
}

// sendArgs makes a JSON object of a call's arguments, which may be anything: llama.cpp,
// vLLM and others read them as one for their templates, and fail where it is none.
func sendArgs(args string) string {
	if strings.TrimSpace(args) == "" {
		return "{}"
	}
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &o) == nil && o != nil {
		return args
	}
	return string(encode(map[string]string{"_raw": args}))
}

// schema of arguments, in its own order below the first level.
func schema(raw json.RawMessage) map[string]any {
	out := map[string]any{}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) == nil {
		for k, v := range fields {
			out[k] = v
		}
	}
	if _, ok := out["type"]; !ok {
		out["type"] = "object"
	}
	if _, ok := out["properties"]; !ok {
		out["properties"] = map[string]any{}
	}
	return out
}
