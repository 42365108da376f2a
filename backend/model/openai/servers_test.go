package openai

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"glasshouse/backend/model"
)

// Streams as real servers send them, beside what their documentation says.
func TestStreamsOfRealServers(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []model.Part
		stop model.Stop
		use  model.Usage
	}{
		// Azure tells what its filter thinks before, within and after the answer.
		"Azure": {`data: {"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}

data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-x","choices":[{"index":0,"delta":{},"content_filter_results":{},"finish_reason":"stop"}]}

data: {"id":"","object":"","created":0,"model":"","choices":[{"index":0,"finish_reason":null,"content_filter_offsets":{"check_offset":44,"start_offset":44,"end_offset":198},"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}

data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-x","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}

data: [DONE]

`, []model.Part{text("Hi")}, model.StopEnd, model.Usage{Input: 5, Output: 1}},
		"Azure, filtered": {`data: {"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"content":"Well"},"finish_reason":null}]}

data: {"id":"","model":"","choices":[{"index":0,"delta":{},"finish_reason":"content_filter","content_filter_results":{"violence":{"filtered":true,"severity":"high"}}}]}

data: [DONE]

`, []model.Part{text("Well")}, model.StopRefused, model.Usage{}},
		// Gateways that never say why it ended, but that it did.
		"no reason": {`data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}

data: {"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}

data: [DONE]

`, []model.Part{text("Hi")}, model.StopEnd, model.Usage{Input: 5, Output: 1}},
		"no reason, a call": {`data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a1","function":{"name":"x","arguments":"{}"}}]},"finish_reason":""}]}

data: [DONE]

`, []model.Part{call("a1", "x", "{}")}, model.StopCalls, model.Usage{}},
		// SGLang and older Ollamas: an empty reason with every piece.
		"empty reasons": {`data:{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":null,"content":"H","tool_calls":null},"logprobs":null,"finish_reason":"","matched_stop":null}],"usage":null}

data:{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"i"},"finish_reason":"stop","matched_stop":2}],"usage":null}

data:[DONE]

`, []model.Part{text("Hi")}, model.StopEnd, model.Usage{}},
		// Groq and Mistral put the usage elsewhere or into the last piece.
		"usage with the last piece": {`data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}

data: {"id":"c1","model":"m","x_groq":{"id":"req_1"},"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"queue_time":0.1}}

data: [DONE]

`, []model.Part{text("Hi")}, model.StopEnd, model.Usage{Input: 5, Output: 1}},
	} {
		a, _, err := askFixture(t, model.FormatChat, []byte(c.body))
		if err != nil || !reflect.DeepEqual(a.Parts, c.want) || a.Stop != c.stop || a.Usage != c.use {
			t.Errorf("%s: %s, %v", name, asJSON(t, a), err)
		}
		// Without its last word and its reason it was cut.
		if cut := strings.TrimSuffix(strings.ReplaceAll(c.body, "data: [DONE]\n\n", ""), "\n"); strings.HasPrefix(name, "no reason") {
			_, _, err := askFixture(t, model.FormatChat, []byte(cut+"\n"))
			if e := modelError(t, err); e.Kind != model.ErrNetwork {
				t.Errorf("%s, cut: %v", name, err)
			}
		}
	}
}

// Ten thousand calls are no answer, four thousand are; the loop runs the first of them.
func TestTenThousandCalls(t *testing.T) {
	for n, ok := range map[int]bool{4000: true, 10_000: false} {
		a, err := decode(t.Context(), bytes.NewReader(chunks("tool_calls", manyCalls(n)...)), newReader(model.FormatChat, nil))
		if (err == nil) != ok || ok && len(a.Calls()) != n {
			t.Errorf("%d calls: %d came, %v", n, len(a.Calls()), err)
		}
	}
}
