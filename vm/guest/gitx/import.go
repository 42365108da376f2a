//go:build linux

package gitx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
)

const (
	// marker lies in .git while an import is under way, so that one that was cut
	// short can be begun again.
	marker = "glasshouse-import"
	// Remote is the url of origin; git hands it to git-remote-glasshouse.
	Remote = "glasshouse::project"

	modeType, modeLink = 0o170000, 0o120000
)

// Import makes the root a repository. It refuses a folder that holds anything
// already, unless that is what an interrupted import left. pack may be nil when
// there are no commits.
func (g *Git) Import(ctx context.Context, req guest.ImportRequest, pack io.Reader) error {
	if err := checkImport(req); err != nil {
		return err
	}
	g.one.Lock()
	defer g.one.Unlock()
	if err := g.prepare(); err != nil {
		return err
	}
	branch := req.Branch
	if branch == "" {
		branch = "main" // HEAD is detached below
	}
	dir, err := os.OpenRoot(filepath.Join(g.opts.Root, ".git"))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := g.layOut(dir, branch, config(req)); err != nil {
		return fmt.Errorf("the repository cannot be made: %w", err)
	}
	if err := g.fill(ctx, nil, req, pack); err != nil {
		return err
	}
	if req.Commit != "" {
		if err := g.run(ctx, nil, nil, io.Discard, "git", "reset", "-q", "--hard"); err != nil {
			return err
		}
	}
	if err := g.overlay(req.Overlay); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(g.opts.Root, ".git", marker)); err != nil {
		return err
	}
	return syncFS(g.opts.Root)
}

// fill puts the pack and the refs into an empty repository; env may say which.
func (g *Git) fill(ctx context.Context, env []string, req guest.ImportRequest, pack io.Reader) error {
	if req.Commit == "" && len(req.Refs) == 0 {
		return nil
	}
	if pack == nil {
		return errors.New("there are commits to import, but no pack")
	}
	if err := g.run(ctx, env, pack, io.Discard, "git", "index-pack", "--stdin"); err != nil {
		return err
	}
	var refs strings.Builder
	for _, name := range slices.Sorted(maps.Keys(req.Refs)) {
		fmt.Fprintf(&refs, "update %s\x00%s\x00\x00", name, req.Refs[name])
	}
	switch {
	case req.Commit == "":
	case req.Branch == "":
		fmt.Fprintf(&refs, "option no-deref\x00update HEAD\x00%s\x00\x00", req.Commit)
	case req.Refs["refs/heads/"+req.Branch] == "":
		fmt.Fprintf(&refs, "update refs/heads/%s\x00%s\x00\x00", req.Branch, req.Commit)
	}
	return g.run(ctx, env, strings.NewReader(refs.String()), nil, "git", "update-ref", "-z", "--stdin")
}

