package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"glasshouse/backend/model"
)

// request in the form of the wire, and what tools are called there.
func (c *client) request(ctx context.Context, r model.Request) (anthropic.MessageNewParams, names, error) {
	n := newNames(r.Tools)
	most := r.MaxOutput
	if most <= 0 {
		most = c.cfg.OutputSize()
	}
	q := anthropic.MessageNewParams{Model: c.cfg.Model, MaxTokens: int64(most)}

	for _, t := range r.Tools {
		p := &anthropic.ToolParam{Name: n.wire(t.Name), InputSchema: param.Override[anthropic.ToolInputSchemaParam](schema(t.Schema))}
		if t.Description != "" {
			p.Description = anthropic.String(valid(t.Description))
		}
		q.Tools = append(q.Tools, anthropic.ToolUnionParam{OfTool: p})
	}
	if r.Quiet && len(q.Tools) > 0 {
		q.ToolChoice = anthropic.ToolChoiceUnionParam{OfNone: &anthropic.ToolChoiceNoneParam{}}
	}

	// The server keeps what comes before a mark: tools and system, which never change,
	// then all up to the mark that the last request had, then all of this one.
	mark := anthropic.NewCacheControlEphemeralParam()
	if !blank(r.System) {
		q.System = []anthropic.TextBlockParam{{Text: valid(r.System), CacheControl: mark}}
	} else if len(q.Tools) > 0 {
		q.Tools[len(q.Tools)-1].OfTool.CacheControl = mark
	}

	t := &talk{c: c, ctx: ctx, bytes: r.Bytes, names: n, ids: ids{}}
	for _, m := range r.Messages {
		if err := t.add(m); err != nil {
			return q, n, err
		}
	}
	turns := t.end()
	marks := 2
	for i := len(turns) - 1; i >= 0 && marks > 0; i-- {
		if turns[i].user {
			setMark(&turns[i].blocks[len(turns[i].blocks)-1], mark)
			marks--
		}
	}
	for _, turn := range turns {
		if turn.user {
			q.Messages = append(q.Messages, anthropic.NewUserMessage(turn.blocks...))
		} else {
			q.Messages = append(q.Messages, anthropic.NewAssistantMessage(turn.blocks...))
		}
	}
	c.think(&q, turns)
	return q, n, nil
}

func setMark(b *anthropic.ContentBlockParamUnion, mark anthropic.CacheControlEphemeralParam) {
	switch {
	case b.OfText != nil:
		b.OfText.CacheControl = mark
	case b.OfImage != nil:
		b.OfImage.CacheControl = mark
	case b.OfToolResult != nil:
		b.OfToolResult.CacheControl = mark
	}
}

// schema as it was given, in its own order, so that the same tools are the same bytes.
func schema(raw json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	if _, ok := object["type"]; ok {
		return raw
	}
	rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(raw)), "{"))
	if rest == "}" {
		return json.RawMessage(`{"type":"object"}`)
	}
	return json.RawMessage(`{"type":"object",` + rest)
}

// Least and most tokens for thinking in the form that older models know.
const leastBudget = 1024

var budgets = map[string]int64{"low": 2048, "medium": 8192, "high": 24576}

// think asks for thinking as the model knows it: newer ones are told an effort and
// choose themselves, older ones get a number of tokens.
func (c *client) think(q *anthropic.MessageNewParams, turns []turn) {
	if c.how.get().thoughts && slices.ContainsFunc(turns, bareCalls) {
		q.Thinking = anthropic.ThinkingConfigParamUnion{OfDisabled: &anthropic.ThinkingConfigDisabledParam{}}
		return
	}
	budget, ok := budgets[c.cfg.Effort]
	if !ok {
		return
	}
	if choosesItself(c.cfg.Model) {
		q.Thinking = anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{Display: anthropic.ThinkingConfigAdaptiveDisplaySummarized}}
		q.OutputConfig.Effort = anthropic.OutputConfigEffort(c.cfg.Effort)
		return
	}
	// What is left must hold the answer.
	budget = min(budget, q.MaxTokens-max(q.MaxTokens/4, 1))
	if budget < leastBudget || callsWithoutThought(turns) {
		return
	}
	q.Thinking = anthropic.ThinkingConfigParamOfEnabled(budget)
}

// callsWithoutThought reports whether the turn that is under way began with calls and
// without a thought, as when another model began it: with thinking on, the server
// refuses that. Later answers of a turn need none.
func callsWithoutThought(turns []turn) bool {
	first := -1
	for i := len(turns) - 1; i >= 0; i-- {
		if !turns[i].user {
			first = i
		} else if turns[i].blocks[0].OfToolResult == nil {
			break
		}
	}
	return first >= 0 && bareCalls(turns[first])
}

// bareCalls: it calls, and did not begin with a thought.
func bareCalls(t turn) bool {
	b := t.blocks
	return !t.user && b[0].OfThinking == nil && b[0].OfRedactedThinking == nil && slices.ContainsFunc(b, func(b blockParam) bool { return b.OfToolUse != nil })
}

// choosesItself reports whether a model takes an effort in place of a budget: Claude from
// 4.6 on. Names hold the version behind the family (claude-opus-4-6-…) or before it
// (claude-3-7-sonnet-…); numbers of more than two digits are dates. Claude without a
// number is a newer one; whatever is not Claude gets what most servers know.
func choosesItself(name string) bool {
	_, rest, ok := strings.Cut(strings.ToLower(name), "claude")
	if !ok {
		return false
	}
	words := strings.FieldsFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	number := func(i int) (int, bool) {
		if i >= len(words) || len(words[i]) > 2 {
			return 0, false
		}
		v, err := strconv.Atoi(words[i])
		return v, err == nil
	}
	for i := range words {
		if major, ok := number(i); ok {
			minor, _ := number(i + 1)
			return major > 4 || major == 4 && minor >= 6
		}
	}
	return true
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// arguments of a call as an object, which the server demands. What the model wrote
// otherwise goes back below one name.
func arguments(args string) json.RawMessage {
	if args == "" {
		return json.RawMessage(`{}`)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &object) == nil && object != nil {
		var small bytes.Buffer
		if json.Compact(&small, []byte(valid(args))) == nil {
			return small.Bytes()
		}
	}
	raw, err := json.Marshal(map[string]string{"_raw": valid(args)})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return raw
}
