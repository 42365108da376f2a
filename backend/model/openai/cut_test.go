package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

func newReader(f model.Format, each func(model.Delta)) reader {
	if each == nil {
		each = func(model.Delta) {}
	}
	if f == model.FormatChat {
		return newChat(chatFrom, each)
	}
	return newResponses(responsesFrom, each)
}

// cutAt answers with the first n bytes of a body and breaks the connection.
func cutAt(body []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		if n > 0 {
			fmt.Fprintf(conn, "%x\r\n%s\r\n", n, body[:n])
		}
	}
}

// A connection that breaks at any byte gives no answer but after the stream's last word.
func TestCutConnectionAtEveryByte(t *testing.T) {
	for _, c := range []struct {
		format model.Format
		name   string
		last   string // the first bytes with which the answer is whole
	}{
		{model.FormatChat, "chat/parallel.sse", "data: [DONE]\n"},
		{model.FormatChat, "chat/text.sse", "data: [DONE]\n"},
		{model.FormatResponses, "responses/calls.sse", "\"total_tokens\":100}}}\n\n"},
	} {
		body := fixture(t, c.name)
		i := bytes.Index(body, []byte(c.last))
		if i < 0 {
			t.Fatalf("%s does not hold %q", c.name, c.last)
		}
		whole := i + len(c.last)
		at := 0
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { cutAt(body, at)(w, r) })
		hc := wire.NewClient(wire.Options{})
		defer hc.CloseIdleConnections()
		cl := New(config(c.format, s.URL), "", hc)
		for at = 0; at <= len(body); at++ {
			a, err := cl.Answer(t.Context(), hello(), nil)
			if at >= whole {
				if err != nil {
					t.Errorf("%s, cut at %d of %d, after its last word: %v", c.name, at, len(body), err)
				}
				continue
			}
			var e *model.Error
			if !errors.As(err, &e) || e.Kind != model.ErrNetwork || !reflect.DeepEqual(a, model.Answer{}) {
				t.Fatalf("%s, cut at %d of %d: answer %s, error %v; want none and a network error", c.name, at, len(body), asJSON(t, a), err)
			}
		}
	}
}

// A stream that ends in order before its last word gives an answer only where the reason
// to stop was told and no event is half.
func TestOrderlyEndAtEveryByte(t *testing.T) {
	for _, c := range []struct {
		format model.Format
		name   string
		reason string // of the event that says why it stopped
	}{
		{model.FormatChat, "chat/text.sse", `"finish_reason":"stop"`},
		{model.FormatChat, "chat/reasoning_content.sse", `"finish_reason":"tool_calls"`},
		{model.FormatChat, "chat/reasoning.sse", `"finish_reason":"stop"`},
		{model.FormatChat, "chat/parallel.sse", `"finish_reason":"tool_calls"`},
		{model.FormatChat, "chat/length.sse", `"finish_reason":"length"`},
		{model.FormatChat, "chat/usage_every.sse", `"finish_reason":"stop"`},
		{model.FormatResponses, "responses/text.sse", `"type":"response.completed"`},
		{model.FormatResponses, "responses/calls.sse", `"type":"response.completed"`},
		{model.FormatResponses, "responses/length.sse", `"type":"response.incomplete"`},
	} {
		for _, eol := range []string{"\n", "\r\n"} {
			body := strings.ReplaceAll(string(fixture(t, c.name)), "\n", eol)
			told := strings.Index(body, c.reason)
			whole := 0
			for n := 0; n <= len(body); n++ {
				head := body[:n]
				between := strings.HasSuffix(head, eol+eol) || eol == "\r\n" && strings.HasSuffix(head, "\r\n\r")
				want := n > told && (between || strings.Contains(head, "data: [DONE]"))
				a, err := decode(t.Context(), strings.NewReader(head), newReader(c.format, nil))
				if want {
					whole++
				}
				if want != (err == nil) {
					t.Fatalf("%s, ends at %d of %d: answer %s, error %v", c.name, n, len(body), asJSON(t, a), err)
				}
				if err != nil {
					if e := modelError(t, err); e.Kind != model.ErrNetwork {
						t.Fatalf("%s, ends at %d of %d: %v, want a network error", c.name, n, len(body), err)
					}
				}
			}
			if whole == 0 {
				t.Errorf("%s gave no answer at all", c.name)
			}
		}
	}
}