func syncFS(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

func checkImport(req guest.ImportRequest) error {
	if req.Commit != "" {
		if err := checkID("commit", req.Commit); err != nil {
			return err
		}
	} else if req.Branch == "" {
		return errors.New("a repository without commits needs a branch name")
	}
	if req.Branch != "" {
		if err := checkRef("refs/heads/" + req.Branch); err != nil {
			return err
		}
		if r := req.Refs["refs/heads/"+req.Branch]; r != "" && r != req.Commit {
			return fmt.Errorf("branch %.100q is to be at %.40s and at %.40s", req.Branch, req.Commit, r)
		}
		if strings.HasPrefix(req.Branch, "-") {
			return fmt.Errorf("branch name %.100q starts with a dash", req.Branch)
		}
	}
	for name, id := range req.Refs {
		if err := checkRef(name); err != nil {
			return err
		}
		if err := checkID(name, id); err != nil {
			return err
		}
	}
	for _, s := range []string{req.AuthorName, req.AuthorEmail} {
		if strings.ContainsAny(s, "\x00\n\r<>") || len(s) > 1000 {
			return fmt.Errorf("the author %.100q cannot be used: line ends and < > are not allowed", s)
		}
	}
	for _, f := range req.Overlay {
		if err := checkOverlay(f); err != nil {
			return err
		}
	}
	return nil
}

// checkRef holds a name to git's own rules (git check-ref-format), for the first
// branch of an empty repository is written without git.
func checkRef(name string) error {
	bad := !strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".lock") ||
		strings.Contains(name, "..") || strings.Contains(name, "//") || strings.Contains(name, "/.") || len(name) > 1000 ||
		strings.Contains(name, ".lock/") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".")
	for i := 0; i < len(name); i++ {
		bad = bad || name[i] <= ' ' || name[i] == 0x7f || strings.IndexByte(`~^:?*[\`, name[i]) >= 0
	}
	if bad {
		return fmt.Errorf("%.100q is no name of a ref", name)
	}
	return nil
}

func checkOverlay(f guest.OverlayFile) error {
	bad := f.Path == "" || len(f.Path) > 4096 || path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || strings.IndexByte(f.Path, 0) >= 0
	for part := range strings.SplitSeq(f.Path, "/") {
		bad = bad || part == ".." || part == "." || strings.EqualFold(part, ".git")
	}
	if bad {
		return fmt.Errorf("file %.200q: %w", f.Path, guest.ErrRefused)
	}
	if f.Mode&modeType == modeLink && strings.IndexByte(string(f.Data), 0) >= 0 {
		return fmt.Errorf("link %.200q: %w", f.Path, guest.ErrRefused)
	}
	return nil
}

// prepare makes an empty root with a marked .git.
func (g *Git) prepare() error {
	root := g.opts.Root
	if err := os.Mkdir(root, 0o755); err == nil {
		if err := g.own(root); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	git := filepath.Join(root, ".git")
	if _, err := os.Lstat(filepath.Join(git, marker)); err == nil {
		// What lies beside it was checked out by the import that was cut short. .git
		// goes last, for the mark is in it.
		for _, e := range entries {
			if e.Name() != ".git" && e.Name() != "lost+found" {
				if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
					return err
				}
			}
		}
		if err := os.RemoveAll(git); err != nil {
			return err
		}
		entries = nil
	}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			return fmt.Errorf("the workspace is not empty (it holds %.100q and %d more); import into a new machine", e.Name(), len(entries)-1)
		}
	}
	if err := os.Mkdir(git, 0o755); err != nil {
		return err
	}
	if err := g.own(git); err != nil {
		return err
	}
	mark := filepath.Join(git, marker)
	if err := os.WriteFile(mark, nil, 0o644); err != nil {
		return err
	}
	return g.own(mark)
}

func (g *Git) own(name string) error {
	if os.Geteuid() != 0 || g.opts.UID <= 0 {
		return nil
	}
	return os.Lchown(name, g.opts.UID, g.opts.GID)
}

// layOut writes an empty repository, as git init would without its samples of
// hooks. Starting git for that takes longer than all the rest of a machine's
// first import, where the processor is emulated and git not yet in memory.
func (g *Git) layOut(r *os.Root, branch, config string) error {
	own := func(name string, err error) error {
		if err == nil && os.Geteuid() == 0 && g.opts.UID > 0 {
			err = r.Lchown(name, g.opts.UID, g.opts.GID)
		}
		return err
	}
	for _, dir := range []string{"hooks", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"} {
		if err := own(dir, r.Mkdir(dir, 0o755)); err != nil {
			return err
		}
	}
	// HEAD goes last: without it git sees no repository.
	for _, f := range [][2]string{
		{"config", config},
		{"description", "Unnamed repository; edit this file 'description' to name the repository.\n"},
		{"info/exclude", "# Files that git ignores here, and in no other clone: one pattern a line.\n"},
		{"HEAD", "ref: refs/heads/" + branch + "\n"},
	} {
		if err := own(f[0], r.WriteFile(f[0], []byte(f[1]), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// config is the new repository's own: what git init finds out on any file system
// of a guest, and the import's remote, branch and author.
func config(req guest.ImportRequest) string {
	var out strings.Builder
	out.WriteString("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n")
	fmt.Fprintf(&out, "[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", Remote)
	if req.Branch != "" {
		fmt.Fprintf(&out, "[branch %s]\n\tremote = origin\n\tmerge = %s\n", quote(req.Branch), quote("refs/heads/"+req.Branch))
	}
	if req.AuthorName != "" || req.AuthorEmail != "" {
		fmt.Fprintf(&out, "[user]\n")
		if req.AuthorName != "" {
			fmt.Fprintf(&out, "\tname = %s\n", quote(req.AuthorName))
		}
		if req.AuthorEmail != "" {
			fmt.Fprintf(&out, "\temail = %s\n", quote(req.AuthorEmail))
		}
	}
	return out.String()
}

// quote writes a string as git's config has it.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`).Replace(s) + `"`
}

// overlay puts the dirty files of the source over the checkout: first what is
// deleted, for a file may have become a folder.
func (g *Git) overlay(files []guest.OverlayFile) error {
	if len(files) == 0 {
		return nil
	}
	r, err := os.OpenRoot(g.opts.Root)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, f := range files {
		if !f.Deleted {
			continue
		}
		if err := r.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("file %.200q cannot be removed: %w", f.Path, err)
		}
		for dir := path.Dir(f.Path); dir != "." && r.Remove(dir) == nil; dir = path.Dir(dir) {
		}
	}
	for _, f := range files {
		if f.Deleted {
			continue
		}
		if err := g.put(r, f); err != nil {
			return fmt.Errorf("file %.200q cannot be written: %w", f.Path, err)
		}
	}
	return nil
}

func (g *Git) put(r *os.Root, f guest.OverlayFile) error {
	chown := func(name string) error {
		if os.Geteuid() != 0 || g.opts.UID <= 0 {
			return nil
		}
		return r.Lchown(name, g.opts.UID, g.opts.GID)
	}
	at := ""
	if dir := path.Dir(f.Path); dir != "." {
		for part := range strings.SplitSeq(dir, "/") {
			at = path.Join(at, part)
			if st, err := r.Lstat(at); err == nil && !st.IsDir() {
				if err := r.Remove(at); err != nil {
					return err
				}
			}
			if err := r.Mkdir(at, 0o755); err == nil {
				if err := chown(at); err != nil {
					return err
				}
			} else if !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	if err := r.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.Mode&modeType == modeLink {
		if err := r.Symlink(string(f.Data), f.Path); err != nil {
			return err
		}
		return chown(f.Path)
	}
	perm := fs.FileMode(0o644)
	if f.Mode&0o100 != 0 {
		perm = 0o755
	}
	out, err := r.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.Data)
	if err == nil {
		err = out.Chmod(perm)
	}
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return chown(f.Path)
}
