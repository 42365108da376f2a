package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

// sentMessage is one of a request of Chat Completions, as far as these tests look.
type sentMessage struct {
	Role      string
	Content   any
	Reasoning *string           `json:"reasoning"`
	Thought   *string           `json:"reasoning_content"`
	Details   []json.RawMessage `json:"reasoning_details"`
	ID        string            `json:"tool_call_id"`
	Calls     []struct {
		ID    string
		Extra json.RawMessage `json:"extra_content"`
	} `json:"tool_calls"`
}

// written is what a client at an address would send, without sending it.
func written(t *testing.T, address, name string, teach string, ms ...model.Message) []sentMessage {
	t.Helper()
	cfg := model.Config{Format: model.FormatChat, Model: name, BaseURL: address}
	h := known(cfg, isOwn(address))
	if teach != "" {
		h = h.taught(strings.ToLower(teach))
	}
	c := New(cfg, "", http.DefaultClient).(*client)
	p, err := c.chatParams(t.Context(), model.Request{Messages: ms}, h)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Messages []sentMessage }
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out.Messages
}

func of(p model.Part, name string) model.Part {
	p.From = "openai-chat:" + name
	return p
}

// Servers that think want the thought back with each call: their own as it was, and
// something in its place where another model made the call.
func TestThoughtsThatMustGoBack(t *testing.T) {
	for name, c := range map[string]struct{ address, teach string }{
		"DeepSeek":           {"https://api.deepseek.com/v1", ""},
		"Moonshot":           {"https://api.moonshot.ai/v1", ""},
		"Moonshot, China":    {"https://api.moonshot.cn/v1", ""},
		"Kimi":               {"https://api.kimi.com/coding/v1", ""},
		"DeepSeek elsewhere": {"https://example.com/v1", "The `reasoning_content` in the thinking mode must be passed back to the API."},
		"DeepSeek, older":    {"https://example.com/v1", "Missing `reasoning_content` field in the assistant message at message index 2."},
		"Kimi elsewhere":     {"https://example.com/v1", "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"},
	} {
		ms := written(t, c.address, "m1", c.teach,
			user(text("go")),
			assistant(of(thought("reasoning_content", "hm"), "m1"), call("a", "x", "{}")), results(model.Result{ID: "a", Tool: "x", Text: "ok"}),
			assistant(of(thought("reasoning_content", "foreign"), "m2"), call("b", "x", "{}")), results(model.Result{ID: "b", Tool: "x", Text: "ok"}),
			assistant(of(thought("reasoning_content", "so"), "m1"), text("done")), user(text("thanks")), assistant(text("bye")), user(text("well")))
		want := []string{"hm", " ", "so", ""}
		var got []string
		for _, m := range ms {
			if m.Role != "assistant" {
				continue
			}
			if m.Content == nil {
				t.Errorf("%s: content is null beside a thought", name)
			}
			s := ""
			if m.Thought != nil {
				s = *m.Thought
			}
			got = append(got, s)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: thoughts %q, want %q", name, got, want)
		}
	}
	// Elsewhere a thought goes back with a call alone, and nothing is made up.
	ms := written(t, "https://example.com/v1", "m1", "",
		user(text("go")), assistant(of(thought("reasoning", "hm"), "m1"), call("a", "x", "{}")), results(model.Result{ID: "a", Tool: "x", Text: "ok"}),
		assistant(call("b", "x", "{}")), results(model.Result{ID: "b", Tool: "x", Text: "ok"}), assistant(of(thought("reasoning", "so"), "m1"), text("done")), user(text("thanks")))
	if m := ms[1]; m.Reasoning == nil || *m.Reasoning != "hm" || m.Content != nil {
		t.Errorf("%+v", m)
	}
	if ms[3].Thought != nil || ms[3].Reasoning != nil || ms[5].Reasoning != nil {
		t.Errorf("%+v", ms)
	}
	// Nor at OpenAI's own address, which knows no such field.
	for _, m := range written(t, "https://api.openai.com/v1", "m1", "", user(text("go")), assistant(of(thought("reasoning_content", "hm"), "m1"), call("a", "x", "{}")), results(model.Result{ID: "a", Tool: "x", Text: "ok"})) {
		if m.Thought != nil {
			t.Errorf("%+v", m)
		}
	}
}

