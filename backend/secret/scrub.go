package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// MinValue is how long a value must be to be looked for: shorter ones are found
// everywhere.
const MinValue = 8

// Scrubber takes known secrets out of texts: each is replaced by "[key of NAME]",
// plain and in the forms in which a secret gets into a text by accident (base64 at
// every alignment, hex, escaped for a URL or for JSON). Of a long one a part is
// enough, so that a wrapped or cut text gives none away. It stands no chance against
// somebody who hides a secret on purpose. The zero value knows none and costs next to
// nothing; its methods may be called from any goroutine.
type Scrubber struct {
	mu    sync.Mutex
	known map[string]string // value → name
	now   atomic.Pointer[matcher]
}

// New makes a scrubber that knows one value.
func New(name, value string) *Scrubber {
	s := &Scrubber{}
	s.Learn(name, value)
	return s
}

// Learn adds a value. name is what stands in its place, such as "model gpt": letters,
// digits, spaces and . _ - alone. Values that cannot be told from other text (shorter
// than MinValue, or a short word) are not looked for; it then returns false.
func (s *Scrubber) Learn(name, value string) bool {
	if len(value) < MinValue || word(value) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[value] != "" {
		return true
	}
	if s.known == nil {
		s.known = map[string]string{}
	}
	s.known[value] = plainName(name)
	s.now.Store(newMatcher(s.known))
	return true
}

// word: small letters alone, as in the stand-in for a key that a local server needs.
func word(v string) bool {
	return len(v) < 16 && strings.Trim(v, "abcdefghijklmnopqrstuvwxyz") == ""
}

func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ._-", r) {
			return r
		}
		return '_'
	}, name)
}

// Text returns s without the known values.
func (s *Scrubber) Text(text string) string {
	m := s.now.Load()
	if m == nil || !m.in(text) {
		return text
	}
	return m.text(text)
}

// Fixed replaces the known values in b itself, each by as many bytes.
func (s *Scrubber) Fixed(b []byte) {
	if m := s.now.Load(); m != nil {
		m.fixed(b, len(b))
	}
}

// JSON returns a JSON text without the known values in its strings. It stays valid
// JSON of the same shape, never longer; a string that is base64 stays base64 of as
// many bytes. Names made of small letters and _ alone are left: they may be ours.
func (s *Scrubber) JSON(raw json.RawMessage) json.RawMessage {
	m := s.now.Load()
	if m == nil || len(raw) < MinValue || !m.in(raw) && !needlessEscape(raw) {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			out = append(out, raw[i])
			i++
			continue
		}
		end := i + 1
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(raw))
		out = append(out, m.literal(raw[i:end], isName(raw[end:]))...)
		i = end
	}
	return out
}

// isName: what follows a string says that it names a value.
func isName(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// literal scrubs one string of JSON, quotes and all.
func (m *matcher) literal(lit []byte, name bool) []byte {
	var text string
	if len(lit) < MinValue || json.Unmarshal(lit, &text) != nil {
		return lit
	}
	if name && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") == "" || !m.in(text) {
		return lit
	}
	was := text
	if b, err := base64.StdEncoding.Strict().DecodeString(text); err == nil && len(b) > 0 {
		if m.fixed(b, len(b)) {
			text = base64.StdEncoding.EncodeToString(b)
		}
	}
	if text == was {
		text = m.text(text)
	}
	if text == was {
		return lit
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(text) != nil {
		return lit // no such text
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// needlessEscape: an ordinary character is written as \u00XX, which no encoder of
// ours does, so the text may say more than it shows.
func needlessEscape(raw []byte) bool {
	for {
		i := bytes.Index(raw, []byte(`\u00`))
		if i < 0 || len(raw) < i+6 {
			return false
		}
		if c := raw[i+4]; c >= '2' && c <= '7' {
			return true
		}
		raw = raw[i+6:]
	}
}

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
	for _, value := range slices.Sorted(mapKeys(known)) {
		for _, f := range formsOf(value) {
			if len(f) >= window && !seen[f] {
				seen[f] = true
				m.forms = append(m.forms, form{f, "[key of " + known[value] + "]"})
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

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
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

// formsOf a value, longest first where it matters not which is found.
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

func (m *matcher) in(text any) bool {
	var f *form
	switch t := text.(type) {
	case string:
		_, _, f = find(m, t, 0)
	case []byte:
		_, _, f = find(m, t, 0)
	case json.RawMessage:
		_, _, f = find(m, []byte(t), 0)
	}
	return f != nil
}

// text replaces what is found by its mark, or a shorter one where that is longer.
func (m *matcher) text(text string) string {
	var b strings.Builder
	at := 0
	for {
		from, to, f := find(m, text, at)
		if f == nil {
			b.WriteString(text[at:])
			return b.String()
		}
		b.WriteString(text[at:from])
		if to-from >= len(f.mark) {
			b.WriteString(f.mark)
		} else {
			b.WriteString(shortMark)
		}
		at = to
	}
}

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
