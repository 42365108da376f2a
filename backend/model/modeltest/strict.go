package modeltest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// refusal is a request that a real server would not take.
type refusal struct {
	kind    string // as of Fail
	param   string
	message string
	code    string // OpenAI's, where it has one
}

// parser reads requests strictly. Its methods leave by panicking with a *refusal,
// which reading turns into an answer.
type parser struct{}

func (parser) refuse(param, format string, args ...any) {
	panic(&refusal{kind: "invalid", param: param, message: fmt.Sprintf(format, args...)})
}

// reading runs f and returns the refusal that ended it.
func reading(f func() *Asked) (a *Asked, bad *refusal) {
	defer func() {
		if r := recover(); r != nil {
			var ok bool
			if bad, ok = r.(*refusal); !ok {
				panic(r)
			}
		}
	}()
	return f(), nil
}

type object map[string]json.RawMessage

// object decodes one that has no keys but the allowed ones.
func (p parser) object(raw json.RawMessage, at string, allowed ...string) object {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil || o == nil {
		p.refuse(at, "%s: expected an object", at)
	}
	for k := range o {
		if !slices.Contains(allowed, k) {
			p.refuse(at, "%s.%s: Extra inputs are not permitted", at, k)
		}
	}
	return o
}

func (p parser) list(raw json.RawMessage, at string) []json.RawMessage {
	var l []json.RawMessage
	if err := json.Unmarshal(raw, &l); err != nil || l == nil {
		p.refuse(at, "%s: expected a list", at)
	}
	return l
}

func (p parser) text(raw json.RawMessage, at string) string {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		p.refuse(at, "%s: expected a string", at)
	}
	return *s
}

func (p parser) number(raw json.RawMessage, at string) int64 {
	var n *int64
	if err := json.Unmarshal(raw, &n); err != nil || n == nil {
		p.refuse(at, "%s: expected a whole number", at)
	}
	return *n
}

func (p parser) bool(raw json.RawMessage, at string) bool {
	var b *bool
	if err := json.Unmarshal(raw, &b); err != nil || b == nil {
		p.refuse(at, "%s: expected true or false", at)
	}
	return *b
}

// need returns a key that must be there.
func (p parser) need(o object, key, at string) json.RawMessage {
	v, ok := o[key]
	if !ok {
		p.refuse(join(at, key), "%s: Field required", join(at, key))
	}
	return v
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// isObject reports whether a text is one JSON object.
func isObject(s string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(s), &o) == nil && o != nil
}

// schema checks the JSON Schema of a tool's arguments.
func (p parser) schema(raw json.RawMessage, at, tool string) {
	if why := schemaFault(raw); why != "" {
		p.refuse(at, "Invalid schema for function '%s': %s", tool, why)
	}
}

// The same few schemas come with each request.
var schemas sync.Map // text → what is wrong with it

func schemaFault(raw json.RawMessage) string {
	if why, ok := schemas.Load(string(raw)); ok {
		return why.(string)
	}
	why := checkSchema(raw)
	schemas.Store(string(raw), why)
	return why
}

func checkSchema(raw json.RawMessage) string {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return "it is no JSON"
	}
	o, ok := doc.(map[string]any)
	if !ok || o["type"] != "object" {
		return `schema must be a JSON Schema of 'type: "object"'`
	}
	for _, k := range []string{"oneOf", "anyOf", "allOf", "enum", "not"} {
		if _, ok := o[k]; ok { // refused by OpenAI and Anthropic alike
			return "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"
		}
	}
	if grammarTooLarge(doc) {
		return "Failed to initialize samplers: failed to parse grammar"
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///schema.json", doc); err != nil {
		return err.Error()
	}
	if _, err := c.Compile("mem:///schema.json"); err != nil {
		return err.Error()
	}
	return ""
}

// grammarTooLarge reports whether llama.cpp would make no grammar of a schema: it repeats
// nothing so often.
func grammarTooLarge(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if n, ok := x.(json.Number); ok && slices.Contains([]string{"minLength", "maxLength", "minItems", "maxItems"}, k) {
				if f, err := n.Float64(); err == nil && f >= 2000 {
					return true
				}
			}
			if grammarTooLarge(x) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, grammarTooLarge)
	}
	return false
}

// image checks the bytes of a picture against its type.
func (p parser) picture(media, data, at string) []byte {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(b) == 0 {
		p.refuse(at, "%s: invalid base64 data", at)
	}
	if got := http.DetectContentType(b); got != media || !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, got) {
		p.refuse(at, "%s: the image was specified using the %s media type, but appears to be %s", at, media, got)
	}
	return b
}

var dataURL = regexp.MustCompile(`^data:([a-z]+/[a-z]+);base64,`)

func (p parser) pictureURL(u, at string) []byte {
	m := dataURL.FindStringSubmatch(u)
	if m == nil {
		p.refuse(at, "%s: expected a base64-encoded data URL with an image type", at)
	}
	return p.picture(m[1], strings.TrimPrefix(u, m[0]), at)
}

// seal is the signature of a thought: whoever holds the text cannot make it, and this
// server knows its own also after it was started anew.
func seal(thought string) string {
	h := hmac.New(sha256.New, []byte("a thought of modeltest"))
	h.Write([]byte(thought))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func compile(re string) *regexp.Regexp { return regexp.MustCompile(re) }
