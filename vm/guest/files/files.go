//go:build linux

package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch/scan"
)

const (
	maxRead    = 8 << 20
	maxWrite   = 64 << 20
	maxHash    = 64 << 20
	maxPath    = 4096
	maxNames   = 200_000 // names read of one folder
	maxList    = 10_000
	maxGlob    = 10_000
	maxVisited = 1_000_000
)

// Options of Files.
type Options struct {
	// Root is what relative paths are relative to; default guest.Workspace.
	Root string
	// Allowed are the other folders that absolute paths may lie in; nil means
	// guest.Home and /tmp, an empty slice none.
	Allowed []string
	// UID and GID own what is created when guestd is root; 0 leaves it root's.
	UID, GID int
	// Run starts ripgrep as the agent user; default runas.User(UID, GID).
	Run runas.Func
	// Env is the environment of ripgrep; default PATH and LANG alone.
	Env []string
	// SearchTime bounds one search; default 20 s.
	SearchTime time.Duration
}

// Files of one guest. It is safe for concurrent use.
type Files struct {
	opts  Options
	roots []string // the workspace first
	// writing makes compare-and-swap hold among the host's own writers.
	writing sync.Mutex
}

var _ guest.Files = (*Files)(nil)

// New returns the files of one guest.
func New(opts Options) *Files {
	if opts.Root == "" {
		opts.Root = guest.Workspace
	}
	if opts.Allowed == nil {
		opts.Allowed = []string{guest.Home, "/tmp"}
	}
	if opts.Run == nil {
		opts.Run = runas.User(opts.UID, opts.GID)
	}
	if opts.Env == nil {
		opts.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	}
	if opts.SearchTime <= 0 {
		opts.SearchTime = 20 * time.Second
	}
	f := &Files{opts: opts, roots: []string{path.Clean(opts.Root)}}
	for _, r := range opts.Allowed {
		f.roots = append(f.roots, path.Clean(r))
	}
	return f
}

// place is a path that was found to lie in an allowed folder.
type place struct {
	root string // absolute
	rel  string // relative to root; "." is root itself
	show string // as given back: relative to the workspace, else absolute
}

func refuse(p, why string) error {
	return fmt.Errorf("%.200q: %s: %w", p, why, guest.ErrRefused)
}

// locate checks a path by its text; links are os.Root's business.
func (f *Files) locate(p string) (place, error) {
	switch {
	case len(p) > maxPath:
		return place{}, refuse(p, fmt.Sprintf("it is longer than %d bytes", maxPath))
	case strings.IndexByte(p, 0) >= 0:
		return place{}, refuse(p, "it contains a zero byte")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return place{}, refuse(p, "it contains ..")
		}
	}
	if !path.IsAbs(p) {
		rel := path.Clean(p)
		return place{f.roots[0], rel, rel}, nil
	}
	p = path.Clean(p)
	best := place{}
	for i, root := range f.roots {
		rel, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/")
		if p == root {
			rel, ok = ".", true
		}
		if !ok || len(root) <= len(best.root) {
			continue
		}
		best = place{root, rel, p}
		if i == 0 {
			best.show = rel
		}
	}
	if best.root == "" {
		return best, refuse(p, "it lies outside "+strings.Join(f.roots, ", "))
	}
	return best, nil
}

func (f *Files) open(p string) (*os.Root, place, error) {
	at, err := f.locate(p)
	if err != nil {
		return nil, at, err
	}
	r, err := os.OpenRoot(at.root)
	if err != nil {
		return nil, at, f.explain(at, err)
	}
	return r, at, nil
}

// explain turns an error of the system into one of the contract.
func (f *Files) explain(at place, err error) error {
	var no syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, guest.ErrRefused), errors.Is(err, guest.ErrConflict), errors.Is(err, guest.ErrTooLarge):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%.200q: %w", at.show, guest.ErrNotFound)
	case escapes(err):
		return refuse(at.show, "a link in it leads out of "+at.root)
	case errors.Is(err, unix.ELOOP):
		return refuse(at.show, "its links go round in circles")
	case errors.As(err, &no):
		return fmt.Errorf("%.200q: %w", at.show, no)
	}
	return fmt.Errorf("%.200q: %w", at.show, err)
}

// escapes recognises os.Root's refusal, which has no exported value.
func escapes(err error) bool { return strings.Contains(err.Error(), "escapes from parent") }

// plain opens a regular file; it neither blocks nor opens devices.
func (f *Files) plain(r *os.Root, at place) (*os.File, fs.FileInfo, error) {
	st, err := r.Stat(at.rel)
	if err != nil {
		return nil, nil, f.explain(at, err)
	}
	if st.IsDir() {
		return nil, nil, refuse(at.show, "it is a folder")
	}
	if !st.Mode().IsRegular() {
		return nil, nil, refuse(at.show, "it is "+typeName(st.Mode())+", not a plain file")
	}
	// Non-blocking, should a pipe have taken its place just now.
	file, err := r.OpenFile(at.rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, f.explain(at, err)
	}
	st, err = file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = refuse(at.show, "it is "+typeName(st.Mode())+", not a plain file")
	}
	if err != nil {
		file.Close()
		return nil, nil, f.explain(at, err)
	}
	return file, st, nil
}

