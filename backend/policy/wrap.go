package policy

import (
	"path"
	"slices"
	"strings"
)

// wrapper says how a program that runs another one is read.
type wrapper struct {
	short   string   // letters of options that take a value
	flags   string   // letters of options that take none; any other option makes the reading uncertain
	long    []string // long options that take a value in the next word
	plain   []string // long options that take none
	skip    int      // operands before the command: timeout 5 CMD
	env     bool     // NAME=VALUE operands before the command
	pure    bool     // the command runs as if it stood alone: a rule may allow it
	more    bool     // more arguments come from elsewhere (xargs)
	shellC  bool     // -c (or --command) holds a shell text
	numeric bool     // -10 is an option (nice)
}

var wrappers = map[string]wrapper{
	"timeout":     {short: "ks", flags: "fv", long: []string{"--kill-after", "--signal"}, plain: []string{"--preserve-status", "--foreground", "--verbose"}, skip: 1, pure: true},
	"nohup":       {pure: true},
	"nice":        {short: "n", long: []string{"--adjustment"}, numeric: true, pure: true},
	"ionice":      {short: "cnpPu", flags: "t", long: []string{"--class", "--classdata"}, plain: []string{"--ignore"}, pure: true},
	"stdbuf":      {short: "ioe", long: []string{"--input", "--output", "--error"}, pure: true},
	"setsid":      {flags: "cfw", plain: []string{"--ctty", "--fork", "--wait"}, pure: true},
	"time":        {short: "fo", flags: "apqvV", long: []string{"--format", "--output"}, plain: []string{"--append", "--portability", "--quiet", "--verbose"}, pure: true},
	"command":     {flags: "pvV", pure: true},
	"builtin":     {pure: true},
	"exec":        {short: "a", flags: "cl"},
	"env":         {short: "uC", flags: "i0v", long: []string{"--unset", "--chdir"}, plain: []string{"--ignore-environment", "--null", "--debug"}, env: true},
	"sudo":        {short: "ughpCrtTUDR", flags: "AbEeHiKklnPSsVvN", long: []string{"--user", "--group", "--host", "--prompt", "--close-from", "--role", "--type", "--chdir", "--chroot", "--other-user", "--command-timeout"}, plain: []string{"--login", "--shell", "--non-interactive", "--preserve-env", "--set-home", "--stdin", "--background", "--askpass"}, env: true},
	"doas":        {short: "uCa", flags: "Lns"},
	"su":          {short: "cgGsw", flags: "lmpfP", long: []string{"--command", "--group", "--shell"}, plain: []string{"--login", "--preserve-environment"}, shellC: true, skip: 1},
	"runuser":     {short: "cgGsuw", flags: "lmpf", long: []string{"--command", "--user", "--group", "--shell"}, plain: []string{"--login"}, shellC: true},
	"setpriv":     {long: []string{"--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set", "--ambient-caps"}, plain: []string{"--clear-groups", "--init-groups", "--no-new-privs", "--reset-env"}},
	"xargs":       {short: "aEdILnPs", flags: "0oprtxi", long: []string{"--arg-file", "--delimiter", "--replace", "--max-lines", "--max-args", "--max-procs", "--max-chars"}, plain: []string{"--null", "--no-run-if-empty", "--verbose", "--interactive", "--open-tty", "--exit"}, more: true},
	"parallel":    {short: "ajnNILSd", flags: "0kXmuqv", long: []string{"--jobs", "--arg-file", "--delimiter"}, more: true},
	"flock":       {short: "cEw", flags: "enosuxF", long: []string{"--command", "--wait", "--timeout", "--conflict-exit-code"}, plain: []string{"--shared", "--exclusive", "--nonblock", "--unlock", "--close", "--no-fork"}, shellC: true, skip: 1},
	"chroot":      {long: []string{"--userspec", "--groups"}, plain: []string{"--skip-chdir"}, skip: 1},
	"unshare":     {short: "SGRw", flags: "imnpuUCTrcf", long: []string{"--root", "--wd", "--setuid", "--setgid", "--map-user", "--map-group"}, plain: []string{"--mount", "--uts", "--ipc", "--net", "--pid", "--user", "--cgroup", "--fork", "--map-root-user", "--map-current-user", "--mount-proc", "--kill-child"}},
	"nsenter":     {short: "tSG", flags: "aimnpuUCTrwFZ", long: []string{"--target", "--setuid", "--setgid"}, plain: []string{"--all", "--mount", "--uts", "--ipc", "--net", "--pid", "--user"}},
	"strace":      {short: "abeEIoOpPsSuUX", flags: "cCdDfFhiknqrtTvVwxyYzZ", long: []string{"--output", "--trace"}},
	"ltrace":      {short: "aDeFlnopsuwx", flags: "bcCfhiLrStTV"},
	"taskset":     {short: "p", flags: "ac", skip: 1, pure: true},
	"chrt":        {short: "TPD", flags: "abfioprRv", skip: 1},
	"prlimit":     {short: "o", long: []string{"--pid", "--output"}},
	"watch":       {short: "nq", flags: "bcdegptxw", long: []string{"--interval"}, plain: []string{"--beep", "--color", "--differences", "--exec", "--no-title"}},
	"unbuffer":    {flags: "p", pure: true},
	"catchsegv":   {pure: true},
	"busybox":     {pure: true},
	"toybox":      {pure: true},
	"systemd-run": {short: "pEHMtu", flags: "dGPqrS", long: []string{"--unit", "--property", "--description", "--uid", "--gid", "--setenv", "--working-directory"}, plain: []string{"--user", "--scope", "--wait", "--pty", "--pipe", "--quiet", "--collect"}},
	"fakeroot":    {flags: "u"},
	"caffeinate":  {pure: true},
}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"}