// Gemini refuses calls without its signature; those of another model get the word that
// stands for it, on the first call of a message alone.
func TestCallsThatMustBeSigned(t *testing.T) {
	signed := of(call("a", "x", "{}"), "gemini-3-pro")
	signed.Opaque = json.RawMessage(`{"extra_content":{"google":{"thought_signature":"c2ln"}}}`)
	other := of(call("c", "x", "{}"), "gemini-2-pro")
	other.Opaque = json.RawMessage(`{"extra_content":{"google":{"thought_signature":"foreign"}}}`)
	conv := []model.Message{
		user(text("go")), assistant(signed, call("b", "x", "{}")), results(model.Result{ID: "a", Tool: "x", Text: "ok"}, model.Result{ID: "b", Tool: "x", Text: "ok"}),
		assistant(other, call("d", "x", "{}")), results(model.Result{ID: "c", Tool: "x", Text: "ok"}, model.Result{ID: "d", Tool: "x", Text: "ok"}),
	}
	for name, c := range map[string]struct{ address, teach string }{
		"Gemini":    {"https://generativelanguage.googleapis.com/v1beta/openai", ""},
		"Vertex":    {"https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi", ""},
		"elsewhere": {"https://example.com/v1", "Unable to submit request because function call `exec` in the 2. content block is missing a `thought_signature`."},
	} {
		ms := written(t, c.address, "gemini-3-pro", c.teach, conv...)
		var got []string
		for _, m := range ms {
			for _, k := range m.Calls {
				got = append(got, string(k.Extra))
			}
		}
		if want := []string{`{"google":{"thought_signature":"c2ln"}}`, "", string(unsigned), ""}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, m := range written(t, "https://example.com/v1", "other", "", conv...) {
		for _, k := range m.Calls {
			if k.Extra != nil {
				t.Errorf("a signature goes to another model: %s", k.Extra)
			}
		}
	}
}

// Mistral's models take ids of nine letters or digits alone, and no word of the user
// right after a result.
func TestMistralsOrder(t *testing.T) {
	conv := []model.Message{
		user(text("go")), assistant(call("call_0fypS1hVX", "x", "{}"), call("D681PevKs", "x", "{}"), call("toolu_01A09q90qw90lq917835lq9", "x", "{}")),
		results(model.Result{ID: "call_0fypS1hVX", Tool: "x", Text: "ok"}, model.Result{ID: "D681PevKs", Tool: "x", Text: "ok"}, model.Result{ID: "toolu_01A09q90qw90lq917835lq9", Tool: "x", Text: "ok"}),
		user(text("stop, do something else")), assistant(text("yes")), user(text("thanks")),
	}
	for name, c := range map[string]struct{ address, name, teach string }{
		"Mistral":   {"https://api.mistral.ai/v1", "some-name", ""},
		"by name":   {"http://127.0.0.1:8000/v1", "mistralai/Devstral-Small-2-24B", ""},
		"llama.cpp": {"http://127.0.0.1:8000/v1", "x", "Error: Jinja Exception: After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results."},
		"order":     {"http://127.0.0.1:8000/v1", "x", "Unexpected role 'user' after role 'tool'"},
	} {
		ms := written(t, c.address, c.name, c.teach, conv...)
		var roles []string
		for _, m := range ms {
			roles = append(roles, m.Role)
		}
		if want := []string{"user", "assistant", "tool", "tool", "tool", "assistant", "user", "assistant", "user"}; !slices.Equal(roles, want) {
			t.Errorf("%s: %v", name, roles)
		}
	}
	for name, ms := range map[string][]sentMessage{
		"known":  written(t, "https://api.mistral.ai/v1", "some-name", "", conv...),
		"taught": written(t, "http://127.0.0.1:8000/v1", "x", "Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9.", conv...),
	} {
		seen := map[string]bool{}
		for i, k := range ms[1].Calls {
			if len(k.ID) != 9 || strings.ContainsAny(k.ID, "_-.") || seen[k.ID] || ms[2+i].ID != k.ID {
				t.Errorf("%s: the call has the id %q, its result %q", name, k.ID, ms[2+i].ID)
			}
			seen[k.ID] = true
		}
		if ms[1].Calls[1].ID != "D681PevKs" {
			t.Errorf("%s: its own id was changed to %s", name, ms[1].Calls[1].ID)
		}
	}
}

// reasoning_details come in pieces, the signature with the last; they go back whole and
// otherwise as they were, to the model that gave them alone.
func TestDetailsOfThoughts(t *testing.T) {
	type c struct {
		deltas []string
		want   []model.Part
	}
	x := calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}`)
	for name, c := range map[string]c{
		"Claude by OpenRouter": {[]string{
			`{"reasoning":"Let","reasoning_details":[{"type":"reasoning.text","text":"Let","format":"anthropic-claude-v1","index":0}]}`,
			`{"reasoning":" me.","reasoning_details":[{"type":"reasoning.text","text":" me.","format":"anthropic-claude-v1","index":0}]}`,
			`{"reasoning_details":[{"type":"reasoning.text","signature":"Et8B","format":"anthropic-claude-v1","index":0}]}`, x},
			[]model.Part{detailed("reasoning", "Let me.", `{"format":"anthropic-claude-v1","index":0,"signature":"Et8B","text":"Let me.","type":"reasoning.text"}`), call("a1", "x", "{}")}},
		"two blocks, one redacted": {[]string{
			`{"reasoning":"A","reasoning_details":[{"type":"reasoning.text","text":"A","signature":null,"index":0}]}`,
			`{"reasoning_details":[{"type":"reasoning.text","text":"","signature":"sA","index":0}]}`,
			`{"reasoning_details":[{"type":"reasoning.encrypted","data":"zz","index":1}]}`,
			`{"reasoning":"B","reasoning_details":[{"type":"reasoning.text","text":"B","signature":"sB","index":2}]}`, x},
			[]model.Part{detailed("reasoning", "AB", `{"index":0,"signature":"sA","text":"A","type":"reasoning.text"}`, `{"data":"zz","index":1,"type":"reasoning.encrypted"}`, `{"index":2,"signature":"sB","text":"B","type":"reasoning.text"}`), call("a1", "x", "{}")}},
		"OpenAI by OpenRouter: summary and sealed under one number": {[]string{
			`{"reasoning":"**Pl","reasoning_details":[{"type":"reasoning.summary","summary":"**Pl","format":"openai-responses-v1","index":0}]}`,
			`{"reasoning":"an**","reasoning_details":[{"type":"reasoning.summary","summary":"an**","format":"openai-responses-v1","index":0}]}`,
			`{"reasoning_details":[{"type":"reasoning.encrypted","data":"gAAA","id":"rs_1","format":"openai-responses-v1","index":0}]}`, x},
			[]model.Part{detailed("reasoning", "**Plan**", `{"format":"openai-responses-v1","index":0,"summary":"**Plan**","type":"reasoning.summary"}`, `{"data":"gAAA","format":"openai-responses-v1","id":"rs_1","index":0,"type":"reasoning.encrypted"}`), call("a1", "x", "{}")}},
		"Gemini by OpenRouter: sealed alone, one for each call": {[]string{
			`{"tool_calls":[{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}],"reasoning_details":[{"type":"reasoning.encrypted","data":"s1","id":"a1","format":"google-gemini-v1","index":0}]}`,
			`{"tool_calls":[{"index":1,"id":"a2","function":{"name":"y","arguments":"{}"}}],"reasoning_details":[{"type":"reasoning.encrypted","data":"s2","id":"a2","format":"google-gemini-v1","index":0}]}`},
			[]model.Part{detailed("", "", `{"data":"s1","format":"google-gemini-v1","id":"a1","index":0,"type":"reasoning.encrypted"}`, `{"data":"s2","format":"google-gemini-v1","id":"a2","index":0,"type":"reasoning.encrypted"}`), call("a1", "x", "{}"), call("a2", "y", "{}")}},
		"details alone": {[]string{`{"reasoning_details":[{"type":"reasoning.text","text":"On","index":0}]}`, `{"reasoning_details":[{"type":"reasoning.text","text":"ly","index":0}]}`, x},
			[]model.Part{detailed("", "Only", `{"index":0,"text":"Only","type":"reasoning.text"}`), call("a1", "x", "{}")}},
		"no number: each is one": {[]string{`{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a"},{"type":"reasoning.text","text":"b"}]}`, x},
			[]model.Part{detailed("reasoning", "a", `{"text":"a","type":"reasoning.text"}`, `{"text":"b","type":"reasoning.text"}`), call("a1", "x", "{}")}},
		"nonsense": {[]string{`{"reasoning":"a","reasoning_details":"x"}`, `{"reasoning":"b","reasoning_details":[null,7,[],{},"y"]}`, x},
			[]model.Part{thought("reasoning", "ab"), call("a1", "x", "{}")}},
	} {
		t.Run(name, func(t *testing.T) {
			a, ds, err := askFixture(t, model.FormatChat, chunks("tool_calls", c.deltas...))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a.Parts, c.want) {
				t.Fatalf("\n got %s\nwant %s", asJSON(t, a.Parts), asJSON(t, c.want))
			}
			checkDeltas(t, a, ds)
			var back thoughtBack
			_ = json.Unmarshal(c.want[0].Opaque, &back)
			conv := []model.Message{user(text("go")), assistant(a.Parts...), user(text("on"))}
			ms := written(t, "https://openrouter.ai/api/v1", "some-model", "", conv...)
			if !reflect.DeepEqual(ms[1].Details, back.Details) || len(back.Details) > 0 && ms[1].Reasoning != nil {
				t.Errorf("went back as %s, %v", ms[1].Details, ms[1].Reasoning)
			}
			if m := written(t, "https://openrouter.ai/api/v1", "other-model", "", conv...)[1]; m.Details != nil || m.Reasoning != nil {
				t.Errorf("another model got %s", m.Details)
			}
		})
	}
	// Before mere text too, for what comes next may follow from them.
	a, _, err := askFixture(t, model.FormatChat, chunks("stop", `{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","signature":"s","index":0}]}`, `{"content":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	if m := written(t, "https://openrouter.ai/api/v1", "some-model", "", user(text("go")), assistant(a.Parts...), user(text("on")))[1]; len(m.Details) != 1 {
		t.Errorf("%+v", m)
	}
	many := make([]string, 2*maxDetails)
	for i := range many {
		many[i] = fmt.Sprintf(`{"reasoning_details":[{"type":"reasoning.text","text":"a","index":%d}]}`, i)
	}
	_, _, err = askFixture(t, model.FormatChat, chunks("stop", many...))
	if e := modelError(t, err); e.Kind != model.ErrProtocol {
		t.Error(err)
	}
}

// A server that refuses what it does not know is asked again in the way it wants, and
// from then on at once.
func TestHabitsAreLearned(t *testing.T) {
	openAI := func(message, param string) string {
		return fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":%q,"code":"unsupported_value"}}`, message, param)
	}
	has := func(keys ...string) func(map[string]any) bool {
		return func(body map[string]any) bool {
			var v any = body
			for _, k := range keys {
				o, ok := v.(map[string]any)
				if !ok {
					return false
				}
				if v, ok = o[k]; !ok {
					return false
				}
			}
			return true
		}
	}
	for name, c := range map[string]struct {
		format model.Format
		effort string
		bad    func(body map[string]any) bool // it holds what this server does not take
		status int
		body   string
	}{
		"max_tokens": {model.FormatChat, "", has("max_tokens"), 400,
			openAI("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "max_tokens")},
		"usage": {model.FormatChat, "", has("stream_options"), 422,
			`{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]},"type":"invalid_request_error","param":null,"code":null}`},
		"usage, FastAPI": {model.FormatChat, "", has("stream_options"), 422,
			`{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`},
		"stream": {model.FormatChat, "", func(b map[string]any) bool { return b["stream"] == true }, 400,
			openAI("Your organization must be verified to stream this model. Please go to the settings and click on Verify Organization.", "stream")},
		"stream of Responses": {model.FormatResponses, "", func(b map[string]any) bool { return b["stream"] == true }, 400,
			openAI("Your organization must be verified to stream this model. Please go to the settings and click on Verify Organization.", "stream")},
		"summary": {model.FormatResponses, "low", has("reasoning", "summary"), 400,
			openAI("Your organization must be verified to generate reasoning summaries. Please go to the settings.", "reasoning.summary")},
		"schemas": {model.FormatChat, "", func(b map[string]any) bool { return strings.Contains(fmt.Sprint(b["tools"]), "additionalProperties") }, 400,
			`[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters': Cannot find field.","status":"INVALID_ARGUMENT"}}]`},
		"sealed": {model.FormatResponses, "", has("include"), 400, openAI("Encrypted content is not supported with this model.", "include")},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			refused, streams := 0, 0
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {})
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body map[string]any
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if c.bad(body) {
					refused++
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.body))
					return
				}
				if body["stream"] == true {
					streams++
					stream(fixture(t, map[model.Format]string{model.FormatChat: "chat/text.sse", model.FormatResponses: "responses/text.sse"}[c.format]))(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				if c.format == model.FormatChat {
					_, _ = w.Write([]byte(`{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Grüße, Welt 🌍"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`))
				} else {
					_, _ = w.Write([]byte(`{"id":"r","object":"response","status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Grüße, Welt 🌍"}]}],"usage":{"input_tokens":1,"output_tokens":2}}`))
				}
			})
			cfg := config(c.format, s.URL+"/v1")
			cfg.Effort = c.effort
			cl := New(cfg, testKey, wire.NewClient(wire.Options{Key: testKey}))
			var wg sync.WaitGroup
			for range 4 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					r := hello()
					r.Tools = tools
					a, err := cl.Answer(t.Context(), r, nil)
					if err != nil || len(a.Parts) == 0 || !strings.HasPrefix(a.Parts[len(a.Parts)-1].Text, "Grüße") {
						t.Errorf("%+v, %v", a, err)
					}
				}()
			}
			wg.Wait()
			if refused == 0 || refused > 4 {
				t.Errorf("refused %d times", refused)
			}
			was := refused
			r := hello()
			r.Tools = tools
			if _, err := cl.Answer(t.Context(), r, nil); err != nil || refused != was {
				t.Errorf("%v, refused %d times more", err, refused-was)
			}
			if (streams == 0) != strings.HasPrefix(name, "stream") {
				t.Errorf("%d streams", streams)
			}
		})
	}
}

