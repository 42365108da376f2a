package config

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"glasshouse/backend/model"
)

// modelsText is models.toml as lines: what comes before the first model, and a block
// for each. It is edited without being understood; whoever edits parses it again.
type modelsText struct {
	nl     string
	head   []string
	blocks []modelBlock
	anew   bool // write a changed block anew instead of line by line
}

type modelBlock struct {
	above []string // comments directly above it
	lines []string // from [[model]] to its last line that says something
	below []string // blank lines and comments that stand alone
}

var (
	modelHead  = regexp.MustCompile(`^[ \t]*\[\[[ \t]*(?:model|"model"|'model')[ \t]*\]\][ \t]*(?:#.*)?$`)
	priceHead  = regexp.MustCompile(`^[ \t]*\[[ \t]*model[ \t]*\.[ \t]*price[ \t]*\][ \t]*(?:#.*)?$`)
	anyHead    = regexp.MustCompile(`^[ \t]*\[`)
	silentLine = regexp.MustCompile(`^[ \t]*(?:#.*)?$`)
	modelLine  = regexp.MustCompile(`^([ \t]*)(?:"([A-Za-z0-9_-]+)"|'([A-Za-z0-9_-]+)'|([A-Za-z0-9_-]+))[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|'[^']*'|\{[^{}#]*\}|[^#\s]+)([ \t]*(?:#.*)?)$`)
)

func readModelsText(old []byte) *modelsText {
	f := &modelsText{nl: "\n"}
	if bytes.Contains(old, []byte("\r\n")) {
		f.nl = "\r\n"
	}
	body := strings.TrimSuffix(string(old), "\n")
	if body == "" {
		return f
	}
	var loose []string // since the last line that says something
	flush := func() {
		if n := len(f.blocks); n > 0 {
			f.blocks[n-1].below = loose
		} else {
			f.head = append(f.head, loose...)
		}
		loose = nil
	}
	for line := range strings.SplitSeq(body, "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case modelHead.MatchString(line):
			at := len(loose)
			for at > 0 && strings.TrimSpace(loose[at-1]) != "" {
				at--
			}
			above := slices.Clone(loose[at:])
			loose = loose[:at]
			flush()
			f.blocks = append(f.blocks, modelBlock{above: above, lines: []string{line}})
		case silentLine.MatchString(line):
			loose = append(loose, line)
		case len(f.blocks) == 0:
			flush()
			f.head = append(f.head, line)
		default:
			b := &f.blocks[len(f.blocks)-1]
			b.lines = append(append(b.lines, loose...), line)
			loose = nil
		}
	}
	flush()
	return f
}

func (f *modelsText) text() []byte {
	out := slices.Clone(f.head)
	for _, b := range f.blocks {
		out = append(append(append(out, b.above...), b.lines...), b.below...)
	}
	if len(out) == 0 {
		return nil
	}
	return []byte(strings.Join(out, f.nl) + f.nl)
}

func (f *modelsText) setDefault(name string) {
	for i, line := range f.head {
		m := modelLine.FindStringSubmatch(line)
		if m == nil || m[2]+m[3]+m[4] != "default" {
			continue
		}
		if name == "" {
			f.head = slices.Delete(f.head, i, i+1)
		} else {
			f.head[i] = m[1] + "default = " + quote(name) + m[6]
		}
		return
	}
	if name == "" {
		return
	}
	for len(f.head) > 0 && strings.TrimSpace(f.head[len(f.head)-1]) == "" {
		f.head = f.head[:len(f.head)-1]
	}
	f.head = append(f.head, "default = "+quote(name))
	if len(f.blocks) > 0 {
		f.head = append(f.head, "")
	}
}

func (f *modelsText) add(c model.Config) {
	before := &f.head
	if n := len(f.blocks); n > 0 {
		before = &f.blocks[n-1].below
	}
	if n := len(*before); n > 0 && strings.TrimSpace((*before)[n-1]) != "" || n == 0 && len(f.blocks) > 0 {
		*before = append(*before, "")
	}
	f.blocks = append(f.blocks, modelBlock{lines: freshBlock(c, nil)})
}

