package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/index"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
)

// Dirty is one path that differs from HEAD.
type Dirty struct {
	Path string // raw bytes, slash separated
	Op   string // "add", "modify", "delete", "type", "mode"
	Size int64
	Mode uint32 // tree mode, 0 for a deletion
	// Withheld says why the file is never brought along; empty: a person may pick it.
	Withheld string
	text     bool // line ends are git's to convert
}

// Scan is how a work tree differs from a commit.
type Scan struct {
	Dirty     []Dirty // by path, at most MaxDirty
	More      bool
	MayDiffer []string // filtered files, whose bytes only their filter could compare
	Ignored   int      // ignored files and folders that stay outside (a folder counts once)
	Nested    []string // repositories inside, not looked into
	Notes     []string
}

// Bounds of a scan.
const (
	MaxDirty   = 10_000
	maxEntries = 2_000_000
	maxIndex   = 1 << 30
)

// ScanOptions of a scan.
type ScanOptions struct {
	Head []odb.File // the commit's files
	// Excludes and Attributes are the person's global files; empty: none.
	Excludes, Attributes string
}

type tracked struct {
	head    odb.File
	inHead  bool
	entry   *index.Entry
	visited bool // seen, or in a place that cannot be seen
}

type scanner struct {
	s       *Source
	ctx     context.Context
	root    *os.Root
	ign     ignores
	attr    ignores
	files   map[string]*tracked
	folders map[string]bool // that hold tracked files
	blind   map[string]bool // folders that cannot be read, "." for the top
	idxTime time.Time
	n       int
	out     *Scan
	visit   func(rel string, fi os.FileInfo) error // of untracked files, in a plain folder
}

// Scan compares the work tree with a commit, without writing anything and
// without running filters. It trusts the sizes and times in git's index as git
// itself does, and hashes where they do not settle it.
func (s *Source) Scan(ctx context.Context, opt ScanOptions) (Scan, error) {
	var out Scan
	if s.Kind != Repository {
		return out, nil
	}
	root, err := os.OpenRoot(s.Path)
	if err != nil {
		return out, err
	}
	defer root.Close()
	sc := &scanner{s: s, ctx: ctx, root: root, out: &out, files: map[string]*tracked{}, folders: map[string]bool{}}
	for _, f := range opt.Head {
		sc.files[f.Path] = &tracked{head: f, inHead: true}
	}
	if err := sc.readIndex(); err != nil {
		return out, err
	}
	for p := range sc.files {
		for d := path.Dir(p); d != "." && !sc.folders[d]; d = path.Dir(d) {
			sc.folders[d] = true
		}
	}
	sc.loadRules(opt)
	if err := sc.dir("", false); err != nil {
		return out, err
	}
	for p, t := range sc.files {
		if t.visited || sc.unseen(p) || !t.inHead || t.head.Mode == odb.ModeGitlink || t.entry != nil && t.entry.SkipWorktree {
			continue
		}
		sc.add(Dirty{Path: p, Op: "delete"})
	}
	sort.Slice(out.Dirty, func(i, j int) bool { return out.Dirty[i].Path < out.Dirty[j].Path })
	if len(out.Dirty) > MaxDirty {
		out.Dirty, out.More = out.Dirty[:MaxDirty], true
	}
	sort.Strings(out.MayDiffer)
	sort.Strings(out.Nested)
	return out, nil
}

// Walk visits the files of a plain folder that are not ignored, in order.
func (s *Source) Walk(ctx context.Context, opt ScanOptions, visit func(rel string, fi os.FileInfo) error) (Scan, error) {
	var out Scan
	root, err := os.OpenRoot(s.Path)
	if err != nil {
		return out, err
	}
	defer root.Close()
	sc := &scanner{s: s, ctx: ctx, root: root, out: &out, visit: visit}
	sc.loadRules(opt)
	err = sc.dir("", false)
	sort.Strings(out.Nested)
	return out, err
}