// inline lists interpreters and their options that hold program text.
var inline = map[string][]string{
	"python": {"-c"}, "python2": {"-c"}, "python3": {"-c"}, "pypy3": {"-c"}, "perl": {"-e", "-E"}, "ruby": {"-e"},
	"node": {"-e", "--eval", "-p", "--print"}, "nodejs": {"-e", "--eval", "-p", "--print"}, "bun": {"-e", "--eval"}, "php": {"-r"},
	"lua": {"-e"}, "Rscript": {"-e"}, "osascript": {"-e"}, "tclsh": {"-c"}, "expect": {"-c"}, "gdb": {"-ex", "--eval-command"}, "pwsh": {"-c", "-Command"},
}

// unwrap adds the readings of a command to it, and reads shell texts in it.
func (r *reader) unwrap(it *item, words []word, exact bool, depth int) {
	it.variants = append(it.variants, variant{words, exact})
	if len(words) == 0 {
		return
	}
	if depth >= maxNested {
		r.opaque("commands nested too deep: " + show(words))
		return
	}
	if !words[0].known {
		// It may be a shell or a wrapper with anything behind it.
		it.variants = append(it.variants, variant{[]word{unknownWords}, false})
		return
	}
	name := words[0].text
	if base := path.Base(name); base != name {
		// A program named by its path may be another one than the rule means: the
		// name alone counts for stricter rules only.
		rest := append(lits(base), words[1:]...)
		it.variants = append(it.variants, variant{rest, false})
		name, words, exact = base, rest, false
	}
	args := words[1:]
	switch {
	case name == "eval":
		var text []string
		for _, a := range args {
			if !a.known {
				r.opaque("eval of a text that is not known")
				return
			}
			text = append(text, a.text)
		}
		r.script(strings.Join(text, " "))
		return
	case name == "source" || name == ".":
		r.opaque("the file that " + show(words) + " reads")
		return
	case name == "alias":
		if len(args) > 0 {
			r.tainted = true
			r.opaque("an alias: " + show(words))
			for _, a := range args {
				if _, text, ok := strings.Cut(a.text, "="); a.known && ok {
					r.script(text)
				}
			}
		}
		return
	case name == "enable" || name == "hash":
		r.tainted = r.tainted || len(args) > 0
		return
	case name == "export" || name == "declare" || name == "typeset" || name == "readonly":
		for _, a := range args {
			if n, _, ok := strings.Cut(a.text, "="); a.known && ok {
				r.assign(n)
			} else if !a.known {
				r.tainted = true
			}
		}
		return
	case name == "trap":
		if len(args) > 0 && args[0].known {
			if !strings.HasPrefix(args[0].text, "-") {
				r.script(args[0].text)
			}
		} else if len(args) > 0 {
			r.opaque("a trap that is not known")
		}
		return
	case slices.Contains(shells, name):
		r.shell(it, name, args)
		return
	case name == "git":
		r.git(it, words, depth)
		return
	case name == "find":
		r.find(it, args, depth)
		return
	case name == "watch" && !slices.ContainsFunc(args, func(w word) bool { return w.known && (w.text == "-x" || w.text == "--exec") }):
		inner, _ := r.operands(it, wrappers["watch"], words)
		r.joined(inner)
		return
	}
	if opts, ok := inline[strings.TrimRight(name, "0123456789.")]; ok || inline[name] != nil {
		if !ok {
			opts = inline[name]
		}
		for _, a := range args {
			if !a.known {
				r.opaque("options of " + name + " that are not known")
				break
			}
			if a.text == "-" || isStdin(a.text) {
				r.opaque("a program that " + name + " reads from its input")
				break
			}
			if !strings.HasPrefix(a.text, "-") {
				break // a program file
			}
			if slices.ContainsFunc(opts, func(o string) bool {
				return a.text == o || (len(o) == 2 && len(a.text) > 1 && a.text[1] != '-' && strings.HasPrefix(o, "-") && strings.Contains(a.text, o[1:])) || strings.HasPrefix(a.text, o+"=")
			}) {
				r.opaque("a program text for " + name)
				break
			}
		}
		if len(args) == 0 {
			r.opaque("a program that " + name + " reads from its input")
		}
		return
	}
	w, ok := wrappers[name]
	if !ok {
		return
	}
	if name == "command" && len(args) > 0 && args[0].known && (args[0].text == "-v" || args[0].text == "-V") {
		return // only asks where a command is
	}
	inner, sure := r.operands(it, w, words)
	if !sure {
		r.opaque("what " + show(words) + " runs")
	}
	if name == "su" || (name == "runuser" && len(inner) == 0) {
		if len(inner) > 0 {
			r.opaque("what " + show(words) + " runs")
		}
		return
	}
	if (name == "sudo" || name == "doas") && slices.ContainsFunc(args, func(a word) bool {
		return a.known && (a.text == "-s" || a.text == "-i" || a.text == "--shell" || a.text == "--login")
	}) {
		r.joined(inner) // a shell gets the words as text
	}
	if len(inner) == 0 {
		return
	}
	if w.more {
		inner = append(slices.Clone(inner), unknownWords)
		for i := range inner {
			if inner[i].known && strings.Contains(inner[i].text, "{}") {
				inner[i] = unknownWord
			}
		}
		if slices.Contains(shells, path.Base(inner[0].text)) {
			r.opaque("a shell text out of the input of " + name)
		}
	}
	r.unwrap(it, inner, exact && w.pure && sure, depth+1)
}

