package git

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"time"

	"glasshouse/backend/git/odb"
)

// Objects reads and adds objects of a mirror. It sees what was there when it was
// opened, and what it wrote. Safe for concurrent use. Close it.
type Objects struct {
	*odb.Store
	w odb.Writer
}

// Objects opens the mirror's objects.
func (m *Mirror) Objects() (*Objects, error) {
	s, err := odb.Open(m.objectsDir())
	if err != nil {
		return nil, err
	}
	return &Objects{s, odb.Writer{Dir: m.objectsDir(), Sync: true}}, nil
}

// Commit is a parsed commit; its strings are raw bytes.
type Commit = odb.CommitInfo

// Commit reads a commit.
func (o *Objects) Commit(id ID) (Commit, error) {
	data, err := o.ReadAs(id, odb.Commit, odb.MaxMeta)
	if err != nil {
		return Commit{}, err
	}
	return odb.ParseCommit(data)
}

// Tree reads a tree's entries.
func (o *Objects) Tree(id ID) ([]odb.Entry, error) {
	data, err := o.ReadAs(id, odb.Tree, odb.MaxMeta)
	if err != nil {
		return nil, err
	}
	return odb.ParseTree(data)
}

// Put writes an object and returns its id.
func (o *Objects) Put(t odb.Type, data []byte) (ID, error) { return o.w.Put(t, data) }

// IsAncestor reports whether a commit is among another's ancestors or is it.
func (o *Objects) IsAncestor(ctx context.Context, old, tip ID) (bool, error) {
	seen := map[ID]bool{}
	stack := []ID{tip}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if id == old {
			return true, nil
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		if len(seen)%256 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		c, err := o.Commit(id)
		if err != nil {
			return false, err
		}
		stack = append(stack, c.Parents...)
	}
	return false, nil
}

// Between lists the commits of tip that base does not reach, newest first, at most max.
func (o *Objects) Between(ctx context.Context, base, tip ID, max int) ([]ID, error) {
	old := map[ID]bool{}
	if !base.IsZero() {
		stack := []ID{base}
		for len(stack) > 0 {
			id := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if old[id] {
				continue
			}
			old[id] = true
			if len(old)%256 == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c, err := o.Commit(id)
			if err != nil {
				return nil, err
			}
			stack = append(stack, c.Parents...)
		}
	}
	var out []ID
	stack := []ID{tip}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if old[id] {
			continue
		}
		old[id] = true
		if len(out) == max {
			return nil, fmt.Errorf("%w: more than %d commits", ErrTooLarge, max)
		}
		out = append(out, id)
		c, err := o.Commit(id)
		if err != nil {
			return nil, err
		}
		stack = append(stack, c.Parents...)
	}
	return out, nil
}

// Edit sets (or, with Mode 0, removes) one path of a tree.
type Edit struct {
	Path string // slash separated, raw bytes
	Mode uint32
	ID   ID
}

// ConflictError: edits that no tree can hold together.
type ConflictError struct{ File, Below string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%q cannot be a file while %q lies below it", e.File, e.Below)
}

// EditTree writes the tree that base becomes by the edits; a zero base is the
// empty tree. Folders that become empty vanish. A *ConflictError names a file
// that would have to be a folder as well.
func (o *Objects) EditTree(ctx context.Context, base ID, edits []Edit) (ID, error) {
	sort.Slice(edits, func(i, j int) bool { return edits[i].Path < edits[j].Path })
	for i, e := range edits {
		if i > 0 && edits[i-1].Path == e.Path {
			return ID{}, fmt.Errorf("the path %q is edited twice", e.Path)
		}
		for part := range strings.SplitSeq(e.Path, "/") {
			if kind, why := odb.CheckName(part); kind != "" && e.Mode != 0 {
				return ID{}, fmt.Errorf("%w: the path %q: %s", ErrRefused, e.Path, why)
			}
		}
	}
	id, _, err := o.editTree(ctx, base, "", edits, 0)
	return id, err
}

