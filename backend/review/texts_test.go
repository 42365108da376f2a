package review

import (
	"strings"
	"testing"
)

func TestDiffTextsIsTheReviewsDiff(t *testing.T) {
	old := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n"
	d := DiffTexts("f", []byte(old), []byte(strings.Replace(strings.Replace(old, "b\n", "B\n", 1), "k\n", "k", 1)))
	if len(d.Hunks) != 2 || d.Added != 2 || d.Deleted != 2 || d.Binary || d.Large {
		t.Fatalf("%+v", d)
	}
	if h := d.Hunks[0]; h.OldStart != 1 || h.Lines[1].Op != "-" || h.Lines[1].Text != "b" || h.Lines[2].Text != "B" {
		t.Errorf("%+v", h)
	}
	last := d.Hunks[1].Lines
	if l := last[len(last)-1]; !l.NoEOL || l.Op != "+" {
		t.Errorf("the missing line break is lost: %+v", l)
	}
	for name, c := range map[string]struct {
		old, new []byte
		want     func(TextDiff) bool
	}{
		"new file":     {nil, []byte("x\n"), func(d TextDiff) bool { return d.Added == 1 && len(d.Hunks) == 1 && d.Hunks[0].OldStart == 0 }},
		"deleted":      {[]byte("x\n"), nil, func(d TextDiff) bool { return d.Deleted == 1 }},
		"nothing":      {nil, nil, func(d TextDiff) bool { return d.Hunks == nil && !d.Binary && !d.Large }},
		"NUL":          {nil, []byte("a\x00b"), func(d TextDiff) bool { return d.Binary && d.Hunks == nil }},
		"Latin-1":      {[]byte("caf\xe9"), []byte("x"), func(d TextDiff) bool { return d.Binary && d.Why == "not UTF-8" }},
		"large":        {nil, []byte(strings.Repeat("x", MaxTextBytes+1)), func(d TextDiff) bool { return d.Large && d.Hunks == nil }},
		"many lines":   {nil, []byte(strings.Repeat("\n", MaxLines+1)), func(d TextDiff) bool { return d.Large && d.Why != "" }},
		"header alike": {[]byte("--- a/x\n"), []byte("+++ b/x\n"), func(d TextDiff) bool { return d.Hunks[0].Lines[0].Text == "--- a/x" }},
	} {
		if d := DiffTexts("f", c.old, c.new); !c.want(d) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