// An answer that is one JSON value is not taken for whole when it breaks off.
func TestOrderlyEndOfJSONAtEveryByte(t *testing.T) {
	for f, body := range map[model.Format]string{
		model.FormatChat:      `{"id":"w","choices":[{"index":0,"message":{"content":"hi","tool_calls":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}`,
		model.FormatResponses: `{"id":"w","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`,
	} {
		for n := range len(body) {
			_, err := decode(t.Context(), strings.NewReader(body[:n]), newReader(f, nil))
			if err == nil || modelError(t, err).Kind != model.ErrNetwork {
				t.Fatalf("%s, ends at %d: %v, want a network error", f, n, err)
			}
		}
	}
}

// However the bytes come in, the answer is the same.
func TestPiecesOfAnySize(t *testing.T) {
	for f, name := range map[model.Format]string{model.FormatChat: "chat/parallel.sse", model.FormatResponses: "responses/calls.sse"} {
		body := bytes.ReplaceAll(fixture(t, name), []byte("\n"), []byte("\r\n"))
		want, err := decode(t.Context(), bytes.NewReader(body), newReader(f, nil))
		if err != nil {
			t.Fatal(err)
		}
		for kind, r := range map[string]io.Reader{"one byte": iotest.OneByteReader(bytes.NewReader(body)), "half": iotest.HalfReader(bytes.NewReader(body)), "data with the end": iotest.DataErrReader(bytes.NewReader(body))} {
			got, err := decode(t.Context(), r, newReader(f, nil))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: error %v, answer %s", name, kind, err, asJSON(t, got))
			}
		}
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind model.ErrorKind
	}{
		"nothing":              {"", model.ErrNetwork},
		"white space":          {" \n\n ", model.ErrNetwork},
		"comments alone":       {": hello\n\n: hello\n\n", model.ErrNetwork},
		"the last word alone":  {"data: [DONE]\n\n", model.ErrNetwork},
		"a page":               {"<!DOCTYPE html>\n<html><body>Bad gateway</body></html>\n", model.ErrProtocol},
		"a page without lines": {"<html>Bad gateway</html>", model.ErrProtocol},
		"a text":               {"upstream connect error", model.ErrProtocol},
		"another JSON":         {`{"status":"ok"}`, model.ErrProtocol},
		"a list":               {`[1,2,3]`, model.ErrProtocol},
		"broken JSON":          {`{"choices":nonsense}`, model.ErrProtocol},
		"events of no JSON":    {"data: hello\n\n", model.ErrProtocol},
		"half a value":         {"data: {\"choices\":[\n\n", model.ErrProtocol},
		"a NUL within JSON":    {"data: {\"choices\":[{\"delta\":{\"content\":\"\x00\"}}]}\n\n", model.ErrProtocol},
		"an empty choice":      {"data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n", model.ErrNetwork},
	} {
		for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
			if name == "an empty choice" && f != model.FormatChat {
				continue
			}
			a, _, err := askFixture(t, f, []byte(c.body))
			if err == nil {
				t.Errorf("%s, %s: answer %s", f, name, asJSON(t, a))
				continue
			}
			if e := modelError(t, err); e.Kind != c.kind {
				t.Errorf("%s, %s: %v, want %s", f, name, err, c.kind)
			}
		}
	}
}

// Bytes that are no UTF-8 become text that is; a NUL that is written as JSON stays.
func TestHostileBytes(t *testing.T) {
	a, ds, err := askFixture(t, model.FormatChat, chunks("tool_calls", "{\"content\":\"a\xff\xfeb\\u0000c\\ud800\"}",
		calls("{\"index\":0,\"id\":\"i\xff\",\"function\":{\"name\":\"x\xff\",\"arguments\":\"{\xc3\"}}")))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Parts) != 2 || a.Parts[0].Text != "a\uFFFDb\x00c\uFFFD" || a.Parts[1].Call.Tool != "x\uFFFD" || a.Parts[1].Call.Args != "{\uFFFD" || a.Parts[1].Call.ID != "call_1" {
		t.Errorf("%s", asJSON(t, a))
	}
	for _, d := range ds {
		if strings.ToValidUTF8(d.Text+d.Tool, "") != d.Text+d.Tool {
			t.Errorf("told %q", d)
		}
	}
}