// readIndex notes what git's index knows.
func (sc *scanner) readIndex() error {
	p := filepath.Join(sc.s.GitDir, "index")
	f, err := odb.OpenRegular(p)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return domain.E(domain.CodeInvalid, "the repository's index cannot be opened", "", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() > maxIndex {
		return domain.E(domain.CodeTooLarge, "the repository's index is too large to read", "", nil)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxIndex))
	if err != nil {
		return err
	}
	idx, err := decodeIndex(data)
	if err != nil {
		if bytes.Contains(data, []byte("link\x00")) {
			return refuse("the repository uses a split index, which Glasshouse cannot read", "run 'git update-index --no-split-index' in it")
		}
		return domain.E(domain.CodeInvalid, "the repository's index cannot be read", "'git status' in it shows whether it is damaged", err)
	}
	sc.idxTime = fi.ModTime()
	for _, e := range idx.Entries {
		if e.Mode&0o170000 == 0o040000 {
			return refuse("the repository uses a sparse index, which Glasshouse cannot read", "run 'git sparse-checkout reapply --no-sparse-index' in it")
		}
		t := sc.files[e.Name]
		if t == nil {
			t = &tracked{}
			sc.files[e.Name] = t
		}
		if e.Stage == 0 && !e.IntentToAdd {
			t.entry = e
		}
	}
	return nil
}

func decodeIndex(data []byte) (idx *index.Index, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	idx = &index.Index{}
	return idx, index.NewDecoder(bytes.NewReader(data)).Decode(idx)
}

func (sc *scanner) add(d Dirty) {
	if d.Op != "delete" && d.Withheld == "" && Secret(d.Path) {
		d.Withheld = "it may hold secrets"
	}
	if len(sc.out.Dirty) >= 4*MaxDirty {
		sc.out.More = true
		return
	}
	sc.out.Dirty = append(sc.out.Dirty, d)
}

