//go:build linux

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest/checkpoint/objects"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch/scan"
)

const (
	// racyWindow is more than the coarsest clock a file system stamps files with.
	racyWindow = 100 * time.Millisecond
	// alwaysStat is up to how many files every Take compares by stat, because
	// writes through a mapping raise no event. Beyond it the watcher's sweep does.
	alwaysStat = 2_000
	// packFrom is from how many new files on a pack is written.
	packFrom = 64
	// maxIgnored is where counting ignored files ends.
	maxIgnored = 1_000_000
)

// job is a file to read.
type job struct {
	path  string
	st    scan.Stat
	force bool // whatever its size
}

// look is one look at the workspace; it brings the index up to date.
type look struct {
	c    *Checkpoints
	x    *index
	tree *scan.Tree
	jobs []job
}

func (l *look) leave(rel, why string) {
	l.c.left[rel] = why
	l.x.remove(rel, nil)
}

// forgetBelow drops what was noted of rel and all below it.
func (l *look) forgetBelow(rel string) {
	if rel == "" {
		clear(l.c.left)
		clear(l.c.ignored)
		return
	}
	delete(l.c.left, rel)
	delete(l.c.ignored, rel)
	for p := range l.c.left {
		if strings.HasPrefix(p, rel+"/") {
			delete(l.c.left, p)
		}
	}
	for p := range l.c.ignored {
		if strings.HasPrefix(p, rel+"/") {
			delete(l.c.ignored, p)
		}
	}
}

// path looks at one path that may have changed.
func (l *look) path(ctx context.Context, rel string) error {
	if top, _, _ := strings.Cut(rel, "/"); scan.Git("", top) {
		return nil
	}
	if strings.HasSuffix("/"+rel, "/.gitignore") {
		// What the file hides or shows is beside and below it.
		rel, _ = scan.Split(rel)
	}
	l.forgetBelow(rel)
	if rel == "" {
		return l.dir(ctx, "")
	}
	if len(rel) > scan.MaxPath || strings.Count(rel, "/") >= scan.MaxDepth {
		return nil // the folder above was left out as a whole
	}
	parent := ""
	for part := range strings.SplitSeq(rel, "/") {
		at := scan.Join(parent, part)
		if scan.Git(parent, part) || part == tmpName {
			return nil // of a nested repository; of a restore that was killed
		}
		if refused(part) {
			if _, err := l.tree.Lstat(at); err == nil {
				l.leave(at, "git refuses the name")
			}
			return nil
		}
		parent = at
	}
	st, err := l.tree.Lstat(rel)
	if err != nil {
		if !scan.Gone(err) {
			l.leave(rel, reason(err))
			return nil
		}
		l.x.remove(rel, nil)
		return nil
	}
	dir, name := scan.Split(rel)
	if rules := l.tree.Rules(dir); rules.Ignored(name, st.Dir()) {
		if rules.AllIgnored() {
			// counted with the folder
		} else if st.Dir() {
			l.c.ignored[rel] = l.tree.Count(ctx, rel, maxIgnored)
		} else {
			l.c.ignored[rel] = 1
		}
		l.x.remove(rel, l.c.tracked)
		return nil
	}
	switch {
	case st.Dir():
		return l.dir(ctx, rel)
	case st.Regular(), st.Link():
		l.file(rel, st, false)
	default:
		l.x.remove(rel, nil)
	}
	return nil
}

// dir looks at a folder and all below it.
func (l *look) dir(ctx context.Context, rel string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(rel) > scan.MaxPath || strings.Count(rel, "/") >= scan.MaxDepth {
		l.leave(rel, "nested too deeply")
		return nil
	}
	entries, err := l.tree.ReadDir(rel)
	if err != nil {
		switch {
		case rel == "":
			return fmt.Errorf("the workspace cannot be read: %w", err)
		case scan.Gone(err):
			l.x.remove(rel, nil)
		default:
			l.leave(rel, reason(err))
		}
		return nil
	}
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		switch {
		case e.Name == tmpName: // see path
		case refused(e.Name):
			l.c.left[e.Path] = "git refuses the name"
		case e.Ignored && e.Stat.Dir():
			l.c.ignored[e.Path] = l.tree.Count(ctx, e.Path, maxIgnored)
		case e.Ignored:
			if e.Stat.Regular() || e.Stat.Link() {
				l.c.ignored[e.Path] = 1
			}
		case e.Stat.Dir():
			seen[e.Name] = true
			if err := l.dir(ctx, e.Path); err != nil {
				return err
			}
			if f := l.x.folder(rel); f != nil && f.files[e.Name] != nil {
				l.x.removeFile(e.Path)
			}
		case e.Stat.Regular(), e.Stat.Link():
			seen[e.Name] = true
			l.file(e.Path, e.Stat, false)
		}
	}
	f := l.x.folder(rel)
	if f == nil {
		return nil
	}
	var gone []string
	for name := range f.files {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	for name := range f.dirs {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		l.x.remove(scan.Join(rel, name), l.c.tracked)
	}
	return nil
}

