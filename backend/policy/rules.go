package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"glasshouse/backend/domain"
)

// Tier is where a rules file comes from. A later tier never loosens an earlier one:
// all rules are weighed together, and a project's file may hold no rule that allows.
type Tier string

const (
	TierBuiltin Tier = "builtin"
	TierUser    Tier = "user"
	TierProject Tier = "project"
)

// Source is the text of one rules file.
type Source struct {
	Tier Tier
	Name string // for messages: the file's path
	Data []byte
	Err  error // the file exists but could not be read
}

// Rule is one rule as it is written. Every condition that is set must hold; a rule
// without conditions is refused.
type Rule struct {
	ID         string          `toml:"id"`
	Decision   domain.Decision `toml:"decision"`
	Reason     string          `toml:"reason"`
	WouldAllow string          `toml:"would_allow"`

	Tool  []string       `toml:"tool"`  // names, with * and ?
	Reach []domain.Reach `toml:"reach"` // read, machine, network, host, person
	Lang  []string       `toml:"lang"`  // language of a script
	Argv  []string       `toml:"argv"`  // tokens; see matchArgv
	Path  []string       `toml:"path"`  // globs over absolute paths, or relative to the workspace
	Write *bool          `toml:"write"` // only with Path: files that are written (true) or read (false)
	Host  []string       `toml:"host"`  // name, *.name, each with an optional :port
	Env   []string       `toml:"env"`   // names of variables that are set, with * and ?

	// Match and NotMatch are tests, run when the file is loaded: shell texts for
	// argv and env, paths for path, host:port for host.
	Match    []string `toml:"match"`
	NotMatch []string `toml:"not_match"`

	tier Tier
}

func (r *Rule) name() string { return string(r.tier) + ":" + r.ID }

// Rules is a compiled, immutable set.
type Rules struct {
	rules    []Rule
	degraded error
	version  string
}

// Version changes whenever a rule does; digests of approvals hold it.
func (r *Rules) Version() string { return r.version }

// Problem is why everything that leaves the machine asks; nil = the rules are good.
func (r *Rules) Problem() error { return r.degraded }

// List returns the rules in force with their full names as ID.
func (r *Rules) List() []Rule {
	out := slices.Clone(r.rules)
	for i := range out {
		out[i].ID = out[i].name()
	}
	return out
}

//go:embed builtin.toml
var builtin []byte

// Builtin is the set without any file of the user's.
func Builtin() *Rules {
	r, err := Load(nil)
	if err != nil {
		panic(err) // the embedded file is checked by a test
	}
	return r
}

// Load compiles the built-in rules and the given files. When one is bad, the error
// says which and where, and the set returned is old, when there is one (rules that
// were good stay in force while running), else one in which everything that leaves
// the machine asks.
func Load(old *Rules, sources ...Source) (*Rules, error) {
	h := sha256.New()
	out := &Rules{}
	var errs []error
	for _, s := range append([]Source{{Tier: TierBuiltin, Name: "built-in rules", Data: builtin}}, sources...) {
		rules, err := parse(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, r := range rules {
			if slices.ContainsFunc(out.rules, func(o Rule) bool { return o.name() == r.name() }) {
				errs = append(errs, fault(s, r.ID, "its id comes twice"))
			}
			out.rules = append(out.rules, r)
		}
		fmt.Fprintf(h, "%s %d\n", s.Tier, len(s.Data))
		h.Write(s.Data)
	}
	if len(errs) > 0 {
		err := domain.E(domain.CodeInvalid, "The rules are not usable", "mend the file; until then the rules from before stay in force, or, at a start, everything that leaves the machine asks", errors.Join(errs...))
		if old != nil {
			return old, err
		}
		out.degraded = err
		h.Write([]byte("degraded"))
	}
	out.version = hex.EncodeToString(h.Sum(nil))[:16]
	if out.degraded != nil {
		return out, out.degraded
	}
	return out, nil
}

func fault(s Source, id, format string, args ...any) error {
	where := s.Name
	if id != "" {
		where += ", rule " + id
	}
	return fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func parse(s Source) ([]Rule, error) {
	if s.Err != nil {
		return nil, fault(s, "", "it cannot be read: %v", s.Err)
	}
	if len(s.Data) > 1<<20 {
		return nil, fault(s, "", "it has %d bytes, at most 1 MiB is read", len(s.Data))
	}
	var file struct {
		Rule []Rule `toml:"rule"`
	}
	md, err := toml.Decode(string(s.Data), &file)
	if err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return nil, fault(s, "", "line %d: %s", pe.Position.Line, pe.Message)
		}
		return nil, fault(s, "", "%v", err)
	}
	if un := md.Undecoded(); len(un) > 0 {
		return nil, fault(s, "", "it has a key that is unknown: %s", un[0])
	}
	var errs []error
	for i := range file.Rule {
		r := &file.Rule[i]
		r.tier = s.Tier
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("number %d", i+1)
		}
		if err := r.check(); err != nil {
			errs = append(errs, fault(s, id, "%v", err))
			continue
		}
		if err := r.selfTest(); err != nil {
			errs = append(errs, fault(s, id, "%v", err))
		}
	}
	return file.Rule, errors.Join(errs...)
}

