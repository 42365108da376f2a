package modeltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicopt "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaiopt "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

// answered is what a makers' own client made of an answer.
type answered struct {
	Text  string
	Calls []model.Call
	Stop  string
	Usage model.Usage
}

// talker keeps a conversation by a maker's own client.
type talker interface {
	user(text string)
	// ask streams (or not) the next answer and takes it into the conversation.
	ask(stream bool) (answered, error)
	result(id, text string)
	status(err error) (int, string)
}

const key = "sk-test-1234567890"

var schema = map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}, "required": []string{"path"}}

func talkers(srv *modeltest.Server) map[model.Format]talker {
	return map[model.Format]talker{
		model.FormatChat:      &chatTalker{c: openai.NewClient(openaiopt.WithBaseURL(srv.URL()), openaiopt.WithAPIKey(key), openaiopt.WithMaxRetries(0))},
		model.FormatResponses: &responsesTalker{c: openai.NewClient(openaiopt.WithBaseURL(srv.URL()), openaiopt.WithAPIKey(key), openaiopt.WithMaxRetries(0))},
		model.FormatMessages: &messagesTalker{c: anthropic.NewClient(anthropicopt.WithBaseURL("http://"+srv.Addr()), anthropicopt.WithAPIKey(key),
			anthropicopt.WithMaxRetries(0))},
	}
}

type chatTalker struct {
	c    openai.Client
	msgs []openai.ChatCompletionMessageParamUnion
}

func (c *chatTalker) user(text string) { c.msgs = append(c.msgs, openai.UserMessage(text)) }
func (c *chatTalker) result(id, text string) {
	c.msgs = append(c.msgs, openai.ToolMessage(text, id))
}

func (c *chatTalker) ask(stream bool) (out answered, err error) {
	p := openai.ChatCompletionNewParams{Model: "fake", Messages: c.msgs, MaxCompletionTokens: openai.Int(500),
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "read", Parameters: schema})}}
	var got *openai.ChatCompletion
	if stream {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		s := c.c.Chat.Completions.NewStreaming(context.Background(), p)
		defer s.Close()
		var acc openai.ChatCompletionAccumulator
		for s.Next() {
			acc.AddChunk(s.Current())
		}
		err, got = s.Err(), &acc.ChatCompletion
	} else {
		got, err = c.c.Chat.Completions.New(context.Background(), p)
	}
	if err != nil {
		return out, err
	}
	if len(got.Choices) != 1 {
		return out, errors.New("no choice")
	}
	ch := got.Choices[0]
	out.Text, out.Stop = ch.Message.Content, ch.FinishReason
	for _, k := range ch.Message.ToolCalls {
		out.Calls = append(out.Calls, model.Call{ID: k.ID, Tool: k.Function.Name, Args: k.Function.Arguments})
	}
	cached := got.Usage.PromptTokensDetails.CachedTokens
	out.Usage = model.Usage{Input: got.Usage.PromptTokens - cached, CacheRead: cached, Output: got.Usage.CompletionTokens, Reasoning: got.Usage.CompletionTokensDetails.ReasoningTokens}
	c.msgs = append(c.msgs, ch.Message.ToParam())
	return out, nil
}

func (c *chatTalker) status(err error) (int, string) {
	var e *openai.Error
	if errors.As(err, &e) {
		return e.StatusCode, e.Message
	}
	return 0, err.Error()
}

type responsesTalker struct {
	c     openai.Client
	items []responses.ResponseInputItemUnionParam
}

func (c *responsesTalker) user(text string) {
	c.items = append(c.items, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser))
}

func (c *responsesTalker) result(id, text string) {
	c.items = append(c.items, responses.ResponseInputItemUnionParam{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{CallID: openai.String(id),
		Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String(text)}}})
}