// file notes a file for reading unless its stat says that it is the recorded one.
func (l *look) file(rel string, st scan.Stat, force bool) {
	if old := l.x.get(rel); old != nil && old.st == st && !old.racy {
		return
	}
	if st.Size > l.c.opts.MaxFile && st.Regular() && !force {
		l.leave(rel, "too large")
		return
	}
	l.jobs = append(l.jobs, job{rel, st, force})
}

// forced looks at a path that the ignore rules have no say about.
func (l *look) forced(rel string, force bool) error {
	if top, _, _ := strings.Cut(rel, "/"); scan.Git("", top) {
		return nil
	}
	for part := range strings.SplitSeq(rel, "/") {
		if refused(part) || part == tmpName {
			return nil
		}
	}
	st, err := l.tree.Lstat(rel)
	switch {
	case err != nil && !scan.Gone(err) && force:
		return unkept(rel, reason(err), true)
	case err != nil && !scan.Gone(err):
		l.leave(rel, reason(err))
	case err == nil && st.Dir():
		// Of what is below it the rules have a say: it is recorded already.
		l.x.removeFile(rel)
	case err != nil, !st.Regular() && !st.Link():
		l.x.remove(rel, nil)
	default:
		delete(l.c.ignored, rel)
		delete(l.c.left, rel)
		l.file(rel, st, force)
	}
	return nil
}

// statAll compares every recorded file by stat.
func (l *look) statAll(ctx context.Context) error {
	var differ []string
	var walk func(rel string, f *folder)
	walk = func(rel string, f *folder) {
		l.tree.StatIn(rel, f.sorted(), func(name string, st scan.Stat, err error) {
			if e := f.files[name]; e != nil && (err != nil || e.st != st || e.racy) {
				differ = append(differ, scan.Join(rel, name))
			}
		})
		for name, sub := range f.dirs {
			walk(scan.Join(rel, name), sub)
		}
	}
	walk("", l.x.top)
	sort.Strings(differ)
	for _, rel := range differ {
		if l.c.tracked[rel] {
			continue
		}
		if err := l.path(ctx, rel); err != nil {
			return err
		}
	}
	return nil
}

func reason(err error) string {
	var no unix.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return err.Error()
}

// unkept says that what a restore would replace cannot be read, and what to do about it;
// above: it is a folder over it that does not let in.
func unkept(rel, why string, above bool) error {
	up, _ := scan.Split(rel)
	todo := "take it out of the way in the machine, and restore again"
	switch {
	case why == unix.EACCES.Error() && above && up != "":
		todo = fmt.Sprintf("make its folder readable in the machine, e.g. chmod -R u+rwX %s, and restore again", quoted(up))
	case why == unix.EACCES.Error() && !above:
		todo = fmt.Sprintf("make it readable in the machine, e.g. chmod u+r %s, and restore again", quoted(rel))
	}
	return fmt.Errorf("%q cannot be read (%s), so it cannot be kept; %s", rel, why, todo)
}

