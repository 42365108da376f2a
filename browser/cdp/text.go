package cdp

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes a guest's text one line of at most max characters, without
// characters that hide or reorder what stands around them.
func clean(s string, max int) string {
	if len(s) > 8*max+64 {
		s = s[:8*max+64]
	}
	var b strings.Builder
	n, gap := 0, false
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		bad := r == utf8.RuneError && size == 1
		s = s[size:]
		if unicode.IsSpace(r) {
			gap = n > 0
			continue
		}
		if bad || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) {
			continue
		}
		if gap {
			b.WriteByte(' ')
			n++
			gap = false
		}
		if n >= max-1 && len(strings.TrimSpace(s)) > 0 {
			b.WriteRune('…')
			break
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// quote puts cleaned text between quotes, so that a page's words can never pass
// for the structure around them.
func quote(s string, max int) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(clean(s, max)) + `"`
}

// word lets through short lower-case tokens only: roles and states.
func word(s string) string {
	if len(s) > 24 {
		return ""
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '=' && c != '-' {
			return ""
		}
	}
	return s
}

const maxURL = 32 << 10

func cut(s string, max int) string {
	if len(s) > max {
		return strings.Clone(s[:max])
	}
	return s
}