func (o *Objects) editTree(ctx context.Context, base ID, prefix string, edits []Edit, depth int) (ID, int, error) {
	if depth > odb.MaxDepth {
		return ID{}, 0, fmt.Errorf("%w: folders nest too deep", ErrTooLarge)
	}
	if ctx.Err() != nil {
		return ID{}, 0, context.Cause(ctx)
	}
	byName := map[string]odb.Entry{}
	if !base.IsZero() {
		entries, err := o.Tree(base)
		if err != nil {
			return ID{}, 0, err
		}
		for _, e := range entries {
			byName[e.Name] = e
		}
	}
	// Edits of this folder, and of the folders below it by name.
	below := map[string][]Edit{}
	direct := map[string]Edit{}
	for _, e := range edits {
		name, rest, deeper := strings.Cut(e.Path[len(prefix):], "/")
		_ = rest
		if deeper {
			below[name] = append(below[name], e)
		} else {
			direct[name] = e
		}
	}
	for name, e := range direct {
		if old, ok := byName[name]; ok && old.Mode == odb.ModeDir && len(below[name]) == 0 && e.Mode != 0 {
			// A file takes a folder's place; each file in the folder needs its own
			// edit that removes it.
			return ID{}, 0, &ConflictError{e.Path, e.Path + "/"}
		} else if ok && old.Mode == odb.ModeDir && e.Mode == 0 {
			continue // "remove the file" where a folder stands: nothing to do
		}
		if e.Mode == 0 {
			delete(byName, name)
		}
	}
	for _, name := range sorted(below) {
		old, had := byName[name]
		sub := ID{}
		if had && old.Mode == odb.ModeDir {
			sub = old.ID
		}
		id, n, err := o.editTree(ctx, sub, prefix+name+"/", below[name], depth+1)
		if err != nil {
			return ID{}, 0, err
		}
		switch {
		case n == 0:
			if had && old.Mode == odb.ModeDir {
				delete(byName, name)
			}
		case had && old.Mode != odb.ModeDir:
			return ID{}, 0, &ConflictError{prefix + name, prefix + name + "/" + lastPart(below[name], prefix+name+"/")}
		default:
			byName[name] = odb.Entry{Name: name, Mode: odb.ModeDir, ID: id}
		}
	}
	for name, e := range direct {
		if e.Mode == 0 {
			continue
		}
		if old, ok := byName[name]; ok && old.Mode == odb.ModeDir {
			return ID{}, 0, &ConflictError{e.Path, e.Path + "/"}
		}
		byName[name] = odb.Entry{Name: name, Mode: e.Mode, ID: e.ID}
	}
	out := make([]odb.Entry, 0, len(byName))
	for _, e := range byName {
		out = append(out, e)
	}
	if len(out) == 0 && depth > 0 {
		return ID{}, 0, nil
	}
	id, err := o.Put(odb.Tree, odb.EncodeTree(out))
	return id, len(out), err
}

func lastPart(edits []Edit, prefix string) string {
	for _, e := range edits {
		if e.Mode != 0 {
			return e.Path[len(prefix):]
		}
	}
	return ""
}

// Person is who wrote or made a commit.
type Person struct {
	Name, Email string
	When        time.Time
}

var personBad = regexp.MustCompile(`[<>\x00-\x1f\x7f]+`)

func (p Person) line() string {
	name := strings.TrimSpace(personBad.ReplaceAllString(p.Name, " "))
	mail := strings.TrimSpace(personBad.ReplaceAllString(p.Email, ""))
	if name == "" {
		name = "unknown"
	}
	return fmt.Sprintf("%s <%s> %d %s", name, mail, p.When.Unix(), p.When.Format("-0700"))
}

// NewCommit is a commit the host makes.
type NewCommit struct {
	Tree              ID
	Parents           []ID
	Author, Committer Person
	Message           string
}

// WriteCommit writes a commit.
func (o *Objects) WriteCommit(c NewCommit) (ID, error) {
	if t, _, err := o.Info(c.Tree); err != nil || t != odb.Tree {
		return ID{}, fmt.Errorf("the commit's tree %s is not in the mirror", c.Tree)
	}
	msg := strings.TrimRight(strings.ReplaceAll(c.Message, "\x00", ""), "\n") + "\n"
	return o.Put(odb.Commit, odb.EncodeCommit(odb.CommitInfo{
		Tree: c.Tree, Parents: c.Parents, Author: c.Author.line(), Committer: c.Committer.line(), Message: msg,
	}))
}

// RemoveAll deletes the mirror's folder.
func (m *Mirror) RemoveAll() error { return os.RemoveAll(m.dir) }
