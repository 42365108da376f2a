package model

import (
	"encoding/json"
	"testing"
)

func TestSchema(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object","properties":{"b":{"type":"string"},"a":{"enum":["x","y"]}},"oneOf":[{"required":["a"]},{"required":["b","c"]}],"additionalProperties":false}`: `{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"string","enum":["x","y"]}},"additionalProperties":false,"description":"Give exactly one of: a; b and c."}`,
		`{"type":"object","description":"Old <b>.","anyOf":[{"required":["a"]},{"required":["b"]}]}`:                                                                     `{"type":"object","description":"Old <b>. Give at least one of: a; b."}`,
		`{"$schema":"x","type":"object","allOf":[{"a":1}],"not":{},"enum":[1],"if":{},"then":{}}`:                                                                        `{"type":"object"}`,
		`{"type":"object","anyOf":[{"properties":{"a":{}}}]}`:                                                                                                            `{"type":"object"}`,
		// What bounds a value is not for the model, nor what stands where it names nothing.
		`{"type":"object","properties":{"maxLength":{"type":"string","minLength":1,"maxLength":100000,"pattern":"^\\p{L}$"},"l":{"type":"array","minItems":1,"maxItems":4096,"uniqueItems":true,"items":{"type":"string","maxLength":2000}},` +
			`"e":{"type":"object","propertyNames":{"pattern":"x"},"additionalProperties":{"type":"string","maxLength":9},"maxProperties":4},"n":{"type":"integer","minimum":1,"maximum":5},"m":{"type":"array","minItems":4000}},"required":["l"]}`: `{"type":"object","properties":{"maxLength":{"type":"string"},"l":{"type":"array","minItems":1,"items":{"type":"string"}},"e":{"type":"object","additionalProperties":{"type":"string"}},"n":{"type":"integer","minimum":1,"maximum":5},"m":{"type":"array"}},"required":["l"]}`,
		// Below its top all else stays.
		`{"type":"object","properties":{"a":{"oneOf":[{"type":"string"},{"type":"integer"}]},"oneOf":{"type":"string"},"n":{"enum":[1,2]}}}`: `{"type":"object","properties":{"a":{"oneOf":[{"type":"string"},{"type":"integer"}]},"oneOf":{"type":"string"},"n":{"enum":[1,2]}}}`,
		"{ \"type\" : \"object\",\n\t\"required\": [ \"a\" ] }":                                                                              `{"type":"object","required":["a"]}`,
		`{}`: `{}`, ``: ``, `[1]`: `[1]`, `{"a":`: `{"a":`, `null`: `null`,
	} {
		if got := string(Schema(json.RawMessage(in))); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestPlainSchema(t *testing.T) {
	const in = `{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0,"multipleOf":2,"default":3},"both":{"type":"number","minimum":1,"exclusiveMinimum":0},
		"o":{"type":["string","null"],"format":"uri"},"c":{"const":"x"},"e":{"type":"object","additionalProperties":{"type":"string"},"propertyNames":{"pattern":"^a"},"maxProperties":4},
		"l":{"type":"array","uniqueItems":true,"items":{"oneOf":[{"type":"string","minLength":1},{"type":"object","additionalProperties":false}]}},"i":{"type":"integer","enum":[1,2]},"format":{"enum":["png"]}},
		"required":["n"],"oneOf":[{"required":["n"]}],"additionalProperties":false}`
	const want = `{"type":"object","properties":{"n":{"type":"integer","minimum":0},"both":{"type":"number","minimum":1},"o":{"nullable":true,"type":"string"},"c":{"enum":["x"]},` +
		`"e":{"type":"object"},"l":{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"object"}]}},"i":{"type":"integer"},"format":{"type":"string","enum":["png"]}},` +
		`"required":["n"],"description":"Give exactly one of: n."}`
	if got := string(PlainSchema(json.RawMessage(in))); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
