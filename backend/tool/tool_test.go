package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/policy"
)

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                       `{}`,
		` { "b" : 1 , "a" : [ true , null ] } `:    `{"a":[true,null],"b":1}`,
		`{"a":{"z":1,"y":{"d":1,"c":2}}}`:          `{"a":{"y":{"c":2,"d":1},"z":1}}`,
		`[1.0, 1e0, 100e-2, 10E-1]`:                `[1,1,1,1]`,
		`[-0, 0.0, -0.0]`:                          `[0,0,0]`,
		`[123456789012345680001]`:                  ``, // the integer is not exact
		`[1e21, 1e20, 1.5e300, 1e-7, 1e-6]`:        `[1e+21,100000000000000000000,1.5e+300,1e-7,0.000001]`,
		`[9007199254740991, -9007199254740991]`:    `[9007199254740991,-9007199254740991]`,
		`[9007199254740993]`:                       ``,
		`[9007199254740992, 240141165090182080]`:   `[9007199254740992,240141165090182080]`,
		`[1e999]`:                                  ``,
		`"\u0041\u00e9\/\ud83d\ude00"`:             `"Aé/😀"`,
		"\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"": "\"\\b\\f\\n\\r\\t\\u0001\\u001f\u007f\"",
		`"<>&\u2028"`:                              "\"<>&\u2028\"",
		"{\"\u20ac\":1,\"\\r\":2,\"\ufb33\":3,\"1\":4,\"\U0001f600\":5,\"\u0080\":6,\"\u00f6\":7}": "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"\u00f6\":7,\"\u20ac\":1,\"\U0001f600\":5,\"\ufb33\":3}",
		`{"a":1,"a":2}`:      ``,
		`{"a":1,"\u0061":2}`: ``,
		`{"a":1}{"b":2}`:     ``,
		`{"a":1} x`:          ``,
		`{"a":1`:             ``,
		`[1,]`:               ``,
		`{a:1}`:              ``,
		`nul`:                ``,
		``:                   ``,
		"\"\xff\"":           ``,
		`NaN`:                ``,
		`01`:                 ``,
	} {
		got, err := Canonical([]byte(in))
		if want == "" {
			if domain.CodeOf(err) != domain.CodeInvalid {
				t.Errorf("%q: %s, %v", in, got, err)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%q: %s (%v), want %s", in, got, err, want)
		}
	}
	if _, err := Canonical([]byte(strings.Repeat("[", 100000) + strings.Repeat("]", 100000))); domain.CodeOf(err) != domain.CodeInvalid {
		t.Error("deep nesting:", err)
	}
	if _, err := Canonical(bytes.Repeat([]byte(" "), MaxArgs+1)); domain.CodeOf(err) != domain.CodeTooLarge {
		t.Error("size:", err)
	}
	_, err := Canonical([]byte(`{"a":{"b/c":[0,1e999]}}`))
	var e *domain.Error
	if !errors.As(err, &e) || e.Pointer != "/a/b~1c/1" {
		t.Errorf("%+v", err)
	}
}

// The same values in any order and spelling have one form, and it is stable.
func TestCanonicalProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	var gen func(depth int) any
	gen = func(depth int) any {
		switch k := rnd.IntN(7); {
		case k == 0:
			return nil
		case k == 1:
			return rnd.IntN(2) == 0
		case k == 2:
			return math.Float64frombits(rnd.Uint64()&^(0x7ff<<52) | uint64(rnd.IntN(1800)+100)<<52)
		case k == 3:
			return rnd.Int64N(1<<53) - 1<<52
		case k == 4 || depth > 3:
			return string([]rune{rune(rnd.IntN(0xd000)), rune(rnd.IntN(128)), 0x1f600})
		case k == 5:
			var l []any
			for range rnd.IntN(4) {
				l = append(l, gen(depth+1))
			}
			return l
		}
		m := map[string]any{}
		for range rnd.IntN(5) {
			m[fmt.Sprintf("%c%d", rune(rnd.IntN(0xd000)), rnd.IntN(9))] = gen(depth + 1)
		}
		return m
	}
	for range 500 {
		v := gen(0)
		a, _ := json.Marshal(v)
		b, _ := json.MarshalIndent(v, " ", "\t")
		ca, err1 := Canonical(a)
		cb, err2 := Canonical(b)
		if err1 != nil || err2 != nil || !bytes.Equal(ca, cb) {
			t.Fatalf("%s\n%s %v\n%s %v", a, ca, err1, cb, err2)
		}
		again, err := Canonical(ca)
		if err != nil || !bytes.Equal(again, ca) {
			t.Fatalf("not stable: %s %s %v", ca, again, err)
		}
		var back, orig any
		if json.Unmarshal(ca, &back) != nil || json.Unmarshal(a, &orig) != nil || fmt.Sprint(back) != fmt.Sprint(orig) {
			t.Fatalf("a value changed: %s %s", a, ca)
		}
	}
}

