//go:build linux

package scan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest/watch/ignore"
)

// Limits that keep a hostile tree from taking guestd down.
const (
	MaxPath  = 4000 // bytes of a relative path
	MaxDepth = 200  // folders in a path
)

// ErrNotFile: the path is no regular file (any more).
var ErrNotFile = errors.New("not a regular file")

// Stat is what a change of a file shows in; times are nanoseconds since 1970.
type Stat struct {
	Mode         uint32 // st_mode: type and permission bits
	Size         int64
	Mtime, Ctime int64
	Ino          uint64
}

func (s Stat) Dir() bool     { return s.Mode&unix.S_IFMT == unix.S_IFDIR }
func (s Stat) Regular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }
func (s Stat) Link() bool    { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

func fromSys(st *unix.Stat_t) Stat {
	return Stat{
		Mode: st.Mode, Size: st.Size, Ino: st.Ino,
		Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
}

// Tree is one folder. It is safe for concurrent use.
type Tree struct {
	root    string
	fd      int
	dev     uint64
	ino     uint64
	openat2 bool

	mu   sync.Mutex
	dirs map[string]*ignore.Dir
}

// Open opens the folder root.
func Open(root string) (*Tree, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	t := &Tree{root: root, fd: fd, dirs: map[string]*ignore.Dir{}}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	t.dev, t.ino = uint64(st.Dev), st.Ino //nolint:unconvert // Dev has another type on other systems
	// Old kernels and some seccomp filters have no openat2.
	if probe, err := openat2(fd, ".", unix.O_PATH); err == nil {
		unix.Close(probe)
		t.openat2 = true
	}
	return t, nil
}

// Close releases the folder.
func (t *Tree) Close() error { return unix.Close(t.fd) }

// Root is the path the tree was opened at.
func (t *Tree) Root() string { return t.root }

// Current says whether the path still leads to the folder that was opened.
func (t *Tree) Current() bool {
	var st unix.Stat_t
	return unix.Stat(t.root, &st) == nil && uint64(st.Dev) == t.dev && st.Ino == t.ino //nolint:unconvert // Dev has another type on other systems
}

// Forget drops what is known of ignore rules, so that they are read again.
func (t *Tree) Forget() {
	t.mu.Lock()
	t.dirs = map[string]*ignore.Dir{}
	t.mu.Unlock()
}

// ForgetDir drops what is known of the rules in the folder rel and below it.
func (t *Tree) ForgetDir(rel string, below bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.dirs, rel)
	if !below {
		return
	}
	for p := range t.dirs {
		if strings.HasPrefix(p, rel+"/") {
			delete(t.dirs, p)
		}
	}
}

func openat2(dir int, rel string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, rel, &how)
		// A rename somewhere on the way makes the kernel give up now and then.
		if (err == unix.EAGAIN || err == unix.EINTR) && tries < 100 {
			continue
		}
		return fd, err
	}
}

