package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"glasshouse/backend/domain"
)

// maxProblems is how many problems of one call are reported.
const maxProblems = 10

// Problem is one place where arguments do not fit their schema.
type Problem struct {
	Pointer  string `json:"pointer"` // JSON pointer; "" = the arguments as a whole
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// ArgsError lists what is wrong with the arguments of a call.
type ArgsError struct {
	Tool     string
	Problems []Problem // 1 to 10
	More     int       // problems left out
}

func (e *ArgsError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		at := p.Pointer
		if at == "" {
			at = "the arguments"
		}
		fmt.Fprintf(&b, "%s: expected %s, got %s", at, p.Expected, p.Got)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "; and %d more", e.More)
	}
	return b.String()
}

// noLoader: a schema refers to nothing outside itself, least of all to files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema may not refer to %s", url)
}

func compileSchema(name string, raw json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return nil, err
	}
	if m, ok := doc.(map[string]any); !ok || m["type"] != "object" {
		return nil, errors.New(`the schema of arguments must have "type": "object"`)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	url := "tool:" + name
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	return c.Compile(url)
}

func (e *entry) validate(v any) error {
	err := e.schema.Validate(plain(v))
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return domain.E(domain.CodeInvalid, "The arguments of "+e.tool.Name+" cannot be checked", "", err)
	}
	args := &ArgsError{Tool: e.tool.Name}
	collect(ve, v, args)
	out := domain.E(domain.CodeInvalid, "The arguments of "+e.tool.Name+" do not fit", e.hint, args)
	out.Pointer = args.Problems[0].Pointer
	return out
}

func collect(ve *jsonschema.ValidationError, root any, out *ArgsError) {
	at := ""
	for _, t := range ve.InstanceLocation {
		at += "/" + escapePointer(t)
	}
	add := func(pointer, expected, got string) {
		for _, p := range out.Problems {
			if p.Pointer == pointer && p.Expected == expected {
				return
			}
		}
		if len(out.Problems) == maxProblems {
			out.More++
			return
		}
		out.Problems = append(out.Problems, Problem{pointer, expected, got})
	}
	got := func() string { return describe(lookup(root, ve.InstanceLocation)) }
	switch k := ve.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		// Which branch was meant is not known: say what each wants.
		sub := &ArgsError{}
		for _, c := range ve.Causes {
			collect(c, root, sub)
		}
		var want []string
		for _, p := range sub.Problems {
			w := p.Expected
			if p.Pointer != at {
				w += " at " + p.Pointer
			}
			want = append(want, w)
		}
		if len(want) == 0 {
			want = []string{"exactly one of the forms"}
		}
		add(at, strings.Join(want, " or "), got())
		return
	case *kind.Required:
		for _, m := range k.Missing {
			add(at+"/"+escapePointer(m), "a value (it is required)", "nothing")
		}
	case *kind.AdditionalProperties:
		for _, p := range k.Properties {
			add(at+"/"+escapePointer(p), "no such property", describe(lookup(root, append(append([]string{}, ve.InstanceLocation...), p))))
		}
	case *kind.FalseSchema:
		add(at, "no such property", got())
	case *kind.Type:
		add(at, strings.Join(k.Want, " or "), got())
	case *kind.Enum:
		var want []string
		for _, w := range k.Want {
			want = append(want, describe(w))
		}
		add(at, "one of "+strings.Join(want, ", "), got())
	case *kind.Const:
		add(at, describe(k.Want), got())
	case *kind.MinItems:
		add(at, fmt.Sprintf("at least %d items", k.Want), fmt.Sprintf("%d", k.Got))
	case *kind.MaxItems:
		add(at, fmt.Sprintf("at most %d items", k.Want), fmt.Sprintf("%d", k.Got))
	case *kind.MinLength:
		add(at, fmt.Sprintf("at least %d characters", k.Want), fmt.Sprintf("%d", k.Got))
	case *kind.MaxLength:
		add(at, fmt.Sprintf("at most %d characters", k.Want), fmt.Sprintf("%d", k.Got))
	case *kind.MaxProperties:
		add(at, fmt.Sprintf("at most %d properties", k.Want), fmt.Sprintf("%d", k.Got))
	case *kind.Minimum:
		add(at, "at least "+k.Want.RatString(), got())
	case *kind.Maximum:
		add(at, "at most "+k.Want.RatString(), got())
	case *kind.Pattern:
		add(at, "a text that matches "+k.Want, got())
	case *kind.UniqueItems:
		add(at, "no item twice", fmt.Sprintf("items %d and %d are the same", k.Duplicates[0], k.Duplicates[1]))
	default:
		if len(ve.Causes) == 0 {
			add(at, "what the schema says at "+strings.Join(ve.ErrorKind.KeywordPath(), "/"), got())
		}
	}
	for _, c := range ve.Causes {
		collect(c, root, out)
	}
}

func lookup(v any, path []string) any {
	for _, p := range path {
		switch t := v.(type) {
		case object:
			v = nil
			for _, m := range t {
				if m.key == p {
					v = m.value
				}
			}
		case []any:
			i := 0
			if _, err := fmt.Sscan(p, &i); err != nil || i < 0 || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

// describe shows a value in a few words.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "the string " + cutText(string(encode(v)), 60)
	case object:
		return fmt.Sprintf("an object of %d properties", len(v))
	case []any:
		return fmt.Sprintf("an array of %d items", len(v))
	case float64:
		return "the number " + number(v)
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(v)
}
