//go:build linux

package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest/watch/scan"
)

// No open or access events: our own walks must not wake us.
const (
	mask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
	topMask = mask | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// node is a watched folder.
type node struct {
	parent *node
	name   string
	kids   map[string]*node
	wd     int32 // 0 = not watched
}

func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return scan.Join(n.parent.path(), n.name)
}

// inotify is one queue of the kernel with its watches. All fields are guarded
// by Watcher.mu.
type inotify struct {
	file  *os.File
	conn  syscall.RawConn
	fd    int
	wds   map[int32]*node
	top   *node
	fresh []string // folders to watch and list
	buf   []byte
}

// errFull: the user's watches or instances ran out.
var errFull = errors.New("no inotify watches are left")

func openInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFull, err)
	}
	in := &inotify{
		file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		wds: map[int32]*node{}, top: &node{}, buf: make([]byte, 64<<10),
	}
	if in.conn, err = in.file.SyscallConn(); err != nil {
		in.file.Close()
		return nil, err
	}
	return in, nil
}

// find returns the node of a folder, or nil.
func (in *inotify) find(rel string) *node {
	n := in.top
	if rel == "" {
		return n
	}
	for part := range strings.SplitSeq(rel, "/") {
		if n = n.kids[part]; n == nil {
			return nil
		}
	}
	return n
}

func (in *inotify) make(rel string) *node {
	n := in.top
	if rel == "" {
		return n
	}
	for part := range strings.SplitSeq(rel, "/") {
		kid := n.kids[part]
		if kid == nil {
			kid = &node{parent: n, name: part}
			if n.kids == nil {
				n.kids = map[string]*node{}
			}
			n.kids[part] = kid
		}
		n = kid
	}
	return n
}

// add watches the folder rel. A folder that vanished is no error.
func (in *inotify) add(tree *scan.Tree, rel string) error {
	dir, err := tree.OpenDir(rel)
	if err != nil {
		if scan.Gone(err) || errors.Is(err, unix.EACCES) {
			return nil
		}
		return err
	}
	defer unix.Close(dir)
	m := uint32(mask)
	if rel == "" {
		m = topMask
	}
	// Through the handle, so that no link swapped in on the way is followed.
	wd, err := unix.InotifyAddWatch(in.fd, fmt.Sprintf("/proc/self/fd/%d", dir), m)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w", errFull, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return err
	}
	n := in.make(rel)
	id := int32(wd)
	if old := in.wds[id]; old != nil && old != n {
		old.wd = 0 // the same folder under its former name
	}
	if n.wd != 0 && n.wd != id {
		delete(in.wds, n.wd)
		_, _ = unix.InotifyRmWatch(in.fd, uint32(n.wd)) // of a removed folder the kernel took it away
	}
	n.wd = id
	in.wds[id] = n
	return nil
}

// drop forgets the folder n and all below it.
func (in *inotify) drop(n *node) {
	for _, kid := range n.kids {
		in.drop(kid)
	}
	if n.wd != 0 {
		if in.wds[n.wd] == n {
			delete(in.wds, n.wd)
			_, _ = unix.InotifyRmWatch(in.fd, uint32(n.wd)) // of a removed folder the kernel took it away
		}
		n.wd = 0
	}
	if n.parent != nil && n.parent.kids[n.name] == n {
		delete(n.parent.kids, n.name)
	}
}

