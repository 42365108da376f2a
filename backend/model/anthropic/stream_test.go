package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"glasshouse/backend/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

const testModel = "claude-test-1"

// decode reads a stream as it comes from a server.
func decode(r io.Reader) (model.Answer, []model.Delta, error) {
	var deltas []model.Delta
	resp := &http.Response{StatusCode: 200, Request: &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: "model.test"}}, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(r)}
	s := ssestream.NewStream[anthropic.MessageStreamEventUnion](ssestream.NewDecoder(resp), nil)
	a, err := read(s, "anthropic:"+testModel, newNames(nil), func(d model.Delta) { deltas = append(deltas, d) })
	if err != nil {
		c := &client{key: "sk-0123456789"}
		err = c.failed(context.Background(), err, resp)
	}
	return a, deltas, err
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fixtures are all recorded streams that end well.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	all, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(all) < 10 {
		t.Fatalf("found %d streams, %v", len(all), err)
	}
	out := map[string][]byte{}
	for _, f := range all {
		if name := filepath.Base(f); name != "overloaded.sse" {
			out[name] = fixture(t, name)
		}
	}
	return out
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := fixture(t, name); !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAnswers(t *testing.T) {
	for name, stream := range fixtures(t) {
		t.Run(name, func(t *testing.T) {
			a, deltas, err := decode(bytes.NewReader(stream))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(name, "sse")+"answer.json", indented(t, struct {
				Answer model.Answer
				Deltas []model.Delta
			}{a, deltas}))

			// The deltas are what the answer's parts are made of.
			told := map[model.Kind]string{}
			for _, d := range deltas {
				told[d.Kind] += d.Text
			}
			said := map[model.Kind]string{}
			for _, p := range a.Parts {
				said[p.Kind] += p.Text
			}
			if a.Stop != model.StopRefused && (told[model.KindText] != said[model.KindText] || told[model.KindThought] != said[model.KindThought]) {
				t.Errorf("told %q, answered %q", told, said)
			}
		})
	}
}

