package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
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
	known map[string]string // value → what stands in its place
	now   atomic.Pointer[matcher]
}

// Hide returns a text without one secret, in whose place "[key]" stands. Secrets
// below MinValue are taken out in plain alone, and below 4 bytes not at all.
func Hide(text, value string) string {
	switch {
	case len(value) < 4:
		return text
	case len(value) < MinValue:
		return strings.ReplaceAll(text, value, shortMark)
	}
	m := newMatcher(map[string]string{value: shortMark})
	if !found(m, text) && !escaped(text) {
		return text
	}
	return m.text(text)
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
	s.known[value] = markBegin + plainName(name) + "]"
	s.now.Store(newMatcher(s.known))
	return true
}

// Marked reports whether a Scrubber has taken a value out of a text, so that it is no
// longer what it was. Where a value is shorter than its mark that cannot be seen.
func Marked(text []byte) bool { return bytes.Contains(text, []byte(markBegin)) }

const markBegin = "[key of "

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
	if m == nil || !found(m, text) && !escaped(text) {
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
	if m == nil || len(raw) < MinValue || !found(m, []byte(raw)) && !escaped(raw) {
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
	if name && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") == "" || !found(m, text) && !escaped(text) {
		return lit
	}
	was := text
	if b, err := base64.StdEncoding.Strict().DecodeString(text); err == nil && len(b) > 0 {
		if m.fixed(b, len(b)) {
			text = base64.StdEncoding.EncodeToString(b)
		}
	}
	if text == was {
		if text = m.text(text); text == was {
			return lit
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(text) != nil {
		return lit // no such text
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// escaped: something in text is written as %XX, or an ordinary character as \u00XX.
// The text may then say more than it shows.
func escaped[T string | []byte | json.RawMessage](text T) bool {
	for i := 0; i+2 < len(text); i++ {
		switch text[i] {
		case '%':
			if _, ok := hexByte(text[i+1], text[i+2]); ok {
				return true
			}
		case '\\':
			if i+5 < len(text) && text[i+1] == 'u' && text[i+2] == '0' && text[i+3] == '0' && text[i+4] >= '2' && text[i+4] <= '7' {
				return true
			}
		}
	}
	return false
}

func hexByte(a, b byte) (byte, bool) {
	var out [1]byte
	_, err := hex.Decode(out[:], []byte{a, b})
	return out[0], err == nil
}

// unescaped is a text without its escapes, and where each byte of it begins; the last
// place is the end.
func unescaped(text string) (plain []byte, at []int) {
	for i := 0; i < len(text); {
		c, n := text[i], 1
		switch {
		case c == '%' && i+2 < len(text):
			if x, ok := hexByte(text[i+1], text[i+2]); ok {
				c, n = x, 3
			}
		case c == '\\' && i+5 < len(text) && text[i+1:i+4] == "u00":
			if x, ok := hexByte(text[i+4], text[i+5]); ok {
				c, n = x, 6
			}
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`"\/`, text[i+1]) >= 0:
			c, n = text[i+1], 2
		}
		plain, at = append(plain, c), append(at, i)
		i += n
	}
	return plain, append(at, len(text))
}
