package openai

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

var update = flag.Bool("update", false, "write the requests that are sent as the ones that are expected")

// golden compares a request's body with testdata/requests, both as canonical JSON.
func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: the body is no JSON: %v", name, err)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "requests", name+".json")
	if *update {
		if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), want) {
		t.Errorf("%s: sent\n%s\nwant\n%s", name, buf.Bytes(), want)
	}
}

// sent returns the body of the request that a conversation becomes. own: the address
// counts as the provider's.
func sent(t *testing.T, cfg model.Config, own bool, r model.Request) []byte {
	t.Helper()
	name := map[model.Format]string{model.FormatChat: "chat/text.sse", model.FormatResponses: "responses/text.sse"}[cfg.Format]
	s := serve(t, stream(fixture(t, name)))
	var hc *http.Client
	if cfg.BaseURL = s.URL + "/v1"; own {
		var seen string
		cfg.BaseURL, hc = "", &http.Client{Transport: rerouted{s.URL, &seen}}
	} else {
		hc = &http.Client{}
	}
	if _, err := New(cfg, testKey, hc).Answer(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	return s.asked(t).body
}

// pixel is a PNG of one.
var pixel, _ = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

func pixels(_ context.Context, i model.Image) ([]byte, error) {
	switch i.Sha256 {
	case "gone":
		return nil, &domain.Error{Code: domain.CodeNotFound, What: "no artefact gone"}
	case "missing":
		return nil, fmt.Errorf("open blob: %w", fs.ErrNotExist)
	case "grown":
		return make([]byte, maxPicture+1), nil
	}
	return pixel, nil
}

func png(sha string) model.Image {
	return model.Image{Sha256: sha, Mime: "image/png", Size: int64(len(pixel))}
}

func user(ps ...model.Part) model.Message { return model.Message{Role: model.RoleUser, Parts: ps} }
func assistant(ps ...model.Part) model.Message {
	return model.Message{Role: model.RoleAssistant, Parts: ps}
}
func results(rs ...model.Result) model.Message {
	m := model.Message{Role: model.RoleTool}
	for i := range rs {
		m.Parts = append(m.Parts, model.Part{Kind: model.KindResult, Result: &rs[i]})
	}
	return m
}
func image(i model.Image) model.Part { return model.Part{Kind: model.KindImage, Image: &i} }

var tools = []model.Tool{
	{Name: "exec", Description: "Runs a command.", Schema: json.RawMessage(`{"type":"object","properties":{"argv":{"type":"array","items":{"type":"string"},"minItems":1},"cwd":{"type":"string","description":"<where> & how"}},"required":["argv"],"additionalProperties":false}`)},
	{Name: "status", Schema: json.RawMessage(`{"type":"object"}`)},
	{Name: "bare"},
}

// A conversation with all that there is.
func conversation(from string) []model.Message {
	mine := func(p model.Part, opaque string) model.Part {
		p.Opaque, p.From = json.RawMessage(opaque), from
		return p
	}
	thought := func(text, opaque, from string) model.Part {
		return model.Part{Kind: model.KindThought, Text: text, Opaque: json.RawMessage(opaque), From: from}
	}
	return []model.Message{
		user(text("Look at this."), image(png("aa")), text("What is it?")),
		user(text("And be quick.")),
		assistant(
			thought("hm", `{"field":"reasoning_content"}`, "openai-chat:some-model"),
			thought("sealed", `{"id":"rs_1","summary":["sealed"],"encrypted_content":"gA"}`, "openai-responses:some-model"),
			thought("another's", `{"id":"rs_9","encrypted_content":"zz","field":"reasoning_content"}`, "openai-responses:other-model"),
			mine(text("I look."), `{"phase":"commentary"}`),
			call("call_A", "exec", `{"argv":["ls"]}`),
			mine(call("call_A_2", "browser_snapshot", `{"a":`), `{"id":"call_A"}`),
			call("an id from elsewhere that is far too long for any of OpenAI's", "no such tool!", ""),
		),
		results(
			model.Result{ID: "call_A", Tool: "exec", Text: "a\nb"},
			model.Result{ID: "call_A_2", Tool: "browser_snapshot", Text: "two pictures", Images: []model.Image{png("bb"), png("cc")}},
			model.Result{ID: "an id from elsewhere that is far too long for any of OpenAI's", Tool: "no such tool!", Text: "there is no such tool", Failed: true, Images: []model.Image{png("dd")}},
		),
		user(text("Go on.")),
		assistant(thought("only this", `{"id":"rs_2","encrypted_content":"gB"}`, "openai-responses:some-model")),
		user(text("Well?")),
		assistant(text("Done."), thought("after", `{"id":"rs_3","encrypted_content":"gC"}`, "openai-responses:some-model")),
		user(text("Thanks.")),
	}
}

func TestRequests(t *testing.T) {
	for _, f := range []struct {
		name string
		f    model.Format
	}{{"chat", model.FormatChat}, {"responses", model.FormatResponses}} {
		cfg := config(f.f, "")
		from := string(f.f) + ":some-model"
		golden(t, f.name+"_plain", sent(t, cfg, false, hello()))
		golden(t, f.name+"_plain_own", sent(t, cfg, true, hello()))

		r := hello()
		r.System, r.Tools = "You are careful.", tools
		golden(t, f.name+"_tools", sent(t, cfg, false, r))
		r.Quiet, r.MaxOutput = true, 300
		golden(t, f.name+"_quiet", sent(t, cfg, true, r))
		r = hello()
		r.Quiet = true // without tools there is nothing to forbid
		golden(t, f.name+"_plain", sent(t, cfg, false, r))

		c := cfg
		c.Effort = "low"
		golden(t, f.name+"_effort", sent(t, c, true, hello()))

		r = model.Request{Messages: conversation(from), Bytes: pixels}
		golden(t, f.name+"_conversation", sent(t, cfg, false, r))
		golden(t, f.name+"_conversation_own", sent(t, cfg, true, r))
		c = cfg
		c.TextOnly = true
		golden(t, f.name+"_text_only", sent(t, c, false, r))
	}
}

// What all requests have in common, whatever the goldens say.
func TestRequestsHoldTogether(t *testing.T) {
	for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
		for _, own := range []bool{true, false} {
			body := sent(t, config(f, ""), own, model.Request{Messages: conversation(string(f) + ":some-model"), Bytes: pixels, Tools: tools})
			if n := bytes.Count(body, []byte("data:image/png;base64,"+base64.StdEncoding.EncodeToString(pixel))); n != 4 {
				t.Errorf("%s: %d pictures, want 4", f, n)
			}
			for _, not := range []string{"another's", `"zz"`, "no such tool!"} {
				if bytes.Contains(body, []byte(not)) {
					t.Errorf("%s: the request holds %s: %s", f, not, body)
				}
			}
			// The order of a schema's own words is kept: models read it.
			if !bytes.Contains(body, []byte(`{"argv":{"type":"array","items":{"type":"string"},"minItems":1},"cwd":`)) {
				t.Errorf("%s: the schema was changed: %s", f, body)
			}
			if again := sent(t, config(f, ""), own, model.Request{Messages: conversation(string(f) + ":some-model"), Bytes: pixels, Tools: tools}); !bytes.Equal(body, again) {
				t.Errorf("%s: the same request is not the same bytes, which no cache would find:\n%s\n%s", f, body, again)
			}
		}
	}
}

