package loop

import (
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/event"
)

// What a model writes has any size; each event of the turn can be recorded all the same
// (the house refuses those that the log would), and the next answer is asked for.
func TestCallsOfAnySizeAreRecorded(t *testing.T) {
	long := strings.Repeat(`N"`, 100_000)
	many := func(n int, tool, args string) (out []string) {
		for range n {
			out = append(out, tool, args)
		}
		return out
	}
	for name, pairs := range map[string][]string{
		"a long name":           {long, `{}`},
		"long names":            many(20, long[:30_000], `{}`),
		"long arguments":        {"exec", `{"code":"` + strings.Repeat("A", 300_000) + `"}`},
		"thousands of calls":    many(4096, "list", `{}`),
		"many with long errors": many(128, `no"such"tool"`+long[:200], `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			m := script(t, calls(pairs...), say("ok"))
			h.begin("x")
			mustWork(t, h, m)
			if n := len(results(t, m.asked[1])); n != min(len(pairs)/2, maxShown) {
				t.Errorf("%d results of %d calls", n, len(pairs)/2)
			}
			told := recorded[*event.ModelTold](h)
			if len(told) != 1 {
				t.Fatalf("told %d times", len(told))
			}
			// Also when the artefact is lost, each call has a result.
			h.lost = true
			again := script(t, say("ok"))
			h.begin("more")
			mustWork(t, h, again)
			if got := results(t, again.asked[0]); len(got) == 0 {
				t.Error(fmt.Sprint("no results: ", again.asked[0].Messages))
			}
		})
	}
}

// So it is with words that break off, which count in the limits whatever they are.
func TestBrokenWordsOfAnySizeAreRecorded(t *testing.T) {
	for _, one := range []string{"word ", "\x01", `"`, "\u2028", "\xff", "\U0001F600"} {
		h := newHouse(t)
		h.begin("x")
		m := script(t)
		if err := workWith(t, h, Config{Models: &breaking{mind: m, left: 100, says: strings.Repeat(one, 200_000)}}); err == nil {
			t.Fatal("it did not break off")
		}
		if as := recorded[*event.ModelAnswered](h); len(as) != 1 || as[0].Purpose != event.PurposeBroken || len(as[0].Parts) != 1 || as[0].Parts[0].Text == "" || as[0].Usage.Output == 0 {
			t.Errorf("%q: recorded %d", one, len(as))
		}
	}
}
