package openai

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/model"
)

// What servers answer when they do not answer, in their own forms.
func TestRefusals(t *testing.T) {
	type want struct {
		kind model.ErrorKind
		text string
		wait time.Duration
	}
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   want
	}{
		"wrong key": {401, nil, `{"error":{"message":"Incorrect API key provided: ` + testKey + `. You can find your API key in your account.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`,
			want{model.ErrAuth, "Incorrect API key provided: [key].", 0}},
		"no permission":       {403, nil, `{"error":{"message":"You do not have access","type":"invalid_request_error","code":"unsupported_country"}}`, want{model.ErrAuth, "You do not have access", 0}},
		"wrong key as 400":    {400, nil, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`, want{model.ErrAuth, "API key not valid", 0}},
		"no money":            {429, nil, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, want{model.ErrQuota, "You exceeded", 0}},
		"no money, by type":   {429, nil, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":null}}`, want{model.ErrQuota, "You exceeded", 0}},
		"no money, by 402":    {402, nil, `{"error":{"message":"Insufficient credits","code":402}}`, want{model.ErrQuota, "Insufficient credits", 0}},
		"no money, in words":  {400, nil, `{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}`, want{model.ErrQuota, "Insufficient Balance", 0}},
		"rate, seconds":       {429, map[string]string{"Retry-After": "7"}, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, want{model.ErrRate, "Rate limit reached", 7 * time.Second}},
		"rate, milliseconds":  {429, map[string]string{"Retry-After": "7", "Retry-After-Ms": "1250"}, `{}`, want{model.ErrRate, "{}", 1250 * time.Millisecond}},
		"rate, in words":      {429, nil, `{"error":{"message":"Rate limit reached for tokens per min. Please try again in 1m2.5s. Visit the page.","code":"rate_limit_exceeded"}}`, want{model.ErrRate, "Rate limit", 62500 * time.Millisecond}},
		"rate, in more words": {429, nil, `{"error":"slow: retry after 3 seconds"}`, want{model.ErrRate, "slow", 3 * time.Second}},
		"rate, reset of tokens": {429, map[string]string{"X-Ratelimit-Reset-Tokens": "6m0s", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Requests": "20ms", "X-Ratelimit-Remaining-Requests": "9"}, ``,
			want{model.ErrRate, "Too Many Requests", 6 * time.Minute}},
		"rate, reset unknown":   {429, map[string]string{"X-Ratelimit-Reset-Tokens": "6m0s", "X-Ratelimit-Reset-Requests": "20ms"}, ``, want{model.ErrRate, "Too Many Requests", 20 * time.Millisecond}},
		"rate, reset nonsense":  {429, map[string]string{"X-Ratelimit-Reset-Tokens": "-5s", "X-Ratelimit-Reset-Requests": "99999h"}, ``, want{model.ErrRate, "Too Many Requests", 0}},
		"rate, more than fits":  {429, nil, `{"error":{"message":"Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000.","type":"tokens","code":"rate_limit_exceeded"}}`, want{model.ErrTooLong, "Request too large", 0}},
		"too long, OpenAI":      {400, nil, `{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, want{model.ErrTooLong, "maximum context length", 0}},
		"too long, vLLM":        {400, nil, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages. Please reduce the length of the messages.","type":"BadRequestError","param":null,"code":400}`, want{model.ErrTooLong, "maximum context length", 0}},
		"too long, vLLM newer":  {400, nil, `{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096.","type":"BadRequestError","code":400}}`, want{model.ErrTooLong, "decoder prompt", 0}},
		"too long, llama.cpp":   {400, nil, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}`, want{model.ErrTooLong, "exceeds the available", 0}},
		"too long, Ollama":      {400, nil, `{"error":{"message":"the input length exceeds the context length","type":"invalid_request_error","param":null,"code":null}}`, want{model.ErrTooLong, "input length", 0}},
		"too long, LM Studio":   {400, nil, `{"error":"The number of tokens to keep from the initial prompt is greater than the context length."}`, want{model.ErrTooLong, "tokens to keep", 0}},
		"too long, behind":      {400, nil, `{"error":{"message":"Provider returned error","code":400,"metadata":{"provider_name":"P","raw":"{\"error\":{\"message\":\"prompt is too long: 9 > 8\",\"code\":\"x\"}}"}}}`, want{model.ErrTooLong, "Provider returned error: prompt is too long", 0}},
		"too long, 413":         {413, nil, `<html>Payload Too Large</html>`, want{model.ErrTooLong, "Payload", 0}},
		"no such model":         {404, nil, `{"error":{"message":"The model 'x' does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, want{model.ErrNotFound, "does not exist", 0}},
		"no such model, Ollama": {404, nil, `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}`, want{model.ErrNotFound, "try pulling", 0}},
		"no such page":          {404, nil, `404 page not found`, want{model.ErrNotFound, "404 page not found", 0}},
		"invalid":               {400, nil, `{"error":{"message":"Unsupported parameter: 'max_tokens'","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`, want{model.ErrInvalid, "Unsupported parameter", 0}},
		"invalid, FastAPI":      {422, nil, `{"detail":[{"loc":["body","model"],"msg":"field required"}]}`, want{model.ErrInvalid, "field required", 0}},
		"server":                {500, nil, `{"error":{"message":"The server had an error","type":"server_error","code":null}}`, want{model.ErrServer, "The server had an error", 0}},
		"server, a page":        {502, nil, `<html><head><title>502 Bad Gateway</title></head></html>`, want{model.ErrServer, "502 Bad Gateway", 0}},
		"server, nothing":       {500, nil, ``, want{model.ErrServer, "Internal Server Error", 0}},
		"busy":                  {503, map[string]string{"Retry-After": "2"}, `{"error":{"message":"The engine is currently overloaded","type":"server_error","code":null}}`, want{model.ErrBusy, "overloaded", 2 * time.Second}},
		"busy, 500":             {500, nil, `{"error":{"message":"That model is currently overloaded with other requests.","type":"server_error"}}`, want{model.ErrBusy, "overloaded", 0}},
		"busy, loading":         {503, nil, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, want{model.ErrBusy, "Loading model", 0}},
		"busy, by its code":     {500, nil, `{"error":{"message":"slow","code":"server_is_overloaded"}}`, want{model.ErrBusy, "slow", 0}},
		"timeout":               {504, nil, `upstream timed out`, want{model.ErrTimeout, "upstream timed out", 0}},
		"control characters":    {400, nil, "{\"error\":{\"message\":\"bad\\u0000\\u001b[31m thing\"}}", want{model.ErrInvalid, "bad[31m thing", 0}},
		"odd shapes":            {400, nil, `{"error":[1,2]}`, want{model.ErrInvalid, "[1,2]", 0}},
	} {
		for _, f := range []model.Format{model.FormatChat, model.FormatResponses} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.Header().Set("X-Request-Id", "req_42")
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			a, _, err := ask(t, config(f, s.URL), hello())
			e := modelError(t, err)
			if e.Kind != c.want.kind || e.Status != c.status || !strings.Contains(e.Message, c.want.text) || e.RetryAfter != c.want.wait || e.RequestID != "req_42" {
				t.Errorf("%s, %s: %+v, want %+v", f, name, e, c.want)
			}
			if strings.Contains(fmt.Sprintf("%+v %v", e, err), testKey) {
				t.Errorf("%s, %s: the error holds the key: %v", f, name, err)
			}
			if len(a.Parts) > 0 {
				t.Errorf("%s, %s: an answer came with the error", f, name)
			}
		}
	}
}

func TestLongRefusalsAreCut(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		for range 64 {
			_, _ = w.Write([]byte(strings.Repeat("no ", 1<<16)))
		}
	})
	_, _, err := ask(t, config(model.FormatChat, s.URL), hello())
	if e := modelError(t, err); e.Kind != model.ErrServer || len(e.Message) > 2000 || !strings.HasPrefix(e.Message, "no no") {
		t.Errorf("%d bytes of message: %.60s", len(e.Message), e.Message)
	}
}

