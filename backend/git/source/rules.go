package source

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func (sc *scanner) loadRules(opt ScanOptions) {
	sc.ign.fold, sc.attr.fold = sc.s.cfg.fold, sc.s.cfg.fold
	read := func(p string) []byte {
		if p == "" {
			return nil
		}
		b, err := readSmall(p, maxConfig)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			sc.out.Notes = append(sc.out.Notes, "not read: "+err.Error())
		}
		return b
	}
	// A repository's own excludesFile would be a path of its choosing: it only adds
	// ignore rules, so the worst it can do is hide an untracked file.
	excl := opt.Excludes
	if sc.s.cfg.excludes != "" {
		excl = expand(sc.s.cfg.excludes, sc.s.Path)
	}
	sc.ign.push(parseIgnore(read(excl), ""))
	attr := opt.Attributes
	if sc.s.cfg.attributes != "" {
		attr = expand(sc.s.cfg.attributes, sc.s.Path)
	}
	sc.attr.push(parseAttributes(read(attr), ""))
	if sc.s.Kind == Repository {
		sc.ign.push(parseIgnore(read(filepath.Join(sc.s.Common, "info", "exclude")), ""))
		sc.attr.strong = parseAttributes(read(filepath.Join(sc.s.Common, "info", "attributes")), "")
	} else if parent := enclosing(sc.s.Path); parent != "" {
		sc.out.Notes = append(sc.out.Notes, fmt.Sprintf("the folder lies inside the repository %s; it comes without that repository's history, and its ignore files still count", parent))
		sc.parentRules(parent, read)
	}
}

// parentRules makes the ignore files of the folders above count for this one.
func (sc *scanner) parentRules(parent string, read func(string) []byte) {
	rel, err := filepath.Rel(parent, sc.s.Path)
	if err != nil {
		return
	}
	rel = filepath.ToSlash(rel)
	dir, below := parent, rel
	for {
		// Rules of a folder above are matched against the path from there.
		var rules []rule
		for _, r := range parseIgnore(read(filepath.Join(dir, ".gitignore")), "") {
			if r.nameOnly {
				rules = append(rules, r)
			} else if rest, ok := strings.CutPrefix(r.pattern, below+"/"); ok {
				r.pattern = rest
				rules = append(rules, r)
			}
		}
		sc.ign.push(rules)
		first, rest, more := strings.Cut(below, "/")
		if !more {
			return
		}
		dir, below = filepath.Join(dir, first), rest
	}
}

func enclosing(p string) string {
	for d := filepath.Dir(p); ; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git", "HEAD")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return ""
		}
	}
}

func expand(p, base string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		return filepath.Join(home, rest)
	}
	if !filepath.IsAbs(p) {
		return filepath.Join(base, p)
	}
	return p
}

func (sc *scanner) rulesFile(rel string) []byte {
	fi, err := sc.root.Lstat(rel)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxConfig {
		return nil
	}
	b, err := sc.read(rel, maxConfig)
	if err != nil {
		return nil
	}
	return b
}
