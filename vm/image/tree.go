package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"time"
)

// tree writes the root file system as plain files of the user who builds: no owners, no setuid or setgid bits, no
// device nodes, everything readable by everyone. What that loses is remembered in want, for the disk.
type tree struct {
	root  *os.Root
	want  map[string]owner
	times map[string]time.Time // of folders, set when everything is in
	bytes int64
	files int64
	grab  func(name string) io.Writer // takes a file of boot/, which is not part of the tree
}

// owner is what a file has on the disk and cannot have in the tree.
type owner struct {
	uid, gid int
	mode     uint32 // type and permission bits as in st_mode
}

const (
	modeDir     = 0o040000
	modeRegular = 0o100000
)

func newTree(dir string) (*tree, error) {
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, want: map[string]owner{}, times: map[string]time.Time{}}, nil
}

// Folders whose content stays out: what a running system fills itself, and what only the installation needed.
var leftOut = []string{"dev", "proc", "sys", "run", "tmp", "var/tmp", "var/cache/apt", "var/lib/apt/lists"}

func isLeftOut(name string) bool {
	for _, dir := range leftOut {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// unpack reads a tar archive; progress gets the bytes written so far.
func (t *tree) unpack(r io.Reader, progress func(int64)) error {
	in := tar.NewReader(r)
	told := int64(0)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			// The rest of the padding, so that the writer of a pipe can end.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("read the root file system: %w", err)
		}
		if err := t.add(h, in); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
		if t.bytes-told >= 4<<20 {
			told = t.bytes
			progress(told)
		}
	}
}

func (t *tree) add(h *tar.Header, body io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if name == "." {
		return nil
	}
	if !fs.ValidPath(name) {
		return errors.New("the name leads out of the root file system")
	}
	if isLeftOut(name) && !(h.Typeflag == tar.TypeDir && strings.HasPrefix(name, "var/")) { // apt wants its folders
		return nil
	}
	if strings.HasPrefix(name, "boot/") {
		if t.grab != nil && h.Typeflag == tar.TypeReg {
			if w := t.grab(name); w != nil {
				_, err := io.Copy(w, body)
				return err
			}
		}
		return nil
	}
	perm := uint32(h.Mode) & 0o7777
	switch h.Typeflag {
	case tar.TypeDir:
		t.times[name] = h.ModTime
		return t.mkdir(name, owner{h.Uid, h.Gid, modeDir | perm})
	case tar.TypeReg:
		return t.file(name, body, h.ModTime, owner{h.Uid, h.Gid, modeRegular | perm})
	case tar.TypeSymlink:
		if err := t.remove(name); err != nil {
			return err
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.want[name] = owner{h.Uid, h.Gid, 0o120777}
		}
		return t.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if err := t.remove(name); err != nil {
			return err
		}
		return t.root.Link(path.Clean(strings.TrimPrefix(h.Linkname, "./")), name)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil // devtmpfs brings the devices
	}
	return fmt.Errorf("unexpected kind of entry %q", h.Typeflag)
}

// remove makes room for another file; a folder stays, and stands in its way.
func (t *tree) remove(name string) error {
	if st, err := t.root.Lstat(name); err == nil && !st.IsDir() {
		if err := t.root.Remove(name); err != nil {
			return err
		}
		delete(t.want, name)
	}
	return nil
}

func (t *tree) mkdir(name string, o owner) error {
	if err := t.parents(name); err != nil {
		return err
	}
	return t.settle(name, o)
}

// parents makes a folder and what is missing above it, open to everyone whatever the umask.
func (t *tree) parents(dir string) error {
	if _, err := t.root.Lstat(dir); err == nil || dir == "." {
		return err
	}
	if err := t.parents(path.Dir(dir)); err != nil {
		return err
	}
	if err := t.root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return t.root.Chmod(dir, 0o755)
}

func (t *tree) file(name string, body io.Reader, mtime time.Time, o owner) error {
	if err := t.remove(name); err != nil {
		return err
	}
	if err := t.parents(path.Dir(name)); err != nil {
		return err
	}
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, body)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	t.bytes += n
	t.files++
	if err := t.settle(name, o); err != nil {
		return err
	}
	return t.root.Chtimes(name, mtime, mtime)
}

// settle gives a name its mode in the tree and remembers what the disk wants instead.
func (t *tree) settle(name string, o owner) error {
	mode := o.mode&0o777 | 0o444 | 0o200
	if o.mode&0o170000 == modeDir {
		mode |= 0o111
	}
	if err := t.root.Chmod(name, fs.FileMode(mode)); err != nil {
		return err
	}
	delete(t.want, name)
	if o.uid != 0 || o.gid != 0 || o.mode&0o7777 != mode {
		t.want[name] = o
	}
	return nil
}

// put writes a file of ours, owned by root.
func (t *tree) put(name string, data []byte, mode fs.FileMode, mtime time.Time) error {
	return t.file(name, bytes.NewReader(data), mtime, owner{mode: modeRegular | uint32(mode)})
}

// giveHome makes the agent the owner of a file in its home and of the folders above it there.
func (t *tree) giveHome(name string) error {
	const home, agent = "home/agent/", 1000
	for ; strings.HasPrefix(name, home); name = path.Dir(name) {
		st, err := t.root.Lstat(name)
		if err != nil {
			return err
		}
		o := owner{agent, agent, uint32(st.Mode().Perm())}
		if st.IsDir() {
			o.mode |= modeDir
		} else {
			o.mode |= modeRegular
		}
		if err := t.settle(name, o); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) symlink(target, name string) error {
	if err := t.remove(name); err != nil {
		return err
	}
	if err := t.parents(path.Dir(name)); err != nil {
		return err
	}
	return t.root.Symlink(target, name)
}

// finish sets the times of folders, which font caches are checked by, and lets go of the tree.
func (t *tree) finish() error {
	var err error
	for name, when := range t.times {
		err = errors.Join(err, t.root.Chtimes(name, when, when))
	}
	return errors.Join(err, t.root.Close())
}

// debugfsScript sets on the disk what the tree could not hold.
func (t *tree) debugfsScript() (string, error) {
	names := make([]string, 0, len(t.want))
	for name := range t.want {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		if strings.ContainsAny(name, "\"\n\\") {
			return "", fmt.Errorf("the name %q cannot be given to debugfs", name)
		}
		o := t.want[name]
		fmt.Fprintf(&b, "set_inode_field \"/%s\" mode 0%o\n", name, o.mode)
		fmt.Fprintf(&b, "set_inode_field \"/%s\" uid %d\n", name, o.uid)
		fmt.Fprintf(&b, "set_inode_field \"/%s\" gid %d\n", name, o.gid)
	}
	return b.String(), nil
}
