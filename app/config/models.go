package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

// Models are the models that a person set up in models.toml. Keys are no part of it.
type Models struct {
	Default string         // one of them, or "": the only one; it is named when another is added
	Models  []model.Config // in the file's order
}

// Find returns the model of a name.
func (m Models) Find(name string) (model.Config, bool) {
	i := slices.IndexFunc(m.Models, func(c model.Config) bool { return c.Name == name })
	if i < 0 {
		return model.Config{}, false
	}
	return m.Models[i], true
}

// Names in the file's order.
func (m Models) Names() []string {
	out := make([]string, len(m.Models))
	for i, c := range m.Models {
		out[i] = c.Name
	}
	return out
}

// Bounds of models.toml.
const (
	maxModelsFile = 1 << 20
	maxModels     = 200
)

const keyHint = "a key belongs into the keychain: take it out of the file, then use 'glasshouse model key NAME' or set the environment variable that key_env names; whoever could read the file knows the key, so have a new one made"

// LoadModels reads models.toml. A missing file holds no models; a broken or unknown
// line is an error. What it says never holds the value of a line, for that may be a key.
func (p Paths) LoadModels() (Models, error) {
	data, err := p.readModels()
	if err != nil {
		return Models{}, err
	}
	return p.parseModels(data)
}

func (p Paths) readModels() ([]byte, error) {
	wrong := func(err error) error {
		return domain.E(domain.CodeInvalid, "the models in "+p.ModelsFile()+" cannot be read", "mend the file or move it away", err)
	}
	f, err := os.Open(p.ModelsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrong(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, wrong(errors.Join(err, errors.New("it is no plain file")))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxModelsFile+1))
	if err == nil && len(data) > maxModelsFile {
		err = errors.New("it is larger than 1 MiB")
	}
	if err != nil {
		return nil, wrong(err)
	}
	return data, nil
}

func (p Paths) parseModels(data []byte) (Models, error) {
	bad := func(what, hint string) (Models, error) {
		return Models{}, domain.E(domain.CodeInvalid, p.ModelsFile()+": "+what, hint, nil)
	}
	var f struct {
		Default string         `toml:"default"`
		Model   []model.Config `toml:"model"`
	}
	meta, err := toml.Decode(string(data), &f)
	if err != nil {
		return bad(unreadable(err), "mend the file or move it away")
	}
	if un := meta.Undecoded(); len(un) > 0 {
		// A key in the file is the worst of what is wrong with it.
		field := un[0]
		if i := slices.IndexFunc(un, func(k toml.Key) bool { return keyName(k[len(k)-1]) }); i >= 0 {
			field = un[i]
		}
		last := field[len(field)-1]
		at := lineOf(data, last)
		switch {
		case keyName(last) || keyValue(last):
			return bad("a key is written into it"+at, keyHint)
		default:
			return bad(fmt.Sprintf("it has an unknown setting %.60q%s", field.String(), at), "remove it, or check its spelling")
		}
	}
	if len(f.Model) > maxModels {
		return bad(fmt.Sprintf("it holds %d models", len(f.Model)), fmt.Sprintf("at most %d can be set up", maxModels))
	}
	m := Models{Default: f.Default, Models: f.Model}
	for i, c := range m.Models {
		var e *domain.Error
		if err := checkModel(c); errors.As(err, &e) {
			which := fmt.Sprintf("model %d", i+1)
			if c.Name != "" && len(c.Name) <= 40 && e.Pointer != "/name" {
				which = fmt.Sprintf("model %q", c.Name)
			}
			if e.Pointer == "/key_env" && keyValue(c.KeyEnv) {
				e.Hint = keyHint
			}
			return bad(which+": "+e.What, e.Hint)
		}
		if slices.ContainsFunc(m.Models[:i], func(o model.Config) bool { return o.Name == c.Name }) {
			return bad(fmt.Sprintf("two models are called %q", c.Name), "give each a name of its own")
		}
	}
	if _, ok := m.Find(m.Default); m.Default != "" && !ok {
		if LooksLikeKey(m.Default) {
			return bad("the default is none of its models", "name one of them as default, or take the line out")
		}
		return bad(fmt.Sprintf("the default %.60q is none of its models", m.Default), "name one of them as default, or take the line out")
	}
	return m, nil
}

// checkModel is Config.Check, and what only counts for a file: a key in a field that
// is shown to everybody.
func checkModel(c model.Config) error {
	if LooksLikeKey(c.Name) {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/name", What: "the name of the model looks like a key", Hint: "give a short name of your own; keys go into the keychain"}
	}
	if keyValue(c.KeyEnv) {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/key_env", What: "key_env holds a key, as it looks, and not the name of a variable", Hint: "take it out here and give it as the model's key, or with 'glasshouse model key NAME'; it was not saved"}
	}
	return c.Check()
}

// unreadable says where a file is no TOML. The parser's own words are kept only where
// they quote nothing of the file.
func unreadable(err error) string {
	var e toml.ParseError
	if !errors.As(err, &e) {
		// These words name a place and types, and the last key, which is a known one.
		if _, types, ok := strings.Cut(err.Error(), "incompatible types: "); ok {
			at := lastKey.FindString(err.Error())
			return fmt.Sprintf("%s cannot be read: %s", cmp.Or(at, "a value"), types)
		}
		return "a value of it is out of bounds"
	}
	says := e.Message
	if strings.HasPrefix(says, "Key ") && strings.HasSuffix(says, "has already been defined.") {
		return fmt.Sprintf("line %d sets what was set before", e.Position.Line)
	}
	return fmt.Sprintf("line %d cannot be read as TOML", e.Position.Line)
}