func TestDigest(t *testing.T) {
	base := Digest("exec", json.RawMessage(`{"a":1}`), "/workspace", []string{"A", "B"}, "v1")
	if base != Digest("exec", json.RawMessage(`{"a":1}`), "/workspace", []string{"B", "A", "A"}, "v1") {
		t.Error("the order of names counts")
	}
	for name, d := range map[string]string{
		"tool":   Digest("exec2", json.RawMessage(`{"a":1}`), "/workspace", []string{"A", "B"}, "v1"),
		"args":   Digest("exec", json.RawMessage(`{"a":2}`), "/workspace", []string{"A", "B"}, "v1"),
		"dir":    Digest("exec", json.RawMessage(`{"a":1}`), "/tmp", []string{"A", "B"}, "v1"),
		"env":    Digest("exec", json.RawMessage(`{"a":1}`), "/workspace", []string{"A"}, "v1"),
		"env2":   Digest("exec", json.RawMessage(`{"a":1}`), "/workspace", []string{"A,B"}, "v1"),
		"policy": Digest("exec", json.RawMessage(`{"a":1}`), "/workspace", []string{"A", "B"}, "v2"),
		"moved":  Digest("exec", json.RawMessage(`{"a":1}`), "", []string{"/workspace", "A", "B"}, "v1"),
	} {
		if d == base {
			t.Errorf("%s does not count", name)
		}
	}
}

func nop(context.Context, Call) (Result, error) { return Result{}, nil }

func sample(name string) Tool {
	return Tool{Name: name, Description: "d", Reach: domain.ReachMachine, Handler: nop, Schema: json.RawMessage(`{
		"type":"object","required":["argv"],"additionalProperties":false,
		"properties":{"argv":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":3},"mode":{"enum":["a","b"]},
		"n":{"type":"integer","minimum":1,"maximum":9},"s":{"type":"string","pattern":"^x","maxLength":5},
		"env":{"type":"object","additionalProperties":{"type":"string"}}}}`)}
}

func TestPrepareSaysWhatIsWrong(t *testing.T) {
	r, err := NewRegistry(sample("run"))
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][]Problem{
		`{"argv":"ls"}`:                   {{"/argv", "array", `the string "ls"`}},
		`{"argv":[]}`:                     {{"/argv", "at least 1 items", "0"}},
		`{"argv":["a","b","c","d"]}`:      {{"/argv", "at most 3 items", "4"}},
		`{"argv":["a",2]}`:                {{"/argv/1", "string", "the number 2"}},
		`{}`:                              {{"/argv", "a value (it is required)", "nothing"}},
		``:                                {{"/argv", "a value (it is required)", "nothing"}},
		`null`:                            {{"/argv", "a value (it is required)", "nothing"}},
		`[]`:                              {{"", "object", "an array of 0 items"}},
		`"{\"argv\":[\"ls\"]}"`:           {{"", "object", `the string "{\"argv\":[\"ls\"]}"`}},
		`{"argv":["a"],"argz":1}`:         {{"/argz", "no such property", "the number 1"}},
		`{"argv":["a"],"mode":"c"}`:       {{"/mode", `one of the string "a", the string "b"`, `the string "c"`}},
		`{"argv":["a"],"n":0}`:            {{"/n", "at least 1", "the number 0"}},
		`{"argv":["a"],"n":1.5}`:          {{"/n", "integer", "the number 1.5"}},
		`{"argv":["a"],"n":"1"}`:          {{"/n", "integer", `the string "1"`}},
		`{"argv":["a"],"s":"y"}`:          {{"/s", "a text that matches ^x", `the string "y"`}},
		`{"argv":["a"],"env":{"A/B":1}}`:  {{"/env/A~1B", "string", "the number 1"}},
		`{"argv":["a"],"env":{"A":null}}`: {{"/env/A", "string", "null"}},
	} {
		_, err := r.Prepare("run", json.RawMessage(in))
		var e *domain.Error
		var a *ArgsError
		if !errors.As(err, &e) || e.Code != domain.CodeInvalid || !errors.As(err, &a) {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if fmt.Sprint(a.Problems) != fmt.Sprint(want) || e.Pointer != want[0].Pointer {
			t.Errorf("%s: %q at %q, want %q", in, a.Problems, e.Pointer, want)
		}
		if !strings.Contains(e.Hint, "argv (array)") || !strings.Contains(e.Hint, "mode (any, optional)") && !strings.Contains(e.Hint, "mode") {
			t.Errorf("%s: the hint does not say what is taken: %s", in, e.Hint)
		}
	}
	// Never more than ten, and the rest is counted.
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf(`"x%d":%d`, i, i))
	}
	_, err = r.Prepare("run", json.RawMessage(`{"argv":["a"],`+strings.Join(many, ",")+`}`))
	var a *ArgsError
	if !errors.As(err, &a) || len(a.Problems) != 10 || a.More != 30 || len(err.Error()) > 4000 {
		t.Errorf("%v", err)
	}
	if _, err := r.Prepare("run", json.RawMessage(`{"argv":["a"],"argv":["rm"]}`)); domain.CodeOf(err) != domain.CodeInvalid {
		t.Error("two argv:", err)
	}
	long, _ := json.Marshal(map[string]any{"argv": []string{"a"}, "s": strings.Repeat("y", 1<<20)})
	if _, err := r.Prepare("run", long); err == nil || len(err.Error()) > 2000 {
		t.Error("a message as long as the input")
	}
}

