package loop

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes text valid, and shows what could hide in it: control characters and
// those that change how the rest is read.
func clean(s string) string {
	if !strings.ContainsFunc(s, odd) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	s = strings.ToValidUTF8(s, "\uFFFD")
	for i, r := range s {
		switch {
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			b.WriteRune(r)
		case odd(r):
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func odd(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u200d', '\ufeff':
		return false // of emoji, and at the beginning of files
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

// head is at most n bytes from the start of s, ending between runes.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// short is s in at most n bytes and an ellipsis.
func short(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return head(s, n) + "…"
}

// cutMiddle keeps the beginning and the end of s, at most n bytes with the note about
// what is left out. Lines are kept whole where that costs little.
func cutMiddle(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const note = 60
	room := n - note
	if room < 40 {
		return head(s, max(n, 0))
	}
	h, t := head(s, room*2/3), tail(s, room/3)
	if i := strings.LastIndexByte(h, '\n'); i > len(h)*3/4 {
		h = h[:i+1]
	}
	if i := strings.IndexByte(t, '\n'); i >= 0 && i < len(t)/4 {
		t = t[i+1:]
	}
	gap := s[len(h) : len(s)-len(t)]
	return fmt.Sprintf("%s\n[… %d bytes, %d line ends left out here …]\n%s", h, len(gap), strings.Count(gap, "\n"), t)
}

// split gives each of some sizes its share of a total: what is small is whole, and the
// large ones are cut to the same length.
func split(sizes []int, most, total int) int {
	fits := func(share int) bool {
		sum := 0
		for _, n := range sizes {
			sum += min(n, share)
		}
		return sum <= total
	}
	if fits(most) {
		return most
	}
	// The largest share that fits; one byte is the least.
	return max(1, sort.Search(most, func(share int) bool { return !fits(share + 1) }))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