func typeName(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeSymlink != 0:
		return "a link"
	case m.IsDir():
		return "a folder"
	}
	return "something special"
}

func describe(show string, st fs.FileInfo) guest.FileInfo {
	i := guest.FileInfo{Path: show, Size: st.Size(), Mode: uint32(st.Mode().Perm()), ModTime: st.ModTime(), Type: "other"}
	switch {
	case st.Mode().IsRegular():
		i.Type = "file"
	case st.IsDir():
		i.Type = "dir"
	case st.Mode()&fs.ModeSymlink != 0:
		i.Type = "link"
	}
	return i
}

// Stat describes path itself, not what a link leads to.
func (f *Files) Stat(ctx context.Context, p string) (guest.FileInfo, error) {
	r, at, err := f.open(p)
	if err != nil {
		return guest.FileInfo{}, err
	}
	defer r.Close()
	st, err := r.Lstat(at.rel)
	if err != nil {
		return guest.FileInfo{}, f.explain(at, err)
	}
	info := describe(at.show, st)
	switch {
	case info.Type == "link":
		info.Target, err = r.Readlink(at.rel)
		return info, f.explain(at, err)
	case info.Type == "file" && info.Size <= maxHash:
		file, now, err := f.plain(r, at)
		if err != nil {
			return info, err
		}
		defer file.Close()
		info = describe(at.show, now)
		info.Sha256, err = hash(ctx, file)
		return info, f.explain(at, err)
	}
	return info, nil
}

func hash(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(h, &bounded{ctx, io.LimitReader(r, 2*maxHash)}, make([]byte, 256<<10)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// bounded is a reader that ends with its context.
type bounded struct {
	ctx context.Context
	r   io.Reader
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// Read returns a piece of a file; a limit of 0 means as much as may be.
func (f *Files) Read(ctx context.Context, p string, offset, limit int64) (guest.FileData, error) {
	if offset < 0 || limit < 0 {
		return guest.FileData{}, refuse(p, "offset and limit must not be negative")
	}
	if limit == 0 || limit > maxRead {
		limit = maxRead
	}
	r, at, err := f.open(p)
	if err != nil {
		return guest.FileData{}, err
	}
	defer r.Close()
	file, st, err := f.plain(r, at)
	if err != nil {
		return guest.FileData{}, err
	}
	defer file.Close()
	out := guest.FileData{Info: describe(at.show, st), Offset: offset}
	data := make([]byte, max(0, min(limit, st.Size()-offset)))
	n, err := file.ReadAt(data, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return out, f.explain(at, err)
	}
	out.Data = data[:n]
	if st.Size() <= maxHash {
		if offset == 0 && int64(n) == st.Size() {
			sum := sha256.Sum256(out.Data)
			out.Info.Sha256 = hex.EncodeToString(sum[:])
		} else if out.Info.Sha256, err = hash(ctx, file); err != nil {
			return out, f.explain(at, err)
		}
	}
	return out, nil
}

// List returns the entries of a folder by name.
func (f *Files) List(ctx context.Context, p string, limit int) ([]guest.FileInfo, bool, error) {
	if limit <= 0 || limit > maxList {
		limit = maxList
	}
	r, at, err := f.open(p)
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	st, err := r.Stat(at.rel)
	if err != nil {
		return nil, false, f.explain(at, err)
	}
	if !st.IsDir() {
		return nil, false, refuse(at.show, "it is "+typeName(st.Mode())+", not a folder")
	}
	dir, err := r.OpenFile(at.rel, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, f.explain(at, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, f.explain(at, err)
	}
	more := len(names) == maxNames
	sort.Strings(names)
	ignored := func(string, bool) bool { return false }
	if at.root == f.roots[0] {
		if tree, err := scan.Open(at.root); err == nil {
			defer tree.Close()
			rel := at.rel
			if rel == "." {
				rel = ""
			}
			rules := tree.Rules(rel)
			inGit := rel == ".git" || strings.HasPrefix(rel, ".git/")
			ignored = func(name string, dir bool) bool {
				return inGit || name == ".git" || rules.Ignored(name, dir)
			}
		}
	}
	var out []guest.FileInfo
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if len(out) == limit {
			more = true
			break
		}
		rel := path.Join(at.rel, name)
		st, err := r.Lstat(rel)
		if err != nil {
			continue // gone meanwhile
		}
		info := describe(path.Join(at.show, name), st)
		if info.Type == "link" {
			info.Target, _ = r.Readlink(rel)
		}
		info.Ignored = ignored(name, info.Type == "dir")
		out = append(out, info)
	}
	return out, more, nil
}
