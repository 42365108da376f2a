package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

// failure is what a server says of why it does not answer.
type failure struct {
	code, typ, text string
	status          int  // a status of HTTP that it names itself; 0 = none
	explicit        bool // it was an object of the error form, not just some text
}

func (f *failure) Error() string { return f.text }

// parseFailure reads an error in any of the forms that servers give it: OpenAI's object,
// a bare text, FastAPI's detail, an array around it, a page of HTML. Of an object that
// is no error it says that it was not explicit.
func parseFailure(body []byte) *failure {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var o struct {
		Error   json.RawMessage `json:"error"`
		Object  any             `json:"object"`
		Message any             `json:"message"`
		Code    any             `json:"code"`
		Type    any             `json:"type"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &o) != nil {
		return &failure{text: string(body)}
	}
	switch {
	case present(o.Error):
		return parseReason(o.Error)
	case o.Object == "error" || o.Type == "error" || o.Object == nil && o.Message != nil && (o.Code != nil || o.Type != nil):
		return parseReason(body)
	case present(o.Detail):
		return &failure{text: textOf(o.Detail), explicit: true}
	case o.Object == nil && o.Message != nil:
		return &failure{text: word(o.Message)}
	}
	return &failure{text: string(body)}
}

// parseReason reads the error itself.
func parseReason(raw json.RawMessage) *failure {
	var r struct {
		Message  json.RawMessage `json:"message"`
		Msg      any             `json:"msg"`
		Code     any             `json:"code"`
		Type     any             `json:"type"`
		Status   any             `json:"status"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(raw, &r) != nil {
		return &failure{text: textOf(raw), explicit: true}
	}
	f := &failure{code: word(r.Code), typ: word(r.Type), explicit: true}
	if present(r.Message) { // Mistral's may be a list of what it does not take
		f.text = textOf(r.Message)
	}
	if f.text == "" {
		f.text = word(r.Msg)
	}
	for _, v := range []any{r.Code, r.Status} {
		if n, err := strconv.Atoi(word(v)); err == nil && n >= 400 && n < 600 && f.status == 0 {
			f.status = n
		}
	}
	// OpenRouter passes on what the server behind it said.
	var meta struct {
		Raw any `json:"raw"`
	}
	if json.Unmarshal(r.Metadata, &meta) == nil {
		if behind := word(meta.Raw); behind != "" {
			b := parseFailure([]byte(behind))
			f.text = strings.TrimPrefix(f.text+": "+b.text, ": ")
			if b.explicit {
				f.code = b.code
			}
		}
	}
	if f.text == "" {
		if f.text = f.code; f.text == "" {
			f.text = string(raw)
		}
	}
	return f
}

// present reports whether raw holds more than nothing; some servers send an empty error
// along with what is none.
func present(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "{}", `""`, "false":
		return false
	}
	return true
}