// dir walks one folder. ignored: an ignore rule took it; only tracked files in it count.
func (sc *scanner) dir(rel string, ignored bool) error {
	if sc.ctx.Err() != nil {
		return context.Cause(sc.ctx)
	}
	name := rel
	if name == "" {
		name = "."
	}
	f, err := sc.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		sc.unread(name, err)
		return nil
	}
	entries, err := f.ReadDir(-1)
	_ = f.Close()
	if err != nil {
		sc.unread(name, err)
	}
	base := rel
	if base != "" {
		base += "/"
	}
	for _, e := range entries {
		switch e.Name() {
		case ".gitignore":
			sc.ign.push(parseIgnore(sc.rulesFile(base+e.Name()), base))
			defer sc.ign.pop()
		case ".gitattributes":
			sc.attr.push(parseAttributes(sc.rulesFile(base+e.Name()), base))
			defer sc.attr.pop()
		}
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if sc.n++; sc.n > maxEntries {
			return domain.E(domain.CodeTooLarge, fmt.Sprintf("the source has more than %d files", maxEntries), "choose a smaller folder, or have ignored what does not belong to the project", nil)
		}
		if e.Name() == ".git" {
			continue
		}
		p := base + e.Name()
		if e.IsDir() {
			err = sc.subdir(p, ignored)
		} else {
			err = sc.file(p, ignored)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unread notes a folder that cannot be read. What is in it is not known, which is
// not the same as deleted.
func (sc *scanner) unread(dir string, err error) {
	sc.out.Notes = noted(sc.out.Notes, fmt.Sprintf("the folder %q cannot be read: %v", dir, err))
	if !errors.Is(err, fs.ErrNotExist) {
		if sc.blind == nil {
			sc.blind = map[string]bool{}
		}
		sc.blind[dir] = true
	}
}

// unseen: a folder above p could not be read.
func (sc *scanner) unseen(p string) bool {
	for d := p; len(sc.blind) > 0 && d != "."; {
		if d = path.Dir(d); sc.blind[d] {
			return true
		}
	}
	return false
}

func noted(list []string, s string) []string {
	if len(list) < 20 {
		list = append(list, s)
	}
	return list
}

func (sc *scanner) subdir(p string, ignored bool) error {
	t := sc.files[p]
	if t != nil && (t.inHead && t.head.Mode == odb.ModeGitlink || t.entry != nil && uint32(t.entry.Mode) == odb.ModeGitlink) {
		t.visited = true // a submodule stays opaque
		return nil
	}
	ign := ignored || sc.ign.ignored(p, true)
	if ign && !sc.folders[p] {
		sc.out.Ignored++
		return nil
	}
	if _, err := sc.root.Lstat(p + "/.git"); err == nil {
		if len(sc.out.Nested) < 100 {
			sc.out.Nested = append(sc.out.Nested, p)
		}
		// In a plain folder a nested repository's files are files like any other.
		if sc.visit == nil && !sc.folders[p] {
			return nil
		}
	}
	return sc.dir(p, ign)
}

func (sc *scanner) file(p string, ignored bool) error {
	t := sc.files[p]
	if t == nil && (ignored || sc.ign.ignored(p, false)) {
		sc.out.Ignored++
		return nil
	}
	fi, err := sc.root.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone in the meantime
	}
	if err != nil {
		sc.out.Notes = noted(sc.out.Notes, fmt.Sprintf("%q cannot be looked at: %v", p, err))
		if t != nil {
			t.visited = true
		}
		return nil
	}
	mode, ok := sc.modeOf(fi, t)
	if !ok {
		sc.out.Notes = noted(sc.out.Notes, fmt.Sprintf("%q is neither file nor link and stays outside", p))
		return nil
	}
	if sc.visit != nil {
		return sc.visit(p, fi)
	}
	if t == nil {
		sc.add(Dirty{Path: p, Op: "add", Size: fi.Size(), Mode: mode, Withheld: withheld(mode, fi), text: sc.text(p)})
		return nil
	}
	t.visited = true
	same, err := sc.same(p, fi, mode, t)
	if err != nil {
		sc.out.Notes = noted(sc.out.Notes, fmt.Sprintf("%q cannot be read: %v", p, err))
		return nil
	}
	d := Dirty{Path: p, Op: "modify", Size: fi.Size(), Mode: mode, Withheld: withheld(mode, fi)}
	switch {
	case !t.inHead:
		d.Op = "add"
	case (mode == odb.ModeLink) != (t.head.Mode == odb.ModeLink) || t.head.Mode == odb.ModeGitlink:
		d.Op = "type"
	case !same:
		c := sc.attr.conversion(p, sc.s.cfg.autocrlf)
		if c.filter != "" {
			if len(sc.out.MayDiffer) < MaxDirty {
				sc.out.MayDiffer = append(sc.out.MayDiffer, p)
			}
			return nil
		}
		d.text = c.text
	case mode != t.head.Mode:
		d.Op = "mode"
	default:
		return nil
	}
	sc.add(d)
	return nil
}

func (sc *scanner) text(p string) bool { return sc.attr.conversion(p, sc.s.cfg.autocrlf).text }

// MaxOverlayFile bounds one dirty file that is brought along, 16 MiB.
const MaxOverlayFile = 16 << 20

func withheld(mode uint32, fi os.FileInfo) string {
	switch {
	case mode == odb.ModeLink:
		return "it is a symbolic link"
	case fi.Size() > MaxOverlayFile:
		return "it is larger than 16 MiB"
	}
	return ""
}

// modeOf maps a file onto a tree mode. Without core.filemode the bit in git's
// records counts, not the file's.
func (sc *scanner) modeOf(fi os.FileInfo, t *tracked) (uint32, bool) {
	switch {
	case fi.Mode()&os.ModeSymlink != 0:
		return odb.ModeLink, true
	case !fi.Mode().IsRegular():
		return 0, false
	}
	if t != nil && t.inHead {
		if !sc.s.cfg.symlinks && t.head.Mode == odb.ModeLink {
			return odb.ModeLink, true
		}
		if !sc.s.cfg.filemode && t.head.Mode != odb.ModeLink {
			return t.head.Mode, true
		}
	}
	if sc.s.cfg.filemode && fi.Mode().Perm()&0o100 != 0 {
		return odb.ModeExec, true
	}
	return odb.ModeFile, true
}

// same reports whether a file's content is what HEAD has, line ends aside where git converts them.
func (sc *scanner) same(p string, fi os.FileInfo, mode uint32, t *tracked) (bool, error) {
	if !t.inHead {
		return false, nil
	}
	if e := t.entry; e != nil && sc.settled(fi, e) {
		return e.Hash == t.head.ID, nil
	}
	if mode == odb.ModeLink && fi.Mode()&os.ModeSymlink != 0 {
		target, err := sc.root.Readlink(p)
		return err == nil && odb.Hash(odb.Blob, []byte(filepath.ToSlash(target))) == t.head.ID, err
	}
	id, crlf, err := sc.hash(p, fi.Size())
	if err != nil || id == t.head.ID || !crlf {
		return err == nil && id == t.head.ID, err
	}
	if !sc.text(p) {
		return false, nil
	}
	data, err := sc.read(p, odb.MaxMeta)
	if err != nil {
		return false, err
	}
	return odb.Hash(odb.Blob, bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))) == t.head.ID, nil
}

