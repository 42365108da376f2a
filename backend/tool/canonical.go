package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"glasshouse/backend/domain"
)

const (
	// MaxArgs caps the arguments of one call, in bytes of JSON.
	MaxArgs  = 9 << 20
	maxDepth = 64
)

// Canonical puts JSON into the one form of RFC 8785: sorted keys, no spaces,
// numbers and strings written in one way. What has no such form is refused: a key
// that comes twice, bytes that are no UTF-8, numbers that would change when they are
// read (9007199254740993, 1e999), nesting past 64.
func Canonical(raw []byte) (json.RawMessage, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return encode(v), nil
}

func decode(raw []byte) (any, error) {
	fail := func(pointer, what string, err error) error {
		e := domain.E(domain.CodeInvalid, what, "send one JSON value", err)
		e.Pointer = pointer
		return e
	}
	if len(raw) > MaxArgs {
		return nil, domain.E(domain.CodeTooLarge, fmt.Sprintf("The JSON has %d bytes, at most %d are taken", len(raw), MaxArgs), "write large content in parts", nil)
	}
	if !utf8.Valid(raw) {
		return nil, fail("", "The JSON is not valid UTF-8", nil)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decodeValue(d, "", 0)
	if err == nil {
		if _, extra := d.Token(); extra != io.EOF {
			err = fmt.Errorf("there is more after the value")
		}
	}
	if err != nil {
		var p *pointed
		if !errors.As(err, &p) {
			p = &pointed{err: err}
		}
		return nil, fail(p.at, "The JSON cannot be read", p.err)
	}
	return v, nil
}

type pointed struct {
	at  string
	err error
}

func (p *pointed) Error() string { return p.err.Error() }

// object keeps members in canonical order.
type object []member

type member struct {
	key   string
	value any
}

func decodeValue(d *json.Decoder, at string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, &pointed{at, fmt.Errorf("it is nested deeper than %d", maxDepth)}
	}
	tok, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, &pointed{at, err}
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := decodeValue(d, at+"/"+strconv.Itoa(len(list)), depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			if _, err := d.Token(); err != nil {
				return nil, &pointed{at, err}
			}
			return list, nil
		}
		obj := object{}
		seen := map[string]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, &pointed{at, err}
			}
			name, ok := key.(string)
			if !ok {
				return nil, &pointed{at, fmt.Errorf("a key is no string")}
			}
			sub := at + "/" + escapePointer(name)
			if seen[name] {
				return nil, &pointed{sub, fmt.Errorf("the key %q comes twice", name)}
			}
			seen[name] = true
			v, err := decodeValue(d, sub, depth+1)
			if err != nil {
				return nil, err
			}
			obj = append(obj, member{name, v})
		}
		if _, err := d.Token(); err != nil {
			return nil, &pointed{at, err}
		}
		sort.Slice(obj, func(i, j int) bool { return lessUTF16(obj[i].key, obj[j].key) })
		return obj, nil
	case json.Number:
		f, err := t.Float64()
		if err != nil || math.IsInf(f, 0) {
			return nil, &pointed{at, fmt.Errorf("the number %s is out of range", cutText(t.String(), 40))}
		}
		if !strings.ContainsAny(t.String(), ".eE") && math.Abs(f) >= 1<<53 && number(f) != t.String() {
			return nil, &pointed{at, fmt.Errorf("the integer %s is too large to be exact: send it as a string", cutText(t.String(), 40))}
		}
		return f, nil
	}
	return tok, nil // string, bool, nil
}

// lessUTF16 orders keys by UTF-16 code units, as RFC 8785 wants.
func lessUTF16(a, b string) bool {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))) < 0
}

func encode(v any) json.RawMessage {
	var b bytes.Buffer
	encodeValue(&b, v)
	return b.Bytes()
}

func encodeValue(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case float64:
		b.WriteString(number(v))
	case string:
		encodeString(b, v)
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			encodeValue(b, e)
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			encodeString(b, m.key)
			b.WriteByte(':')
			encodeValue(b, m.value)
		}
		b.WriteByte('}')
	}
}

// number writes a float as ECMAScript does.
func number(f float64) string {
	if f == 0 {
		return "0" // also -0
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	sign := exp[:1]
	return mantissa + "e" + sign + strings.TrimLeft(exp[1:], "0")
}

func encodeString(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			if r < 0x20 {
				fmt.Fprintf(b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
}

// plain turns the decoded form into what the schema validator takes.
func plain(v any) any {
	switch v := v.(type) {
	case float64:
		return json.Number(number(v))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case object:
		out := make(map[string]any, len(v))
		for _, m := range v {
			out[m.key] = plain(m.value)
		}
		return out
	}
	return v
}

// Digest is what an approval is bound to: the tool, its canonical arguments, the
// working folder, the names of the variables that are set, and the version of the
// policy that was asked. The executor computes it again before it runs anything.
func Digest(tool string, args json.RawMessage, dir string, envNames []string, policyVersion string) string {
	env := make([]any, 0, len(envNames))
	sorted := slices.Clone(envNames)
	slices.Sort(sorted)
	for _, n := range slices.Compact(sorted) {
		env = append(env, n)
	}
	h := sha256.New()
	h.Write([]byte("glasshouse call 1\n"))
	h.Write(encode([]any{tool, string(args), dir, env, policyVersion}))
	return hex.EncodeToString(h.Sum(nil))
}

func escapePointer(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// cutText shortens s to at most n bytes, at a rune's start, with an ellipsis.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
