// Package source reads a person's own repository or folder as files: which
// commit HEAD is, where the objects lie, and which files differ from it. It
// never runs a program, never writes, never follows configuration to places
// where something could run, and opens nothing but regular files, so a
// repository that came from elsewhere can do no harm by being looked at.
package source

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
)

// Kind says what a source is.
type Kind string

const (
	Repository Kind = "repository"
	Bare       Kind = "bare" // a repository without files beside it
	Folder     Kind = "folder"
)

// Source is an opened repository or folder.
type Source struct {
	Path    string // absolute, links resolved
	Kind    Kind
	GitDir  string
	Common  string   // shared part of GitDir; differs for linked work trees
	Objects []string // object directories: its own, then its alternates
	Branch  string   // short name; empty when HEAD is detached
	Commit  odb.ID   // zero: no commits yet
	Origin  string   // URL of the remote named origin, raw
	Notes   []string // things worth telling the person

	cfg settings
}

type settings struct {
	autocrlf, filemode, symlinks, fold bool
	excludes, attributes               string
	worktreeConfig                     bool
}

const (
	maxConfig = 1 << 20
	maxRefs   = 256 << 20
)

func refuse(what, hint string) error {
	return domain.E(domain.CodeInvalid, what, hint, nil)
}

// Open looks at a folder. Everything it finds is read as data.
func Open(path string) (*Source, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	var fi fs.FileInfo
	if err == nil {
		fi, err = os.Stat(abs)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("there is no folder %s", path), "choose a folder that exists", nil)
	}
	if err != nil {
		// The part of the path that failed is not what was typed.
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("the folder %s cannot be opened", path), "choose a folder that you may read", err)
	}
	if !fi.IsDir() {
		return nil, refuse(fmt.Sprintf("%s is no folder", abs), "choose the folder that holds the project")
	}
	s := &Source{Path: abs}
	if err := s.locate(); err != nil {
		return nil, err
	}
	if s.Kind == Folder {
		s.cfg = settings{filemode: true, symlinks: true}
		return s, nil
	}
	if err := s.readConfig(); err != nil {
		return nil, err
	}
	if err := s.checkShape(); err != nil {
		return nil, err
	}
	if s.Objects, err = alternates(filepath.Join(s.Common, "objects")); err != nil {
		return nil, err
	}
	if n := len(s.Objects) - 1; n > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("objects are also read from %d other folder(s) the repository borrows from", n))
	}
	return s, s.readHead()
}

// locate finds the git directory, if there is one.
func (s *Source) locate() error {
	dot := filepath.Join(s.Path, ".git")
	fi, err := os.Lstat(dot)
	switch {
	case err == nil && fi.IsDir():
		s.Kind, s.GitDir, s.Common = Repository, dot, dot
	case err == nil && fi.Mode().IsRegular():
		line, err := readSmall(dot, 4096)
		if err != nil {
			return err
		}
		target, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), "gitdir: ")
		if !ok {
			return refuse(fmt.Sprintf("the file %s names no git directory", dot), "choose another folder, or repair the repository with git")
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(s.Path, target)
		}
		s.Kind, s.GitDir, s.Common = Repository, filepath.Clean(target), filepath.Clean(target)
		common, err := readSmall(filepath.Join(s.GitDir, "commondir"), 4096)
		if err == nil {
			c := strings.TrimRight(string(common), "\r\n")
			if !filepath.IsAbs(c) {
				c = filepath.Join(s.GitDir, c)
			}
			s.Common = filepath.Clean(c)
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	case err == nil && fi.Mode()&os.ModeSymlink != 0:
		return refuse(fmt.Sprintf("%s is a link", dot), "choose the folder it points to, or replace the link by a file with a line 'gitdir: PATH'")
	case err == nil:
		return refuse(fmt.Sprintf("%s is neither folder nor file", dot), "choose another folder")
	default:
		if isDir(filepath.Join(s.Path, "objects")) && isDir(filepath.Join(s.Path, "refs")) && isFile(filepath.Join(s.Path, "HEAD")) {
			s.Kind, s.GitDir, s.Common = Bare, s.Path, s.Path
			return nil
		}
		s.Kind = Folder
		return nil
	}
	for _, d := range []string{s.GitDir, s.Common, filepath.Join(s.Common, "objects")} {
		if !isDir(d) {
			return refuse(fmt.Sprintf("the repository in %s is not complete: %s is no folder", s.Path, d), "repair it with git, or remove its .git to bring it in as a plain folder")
		}
	}
	return nil
}

func isDir(p string) bool  { fi, err := os.Stat(p); return err == nil && fi.IsDir() }
func isFile(p string) bool { fi, err := os.Lstat(p); return err == nil && fi.Mode().IsRegular() }

// readSmall reads a regular file of at most max bytes.
func readSmall(path string, max int64) ([]byte, error) {
	f, err := odb.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, domain.E(domain.CodeTooLarge, fmt.Sprintf("%s is larger than %d bytes", path, max), "", nil)
	}
	return b, nil
}