// quoted is a path as a shell takes it for one word, and no option.
func quoted(rel string) string {
	plain := !strings.HasPrefix(rel, "-") && strings.Trim(rel, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+,@%-") == ""
	if plain {
		return rel
	}
	return "'./" + strings.ReplaceAll(rel, "'", `'\''`) + "'"
}

// result of a job.
type result struct {
	entry
	gone bool
	left string // why it was not captured
	err  error
}

// read runs the jobs on a few workers and records what they found. It returns
// the paths that are still being written to.
func (l *look) read(ctx context.Context, b *objects.Batch) (busy []string, err error) {
	results := make([]result, len(l.jobs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(4, runtime.GOMAXPROCS(0), len(l.jobs)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				results[i] = l.readOne(b, l.jobs[i])
			}
		}()
	}
feed:
	for i := range l.jobs {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, r := range results {
		p := l.jobs[i].path
		switch {
		case r.err != nil:
			return nil, r.err
		case r.left != "" && l.jobs[i].force:
			return nil, unkept(p, r.left, false)
		case r.left != "":
			l.leave(p, r.left)
		case r.gone:
			l.x.remove(p, nil)
		default:
			l.x.set(p, r.entry)
			if r.racy {
				busy = append(busy, p)
			}
		}
	}
	return busy, nil
}

// readOne records one file as it is at some moment during the call.
func (l *look) readOne(b *objects.Batch, j job) result {
	for try := 0; ; try++ {
		r := l.readOnce(b, j, try)
		if r.err == nil || try >= 5 || !errors.Is(r.err, objects.ErrShort) {
			if errors.Is(r.err, objects.ErrShort) {
				return result{left: "it kept shrinking while it was read"}
			}
			return r
		}
	}
}

func (l *look) readOnce(b *objects.Batch, j job, try int) result {
	// Taken before anything is read: what is written while a slow reading goes on may be of
	// the same tick as what was there before it.
	began := time.Now()
	st, err := l.tree.Lstat(j.path)
	if err != nil {
		if scan.Gone(err) {
			return result{gone: true}
		}
		return result{left: reason(err)}
	}
	var r result
	switch {
	case st.Link():
		target, err := l.tree.Readlink(j.path)
		if err != nil {
			return result{gone: true}
		}
		if r.id, err = b.Put("blob", []byte(target)); err != nil {
			return result{err: err}
		}
	case st.Regular():
		f, opened, err := l.tree.OpenFile(j.path)
		if err != nil {
			if scan.Gone(err) || errors.Is(err, scan.ErrNotFile) {
				return result{gone: true}
			}
			return result{left: reason(err)}
		}
		defer f.Close()
		st = opened
		if st.Size > l.c.opts.MaxFile && !j.force {
			return result{left: "too large"}
		}
		in := &reader{f: f}
		if r.id, err = b.Blob(in, st.Size); err != nil {
			if in.err != nil {
				return result{left: reason(in.err)}
			}
			return result{err: err}
		}
		var after unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &after); err == nil {
			if after.Size != st.Size || after.Mtim.Nano() != st.Mtime || after.Ctim.Nano() != st.Ctime {
				r.racy = true
			}
		}
	default:
		return result{gone: true}
	}
	r.st, r.mode = st, gitMode(st)
	if age := began.Sub(time.Unix(0, st.Ctime)); age < racyWindow {
		r.racy = true
	}
	return r
}

// reader tells errors of the file apart from those of the store.
type reader struct {
	f   *os.File
	err error
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// readTracked finds the files that the user's repository tracks although its
// rules ignore them: they are captured like others. False = it is to be asked again.
func (l *look) readTracked(ctx context.Context) bool {
	prev := l.c.tracked
	paths, ok := l.c.inGit(ctx)
	if !ok {
		return false // what was known counts on
	}
	l.c.tracked = map[string]bool{}
	for _, p := range paths {
		if p == "" || p[0] == '/' || len(p) > scan.MaxPath {
			continue
		}
		if l.x.get(p) != nil && !prev[p] {
			continue // captured, so it is not ignored
		}
		if l.tree.Ignored(p, false) {
			l.c.tracked[p] = true
		}
	}
	return true
}

// inGit are the files that the user's repository tracks, at least those that its rules
// ignore; none where there is no index or it is none for git either. It is not ok when
// git had no time to answer or did not come to it.
func (c *Checkpoints) inGit(ctx context.Context) (paths []string, ok bool) {
	f, _, err := c.tree.OpenFile(".git/index")
	if err != nil {
		return nil, true
	}
	data, err := io.ReadAll(io.LimitReader(f, 512<<20))
	f.Close()
	if err != nil {
		return nil, true
	}
	if paths, err = indexPaths(data); err == nil {
		return paths, true
	}
	// Only git can read it. It runs as the agent user: the repository's
	// settings are the agent's.
	var out strings.Builder
	env := append(gitEnv(), "GIT_OPTIONAL_LOCKS=0", "GIT_CEILING_DIRECTORIES="+parentOf(c.opts.Root))
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = c.opts.RunAgent(ctx, []string{"git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false",
		"ls-files", "-z", "-c", "-i", "--exclude-per-directory=.gitignore"}, env, c.opts.Root, nil, &out, io.Discard)
	if err != nil {
		return nil, runas.Code(err) > 0
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\x00"), "\x00"), true
}

func gitEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
	}
}