func (c *responsesTalker) ask(stream bool) (out answered, err error) {
	p := responses.ResponseNewParams{Model: "fake", Input: responses.ResponseNewParamsInputUnion{OfInputItemList: c.items}, Store: openai.Bool(false),
		Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent},
		Tools:   []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "read", Parameters: schema, Strict: openai.Bool(false)}}}}
	var got *responses.Response
	deltas := 0
	if stream {
		s := c.c.Responses.NewStreaming(context.Background(), p)
		defer s.Close()
		for s.Next() {
			switch ev := s.Current(); ev.Type {
			case "response.completed", "response.incomplete":
				got = &ev.Response
			case "response.output_text.delta", "response.function_call_arguments.delta", "response.reasoning_summary_text.delta":
				deltas++
			case "error":
				err = errors.New(ev.Message)
			}
		}
		if err = errors.Join(err, s.Err()); err == nil && got == nil {
			err = errors.New("no end of the response")
		}
		if err == nil && deltas < 2 {
			err = errors.New("no deltas")
		}
	} else {
		got, err = c.c.Responses.New(context.Background(), p)
	}
	if err != nil {
		return out, err
	}
	out.Stop = string(got.Status)
	for _, i := range got.Output {
		switch i.Type {
		case "reasoning":
			r := i.AsReasoning().ToParam()
			c.items = append(c.items, responses.ResponseInputItemUnionParam{OfReasoning: &r})
		case "message":
			m := i.AsMessage().ToParam()
			c.items = append(c.items, responses.ResponseInputItemUnionParam{OfOutputMessage: &m})
		case "function_call":
			k := i.AsFunctionCall()
			p := k.ToParam()
			c.items = append(c.items, responses.ResponseInputItemUnionParam{OfFunctionCall: &p})
			out.Calls = append(out.Calls, model.Call{ID: k.CallID, Tool: k.Name, Args: k.Arguments})
		}
	}
	out.Text = got.OutputText()
	cached := got.Usage.InputTokensDetails.CachedTokens
	out.Usage = model.Usage{Input: got.Usage.InputTokens - cached, CacheRead: cached, Output: got.Usage.OutputTokens, Reasoning: got.Usage.OutputTokensDetails.ReasoningTokens}
	return out, nil
}

func (c *responsesTalker) status(err error) (int, string) { return (&chatTalker{}).status(err) }

type messagesTalker struct {
	c       anthropic.Client
	msgs    []anthropic.MessageParam
	results []anthropic.ContentBlockParamUnion
}

func (c *messagesTalker) flush() {
	if c.results != nil {
		c.msgs, c.results = append(c.msgs, anthropic.NewUserMessage(c.results...)), nil
	}
}

func (c *messagesTalker) user(text string) {
	c.results = append(c.results, anthropic.NewTextBlock(text))
	c.flush()
}

func (c *messagesTalker) result(id, text string) {
	c.results = append(c.results, anthropic.NewToolResultBlock(id, text, false))
}

func (c *messagesTalker) ask(stream bool) (out answered, err error) {
	c.flush()
	p := anthropic.MessageNewParams{Model: "fake", MaxTokens: 500, Messages: c.msgs, CacheControl: anthropic.NewCacheControlEphemeralParam(),
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "read", InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"], Required: []string{"path"}}}}}}
	var got *anthropic.Message
	if stream {
		s := c.c.Messages.NewStreaming(context.Background(), p)
		defer s.Close()
		got = &anthropic.Message{}
		for s.Next() {
			if err := got.Accumulate(s.Current()); err != nil {
				return out, err
			}
		}
		err = s.Err()
	} else {
		got, err = c.c.Messages.New(context.Background(), p)
	}
	if err != nil {
		return out, err
	}
	out.Stop = string(got.StopReason)
	for _, b := range got.Content {
		switch b.Type {
		case "text":
			out.Text += b.Text
		case "tool_use":
			out.Calls = append(out.Calls, model.Call{ID: b.ID, Tool: b.Name, Args: string(b.Input)})
		}
	}
	u := got.Usage
	out.Usage = model.Usage{Input: u.InputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens, Output: u.OutputTokens}
	c.msgs = append(c.msgs, got.ToParam())
	return out, nil
}

func (c *messagesTalker) status(err error) (int, string) {
	var e *anthropic.Error
	if errors.As(err, &e) {
		return e.StatusCode, e.Error()
	}
	return 0, err.Error()
}

// each runs f for every format, streamed and not, on a server of its own.
func each(t *testing.T, script string, o modeltest.Options, f func(t *testing.T, srv *modeltest.Server, c talker, stream bool)) {
	for _, format := range []model.Format{model.FormatChat, model.FormatResponses, model.FormatMessages} {
		for _, stream := range []bool{true, false} {
			name := string(format) + "/whole"
			if stream {
				name = string(format) + "/stream"
			}
			t.Run(name, func(t *testing.T) {
				srv := modeltest.Text(t, script, o)
				f(t, srv, talkers(srv)[format], stream)
			})
		}
	}
}

func must(t *testing.T, a answered, err error) answered {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}
