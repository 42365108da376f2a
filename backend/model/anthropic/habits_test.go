package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

// body of a request, as far as these tests look.
type sentBody struct {
	Thinking map[string]any
	Messages []struct {
		Role    string
		Content []struct {
			Type, Thinking string
			Signature      *string
		}
	}
}

func wrote(t *testing.T, c model.Client, r model.Request) (b sentBody) {
	t.Helper()
	q, _, err := c.(*client).request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// Servers of other models give thoughts that nobody signed, and some insist on having
// them back. Claude's own would refuse them.
func TestUnsignedThoughts(t *testing.T) {
	const events = `event: message_start
data: {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"First this,"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" then that."}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"exec","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

`
	for _, c := range []struct {
		base, name string
		want       bool
	}{
		{"https://api.minimax.io/anthropic", "MiniMax-M3", true},
		{"https://api.deepseek.com/anthropic", "deepseek-v4-pro", true},
		{"http://127.0.0.1:8080", "qwen3", true},
		{"https://gate.test/anthropic", "claude-sonnet-4-5", false},
		{"", "claude-sonnet-4-5", false},
	} {
		s, _ := serve(t, []byte(events))
		cfg := model.Config{Model: c.name, BaseURL: s.URL, Format: model.FormatMessages}
		a, err := New(cfg, "", wire.NewClient(wire.Options{})).Answer(t.Context(), hello, none)
		if err != nil {
			t.Fatal(err)
		}
		cfg.BaseURL = c.base
		r := model.Request{Tools: tools, Messages: []model.Message{user("go"), {Role: model.RoleAssistant, Parts: a.Parts}, results(model.Result{ID: "t1", Tool: "exec", Text: "ok"})}}
		b := wrote(t, New(cfg, "", http.DefaultClient), r).Messages[1].Content
		got := b[0].Type == "thinking" && b[0].Thinking == "First this, then that." && b[0].Signature != nil && *b[0].Signature == ""
		if got != c.want || !got && b[0].Type != "tool_use" {
			t.Errorf("%s at %q: %+v", c.name, c.base, b)
		}
		// To another model it does not go.
		cfg.Model = "other"
		if b := wrote(t, New(cfg, "", http.DefaultClient), r).Messages[1].Content; b[0].Type != "tool_use" {
			t.Errorf("another model got %+v", b)
		}
	}
}

// DeepSeek thinks unless it is told not to, and then wants a thought before each call:
// with the calls of another model in the conversation it is told not to.
func TestCallsOfAnotherModelWhereThoughtsAreDemanded(t *testing.T) {
	cfg := model.Config{Model: "deepseek-v4-pro", BaseURL: "https://api.deepseek.com/anthropic", Effort: "low"}
	c := New(cfg, "", http.DefaultClient)
	own := model.Part{Kind: model.KindThought, Text: "t", Opaque: json.RawMessage(`{"type":"thinking"}`), From: c.(*client).from()}
	ok := func(id string) model.Message { return results(model.Result{ID: id, Tool: "exec", Text: "ok"}) }
	r := model.Request{Tools: tools, Messages: []model.Message{user("go"), says(own, calls("1", "exec", "")), ok("1"), says(text("done")), user("on")}}
	if b := wrote(t, c, r); b.Thinking["type"] != "enabled" {
		t.Errorf("its own calls: %v", b.Thinking)
	}
	r.Messages = append(r.Messages, says(calls("2", "exec", "")), ok("2"), says(text("done")), user("on"))
	if b := wrote(t, c, r); b.Thinking["type"] != "disabled" {
		t.Errorf("another's calls: %v", b.Thinking)
	}
	cfg.BaseURL = "https://gate.test/anthropic"
	if b := wrote(t, New(cfg, "", http.DefaultClient), r); b.Thinking["type"] != "enabled" {
		t.Errorf("elsewhere: %v", b.Thinking)
	}
}

// What a server refuses for a thought is sent again as it wants it, and from then on.
func TestHabitsAreLearned(t *testing.T) {
	for name, c := range map[string]struct {
		refusal string
		bad     func(string) bool
		most    int
	}{
		"signature":  {"messages.1.content.0: Invalid `signature` in `thinking` block", func(b string) bool { return strings.Contains(b, "sig") }, 2},
		"modified":   {"messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were.", func(b string) bool { return strings.Contains(b, "sig") }, 2},
		"passed":     {"The content[].thinking in the thinking mode must be passed back to the API.", func(b string) bool { return !strings.Contains(b, `"disabled"`) }, 2},
		"other":      {"tools.0.name: too long", func(string) bool { return true }, 1},
		"for ever":   {"Invalid `signature` in `thinking` block", func(string) bool { return true }, 2},
		"for ever 2": {"The content[].thinking in the thinking mode must be passed back to the API.", func(string) bool { return true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				if n++; c.bad(string(raw)) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(400)
					fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":%q}}`, c.refusal)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write(fixture(t, "text.sse"))
			}))
			defer s.Close()
			m := open(model.Config{Model: testModel, BaseURL: s.URL}, "")
			from := "anthropic:" + testModel
			signed := model.Part{Kind: model.KindThought, Text: "t", Opaque: json.RawMessage(`{"type":"thinking","thinking":"t","signature":"sig"}`), From: from}
			r := model.Request{Tools: tools, Messages: []model.Message{user("go"), says(signed, calls("1", "exec", "")), results(model.Result{ID: "1", Tool: "exec", Text: "ok"}),
				says(calls("2", "exec", "")), results(model.Result{ID: "2", Tool: "exec", Text: "ok"})}}
			_, err := m.Answer(t.Context(), r, none)
			if bad := strings.HasPrefix(name, "for ever") || name == "other"; (err != nil) != bad || n != c.most {
				t.Fatalf("asked %d times: %v", n, err)
			} else if bad {
				return
			}
			if _, err := m.Answer(t.Context(), r, none); err != nil || n != c.most+1 {
				t.Errorf("asked %d times: %v", n, err)
			}
		})
	}
}

func TestAKeyIsNotSentInTheClear(t *testing.T) {
	for _, base := range []string{"http://192.0.2.1", "http://model.test/v1"} {
		c := &catch{}
		_, err := New(model.Config{Model: testModel, BaseURL: base}, testKey, &http.Client{Transport: c}).Answer(t.Context(), hello, none)
		if model.KindOf(err) != model.ErrAuth || !strings.Contains(err.Error(), "TLS") || c.got != nil {
			t.Errorf("%s: %v, asked %v", base, err, c.got)
		}
		if _, err := New(model.Config{Model: testModel, BaseURL: base}, "", &http.Client{Transport: c}).Answer(t.Context(), hello, none); c.got == nil {
			t.Errorf("%s without a key: not asked, %v", base, err)
		}
	}
}
