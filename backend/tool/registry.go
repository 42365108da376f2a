package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
)

// Registry holds the tools. It may be used from any goroutine.
type Registry struct {
	mu    sync.RWMutex
	tools map[string]*entry
}

type entry struct {
	tool   Tool
	schema *jsonschema.Schema
	hint   string // what the arguments are, in a line
}

// Prepared is a call that passed its schema.
type Prepared struct {
	Tool   Tool
	Args   json.RawMessage // canonical
	Title  string
	Action policy.Action
	Detail []event.Field // what an approval card shows
}

// NewRegistry makes a registry of tools.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: map[string]*entry{}}
	for _, t := range tools {
		if err := r.Add(t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Add adds a tool; its name must be new and its schema must compile.
func (r *Registry) Add(t Tool) error {
	bad := func(what string, err error) error {
		return domain.E(domain.CodeInvalid, fmt.Sprintf("The tool %q cannot be added: %s", cutText(t.Name, 80), what), "", err)
	}
	switch {
	case !nameForm.MatchString(t.Name):
		return bad("its name must be [a-z][a-z0-9_]*, at most 64 characters", nil)
	case t.Description == "":
		return bad("it has no description", nil)
	case t.Handler == nil:
		return bad("it has no handler", nil)
	}
	switch t.Reach {
	case domain.ReachRead, domain.ReachMachine, domain.ReachNetwork, domain.ReachHost, domain.ReachPerson:
	default:
		return bad(fmt.Sprintf("its reach %q is unknown", t.Reach), nil)
	}
	schema, err := compileSchema(t.Name, t.Schema)
	if err != nil {
		return bad("its schema is not usable", err)
	}
	e := &entry{tool: t, schema: schema, hint: signature(t.Schema)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tools[t.Name] != nil {
		return bad("there is one of that name", nil)
	}
	r.tools[t.Name] = e
	return nil
}

// signature lists a schema's properties: "takes argv (array), dir (string, optional)".
func signature(raw json.RawMessage) string {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal(raw, &s) != nil || len(s.Properties) == 0 {
		return "it takes no arguments: {}"
	}
	names := make([]string, 0, len(s.Properties))
	for n := range s.Properties {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		ra, rb := slices.Contains(s.Required, a), slices.Contains(s.Required, b)
		if ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		typ, _ := s.Properties[n].Type.(string)
		if typ == "" {
			typ = "any"
		}
		if !slices.Contains(s.Required, n) {
			typ += ", optional"
		}
		names[i] = fmt.Sprintf("%s (%s)", n, typ)
	}
	return "it takes " + strings.Join(names, ", ")
}

// Get finds a tool. An unknown name is not_found with the nearest names.
func (r *Registry) Get(name string) (Tool, error) {
	e, err := r.get(name)
	if err != nil {
		return Tool{}, err
	}
	return e.tool, nil
}

func (r *Registry) get(name string) (*entry, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.tools[name]; e != nil {
		return e, nil
	}
	hint := "the tools are: " + strings.Join(r.names(), ", ")
	if near := nearest(name, r.names()); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("There is no tool %q", cutText(name, 80)), hint, nil)
}

func (r *Registry) names() []string {
	out := make([]string, 0, len(r.tools))
	for n := range r.tools {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// List returns all tools by name.
func (r *Registry) List() []Tool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Tool, 0, len(r.tools))
	for _, n := range r.names() {
		out = append(out, r.tools[n].tool)
	}
	return out
}

// ForAgents returns the tools that an agent may call, by name.
func (r *Registry) ForAgents() []Tool {
	return slices.DeleteFunc(r.List(), func(t Tool) bool { return t.PersonOnly })
}

// Prepare checks a call and puts its arguments into canonical form. Missing
// arguments (empty or null) are {}. The error is *domain.Error; for arguments that
// do not fit it wraps an *ArgsError.
func (r *Registry) Prepare(name string, args json.RawMessage) (Prepared, error) {
	e, err := r.get(name)
	if err != nil {
		return Prepared{}, err
	}
	if t := bytes.TrimSpace(args); len(t) == 0 || string(t) == "null" {
		args = json.RawMessage("{}")
	}
	v, err := decode(args)
	if err != nil {
		return Prepared{}, err
	}
	if err := e.validate(v); err != nil {
		return Prepared{}, err
	}
	p := Prepared{Tool: e.tool, Args: encode(v), Title: e.tool.Name}
	if e.tool.Title != nil {
		p.Title = OneLine(e.tool.Title(p.Args), 200)
	}
	if e.tool.Action != nil {
		p.Action = e.tool.Action(p.Args)
	}
	p.Action.Tool, p.Action.Reach, p.Action.Changes = e.tool.Name, e.tool.Reach, e.tool.Changes
	if e.tool.Detail != nil {
		p.Detail = e.tool.Detail(p.Args)
	} else {
		p.Detail = []event.Field{{Name: "tool", Value: e.tool.Name, Origin: domain.OriginHost}, {Name: "arguments", Value: string(p.Args), Origin: domain.OriginAgent}}
	}
	return p, nil
}

// Digest is what an approval of this call is bound to.
func (p *Prepared) Digest(policyVersion string) string {
	env := make([]string, 0, len(p.Action.Env))
	for n := range p.Action.Env {
		env = append(env, n)
	}
	return Digest(p.Tool.Name, p.Args, p.Action.Dir, env, policyVersion)
}

// OneLine makes text safe to show in a line: line ends and other control or
// invisible characters become spaces or their numbers, and it is cut to n bytes.
func OneLine(s string, n int) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		if b.Len() > n {
			break
		}
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			if space {
				b.WriteByte(' ')
			}
			space = false
			fmt.Fprintf(&b, "<U+%04X>", r)
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return cutText(b.String(), n)
}

// nearest returns up to three names that name may have meant.
func nearest(name string, all []string) []string {
	type cand struct {
		name string
		d    int
	}
	name = strings.ToLower(cutText(name, 80))
	var found []cand
	for _, n := range all {
		d := distance(name, n)
		if strings.Contains(n, name) || strings.Contains(name, n) {
			d = min(d, 2)
		}
		if d <= max(2, len(n)/3) {
			found = append(found, cand{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b cand) int { return a.d - b.d })
	var out []string
	for _, c := range found[:min(len(found), 3)] {
		out = append(out, c.name)
	}
	return out
}

// distance is how many characters must be changed, added or removed.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		prev := row[0]
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			prev, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, prev+cost)
		}
	}
	return row[len(y)]
}
