package packcheck

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"glasshouse/backend/git/odb"
)

func (c *checker) need(id odb.ID, t odb.Type) error {
	if have, ok := c.needs[id]; ok && have != t {
		return corrupt("object %s is named both as a %s and as a %s", id, have, t)
	}
	c.needs[id] = t
	// Each name costs memory; more names than objects could ever answer is no history.
	if len(c.needs) > 4*c.lim.Objects+1024 {
		return tooLarge("the objects name too many others")
	}
	return nil
}

// tree checks names, order and modes and notes what it names.
func (c *checker) tree(id odb.ID, data []byte) error {
	problems, err := odb.CheckTree(data)
	if err != nil {
		return fmt.Errorf("tree %s: %w", id, err)
	}
	for _, p := range problems {
		if p.Fatal || !c.lim.Lenient && (p.Kind == "mode" || p.Kind == "order") {
			return fmt.Errorf("%w: tree %s: %s (entry %q)", ErrRefused, id, p.Detail, cut(p.Name, 80))
		}
		c.find(p.Kind, id, p.Name, p.Detail)
	}
	entries, err := odb.ParseTree(data)
	if err != nil {
		return fmt.Errorf("tree %s: %w", id, err)
	}
	for _, e := range entries {
		switch m, _ := odb.CanonicalMode(e.Mode); m {
		case odb.ModeDir:
			err = c.need(e.ID, odb.Tree)
		case odb.ModeGitlink:
			c.find("submodule", e.ID, e.Name, "a submodule: its content stays outside the review")
		default:
			err = c.need(e.ID, odb.Blob)
			if m == odb.ModeLink && len(c.links) < MaxFindings {
				c.links[e.ID] = e.Name
			}
			if m != odb.ModeLink && odb.IsGitmodules(e.Name) && len(c.modules) < MaxFindings {
				c.modules[e.ID] = true
			}
		}
		if err != nil {
			return fmt.Errorf("tree %s: %w", id, err)
		}
	}
	return nil
}

func (c *checker) commit(id odb.ID, data []byte) error {
	info, err := odb.ParseCommit(data)
	if err != nil {
		return fmt.Errorf("commit %s: %w", id, err)
	}
	for _, p := range []struct{ who, line string }{{"author", info.Author}, {"committer", info.Committer}} {
		if why := odb.CheckPerson(p.line); why != "" {
			if !c.lim.Lenient {
				return fmt.Errorf("%w: commit %s: its %s line is malformed: %s", ErrRefused, id, p.who, why)
			}
			c.find("person", id, p.who, why)
		}
	}
	if strings.IndexByte(info.Message, 0) >= 0 {
		if !c.lim.Lenient {
			return fmt.Errorf("%w: commit %s: its message holds a NUL", ErrRefused, id)
		}
		c.find("message", id, "", "the message holds a NUL")
	}
	for _, p := range info.Parents {
		if err := c.need(p, odb.Commit); err != nil {
			return fmt.Errorf("commit %s: %w", id, err)
		}
	}
	return c.need(info.Tree, odb.Tree)
}

// connect requires that everything named is here or known, with the right type,
// and that the wanted commits are.
func (c *checker) connect(want []string) error {
	for id, t := range c.needs {
		got, err := c.typeOf(id)
		if err != nil {
			return err
		}
		if got != t {
			return corrupt("object %s is a %s but is used as a %s", id, got, t)
		}
	}
	for _, w := range want {
		id, err := odb.ParseID(w)
		if err != nil {
			return err
		}
		t, err := c.typeOf(id)
		if err != nil {
			return err
		}
		if t != odb.Commit {
			return fmt.Errorf("%w: %s is a %s, a commit was asked for", ErrMissing, id, t)
		}
	}
	return nil
}

func (c *checker) typeOf(id odb.ID) (odb.Type, error) {
	if k, ok := c.index[id]; ok {
		return c.entries[k].kind, nil
	}
	t, _, err := c.known.Info(id)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is named but is neither in the pack nor in the mirror", ErrMissing, id)
	}
	return t, nil
}

// readFlagged looks into the few blobs whose text matters: links and .gitmodules.
func (c *checker) readFlagged() error {
	if len(c.links)+len(c.modules) == 0 {
		return nil
	}
	read := func(id odb.ID, limit int64) ([]byte, bool) {
		if _, ok := c.index[id]; !ok {
			return nil, false // known before: looked at then
		}
		data, err := c.blob(id, limit, 0)
		return data, err == nil
	}
	for id, name := range c.links {
		target, ok := read(id, 4096)
		switch {
		case !ok:
			if _, here := c.index[id]; here {
				c.find("symlink", id, name, "a link whose target cannot be read")
			}
		case strings.HasPrefix(string(target), "/"):
			c.find("symlink-absolute", id, name, string(target))
		case strings.Contains("/"+string(target)+"/", "/../"):
			c.find("symlink-up", id, name, string(target))
		default:
			c.find("symlink", id, name, string(target))
		}
	}
	for id := range c.modules {
		if data, ok := read(id, 1<<20); ok {
			for _, why := range CheckModules(data) {
				c.find("submodule-danger", id, ".gitmodules", why)
			}
		} else if _, here := c.index[id]; here {
			c.find("submodule-danger", id, ".gitmodules", "it cannot be read")
		}
	}
	return nil
}