func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func word(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// error makes of it what the contract knows. status is HTTP's; below 400 the error came
// within an answer.
func (f *failure) error(status int, h http.Header, key string) *model.Error {
	within := status < 400
	if within {
		status = 0
	}
	e := wire.Refusal(f.kind(status), status, h, f.text, key)
	if e.RetryAfter == 0 && (e.Kind == model.ErrRate || e.Kind == model.ErrBusy) {
		e.RetryAfter = retryIn(f.text)
		if e.RetryAfter == 0 && !within {
			e.RetryAfter = resetIn(h)
		}
	}
	return e
}

// Codes and types of errors, as the servers write them.
var kinds = map[string]model.ErrorKind{
	"insufficient_quota":           model.ErrQuota,
	"billing_hard_limit_reached":   model.ErrQuota,
	"billing_not_active":           model.ErrQuota,
	"insufficient_balance":         model.ErrQuota,
	"context_length_exceeded":      model.ErrTooLong,
	"exceed_context_size_error":    model.ErrTooLong, // llama.cpp
	"string_above_max_length":      model.ErrTooLong,
	"request_too_large":            model.ErrTooLong,
	"invalid_api_key":              model.ErrAuth,
	"authentication_error":         model.ErrAuth,
	"permission_error":             model.ErrAuth,
	"model_not_found":              model.ErrNotFound,
	"not_found_error":              model.ErrNotFound,
	"rate_limit_exceeded":          model.ErrRate,
	"rate_limit_error":             model.ErrRate,
	"too_many_requests":            model.ErrRate,
	"overloaded":                   model.ErrBusy,
	"overloaded_error":             model.ErrBusy,
	"server_is_overloaded":         model.ErrBusy,
	"engine_overloaded":            model.ErrBusy,
	"slow_down":                    model.ErrBusy,
	"unavailable_error":            model.ErrBusy, // llama.cpp while it loads
	"service_unavailable":          model.ErrBusy,
	"insufficient_system_resource": model.ErrBusy, // DeepSeek
	"server_error":                 model.ErrServer,
	"internal_error":               model.ErrServer,
	"internal_server_error":        model.ErrServer,
	"internalservererror":          model.ErrServer, // vLLM
	"invalid_prompt":               model.ErrInvalid,
	"invalid_request_error":        model.ErrInvalid,
	"badrequesterror":              model.ErrInvalid, // vLLM
}

// What servers write when a request is longer than the model's context: OpenAI, vLLM,
// llama.cpp, Ollama and LM Studio, in this order and mixed.
var tooLong = []string{
	"context length", "reduce the length", "maximum model length", "max_model_len", "context window", "context size",
	"prompt is too long", "input is too long", "too many tokens", "exceeds the maximum number of tokens",
}

// kind is chosen by what the server says first, and by the status where it says nothing
// that is known.
func (f *failure) kind(status int) model.ErrorKind {
	if status == 0 {
		status = f.status
	}
	text := strings.ToLower(f.text)
	k := kinds[strings.ToLower(f.code)]
	if t := kinds[strings.ToLower(f.typ)]; t != "" && (k == "" || k == model.ErrInvalid || t == model.ErrQuota) {
		k = t
	}
	switch {
	case (k == model.ErrRate || status == 429) && strings.Contains(text, "request too large"):
		// More than the account's allowance of a minute: waiting never helps.
		return model.ErrTooLong
	case k != "" && k != model.ErrInvalid && k != model.ErrServer: // these two say little
		return k
	}
	switch status {
	case 0, 400, 413, 422, 500:
		for _, s := range tooLong {
			if strings.Contains(text, s) {
				return model.ErrTooLong
			}
		}
	}
	switch {
	case status == 400 && (strings.Contains(text, "api key not valid") || strings.Contains(text, "incorrect api key") || strings.Contains(text, "invalid api key")):
		return model.ErrAuth
	case strings.Contains(text, "insufficient balance"):
		return model.ErrQuota
	case strings.Contains(text, "overloaded") && (status == 0 || status >= 500):
		return model.ErrBusy
	case status != 0:
		return wire.KindOfStatus(status)
	case k != "":
		return k
	}
	return model.ErrServer
}

var (
	againIn = regexp.MustCompile(`(?i)(?:try again|retry) (?:in|after) ((?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+|[0-9]+(?:\.[0-9]+)? ?seconds?)`)
	seconds = regexp.MustCompile(`(?i) ?seconds?$`)
)

// mostWait is what a server can ask for in words; longer is nonsense.
const mostWait = 24 * time.Hour

// retryIn is the wait that an error's text names, as in "try again in 1.5s".
func retryIn(text string) time.Duration {
	m := againIn.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	return parseWait(seconds.ReplaceAllString(m[1], "s"))
}

// resetIn is the wait until a limit that is used up is renewed. Where none says so, it
// is the shorter wait.
func resetIn(h http.Header) time.Duration {
	var used, least time.Duration
	for _, what := range []string{"Requests", "Tokens"} {
		d := parseWait(h.Get("X-Ratelimit-Reset-" + what))
		if d == 0 {
			continue
		}
		if h.Get("X-Ratelimit-Remaining-"+what) == "0" {
			used = max(used, d)
		}
		if least == 0 || d < least {
			least = d
		}
	}
	if used > 0 {
		return used
	}
	return least
}

// parseWait reads 6m0s, 340ms, 1.5s and bare seconds; 0 = nonsense.
func parseWait(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		d, err = time.ParseDuration(s + "s")
	}
	if err != nil || d < 0 || d > mostWait {
		return 0
	}
	return d
}