func (r *Rule) check() error {
	switch {
	case !idForm.MatchString(r.ID):
		return errors.New("it needs an id of small letters, digits, dots and dashes")
	case r.Decision != domain.Allow && r.Decision != domain.Ask && r.Decision != domain.Deny:
		return fmt.Errorf("its decision %q is none of allow, ask, deny", r.Decision)
	case r.tier == TierProject && r.Decision == domain.Allow:
		return errors.New("a project's file may only tighten: it cannot allow")
	case len(r.Tool)+len(r.Reach)+len(r.Lang)+len(r.Argv)+len(r.Path)+len(r.Host)+len(r.Env) == 0:
		return errors.New("it has no condition (tool, reach, lang, argv, path, host, env)")
	case r.Write != nil && len(r.Path) == 0:
		return errors.New("write goes with path")
	case len(r.Host) > 0 && len(r.Argv)+len(r.Path)+len(r.Env) > 0:
		return errors.New("host cannot be combined with argv, path or env: make two rules")
	case len(r.Argv) > 64 || len(r.Match)+len(r.NotMatch) > 200:
		return errors.New("it is too long")
	case r.Decision == domain.Allow && len(r.Argv) > 0 && strings.ContainsAny(r.Argv[0], "*?"):
		return errors.New("a rule that allows must name its program")
	}
	for _, reach := range r.Reach {
		switch reach {
		case domain.ReachRead, domain.ReachMachine, domain.ReachNetwork, domain.ReachHost, domain.ReachPerson:
		default:
			return fmt.Errorf("its reach %q is none of read, machine, network, host, person", reach)
		}
	}
	for i, p := range r.Path {
		if p == "" {
			return errors.New("an empty path matches nothing")
		}
		r.Path[i] = absPattern(p)
	}
	for _, list := range [][]string{r.Tool, r.Lang, r.Argv, r.Host, r.Env} {
		if slices.Contains(list, "") {
			return errors.New("an empty pattern matches nothing")
		}
	}
	return nil
}

func absPattern(p string) string {
	switch {
	case strings.HasPrefix(p, "~/"):
		return home + p[1:]
	case strings.HasPrefix(p, "/"), strings.HasPrefix(p, "**"):
		return p
	}
	return workspace + "/" + strings.TrimPrefix(p, "./")
}

// selfTest runs the rule's own match and not_match lines.
func (r *Rule) selfTest() error {
	try := func(line string) tri {
		a := Action{Tool: "exec", Reach: domain.ReachMachine}
		if len(r.Tool) > 0 {
			a.Tool = strings.NewReplacer("*", "x", "?", "x").Replace(r.Tool[0])
		}
		if len(r.Reach) > 0 {
			a.Reach = r.Reach[0]
		}
		switch {
		case len(r.Argv)+len(r.Env) > 0:
			a.Script, a.Lang = line, "bash"
		case len(r.Path) > 0:
			a.Paths, a.Write = []string{line}, r.Write == nil || *r.Write
		case len(r.Host) > 0:
			host, port, ok := splitPort(line)
			if !ok {
				host = line
			}
			a.Host, a.Port = host, port
		case len(r.Lang) > 0:
			a.Script, a.Lang = "x", line
		default:
			a.Tool = line
		}
		best := no
		for _, it := range items(&a) {
			best = or(best, r.match(&a, &it))
		}
		return best
	}
	for _, line := range r.Match {
		if try(line) != yes {
			return fmt.Errorf("its test fails: %q should match and does not", line)
		}
	}
	for _, line := range r.NotMatch {
		if try(line) == yes {
			return fmt.Errorf("its test fails: %q should not match and does", line)
		}
	}
	return nil
}
