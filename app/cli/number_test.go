package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// Numbers are read in one way or not at all, and a wrong one asks no core.
func TestNumbersOfALine(t *testing.T) {
	d := newDoors(t)
	d.answer["GET /v1/models"] = reply{200, `{"default":"","file":"models.toml","models":[]}`}
	add := []string{"model", "add", "m", "--format", "openai-chat", "--model", "x", "--price-output", "1"}
	run := []string{"run", "--session", doorSession}
	for _, c := range []struct {
		line []string
		flag string
		says string // in common with a wrong number
		bad  map[string]string
	}{
		{add, "price-input", "", map[string]string{
			"3,5": "after a point, and nothing between thousands", "1,000": "after a point", "1.000,5": "after a point", "$3,5": "after a point",
			"-1": "at least 0", "-$1": "at least 0", "$-1": "at least 0", "-0.5": "at least 0",
			"NaN": "such as 2.50", "Inf": "such as 2.50", "1e3": "such as 2.50", "0x10": "such as 2.50", "1_000": "such as 2.50", "": "such as 2.50", "$": "such as 2.50", ".": "such as 2.50",
			"3.": "such as 2.50", "1.000.000": "such as 2.50", "3 USD": "such as 2.50", "€3": "such as 2.50", "٣": "such as 2.50", "100001": "more than 100000", "1" + strings.Repeat("0", 400): "more than 100000",
		}},
		{add, "context", "", map[string]string{"128k": "digits alone", "1.000": "digits alone", "128,000": "digits alone", "0x10": "digits alone", "1_000": "digits alone", "1e5": "digits alone", "NaN": "digits alone", "": "digits alone", "-1": "at least 0", "99999999999999999999": "too large"}},
		{add, "max-output", "", map[string]string{"8k": "digits alone", "-8": "at least 0"}},
		{append(run, "x"), "limit", "a limit is an amount of US dollars such as 2.50", map[string]string{"3,5": "after a point", "1,000.00": "after a point", "-1": "at least 0", "NaN": "such as 2.50", "": "such as 2.50", "1e3": "such as 2.50", "1000000": "more than 999999", "0.0000000001": "nine digits"}},
		{append(run, "x"), "limit-tokens", "", map[string]string{"100.000": "digits alone", "100k": "digits alone", "-5": "at least 0", "1,5": "digits alone"}},
		{[]string{"session", "set", doorSession}, "limit", "a limit is an amount of US dollars such as 2.50", map[string]string{"2,50": "after a point", "": "such as 2.50"}},
		{[]string{"session", "set", doorSession}, "limit-tokens", "", map[string]string{"100.000": "digits alone", "-1": "at least 0"}},
		{[]string{"exec", "--session", doorSession, "--code", "x"}, "timeout-ms", "", map[string]string{"2s": "digits alone", "0.5": "digits alone", "-1": "at least 0"}},
		{[]string{"project", "create", "--name", "x"}, "cpus", "", map[string]string{"1.5": "digits alone", "-2": "at least 0"}},
		{[]string{"project", "create", "--name", "x"}, "memory", "", map[string]string{"2G": "digits alone", "2,048": "digits alone"}},
	} {
		for in, says := range c.bad {
			r := line(t, "", append(append([]string{}, c.line...), "--"+c.flag+"="+in)...)
			if r.code != 2 || r.out != "" || !strings.Contains(r.err, says) || !strings.Contains(r.err, c.says) || len(in) < 40 && in != "" && !strings.Contains(r.err, in) {
				t.Errorf("--%s=%q: %d %q", c.flag, in, r.code, r.err)
			}
		}
	}
	d.mu.Lock()
	for _, call := range d.calls {
		t.Errorf("a core was asked: %s %s", call.method, call.path)
	}
	d.mu.Unlock()

	// What is right is taken as it is meant.
	d.answer["PUT /v1/models/m"] = reply{200, doorModels}
	for in, want := range map[string]float64{"3": 3, "3.5": 3.5, "$3": 3, "$0.15": 0.15, ".5": 0.5, "1.000": 1, "003.50": 3.5, "0": 0, "100000": 100000} {
		line(t, "", append(append([]string{}, add...), "--price-input="+in, "--context", "0128000")...)
		sent := d.called("PUT", "/v1/models/m")
		var got struct {
			Context int
			Price   struct{ Input, Output float64 }
		}
		if len(sent) == 0 || json.Unmarshal([]byte(sent[len(sent)-1]), &got) != nil || got.Price.Input != want || got.Price.Output != 1 || got.Context != 128000 {
			t.Errorf("%q became %+v", in, got)
		}
	}
	for in, want := range map[string]string{"2.50": `"limit_nanos":2500000000`, "$2.5": `"limit_nanos":2500000000`, "1.000": `"limit_nanos":1000000000`, "0": `"limit_nanos":0`} {
		r := line(t, "", "session", "set", doorSession, "--limit", in, "--limit-tokens", "010")
		sent := d.called("PATCH", "/v1/sessions/"+doorSession)
		if r.code != 0 || len(sent) == 0 || !strings.Contains(sent[len(sent)-1], want) || !strings.Contains(sent[len(sent)-1], `"limit_tokens":10`) {
			t.Errorf("%q: %+v %q", in, r, sent)
		}
	}
}