// queued is how many bytes of events wait in the kernel.
func (in *inotify) queued() int {
	n, err := unix.IoctlGetInt(in.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// drain reads what the kernel has queued, at least limit bytes of it if there is
// that much, and brings the watches up to date. It returns whether the queue was
// seen empty. w.mu is held.
func (w *Watcher) drain(in *inotify, limit int) (empty bool) {
	for w.in == in {
		if limit > 0 && !empty {
			n, err := unix.Read(in.fd, in.buf)
			switch {
			case err == unix.EINTR:
			case err == nil && n > 0:
				limit -= n
				w.events(in, in.buf[:n])
			default:
				empty = true
			}
			if w.in != in {
				break
			}
		}
		// One folder at a time, so that the queue is emptied in between.
		if n := len(in.fresh); n > 0 {
			rel := in.fresh[n-1]
			in.fresh = in.fresh[:n-1]
			w.enter(in, rel)
			continue
		}
		if empty || limit <= 0 {
			return empty
		}
	}
	return false
}

func (w *Watcher) events(in *inotify, buf []byte) {
	for len(buf) >= unix.SizeofInotifyEvent && w.in == in {
		wd := int32(binary.NativeEndian.Uint32(buf))
		m := binary.NativeEndian.Uint32(buf[4:])
		size := int(binary.NativeEndian.Uint32(buf[12:]))
		end := unix.SizeofInotifyEvent + size
		if end > len(buf) {
			return
		}
		name := buf[unix.SizeofInotifyEvent:end]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		w.event(in, wd, m, string(name))
		buf = buf[end:]
	}
}

func (w *Watcher) event(in *inotify, wd int32, m uint32, name string) {
	if m&unix.IN_Q_OVERFLOW != 0 {
		w.lose(true, "the kernel's event queue overflowed")
		return
	}
	n := in.wds[wd]
	if n == nil {
		return
	}
	if m&(unix.IN_IGNORED|unix.IN_UNMOUNT|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0 {
		if m&unix.IN_IGNORED != 0 {
			delete(in.wds, wd)
			n.wd = 0
		}
		if n == in.top {
			w.lose(true, "the watched folder itself was moved or removed")
		}
		return
	}
	if name == "" {
		return // the folder's own attributes
	}
	dir := m&unix.IN_ISDIR != 0
	rel := scan.Join(n.path(), name)
	if kind, ok := gitPart(rel); ok {
		w.gitEvent(in, rel, kind, dir, m)
		return
	}
	if scan.Git(n.path(), name) {
		return // of a nested repository, or one that is being made
	}
	if name == ".gitignore" {
		w.lose(false, "ignore rules changed")
	}
	if !dir {
		w.mark(rel)
		return
	}
	switch {
	case m&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.mark(rel)
		in.fresh = append(in.fresh, rel)
	case m&unix.IN_ATTRIB != 0:
		// It may have become readable, or stopped being so.
		w.mark(rel)
		in.fresh = append(in.fresh, rel)
	case m&unix.IN_DELETE != 0:
		w.gone(rel)
		w.tree.ForgetDir(rel, false)
		if kid := in.find(rel); kid != nil {
			in.drop(kid)
		}
	case m&unix.IN_MOVED_FROM != 0:
		w.gone(rel)
		w.tree.ForgetDir(rel, true)
		if kid := in.find(rel); kid != nil {
			in.drop(kid)
		}
	}
}

type gitKind int

const (
	gitItself gitKind = iota
	gitFile           // HEAD, index, packed-refs
	gitRefs           // refs and below
	gitInfo           // the folder info
	gitRules          // info/exclude
	gitOther
)

// gitPart says what a path in the workspace's own .git is.
func gitPart(rel string) (gitKind, bool) {
	if rel == ".git" {
		return gitItself, true
	}
	in, ok := strings.CutPrefix(rel, ".git/")
	if !ok {
		return 0, false
	}
	switch {
	case in == "HEAD", in == "index", in == "packed-refs":
		return gitFile, true
	case in == "refs", strings.HasPrefix(in, "refs/"):
		if strings.HasSuffix(in, ".lock") {
			return gitOther, true
		}
		return gitRefs, true
	case in == "info":
		return gitInfo, true
	case in == "info/exclude":
		return gitRules, true
	}
	return gitOther, true
}

func (w *Watcher) gitEvent(in *inotify, rel string, kind gitKind, dir bool, m uint32) {
	moved := m&(unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0
	switch {
	case kind == gitItself && moved:
		w.lose(false, "the repository came or went")
	case kind == gitRules, kind == gitInfo && dir && moved:
		w.lose(false, "ignore rules changed")
	case kind == gitFile, kind == gitRefs && !dir:
		w.mark(rel)
	case kind == gitRefs && m&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		in.fresh = append(in.fresh, rel)
	case kind == gitRefs && moved:
		w.gone(rel)
		if kid := in.find(rel); kid != nil {
			in.drop(kid)
		}
	}
}

// enter watches a folder that appeared and marks what is already in it: events
// of the time before the watch do not exist. The watch comes first, then the list.
func (w *Watcher) enter(in *inotify, rel string) {
	_, git := gitPart(rel)
	if !git && w.tree.Ignored(rel, true) {
		return
	}
	if err := w.add(in, rel); err != nil {
		w.lose(true, err.Error())
		if errors.Is(err, errFull) {
			w.degrade()
		}
		return
	}
	entries, err := w.tree.ReadDir(rel)
	if err != nil {
		return
	}
	for _, e := range entries {
		switch {
		case e.Name == ".gitignore":
			w.lose(false, "ignore rules appeared")
			w.mark(e.Path)
		case e.Ignored && !git:
		case e.Stat.Dir():
			in.fresh = append(in.fresh, e.Path)
		default:
			if kind, ok := gitPart(e.Path); !ok || kind == gitRefs {
				w.ui.add(e.Path)
			}
		}
	}
}

// add is inotify.add with the test's fault.
func (w *Watcher) add(in *inotify, rel string) error {
	if w.fault != nil {
		if err := w.fault(rel); err != nil {
			return err
		}
	}
	return in.add(w.tree, rel)
}