func (r *reader) joined(words []word) {
	if len(words) == 0 {
		return
	}
	var text []string
	for _, w := range words {
		if !w.known {
			r.opaque("a shell text that is not known")
			return
		}
		text = append(text, w.text)
	}
	r.script(strings.Join(text, " "))
}

// operands skips a wrapper's options; sure is false when an unknown word or option
// stands where the command could begin elsewhere.
func (r *reader) operands(it *item, w wrapper, words []word) (rest []word, sure bool) {
	args := words[1:]
	sure = true
	i := 0
	value := func(text string, has bool, letter string) {
		if w.shellC && (letter == "c" || letter == "--command") {
			if has {
				r.script(text)
			} else {
				r.opaque("a shell text that is not known")
			}
		}
	}
	next := func(letter string) {
		i++
		if i < len(args) {
			value(args[i].text, args[i].known, letter)
			if args[i].many {
				sure = false
			}
		}
	}
options:
	for ; i < len(args); i++ {
		a := args[i]
		if !a.known {
			sure = false // it may be an option, or the command
			break
		}
		switch {
		case a.text == "--":
			i++
			break options
		case a.text == "-" && words[0].text != "env" && words[0].text != "su":
			break options
		case a.text == "-":
		case strings.HasPrefix(a.text, "--"):
			name, val, has := strings.Cut(a.text, "=")
			switch {
			case slices.Contains(w.long, name) && has:
				value(val, true, name)
			case slices.Contains(w.long, name):
				next(name)
			case slices.Contains(w.plain, name) || has:
				if name == "--split-string" {
					r.script(val)
				}
			default:
				sure = false
			}
			if name == "--split-string" && !has {
				i++
				if i < len(args) {
					r.joined(args[i : i+1])
				}
			}
		case strings.HasPrefix(a.text, "-"):
			if w.numeric && strings.Trim(a.text[1:], "0123456789+-") == "" {
				continue
			}
			if words[0].text == "env" && strings.HasPrefix(a.text, "-S") || (words[0].text == "env" && strings.HasPrefix(a.text, "-vS")) {
				_, val, _ := strings.Cut(a.text, "S")
				if val != "" {
					r.script(val)
				} else if i+1 < len(args) {
					i++
					r.joined(args[i : i+1])
				}
				continue
			}
			for j := 1; j < len(a.text); j++ {
				c := a.text[j]
				if strings.IndexByte(w.short, c) >= 0 {
					if j+1 < len(a.text) {
						value(a.text[j+1:], true, string(c))
					} else {
						next(string(c))
					}
					break
				}
				if strings.IndexByte(w.flags, c) < 0 {
					sure = false
				}
			}
		case w.env && strings.Contains(a.text, "="):
			name, _, _ := strings.Cut(a.text, "=")
			it.env = append(it.env, name)
		default:
			break options
		}
	}
	if i > len(args) {
		i = len(args)
	}
	for n := 0; n < w.skip && i < len(args); n++ {
		if args[i].many {
			sure = false
		}
		i++
	}
	if w.env || w.shellC { // operands behind the options: env A=1 CMD, flock FILE -c TEXT
		for i < len(args) && args[i].known {
			if w.env && strings.Contains(args[i].text, "=") {
				name, _, _ := strings.Cut(args[i].text, "=")
				it.env = append(it.env, name)
				i++
				continue
			}
			if w.shellC && (args[i].text == "-c" || args[i].text == "--command") {
				if i+1 < len(args) {
					value(args[i+1].text, args[i+1].known, "c")
				}
				return nil, sure
			}
			break
		}
	}
	return args[i:], sure
}

