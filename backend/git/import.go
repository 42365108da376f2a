package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
	"glasshouse/backend/git/packcheck"
	"glasshouse/backend/git/source"
	"glasshouse/vm/guest"
)

// BaseRef is what the mirror calls the commit that was imported last.
const BaseRef = "refs/glasshouse/base"

// ImportOptions of ImportSource.
type ImportOptions struct {
	// Overlay names dirty files the person picked; they come along as bytes, not
	// as part of a commit. Ignored files and files that may hold secrets never do.
	Overlay []string
	// Branch of an address to take; empty = the one its HEAD names. A folder comes
	// with the branch it is on.
	Branch string
	// Progress is told how far a fetch is; it may be nil and must not wait.
	Progress func(FetchProgress)
}

// DirtyFile is a path of the source that differs from its commit.
type DirtyFile = source.Dirty

// ImportResult says what was brought in and what stayed outside.
type ImportResult struct {
	Kind      string // "repository", "bare", "folder", "remote"
	Path      string
	Branch    string // empty: HEAD is detached
	Commit    string // empty: no commits
	Origin    string // URL of the source's remote origin; raw, Redact before showing
	Files     int
	Dirty     []DirtyFile
	MoreDirty bool
	Overlay   []guest.OverlayFile
	Overlaid  []string
	MayDiffer []string // filtered files, which were not compared
	Ignored   int      // ignored files and folders
	Findings  []Finding
	Notes     []string
}

const (
	maxOverlay       = 64 << 20
	maxOverlayFiles  = 2000
	maxFolderFile    = 100 << 20
	maxFolderBytes   = 2 << 30
	maxFolderFiles   = 200_000
	maxSourceFiles   = 2_000_000
	maxSourceObjects = 20_000_000
)

// openSource finds the repository or folder a person chose. What is odd in it is
// theirs to mend, and no fault of ours.
func openSource(dir string) (*source.Source, error) {
	src, err := source.Open(dir)
	var known *domain.Error
	if err != nil && !errors.As(err, &known) {
		err = domain.E(domain.CodeInvalid, "the repository in "+clip(dir, 400)+" cannot be read", "repair it with git, or choose another folder", err)
	}
	return src, err
}

// ImportSource copies what HEAD of the person's repository reaches into the
// mirror and says how its files differ from it. The source stays as it is to the
// byte: nothing is written there and no program runs. A folder that is no
// repository becomes one commit of the host's making, without its ignored files
// and without files that may hold secrets. An address (see IsAddress) is fetched, one
// branch of it alone.
func (m *Mirror) ImportSource(ctx context.Context, dir string, opt ImportOptions) (ImportResult, error) {
	var res ImportResult
	if IsAddress(dir) {
		if len(opt.Overlay) > 0 {
			return res, domain.E(domain.CodeInvalid, "an address has no changed files to bring along", "pick none, or choose a folder", nil)
		}
		return m.importAddress(ctx, dir, opt)
	}
	if opt.Branch != "" {
		return res, &domain.Error{Code: domain.CodeInvalid, Pointer: "/branch", What: "a folder comes with the branch it is on", Hint: "give no branch, or the folder as file://" + clip(dir, 200)}
	}
	src, err := openSource(dir)
	if err != nil {
		return res, err
	}
	res = ImportResult{Kind: string(src.Kind), Path: src.Path, Branch: src.Branch, Origin: src.Origin, Notes: src.Notes}
	if src.Kind == source.Folder {
		return res, m.importFolder(ctx, src, &res)
	}
	var head []odb.File
	if !src.Commit.IsZero() {
		if err := m.importCommit(ctx, src, &res); err != nil {
			return res, err
		}
		if head, err = m.files(ctx, src.Commit); err != nil {
			return res, err
		}
	}
	res.Files = len(head)
	uc, err := m.userConfig(ctx)
	if err != nil {
		res.Notes = append(res.Notes, "your global git settings could not be read: "+err.Error())
	}
	scan, err := src.Scan(ctx, source.ScanOptions{Head: head, Excludes: uc.excludes, Attributes: uc.attributes})
	if err != nil {
		return res, fmt.Errorf("comparing the source's files with its commit: %w", err)
	}
	res.Dirty, res.MoreDirty, res.MayDiffer, res.Ignored = scan.Dirty, scan.More, scan.MayDiffer, scan.Ignored
	res.Notes = append(res.Notes, scan.Notes...)
	for _, n := range scan.Nested {
		res.Notes = append(res.Notes, fmt.Sprintf("the repository inside, %q, stays outside", n))
	}
	return res, overlay(src, &res, opt.Overlay)
}

