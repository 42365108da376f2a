package review

import "testing"

// Two names that look the same on a screen are a way to have one of them accepted for the other.
func TestNamesWithOddSpacesAreFlagged(t *testing.T) {
	for name, odd := range map[string]bool{
		"a b.txt": false, "docs/read me.md": false, "x": false,
		" a": true, "a ": true, "docs /x": true, "docs/ x": true, "a  b": true, "a\u00a0b": true, "a\u2003b": true, "a\u3000b": true,
	} {
		f := File{Path: name, Display: Display(name)}
		got := false
		flagPath(&f, "", func(kind, _ string, _ ...any) { got = got || kind == FlagName })
		if got != odd {
			t.Errorf("%q: flagged %v, want %v", name, got, odd)
		}
	}
}
