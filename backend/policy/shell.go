package policy

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A word is one argument as far as it can be known before it runs.
type word struct {
	text  string
	known bool   // text is exactly what the program gets
	many  bool   // not known, and may become none or several words
	glob  string // not known, but a file name that this pattern (*, ?, \x) matches
}

var unknownWord = word{}
var unknownWords = word{many: true}

func lits(argv ...string) []word {
	out := make([]word, len(argv))
	for i, a := range argv {
		out[i] = word{text: a, known: true}
	}
	return out
}

func show(words []word) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		switch {
		case !w.known:
			b.WriteString("…")
		case w.text == "" || strings.ContainsAny(w.text, " \t\n'\"\\$`;&|<>()*?[]#~{}!"):
			b.WriteString("'" + strings.ReplaceAll(w.text, "'", `'\''`) + "'")
		default:
			b.WriteString(w.text)
		}
		if b.Len() > 300 {
			b.WriteString(" …")
			break
		}
	}
	return b.String()
}

// variant is one way to read a command: as it stands, or what a wrapper in it runs.
type variant struct {
	words []word
	// exact readings may be matched by a rule that allows; the others (another
	// user, a changed environment, a path instead of a name) only by stricter rules.
	exact bool
}

type itemKind int

const (
	itemCommand itemKind = iota
	itemPath             // a file that is read or written: a redirection, or a tool's own path
	itemOpaque           // something that cannot be looked into
	itemCall             // a call without anything to look into
)

// item is one thing that an action does; each is judged for itself.
type item struct {
	kind     itemKind
	variants []variant
	env      []string // names of variables that are set for it
	envOpen  bool     // and others, not known
	dirs     []string // working folders it may run in
	dirOpen  bool     // and others
	file     word     // of itemPath
	write    bool
	text     string // for reasons
}

const (
	maxItems  = 2000
	maxNested = 8
	maxWords  = 5000
	maxDirs   = 16
	// maxScripts bounds the work: a shell text in a shell text may be read once per wrapper around it.
	maxScripts = 64
	maxText    = 1 << 20
	maxWord    = 64 << 10
)

// reader collects the items of one action.
type reader struct {
	items   []item
	dirs    []string
	dirOpen bool
	env     []string
	scripts int
	tainted bool // what names mean was changed: nothing is exact any more
	depth   int
	fed     *syntax.CallExpr // a shell whose input was read already
	isFed   bool
}

func (r *reader) add(it item) {
	if len(r.items) > maxItems {
		return
	}
	if len(r.items) == maxItems {
		it = item{kind: itemOpaque, text: "the rest of a very long script"}
	}
	it.dirs, it.dirOpen = slices.Clone(r.dirs), r.dirOpen
	it.env = append(it.env, r.env...)
	r.items = append(r.items, it)
}

func (r *reader) opaque(text string) { r.add(item{kind: itemOpaque, text: text}) }

// script reads a shell text.
func (r *reader) script(text string) {
	if r.depth >= maxNested || r.scripts >= maxScripts || len(text) > maxText {
		r.opaque("scripts that are nested too deep or too long")
		return
	}
	r.depth++
	r.scripts++
	defer func() { r.depth-- }()
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		// A shell runs line by line: what stands before the error would run.
		r.opaque("a script that cannot be parsed (" + err.Error() + ")")
	}
	if f != nil {
		syntax.Walk(f, r.node)
	}
}

func (r *reader) node(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.Stmt:
		r.redirects(n)
	case *syntax.CallExpr:
		r.call(n)
	case *syntax.DeclClause:
		for _, a := range n.Args {
			if a.Name != nil && !a.Naked {
				r.assign(a.Name.Value)
			}
		}
	}
	return true
}

// assign: a variable is set for the rest of the script.
func (r *reader) assign(name string) {
	if !slices.Contains(r.env, name) {
		r.env = append(r.env, name)
	}
	if changesNames(name) {
		r.tainted = true
	}
}

func changesNames(name string) bool {
	switch name {
	case "PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "CDPATH", "PROMPT_COMMAND":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "BASH_FUNC")
}

func (r *reader) call(c *syntax.CallExpr) {
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			r.assign(a.Name.Value)
		}
		return
	}
	var env []string
	for _, a := range c.Assigns {
		env = append(env, a.Name.Value)
	}
	var words []word
	for _, w := range c.Args {
		words = append(words, evalWord(w))
	}
	r.isFed = c == r.fed
	r.command(words, env, false)
	r.isFed = false
}

