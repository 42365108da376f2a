package ignore

// Match says whether name matches a gitignore-style pattern as a whole. With
// paths set, * and ? stop at slashes and ** spans folders (the form of patterns
// that contain a slash, and of globs); without it they match any byte. The time
// is bounded by the product of both lengths.
func Match(pattern, name string, paths bool) bool {
	m := matcher{pattern: pattern, name: name, paths: paths}
	return m.match(0, 0)
}

type matcher struct {
	pattern, name string
	paths         bool
	// failed marks pairs of places (pattern, name) after a star that were tried
	// in vain; without it, a hostile pattern takes exponential time.
	failed []bool
}

func (m *matcher) match(p, n int) bool {
	for p < len(m.pattern) {
		c := m.pattern[p]
		if c == '*' {
			return m.star(p, n)
		}
		if n >= len(m.name) {
			return false
		}
		t := m.name[n]
		switch c {
		case '?':
			if m.paths && t == '/' {
				return false
			}
		case '[':
			next, ok := m.class(p, t)
			if !ok {
				return false
			}
			p = next
		case '\\':
			p++
			if p >= len(m.pattern) || m.pattern[p] != t {
				return false // a backslash at the end matches nothing
			}
		default:
			if c != t {
				return false
			}
		}
		p++
		n++
	}
	return n == len(m.name)
}

// star handles the run of stars that starts at p.
func (m *matcher) star(p, n int) bool {
	start := p
	for p < len(m.pattern) && m.pattern[p] == '*' {
		p++
	}
	rest := m.pattern[p:]
	slashes := !m.paths // whether the star may match a slash
	if m.paths && p-start >= 2 {
		before := start == 0 || m.pattern[start-1] == '/'
		after := rest == "" || rest[0] == '/' || (len(rest) > 1 && rest[0] == '\\' && rest[1] == '/')
		if before && after {
			slashes = true
			// "**/" also matches no folder at all.
			if rest != "" && rest[0] == '/' && m.try(p+1, n) {
				return true
			}
		}
	}
	if rest == "" && slashes {
		return true
	}
	for i := n; ; i++ {
		if m.try(p, i) {
			return true
		}
		if i >= len(m.name) || (!slashes && m.name[i] == '/') {
			return false
		}
	}
}

func (m *matcher) try(p, n int) bool {
	if m.failed == nil {
		m.failed = make([]bool, (len(m.pattern)+1)*(len(m.name)+1))
	}
	at := p*(len(m.name)+1) + n
	if m.failed[at] {
		return false
	}
	if m.match(p, n) {
		return true
	}
	m.failed[at] = true
	return false
}

// class matches t against the bracket expression at p and returns the place of
// its closing bracket.
func (m *matcher) class(p int, t byte) (end int, ok bool) {
	s := m.pattern
	p++
	negated := false
	if p < len(s) && (s[p] == '!' || s[p] == '^') {
		negated = true
		p++
	}
	matched := false
	var prev byte // the lower end of a range; 0 = there is none
	for first := true; first || p >= len(s) || s[p] != ']'; first = false {
		if p >= len(s) {
			return 0, false
		}
		c := s[p]
		switch {
		case c == '\\':
			p++
			if p >= len(s) {
				return 0, false
			}
			c = s[p]
			matched = matched || t == c
		case c == '-' && prev != 0 && p+1 < len(s) && s[p+1] != ']':
			p++
			c = s[p]
			if c == '\\' {
				p++
				if p >= len(s) {
					return 0, false
				}
				c = s[p]
			}
			matched = matched || (t >= prev && t <= c)
			c = 0
		case c == '[' && p+1 < len(s) && s[p+1] == ':':
			q := p + 2
			for q < len(s) && s[q] != ']' {
				q++
			}
			if q >= len(s) {
				return 0, false
			}
			if q-1 < p+2 || s[q-1] != ':' {
				matched = matched || t == '[' // no ":]": the bracket stands for itself
				break
			}
			in, known := inClass(s[p+2:q-1], t)
			if !known {
				return 0, false
			}
			matched = matched || in
			p = q
			c = 0
		default:
			matched = matched || t == c
		}
		prev = c
		p++
	}
	if matched == negated || (m.paths && t == '/') {
		return 0, false
	}
	return p, true
}

// inClass is the POSIX classes over ASCII.
func inClass(name string, t byte) (in, known bool) {
	lower := t >= 'a' && t <= 'z'
	upper := t >= 'A' && t <= 'Z'
	digit := t >= '0' && t <= '9'
	graph := t > ' ' && t < 0x7f
	switch name {
	case "alnum":
		return lower || upper || digit, true
	case "alpha":
		return lower || upper, true
	case "blank":
		return t == ' ' || t == '\t', true
	case "cntrl":
		return t < ' ' || t == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return lower, true
	case "print":
		return graph || t == ' ', true
	case "punct":
		return graph && !lower && !upper && !digit, true
	case "space":
		return t == ' ' || (t >= '\t' && t <= '\r'), true
	case "upper":
		return upper, true
	case "xdigit":
		return digit || (t >= 'a' && t <= 'f') || (t >= 'A' && t <= 'F'), true
	}
	return false, false
}
