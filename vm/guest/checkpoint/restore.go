//go:build linux

package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
	"glasshouse/vm/guest/watch/ignore"
	"glasshouse/vm/guest/watch/scan"
)

// tmpName is what a file is called while it is written; a killed restore may
// leave one. No checkpoint holds it.
const tmpName = ".glasshouse-restore.tmp"

// Restore makes the workspace equal to a checkpoint, taking one first. Files
// that no checkpoint holds (ignored, too large) stay; where one is in the way of
// a restored file it is captured in the checkpoint taken first or, when it is a
// folder, pipe or socket, renamed with ".kept-" in its name. The repository's
// .git is not touched, nor one that is being made.
func (c *Checkpoints) Restore(ctx context.Context, commit string) (before guest.Checkpoint, err error) {
	id, err := objects.Parse(commit)
	if err != nil {
		return before, err
	}
	if err := c.lock(ctx); err != nil {
		return before, err
	}
	defer c.unlock()
	if err := c.open(ctx); err != nil {
		return before, err
	}
	want, err := c.list(ctx, id)
	if err != nil {
		return before, err
	}
	paths := slices.Sorted(maps.Keys(want))
	before, err = c.take(ctx, guest.CheckpointRequest{Step: "before restoring " + commit, Full: true}, paths)
	if err != nil {
		return before, fmt.Errorf("nothing was restored, because the present state cannot be kept: %w", err)
	}
	r := &restorer{c: c, want: want}
	if err := r.run(ctx, paths); err != nil {
		c.x, c.stale = nil, true
		return before, fmt.Errorf("restored in part; checkpoint %s holds what was before: %w", before.Commit, err)
	}
	return before, objects.SyncFS(c.opts.Root)
}

// list is the files of a checkpoint.
func (c *Checkpoints) list(ctx context.Context, id objects.ID) (map[string]value, error) {
	if _, err := c.commit(ctx, id); err != nil {
		return nil, err
	}
	out := map[string]value{}
	var parse error
	w := &fields{each: func(f string) {
		meta, p, ok := strings.Cut(f, "\t")
		m := strings.Fields(meta)
		if !ok || len(m) != 3 || m[1] != "blob" {
			parse = fmt.Errorf("the checkpoint's tree is not understood at %.80q", f)
			return
		}
		mode, err := strconv.ParseUint(m[0], 8, 32)
		id, err2 := objects.Parse(m[2])
		if err != nil || err2 != nil {
			parse = fmt.Errorf("the checkpoint's tree is not understood at %.80q", f)
			return
		}
		if top, _, _ := strings.Cut(p, "/"); top == scan.NewGit {
			return // a checkpoint of former times may hold what a repair left
		}
		for part := range strings.SplitSeq(p, "/") {
			if part == tmpName {
				return // recorded before such files were left out
			}
			if refused(part) {
				parse = fmt.Errorf("the checkpoint holds a path that may not be written: %.80q", p)
				return
			}
		}
		out[p] = value{uint32(mode), id}
	}}
	if err := c.git(ctx, nil, w, "ls-tree", "-r", "-z", id.String()); err != nil {
		return nil, err
	}
	return out, parse
}

// fields splits NUL-ended fields.
type fields struct {
	rest []byte
	each func(string)
}

func (w *fields) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := strings.IndexByte(string(w.rest), 0)
		if i < 0 {
			return len(p), nil
		}
		w.each(string(w.rest[:i]))
		w.rest = w.rest[i+1:]
	}
}

type restorer struct {
	c    *Checkpoints
	want map[string]value
}

func (r *restorer) run(ctx context.Context, paths []string) error {
	x := r.c.x
	stays, err := r.ignored(ctx, paths)
	if err != nil {
		return err
	}
	var drop []string
	x.each(func(rel string, e *entry) {
		// A link or file in the place of a folder must go before the folder comes.
		if w, ok := r.want[rel]; !ok {
			if !stays(rel) {
				drop = append(drop, rel)
			}
		} else if fileType(w.mode) != fileType(e.mode) {
			drop = append(drop, rel)
		}
	})
	for _, rel := range drop {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.drop(rel); err != nil {
			return err
		}
	}
	var write []string
	for _, rel := range paths {
		if x.value(rel) != r.want[rel] {
			write = append(write, rel)
		}
	}
	if len(write) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var ids strings.Builder
		for _, rel := range write {
			ids.WriteString(r.want[rel].id.String() + "\n")
		}
		err := r.c.git(ctx, strings.NewReader(ids.String()), pw, "cat-file", "--batch")
		pw.CloseWithError(err)
	}()
	in := bufio.NewReaderSize(pr, 256<<10)
	for _, rel := range write {
		if err = r.write(rel, in); err != nil {
			err = fmt.Errorf("%q: %w", rel, err)
			break
		}
	}
	cancel()
	pr.CloseWithError(errEnough)
	<-done
	return err
}