func (f *modelsText) remove(i int) {
	if i >= len(f.blocks) {
		return // the check afterwards refuses
	}
	left := f.blocks[i].below
	f.blocks = slices.Delete(f.blocks, i, i+1)
	before := &f.head
	if i > 0 {
		before = &f.blocks[i-1].below
	}
	blank := func(s []string, i int) bool { return i >= 0 && i < len(s) && strings.TrimSpace(s[i]) == "" }
	if (len(*before) == 0 && i == 0 || blank(*before, len(*before)-1)) && blank(left, 0) {
		left = left[1:]
	}
	*before = append(*before, left...)
	if i == len(f.blocks) { // the last one is gone: no blank lines at the end
		for blank(*before, len(*before)-1) {
			*before = (*before)[:len(*before)-1]
		}
	}
}

func (f *modelsText) change(i int, old, c model.Config) {
	if i >= len(f.blocks) || reflect.DeepEqual(old, c) {
		return
	}
	b := &f.blocks[i]
	if f.anew {
		var notes []string
		for _, line := range b.lines[1:] {
			if t := strings.TrimSpace(line); strings.HasPrefix(t, "#") {
				notes = append(notes, line)
			}
		}
		b.lines = freshBlock(c, append([]string{b.lines[0]}, notes...))
		return
	}
	main, price := b.lines, []string(nil)
	if at := slices.IndexFunc(b.lines[1:], anyHead.MatchString); at >= 0 {
		main, price = b.lines[:at+1], b.lines[at+1:]
	}
	if len(price) > 0 && priceHead.MatchString(price[0]) {
		if c.Price == nil {
			price = nil
		} else {
			var was model.Price
			if old.Price != nil {
				was = *old.Price
			}
			price = rewriteLines(price, fields(was), fields(*c.Price))
		}
		o, n := old, c
		o.Price, n.Price = nil, nil
		main = rewriteLines(main, fields(o), fields(n))
	} else {
		main = rewriteLines(main, fields(old), fields(c))
	}
	for price == nil && len(main) > 1 && strings.TrimSpace(main[len(main)-1]) == "" {
		main = main[:len(main)-1]
	}
	b.lines = append(slices.Clone(main), price...)
}

func freshBlock(c model.Config, head []string) []string {
	if head == nil {
		head = []string{"[[model]]"}
	}
	for _, f := range fields(c) {
		if f.value != "" {
			head = append(head, f.name+" = "+f.value)
		}
	}
	return head
}

// tomlField is a field and how its value is written; "" = it is left out.
type tomlField struct{ name, value string }

// fields of a Config or a Price, in their order.
func fields(of any) (out []tomlField) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		name, opts, _ := strings.Cut(v.Type().Field(i).Tag.Get("toml"), ",")
		f := v.Field(i)
		value := ""
		if !f.IsZero() || opts != "omitempty" {
			value = tomlValue(f)
		}
		out = append(out, tomlField{name, value})
	}
	return out
}

func tomlValue(f reflect.Value) string {
	switch f.Kind() {
	case reflect.String:
		return quote(f.String())
	case reflect.Bool:
		return strconv.FormatBool(f.Bool())
	case reflect.Int:
		return strconv.FormatInt(f.Int(), 10)
	case reflect.Float64:
		s := strconv.FormatFloat(f.Float(), 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	case reflect.Pointer:
		var in []string
		for _, x := range fields(f.Elem().Interface()) {
			if x.value != "" {
				in = append(in, x.name+" = "+x.value)
			}
		}
		return "{ " + strings.Join(in, ", ") + " }"
	}
	return "" // no such field: the check afterwards refuses
}

// rewriteLines changes the lines of a table whose values differ. The first line is
// its header.
func rewriteLines(lines []string, was, want []tomlField) []string {
	out := []string{lines[0]}
	seen := map[string]bool{}
	end := 1 // after the last line that says something
	for _, line := range lines[1:] {
		m := modelLine.FindStringSubmatch(line)
		name := ""
		if m != nil {
			name = m[2] + m[3] + m[4]
		}
		i := slices.IndexFunc(want, func(f tomlField) bool { return f.name == name })
		switch {
		case i < 0 || was[i] == want[i] && want[i].value != "":
			out = append(out, line)
		case want[i].value != "":
			out = append(out, m[1]+name+" = "+want[i].value+m[6])
		}
		if i >= 0 {
			seen[name] = true
		}
		if !silentLine.MatchString(line) {
			end = len(out)
		}
	}
	var more []string
	for _, f := range want {
		if f.value != "" && !seen[f.name] {
			more = append(more, f.name+" = "+f.value)
		}
	}
	return slices.Insert(out, end, more...)
}