// readConfig reads the few settings that matter. Includes are not followed.
func (s *Source) readConfig() error {
	s.cfg = settings{filemode: true, symlinks: true}
	data, err := readSmall(filepath.Join(s.Common, "config"), maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.applyConfig(data); err != nil {
		return err
	}
	if s.cfg.worktreeConfig {
		data, err := readSmall(filepath.Join(s.GitDir, "config.worktree"), maxConfig)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.applyConfig(data)
	}
	return nil
}

func parseConfig(data []byte) (cfg *config.Config, err error) {
	// The decoder is written for friendly files; a panic in it is an error here.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	cfg = config.New()
	return cfg, config.NewDecoder(strings.NewReader(string(data))).Decode(cfg)
}

func (s *Source) applyConfig(data []byte) error {
	cfg, err := parseConfig(data)
	if err != nil {
		return domain.E(domain.CodeInvalid, fmt.Sprintf("the configuration of %s cannot be read", s.Path), "'git config --list' in it shows what is wrong", err)
	}
	partial := func() error {
		return refuse(fmt.Sprintf("%s is a partial clone: some of its objects are only on its remote", s.Path),
			"make a full clone of it ('git clone URL NEW-FOLDER') and choose that")
	}
	for _, sec := range cfg.Sections {
		name := strings.ToLower(sec.Name)
		for _, o := range sec.Options {
			key, val := strings.ToLower(o.Key), o.Value
			switch name + "." + key {
			case "core.repositoryformatversion":
				if val != "0" && val != "1" {
					return refuse(fmt.Sprintf("%s has the repository format %q, which is newer than Glasshouse knows", s.Path, val), "make a clone of it in the usual format")
				}
			case "core.autocrlf":
				s.cfg.autocrlf = strings.EqualFold(val, "input") || isTrue(val)
			case "core.filemode":
				s.cfg.filemode = isTrue(val)
			case "core.symlinks":
				s.cfg.symlinks = isTrue(val)
			case "core.ignorecase":
				s.cfg.fold = isTrue(val)
			case "core.excludesfile":
				s.cfg.excludes = val
			case "core.attributesfile":
				s.cfg.attributes = val
			case "extensions.objectformat":
				if !strings.EqualFold(val, "sha1") {
					return refuse(fmt.Sprintf("%s names its objects by %s; Glasshouse reads SHA-1 repositories", s.Path, val),
						"convert it, or bring its files in as a plain folder (a copy without .git)")
				}
			case "extensions.partialclone":
				return partial()
			case "extensions.refstorage":
				if !strings.EqualFold(val, "files") {
					return refuse(fmt.Sprintf("%s keeps its references as %q, which Glasshouse cannot read", s.Path, val), "run 'git refs migrate --ref-format=files' in it")
				}
			case "extensions.worktreeconfig":
				s.cfg.worktreeConfig = isTrue(val)
			default:
				if name == "extensions" && key != "noop" && key != "preciousobjects" && key != "relativeworktrees" {
					return refuse(fmt.Sprintf("%s uses the repository extension %q, which Glasshouse does not know", s.Path, key), "make a plain clone of it and choose that")
				}
			}
		}
		if name != "remote" {
			continue
		}
		for _, ss := range sec.Subsections {
			for _, o := range ss.Options {
				switch key := strings.ToLower(o.Key); {
				case key == "promisor" && isTrue(o.Value):
					return partial()
				case key == "url" && ss.Name == "origin" && s.Origin == "":
					s.Origin = o.Value
				}
			}
		}
	}
	return nil
}

func isTrue(v string) bool {
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1", "":
		return true
	}
	return false
}

// checkShape refuses repositories that lack part of what HEAD reaches.
func (s *Source) checkShape() error {
	if b, err := readSmall(filepath.Join(s.Common, "shallow"), maxConfig); err == nil && len(strings.TrimSpace(string(b))) > 0 {
		return refuse(fmt.Sprintf("%s is a shallow clone: its older commits are only on its remote", s.Path), "run 'git fetch --unshallow' in it")
	}
	packs, err := os.ReadDir(filepath.Join(s.Common, "objects", "pack"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return domain.E(domain.CodeInvalid, "the repository's objects cannot be read", "", err)
	}
	for _, e := range packs {
		if strings.HasSuffix(e.Name(), ".promisor") {
			return refuse(fmt.Sprintf("%s is a partial clone: some of its objects are only on its remote", s.Path),
				"make a full clone of it ('git clone URL NEW-FOLDER') and choose that")
		}
	}
	return nil
}

// alternates returns an object directory and those it borrows from, a few deep.
func alternates(objects string) ([]string, error) {
	out := []string{objects}
	for i := 0; i < len(out); i++ {
		data, err := readSmall(filepath.Join(out[i], "info", "alternates"), 64<<10)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			line = strings.TrimSuffix(line, "\r")
			if line == "" || line[0] == '#' {
				continue
			}
			if line[0] == '"' {
				word, _, ok := unquote(line)
				if !ok {
					continue
				}
				line = word
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(out[i], line)
			}
			line = filepath.Clean(line)
			if !isDir(line) {
				return nil, refuse(fmt.Sprintf("the repository borrows objects from %s, which is not there", line),
					"bring that folder back, or make a full clone and choose that")
			}
			known := false
			for _, o := range out {
				known = known || o == line
			}
			if known {
				continue
			}
			if out = append(out, line); len(out) > 16 {
				return nil, refuse("the repository borrows objects from more than 15 other folders", "run 'git repack -a -d' in it and delete objects/info/alternates")
			}
		}
	}
	return out, nil
}

