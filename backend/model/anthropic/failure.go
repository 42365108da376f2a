package anthropic

import (
	"encoding/json"
	"strings"

	"glasshouse/backend/model"
)

// failure is what a server says went wrong.
type failure struct {
	kind string // of the server: "overloaded_error", …; "" = it is in another form
	code string // a closer name of the cause
	text string
}

// parseFailure reads the published form and what other servers make of it.
func parseFailure(b []byte) failure {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(b, &body) != nil {
		return failure{text: begin(string(b))}
	}
	var e struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Details struct {
			Code string `json:"error_code"`
		} `json:"details"`
	}
	_ = json.Unmarshal(body.Error, &e) // what does not fit is told below
	out := failure{kind: e.Type, code: e.Details.Code, text: e.Message}
	if out.text == "" {
		_ = json.Unmarshal(body.Error, &out.text)
	}
	if out.text == "" {
		out.text = body.Message
	}
	if out.text == "" && json.Unmarshal(body.Detail, &out.text) != nil {
		out.text = string(body.Detail)
	}
	if out.text == "" {
		out.text = begin(string(b))
	}
	return out
}

// begin of a text for a message; a web page is not one.
func begin(s string) string {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "<") {
		return "it sent a web page"
	}
	return s
}

// kindOf says what it means; status is 0 in the middle of an answer. "" = the status
// says all that is known.
func (f failure) kindOf(status int) model.ErrorKind {
	text := strings.ToLower(f.text)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case f.kind == "request_too_large":
		return model.ErrTooLong
	case f.kind == "billing_error", strings.HasSuffix(f.code, "spend_limit_reached"), strings.Contains(f.code, "billing_"), strings.Contains(f.code, "not_billable"):
		return model.ErrQuota
	}
	switch f.kind {
	case "overloaded_error":
		return model.ErrBusy
	case "rate_limit_error":
		return model.ErrRate
	case "timeout_error":
		return model.ErrTimeout
	case "authentication_error", "permission_error":
		return model.ErrAuth
	case "not_found_error":
		return model.ErrNotFound
	case "conflict_error":
		return model.ErrBusy
	case "invalid_request_error", "":
		switch {
		case status >= 500:
		case has("prompt is too long", "exceed context limit", "exceeds the context", "context window", "context length", "too many tokens"):
			return model.ErrTooLong
		case has("credit balance is too low"):
			return model.ErrQuota
		}
		if f.kind != "" {
			return model.ErrInvalid
		}
	case "api_error":
		if status == 0 || status >= 500 {
			return model.ErrServer
		}
	}
	if status == 0 {
		return model.ErrServer // it broke off what it had begun
	}
	return ""
}