func TestErrorsWithinAStream(t *testing.T) {
	head := "data: {\"id\":\"e\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"so far\"},\"finish_reason\":null}]}\n\n"
	for name, c := range map[string]struct {
		event string
		kind  model.ErrorKind
		text  string
	}{
		"OpenAI":           {"data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\",\"code\":null}}\n\n", model.ErrServer, "The server had an error"},
		"named":            {"event: error\ndata: {\"error\":{\"message\":\"overloaded just now\"}}\n\n", model.ErrBusy, "overloaded"},
		"named, bare":      {"event: error\ndata: {\"message\":\"Context length exceeded\"}\n\n", model.ErrTooLong, "Context length"},
		"named, text":      {"event: error\ndata: it broke\n\n", model.ErrServer, "it broke"},
		"OpenRouter":       {"data: {\"id\":\"e\",\"object\":\"chat.completion.chunk\",\"error\":{\"code\":502,\"message\":\"Provider disconnected\"},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n", model.ErrServer, "Provider disconnected"},
		"OpenRouter, rate": {"data: {\"error\":{\"code\":429,\"message\":\"slow down\"},\"choices\":[]}\n\n", model.ErrRate, "slow down"},
		"of a choice":      {"data: {\"choices\":[{\"index\":0,\"delta\":{},\"error\":{\"code\":503,\"message\":\"gone\"}}]}\n\n", model.ErrBusy, "gone"},
		"vLLM":             {"data: {\"object\":\"error\",\"message\":\"boom\",\"type\":\"InternalServerError\",\"code\":500}\n\n", model.ErrServer, "boom"},
		"llama.cpp":        {"error: {\"code\":500,\"message\":\"the slot broke\",\"type\":\"server_error\"}\n\n", model.ErrServer, "the slot broke"},
		"a text":           {"data: {\"error\":\"out of memory\"}\n\n", model.ErrServer, "out of memory"},
		"money":            {"data: {\"error\":{\"message\":\"quota of " + testKey + "\",\"type\":\"insufficient_quota\"}}\n\n", model.ErrQuota, "quota of [key]"},
	} {
		_, ds, err := askFixture(t, model.FormatChat, []byte(head+c.event))
		e := modelError(t, err)
		if e.Kind != c.kind || !strings.Contains(e.Message, c.text) || e.Status != 0 {
			t.Errorf("%s: %+v, want %s %q", name, e, c.kind, c.text)
		}
		if len(ds) != 1 || ds[0].Text != "so far" {
			t.Errorf("%s: told %v", name, ds)
		}
	}
	// What only looks like one.
	for _, empty := range []string{"null", "{}", `""`} {
		if _, _, err := askFixture(t, model.FormatChat, []byte("data: {\"error\":"+empty+",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\",\"error\":"+empty+"}]}\n\ndata: [DONE]\n\n")); err != nil {
			t.Errorf("error %s: %v", empty, err)
		}
	}
	// An error that comes with status 200 and no stream.
	_, _, err := askFixture(t, model.FormatChat, []byte(`{"error":{"message":"no such thing","code":404}}`))
	if e := modelError(t, err); e.Kind != model.ErrNotFound || e.Status != 0 {
		t.Errorf("an error as the whole body: %+v", e)
	}
}

func TestAnErrorAfterTheFixture(t *testing.T) {
	_, _, err := askFixture(t, model.FormatChat, fixture(t, "chat/error_mid.sse"))
	if e := modelError(t, err); e.Kind != model.ErrServer || !strings.Contains(e.Message, "Sorry about that") {
		t.Errorf("%+v", e)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serve(t, stream(fixture(t, "chat/text.sse")))
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	_, _, err := ask(t, config(model.FormatChat, s.URL), hello())
	if e := modelError(t, err); e.Kind != model.ErrNotFound || e.Status != 307 {
		t.Errorf("%+v", e)
	}
	if len(other.got) > 0 {
		t.Error("the key went to another address")
	}
}

func TestNobodyListens(t *testing.T) {
	s := serve(t, nil)
	s.Close()
	_, _, err := ask(t, config(model.FormatChat, s.URL), hello())
	if e := modelError(t, err); e.Kind != model.ErrNetwork {
		t.Errorf("%+v", e)
	}
}
