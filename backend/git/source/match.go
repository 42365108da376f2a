package source

import "strings"

// matchBudget bounds the work of one pattern on one name: patterns come from
// files that may be made to take for ever. Out of budget counts as a match.
const matchBudget = 200_000

// wildmatch matches a git pattern against a name. With path set, * and ? do not
// match a slash and ** between slashes matches any number of folders.
func wildmatch(pattern, name string, path, fold bool) bool {
	if fold {
		pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	}
	budget := matchBudget
	return wild(pattern, name, path, true, &budget)
}

// wild: start says that the pattern begins here or behind a slash.
func wild(p, s string, path, start bool, budget *int) bool {
	for len(p) > 0 {
		if *budget--; *budget < 0 {
			return true
		}
		switch c := p[0]; c {
		case '*':
			stars := 1
			for stars < len(p) && p[stars] == '*' {
				stars++
			}
			rest := p[stars:]
			if path && stars == 2 && start && (rest == "" || rest[0] == '/') {
				if rest == "" {
					return true // a trailing ** takes everything
				}
				// "**/" takes no folder or any number of them.
				rest = rest[1:]
				for {
					if wild(rest, s, path, true, budget) {
						return true
					}
					i := strings.IndexByte(s, '/')
					if i < 0 || *budget < 0 {
						return *budget < 0
					}
					s = s[i+1:]
				}
			}
			for i := 0; ; i++ {
				if wild(rest, s[i:], path, false, budget) {
					return true
				}
				if i == len(s) || path && s[i] == '/' {
					return false
				}
				if *budget < 0 {
					return true
				}
			}
		case '?':
			if s == "" || path && s[0] == '/' {
				return false
			}
			p, s = p[1:], s[1:]
			start = false
		case '[':
			if s == "" || path && s[0] == '/' {
				return false
			}
			ok, n := class(p, s[0])
			if n == 0 || !ok {
				return false
			}
			p, s = p[n:], s[1:]
			start = false
		default:
			if c == '\\' {
				if len(p) < 2 {
					return false
				}
				p = p[1:]
				c = p[0]
			}
			if s == "" || s[0] != c {
				return false
			}
			p, s = p[1:], s[1:]
			start = c == '/'
		}
	}
	return s == ""
}

// class matches one bracket expression; n is its length, 0 when it does not end.
func class(p string, c byte) (ok bool, n int) {
	i := 1
	neg := false
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		neg = true
		i++
	}
	for first := true; i < len(p); first = false {
		lo := p[i]
		switch {
		case lo == ']' && !first:
			return ok != neg, i + 1
		case lo == '[' && i+1 < len(p) && p[i+1] == ':':
			end := strings.Index(p[i+2:], ":]")
			if end < 0 {
				return false, 0
			}
			if named(p[i+2:i+2+end], c) {
				ok = true
			}
			i += 2 + end + 2
			continue
		case lo == '\\' && i+1 < len(p):
			i++
			lo = p[i]
		}
		i++
		hi := lo
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			hi = p[i+1]
			i += 2
			if hi == '\\' && i < len(p) {
				hi = p[i]
				i++
			}
		}
		if lo <= c && c <= hi {
			ok = true
		}
	}
	return false, 0
}

func named(name string, c byte) bool {
	lower, upper, digit := c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9'
	switch name {
	case "alpha":
		return lower || upper
	case "digit":
		return digit
	case "alnum":
		return lower || upper || digit
	case "lower":
		return lower
	case "upper":
		return upper
	case "xdigit":
		return digit || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	case "space":
		return c == ' ' || c >= '\t' && c <= '\r'
	case "blank":
		return c == ' ' || c == '\t'
	case "cntrl":
		return c < 32 || c == 127
	case "print":
		return c >= 32 && c < 127
	case "graph":
		return c > 32 && c < 127
	case "punct":
		return c > 32 && c < 127 && !lower && !upper && !digit
	}
	return false
}