func (m *Mirror) importCommit(ctx context.Context, src *source.Source, res *ImportResult) error {
	hint := "'git fsck' in it shows what is wrong"
	s, err := odb.Open(src.Objects...)
	if err != nil {
		return domain.E(domain.CodeInvalid, "the source's objects cannot be read", hint, err)
	}
	defer s.Close()
	mine, err := odb.Open(m.objectsDir())
	if err != nil {
		return err
	}
	defer mine.Close()
	if mine.Has(src.Commit) {
		res.Commit = src.Commit.String()
		return m.SetRef(BaseRef, res.Commit, "*")
	}
	var have []odb.ID
	if old, err := m.Ref(BaseRef); err == nil {
		if id, err := odb.ParseID(old); err == nil && s.Has(id) {
			have = append(have, id)
		}
	}
	ids, err := s.Walk(ctx, []odb.ID{src.Commit}, have, maxSourceObjects)
	if err != nil {
		return domain.E(domain.CodeInvalid, "the source's history cannot be read whole", hint, err)
	}
	rec, err := m.take(ctx, s, ids, src.Commit)
	if err != nil {
		return domain.E(domain.CodeInvalid, "the source's objects were not taken over", hint, err)
	}
	res.Findings = rec.Findings
	res.Commit = src.Commit.String()
	return m.SetRef(BaseRef, res.Commit, "*")
}

// take streams objects of another store through the same checks a guest's pack goes through.
func (m *Mirror) take(ctx context.Context, s *odb.Store, ids []odb.ID, want odb.ID) (Received, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw, err := os.Pipe()
	if err != nil {
		return Received{}, err
	}
	werr := make(chan error, 1)
	go func() {
		_, err := s.WritePack(ctx, pw, ids)
		_ = pw.Close()
		werr <- err
	}()
	rec, err := m.receive(ctx, pr, []string{want.String()}, packcheck.Source(), true)
	_ = pr.Close()
	cancel()
	if e := <-werr; e != nil && (err == nil || errors.Is(err, ErrCorrupt)) && !errors.Is(e, os.ErrClosed) {
		err = e
	}
	return rec, err
}

func (m *Mirror) files(ctx context.Context, commit odb.ID) ([]odb.File, error) {
	o, err := m.Objects()
	if err != nil {
		return nil, err
	}
	defer o.Close()
	c, err := o.Commit(commit)
	if err != nil {
		return nil, err
	}
	return o.Flatten(ctx, c.Tree, maxSourceFiles)
}

// overlay reads the picked files. A file that changed since it was listed comes
// as it is now.
func overlay(src *source.Source, res *ImportResult, picks []string) error {
	if len(picks) > maxOverlayFiles {
		return domain.E(domain.CodeTooLarge, fmt.Sprintf("more than %d changed files were picked", maxOverlayFiles), "commit them in the source, or pick fewer", nil)
	}
	byPath := map[string]*DirtyFile{}
	for i := range res.Dirty {
		byPath[res.Dirty[i].Path] = &res.Dirty[i]
	}
	total := 0
	sort.Strings(picks)
	for i, p := range picks {
		if i > 0 && picks[i-1] == p {
			continue
		}
		d := byPath[p]
		if d == nil {
			return domain.E(domain.CodeInvalid, fmt.Sprintf("%q is no changed file of the source", p), "pick from the list of changed files; ignored files cannot be brought along", nil)
		}
		if d.Withheld != "" {
			return domain.E(domain.CodeDenied, fmt.Sprintf("%q stays outside: %s", p, d.Withheld), "write what the agent needs into another file, or hand a secret over as one", nil)
		}
		if d.Op == "delete" {
			res.Overlay = append(res.Overlay, guest.OverlayFile{Path: p, Deleted: true})
			res.Overlaid = append(res.Overlaid, p)
			continue
		}
		data, err := src.ReadDirty(*d)
		if err != nil {
			return domain.E(domain.CodeUnavailable, fmt.Sprintf("%q could not be read", p), "close what is writing to it and try again", err)
		}
		if total += len(data); total > maxOverlay {
			return domain.E(domain.CodeTooLarge, fmt.Sprintf("the picked files are larger than %d MiB together", maxOverlay>>20), "commit them in the source, or pick fewer", nil)
		}
		res.Overlay = append(res.Overlay, guest.OverlayFile{Path: p, Mode: d.Mode & 0o777, Data: data})
		res.Overlaid = append(res.Overlaid, p)
	}
	return nil
}