func TestAnswersHaveBounds(t *testing.T) {
	big := strings.Repeat("a", 1<<20)
	escaped := strings.Repeat("ä", 1<<19)
	for name, c := range map[string]struct {
		format model.Format
		body   []byte
		ok     bool
	}{
		"one huge delta":            {model.FormatChat, chunks("stop", `{"content":"`+strings.Repeat(big, 7)+`"}`), true},
		"one too huge delta":        {model.FormatChat, chunks("stop", `{"content":"`+strings.Repeat(big, 9)+`"}`), false},
		"megabytes of arguments":    {model.FormatChat, chunks("tool_calls", append([]string{calls(`{"index":0,"id":"a","function":{"name":"x","arguments":""}}`)}, repeat(7, calls(`{"index":0,"function":{"arguments":"`+big+`"}}`))...)...), true},
		"too many of them":          {model.FormatChat, chunks("tool_calls", append([]string{calls(`{"index":0,"id":"a","function":{"name":"x","arguments":""}}`)}, repeat(9, calls(`{"index":0,"function":{"arguments":"`+big+`"}}`))...)...), false},
		"thoughts":                  {model.FormatChat, chunks("stop", repeat(9, `{"reasoning":"`+escaped+`"}`)...), false},
		"names":                     {model.FormatChat, chunks("stop", repeat(9, calls(`{"index":0,"function":{"name":"`+big+`b"}}`), calls(`{"index":0,"function":{"name":"`+big+`a"}}`))...), false},
		"calls":                     {model.FormatChat, chunks("stop", manyCalls(maxCalls+1)...), false},
		"as many calls as may be":   {model.FormatChat, chunks("stop", manyCalls(maxCalls)...), true},
		"an event without end":      {model.FormatChat, []byte("data: {\"x\":\"" + strings.Repeat(big, 17) + "\"}\n\n"), false},
		"an event of many lines":    {model.FormatChat, []byte(strings.Repeat("data: "+big+"\n", 17)), false},
		"a comment without end":     {model.FormatChat, []byte(":" + strings.Repeat(big, 17)), false},
		"a body without end":        {model.FormatChat, []byte("{\"x\":\"" + strings.Repeat(big, 17)), false},
		"deltas of Responses":       {model.FormatResponses, []byte(strings.Repeat("data: {\"type\":\"response.output_text.delta\",\"delta\":\""+big+"\"}\n\n", 9)), false},
		"items of Responses":        {model.FormatResponses, []byte(strings.Repeat("data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\""+big+"\"}]}}\n\n", 17)), false},
		"a huge answer":             {model.FormatResponses, completed(`{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"` + strings.Repeat(big, 7) + `"}]}]}`), true},
		"a too huge answer":         {model.FormatResponses, completed(`{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"` + strings.Repeat(big, 9) + `"}]}]}`), false},
		"calls of Responses":        {model.FormatResponses, completed(`{"status":"completed","output":[` + strings.TrimSuffix(strings.Repeat(`{"type":"function_call","call_id":"a","name":"x","arguments":""},`, maxCalls+1), ",") + `]}`), false},
		"items of nothing, endless": {model.FormatResponses, []byte(strings.Repeat("data: {\"type\":\"response.output_item.done\",\"item\":{}}\n\n", 2*maxCalls+1)), false},
	} {
		a, err := decode(context.Background(), bytes.NewReader(c.body), newReader(c.format, nil))
		if c.ok {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.ErrProtocol || len(a.Parts) > 0 {
			t.Errorf("%s: %d parts, error %v; want a protocol error", name, len(a.Parts), err)
		}
	}
}

func repeat(n int, s ...string) (out []string) {
	for range n {
		out = append(out, s...)
	}
	return out
}

func manyCalls(n int) (out []string) {
	for i := range n {
		out = append(out, calls(fmt.Sprintf(`{"index":%d,"id":"a%d","function":{"name":"x","arguments":"{}"}}`, i, i)))
	}
	return out
}