func TestArgumentsAreAlwaysAnObject(t *testing.T) {
	for args, want := range map[string]string{
		"": "{}", "  ": "{}", "{}": "{}", `{"a": 1}`: `{"a": 1}`, "null": `{"_raw":"null"}`, "[1]": `{"_raw":"[1]"}`, `"x"`: `{"_raw":"\"x\""}`,
		`{"a":`: `{"_raw":"{\"a\":"}`, `{"a":1}{"b":2}`: `{"_raw":"{\"a\":1}{\"b\":2}"}`, "a\xffb": `{"_raw":"a\ufffdb"}`,
	} {
		got := sendArgs(args)
		if got != want {
			t.Errorf("sendArgs(%q) = %s, want %s", args, got, want)
		}
		var o map[string]any
		if json.Unmarshal([]byte(got), &o) != nil {
			t.Errorf("sendArgs(%q) = %s is no object", args, got)
		}
	}
	if got := sendName(strings.Repeat("ä", 100)); got != strings.Repeat("_", 64) {
		t.Error(got)
	}
	if got := sendName(""); got != "unknown" {
		t.Error(got)
	}
}

func TestPicturesThatCannotBeShown(t *testing.T) {
	big := png("ee")
	big.Size = maxPicture + 1
	for _, c := range []struct {
		i    model.Image
		want string
	}{
		{png("gone"), "[picture, sha256 gone, not shown: it was deleted]"},
		{png("missing"), "[picture, sha256 missing, not shown: it was deleted]"},
		{png("grown"), "[picture, sha256 grown, not shown: it is too large]"},
		{big, "[picture, sha256 ee, not shown: it is too large]"},
		{model.Image{Sha256: "ff", Mime: "image/svg+xml"}, "[picture, sha256 ff, not shown: models take PNG, JPEG, GIF and WebP]"},
		{model.Image{Sha256: "ff", Mime: "image/png;base64,AAAA\"}"}, "[picture, sha256 ff, not shown: models take PNG, JPEG, GIF and WebP]"},
	} {
		for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
			body := sent(t, config(f, ""), true, model.Request{Messages: []model.Message{user(image(c.i))}, Bytes: pixels})
			if !bytes.Contains(body, []byte(c.want)) || bytes.Contains(body, []byte("data:image")) {
				t.Errorf("%s: %s, want %s", f, body, c.want)
			}
		}
	}
	if body := sent(t, config(model.FormatChat, ""), true, model.Request{Messages: []model.Message{user(image(png("aa")))}}); !bytes.Contains(body, []byte("it cannot be read")) {
		t.Errorf("without Bytes: %s", body)
	}

	// One that should be there and cannot be read is an error, and nothing is sent.
	s := serve(t, stream(fixture(t, "chat/text.sse")))
	broken := func(context.Context, model.Image) ([]byte, error) { return nil, errors.New("disk on fire") }
	_, _, err := ask(t, config(model.FormatChat, s.URL), model.Request{Messages: []model.Message{user(image(png("aa")))}, Bytes: broken})
	if e := modelError(t, err); e.Kind != model.ErrInvalid || !strings.Contains(e.Message, "disk on fire") || len(s.got) > 0 {
		t.Errorf("%+v, asked %d times", e, len(s.got))
	}
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	slow := func(context.Context, model.Image) ([]byte, error) { cancel(why); return nil, ctx.Err() }
	_, err = New(config(model.FormatChat, s.URL), "", http.DefaultClient).Answer(ctx, model.Request{Messages: []model.Message{user(image(png("aa")))}, Bytes: slow}, nil)
	if !errors.Is(err, why) {
		t.Errorf("cancelled while reading a picture: %v", err)
	}
}