// readHead resolves HEAD.
func (s *Source) readHead() error {
	name := "HEAD"
	for range 6 {
		val, err := s.refValue(name)
		if err != nil {
			return err
		}
		if val == "" {
			if name == "HEAD" {
				return refuse(fmt.Sprintf("%s has no HEAD", s.Path), "repair it with git, or choose another folder")
			}
			// A branch without commits. Where nobody works, another branch is what was meant.
			if other := s.someBranch(); s.Kind == Bare && other != "" {
				return refuse(fmt.Sprintf("HEAD of %s names the branch %s, which is not there; it has %s", s.Path, clip(s.Branch), clip(other)),
					fmt.Sprintf("give its address, file://%s, and the branch", s.Path))
			}
			return nil
		}
		if target, ok := strings.CutPrefix(val, "ref:"); ok {
			name = strings.TrimSpace(target)
			if !SafeRef(name) {
				return refuse(fmt.Sprintf("HEAD of %s names %q, which is no proper branch", s.Path, name), "check out a branch in it")
			}
			if b, ok := strings.CutPrefix(name, "refs/heads/"); ok {
				s.Branch = b
			}
			continue
		}
		id, err := odb.ParseID(val)
		if err != nil {
			return refuse(fmt.Sprintf("%s of %s holds %q, which is no commit", name, s.Path, clip(val)), "repair it with git")
		}
		s.Commit = id
		return nil
	}
	return refuse(fmt.Sprintf("HEAD of %s goes in a circle", s.Path), "check out a branch in it")
}

// refValue returns a reference's raw content; empty when there is none.
func (s *Source) refValue(name string) (string, error) {
	dir := s.Common
	if name == "HEAD" {
		dir = s.GitDir
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSymlink != 0 && name == "HEAD" {
		// The old form of a symbolic reference.
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		return "ref: " + filepath.ToSlash(target), nil
	}
	fi, err := os.Lstat(path)
	switch {
	case err == nil && !fi.IsDir() && !fi.Mode().IsRegular():
		return "", refuse(fmt.Sprintf("the reference %s of %s is no regular file", name, s.Path), "repair it with git, or choose another folder")
	case err == nil && fi.Mode().IsRegular():
		b, err := readSmall(path, 4096)
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(b)), nil
	}
	return s.packedRef(name)
}

// someBranch is the name of one branch; empty when there is none.
func (s *Source) someBranch() string {
	found := ""
	heads := filepath.Join(s.Common, "refs", "heads")
	_ = filepath.WalkDir(heads, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if rel, err := filepath.Rel(s.Common, path); err == nil && e.Type().IsRegular() && SafeRef(filepath.ToSlash(rel)) {
			found = strings.TrimPrefix(filepath.ToSlash(rel), "refs/heads/")
			return fs.SkipAll
		}
		return nil
	})
	if found != "" {
		return found
	}
	_ = s.packed(func(_, name string) bool {
		if strings.HasPrefix(name, "refs/heads/") && SafeRef(name) {
			found = strings.TrimPrefix(name, "refs/heads/")
		}
		return found == ""
	})
	return found
}

func (s *Source) packedRef(name string) (id string, err error) {
	err = s.packed(func(at, n string) bool {
		if n == name {
			id = at
		}
		return id == ""
	})
	return id, err
}

// packed gives each packed reference until more says no.
func (s *Source) packed(more func(id, name string) bool) error {
	f, err := odb.OpenRegular(filepath.Join(s.Common, "packed-refs"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(io.LimitReader(f, maxRefs))
	sc.Buffer(nil, 1<<16)
	for sc.Scan() {
		if id, name, ok := strings.Cut(sc.Text(), " "); ok && !strings.HasPrefix(id, "#") && !more(id, name) {
			return nil
		}
	}
	return sc.Err()
}

// SafeRef reports whether a reference name is one git would make.
func SafeRef(n string) bool {
	if !strings.HasPrefix(n, "refs/") || strings.HasSuffix(n, "/") || strings.HasSuffix(n, ".") || len(n) > 1024 {
		return false
	}
	for part := range strings.SplitSeq(n, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	if strings.Contains(n, "..") || strings.Contains(n, "@{") {
		return false
	}
	for i := range len(n) {
		if c := n[i]; c <= ' ' || c == 127 || strings.IndexByte("~^:?*[\\", c) >= 0 {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
