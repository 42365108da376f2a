package odb

import (
	"context"
	"fmt"
)

// MaxMeta bounds commits, trees and tags that are parsed, 64 MiB.
const MaxMeta = 64 << 20

// Walk collects everything the roots (commits or tags) reach and the have set
// does not: commits, then trees, then blobs, each once. Gitlinks are not
// followed. max bounds the number of objects.
func (s *Store) Walk(ctx context.Context, roots, have []ID, max int) ([]ID, error) {
	w := walker{s: s, ctx: ctx, max: max, seen: map[ID]struct{}{}}
	// What have reaches is marked first, at the cost of reading its trees once.
	if len(have) > 0 {
		if err := w.run(have, true); err != nil {
			return nil, err
		}
		w.commits, w.trees, w.blobs = nil, nil, nil
	}
	if err := w.run(roots, false); err != nil {
		return nil, err
	}
	out := make([]ID, 0, len(w.commits)+len(w.trees)+len(w.blobs))
	out = append(out, w.commits...)
	out = append(out, w.trees...)
	return append(out, w.blobs...), nil
}

type walker struct {
	s                     *Store
	ctx                   context.Context
	max, n                int
	seen                  map[ID]struct{}
	commits, trees, blobs []ID
}

func (w *walker) add(list *[]ID, id ID) (bool, error) {
	if _, ok := w.seen[id]; ok {
		return false, nil
	}
	w.seen[id] = struct{}{}
	*list = append(*list, id)
	if w.n++; w.max > 0 && w.n > w.max {
		return false, fmt.Errorf("%w: more than %d objects", ErrTooLarge, w.max)
	}
	if w.n%512 == 0 && w.ctx.Err() != nil {
		return false, context.Cause(w.ctx)
	}
	return true, nil
}

func (w *walker) run(roots []ID, lenient bool) error {
	stack := append([]ID(nil), roots...)
	var tops []ID
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if lenient && !w.s.Has(id) {
			continue
		}
		fresh, err := w.add(&w.commits, id)
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		t, data, err := w.s.Read(id, MaxMeta)
		if err != nil {
			return err
		}
		switch t {
		case Commit:
			c, err := ParseCommit(data)
			if err != nil {
				return fmt.Errorf("commit %s: %w", id, err)
			}
			tops = append(tops, c.Tree)
			stack = append(stack, c.Parents...)
		case Tag:
			target, _, err := ParseTag(data)
			if err != nil {
				return fmt.Errorf("tag %s: %w", id, err)
			}
			stack = append(stack, target)
		default:
			return fmt.Errorf("object %s is a %s where a commit is needed", id, t)
		}
	}
	// Newest first, so that the deltas a repack made point at bases already met.
	for _, id := range tops {
		if err := w.tree(id); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) tree(root ID) error {
	stack := []ID{root}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		fresh, err := w.add(&w.trees, id)
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		data, err := w.s.ReadAs(id, Tree, MaxMeta)
		if err != nil {
			return err
		}
		err = eachEntry(data, func(mode, _ []byte, e ID) error {
			m, err := parseMode(mode)
			if err != nil {
				return err
			}
			switch cm, _ := CanonicalMode(m); cm {
			case ModeDir:
				stack = append(stack, e)
			case ModeGitlink:
			default:
				_, err = w.add(&w.blobs, e)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("tree %s: %w", id, err)
		}
	}
	return nil
}

// File is one path of a flattened tree.
type File struct {
	Path string
	Mode uint32
	ID   ID
}

// Flatten lists every file, link and gitlink below a tree, at most max, in tree order.
func (s *Store) Flatten(ctx context.Context, root ID, max int) ([]File, error) {
	var out []File
	dirs := 0
	err := s.flatten(ctx, root, "", 0, max, &dirs, &out)
	return out, err
}

// MaxDepth bounds how deep trees nest.
const MaxDepth = 512

func (s *Store) flatten(ctx context.Context, root ID, prefix string, depth, max int, dirs *int, out *[]File) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: folders nest deeper than %d", ErrTooLarge, MaxDepth)
	}
	// Folders are counted too: empty ones can multiply without a single file.
	if *dirs++; *dirs > max {
		return fmt.Errorf("%w: more than %d folders", ErrTooLarge, max)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	data, err := s.ReadAs(root, Tree, MaxMeta)
	if err != nil {
		return err
	}
	entries, err := ParseTree(data)
	if err != nil {
		return fmt.Errorf("tree %s: %w", root, err)
	}
	for _, e := range entries {
		m, _ := CanonicalMode(e.Mode)
		if m == ModeDir {
			if err := s.flatten(ctx, e.ID, prefix+e.Name+"/", depth+1, max, dirs, out); err != nil {
				return err
			}
			continue
		}
		if len(*out) >= max {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, max)
		}
		*out = append(*out, File{prefix + e.Name, m, e.ID})
	}
	return nil
}
