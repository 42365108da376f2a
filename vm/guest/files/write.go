//go:build linux

package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
)

// target follows the links at the end of a path inside the root, so that writing
// to a link changes the file it names.
func (f *Files) target(r *os.Root, at place) (place, error) {
	for range 10 {
		st, err := r.Lstat(at.rel)
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			return at, nil //nolint:nilerr // the caller looks at it too and says what is wrong
		}
		to, err := r.Readlink(at.rel)
		if err != nil {
			return at, f.explain(at, err)
		}
		if path.IsAbs(to) {
			return at, refuse(at.show, "it is a link to an absolute path")
		}
		at.rel = path.Join(path.Dir(at.rel), to)
		if at.rel == ".." || strings.HasPrefix(at.rel, "../") {
			return at, refuse(at.show, "a link in it leads out of "+at.root)
		}
	}
	return at, refuse(at.show, "its links go round in circles")
}

// Write replaces or creates a file.
func (f *Files) Write(ctx context.Context, p string, data []byte, opt guest.WriteOptions) (guest.FileInfo, error) {
	var none guest.FileInfo
	if len(data) > maxWrite {
		return none, fmt.Errorf("%.200q: %d bytes are more than the %d that one write may have: %w", p, len(data), maxWrite, guest.ErrTooLarge)
	}
	if opt.IfMatch != "" && opt.IfMatch != "absent" && len(opt.IfMatch) != 2*sha256.Size {
		return none, refuse(p, "IfMatch must be a sha256 in hex or \"absent\"")
	}
	r, at, err := f.open(p)
	if err != nil {
		return none, err
	}
	defer r.Close()
	if at.rel == "." {
		return none, refuse(p, "it is a folder")
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	if at, err = f.target(r, at); err != nil {
		return none, err
	}
	perm := fs.FileMode(opt.Mode) & 0o777
	if perm == 0 {
		perm = 0o644
	}
	uid, gid := f.opts.UID, f.opts.GID
	old, err := r.Lstat(at.rel)
	switch {
	case err == nil && !old.Mode().IsRegular():
		return none, refuse(at.show, "it is "+typeName(old.Mode())+", not a plain file")
	case err == nil:
		perm = old.Mode().Perm()
		if sys, ok := old.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(sys.Uid), int(sys.Gid)
		}
		if opt.IfMatch == "absent" {
			return none, fmt.Errorf("%.200q exists: %w", at.show, guest.ErrConflict)
		}
		if opt.IfMatch != "" {
			file, _, err := f.plain(r, at)
			if err != nil {
				return none, err
			}
			have, err := hash(ctx, file)
			file.Close()
			if err != nil {
				return none, f.explain(at, err)
			}
			if !strings.EqualFold(have, opt.IfMatch) {
				return none, fmt.Errorf("%.200q has sha256 %s now: %w", at.show, have, guest.ErrConflict)
			}
		}
	case errors.Is(err, fs.ErrNotExist):
		if opt.IfMatch != "" && opt.IfMatch != "absent" {
			return none, fmt.Errorf("%.200q does not exist: %w", at.show, guest.ErrConflict)
		}
		if err := f.mkdir(r, path.Dir(at.rel)); err != nil {
			return none, f.explain(at, err)
		}
	default:
		return none, f.explain(at, err)
	}
	tmp := path.Join(path.Dir(at.rel), ".glasshouse-"+rand.Text()+".tmp")
	file, err := r.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return none, f.explain(at, err)
	}
	done := false
	defer func() {
		file.Close()
		if !done {
			_ = r.Remove(tmp) // the failure that led here is the one to tell
		}
	}()
	if _, err := file.Write(data); err != nil {
		return none, f.explain(at, err)
	}
	if err := f.chown(file, uid, gid); err != nil {
		return none, f.explain(at, err)
	}
	if err := file.Chmod(perm); err != nil {
		return none, f.explain(at, err)
	}
	if err := file.Sync(); err != nil {
		return none, f.explain(at, err)
	}
	st, err := file.Stat()
	if err != nil {
		return none, f.explain(at, err)
	}
	if opt.IfMatch == "absent" {
		// A hard link fails where a rename would replace.
		if err := r.Link(tmp, at.rel); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return none, fmt.Errorf("%.200q exists: %w", at.show, guest.ErrConflict)
			}
			return none, f.explain(at, err)
		}
		_ = r.Remove(tmp) // the file is written; a second name of it is no reason to say otherwise
	} else if err := r.Rename(tmp, at.rel); err != nil {
		return none, f.explain(at, err)
	}
	done = true
	if dir, err := r.Open(path.Dir(at.rel)); err == nil {
		err = dir.Sync()
		dir.Close()
		if err != nil {
			return none, f.explain(at, err)
		}
	}
	info := describe(at.show, st)
	sum := sha256.Sum256(data)
	info.Sha256 = hex.EncodeToString(sum[:])
	return info, nil
}

func (f *Files) chown(file *os.File, uid, gid int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return file.Chown(uid, gid)
}

// mkdir makes a folder and those above it, each the agent's.
func (f *Files) mkdir(r *os.Root, rel string) error {
	if rel == "." {
		return nil
	}
	at := ""
	for part := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, part)
		err := r.Mkdir(at, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := r.Lchown(at, f.opts.UID, f.opts.GID); err != nil {
				return err
			}
		}
	}
	st, err := r.Stat(rel)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return refuse(rel, "it is "+typeName(st.Mode())+", not a folder")
	}
	return nil
}

// Mkdir makes a folder and those above it; one that exists is no error.
func (f *Files) Mkdir(ctx context.Context, p string) error {
	r, at, err := f.open(p)
	if err != nil {
		return err
	}
	defer r.Close()
	return f.explain(at, f.mkdir(r, at.rel))
}

// Remove removes a file, a link (not what it names) or a folder; one that is not
// empty only when recursive.
func (f *Files) Remove(ctx context.Context, p string, recursive bool) error {
	r, at, err := f.open(p)
	if err != nil {
		return err
	}
	defer r.Close()
	if at.rel == "." {
		return refuse(p, "a root folder itself is never removed")
	}
	// RemoveAll is silent about what does not exist.
	if _, err := r.Lstat(at.rel); err != nil {
		return f.explain(at, err)
	}
	if recursive {
		return f.explain(at, r.RemoveAll(at.rel))
	}
	err = r.Remove(at.rel)
	if errors.Is(err, unix.ENOTEMPTY) {
		return refuse(at.show, "the folder is not empty; ask for recursive removal")
	}
	return f.explain(at, err)
}