var lastKey = regexp.MustCompile(`line \d+ \(last key "model\.[a-z_.]{1,30}"\)`)

var keyNames = []string{"key", "apikey", "token", "apitoken", "accesstoken", "authtoken", "secret", "secretkey", "password", "passwd", "authorization", "auth", "bearer", "credential", "credentials"}

// keyName reports whether a field is meant to hold a key.
func keyName(name string) bool {
	name = strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
	return slices.Contains(keyNames, name)
}

var keyForm = regexp.MustCompile(`^(sk|rk|pk|gsk|hf|xai|ghp|nvapi|pplx)[-_][A-Za-z0-9_-]{12,}$|^AIza[A-Za-z0-9_-]{20,}$|^[0-9a-f]{32,}$`)

// LooksLikeKey reports whether a name is a key that was put into the wrong place: it
// must not be repeated then.
func LooksLikeKey(name string) bool { return keyForm.MatchString(name) }

// keyValue reports whether what should be the name of a variable or field looks like
// a key: by its form, or as a long mixture of small letters and digits.
func keyValue(s string) bool {
	small, digits := 0, 0
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z':
			small++
		case r >= '0' && r <= '9':
			digits++
		}
	}
	return LooksLikeKey(s) || len(s) >= 20 && small >= 4 && digits >= 4
}

// lineOf says in which line a field is set, where that can be seen.
func lineOf(data []byte, field string) string {
	set := regexp.MustCompile(`^[ \t]*["']?` + regexp.QuoteMeta(field) + `["']?[ \t]*=`)
	for i, line := range bytes.Split(data, []byte("\n")) {
		if set.Match(line) {
			return fmt.Sprintf(" in line %d", i+1)
		}
	}
	return ""
}

// SaveModel writes a model into models.toml, in the place of one of its name or as a
// new one, whole or not at all. Other tables, and comments, stay as they are.
func (p Paths) SaveModel(c model.Config) error {
	if err := checkModel(c); err != nil {
		return err
	}
	return p.editModels(func(m *Models, f *modelsText) error {
		for i := range m.Models {
			if m.Models[i].Name == c.Name {
				old := m.Models[i]
				m.Models[i] = c
				f.change(i, old, c)
				return nil
			}
		}
		if len(m.Models) >= maxModels {
			return domain.E(domain.CodeTooLarge, fmt.Sprintf("%d models are set up already", maxModels), "delete one first", nil)
		}
		if len(m.Models) == 1 && m.Default == "" {
			// The only one was meant where none is named; another beside it changes nothing.
			m.Default = m.Models[0].Name
			f.setDefault(m.Default)
		}
		m.Models = append(m.Models, c)
		f.add(c)
		return nil
	})
}

// DeleteModel takes a model out of models.toml; it is then no default either.
func (p Paths) DeleteModel(name string) error {
	return p.editModels(func(m *Models, f *modelsText) error {
		i := slices.Index(m.Names(), name)
		if i < 0 {
			return domain.E(domain.CodeNotFound, fmt.Sprintf("there is no model %.60q", name), "see 'glasshouse model list'", nil)
		}
		m.Models = slices.Delete(m.Models, i, i+1)
		f.remove(i)
		if m.Default == name {
			m.Default = ""
			f.setDefault("")
		}
		return nil
	})
}

// SetDefaultModel names the model that is meant where none is named; "" = none.
func (p Paths) SetDefaultModel(name string) error {
	return p.editModels(func(m *Models, f *modelsText) error {
		if _, ok := m.Find(name); name != "" && !ok {
			return domain.E(domain.CodeNotFound, fmt.Sprintf("there is no model %.60q", name), "see 'glasshouse model list'", nil)
		}
		m.Default = name
		f.setDefault(name)
		return nil
	})
}

// editModels changes the file's text and checks that it then means what was meant.
func (p Paths) editModels(edit func(*Models, *modelsText) error) error {
	old, err := p.readModels()
	if err != nil {
		return err
	}
	m, err := p.parseModels(old)
	if err != nil {
		return err
	}
	// By line first; where a table is written in another way, it alone is written anew.
	for _, anew := range []bool{false, true} {
		want := Models{Default: m.Default, Models: slices.Clone(m.Models)}
		f := readModelsText(old)
		f.anew = anew
		if err := edit(&want, f); err != nil {
			return err
		}
		text := f.text()
		if got, err := p.parseModels(text); err == nil && len(f.blocks) == len(want.Models) && sameModels(got, want) {
			return p.put(p.ModelsFile(), "the models", text)
		}
	}
	return domain.E(domain.CodeConflict, p.ModelsFile()+" is written in a way that cannot be changed line by line", "change it with an editor", nil)
}

func sameModels(a, b Models) bool {
	return a.Default == b.Default && slices.EqualFunc(a.Models, b.Models, func(x, y model.Config) bool { return reflect.DeepEqual(x, y) })
}