// settled reports whether the index alone proves that a file was not touched
// since git looked at it: equal size and times, and older than the index itself.
func (sc *scanner) settled(fi os.FileInfo, e *index.Entry) bool {
	if uint32(fi.Size()) != e.Size || e.ModifiedAt.IsZero() {
		return false
	}
	ctime, ok := changeTime(fi)
	return ok && fi.ModTime().Equal(e.ModifiedAt) && ctime.Equal(e.CreatedAt) && fi.ModTime().Before(sc.idxTime)
}

func (sc *scanner) open(p string) (*os.File, error) {
	f, err := sc.root.OpenFile(p, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (sc *scanner) read(p string, max int64) ([]byte, error) {
	f, err := sc.open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("%w: more than %d bytes", odb.ErrTooLarge, max)
	}
	return b, err
}

// hash names a file's raw bytes as git would, and says whether they hold a CR LF.
func (sc *scanner) hash(p string, size int64) (odb.ID, bool, error) {
	f, err := sc.open(p)
	if err != nil {
		return odb.ID{}, false, err
	}
	defer f.Close()
	h := odb.NewHasher(odb.Blob, size)
	br := bufio.NewReaderSize(io.LimitReader(f, size), 1<<16)
	crlf, cr := false, false
	var n int64
	buf := make([]byte, 1<<16)
	for {
		k, err := br.Read(buf)
		b := buf[:k]
		h.Write(b)
		n += int64(k)
		if !crlf && k > 0 {
			crlf = cr && b[0] == '\n' || bytes.Contains(b, []byte("\r\n"))
			cr = b[k-1] == '\r'
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return odb.ID{}, false, err
		}
		if sc.ctx.Err() != nil {
			return odb.ID{}, false, context.Cause(sc.ctx)
		}
	}
	if n != size {
		return odb.ID{}, false, errors.New("it changed while it was read")
	}
	return h.Sum(), crlf, nil
}

// ReadDirty reads a file that Scan listed, as git would store it.
func (s *Source) ReadDirty(d Dirty) ([]byte, error) {
	root, err := os.OpenRoot(s.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	sc := &scanner{s: s, root: root, ctx: context.Background()}
	data, err := sc.read(d.Path, MaxOverlayFile)
	if err == nil && d.text && !bytes.Contains(data, []byte{0}) {
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	}
	return data, err
}

// ReadFile reads a file Walk visited: a link's target, or a regular file's bytes.
func (s *Source) ReadFile(rel string, fi os.FileInfo, max int64) ([]byte, error) {
	root, err := os.OpenRoot(s.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if fi.Mode()&os.ModeSymlink != 0 {
		t, err := root.Readlink(rel)
		return []byte(filepath.ToSlash(t)), err
	}
	sc := &scanner{s: s, root: root, ctx: context.Background()}
	return sc.read(rel, max)
}