func TestTheWayBytesComeChangesNothing(t *testing.T) {
	for name, stream := range fixtures(t) {
		want, _, err := decode(bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		for how, r := range map[string]io.Reader{
			"one byte at a time": iotest.OneByteReader(bytes.NewReader(stream)),
			"with CRLF":          bytes.NewReader(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n"))),
			"with more behind":   io.MultiReader(bytes.NewReader(stream), strings.NewReader("event: error\ndata: {}\n\n")),
			"and then a reset":   io.MultiReader(bytes.NewReader(stream), iotest.ErrReader(errors.New("reset"))),
			"without spaces":     bytes.NewReader(bytes.ReplaceAll(bytes.ReplaceAll(stream, []byte("event: "), []byte("event:")), []byte("data: "), []byte("data:"))),
		} {
			got, _, err := decode(r)
			if err != nil || string(indented(t, got)) != string(indented(t, want)) {
				t.Errorf("%s %s: %+v, %v", name, how, got, err)
			}
		}
	}
}

// A stream that is cut anywhere before its message_stop is no answer.
func TestCutAtEveryByte(t *testing.T) {
	for name, stream := range fixtures(t) {
		for _, end := range []struct {
			how string
			err error
		}{{"ended", io.EOF}, {"broken", io.ErrUnexpectedEOF}} {
			for n := range len(stream) {
				r := io.MultiReader(bytes.NewReader(stream[:n]), iotest.ErrReader(end.err))
				a, _, err := decode(r)
				if model.KindOf(err) != model.ErrNetwork {
					t.Fatalf("%s %s after %d of %d bytes: %+v, %v", name, end.how, n, len(stream), a, err)
				}
				if len(a.Parts) != 0 || a.Stop != "" {
					t.Fatalf("%s %s after %d bytes: an error and an answer: %+v", name, end.how, n, a)
				}
			}
		}
		if _, _, err := decode(bytes.NewReader(stream)); err != nil {
			t.Errorf("%s whole: %v", name, err)
		}
	}
}

const (
	begun  = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n"
	ending = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

func TestErrorsInMidStream(t *testing.T) {
	for _, c := range []struct {
		data string
		kind model.ErrorKind
		text string
	}{
		{`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.ErrBusy, "Overloaded"},
		{`{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, model.ErrRate, "slow down"},
		{`{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, model.ErrServer, "Internal"},
		{`{"type":"error","error":{"type":"timeout_error","message":"too slow"}}`, model.ErrTimeout, "too slow"},
		{`{"type":"error","error":{"type":"authentication_error","message":"gone: sk-0123456789"}}`, model.ErrAuth, "gone: [key]"},
		{`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, model.ErrTooLong, "210000"},
		{`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, model.ErrInvalid, "no"},
		{`{"type":"error","error":{"type":"an_error_of_tomorrow","message":"oh"}}`, model.ErrServer, "oh"},
		{`not even JSON`, model.ErrServer, "not even JSON"},
		{``, model.ErrServer, ""},
	} {
		for _, name := range []string{"error", "message"} {
			if name != "error" && !strings.HasPrefix(c.data, "{") {
				continue
			}
			_, _, err := decode(strings.NewReader(begun + event(name, c.data) + ending))
			var e *model.Error
			if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Message, c.text) || e.Status != 0 {
				t.Errorf("%s %s: %v", name, c.data, err)
			}
		}
	}
	if _, deltas, err := decode(bytes.NewReader(fixture(t, "overloaded.sse"))); model.KindOf(err) != model.ErrBusy || len(deltas) != 1 {
		t.Errorf("%v, %v", deltas, err)
	}
}

func TestHostileStreams(t *testing.T) {
	block := func(i any, content string) string {
		return event("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%v,"content_block":%s}`, i, content))
	}
	delta := func(i any, d string) string {
		return event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%v,"delta":%s}`, i, d))
	}
	const text = `{"type":"text","text":""}`
	mega := strings.Repeat("a", 1<<20)
	args := begun + block(0, `{"type":"tool_use","id":"t","name":"write","input":{}}`)
	thoughts := begun + block(0, `{"type":"thinking","thinking":"","signature":""}`)
	for name, c := range map[string]struct {
		stream string
		kind   model.ErrorKind
	}{
		"nothing":                   {"", model.ErrNetwork},
		"only line ends":            {strings.Repeat("\n", 10000), model.ErrNetwork},
		"an end without beginning":  {ending, model.ErrProtocol},
		"no JSON":                   {begun + event("content_block_start", "{"), model.ErrProtocol},
		"junk":                      {"\x00\xff\xfe\x89PNG\r\n\x1a\n" + strings.Repeat("\x00\xff", 5000), model.ErrNetwork},
		"a list for an event":       {begun + event("content_block_start", "[1,2,3]") + delta(0, `{"type":"text_delta","text":"x"}`) + ending, model.ErrProtocol},
		"a piece of nothing":        {begun + delta(0, `{"type":"text_delta","text":"x"}`) + ending, model.ErrProtocol},
		"a piece of an ended block": {begun + block(0, text) + event("content_block_stop", `{"type":"content_block_stop","index":0}`) + delta(0, `{"type":"text_delta","text":"x"}`) + ending, model.ErrProtocol},
		"too much of arguments":     {args + strings.Repeat(delta(0, `{"type":"input_json_delta","partial_json":"`+mega+`"}`), 9) + ending, model.ErrProtocol},
		"too much of a thought":     {thoughts + strings.Repeat(delta(0, `{"type":"thinking_delta","thinking":"`+mega+`"}`), 9) + ending, model.ErrProtocol},
		"too much of a signature":   {thoughts + strings.Repeat(delta(0, `{"type":"signature_delta","signature":"`+mega+`"}`), 9) + ending, model.ErrProtocol},
		"too much kept from us":     {begun + strings.Repeat(block(0, `{"type":"redacted_thinking","data":"`+mega+`"}`), 9) + ending, model.ErrProtocol},
		"too much of a name":        {begun + strings.Repeat(block(0, `{"type":"tool_use","id":"t","name":"`+mega+`","input":{}}`), 9) + ending, model.ErrProtocol},
		"too much at once":          {begun + block(0, `{"type":"text","text":"`+strings.Repeat(mega, 9)+`"}`) + ending, model.ErrProtocol},
		"too many blocks":           {begun + strings.Repeat(block(0, text), 5000) + ending, model.ErrProtocol},
		"a line without end":        {begun + "data: " + strings.Repeat(mega, 40), model.ErrProtocol},
		"too deep":                  {begun + block(0, strings.Repeat(`{"a":`, 20000)+"1"+strings.Repeat("}", 20000)) + ending, model.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, err := decode(strings.NewReader(c.stream))
			if model.KindOf(err) != c.kind {
				t.Errorf("got %v, want %s; %d parts", err, c.kind, len(a.Parts))
			}
		})
	}

	// What is odd and harms nobody is an answer all the same.
	for name, stream := range map[string]string{
		"far numbers":        begun + block(int64(1)<<62, text) + delta(int64(1)<<62, `{"type":"text_delta","text":"ok"}`) + ending,
		"a negative number":  begun + block(-1, text) + delta(-1, `{"type":"text_delta","text":"ok"}`) + ending,
		"the wrong delta":    begun + block(0, text) + delta(0, `{"type":"input_json_delta","partial_json":"{}"}`) + delta(0, `{"type":"text_delta","text":"ok"}`) + ending,
		"absurd usage":       begun + event("message_delta", `{"type":"message_delta","delta":{},"usage":{"output_tokens":9223372036854775807,"input_tokens":-1}}`) + block(0, `{"type":"text","text":"ok"}`) + ending,
		"eight megabytes":    begun + block(0, `{"type":"text","text":"ok"}`) + strings.Repeat(delta(0, `{"type":"text_delta","text":"`+mega+`"}`), 7) + ending,
		"an empty reason":    begun + block(0, `{"type":"text","text":"ok"}`) + event("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{}}`) + event("message_stop", `{"type":"message_stop"}`),
		"invalid UTF-8":      begun + block(0, text) + delta(0, "{\"type\":\"text_delta\",\"text\":\"ok \xff\xfe\"}") + ending,
		"a lone surrogate":   begun + block(0, text) + delta(0, `{"type":"text_delta","text":"ok \ud800"}`) + ending,
		"two blocks, one id": begun + block(0, `{"type":"text","text":"o"}`) + block(0, `{"type":"text","text":"k"}`) + ending,
	} {
		a, _, err := decode(strings.NewReader(stream))
		if err != nil || len(a.Parts) == 0 || !strings.HasPrefix(a.Parts[0].Text, "o") || a.Stop != model.StopEnd || a.Usage.Input != 1 || a.Usage.Output < 1 || a.Usage.Output > 2 {
			t.Errorf("%s: %d parts, stop %q, usage %+v, %v", name, len(a.Parts), a.Stop, a.Usage, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, stream := range fixtures(f) {
		f.Add(stream)
	}
	f.Add(fixture(f, "overloaded.sse"))
	f.Add([]byte(begun + ending))
	f.Fuzz(func(t *testing.T, stream []byte) {
		a, deltas, err := decode(bytes.NewReader(stream))
		if err != nil {
			if model.KindOf(err) == "" {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		if !bytes.Contains(stream, []byte("message_st")) { // it may be escaped behind that
			t.Errorf("an answer without an end: %+v", a)
		}
		if a.Stop == "" || a.Stop == model.StopCalls && len(a.Calls()) == 0 {
			t.Errorf("stop %q with %d calls", a.Stop, len(a.Calls()))
		}
		if u := a.Usage; u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.Reasoning < 0 || u.Context() < 0 {
			t.Errorf("usage %+v", u)
		}
		size := 0
		for _, p := range a.Parts {
			size += len(p.Text)
			if p.Kind == model.KindText && p.Text == "" || p.Kind == model.KindCall && p.Call == nil || (p.Opaque != nil) != (p.From != "") || p.Opaque != nil && !json.Valid(p.Opaque) {
				t.Errorf("part %+v", p)
			}
		}
		told := 0
		for _, d := range deltas {
			if d.Kind != model.KindCall {
				told += len(d.Text)
			}
		}
		if told != size && a.Stop != model.StopRefused {
			t.Errorf("told %d bytes, answered %d", told, size)
		}
	})
}