// shell reads sh -c TEXT. A shell that reads its input runs what cannot be seen,
// unless a here document was read already.
func (r *reader) shell(it *item, name string, args []word) {
	input := true // without a text and a file it reads its input
	said := false // -s: whatever the operands are
options:
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !a.known {
			r.opaque("what " + name + " runs")
			return
		}
		switch {
		case a.text == "--rcfile" || a.text == "--init-file":
			r.opaque("the file that " + name + " reads first")
			i++
		case a.text == "-" || a.text == "--": // the end of the options
			switch {
			case said || i+1 == len(args):
			case args[i+1].known:
				input = isStdin(args[i+1].text)
			default:
				r.opaque("what " + name + " runs")
				return
			}
			break options
		case strings.HasPrefix(a.text, "--"):
		case len(a.text) > 1 && (a.text[0] == '-' || a.text[0] == '+'):
			letters := a.text[1:]
			if strings.ContainsAny(letters, "oO") && a.text != "-c" {
				i++ // its option's name
			}
			said = said || a.text[0] == '-' && strings.Contains(letters, "s")
			if a.text[0] == '-' && strings.Contains(letters, "c") {
				// The text is the first word that is no option.
				for i++; i < len(args); i++ {
					if !args[i].known {
						r.opaque("the text that " + name + " -c runs")
						return
					}
					if text := args[i].text; text != "" && (text[0] == '-' || text[0] == '+') {
						said = said || text[0] == '-' && strings.Contains(text, "s")
						continue
					}
					if name == "fish" {
						r.opaque("a text for fish")
						return
					}
					r.script(args[i].text)
					break
				}
				input = said // some shells do both
				break options
			}
		default:
			// Another script file is a program like any other.
			input = said || isStdin(a.text)
			break options
		}
	}
	if input && !r.isFed {
		r.opaque("what " + name + " reads from its input")
	}
}

// isStdin: the file is a program's own input under a name.
func isStdin(file string) bool {
	switch path.Clean(file) {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/thread-self/fd/0":
		return true
	}
	return false
}

// readsStdin: the command is a shell that takes its script from its input.
func readsStdin(words []word) bool {
	if len(words) == 0 || !words[0].known {
		return len(words) > 0
	}
	name := path.Base(words[0].text)
	if w, ok := wrappers[name]; ok {
		rest, _ := (&reader{depth: maxNested}).operands(&item{}, w, words)
		return len(rest) > 0 && readsStdin(rest)
	}
	return slices.Contains(shells, name)
}

