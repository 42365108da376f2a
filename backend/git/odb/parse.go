package odb

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Modes of tree entries.
const (
	ModeDir     uint32 = 0o040000
	ModeFile    uint32 = 0o100644
	ModeExec    uint32 = 0o100755
	ModeLink    uint32 = 0o120000
	ModeGitlink uint32 = 0o160000
)

// Entry of a tree. Name is raw bytes.
type Entry struct {
	Name string
	Mode uint32
	ID   ID
}

// CommitInfo is a parsed commit. Strings are raw bytes.
type CommitInfo struct {
	Tree      ID
	Parents   []ID
	Author    string // "Name <email> seconds zone"
	Committer string
	Encoding  string
	Extra     []string // names of further headers (gpgsig, mergetag, …)
	Message   string
}

// ParseTree splits a tree into its entries; whether names and order are good is Check's question.
func ParseTree(data []byte) ([]Entry, error) {
	entries := make([]Entry, 0, len(data)/32)
	err := eachEntry(data, func(mode []byte, name []byte, id ID) error {
		m, err := parseMode(mode)
		if err != nil {
			return err
		}
		entries = append(entries, Entry{string(name), m, id})
		return nil
	})
	return entries, err
}

func eachEntry(data []byte, f func(mode, name []byte, id ID) error) error {
	for len(data) > 0 {
		sp := bytes.IndexByte(data, ' ')
		if sp <= 0 || sp > 8 {
			return fmt.Errorf("%w: tree entry without a mode", ErrCorrupt)
		}
		nul := bytes.IndexByte(data[sp+1:], 0)
		if nul < 0 || len(data) < sp+1+nul+1+20 {
			return fmt.Errorf("%w: tree entry cut short", ErrCorrupt)
		}
		var id ID
		copy(id[:], data[sp+1+nul+1:])
		if err := f(data[:sp], data[sp+1:sp+1+nul], id); err != nil {
			return err
		}
		data = data[sp+1+nul+1+20:]
	}
	return nil
}

func parseMode(b []byte) (uint32, error) {
	var m uint32
	for _, c := range b {
		if c < '0' || c > '7' {
			return 0, fmt.Errorf("%w: tree entry with mode %q", ErrCorrupt, clip(string(b), 12))
		}
		m = m<<3 | uint32(c-'0')
	}
	return m, nil
}

// CanonicalMode maps the modes old programs wrote onto the five git knows; ok is
// false for anything that is none of them.
func CanonicalMode(m uint32) (uint32, bool) {
	switch m & 0o170000 {
	case 0o040000:
		return ModeDir, m == ModeDir
	case 0o120000:
		return ModeLink, m == ModeLink
	case 0o160000:
		return ModeGitlink, m == ModeGitlink
	case 0o100000:
		if m&0o100 != 0 {
			return ModeExec, m == ModeExec
		}
		return ModeFile, m == ModeFile
	}
	return ModeFile, false
}

// EncodeTree sorts entries as git does and writes them out.
func EncodeTree(entries []Entry) []byte {
	sortEntries(entries)
	var b []byte
	for _, e := range entries {
		b = strconv.AppendUint(b, uint64(e.Mode), 8)
		b = append(b, ' ')
		b = append(b, e.Name...)
		b = append(b, 0)
		b = append(b, e.ID[:]...)
	}
	return b
}

// ParseCommit reads a commit.
func ParseCommit(data []byte) (CommitInfo, error) {
	var c CommitInfo
	bad := func(why string) (CommitInfo, error) { return c, fmt.Errorf("%w: commit %s", ErrCorrupt, why) }
	head, msg, _ := bytes.Cut(data, []byte("\n\n"))
	c.Message = string(msg)
	state := 0 // 0 tree, 1 parents, 2 after author, 3 after committer
	for i, line := range strings.Split(strings.TrimSuffix(string(head), "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			if state < 3 {
				return bad("with a continued header")
			}
			continue // the rest of a signature or the like
		}
		key, val, _ := strings.Cut(line, " ")
		switch {
		case key == "tree" && i == 0:
			id, err := ParseID(val)
			if err != nil {
				return bad("with a bad tree id")
			}
			c.Tree, state = id, 1
		case key == "parent" && state == 1:
			id, err := ParseID(val)
			if err != nil {
				return bad("with a bad parent id")
			}
			c.Parents = append(c.Parents, id)
		case key == "author" && state == 1:
			c.Author, state = val, 2
		case key == "committer" && state == 2:
			c.Committer, state = val, 3
		case key == "encoding" && state == 3:
			c.Encoding = val
		case state == 3 && key != "tree" && key != "parent":
			if len(c.Extra) < 32 {
				c.Extra = append(c.Extra, key)
			}
		default:
			return bad(fmt.Sprintf("with an unexpected header %q", clip(key, 20)))
		}
	}
	if state != 3 {
		return bad("without tree, author and committer")
	}
	return c, nil
}

// EncodeCommit writes a commit without further headers.
func EncodeCommit(c CommitInfo) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n", c.Author, c.Committer)
	if c.Encoding != "" {
		fmt.Fprintf(&b, "encoding %s\n", c.Encoding)
	}
	b.WriteByte('\n')
	b.WriteString(c.Message)
	return b.Bytes()
}

// ParseTag returns what an annotated tag names.
func ParseTag(data []byte) (ID, Type, error) {
	lines := strings.SplitN(string(data), "\n", 3)
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "object ") || !strings.HasPrefix(lines[1], "type ") {
		return ID{}, 0, fmt.Errorf("%w: tag without object and type", ErrCorrupt)
	}
	id, err := ParseID(lines[0][len("object "):])
	if err != nil {
		return ID{}, 0, fmt.Errorf("%w: tag with a bad object id", ErrCorrupt)
	}
	for t := Commit; t <= Tag; t++ {
		if t.String() == lines[1][len("type "):] {
			return id, t, nil
		}
	}
	return ID{}, 0, fmt.Errorf("%w: tag of an unknown type", ErrCorrupt)
}