// command reads one simple command; argv says that no shell is between us and it.
func (r *reader) command(words []word, env []string, argv bool) {
	if len(words) > maxWords {
		r.opaque("a command of very many words")
		return
	}
	for i := range words {
		if len(words[i].text) > maxWord || len(words[i].glob) > 1000 {
			words[i] = word{many: words[i].many || words[i].glob != ""}
		}
	}
	it := item{kind: itemCommand, env: env, text: show(words)}
	exact := len(env) == 0 && !r.tainted
	r.unwrap(&it, words, exact, 0)
	r.add(it)
	if !argv {
		r.chdir(words)
	}
}

// chdir follows cd: later relative paths may be meant from there.
func (r *reader) chdir(words []word) {
	if !words[0].known {
		return
	}
	name := words[0].text
	if (name == "command" || name == "builtin") && len(words) > 1 {
		words = words[1:]
		name = words[0].text
	}
	if name != "cd" && name != "pushd" {
		return
	}
	var target *word
	for i := range words[1:] {
		w := &words[1+i]
		if w.known && len(w.text) > 1 && w.text[0] == '-' {
			continue
		}
		target = w
		break
	}
	switch {
	case target == nil:
		r.dirs = append(r.dirs, home)
	case !target.known:
		r.dirOpen = true
	case target.text == "-":
	default:
		for _, d := range slices.Clone(r.dirs) {
			if to := resolve(d, target.text); !slices.Contains(r.dirs, to) {
				r.dirs = append(r.dirs, to)
			}
		}
	}
	if len(r.dirs) > maxDirs {
		r.dirs, r.dirOpen = r.dirs[:maxDirs], true
	}
}

// redirects: allowing a command does not allow its writes, so files that are
// redirected to are items of their own. A text that is fed to a shell is read too.
func (r *reader) redirects(s *syntax.Stmt) {
	var fed []string
	fedOpen := false
	for _, rd := range s.Redirs {
		switch rd.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if rd.Hdoc == nil {
				continue
			}
			w := evalText(rd.Hdoc.Parts, true)
			fed, fedOpen = append(fed, w.text), fedOpen || !w.known
			continue
		case syntax.WordHdoc:
			w := evalWord(rd.Word)
			fed, fedOpen = append(fed, w.text), fedOpen || !w.known
			continue
		}
		w := evalWord(rd.Word)
		write := true
		switch rd.Op {
		case syntax.RdrIn:
			write = false
		case syntax.DplIn, syntax.DplOut:
			if w.known && (w.text == "-" || strings.Trim(w.text, "0123456789-") == "") {
				continue // another descriptor
			}
			if rd.Op == syntax.DplIn {
				write = false
			}
		}
		if w.known && harmless(w.text) {
			continue
		}
		r.add(item{kind: itemPath, file: w, write: write, text: rd.Op.String() + " " + show([]word{w})})
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || (len(fed) == 0 && !fedOpen) {
		return
	}
	var words []word
	for _, w := range call.Args {
		words = append(words, evalWord(w))
	}
	if !readsStdin(words) {
		return
	}
	if fedOpen {
		r.opaque("a text that is fed to a shell")
		return
	}
	for _, t := range fed {
		r.script(t)
	}
	r.fed = call
}

func harmless(file string) bool {
	switch file {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty":
		return true
	}
	return strings.HasPrefix(file, "/dev/fd/")
}

const home = "/home/agent"

// resolve makes a path absolute and clean without looking at any disk.
func resolve(dir, p string) string {
	switch {
	case p == "~" || strings.HasPrefix(p, "~/"):
		p = home + p[1:]
	case !path.IsAbs(p):
		p = dir + "/" + p
	}
	return path.Clean(p)
}

// evalWord is what a word becomes, when that can be known.
func evalWord(w *syntax.Word) word {
	if w == nil {
		return word{known: true}
	}
	out := evalText(w.Parts, false)
	if out.known && len(w.Parts) > 0 {
		if l, ok := w.Parts[0].(*syntax.Lit); ok && strings.HasPrefix(l.Value, "~") {
			if len(out.text) > 1 && out.text[1] != '/' {
				return unknownWord // another user's home, or ~+ and the like
			}
		}
	}
	return out
}

