package review

import (
	"slices"
	"strings"
	"testing"
)

func TestAnchorFindsItsLine(t *testing.T) {
	lines := func(s string) []string { return strings.Split(s, "\n") }
	was := lines("package x\n\nfunc a() {\n\tone()\n}\n\nfunc b() {\n\tone()\n}")
	for _, c := range []struct {
		name string
		line int
		now  string
		want int // 0: nowhere
	}{
		{"lines came before it", 8, "// hello\n// there\npackage x\n\nfunc a() {\n\tone()\n}\n\nfunc b() {\n\tone()\n}", 10},
		{"the same words twice: the one with its neighbours", 4, "package x\n\nfunc b() {\n\tone()\n}\n\nfunc a() {\n\tone()\n}", 8},
		{"the line is gone", 4, "package x\n\nfunc a() {\n\ttwo()\n}", 0},
		{"a brace alone says nothing", 5, "type y struct {\n\tz int\n}\n\nvar q int", 0},
		{"a brace among its neighbours", 9, "package x\n\nfunc b() {\n\tone()\n}", 5},
		{"all is gone", 4, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Hold("old", was, c.line)
			got, ok := a.Find("new", lines(c.now))
			if ok != (c.want > 0) || got != c.want {
				t.Errorf("%d %v, want %d", got, ok, c.want)
			}
			if n, ok := a.Find("old", was); !ok || n != c.line {
				t.Errorf("in what it was made on: %d %v", n, ok)
			}
		})
	}
}

// A line without end is compared, and kept, up to a bound and as valid text.
func TestAnchorOfALongLine(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	a := Hold("old", []string{"x", long, "y"}, 2)
	if len(a.Quoted) > maxQuoted || strings.ContainsRune(a.Quoted, '\uFFFD') {
		t.Errorf("%d bytes", len(a.Quoted))
	}
	if n, ok := a.Find("new", []string{"x", "more", long, "y"}); !ok || n != 3 {
		t.Errorf("%d %v", n, ok)
	}
	if !slices.Equal(a.Before, []string{"x"}) || !slices.Equal(a.After, []string{"y"}) {
		t.Errorf("%+v", a)
	}
}

func TestSection(t *testing.T) {
	lines := splitLines("package x\n\nfunc a(\n\tb int,\n) {\n\n\treturn\n}\n")
	for at, want := range map[int]string{0: "", 1: "package x", 2: "package x", 3: "func a(", 7: "func a("} {
		if got := section(lines, at); got != want {
			t.Errorf("above %d: %q, want %q", at, got, want)
		}
	}
	if got := section([]string{strings.Repeat("ü", 10) + "\n", strings.Repeat("x", 1<<16)}, 2); len(got) > sectionBytes+3 {
		t.Errorf("%d bytes", len(got))
	}
}