// blob reads an object of the pack again, through its chain.
func (c *checker) blob(id odb.ID, limit int64, depth int) ([]byte, error) {
	var chain []int32
	k, ok := c.index[id]
	for {
		if !ok || len(chain) > c.lim.Depth {
			return nil, odb.ErrNotFound
		}
		e := &c.entries[k]
		chain = append(chain, k)
		if e.typ == odb.OfsDelta {
			k = e.base
			continue
		}
		if e.typ == odb.RefDelta {
			h, _, err := odb.ReadEntry(c.f, e.off, c.end, c.lim.DeltaBytes)
			if err != nil {
				return nil, err
			}
			k, ok = c.index[h.Base]
			continue
		}
		break
	}
	e := &c.entries[chain[len(chain)-1]]
	max := c.lim.DeltaBytes
	if len(chain) == 1 {
		max = limit
	}
	_, data, err := odb.ReadEntry(c.f, e.off, c.end, max)
	if err != nil {
		return nil, err
	}
	for i := len(chain) - 2; i >= 0; i-- {
		_, delta, err := odb.ReadEntry(c.f, c.entries[chain[i]].off, c.end, c.lim.DeltaBytes)
		if err != nil {
			return nil, err
		}
		if data, err = odb.Delta(data, delta, c.lim.DeltaBytes); err != nil {
			return nil, err
		}
	}
	if int64(len(data)) > limit {
		return nil, odb.ErrTooLarge
	}
	return data, nil
}

// CheckModules reports what in a .gitmodules file could harm whoever runs git
// on it. We never do; the next person to clone might.
func CheckModules(data []byte) []string {
	cfg := config.New()
	if err := config.NewDecoder(strings.NewReader(string(data))).Decode(cfg); err != nil {
		return []string{"it cannot be parsed: " + err.Error()}
	}
	var out []string
	for _, s := range cfg.Sections {
		if !strings.EqualFold(s.Name, "submodule") {
			continue
		}
		for _, ss := range s.Subsections {
			if bad := checkModulePath(ss.Name); bad != "" || ss.Name == "" {
				out = append(out, fmt.Sprintf("name %q %s", cut(ss.Name, 80), bad))
			}
			for _, o := range ss.Options {
				switch strings.ToLower(o.Key) {
				case "url":
					if why := checkModuleURL(o.Value); why != "" {
						out = append(out, fmt.Sprintf("url %q %s", cut(o.Value, 120), why))
					}
				case "path":
					if why := checkModulePath(o.Value); why != "" {
						out = append(out, fmt.Sprintf("path %q %s", cut(o.Value, 120), why))
					}
				case "update":
					if strings.HasPrefix(strings.TrimSpace(o.Value), "!") {
						out = append(out, fmt.Sprintf("update %q runs a command", cut(o.Value, 120)))
					}
				}
			}
		}
	}
	if len(out) > 50 {
		out = out[:50]
	}
	return out
}

func checkModulePath(p string) string {
	for part := range strings.FieldsFuncSeq(p, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == ".." {
			return "leaves the folder"
		}
		if kind, _ := odb.CheckName(part); kind == "dotgit" {
			return "goes into .git"
		}
	}
	switch {
	case strings.HasPrefix(p, "-"):
		return "looks like an option"
	case strings.HasPrefix(p, "/"):
		return "is absolute"
	case strings.ContainsAny(p, "\r\n\x00"):
		return "holds a line break"
	}
	return ""
}

func checkModuleURL(u string) string {
	low := strings.ToLower(u)
	switch {
	case strings.HasPrefix(u, "-"):
		return "looks like an option"
	case strings.ContainsAny(u, "\r\n\x00"):
		return "holds a line break"
	case strings.Contains(low, "::"):
		return "names a remote helper, which runs a program"
	case strings.HasPrefix(low, "file:"), strings.HasPrefix(u, "/"):
		return "points into the local file system"
	}
	dec, err := url.PathUnescape(u)
	if err == nil && strings.ContainsAny(dec, "\r\n\x00") {
		return "holds an encoded line break"
	}
	if p, err := url.Parse(u); err == nil && strings.HasPrefix(p.Host, "-") {
		return "has a host that looks like an option"
	}
	return ""
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