// A server that refuses either way is not asked for ever, and says itself what is wrong.
func TestWhatCannotBeLearnedIsTold(t *testing.T) {
	for text, most := range map[string]int{
		"Unsupported parameter: 'max_tokens', nor is max_completion_tokens supported": 2,
		"Unrecognized request argument supplied: max_completion_tokens":               2,
		"Unexpected role 'user' after role 'tool'":                                    2,
		"'max_tokens' or 'max_completion_tokens' is too large: 8192":                  1,
		"Unsupported parameter: 'temperature' is not supported with this model.":      1,
		"thinking is enabled but reasoning_content is missing at index 2":             2,
		"Invalid `signature` in `thinking` block":                                     2,
	} {
		n := 0
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			n++
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, text)
		})
		_, _, err := ask(t, config(model.FormatChat, s.URL), hello())
		if e := modelError(t, err); e.Kind != model.ErrInvalid || e.Message != text || n != most {
			t.Errorf("%s: asked %d times, %v", text, n, err)
		}
	}
	// Words of a server that did answer, or that is only busy, teach nothing.
	for _, status := range []int{200, 401, 429, 503} {
		n := 0
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			n++
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":{"message":"use max_completion_tokens instead"}}`)
		})
		if _, _, err := ask(t, config(model.FormatChat, s.URL), hello()); err == nil || n != 1 {
			t.Errorf("%d: asked %d times, %v", status, n, err)
		}
	}
}

