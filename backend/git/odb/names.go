package odb

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// sortKey is how git orders tree entries: a folder as if its name ended in a slash.
func sortKey(name string, mode uint32) string {
	if mode == ModeDir {
		return name + "/"
	}
	return name
}

func sortEntries(e []Entry) {
	sort.Slice(e, func(i, j int) bool { return sortKey(e[i].Name, e[i].Mode) < sortKey(e[j].Name, e[j].Mode) })
}

// Problem is one thing that is wrong or noteworthy in an object.
type Problem struct {
	Kind   string // a stable word: "dotgit", "traversal", "mode", "order", "duplicate", …
	Name   string // of the tree entry, raw
	Detail string
	Fatal  bool // no file system may ever see this tree
}

// CheckTree looks at the raw bytes of a tree. Fatal problems are names that
// could leave a checkout or write into its .git; the others are forms git no
// longer writes, which old histories hold.
func CheckTree(data []byte) ([]Problem, error) {
	var out []Problem
	add := func(kind, name, detail string, fatal bool) {
		if len(out) < 50 {
			out = append(out, Problem{kind, name, detail, fatal})
		}
	}
	var prevKey string
	first := true
	seen := map[string]bool{}
	folded := map[string]string{}
	err := eachEntry(data, func(mode, name []byte, id ID) error {
		n := string(name)
		m, err := parseMode(mode)
		if err != nil {
			return err
		}
		if len(mode) > 0 && mode[0] == '0' {
			add("mode", n, "its mode starts with a zero", false)
		}
		cm, exact := CanonicalMode(m)
		if !exact {
			add("mode", n, fmt.Sprintf("its mode is %o", m), m&0o170000 == 0 || m&0o170000 == 0o020000)
		}
		if kind, why := CheckName(n); kind != "" {
			add(kind, n, why, true)
		}
		if id.IsZero() {
			add("null", n, "it names the null object", true)
		}
		if cm == ModeLink && looksLike(n, ".gitmodules") {
			add("gitmodules-link", n, ".gitmodules is a symbolic link", true)
		}
		if key := sortKey(n, cm); !first && key <= prevKey {
			if key == prevKey {
				add("duplicate", n, "the name occurs twice", true)
			} else {
				add("order", n, "the tree is not sorted", true)
			}
		} else {
			prevKey = key
		}
		first = false
		if seen[n] {
			add("duplicate", n, "the name occurs twice", true)
		}
		seen[n] = true
		if f := strings.ToLower(n); folded[f] != "" && folded[f] != n {
			add("case-twin", n, "another entry differs only in case", false)
		} else {
			folded[f] = n
		}
		return nil
	})
	return out, err
}

// CheckName reports a tree entry name that must never reach a file system.
func CheckName(n string) (kind, why string) {
	switch {
	case n == "":
		return "empty", "an entry has no name"
	case n == "." || n == "..":
		return "traversal", "an entry is named " + n
	case strings.ContainsRune(n, '/'):
		return "traversal", "a name holds a slash"
	case len(n) > 255:
		return "long", "a name is longer than 255 bytes"
	case looksLike(n, ".git"):
		return "dotgit", "a name is .git or a disguise of it"
	}
	// On Windows a backslash separates, so any part may be the disguise.
	for part := range strings.SplitSeq(n, `\`) {
		if part != n && (part == ".." || looksLike(part, ".git")) {
			return "traversal", "a name is a path on Windows"
		}
	}
	return "", ""
}

// looksLike reports whether some file system takes name for want (".git",
// ".gitmodules"): letter case, NTFS's short names, trailing dots, spaces and
// streams, HFS+'s ignored characters.
func looksLike(name, want string) bool {
	n := stripHFS(name)
	if equalFold(n, want) {
		return true
	}
	ntfs := n
	if i := strings.IndexByte(ntfs, ':'); i >= 0 {
		ntfs = ntfs[:i]
	}
	ntfs = strings.TrimRight(ntfs, ". ")
	if equalFold(ntfs, want) {
		return true
	}
	low := strings.ToLower(ntfs)
	switch want {
	case ".git":
		return low == "git~1"
	case ".gitmodules":
		// GITMOD~1 … GITMOD~4, then the hashed form GI7EBA~1 and its shorter kin.
		if stem, num, ok := strings.Cut(low, "~"); ok && num != "" && strings.Trim(num, "0123456789") == "" {
			return stem == "gitmod" || len(stem) >= 2 && strings.HasPrefix("gi7eba", stem)
		}
	}
	return false
}

// IsGitmodules reports whether a name is .gitmodules to any file system.
func IsGitmodules(name string) bool { return looksLike(name, ".gitmodules") }

func equalFold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

func stripHFS(s string) string {
	ascii := true
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, s)
}

// CheckPerson reports what is wrong with an author or committer line.
func CheckPerson(s string) string {
	lt, gt := strings.IndexByte(s, '<'), strings.IndexByte(s, '>')
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "it holds a NUL"
	case lt < 0 || gt < lt:
		return "it has no <address>"
	case lt > 0 && s[lt-1] != ' ':
		return "no space before the address"
	case strings.ContainsAny(s[lt+1:gt], "<\n") || strings.ContainsAny(s[gt+1:], "<>"):
		return "stray angle brackets"
	}
	f := strings.Fields(s[gt+1:])
	if len(f) != 2 || strings.Trim(f[0], "0123456789") != "" || len(f[0]) > 18 {
		return "it has no date"
	}
	if len(f[1]) != 5 || (f[1][0] != '+' && f[1][0] != '-') || strings.Trim(f[1][1:], "0123456789") != "" {
		return "it has no time zone"
	}
	return ""
}