func TestPrepare(t *testing.T) {
	s := sample("run")
	s.Title = func(raw json.RawMessage) string { return "Run\n" + string(raw) + "\x1b[2J\u202e" }
	s.Action = func(raw json.RawMessage) policy.Action {
		return policy.Action{Argv: []string{"x"}, Tool: "other", Reach: domain.ReachRead, Env: map[string]string{"A": "1"}, Dir: "/d"}
	}
	r, err := NewRegistry(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Prepare("run", json.RawMessage(` {"n": 1.0, "argv": ["ls"]} `))
	if err != nil {
		t.Fatal(err)
	}
	if string(p.Args) != `{"argv":["ls"],"n":1}` || p.Title != `Run {"argv":["ls"],"n":1}<U+001B>[2J<U+202E>` {
		t.Errorf("%s %q", p.Args, p.Title)
	}
	if p.Action.Tool != "run" || p.Action.Reach != domain.ReachMachine || p.Action.Argv[0] != "x" {
		t.Errorf("a tool chose its own reach: %+v", p.Action)
	}
	if p.Digest("v") != Digest("run", p.Args, "/d", []string{"A"}, "v") {
		t.Error("digest")
	}
	if len(p.Detail) != 2 || p.Detail[1].Value != string(p.Args) {
		t.Error(p.Detail)
	}
}

func TestUnknownTool(t *testing.T) {
	r, err := NewRegistry(sample("read"), sample("write"), sample("browser_open"), sample("browser_click"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"raed": "did you mean read", "browser": "browser_", "Write": "did you mean write", "browser_opn": "browser_open", "zzzzzzzz": "the tools are: browser_click, browser_open, read, write"} {
		_, err := r.Get(name)
		if domain.CodeOf(err) != domain.CodeNotFound || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Prepare(strings.Repeat("x", 1<<20), nil); err == nil || len(err.Error()) > 1000 {
		t.Error("a name as long as the input comes back")
	}
}

func TestAddRefuses(t *testing.T) {
	r, _ := NewRegistry(sample("run"))
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fn := range map[string]func(*Tool){
		"again":       func(t *Tool) { t.Name = "run" },
		"capitals":    func(t *Tool) { t.Name = "Run" },
		"long":        func(t *Tool) { t.Name = strings.Repeat("a", 65) },
		"no text":     func(t *Tool) { t.Description = "" },
		"no handler":  func(t *Tool) { t.Handler = nil },
		"reach":       func(t *Tool) { t.Reach = "moon" },
		"no schema":   func(t *Tool) { t.Schema = nil },
		"no object":   func(t *Tool) { t.Schema = json.RawMessage(`{"type":"string"}`) },
		"bad schema":  func(t *Tool) { t.Schema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"strin"}}}`) },
		"bad pattern": func(t *Tool) { t.Schema = json.RawMessage(`{"type":"object","properties":{"a":{"pattern":"("}}}`) },
		"a file":      func(t *Tool) { t.Schema = json.RawMessage(`{"type":"object","$ref":"file://` + file + `"}`) },
		"a host":      func(t *Tool) { t.Schema = json.RawMessage(`{"type":"object","$ref":"https://schema.example/x"}`) },
	} {
		s := sample("other")
		fn(&s)
		if err := r.Add(s); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(r.List()) != 1 {
		t.Error("something was added")
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"\u00e9"]}`, `{"a":1,"a":2}`, `[[[[]]]]`, `"\ud800"`, `-0`, `1e400`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := Canonical(in)
		if err != nil {
			return
		}
		again, err := Canonical(c)
		if err != nil || !bytes.Equal(c, again) {
			t.Fatalf("%q -> %q -> %q %v", in, c, again, err)
		}
	})
}
