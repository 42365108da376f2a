package loop

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"glasshouse/backend/event"
	"glasshouse/backend/model"
)

func TestSplitIsFair(t *testing.T) {
	for _, c := range []struct {
		sizes       []int
		most, total int
		want        int // the share
	}{
		{[]int{10, 20}, 100, 1000, 100},
		{[]int{500}, 100, 1000, 100},
		{[]int{100, 100, 100}, 100, 150, 50},
		{[]int{10, 100, 100}, 100, 150, 70},
		{[]int{10, 40, 100, 100}, 100, 150, 50},
		{[]int{0, 0}, 10, 10, 10},
		{[]int{1000, 1000, 1000}, 1000, 2, 1},
		{nil, 16, 48, 16},
		// None as large as the most that one may have, and more than all may have together.
		{slices.Repeat([]int{3000}, 20), 16 << 10, 48 << 10, 2457},
		{[]int{15000, 15000, 15000, 15000}, 16 << 10, 48 << 10, 12288},
		{append(slices.Repeat([]int{1500}, 40), 16384), 16 << 10, 48 << 10, 1198},
	} {
		got := split(c.sizes, c.most, c.total)
		sum := 0
		for _, n := range c.sizes {
			sum += min(n, got)
		}
		if got != c.want || sum > c.total && got > 1 {
			t.Errorf("%v of %d: the share is %d (%d in all), want %d", c.sizes, c.total, got, sum, c.want)
		}
	}
	var many []int
	for i := range 3000 {
		many = append(many, i*7%5000)
	}
	share, sum := split(many, 16<<10, 48<<10), 0
	for _, n := range many {
		sum += min(n, share)
	}
	if sum > 48<<10 {
		t.Errorf("%d bytes in all", sum)
	}
}

func TestCutMiddle(t *testing.T) {
	long := "BEGIN\n" + strings.Repeat("äöü line\n", 1000) + "END"
	for _, n := range []int{0, 1, 50, 99, 101, 500, 5000, len(long) - 1, len(long)} {
		s := cutMiddle(long, n)
		if len(s) > n || !utf8.ValidString(s) {
			t.Errorf("%d: %d bytes, valid %v", n, len(s), utf8.ValidString(s))
		}
		if n >= 200 {
			has(t, s, "BEGIN", "END")
		}
	}
	if cutMiddle(long, len(long)) != long {
		t.Error("what fits is cut")
	}
}

func TestDeltasAreJoined(t *testing.T) {
	var told []*event.MessageDelta
	d := newDeltas(func(p event.Payload) { told = append(told, p.(*event.MessageDelta)) }, "t", "an")
	var fire func()
	d.after = func(wait time.Duration, f func()) *time.Timer {
		if wait == soFarEvery {
			return time.NewTimer(time.Hour)
		}
		if wait != deltaWait {
			t.Errorf("waits %v", wait)
		}
		fire = f
		return time.NewTimer(time.Hour)
	}
	for range 50 {
		d.add(model.Delta{Kind: model.KindText, Text: "word "})
	}
	if len(told) != 0 {
		t.Fatalf("%d told before the time", len(told))
	}
	fire()
	if len(told) != 1 || len(told[0].Text) != 250 || told[0].Offset != 0 {
		t.Fatalf("told %+v", told)
	}
	stale := fire
	d.add(model.Delta{Kind: model.KindThought, Text: "hm"}) // another kind: its own offsets
	d.add(model.Delta{Kind: model.KindText, Text: "more"})
	d.add(model.Delta{Kind: model.KindCall, Tool: "exec"})
	d.add(model.Delta{Kind: model.KindCall, Text: `{"a"`})
	d.add(model.Delta{Kind: model.KindCall, Tool: "read"})
	big := strings.Repeat("ä", 5000)
	d.add(model.Delta{Kind: model.KindText, Text: big})
	type piece struct {
		kind, tool string
		offset     int64
		size       int
	}
	want := []piece{{"text", "", 0, 250}, {"thought", "", 0, 2}, {"text", "", 250, 4}, {"call", "exec", 0, 4}, {"call", "read", 4, 0}, {"text", "", 254, 4096}, {"text", "", 4350, 4096}, {"text", "", 8446, 1808}}
	if len(told) != len(want) {
		t.Fatalf("%d told: %+v", len(told), told)
	}
	for i, w := range want {
		g := told[i]
		if (piece{g.Kind, g.Tool, g.Offset, len(g.Text)}) != w || !utf8.ValidString(g.Text) || g.Attempt != 1 || g.Answer != "an" {
			t.Errorf("piece %d is %s %s %d %d, want %v", i, g.Kind, g.Tool, g.Offset, len(g.Text), w)
		}
	}
	d.add(model.Delta{Kind: model.KindText, Text: "lost with its attempt"})
	d.again()
	stale()
	fire()
	d.add(model.Delta{Kind: model.KindText, Text: "again"})
	d.end()
	fire()
	if g := told[len(told)-1]; len(told) != len(want)+1 || g.Text != "again" || g.Offset != 0 || g.Attempt != 2 {
		t.Errorf("after another attempt: %+v", g)
	}
	d.add(model.Delta{Kind: model.KindText, Text: "too late"})
	fire()
	if len(told) != len(want)+1 {
		t.Error("something was told after the end")
	}
}

