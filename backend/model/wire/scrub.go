package wire

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// hidden stands where a key was.
const hidden = "[key]"

// Scrub takes the key out of a text, in plain and as it looks in base64 (standard and
// URL alphabet, alone or inside something longer), in hex, and with any of its
// characters escaped as in URLs or JSON. Keys below 8 bytes are taken out in plain
// alone, and below 4 not at all: they would be found where they are not.
func Scrub(text, key string) string {
	if len(key) < 4 {
		return text
	}
	if len(key) < 8 {
		return strings.ReplaceAll(text, key, hidden)
	}
	text = escaped(text, key)
	for _, n := range needles(key) {
		text = strings.ReplaceAll(text, n, hidden)
	}
	return folded(text, hex.EncodeToString([]byte(key)))
}

// needles are the characters of base64 that hold bits of the key alone, for each of
// the three places it may have among others. What it shares with its neighbours, one
// character at either end, stays.
func needles(key string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for lead := range 3 {
			all := enc.EncodeToString(append(make([]byte, lead), key...))
			n := all[(lead*8+5)/6 : (lead+len(key))*8/6]
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// folded replaces small, which is in lower case, in either case.
func folded(text, small string) string {
	low := []byte(text)
	for i, c := range low {
		if 'A' <= c && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	var out strings.Builder
	for rest, at := string(low), 0; ; {
		i := strings.Index(rest, small)
		if i < 0 {
			if at == 0 {
				return text
			}
			out.WriteString(text[at:])
			return out.String()
		}
		out.WriteString(text[at : at+i])
		out.WriteString(hidden)
		at += i + len(small)
		rest = rest[i+len(small):]
	}
}

// escaped replaces the key where it stands in plain or with any of its bytes escaped.
func escaped(text, key string) string {
	var out strings.Builder
	from := 0
	for i := 0; i < len(text); {
		end := match(text, i, key)
		if end < 0 {
			i++
			continue
		}
		out.WriteString(text[from:i])
		out.WriteString(hidden)
		i, from = end, end
	}
	if from == 0 {
		return text
	}
	out.WriteString(text[from:])
	return out.String()
}

// match returns where the key ends that begins at text[at], or -1. A byte of it may
// be written in several ways, and one way may be the beginning of another, so all
// places are followed where the next byte may begin.
func match(text string, at int, key string) int {
	var room [8]int
	places := append(room[:0], at)
	for i := range len(key) {
		var next [8]int
		n := next[:0]
		for _, p := range places {
			for _, l := range forms(text[p:], key[i]) {
				if l > 0 && !slices.Contains(n, p+l) {
					n = append(n, p+l)
				}
			}
		}
		if len(n) == 0 {
			return -1
		}
		places = append(room[:0], n...)
	}
	return slices.Max(places)
}

// forms are the lengths of c at the beginning of s: as it is, as %41, as \u0041, or
// as \n and the like; 0 = not so.
func forms(s string, c byte) (l [4]int) {
	if s == "" {
		return l
	}
	if s[0] == c {
		l[0] = 1
	}
	switch s[0] {
	case '%':
		if len(s) >= 3 && isHex(s[1:3], c) {
			l[1] = 3
		}
	case '+':
		if c == ' ' {
			l[1] = 1
		}
	case '\\':
		if len(s) >= 6 && s[1] == 'u' && s[2:4] == "00" && isHex(s[4:6], c) {
			l[2] = 6
		}
		if len(s) >= 2 {
			short := s[1]
			switch s[1] {
			case 'b':
				short = '\b'
			case 'f':
				short = '\f'
			case 'n':
				short = '\n'
			case 'r':
				short = '\r'
			case 't':
				short = '\t'
			case '"', '\\', '/':
			default:
				return l
			}
			if short == c {
				l[3] = 2
			}
		}
	}
	return l
}

func isHex(two string, c byte) bool {
	var b [1]byte
	_, err := hex.Decode(b[:], []byte(two))
	return err == nil && b[0] == c
}