// ignored returns which of the recorded files stay although the checkpoint holds them
// not: those that its own rules ignore, and that no file of its is in the way of. They
// were recorded only because the rules of now are others, as after a restore to before
// the rules were made; no restore takes what is ignored.
func (r *restorer) ignored(ctx context.Context, paths []string) (func(rel string) bool, error) {
	texts := map[string]*ignore.Rules{}
	folders := map[string]bool{}
	o := r.c.readObjects(ctx)
	defer o.close()
	for _, rel := range paths {
		up, name := scan.Split(rel)
		if name == ".gitignore" && fileType(r.want[rel].mode) == unix.S_IFREG {
			size, err := o.head(r.want[rel].id, "blob")
			if err != nil {
				return nil, err
			}
			text, err := o.body(size, min(size, ignore.MaxFile))
			if err == nil && size > ignore.MaxFile {
				_, err = io.CopyN(io.Discard, o.out, size-ignore.MaxFile+1)
			}
			if err != nil {
				return nil, err
			}
			texts[up] = ignore.Parse(text)
		}
		for ; up != "" && !folders[up]; up, _ = scan.Split(up) {
			folders[up] = true
		}
	}
	dirs := map[string]*ignore.Dir{"": ignore.Top(texts[""], r.c.tree.Exclude())}
	var dir func(rel string) *ignore.Dir
	dir = func(rel string) *ignore.Dir {
		if dirs[rel] == nil {
			up, name := scan.Split(rel)
			dirs[rel] = dir(up).Child(name, texts[rel])
		}
		return dirs[rel]
	}
	var tracked map[string]bool
	return func(rel string) bool {
		up, name := scan.Split(rel)
		if folders[rel] || !dir(up).Ignored(name, false) {
			return false
		}
		if tracked == nil {
			paths, ok := r.c.inGit(ctx)
			if !ok {
				paths = slices.Collect(maps.Keys(r.c.tracked))
			}
			tracked = map[string]bool{}
			for _, p := range paths {
				tracked[p] = true
			}
		}
		if tracked[rel] {
			return false // it counts, whatever the rules
		}
		for ; up != ""; up, _ = scan.Split(up) {
			if _, ok := r.want[up]; ok {
				return false
			}
		}
		return true
	}, nil
}

// unchanged checks that rel still is what the checkpoint before recorded.
func (r *restorer) unchanged(rel string) error {
	e := r.c.x.get(rel)
	st, err := r.c.tree.Lstat(rel)
	switch {
	case e == nil && err == nil && (st.Regular() || st.Link()):
		return fmt.Errorf("%q appeared while restoring; stop what writes there and restore again", rel)
	case e != nil && err == nil && (st.Mtime != e.st.Mtime || st.Size != e.st.Size || st.Ino != e.st.Ino):
		return fmt.Errorf("%q changed while restoring; stop what writes there and restore again", rel)
	}
	return nil
}

// drop removes a recorded file and the folders that become empty.
func (r *restorer) drop(rel string) error {
	if err := r.unchanged(rel); err != nil {
		return err
	}
	for p, isDir := rel, false; p != ""; isDir = true {
		up, name := scan.Split(p)
		dir, err := r.c.tree.OpenDir(up)
		if err != nil {
			if scan.Gone(err) {
				break
			}
			return err
		}
		flags := 0
		if isDir {
			flags = unix.AT_REMOVEDIR
			if in, err := r.c.tree.OpenDir(p); err == nil {
				// What a killed restore left keeps no folder.
				_ = unix.Unlinkat(in, tmpName, 0)
				unix.Close(in)
			}
		}
		err = unix.Unlinkat(dir, name, flags)
		unix.Close(dir)
		if isDir && err != nil {
			break // not empty, most likely; an empty folder is in no checkpoint
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%q cannot be removed: %w", rel, err)
		}
		p = up
	}
	r.c.x.remove(rel, nil)
	return nil //nolint:nilerr // a folder that stays is no failure, see above
}

