package modeltest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"glasshouse/backend/model/modeltest"
)

// Schemas of tools for which real servers refuse a whole request.
func TestSchemasThatServersRefuse(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string"}},"oneOf":[{"required":["a"]}]}`: "at the top level",
		`{"type":"object","allOf":[{}]}`:                                                                                         "at the top level",
		`{"type":"object","properties":{"a":{"type":"string","maxLength":2000}}}`:                                                "failed to parse grammar",
		`{"type":"object","properties":{"l":{"type":"array","items":{"type":"array","maxItems":4096,"items":{"type":"null"}}}}}`: "failed to parse grammar",
		`{"type":"object","properties":{"a":{"type":"string","maxLength":1000},"b":{"oneOf":[{"type":"null"}]}}}`:                "",
	} {
		for path, body := range map[string]string{
			"/chat/completions": `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"x","parameters":%s}}]}`,
			"/responses":        `{"model":"m","input":"hi","tools":[{"type":"function","name":"x","parameters":%s}]}`,
			"/messages":         `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"x","input_schema":%s}]}`,
		} {
			srv := modeltest.Text(t, "answers: [{say: ok}]")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL()+path, strings.NewReader(fmt.Sprintf(body, schema)))
			if err != nil {
				t.Fatal(err)
			}
			if path == "/messages" {
				req.Header.Set("Anthropic-Version", "2023-06-01")
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if (resp.StatusCode == 200) != (want == "") || !strings.Contains(string(got), want) {
				t.Errorf("%s, %s: %d %s", path, schema, resp.StatusCode, got)
			}
		}
	}
}
