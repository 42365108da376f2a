// Package ignore decides which paths git would ignore, by .gitignore files and
// .git/info/exclude, without starting git: process starts are slow in an
// emulated machine and a walk asks about every path. Settings of the user
// (core.excludesFile) are left aside, so at worst more is seen than git shows.
// Tracked files are not known here; callers that care hold git's index.
package ignore

import (
	"bytes"
	"path"
	"strings"
)

// MaxFile is the most that is read of one ignore file.
const MaxFile = 4 << 20

const wildcards = `*?[\`

type rule struct {
	pattern string
	negated bool
	dirOnly bool
	base    bool // no slash: matched against the last name alone
	literal bool // no wildcard in it
	suffix  bool // "*" and a literal rest
}

// Rules are the patterns of one file, in order.
type Rules struct{ rules []rule }

// Parse reads an ignore file; it cannot fail, as git's cannot.
func Parse(data []byte) *Rules {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var out Rules
	for len(data) > 0 {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
			line = bytes.TrimSuffix(line, []byte("\r"))
		} else {
			data = nil
		}
		// A NUL ends a pattern for git.
		if i := bytes.IndexByte(line, 0); i >= 0 {
			line = line[:i]
		}
		if r, ok := parseRule(string(line)); ok {
			out.rules = append(out.rules, r)
		}
	}
	if len(out.rules) == 0 {
		return nil
	}
	return &out
}

func parseRule(line string) (rule, bool) {
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	line = trimSpaces(line)
	var r rule
	if strings.HasPrefix(line, "!") {
		r.negated = true
		line = line[1:]
	}
	if strings.HasSuffix(line, "/") {
		r.dirOnly = true
		line = line[:len(line)-1]
	}
	r.base = !strings.Contains(line, "/")
	if !r.base {
		line = strings.TrimPrefix(line, "/")
	}
	r.pattern = line
	r.literal = !strings.ContainsAny(line, wildcards)
	r.suffix = r.base && strings.HasPrefix(line, "*") && !strings.ContainsAny(line[1:], wildcards)
	return r, true
}

// trimSpaces drops trailing spaces that no backslash protects.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
		case '\\':
			if i+1 >= len(s) {
				return s
			}
			i++
			end = i + 1
		default:
			end = i + 1
		}
	}
	return s[:end]
}

// match is whether the rule speaks of rel, a path relative to the folder of its file.
func (r *rule) match(rel, name string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	if r.base {
		switch {
		case r.literal:
			return r.pattern == name
		case r.suffix:
			return strings.HasSuffix(name, r.pattern[1:])
		}
		return Match(r.pattern, name, false)
	}
	if r.literal {
		return r.pattern == rel
	}
	// git compares the part before the first wildcard apart and starts matching
	// after it, so "a**/x" is "a" and then "**/x".
	cut := strings.IndexAny(r.pattern, wildcards)
	return strings.HasPrefix(rel, r.pattern[:cut]) && Match(r.pattern[cut:], rel[cut:], true)
}

// decide returns what the last matching rule says.
func (rs *Rules) decide(rel, name string, dir bool) (ignored, spoke bool) {
	for i := len(rs.rules) - 1; i >= 0; i-- {
		if r := &rs.rules[i]; r.match(rel, name, dir) {
			return !r.negated, true
		}
	}
	return false, false
}

// Dir answers for the entries of one folder.
type Dir struct {
	path    string // relative to the top; "" is the top
	parent  *Dir   // the next folder up that has rules
	rules   *Rules
	exclude *Rules // of the top alone: .git/info/exclude, asked last
	ignored bool
}

// Top is the top folder with the rules of its .gitignore and of .git/info/exclude; both may be nil.
func Top(gitignore, exclude *Rules) *Dir {
	return &Dir{rules: gitignore, exclude: exclude}
}

// Child is the folder name below d, with the rules of its .gitignore. Below an
// ignored folder everything is ignored, whatever rules lie there.
func (d *Dir) Child(name string, gitignore *Rules) *Dir {
	c := &Dir{path: path.Join(d.path, name), rules: gitignore}
	c.ignored = d.ignored || d.Ignored(name, true)
	c.parent = d
	if d.rules == nil && d.exclude == nil && d.parent != nil {
		c.parent = d.parent
	}
	return c
}

// AllIgnored says that the folder itself is ignored.
func (d *Dir) AllIgnored() bool { return d.ignored }

// Path of the folder, relative to the top.
func (d *Dir) Path() string { return d.path }

// Ignored says whether the entry name of d is ignored; dir is whether it is a
// folder (a link to one is not).
func (d *Dir) Ignored(name string, dir bool) bool {
	if d.ignored {
		return true
	}
	full := name
	if d.path != "" {
		full = d.path + "/" + name
	}
	top := d
	for at := d; at != nil; at = at.parent {
		top = at
		if at.rules == nil {
			continue
		}
		rel := full
		if at.path != "" {
			rel = full[len(at.path)+1:]
		}
		if ignored, spoke := at.rules.decide(rel, name, dir); spoke {
			return ignored
		}
	}
	if top.exclude != nil {
		if ignored, spoke := top.exclude.decide(full, name, dir); spoke {
			return ignored
		}
	}
	return false
}
