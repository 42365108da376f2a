package source

import (
	"bytes"
	"strings"
)

// rule is one line of an ignore or attributes file.
type rule struct {
	base     string // folder of the file, "" or ending in a slash
	pattern  string
	negative bool
	dirOnly  bool
	nameOnly bool     // no slash: matches in any folder below base
	attrs    []string // of an attributes line
}

// maxRules bounds the rules of one file.
const maxRules = 20_000

// parseIgnore reads an ignore file that lies in base.
func parseIgnore(data []byte, base string) []rule {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var out []rule
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		s := strings.TrimSuffix(string(line), "\r")
		if s == "" || s[0] == '#' || len(out) >= maxRules {
			continue
		}
		s = trimSpaces(s)
		r := rule{base: base}
		if strings.HasPrefix(s, "!") {
			r.negative, s = true, s[1:]
		}
		if strings.HasSuffix(s, "/") {
			r.dirOnly, s = true, s[:len(s)-1]
		}
		if s == "" {
			continue
		}
		r.nameOnly = !strings.Contains(s, "/")
		r.pattern = strings.TrimPrefix(s, "/")
		out = append(out, r)
	}
	return out
}

// trimSpaces takes trailing spaces off unless a backslash keeps them.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			end = i + 1
		case s[i] != ' ':
			end = i + 1
		}
	}
	return s[:end]
}

func (r *rule) match(path string, dir, fold bool) bool {
	if r.dirOnly && !dir || !strings.HasPrefix(path, r.base) {
		return false
	}
	rel := path[len(r.base):]
	if r.nameOnly {
		return wildmatch(r.pattern, rel[strings.LastIndexByte(rel, '/')+1:], false, fold)
	}
	// As git does: the literal start is compared by itself, so that ** behind it
	// counts as standing at the start of a pattern.
	pat := r.pattern
	if fold {
		pat, rel = strings.ToLower(pat), strings.ToLower(rel)
	}
	lit := strings.IndexAny(pat, "*?[\\")
	if lit < 0 {
		return pat == rel
	}
	return strings.HasPrefix(rel, pat[:lit]) && wildmatch(pat[lit:], rel[lit:], true, false)
}

// ignores is a stack of rule files, the strongest last.
type ignores struct {
	sets   [][]rule
	strong []rule // stronger than any set (attributes only)
	fold   bool
}

func (g *ignores) push(rules []rule) { g.sets = append(g.sets, rules) }
func (g *ignores) pop()              { g.sets = g.sets[:len(g.sets)-1] }

// ignored reports what the last matching rule says about a path whose folder is
// itself not ignored.
func (g *ignores) ignored(path string, dir bool) bool {
	for i := len(g.sets) - 1; i >= 0; i-- {
		set := g.sets[i]
		for j := len(set) - 1; j >= 0; j-- {
			if set[j].match(path, dir, g.fold) {
				return !set[j].negative
			}
		}
	}
	return false
}

// parseAttributes reads the lines of an attributes file that matter here.
func parseAttributes(data []byte, base string) []rule {
	var out []rule
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		s := strings.TrimLeft(strings.TrimSuffix(string(line), "\r"), " \t")
		if s == "" || s[0] == '#' || strings.HasPrefix(s, "[attr]") || len(out) >= maxRules {
			continue
		}
		var pat, rest string
		if s[0] == '"' {
			var ok bool
			if pat, rest, ok = unquote(s); !ok {
				continue
			}
		} else if i := strings.IndexAny(s, " \t"); i >= 0 {
			pat, rest = s[:i], s[i:]
		} else {
			continue
		}
		if strings.HasPrefix(pat, "!") || strings.HasSuffix(pat, "/") || pat == "" {
			continue
		}
		r := rule{base: base, nameOnly: !strings.Contains(pat, "/"), pattern: strings.TrimPrefix(pat, "/"), attrs: strings.Fields(rest)}
		out = append(out, r)
	}
	return out
}

// unquote reads git's C-style quoted word at the start of s.
func unquote(s string) (word, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
			switch c := s[i]; {
			case c >= '0' && c <= '3' && i+2 < len(s):
				b.WriteByte((c-'0')<<6 | (s[i+1]-'0')<<3 | (s[i+2] - '0'))
				i += 2
			default:
				if k := strings.IndexByte("abtnvfr", c); k >= 0 {
					c = "\a\b\t\n\v\f\r"[k]
				}
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// conversion is what git would do to a file's bytes between work tree and object.
type conversion struct {
	text   bool   // line ends may be changed
	filter string // a filter, ident or encoding: the bytes cannot be compared without running it
}

func (a *ignores) conversion(path string, autocrlf bool) conversion {
	vals := map[string]string{}
	for i := len(a.sets); i >= 0; i-- {
		set := a.strong
		if i < len(a.sets) {
			set = a.sets[i]
		}
		for j := len(set) - 1; j >= 0; j-- {
			r := &set[j]
			if !r.match(path, false, a.fold) {
				continue
			}
			for k := len(r.attrs) - 1; k >= 0; k-- {
				name, val, has := strings.Cut(r.attrs[k], "=")
				if !has {
					val = "set"
				}
				switch {
				case strings.HasPrefix(name, "-"):
					name, val = name[1:], "unset"
				case strings.HasPrefix(name, "!"):
					name, val = name[1:], "none"
				}
				names := []string{name}
				if name == "binary" && val == "set" {
					names, val = []string{"text"}, "unset"
				}
				for _, n := range names {
					if _, ok := vals[n]; !ok {
						vals[n] = val
					}
				}
			}
		}
	}
	var c conversion
	switch vals["text"] {
	case "unset":
	case "", "none":
		c.text = autocrlf || vals["eol"] != "" || vals["crlf"] == "set" || vals["crlf"] == "input"
	default:
		c.text = true
	}
	for _, k := range []string{"filter", "ident", "working-tree-encoding"} {
		if v := vals[k]; v != "" && v != "unset" && v != "none" {
			c.filter = k
			if v != "set" {
				c.filter += "=" + v
			}
			break
		}
	}
	return c
}
