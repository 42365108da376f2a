package policy

import (
	"path"
	"strings"
)

// tri is the answer of a match: what is not known is never a no.
type tri int

const (
	no tri = iota
	maybe
	yes
)

func and(a, b tri) tri { return min(a, b) }
func or(a, b tri) tri  { return max(a, b) }

// matchArgv matches words against tokens: a token is a glob over one word (* ? and
// {a,b}), ** stands for any number of words. The whole command must fit.
func matchArgv(pattern []string, words []word) tri {
	// next[j] is the answer for pattern[i+1:] against words[j:].
	next := make([]tri, len(words)+1)
	cur := make([]tri, len(words)+1)
	for i := len(pattern); i >= 0; i-- {
		for j := len(words); j >= 0; j-- {
			switch {
			case i == len(pattern) && j == len(words):
				cur[j] = yes
			case i == len(pattern):
				cur[j] = no
				if words[j].many {
					cur[j] = and(maybe, cur[j+1])
				}
			case pattern[i] == "**":
				cur[j] = next[j]
				if j < len(words) {
					cur[j] = or(cur[j], cur[j+1])
				}
			case j == len(words):
				cur[j] = no
			case words[j].glob != "":
				// one or more names that fit, or the pattern itself
				cur[j] = no
				for _, alt := range alternatives(pattern[i], 0) {
					if meet(globTokens(alt, true), globTokens(words[j].glob, true)) {
						cur[j] = and(maybe, or(next[j+1], next[j]))
					}
				}
			case words[j].many:
				// none, one or more words
				cur[j] = and(maybe, or(or(cur[j+1], next[j+1]), next[j]))
			case !words[j].known:
				cur[j] = and(maybe, next[j+1])
				if pattern[i] == "*" {
					cur[j] = next[j+1]
				}
			default:
				cur[j] = no
				if globText(pattern[i], words[j].text) {
					cur[j] = next[j+1]
				}
			}
		}
		cur, next = next, cur
	}
	return next[0]
}

// globText matches one text: * is any characters, ? one, {a,b} alternatives, and a
// backslash takes the next character as it is.
func globText(pattern, s string) bool {
	for _, p := range alternatives(pattern, 0) {
		if globOne(p, s, func(byte) bool { return true }) {
			return true
		}
	}
	return false
}

// globPath matches a clean absolute path: * stays in one folder, ** does not.
// A pattern that ends in /** also means the folder itself.
func globPath(pattern, p string) bool {
	for _, alt := range alternatives(pattern, 0) {
		if strings.HasSuffix(alt, "/**") && p == strings.TrimSuffix(alt, "/**") {
			return true
		}
		if globOne(alt, p, func(c byte) bool { return c != '/' }) {
			return true
		}
	}
	return false
}

// globOne is the usual glob with one place to come back to per kind of star.
func globOne(p, s string, single func(byte) bool) bool {
	type key struct{ i, j int }
	dead := map[key]bool{}
	var at func(i, j int) bool
	at = func(i, j int) bool {
		for i < len(p) {
			switch {
			case p[i] == '*':
				if dead[key{i, j}] {
					return false
				}
				double := i+1 < len(p) && p[i+1] == '*'
				k := i + 1
				if double {
					for k < len(p) && p[k] == '*' {
						k++
					}
					// a/**/b also means a/b
					if k < len(p) && p[k] == '/' && at(k+1, j) {
						return true
					}
				}
				for n := j; ; n++ {
					if at(k, n) {
						return true
					}
					if n >= len(s) || (!double && !single(s[n])) {
						break
					}
				}
				dead[key{i, j}] = true
				return false
			case j >= len(s):
				return false
			case p[i] == '?':
				if !single(s[j]) {
					return false
				}
			case p[i] == '\\' && i+1 < len(p):
				i++
				if p[i] != s[j] {
					return false
				}
			case p[i] != s[j]:
				return false
			}
			i++
			j++
		}
		return j == len(s)
	}
	return at(0, 0)
}

// alternatives expands {a,b}, at most 64 of them.
func alternatives(p string, depth int) []string {
	open := strings.IndexByte(p, '{')
	if open < 0 || depth > 6 || (open > 0 && p[open-1] == '\\') {
		return []string{p}
	}
	end := strings.IndexByte(p[open:], '}')
	if end < 0 {
		return []string{p}
	}
	var out []string
	for _, a := range strings.Split(p[open+1:open+end], ",") {
		for _, rest := range alternatives(p[open+end+1:], depth+1) {
			if out = append(out, p[:open]+a+rest); len(out) >= 64 {
				return out
			}
		}
	}
	return out
}

