package git

import (
	"context"
	"fmt"
	"path/filepath"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
	"glasshouse/backend/git/source"
)

// Look says what a project made from a folder would begin with: its branch and
// commit, and which files differ from it, of which a person may bring some along.
// Like ImportSource it only reads, and runs nothing in the folder. dir is an
// absolute path.
func Look(ctx context.Context, dir string, opt Options) (ImportResult, error) {
	var res ImportResult
	if !filepath.IsAbs(dir) {
		return res, &domain.Error{Code: domain.CodeInvalid, Pointer: "/path", What: "the path is not an absolute one", Hint: "give the whole path of the folder"}
	}
	opt, err := opt.filled()
	if err != nil {
		return res, err
	}
	src, err := openSource(dir)
	if err != nil {
		return res, err
	}
	res = ImportResult{Kind: string(src.Kind), Path: src.Path, Branch: src.Branch, Origin: src.Origin, Notes: src.Notes}
	if src.Kind == source.Folder {
		return res, nil
	}
	var head []odb.File
	if !src.Commit.IsZero() {
		res.Commit = src.Commit.String()
		if head, err = headFiles(ctx, src); err != nil {
			return res, domain.E(domain.CodeInvalid, "the source's objects cannot be read", "see 'git fsck' there", err)
		}
	}
	res.Files = len(head)
	uc, err := (&Mirror{opt: opt}).userConfig(ctx)
	if err != nil {
		res.Notes = append(res.Notes, "your global git settings could not be read: "+err.Error())
	}
	scan, err := src.Scan(ctx, source.ScanOptions{Head: head, Excludes: uc.excludes, Attributes: uc.attributes})
	if err != nil {
		return res, fmt.Errorf("comparing the source's files with its commit: %w", err)
	}
	res.Dirty, res.MoreDirty, res.MayDiffer, res.Ignored = scan.Dirty, scan.More, scan.MayDiffer, scan.Ignored
	res.Notes = append(res.Notes, scan.Notes...)
	return res, nil
}

// headFiles lists the files of a source's commit from its own objects.
func headFiles(ctx context.Context, src *source.Source) ([]odb.File, error) {
	st, err := odb.Open(src.Objects...)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	o := &Objects{Store: st}
	c, err := o.Commit(src.Commit)
	if err != nil {
		return nil, err
	}
	return o.Flatten(ctx, c.Tree, maxSourceFiles)
}