// A thought that its server does not take back, of another account perhaps, is left out.
func TestThoughtsThatAreNotTakenBack(t *testing.T) {
	for _, refusal := range []string{
		"The encrypted content for item rs_1 could not be verified.",
		"Item 'rs_1' of type 'reasoning' was provided without its required following item.",
	} {
		var bodies []string
		s := serve(t, func(http.ResponseWriter, *http.Request) {})
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := readAll(t, r)
			bodies = append(bodies, body)
			if strings.Contains(body, `"reasoning"`) {
				w.WriteHeader(400)
				fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","code":"invalid_encrypted_content"}}`, refusal)
				return
			}
			stream(fixture(t, "responses/text.sse"))(w, r)
		})
		sealed := model.Part{Kind: model.KindThought, Opaque: json.RawMessage(`{"id":"rs_1","encrypted_content":"gA"}`), From: "openai-responses:some-model"}
		r := model.Request{Messages: []model.Message{user(text("go")), assistant(sealed, call("a", "x", "{}")), results(model.Result{ID: "a", Tool: "x", Text: "ok"})}}
		if _, _, err := ask(t, config(model.FormatResponses, s.URL), r); err != nil {
			t.Errorf("%s: %v", refusal, err)
		}
		if len(bodies) != 2 || !strings.Contains(bodies[0], "gA") || strings.Contains(bodies[1], "gA") {
			t.Errorf("%q", bodies)
		}
	}
	for _, teach := range []string{
		`[{"type":"extra_forbidden","loc":["body","messages",31,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}]`,
		"messages.1.content.0: Invalid `signature` in `thinking` block", "Corrupted thought signature."} {
		ms := written(t, "https://example.com/v1", "some-model", teach, user(text("go")), assistant(thought("reasoning_content", "hm"), call("a", "x", "{}")), results(model.Result{ID: "a", Tool: "x", Text: "ok"}),
			assistant(detailed("reasoning", "hm", `{"signature":"s"}`), call("b", "x", "{}")), results(model.Result{ID: "b", Tool: "x", Text: "ok"}))
		if ms[1].Thought != nil || ms[3].Details != nil || ms[3].Reasoning != nil {
			t.Errorf("%s: %+v", teach, ms)
		}
	}
}