// matchHost matches host[:port] patterns: an exact name, *.name (not name itself), or *.
func matchHost(pattern, host string, port int) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	name, wantPort, hasPort := splitPort(strings.ToLower(pattern))
	if hasPort && wantPort != port {
		return false
	}
	switch {
	case name == "*":
		return host != ""
	case strings.HasPrefix(name, "*."):
		return strings.HasSuffix(host, name[1:]) && len(host) > len(name)-1
	}
	return host == strings.TrimSuffix(name, ".")
}

func splitPort(s string) (host string, port int, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i == len(s)-1 {
		return s, 0, false
	}
	for _, c := range s[i+1:] {
		if c < '0' || c > '9' || port > 65535 {
			return s, 0, false
		}
		port = port*10 + int(c-'0')
	}
	h := s[:i]
	if strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
		h = h[1 : len(h)-1]
	} else if strings.Contains(h, ":") {
		return s, 0, false // an IPv6 address without a port
	}
	return h, port, true
}

// matchPath asks whether a word names a file that a pattern covers, from any folder it may be in.
func matchPath(patterns []string, w word, dirs []string, dirOpen bool) tri {
	if !w.known {
		if w.glob == "" || dirOpen {
			return maybe
		}
		for _, d := range dirs {
			p := resolve(d, w.glob)
			for _, pat := range patterns {
				for _, alt := range alternatives(pat, 0) {
					if meet(globTokens(alt, false), globTokens(p, false)) ||
						(strings.HasSuffix(alt, "/**") && meet(globTokens(strings.TrimSuffix(alt, "/**"), false), globTokens(p, false))) {
						return maybe
					}
				}
			}
		}
		return no
	}
	for _, d := range dirs {
		p := resolve(d, w.text)
		for _, pat := range patterns {
			if globPath(pat, p) {
				return yes
			}
		}
	}
	if dirOpen && !path.IsAbs(w.text) && !strings.HasPrefix(w.text, "~") {
		return maybe
	}
	return no
}

// meet asks whether some text fits both patterns.
func meet(ta, tb []globToken) bool {
	type key struct{ i, j int }
	seen := map[key]bool{} // asked already, and not answered yes
	var at func(i, j int) bool
	at = func(i, j int) bool {
		if i == len(ta) && j == len(tb) {
			return true
		}
		if seen[key{i, j}] {
			return false
		}
		seen[key{i, j}] = true
		starA, starB := i < len(ta) && ta[i].star > 0, j < len(tb) && tb[j].star > 0
		switch {
		case starA || starB:
			if (starA && at(i+1, j)) || (starB && at(i, j+1)) {
				return true
			}
			// one more character for the star, out of what stands on the other side
			return (starA && j < len(tb) && ta[i].takes(tb[j]) && at(i, j+1)) || (starB && i < len(ta) && tb[j].takes(ta[i]) && at(i+1, j))
		case i == len(ta) || j == len(tb):
			return false
		}
		x, y := ta[i], tb[j]
		return ((x.any && y.any) || (x.any && y.c != '/') || (y.any && x.c != '/') || (!x.any && !y.any && x.c == y.c)) && at(i+1, j+1)
	}
	return at(0, 0)
}

type globToken struct {
	c    byte
	any  bool // ?
	star int  // 1 = within a folder, 2 = across folders
}

func (t globToken) takes(o globToken) bool {
	return t.star == 2 || o.star > 0 || o.any || o.c != '/'
}

// globTokens reads a pattern; across makes every star one that crosses folders.
func globTokens(p string, across bool) []globToken {
	one := 1
	if across {
		one = 2
	}
	var out []globToken
	for i := 0; i < len(p); i++ {
		switch {
		case strings.HasPrefix(p[i:], "**/"):
			// a/**/b also means a/b: as one star across folders it takes too much rather than too little
			out = append(out, globToken{star: 2})
			i += 2
		case strings.HasPrefix(p[i:], "**"):
			out = append(out, globToken{star: 2})
			i++
		case p[i] == '*':
			out = append(out, globToken{star: one})
		case p[i] == '?':
			out = append(out, globToken{any: true})
		case p[i] == '\\' && i+1 < len(p):
			i++
			out = append(out, globToken{c: p[i]})
		default:
			out = append(out, globToken{c: p[i]})
		}
	}
	return out
}