// importFolder makes a commit of a plain folder. Its objects are gathered in a
// store of their own first, so that they too arrive as a checked pack.
func (m *Mirror) importFolder(ctx context.Context, src *source.Source, res *ImportResult) error {
	if err := os.MkdirAll(m.quarantineDir(), 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(m.quarantineDir(), "folder-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	w := odb.Writer{Dir: tmp}
	uc, err := m.userConfig(ctx)
	if err != nil {
		res.Notes = append(res.Notes, "your global git settings could not be read: "+err.Error())
	}
	var edits []Edit
	var total int64
	left := func(p, why string) {
		if len(res.Dirty) < source.MaxDirty {
			res.Dirty = append(res.Dirty, DirtyFile{Path: p, Op: "add", Withheld: why})
		} else {
			res.MoreDirty = true
		}
	}
	scan, err := src.Walk(ctx, source.ScanOptions{Excludes: uc.excludes, Attributes: uc.attributes}, func(p string, fi os.FileInfo) error {
		for part := range strings.SplitSeq(p, "/") {
			if kind, why := odb.CheckName(part); kind != "" {
				left(p, why)
				return nil
			}
		}
		switch {
		case source.Secret(p):
			left(p, "it may hold secrets")
			return nil
		case fi.Size() > maxFolderFile:
			left(p, fmt.Sprintf("it is larger than %d MiB", maxFolderFile>>20))
			return nil
		case len(edits) >= maxFolderFiles || total+fi.Size() > maxFolderBytes:
			return domain.E(domain.CodeTooLarge, fmt.Sprintf("the folder %s is too large to bring in (at most %d files and %d MiB)", src.Path, maxFolderFiles, maxFolderBytes>>20),
				"choose a smaller folder, or list what does not belong to the project in a .gitignore", nil)
		}
		data, err := src.ReadFile(p, fi, maxFolderFile)
		if err != nil {
			left(p, "it could not be read: "+err.Error())
			return nil
		}
		total += int64(len(data))
		id, err := w.Put(odb.Blob, data)
		if err != nil {
			return err
		}
		mode := odb.ModeFile
		if fi.Mode()&os.ModeSymlink != 0 {
			mode = odb.ModeLink
		} else if fi.Mode().Perm()&0o100 != 0 {
			mode = odb.ModeExec
		}
		edits = append(edits, Edit{Path: p, Mode: mode, ID: id})
		return nil
	})
	if err != nil {
		return err
	}
	res.Files, res.Ignored, res.Branch = len(edits), scan.Ignored, "main"
	res.Notes = append(res.Notes, scan.Notes...)
	for _, n := range scan.Nested {
		res.Notes = append(res.Notes, fmt.Sprintf("of the repository inside, %q, only the files come along", n))
	}
	res.Notes = append(res.Notes, "the folder is no repository: its files became one commit in Glasshouse's own mirror; the folder itself is unchanged")
	if len(edits) == 0 {
		return nil
	}
	s, err := odb.Open(tmp)
	if err != nil {
		return err
	}
	defer s.Close()
	o := &Objects{s, w}
	tree, err := o.EditTree(ctx, ID{}, edits)
	if err != nil {
		return err
	}
	who := Person{Name: "Glasshouse", Email: "glasshouse@localhost", When: time.Now()}
	commit, err := o.WriteCommit(NewCommit{Tree: tree, Author: who, Committer: who, Message: "Import of the folder " + path.Base(filepath.ToSlash(src.Path))})
	if err != nil {
		return err
	}
	ids, err := s.Walk(ctx, []ID{commit}, nil, 0)
	if err != nil {
		return err
	}
	if _, err := m.take(ctx, s, ids, commit); err != nil {
		return err
	}
	res.Commit = commit.String()
	return m.SetRef(BaseRef, res.Commit, "*")
}