func readAll(t *testing.T, r *http.Request) string {
	t.Helper()
	var b strings.Builder
	if _, err := io.Copy(&b, r.Body); err != nil {
		t.Error(err)
	}
	return b.String()
}

// OpenAI's newer models take tools in Responses alone: a model that is set up for Chat
// Completions is asked there, and its sealed thoughts go back to it. A gateway's words
// are left to the person.
func TestToolsWhereOnlyResponsesTakesThem(t *testing.T) {
	const refusal = "Function tools with reasoning_effort are not supported for gpt-x in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'."
	var paths, bodies []string
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths, bodies = append(paths, r.URL.Path), append(bodies, readAll(t, r))
		if strings.HasSuffix(r.URL.Path, "/chat/completions") {
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","param":"reasoning_effort","code":null}}`, refusal)
			return
		}
		stream(fixture(t, "responses/calls.sse"))(w, r)
	})
	var seen string
	cl := New(config(model.FormatChat, ""), testKey, &http.Client{Transport: rerouted{s.URL, &seen}})
	r := hello()
	r.Tools = tools
	a, err := cl.Answer(t.Context(), r, nil)
	if err != nil || len(a.Calls()) == 0 {
		t.Fatalf("%s, %v", asJSON(t, a), err)
	}
	r.Messages = append(r.Messages, assistant(a.Parts...))
	var rs []model.Result
	for _, k := range a.Calls() {
		rs = append(rs, model.Result{ID: k.ID, Tool: k.Tool, Text: "ok"})
	}
	r.Messages = append(r.Messages, results(rs...))
	if _, err := cl.Answer(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/v1/chat/completions", "/v1/responses", "/v1/responses"}; !slices.Equal(paths, want) {
		t.Errorf("asked at %v", paths)
	}
	if !strings.Contains(bodies[2], "encrypted_content\":\"") || !strings.Contains(bodies[2], "function_call_output") {
		t.Errorf("the thought did not go back: %s", bodies[2])
	}
	paths = nil
	_, _, err = ask(t, config(model.FormatChat, s.URL+"/v1"), r)
	if e := modelError(t, err); len(paths) != 1 || e.Message != refusal {
		t.Errorf("%v: %v", paths, err)
	}
}
