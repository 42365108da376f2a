package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Schema makes of the schema of a tool's arguments one that servers take. They refuse a
// request, with all its tools, for one schema that is put together of others at its top
// (OpenAI, Anthropic), that bounds a text or list far up (llama.cpp, which makes a
// grammar of it) or that has a pattern of the wrong dialect (OpenAI, llama.cpp). What
// the top said is said in words; bounds are left out, for whoever takes the call checks
// it by the whole schema and says what is wrong. The order of what is left stays, for
// models read it.
func Schema(raw json.RawMessage) json.RawMessage {
	top, ok := members(raw)
	if !ok {
		return raw
	}
	hint := ""
	var out []member
	for _, m := range top {
		switch m.key {
		case "oneOf", "anyOf":
			hint = joinWords(hint, eitherWords(m.key, m.val))
		case "allOf", "not", "if", "then", "else", "enum", "const", "$schema":
		default:
			out = append(out, m)
		}
	}
	if hint != "" {
		i := slices.IndexFunc(out, func(m member) bool { return m.key == "description" })
		if i < 0 {
			out = append(out, member{"description", quoted(hint)})
		} else {
			out[i].val = quoted(joinWords(textOf(out[i].val), hint))
		}
	}
	return simple(object(out))
}

// bounds that only whoever takes the call needs.
var bounds = []string{"minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties", "pattern", "propertyNames", "format"}

// mostMinItems is the most items that a list may be asked to have at least.
const mostMinItems = 10

// PlainSchema makes of a schema one in the few words that Gemini's servers know. What
// they do not know they refuse, with the whole request.
func PlainSchema(raw json.RawMessage) json.RawMessage {
	return plain(Schema(raw))
}

var plainWords = []string{"type", "title", "description", "nullable", "enum", "items", "properties", "required", "minItems", "minimum", "maximum", "anyOf"}

func plain(raw json.RawMessage) json.RawMessage {
	in, ok := members(raw)
	if !ok {
		return raw
	}
	has := func(key string) bool { return slices.ContainsFunc(in, func(m member) bool { return m.key == key }) }
	var out []member
	for _, m := range in {
		switch m.key {
		case "oneOf":
			m.key = "anyOf"
		case "const":
			m.key, m.val = "enum", list([]json.RawMessage{m.val})
		case "exclusiveMinimum", "exclusiveMaximum":
			m.key = "m" + strings.TrimPrefix(m.key, "exclusiveM")
			if has(m.key) {
				continue
			}
		case "type":
			// A list of types becomes the first, that may be null.
			var many []string
			if json.Unmarshal(m.val, &many) == nil {
				one := slices.DeleteFunc(slices.Clone(many), func(t string) bool { return t == "null" })
				if len(one) == 0 {
					continue
				}
				if len(one) < len(many) {
					out = append(out, member{"nullable", json.RawMessage("true")})
				}
				m.val = quoted(one[0])
			}
		}
		if !slices.Contains(plainWords, m.key) {
			continue
		}
		switch m.key {
		case "items":
			m.val = plain(m.val)
		case "properties":
			ps, _ := members(m.val)
			for i := range ps {
				ps[i].val = plain(ps[i].val)
			}
			m.val = object(ps)
		case "anyOf":
			var all []json.RawMessage
			_ = json.Unmarshal(m.val, &all)
			for i := range all {
				all[i] = plain(all[i])
			}
			m.val = list(all)
		case "enum": // of words alone
			var all []string
			if json.Unmarshal(m.val, &all) != nil {
				continue
			}
		}
		out = append(out, m)
	}
	return object(out)
}

// simple leaves the bounds out of a schema, and adds the type of what lists its values
// without one, which not all servers take.
func simple(raw json.RawMessage) json.RawMessage {
	in, ok := members(raw)
	if !ok {
		return raw
	}
	untyped, words := true, false
	var out []member
	for _, m := range in {
		switch m.key {
		case "minItems":
			var n float64
			if json.Unmarshal(m.val, &n) != nil || n > mostMinItems {
				continue
			}
		case "type", "$ref":
			untyped = false
		case "enum":
			var all []string
			words = json.Unmarshal(m.val, &all) == nil && len(all) > 0
		case "items", "additionalProperties":
			m.val = simple(m.val)
		case "oneOf", "anyOf", "allOf":
			untyped = false
			var all []json.RawMessage
			if json.Unmarshal(m.val, &all) == nil {
				for i := range all {
					all[i] = simple(all[i])
				}
				m.val = list(all)
			}
		case "properties":
			if ps, ok := members(m.val); ok {
				for i := range ps {
					ps[i].val = simple(ps[i].val)
				}
				m.val = object(ps)
			}
		}
		if !slices.Contains(bounds, m.key) {
			out = append(out, m)
		}
	}
	if untyped && words {
		out = append([]member{{"type", json.RawMessage(`"string"`)}}, out...)
	}
	return object(out)
}

// eitherWords says what alternatives ask for that are lists of required arguments.
func eitherWords(key string, raw json.RawMessage) string {
	var all []struct {
		Required []string `json:"required"`
	}
	if json.Unmarshal(raw, &all) != nil {
		return ""
	}
	var names []string
	for _, a := range all {
		if len(a.Required) == 0 {
			return ""
		}
		names = append(names, strings.Join(a.Required, " and "))
	}
	if key == "oneOf" {
		return "Give exactly one of: " + strings.Join(names, "; ") + "."
	}
	return "Give at least one of: " + strings.Join(names, "; ") + "."
}

func joinWords(a, b string) string { return strings.TrimSpace(a + " " + b) }

func textOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // no text is as good as none
	return s
}

// member of a JSON object, in its place.
type member struct {
	key string
	val json.RawMessage
}

func members(raw json.RawMessage) (out []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		t, err := d.Token()
		key, isKey := t.(string)
		var v json.RawMessage
		if err != nil || !isKey || d.Decode(&v) != nil {
			return nil, false
		}
		var small bytes.Buffer
		if json.Compact(&small, v) != nil { // spaces cost tokens each time
			return nil, false
		}
		out = append(out, member{key, small.Bytes()})
	}
	return out, true
}

func object(ms []member) json.RawMessage {
	b := []byte{'{'}
	for i, m := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(m.key)...), ':'), m.val...)
	}
	return append(b, '}')
}

func list(all []json.RawMessage) json.RawMessage {
	return append(append([]byte{'['}, bytes.Join(rawBytes(all), []byte{','})...), ']')
}

func rawBytes(all []json.RawMessage) [][]byte {
	out := make([][]byte, len(all))
	for i, r := range all {
		out[i] = r
	}
	return out
}

// quoted is a text as JSON, without the escapes for HTML.
func quoted(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return json.RawMessage(strconv.Quote(""))
	}
	return bytes.TrimSpace(b.Bytes())
}
