package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
)

// Mirror is a project's bare repository on the host. It is safe for concurrent
// use within one process; one process owns it.
type Mirror struct {
	dir string
	opt Options
	mu  sync.Mutex // guards references and moves into the object store
}

// mirrorConfig is all the configuration a mirror has.
const mirrorConfig = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"

// Open opens the mirror in a folder, making it when it is not there.
func Open(dir string, opt Options) (*Mirror, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	m := &Mirror{dir: dir, opt: opt}
	for _, d := range []string{"", "objects", "objects/pack", "objects/info", "refs", "refs/glasshouse"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("making the project's mirror: %w", err)
		}
	}
	// What a push relies on is written anew each time: nothing else may stand there.
	if err := writeFile(filepath.Join(dir, "config"), []byte(mirrorConfig), 0o600); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600); err != nil {
		return nil, err
	}
	for _, stray := range []string{"hooks", "objects/info/alternates", "objects/info/http-alternates", "config.worktree", "info", "commondir", "worktrees", "modules"} {
		if err := os.RemoveAll(filepath.Join(dir, stray)); err != nil {
			return nil, err
		}
	}
	// Quarantines of a process that was killed hold nothing that was taken over.
	return m, os.RemoveAll(m.quarantineDir())
}

// Dir is the mirror's folder.
func (m *Mirror) Dir() string { return m.dir }

func (m *Mirror) objectsDir() string    { return filepath.Join(m.dir, "objects") }
func (m *Mirror) quarantineDir() string { return filepath.Join(m.dir, "quarantine") }

// PackFor returns a pack of everything a commit reaches and none of have does.
// The caller closes it; ctx ends it early.
func (m *Mirror) PackFor(ctx context.Context, commit string, have ...string) (io.ReadCloser, error) {
	root, err := odb.ParseID(commit)
	if err != nil {
		return nil, domain.E(domain.CodeInvalid, "cannot pack the commit", "", err)
	}
	var haves []odb.ID
	for _, h := range have {
		id, err := odb.ParseID(h)
		if err != nil {
			return nil, domain.E(domain.CodeInvalid, "cannot pack the commit", "", err)
		}
		haves = append(haves, id)
	}
	s, err := odb.Open(m.objectsDir())
	if err != nil {
		return nil, err
	}
	ids, err := s.Walk(ctx, []odb.ID{root}, haves, 0)
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("collecting the objects of %s: %w", commit, err)
	}
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer s.Close()
		_, err := s.WritePack(ctx, pw, ids)
		_ = pw.CloseWithError(err)
	}()
	return &packStream{pr, cancel}, nil
}

type packStream struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (p *packStream) Close() error {
	p.cancel()
	return p.PipeReader.Close()
}

// refName is the only shape a reference may have.
var refName = regexp.MustCompile(`^refs/glasshouse(/[a-z0-9][a-z0-9_-]{0,63}){1,4}$`)

// SetRef points a name at an object that must be in the mirror. old is what it must point at
// now: "" for must not exist, "*" for anything.
func (m *Mirror) SetRef(name, id, old string) error {
	if !refName.MatchString(name) {
		return domain.E(domain.CodeInvalid, fmt.Sprintf("the mirror keeps no reference named %q", name), "names are refs/glasshouse/ and lower-case words", nil)
	}
	oid, err := odb.ParseID(id)
	if err != nil {
		return err
	}
	s, err := odb.Open(m.objectsDir())
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.Has(oid) {
		return fmt.Errorf("%w: %s cannot point at it: %s", ErrNotFound, name, id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := m.ref(name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if old != "*" && now != old {
		return domain.E(domain.CodeConflict, fmt.Sprintf("%s points at %q, not at %q", name, now, old), "read it again", nil)
	}
	path := filepath.Join(m.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeFile(path, []byte(id+"\n"), 0o600)
}

// Ref returns what a name points at; ErrNotFound when there is none.
func (m *Mirror) Ref(name string) (string, error) {
	if !refName.MatchString(name) {
		return "", fmt.Errorf("%w: reference %q", ErrNotFound, name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ref(name)
}

func (m *Mirror) ref(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(m.dir, filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w: reference %s", ErrNotFound, name)
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(b))
	if _, err := odb.ParseID(id); err != nil {
		return "", fmt.Errorf("reference %s: %w", name, err)
	}
	return id, nil
}

// DeleteRef forgets a name.
func (m *Mirror) DeleteRef(name string) error {
	if !refName.MatchString(name) {
		return fmt.Errorf("%w: reference %q", ErrNotFound, name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := os.Remove(filepath.Join(m.dir, filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Refs lists the names and what they point at.
func (m *Mirror) Refs() (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	root := filepath.Join(m.dir, "refs", "glasshouse")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if !refName.MatchString(name) {
			return nil
		}
		out[name], err = m.ref(name)
		return err
	})
	return out, err
}

// Stat says how large the mirror is.
func (m *Mirror) Stat() (packs int, bytes int64, err error) {
	err = filepath.WalkDir(m.objectsDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".pack") {
			packs++
		}
		bytes += fi.Size()
		return nil
	})
	return packs, bytes, err
}

// writeFile replaces a file at once and durably.
func writeFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no effect after the rename
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