// open opens rel without following any link in it.
func (t *Tree) open(rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	if t.openat2 {
		return openat2(t.fd, rel, uint64(flags))
	}
	at := t.fd
	parts := strings.Split(rel, "/")
	for i, part := range parts {
		f := unix.O_PATH | unix.O_DIRECTORY
		if i == len(parts)-1 {
			f = flags
		}
		if part == ".." {
			return -1, unix.EXDEV
		}
		next, err := unix.Openat(at, part, f|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if at != t.fd {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// Gone says that err means there is nothing at the path (any more): a missing
// name, or a parent that is no folder.
func Gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

// Lstat looks at rel itself.
func (t *Tree) Lstat(rel string) (Stat, error) {
	var st unix.Stat_t
	if rel != "" && !strings.Contains(rel, "/") {
		if err := unix.Fstatat(t.fd, rel, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return Stat{}, &os.PathError{Op: "lstat", Path: rel, Err: err}
		}
		return fromSys(&st), nil
	}
	fd, err := t.open(rel, unix.O_PATH)
	if err != nil {
		return Stat{}, &os.PathError{Op: "lstat", Path: rel, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return Stat{}, &os.PathError{Op: "lstat", Path: rel, Err: err}
	}
	return fromSys(&st), nil
}

// StatIn looks at the files names of the folder rel; names that end in a slash are skipped.
func (t *Tree) StatIn(rel string, names []string, each func(name string, st Stat, err error)) {
	dir, failed := t.OpenDir(rel)
	if failed == nil {
		defer unix.Close(dir)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			continue
		}
		var st unix.Stat_t
		err := failed
		if err == nil {
			err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		each(name, fromSys(&st), err)
	}
}

// OpenFile opens a regular file for reading. It never blocks and never follows
// a link; ErrNotFile for anything else.
func (t *Tree) OpenFile(rel string) (*os.File, Stat, error) {
	fd, err := t.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, Stat{}, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, Stat{}, &os.PathError{Op: "stat", Path: rel, Err: err}
	}
	s := fromSys(&st)
	if !s.Regular() {
		unix.Close(fd)
		return nil, s, fmt.Errorf("%q: %w", rel, ErrNotFile)
	}
	return os.NewFile(uintptr(fd), rel), s, nil
}

// Readlink returns the target of the link rel.
func (t *Tree) Readlink(rel string) (string, error) {
	fd, err := t.open(rel, unix.O_PATH)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: rel, Err: err}
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: rel, Err: err}
	}
	return string(buf[:n]), nil
}

// OpenDir opens the folder rel as a plain handle, for watches and for creating
// entries in it. The caller closes it with unix.Close.
func (t *Tree) OpenDir(rel string) (int, error) {
	fd, err := t.open(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return fd, nil
}

// Entry is one name in a folder.
type Entry struct {
	Name    string
	Path    string
	Stat    Stat
	Ignored bool // by git's rules; the Stat of an ignored entry has the type alone
}

// Join is a folder's path and a name in it.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Split is the inverse of Join.
func Split(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return "", rel
}

// NewGit is the folder at the top where a repository is made that will take the place of
// .git. Nothing else has that name.
const NewGit = ".git.glasshouse-new"

// Git reports whether the entry name of the folder dir is a repository's own and not one
// of the files in it: .git, and NewGit at the top.
func Git(dir, name string) bool { return name == ".git" || dir == "" && name == NewGit }

// ReadDir lists the folder rel by name. What Git tells is left out. What
// vanishes meanwhile is left out too.
func (t *Tree) ReadDir(rel string) ([]Entry, error) {
	fd, err := t.open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	f := os.NewFile(uintptr(fd), path.Join(t.root, rel))
	defer f.Close()
	names, err := f.ReadDir(-1)
	if err != nil && len(names) == 0 {
		return nil, &os.PathError{Op: "readdir", Path: rel, Err: err}
	}
	has := false
	for _, n := range names {
		if n.Name() == ".gitignore" {
			has = true
			break
		}
	}
	rules := t.dir(rel, &has)
	out := make([]Entry, 0, len(names))
	for _, n := range names {
		name := n.Name()
		if Git(rel, name) {
			continue
		}
		e := Entry{Name: name, Path: Join(rel, name)}
		if rules.Ignored(name, n.IsDir()) {
			e.Ignored = true
			e.Stat.Mode = typeBits(n.Type())
			out = append(out, e)
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue
		}
		e.Stat = fromSys(&st)
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func typeBits(m os.FileMode) uint32 {
	switch {
	case m.IsDir():
		return unix.S_IFDIR
	case m.IsRegular():
		return unix.S_IFREG
	case m&os.ModeSymlink != 0:
		return unix.S_IFLNK
	}
	return unix.S_IFIFO
}

// Rules are the ignore rules for the entries of the folder rel.
func (t *Tree) Rules(rel string) *ignore.Dir { return t.dir(rel, nil) }

// Ignored says whether git would ignore rel; dir is whether it is a folder.
func (t *Tree) Ignored(rel string, dir bool) bool {
	if rel == "" {
		return false
	}
	parent, name := Split(rel)
	return t.dir(parent, nil).Ignored(name, dir)
}

func (t *Tree) dir(rel string, has *bool) *ignore.Dir {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dirLocked(rel, has)
}

func (t *Tree) dirLocked(rel string, has *bool) *ignore.Dir {
	if d := t.dirs[rel]; d != nil {
		return d
	}
	var d *ignore.Dir
	if rel == "" {
		d = ignore.Top(t.rules(".gitignore"), t.Exclude())
	} else {
		parent, name := Split(rel)
		up := t.dirLocked(parent, nil)
		var rules *ignore.Rules
		if !up.AllIgnored() && (has == nil || *has) {
			rules = t.rules(rel + "/.gitignore")
		}
		d = up.Child(name, rules)
	}
	t.dirs[rel] = d
	return d
}

// Exclude are the rules of .git/info/exclude; nil = there are none.
func (t *Tree) Exclude() *ignore.Rules { return t.rules(".git/info/exclude") }

// rules reads one ignore file; as in git a link in its place counts as none.
func (t *Tree) rules(rel string) *ignore.Rules {
	f, _, err := t.OpenFile(rel)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, ignore.MaxFile))
	if err != nil {
		return nil
	}
	return ignore.Parse(data)
}

// Walk visits every entry below rel that is not ignored, folders before what is
// in them, by name. enter, which may be nil, is called before a folder is listed;
// visit is called for each entry, ignored ones included, and may return false
// to stay out of a folder. Folders that vanish or cannot be read are reported
// to failed, which may be nil.
func (t *Tree) Walk(ctx context.Context, rel string, enter func(dir string), visit func(Entry) bool, failed func(dir string, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if enter != nil {
		enter(rel)
	}
	if len(rel) > MaxPath || strings.Count(rel, "/") >= MaxDepth {
		if failed != nil {
			failed(rel, errors.New("nested too deeply"))
		}
		return nil
	}
	entries, err := t.ReadDir(rel)
	if err != nil {
		if failed != nil {
			failed(rel, err)
		}
		return nil
	}
	for _, e := range entries {
		down := visit(e)
		if down && e.Stat.Dir() && !e.Ignored {
			if err := t.Walk(ctx, e.Path, enter, visit, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// Count counts the files below the folder rel, whatever the rules say, up to most.
func (t *Tree) Count(ctx context.Context, rel string, most int) int {
	if ctx.Err() != nil || most <= 0 || strings.Count(rel, "/") >= MaxDepth {
		return 0
	}
	fd, err := t.open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0
	}
	f := os.NewFile(uintptr(fd), path.Join(t.root, rel))
	names, _ := f.ReadDir(-1)
	f.Close()
	n := 0
	for _, e := range names {
		if n >= most {
			break
		}
		switch {
		case Git(rel, e.Name()):
		case e.IsDir():
			n += t.Count(ctx, Join(rel, e.Name()), most-n)
		case e.Type().IsRegular() || e.Type()&os.ModeSymlink != 0:
			n++
		}
	}
	return n
}