// parent opens the folder rel lies in, making it; what stands in the way is renamed.
func (r *restorer) parent(rel string) (int, error) {
	up, _ := scan.Split(rel)
	if dir, err := r.c.tree.OpenDir(up); err == nil || !scan.Gone(err) {
		return dir, err
	}
	at := ""
	for part := range strings.SplitSeq(up, "/") {
		dir, err := r.c.tree.OpenDir(at)
		if err != nil {
			return -1, err
		}
		err = unix.Mkdirat(dir, part, 0o755)
		if errors.Is(err, unix.EEXIST) {
			var st unix.Stat_t
			if e := unix.Fstatat(dir, part, &st, unix.AT_SYMLINK_NOFOLLOW); e == nil && fileType(st.Mode) != unix.S_IFDIR {
				if err = r.aside(dir, part); err == nil {
					err = unix.Mkdirat(dir, part, 0o755)
				}
			} else {
				unix.Close(dir)
				at = scan.Join(at, part)
				continue
			}
		}
		if err == nil {
			err = r.own(dir, part)
		}
		unix.Close(dir)
		if err != nil {
			return -1, err
		}
		at = scan.Join(at, part)
	}
	return r.c.tree.OpenDir(up)
}

// aside renames what no checkpoint holds out of the way.
func (r *restorer) aside(dir int, name string) error {
	for i := r.c.opts.Now().Unix(); ; i++ {
		to := fmt.Sprintf("%.200s.kept-%d", name, i)
		err := unix.Renameat2(dir, name, dir, to, unix.RENAME_NOREPLACE)
		if err != unix.EEXIST {
			return err
		}
	}
}

func (r *restorer) own(dir int, name string) error {
	if os.Geteuid() != 0 || r.c.opts.UID <= 0 {
		return nil
	}
	return unix.Fchownat(dir, name, r.c.opts.UID, r.c.opts.GID, unix.AT_SYMLINK_NOFOLLOW)
}

// write puts the next blob of in at rel.
func (r *restorer) write(rel string, in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("its content cannot be read from the store: %w", err)
	}
	w := r.want[rel]
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != w.id.String() || f[1] != "blob" {
		return fmt.Errorf("its content is missing in the store (%.80q)", line)
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return err
	}
	if err := r.unchanged(rel); err != nil {
		return err
	}
	dir, err := r.parent(rel)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	_, name := scan.Split(rel)
	perm := uint32(0o644)
	if w.mode == modeExec {
		perm = 0o755
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		switch fileType(st.Mode) {
		case unix.S_IFREG:
			if (st.Mode&0o100 != 0) == (w.mode == modeExec) {
				perm = st.Mode & 0o777
			}
		case unix.S_IFLNK:
		default: // a folder, or a pipe, socket or device, which no checkpoint holds
			if err := r.aside(dir, name); err != nil {
				return err
			}
		}
	}
	// Most often there is none; one that cannot go stands in the way below.
	_ = unix.Unlinkat(dir, tmpName, 0)
	defer func() { _ = unix.Unlinkat(dir, tmpName, 0) }()
	if w.mode == modeLink {
		if size > unix.PathMax {
			return errors.New("its link target is too long")
		}
		target := make([]byte, size)
		if _, err := io.ReadFull(in, target); err != nil {
			return err
		}
		if err := unix.Symlinkat(string(target), dir, tmpName); err != nil {
			return err
		}
	} else {
		fd, err := unix.Openat(dir, tmpName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		out := os.NewFile(uintptr(fd), name)
		_, err = io.CopyN(out, in, size)
		if err == nil {
			err = out.Chmod(os.FileMode(perm))
		}
		if e := out.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	if b, err := in.ReadByte(); err != nil || b != '\n' {
		return fmt.Errorf("its content cannot be read from the store: %w", err)
	}
	if err := r.own(dir, tmpName); err != nil {
		return err
	}
	if err := unix.Renameat(dir, tmpName, dir, name); err != nil {
		return err
	}
	now, err := r.c.tree.Lstat(rel)
	if err != nil {
		return err
	}
	delete(r.c.left, rel)
	r.c.x.set(rel, entry{value: w, st: now, racy: true})
	return nil
}
