package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"glasshouse/backend/model"
)

// face is one wire format.
type face interface {
	format() model.Format
	parse(h http.Header, body []byte) (*Asked, *refusal)
	key(h http.Header) string // as the client sent it
	whole(r *reply) []byte
	// stream returns the events of an answer, one a delta.
	stream(r *reply, chunk int) []frame
	// failure returns the status and body of an error.
	failure(f failure) (int, []byte)
	midError(f failure) []frame
}

// frame is one server-sent event.
type frame struct {
	event   string
	data    []byte
	comment string // in place of an event
}

func (f frame) bytes() []byte {
	if f.comment != "" {
		return []byte(": " + f.comment + "\n\n")
	}
	if f.event == "" {
		return []byte("data: " + string(f.data) + "\n\n")
	}
	return []byte("event: " + f.event + "\ndata: " + string(f.data) + "\n\n")
}

// failure is an error before it is put into a format's words.
type failure struct {
	kind    string
	message string // empty = what the format says of the kind
	param   string
	code    string
	key     string // what the client sent
	model   string
	tokens  int64
	limit   int64
	request string
}

// reply is an answer before it is put into a format.
type reply struct {
	id, served string
	think, say string
	calls      []outCall
	stop       model.Stop
	usage      model.Usage
	withUsage  bool // chat: stream_options.include_usage
	sealed     bool // responses: include reasoning.encrypted_content
	n          int
}

type outCall struct{ id, item, tool, args string }

// pieces cuts a text at character borders.
func pieces(s string, n int) (out []string) {
	for len(s) > 0 {
		m := min(n, len(s))
		for m < len(s) && !utf8.RuneStart(s[m]) {
			m++
		}
		out, s = append(out, s[:m]), s[m:]
	}
	return out
}

// js is JSON of what always can be.
func js(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("modeltest: %v", err))
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

type m = map[string]any

// openAIFailure is shared by both formats of OpenAI.
func openAIFailure(f failure) (status int, body m) {
	var typ, text string
	var code any
	switch f.kind {
	case "auth":
		status, typ, code, text = 401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: "+f.key+"."
	case "quota":
		status, typ, code, text = 429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."
	case "rate":
		status, typ, code, text = 429, "tokens", "rate_limit_exceeded", "Rate limit reached for "+f.model+" on tokens per min (TPM): Limit 30000."
	case "busy":
		status, typ, code, text = 503, "server_error", nil, "The server is overloaded or not ready yet."
	case "server":
		status, typ, code, text = 500, "server_error", nil, "The server had an error while processing your request."
	case "too_long":
		status, typ, code, text = 400, "invalid_request_error", "context_length_exceeded", fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", f.limit, f.tokens)
	case "not_found":
		status, typ, code, text = 404, "invalid_request_error", "model_not_found", "The model `"+f.model+"` does not exist or you do not have access to it."
	default:
		status, typ, text = 400, "invalid_request_error", "The request is not valid."
	}
	if f.message != "" {
		text = f.message
	}
	if f.code != "" {
		code = f.code
	}
	var param any
	if f.param != "" {
		param = f.param
	}
	return status, m{"message": text, "type": typ, "param": param, "code": code}
}

func bearer(h http.Header) string {
	k, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return k
}
