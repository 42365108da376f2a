package review

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"glasshouse/backend/git"
	"glasshouse/backend/git/odb"
)

// AcceptedTree writes the tree of the base with the accepted changes and nothing
// else; undecided counts as not accepted. With everything accepted it is the
// candidate's tree, with nothing the base's, by id. It wraps ErrConflict when the
// decisions would make a path a file and a folder at once.
func AcceptedTree(ctx context.Context, o *git.Objects, r *Review, d Decisions) (git.ID, error) {
	accepted, rejected, undecided := d.Count(r)
	var base git.ID
	if r.BaseTree != "" {
		id, err := git.ParseID(r.BaseTree)
		if err != nil {
			return git.ID{}, err
		}
		base = id
	}
	if rejected+undecided == 0 {
		return git.ParseID(r.CandidateTree)
	}
	if accepted == 0 && r.BaseTree != "" {
		return base, nil
	}
	var edits []git.Edit
	for i := range r.Files {
		e, err := fileEdits(o, &r.Files[i], d)
		if err != nil {
			return git.ID{}, fmt.Errorf("%s: %w", r.Files[i].Display, err)
		}
		edits = append(edits, e...)
	}
	id, err := o.EditTree(ctx, base, edits)
	var c *git.ConflictError
	if errors.As(err, &c) {
		return git.ID{}, fmt.Errorf("%w: %s would be a file although %s is kept or added below it; accept or reject both", ErrConflict, Display(c.File), Display(c.Below))
	}
	return id, err
}

// fileEdits is what the decisions about one file change in the base's tree.
func fileEdits(o *git.Objects, f *File, d Decisions) ([]git.Edit, error) {
	yes := func(unit string) bool { return d.Of(f.ID, unit) == Accept }
	parse := func(s string) git.ID { id, _ := git.ParseID(s); return id }
	if f.Has(UnitFile) {
		if !yes(UnitFile) {
			return nil, nil
		}
		if f.Op == OpDelete {
			return []git.Edit{{Path: f.Path}}, nil
		}
		return []git.Edit{{Path: f.Path, Mode: f.NewMode, ID: parse(f.NewOID)}}, nil
	}
	old := f.Path
	if f.OldPath != "" {
		old = f.OldPath
	}
	e := git.Edit{Path: old, Mode: f.OldMode, ID: parse(f.OldOID)}
	if f.OldPath != "" && yes(UnitRename) {
		e.Path = f.Path
	}
	if f.OldMode != f.NewMode && yes(UnitMode) {
		e.Mode = f.NewMode
	}
	id, err := content(o, f, d)
	if err != nil {
		return nil, err
	}
	e.ID = id
	if e.Path == old {
		if e.Mode == f.OldMode && e.ID.String() == f.OldOID {
			return nil, nil
		}
		return []git.Edit{e}, nil
	}
	return []git.Edit{{Path: old}, e}, nil
}

// content returns the blob of a file with its accepted hunks.
func content(o *git.Objects, f *File, d Decisions) (git.ID, error) {
	if f.OldOID == f.NewOID {
		return git.ParseID(f.OldOID)
	}
	if f.Has(UnitContent) {
		if d.Of(f.ID, UnitContent) == Accept {
			return git.ParseID(f.NewOID)
		}
		return git.ParseID(f.OldOID)
	}
	n := 0
	for _, h := range f.Hunks {
		if d.Of(f.ID, h.ID) == Accept {
			n++
		}
	}
	switch n {
	case 0:
		return git.ParseID(f.OldOID)
	case len(f.Hunks):
		return git.ParseID(f.NewOID)
	}
	old, err := readText(o, f.OldOID)
	if err != nil {
		return git.ID{}, err
	}
	new, err := readText(o, f.NewOID)
	if err != nil {
		return git.ID{}, err
	}
	return o.Put(odb.Blob, []byte(apply(f, splitLines(old), splitLines(new), d)))
}

func readText(o *git.Objects, oid string) (string, error) {
	id, err := git.ParseID(oid)
	if err != nil {
		return "", err
	}
	data, err := o.ReadAs(id, odb.Blob, MaxTextBytes)
	return string(data), err
}

// apply replaces, in the base's lines, what the accepted hunks replace.
func apply(f *File, old, new []string, d Decisions) string {
	var b strings.Builder
	at := 0
	put := func(lines []string) {
		for _, l := range lines {
			b.WriteString(l)
		}
	}
	for _, h := range f.Hunks {
		if d.Of(f.ID, h.ID) != Accept {
			continue
		}
		for _, e := range f.edits[h.first:h.last] {
			put(old[at:e.a0])
			put(new[e.b0:e.b1])
			at = e.a1
		}
	}
	put(old[at:])
	return b.String()
}