// evalText joins parts; inside quotes (or a here document) nothing is split.
func evalText(parts []syntax.WordPart, quoted bool) word {
	var b, pattern strings.Builder
	known, many, globs := true, false, true
	for _, p := range parts {
		had := b.Len()
		switch p := p.(type) {
		case *syntax.Lit:
			text, glob, ok := unescape(p.Value, quoted)
			if !ok || glob != "" {
				known, many = false, true
			}
			globs = globs && ok
			b.WriteString(text)
			if glob != "" {
				pattern.WriteString(glob)
				continue
			}
		case *syntax.SglQuoted:
			text := p.Value
			if p.Dollar {
				var ok bool
				if text, ok = ansiC(p.Value); !ok {
					known, globs = false, false
				}
			}
			b.WriteString(text)
		case *syntax.DblQuoted:
			in := evalText(p.Parts, true)
			known = known && in.known
			globs = globs && in.known
			many = many || in.many
			b.WriteString(in.text)
		case *syntax.ParamExp:
			known, globs = false, false
			// "$@" becomes many words even in quotes.
			if !quoted || (p.Param != nil && p.Param.Value == "@") || p.Index != nil {
				many = true
			}
		default: // command and arithmetic substitution, process substitution, extended globs, braces
			known, globs = false, false
			if !quoted {
				many = true
			}
		}
		pattern.WriteString(escapeGlob(b.String()[had:]))
	}
	if !known {
		w := word{many: many}
		if globs {
			w.glob = pattern.String()
		}
		return w
	}
	return word{text: b.String(), known: true}
}

func escapeGlob(s string) string {
	if !strings.ContainsAny(s, `*?\{`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		putEscaped(&b, s[i])
	}
	return b.String()
}

func putEscaped(b *strings.Builder, c byte) {
	if strings.IndexByte(`*?\{`, c) >= 0 {
		b.WriteByte('\\')
	}
	b.WriteByte(c)
}

// unescape removes backslashes. glob is the pattern when the text is one; ok is
// false for what is expanded in a way that is not followed here (braces, classes).
func unescape(s string, quoted bool) (out, glob string, ok bool) {
	ok = true
	var b, pattern strings.Builder
	open, isGlob := -1, false
	put := func(c byte) {
		b.WriteByte(c)
		putEscaped(&pattern, c)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			next := s[i+1]
			if next == '\n' {
				i++
				continue
			}
			if quoted && !strings.ContainsRune("$`\"\\", rune(next)) {
				put(c)
				continue
			}
			i++
			put(next)
			continue
		}
		if quoted {
			put(c)
			continue
		}
		switch c {
		case '*', '?':
			isGlob = true
			b.WriteByte(c)
			pattern.WriteByte(c)
			continue
		case '[':
			if strings.IndexByte(s[i:], ']') > 1 {
				ok = false
			}
		case '{':
			open = i
		case '}':
			if open >= 0 && (strings.Contains(s[open:i], ",") || strings.Contains(s[open:i], "..")) {
				ok = false
			}
		}
		put(c)
	}
	if isGlob && ok {
		glob = pattern.String()
	}
	return b.String(), glob, ok
}

// ansiC decodes $'…'; ok is false for what is not understood here.
func ansiC(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", false
		}
		switch c := s[i]; c {
		case 'a':
			b.WriteByte(7)
		case 'b':
			b.WriteByte(8)
		case 'e', 'E':
			b.WriteByte(27)
		case 'f':
			b.WriteByte(12)
		case 'n':
			b.WriteByte(10)
		case 'r':
			b.WriteByte(13)
		case 't':
			b.WriteByte(9)
		case 'v':
			b.WriteByte(11)
		case '\\', '\'', '"', '?':
			b.WriteByte(c)
		case 'x', 'u', 'U', '0', '1', '2', '3', '4', '5', '6', '7':
			base, most, from := 8, 3, i
			switch c {
			case 'x':
				base, most, from = 16, 2, i+1
			case 'u':
				base, most, from = 16, 4, i+1
			case 'U':
				base, most, from = 16, 8, i+1
			}
			v, n := 0, 0
			for n < most && from+n < len(s) {
				d := strings.IndexByte("0123456789abcdef", s[from+n]|0x20)
				if s[from+n] >= '0' && s[from+n] <= '9' {
					d = int(s[from+n] - '0')
				}
				if d < 0 || d >= base {
					break
				}
				v = v*base + d
				n++
			}
			if n == 0 || v == 0 {
				return "", false
			}
			i = from + n - 1
			if c == 'u' || c == 'U' {
				b.WriteRune(rune(v))
			} else {
				b.WriteByte(byte(v))
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}