// What one answer gave goes back into the next request as it was.
func TestAnswersGoBack(t *testing.T) {
	a, _, err := askFixture(t, model.FormatChat, chunks("tool_calls", `{"reasoning":"hm"}`,
		calls(`{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}},{"index":1,"id":"a1","function":{"name":"y","arguments":"{}"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	next := func(a model.Answer) []model.Message {
		var rs []model.Result
		for _, c := range a.Calls() {
			rs = append(rs, model.Result{ID: c.ID, Tool: c.Tool, Text: "result of " + c.Tool})
		}
		return []model.Message{user(text("go")), assistant(a.Parts...), results(rs...)}
	}
	golden(t, "chat_back", sent(t, config(model.FormatChat, ""), false, model.Request{Messages: next(a)}))
	other := config(model.FormatChat, "")
	other.Model = "other-model"
	golden(t, "chat_back_to_another", sent(t, other, false, model.Request{Messages: next(a)}))

	a, _, err = askFixture(t, model.FormatResponses, fixture(t, "responses/calls.sse"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "responses_back", sent(t, config(model.FormatResponses, ""), false, model.Request{Messages: next(a)}))
	golden(t, "responses_back_to_chat", sent(t, config(model.FormatChat, ""), false, model.Request{Messages: next(a)}))
}

// A thought without its sealed text would be refused by a server that kept nothing.
func TestOnlySealedThoughtsGoBack(t *testing.T) {
	for _, opaque := range []string{"", "null", `"x"`, `{}`, `{"id":"rs_1","summary":["a"]}`, `{"id":"rs_1","encrypted_content":""}`, `{"id":7}`} {
		if it := reasoning(json.RawMessage(opaque)); it != nil {
			t.Errorf("%s: %+v", opaque, it)
		}
	}
	if it := reasoning(json.RawMessage(`{"id":"rs_1","encrypted_content":"x"}`)); it == nil || it.ID != "rs_1" || it.Summary == nil {
		t.Errorf("%+v", it)
	}
}