// Who comes in the middle of an answer is told what was said before.
func TestWhatWasToldIsSaidAgain(t *testing.T) {
	var told []*event.MessageSoFar
	d := newDeltas(func(p event.Payload) {
		if s, ok := p.(*event.MessageSoFar); ok {
			told = append(told, s)
		}
	}, "t", "an")
	var fire func()
	d.after = func(wait time.Duration, f func()) *time.Timer {
		if wait == soFarEvery {
			fire = f
		}
		return time.NewTimer(time.Hour)
	}
	d.add(model.Delta{Kind: model.KindThought, Text: "hm"})
	d.add(model.Delta{Kind: model.KindText, Text: "one "})
	d.add(model.Delta{Kind: model.KindCall, Tool: "exec", Text: "{"})
	fire()
	if len(told) != 1 || *told[0] != (event.MessageSoFar{Turn: "t", Answer: "an", Attempt: 1, Text: "one ", TextEnd: 4, Thought: "hm", ThoughtEnd: 2}) {
		t.Fatalf("%+v", told)
	}
	d.add(model.Delta{Kind: model.KindText, Text: strings.Repeat("ä line\n", 5000)})
	fire()
	if g := told[1]; len(g.Text) > soFarSize || !strings.HasPrefix(g.Text, "ä line\n") || g.TextEnd != 40004 || !utf8.ValidString(g.Text) {
		t.Errorf("%d bytes, %.20q, end %d", len(g.Text), g.Text, g.TextEnd)
	}
	stale := fire
	d.again()
	stale()
	d.add(model.Delta{Kind: model.KindText, Text: "two"})
	d.add(model.Delta{Kind: model.KindThought, Text: "x"})
	fire()
	if g := told[len(told)-1]; len(told) != 3 || g.Text != "two" || g.Thought != "" || g.Attempt != 2 {
		t.Errorf("%d, %+v", len(told), g)
	}
	d.end()
	fire()
	if len(told) != 3 {
		t.Error("it is said after the end")
	}
}

func TestAgentsFileDoesNotEndItsQuotation(t *testing.T) {
	for n := range 60 {
		if s := agentsText([]byte("a\n" + strings.Repeat("=", n) + "\nb")); strings.Contains(s, fence) {
			t.Errorf("of %d: %q", n, s)
		}
	}
}

func TestPromptFileHasItsSections(t *testing.T) {
	for _, name := range []string{"rules", "agents", "plan", "go-on", "cut", "empty", "checks", "checks-tool", "summary", "compacted", "own-words"} {
		if words[name] == "" {
			t.Errorf("there is no section %q", name)
		}
	}
	if len(words) != 11 {
		t.Errorf("%d sections", len(words))
	}
}
