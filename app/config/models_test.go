package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

const canary = "sk-proj-Canary0123456789abcdefXYZ"

func modelsIn(t *testing.T, text string) Paths {
	t.Helper()
	p := Paths{Config: t.TempDir()}
	if err := os.WriteFile(p.ModelsFile(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

const oneModel = "[[model]]\nname = \"a\"\nformat = \"openai-chat\"\nmodel = \"m\"\n"

func TestLoadModels(t *testing.T) {
	p := modelsIn(t, `default = "claude"
# by the hour
[[model]]
name = "claude"
format = "anthropic"
model = "claude-x"
key_env = "ANTHROPIC_API_KEY"
effort = "high"
[model.price]
input = 3
output = 15.5

[[model]]
name = "qwen3-coder-30b-a3b-2507"
format = "openai-chat"
model = "qwen3:8b"
base_url = "http://127.0.0.1:11434/v1"
context = 32000
text_only = true
`)
	m, err := p.LoadModels()
	if err != nil {
		t.Fatal(err)
	}
	want := Models{Default: "claude", Models: []model.Config{
		{Name: "claude", Format: model.FormatMessages, Model: "claude-x", KeyEnv: "ANTHROPIC_API_KEY", Effort: "high", Price: &model.Price{Input: 3, Output: 15.5}},
		{Name: "qwen3-coder-30b-a3b-2507", Format: model.FormatChat, Model: "qwen3:8b", BaseURL: "http://127.0.0.1:11434/v1", Context: 32000, TextOnly: true},
	}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v", m)
	}
	for _, p := range []Paths{{Config: t.TempDir()}, {Config: filepath.Join(t.TempDir(), "none")}, modelsIn(t, "")} {
		if m, err := p.LoadModels(); err != nil || len(m.Models) != 0 {
			t.Errorf("%+v %v", m, err)
		}
	}
}

// What is wrong is said with the place and what to do, and never with a value that
// may be a key.
func TestLoadModelsIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"default = ": "line 1",
		"[[model]]\nname = \"a\"\nname = \"b\"\n": "line 3",
		"colour = 1\n":                                                `"colour" in line 1`,
		oneModel + "keyenv = \"X\"\n":                                 `"model.keyenv" in line 5`,
		oneModel + oneModel:                                           `two models are called "a"`,
		"default = \"b\"\n" + oneModel:                                `default "b"`,
		"[[model]]\nname = \"A b\"\n":                                 "model 1",
		oneModel + "context = 5\n":                                    `model "a": context is 5`,
		oneModel + "context = \"many\"\n":                             "line 5 (last key \"model.context\") cannot be read: TOML value has type string",
		oneModel + "format = 3\n":                                     "line 5",
		oneModel + "effort = \"most\"\n":                              "most",
		oneModel + "base_url = \"ftp://x\"\n":                         "base_url",
		oneModel + "price = { input = -1.0, output = 2.0 }\n":         "price input",
		oneModel + "price = { input = 1.0, output = 2.0, tax = 1 }\n": "tax",
		"model = 3\n":                                                 "",
		"[model]\nname = \"a\"\n":                                     "",
		"\xff":                                                        "",
		oneModel + "key = \"" + canary + "\"\n":                       "a key is written into it in line 5",
		oneModel + "api_key = \"" + canary + "\"\n":                   "a key is written into it in line 5",
		oneModel + "API-Key = '''" + canary + "'''\n":                 "a key is written into it in line 5",
		"key = \"" + canary + "\"\n" + oneModel:                       "a key is written into it in line 1",
		oneModel + "colour = 1\n[model.headers]\nAuthorization = \"Bearer " + canary + "\"\n": "a key is written into it",
		oneModel + "key = " + canary + "\n":                                                   "line 5",
		oneModel + "key_env = " + canary + "\n":                                               "line 5",
		oneModel + "key = \"" + canary + "\n":                                                 "line 5",
		oneModel + canary + " = 1\n":                                                          "a key is written into it",
		oneModel + "key_env = \"" + canary + "\"\n":                                           "key_env holds a key",
		oneModel + "key_env = \"AIzaSyCanary0123456789abcdefXYZcanary\"\n":                    "key_env holds a key",
		oneModel + "base_url = \"https://u:" + canary + "@h/v1\"\n":                           "base_url",
		oneModel + "base_url = \"https://h/v1?key=" + canary + "\"\n":                         "base_url",
		strings.Replace(oneModel, `"a"`, `"sk-proj-canary0123456789abcdef"`, 1):               "looks like a key",
		"default = \"" + canary + "\"\n" + oneModel:                                           "the default",
		oneModel + "model = \"" + canary + "\"\n":                                             "line 5",
		strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1100):                             "larger",
		strings.Repeat("[[model]]\n", 300):                                                    "300 models",
		oneModel + "max_output = 99999999999999999999\n":                                      "line 5",
		oneModel + "price = " + canary + "\n":                                                 "line 5",
		oneModel + "price = \"" + canary + "\"\n":                                             "",
	} {
		p := modelsIn(t, text)
		m, err := p.LoadModels()
		var e *domain.Error
		if !errors.As(err, &e) || e.Code != domain.CodeInvalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "models.toml") || e.Hint == "" {
			t.Errorf("%.200q: %v (%+v)", text, err, m)
			continue
		}
		if strings.Contains(strings.ToLower(err.Error()), "canary0123") {
			t.Errorf("the key is told: %v", err)
		}
		// It is not written over either.
		for _, err := range []error{p.SaveModel(model.Config{Name: "b", Format: model.FormatChat, Model: "m"}), p.DeleteModel("a"), p.SetDefaultModel("")} {
			if err == nil || strings.Contains(strings.ToLower(err.Error()), "canary0123") {
				t.Errorf("%.100q: %v", text, err)
			}
		}
		if got, _ := os.ReadFile(p.ModelsFile()); string(got) != text {
			t.Errorf("%.100q became %.100q", text, got)
		}
	}
	d := Paths{Config: t.TempDir()}
	if err := os.Mkdir(d.ModelsFile(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.LoadModels(); domain.CodeOf(err) != domain.CodeInvalid {
		t.Errorf("a folder: %v", err)
	}
}

func TestSaveModelKeepsWhatIsNotChanged(t *testing.T) {
	const file = `# my models

default = "a" # the cheap one

# fast
[[model]] # one
name = "a"
format = "openai-chat" # chat
  model = "m1"   # small
# why this one
base_url = 'http://127.0.0.1:1/v1'

# slow
[[model]]
name = "b"
format = "anthropic"
model = "m2"
# what it costs
[model.price] # dollars
input = 3 # in
output = 15.0 # out

# the end
`
	a := model.Config{Name: "a", Format: model.FormatChat, Model: "m1", BaseURL: "http://127.0.0.1:1/v1"}
	b := model.Config{Name: "b", Format: model.FormatMessages, Model: "m2", Price: &model.Price{Input: 3, Output: 15}}
	with := func(c model.Config, f func(*model.Config)) model.Config {
		if c.Price != nil {
			p := *c.Price
			c.Price = &p
		}
		f(&c)
		return c
	}
	sub := func(old, new string, more ...string) string {
		return strings.NewReplacer(append([]string{old, new}, more...)...).Replace(file)
	}
	for name, tc := range map[string]struct {
		do    func(Paths) error
		after string
		want  Models
	}{
		"as it is": {func(p Paths) error { return p.SaveModel(a) }, file, Models{"a", []model.Config{a, b}}},
		"one value": {func(p Paths) error {
			return p.SaveModel(with(a, func(c *model.Config) { c.Model = `m "9"\` }))
		}, "", Models{}},
		"values": {func(p Paths) error {
			return p.SaveModel(with(a, func(c *model.Config) { c.Model, c.BaseURL, c.Context, c.TextOnly = "m9", "", 9000, true }))
		}, sub(`"m1"`, `"m9"`, "base_url = 'http://127.0.0.1:1/v1'\n", "context = 9000\ntext_only = true\n"),
			Models{"a", []model.Config{with(a, func(c *model.Config) { c.Model, c.BaseURL, c.Context, c.TextOnly = "m9", "", 9000, true }), b}}},
		"price": {func(p Paths) error {
			return p.SaveModel(with(b, func(c *model.Config) { c.Price.Output, c.Price.CacheRead = 20, 0.3 }))
		}, sub("15.0 # out", "20.0 # out\ncache_read = 0.3"), Models{"a", []model.Config{a, with(b, func(c *model.Config) { c.Price.Output, c.Price.CacheRead = 20, 0.3 })}}},
		"no price": {func(p Paths) error {
			return p.SaveModel(with(b, func(c *model.Config) { c.Price, c.Effort = nil, "low" }))
		},
			sub("# what it costs\n[model.price] # dollars\ninput = 3 # in\noutput = 15.0 # out\n", "effort = \"low\"\n# what it costs\n"), Models{"a", []model.Config{a, with(b, func(c *model.Config) { c.Price, c.Effort = nil, "low" })}}},
		"new": {func(p Paths) error {
			return p.SaveModel(model.Config{Name: "c", Format: model.FormatResponses, Model: "m3", Price: &model.Price{Input: 0.25, Output: 2}})
		}, file + "\n[[model]]\nname = \"c\"\nformat = \"openai-responses\"\nmodel = \"m3\"\nprice = { input = 0.25, output = 2.0 }\n",
			Models{"a", []model.Config{a, b, {Name: "c", Format: model.FormatResponses, Model: "m3", Price: &model.Price{Input: 0.25, Output: 2}}}}},
		"first gone": {func(p Paths) error { return p.DeleteModel("a") }, "# my models\n\n\n" + file[strings.Index(file, "# slow"):], Models{"", []model.Config{b}}},
		"last gone":  {func(p Paths) error { return p.DeleteModel("b") }, file[:strings.Index(file, "\n# slow")] + "\n# the end\n", Models{"a", []model.Config{a}}},
		"default":    {func(p Paths) error { return p.SetDefaultModel("b") }, sub(`default = "a"`, `default = "b"`), Models{"b", []model.Config{a, b}}},
		"no default": {func(p Paths) error { return p.SetDefaultModel("") }, sub("default = \"a\" # the cheap one\n", ""), Models{"", []model.Config{a, b}}},
	} {
		for _, nl := range []string{"\n", "\r\n"} {
			before := strings.ReplaceAll(file, "\n", nl)
			p := modelsIn(t, before)
			if err := os.Chmod(p.ModelsFile(), 0o640); err != nil {
				t.Fatal(err)
			}
			err := tc.do(p)
			if tc.after == "" { // refused
				if got, _ := os.ReadFile(p.ModelsFile()); domain.CodeOf(err) != domain.CodeInvalid || string(got) != before {
					t.Errorf("%s: %v %q", name, err, got)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, _ := os.ReadFile(p.ModelsFile())
			if want := strings.ReplaceAll(tc.after, "\n", nl); string(got) != want {
				t.Errorf("%s:\n%s\n--- not\n%s", name, got, want)
			}
			if m, err := p.LoadModels(); err != nil || !reflect.DeepEqual(m, tc.want) {
				t.Errorf("%s: read back %+v %v", name, m, err)
			}
			if fi, err := os.Stat(p.ModelsFile()); err != nil || fi.Mode().Perm() != 0o640 {
				t.Errorf("%s: mode %v", name, fi.Mode())
			}
			if left, _ := filepath.Glob(filepath.Join(p.Config, ".config-*")); len(left) > 0 {
				t.Errorf("%s: %v is left", name, left)
			}
		}
	}
}

func TestModelsFromNothing(t *testing.T) {
	p := Paths{Config: filepath.Join(t.TempDir(), "conf")}
	cs := []model.Config{{Name: "a", Format: model.FormatChat, Model: `q"\é`, BaseURL: "http://[::1]:1/v1", MaxOutput: 300},
		{Name: "b.c_d-9", Format: model.FormatMessages, Model: "m", KeyEnv: "K", Price: &model.Price{Input: 1e-7, CacheWrite: 12345.678, Output: 0}}}
	for _, c := range cs {
		if err := p.SaveModel(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SetDefaultModel("b.c_d-9"); err != nil {
		t.Fatal(err)
	}
	if m, err := p.LoadModels(); err != nil || !reflect.DeepEqual(m, Models{"b.c_d-9", cs}) {
		t.Errorf("%+v %v", m, err)
	}
	if fi, err := os.Stat(p.ModelsFile()); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	text, _ := os.ReadFile(p.ModelsFile())
	if !strings.HasPrefix(string(text), "default = \"b.c_d-9\"\n\n[[model]]\n") && !strings.Contains(string(text), "\n\ndefault") {
		t.Errorf("%s", text)
	}
	for _, name := range []string{"b.c_d-9", "a"} {
		if err := p.DeleteModel(name); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := p.LoadModels(); err != nil || len(m.Models) != 0 || m.Default != "" {
		t.Errorf("%+v %v", m, err)
	}
	for name, err := range map[string]error{"delete": p.DeleteModel("a"), "default": p.SetDefaultModel("a")} {
		if domain.CodeOf(err) != domain.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "A", "../x", "a b", "a\n[[model]]", "ä", strings.Repeat("a", 41), "-a", "sk-live-0123456789abcdef", "\"", "a\x00"} {
		if err := p.SaveModel(model.Config{Name: name, Format: model.FormatChat, Model: "m"}); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Tables that cannot be edited line by line are written anew, alone; what cannot be
// edited at all is left.
func TestModelsWrittenInOtherWays(t *testing.T) {
	p := modelsIn(t, "[[model]] # odd\nname = \"a\"\nformat = \"openai-chat\"\n# of many lines\nmodel = \"\"\"\nm1\"\"\"\nprice.input = 1\nprice.output = 2\n\n"+strings.ReplaceAll(oneModel, `"a"`, `"b" # kept`))
	if err := p.SaveModel(model.Config{Name: "a", Format: model.FormatChat, Model: "m2", Price: &model.Price{Input: 4, Output: 2}}); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(p.ModelsFile())
	if want := "[[model]] # odd\n# of many lines\nname = \"a\"\nformat = \"openai-chat\"\nmodel = \"m2\"\nprice = { input = 4.0, output = 2.0 }\n\n" + strings.ReplaceAll(oneModel, `"a"`, `"b" # kept`); string(got) != want {
		t.Errorf("%s", got)
	}
	for _, text := range []string{
		"model = [{ name = \"a\", format = \"openai-chat\", model = \"m\" }]\n",
	} {
		p := modelsIn(t, text)
		for i, err := range []error{p.SaveModel(model.Config{Name: "b", Format: model.FormatChat, Model: "m"}), p.SaveModel(model.Config{Name: "a", Format: model.FormatChat, Model: "m2"}), p.DeleteModel("a")} {
			if domain.CodeOf(err) != domain.CodeConflict || !strings.Contains(fmt.Sprint(err), "editor") {
				t.Errorf("%d: %v", i, err)
			}
		}
		if got, _ := os.ReadFile(p.ModelsFile()); string(got) != text {
			t.Errorf("it became %q", got)
		}
	}
}

func TestModelsFileStaysALink(t *testing.T) {
	dir := t.TempDir()
	p := Paths{Config: filepath.Join(dir, "c")}
	real := filepath.Join(dir, "real.toml")
	if err := errors.Join(os.Mkdir(p.Config, 0o700), os.WriteFile(real, []byte(oneModel), 0o600), os.Symlink(real, p.ModelsFile())); err != nil {
		t.Fatal(err)
	}
	if err := p.SetDefaultModel("a"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(real); string(got) != "default = \"a\"\n\n"+oneModel {
		t.Errorf("%q", got)
	}
	if fi, err := os.Lstat(p.ModelsFile()); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
	if err := (Paths{Config: "/proc/none"}).SaveModel(model.Config{Name: "a", Format: model.FormatChat, Model: "m"}); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "models.toml") {
		t.Errorf("%v", err)
	}
}

func TestTheOnlyModelStaysDefault(t *testing.T) {
	p := modelsIn(t, "")
	for _, name := range []string{"first", "second", "third"} {
		if err := p.SaveModel(model.Config{Name: name, Format: model.FormatChat, Model: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := p.LoadModels()
	if err != nil || m.Default != "first" {
		t.Errorf("the default is %q, %v", m.Default, err)
	}
}
