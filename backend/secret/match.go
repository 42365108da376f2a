package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// matcher finds the forms of all known values at once. It is made anew when a value
// is added.
type matcher struct {
	forms   []form
	longest int
	// The first window bytes of each piece of a form decide how far the search may
	// skip: by shift of a hash of the last block bytes of the window under it.
	shift  []uint8
	bucket map[uint16][]piece
}

type form struct {
	text string
	mark string
}

// piece of a form: where it is found, the form may be.
type piece struct {
	form *form
	at   int // in the form
	n    int
}

const (
	window = MinValue
	block  = 3
	// A form of at least twice pieceSize is found by any part of it that holds one
	// whole piece.
	pieceSize = 16
)

func newMatcher(known map[string]string) *matcher {
	m := &matcher{shift: make([]uint8, 1<<16), bucket: map[uint16][]piece{}}
	for i := range m.shift {
		m.shift[i] = window - block + 1
	}
	seen := map[string]bool{}
	for _, value := range slices.Sorted(maps.Keys(known)) {
		for _, f := range formsOf(value) {
			if len(f) >= window && !seen[f] {
				seen[f] = true
				m.forms = append(m.forms, form{f, known[value]})
				m.longest = max(m.longest, len(f))
			}
		}
	}
	for i := range m.forms {
		f := &m.forms[i]
		size := pieceSize
		if strings.Trim(f.text, "0123456789abcdefABCDEF") == "" {
			size *= 2 // of hex, a piece says half as much
		}
		if len(f.text) < 2*size {
			size = len(f.text)
		}
		for at := 0; at+size <= len(f.text); at += size {
			m.addPiece(piece{f, at, size})
		}
		if len(f.text)%size != 0 {
			m.addPiece(piece{f, len(f.text) - size, size})
		}
	}
	return m
}

func (m *matcher) addPiece(p piece) {
	w := p.form.text[p.at : p.at+window]
	for end := block; end <= window; end++ {
		h := blockHash(w[end-block], w[end-2], w[end-1])
		m.shift[h] = min(m.shift[h], uint8(window-end))
		if end == window {
			m.bucket[h] = append(m.bucket[h], p)
		}
	}
}

func blockHash(a, b, c byte) uint16 {
	return uint16((uint32(a)<<16 | uint32(b)<<8 | uint32(c)) * 2654435761 >> 13) //nolint:gosec // a hash
}

// formsOf a value: how it looks in a text that somebody put it into by accident.
func formsOf(v string) []string {
	out := []string{v, hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))), url.QueryEscape(v), url.PathEscape(v), lowerEscapes(url.QueryEscape(v))}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for off := range 3 {
			// The value with unknown bytes on both sides: what is left of the text are the
			// characters that its own bits alone decide.
			text := enc.EncodeToString([]byte("\x00\x00\x00"[:off] + v + "\x00\x00"))
			from := (off*8 + 5) / 6
			to := (off + len(v)) * 8 / 6
			out = append(out, text[from:to])
		}
	}
	if !utf8.ValidString(v) {
		return out
	}
	// In JSON, and in a JSON text inside one.
	for _, f := range slices.Clone(out) {
		for _, html := range []bool{false, true} {
			once := jsonEscape(f, html)
			out = append(out, once, jsonEscape(once, html))
		}
		if strings.Contains(f, "/") {
			out = append(out, strings.ReplaceAll(f, "/", `\/`))
		}
	}
	return out
}

func jsonEscape(s string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// find returns the first part of text, from at on, that is one of a form: as far as
// text and form agree to both sides, but not before at.
func find[T string | []byte](m *matcher, text T, at int) (from, to int, f *form) {
	for i := at + window; i <= len(text); {
		h := blockHash(text[i-3], text[i-2], text[i-1])
		if s := m.shift[h]; s > 0 {
			i += int(s)
			continue
		}
		start := i - window
		for _, p := range m.bucket[h] {
			if start+p.n > len(text) || string(text[start:start+p.n]) != p.form.text[p.at:p.at+p.n] {
				continue
			}
			a, b := start, start+p.n
			for x := p.at; a > at && x > 0 && text[a-1] == p.form.text[x-1]; x-- {
				a--
			}
			for y := p.at + p.n; b < len(text) && y < len(p.form.text) && text[b] == p.form.text[y]; y++ {
				b++
			}
			if f == nil || b-a > to-from {
				from, to, f = a, b, p.form
			}
		}
		if f != nil {
			return from, to, f
		}
		i++
	}
	return 0, 0, nil
}

func found[T string | []byte](m *matcher, text T) bool {
	_, _, f := find(m, text, 0)
	return f != nil
}

// span of a text that goes.
type span struct {
	from, to int
	mark     string
}

// text replaces what is found by its mark, or a shorter one where that is longer.
func (m *matcher) text(text string) string {
	var spans []span
	for at := 0; ; {
		from, to, f := find(m, text, at)
		if f == nil {
			break
		}
		spans, at = append(spans, span{from, to, f.mark}), to
	}
	if escaped(text) {
		plain, where := unescaped(text)
		for at := 0; ; {
			from, to, f := find(m, plain, at)
			if f == nil {
				break
			}
			spans, at = append(spans, span{where[from], where[to], f.mark}), to
		}
		slices.SortStableFunc(spans, func(a, b span) int { return a.from - b.from })
	}
	var b strings.Builder
	at := 0
	for i := 0; i < len(spans); i++ {
		s := spans[i]
		for i+1 < len(spans) && spans[i+1].from < s.to { // both views show it
			i++
			s.to = max(s.to, spans[i].to)
		}
		b.WriteString(text[at:s.from])
		if s.to-s.from >= len(s.mark) {
			b.WriteString(s.mark)
		} else {
			b.WriteString(shortMark)
		}
		at = s.to
	}
	b.WriteString(text[at:])
	return b.String()
}

// shortMark is never longer than what it stands for.
const shortMark = "[key]"

// fixed replaces what is found in b and begins before upTo. It reports whether
// anything was.
func (m *matcher) fixed(b []byte, upTo int) (any bool) {
	at := 0
	for {
		from, to, f := find(m, b, at)
		if f == nil || from >= upTo {
			return any
		}
		mark := f.mark
		if len(mark) > to-from {
			mark = shortMark
		}
		for i := from + copy(b[from:to], mark); i < to; i++ {
			b[i] = '*'
		}
		at, any = to, true
	}
}