// git: options before the subcommand are taken off (git -C dir push is a push), and
// commands in -c alias.x='!…' are read.
func (r *reader) git(it *item, words []word, depth int) {
	args := words[1:]
	i := 0
	for i < len(args) {
		a := args[i]
		if !a.known {
			break
		}
		if !strings.HasPrefix(a.text, "-") {
			break
		}
		name, val, has := strings.Cut(a.text, "=")
		switch {
		case name == "-c" || name == "--config-env":
			if !has || name == "-c" {
				i++
				if i < len(args) {
					if !args[i].known {
						r.opaque("a setting of git that is not known")
					} else {
						r.gitSetting(args[i].text)
					}
				}
			} else if val != "" {
				r.opaque("a setting of git out of a variable")
			}
		case a.text == "-C" || a.text == "--git-dir" || a.text == "--work-tree" || a.text == "--namespace" || a.text == "--super-prefix" || a.text == "--exec-path" || a.text == "--attr-source" || a.text == "--list-cmds":
			i++
		}
		i++
	}
	if i > 0 && i <= len(args) {
		it.variants = append(it.variants, variant{append(lits("git"), args[i:]...), false})
	}
	rest := args[min(i, len(args)):]
	// These run a command line that stands in the call.
	if len(rest) > 0 && rest[0].known {
		for j, a := range rest {
			switch {
			case a.known && (a.text == "--exec" || a.text == "-x") && rest[0].text == "rebase" && j+1 < len(rest):
				r.joined(rest[j+1 : j+2])
			case a.known && rest[0].text == "rebase" && strings.HasPrefix(a.text, "--exec="):
				r.script(strings.TrimPrefix(a.text, "--exec="))
			}
		}
		switch {
		case rest[0].text == "bisect" && len(rest) > 2 && rest[1].known && rest[1].text == "run":
			r.unwrap(it, rest[2:], false, depth+1)
		case rest[0].text == "submodule" && len(rest) > 2 && rest[1].known && rest[1].text == "foreach":
			r.joined(slices.DeleteFunc(slices.Clone(rest[2:]), func(w word) bool { return w.known && w.text == "--recursive" }))
		case rest[0].text == "config":
			for _, a := range rest[1:] {
				if a.known && strings.HasPrefix(a.text, "!") {
					r.script(a.text[1:])
				}
			}
		}
	}
}

func (r *reader) gitSetting(s string) {
	key, val, _ := strings.Cut(s, "=")
	key = strings.ToLower(key)
	switch {
	case strings.HasPrefix(key, "alias."):
		if strings.HasPrefix(val, "!") {
			r.script(val[1:])
		} else {
			r.script("git " + val) // git -c alias.x=push x
		}
	case strings.HasSuffix(key, "command") || strings.HasSuffix(key, "editor") || strings.HasSuffix(key, "pager") || strings.HasSuffix(key, ".helper") ||
		strings.HasSuffix(key, ".cmd") || strings.HasPrefix(key, "pager.") || strings.HasSuffix(key, "hookspath") || strings.HasSuffix(key, "fsmonitor") ||
		strings.HasPrefix(key, "filter.") || strings.HasPrefix(key, "include") || strings.HasSuffix(key, ".program") || strings.HasSuffix(key, ".textconv") || strings.HasPrefix(key, "diff.external"):
		r.opaque("a program that a setting of git runs: " + key)
	}
}

// find: -exec, -execdir, -ok and -okdir run commands; -delete and -fprint change files.
func (r *reader) find(it *item, args []word, depth int) {
	for i := 0; i < len(args); i++ {
		if !args[i].known {
			if args[i].many {
				r.opaque("options of find that are not known")
				return
			}
			continue
		}
		switch args[i].text {
		case "-exec", "-execdir", "-ok", "-okdir":
			var inner []word
			for i++; i < len(args) && !(args[i].known && (args[i].text == ";" || args[i].text == "+")); i++ {
				w := args[i]
				if w.known && strings.Contains(w.text, "{}") {
					w = unknownWord
				}
				inner = append(inner, w)
			}
			if len(inner) > 0 {
				r.unwrap(it, inner, false, depth+1)
			}
		case "-delete":
			it.variants = append(it.variants, variant{[]word{{text: "rm", known: true}, unknownWords}, false})
		case "-fprint", "-fprintf", "-fprint0", "-fls":
			if i+1 < len(args) {
				r.add(item{kind: itemPath, file: args[i+1], write: true, text: show(args[i : i+2])})
			}
		}
	}
}
