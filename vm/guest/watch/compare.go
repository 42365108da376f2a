//go:build linux

package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/watch/scan"
)

// begin makes the watches anew, compares the whole folder with what is known and
// reports the difference. It returns how long the walk took.
func (w *Watcher) begin(ctx context.Context, first bool, readers *sync.WaitGroup) (time.Duration, error) {
	tree := w.tree
	if tree == nil || !tree.Current() {
		var err error
		if tree, err = scan.Open(w.opts.Root); err != nil {
			return 0, err
		}
	}
	tree.Forget()
	in, err := openInotify()

	w.mu.Lock()
	if w.tree != tree {
		if w.tree != nil {
			w.tree.Close()
		}
		w.tree = tree
	}
	w.retire()
	missed := w.missed
	w.restart, w.missed, w.live = false, false, false
	w.ui = dirtySet{}
	if err != nil {
		w.degrade()
	} else {
		w.in = in
		readers.Add(1)
		go func() {
			defer readers.Done()
			w.read(in)
		}()
	}
	w.mu.Unlock()

	start := time.Now()
	enter := func(rel string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.in == nil || w.in != in {
			return
		}
		if err := w.add(in, rel); err != nil {
			if errors.Is(err, errFull) {
				w.degrade()
			} else {
				w.lose(true, err.Error())
			}
		}
	}
	now, err := w.walk(ctx, tree, enter, nil)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	changes := w.replace(now, first)
	w.mu.Lock()
	if w.in != nil {
		w.degraded = false
		w.live = !w.restart
	}
	if missed {
		w.epoch++
	}
	w.mu.Unlock()
	w.emit(changes, missed)
	return took, nil
}

// walk stats the whole folder and the parts of .git that are watched.
func (w *Watcher) walk(ctx context.Context, tree *scan.Tree, enter func(string), failed func(string, error)) (map[string]scan.Stat, error) {
	now := make(map[string]scan.Stat, len(w.known))
	visit := func(e scan.Entry) bool {
		if !e.Ignored && (e.Stat.Regular() || e.Stat.Link()) {
			now[e.Path] = e.Stat
		}
		return true
	}
	if err := tree.Walk(ctx, "", enter, visit, failed); err != nil {
		return nil, err
	}
	if st, err := tree.Lstat(".git"); err != nil || !st.Dir() {
		return now, nil //nolint:nilerr // what cannot be looked at is no repository to watch
	}
	if enter != nil {
		enter(".git")
		if st, err := tree.Lstat(".git/info"); err == nil && st.Dir() {
			enter(".git/info")
		}
	}
	for _, rel := range []string{".git/HEAD", ".git/index", ".git/packed-refs"} {
		if st, err := tree.Lstat(rel); err == nil && st.Regular() {
			now[rel] = st
		}
	}
	var refs func(rel string, depth int) error
	refs = func(rel string, depth int) error {
		if depth > scan.MaxDepth {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if enter != nil {
			enter(rel)
		}
		entries, err := tree.ReadDir(rel)
		if err != nil {
			if failed != nil {
				failed(rel, err)
			}
			return nil
		}
		for _, e := range entries {
			st, err := tree.Lstat(e.Path)
			if err != nil {
				continue
			}
			if st.Dir() {
				if err := refs(e.Path, depth+1); err != nil {
					return err
				}
			} else if kind, _ := gitPart(e.Path); kind == gitRefs {
				now[e.Path] = st
			}
		}
		return nil
	}
	if st, err := tree.Lstat(".git/refs"); err == nil && st.Dir() {
		if err := refs(".git/refs", 0); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// replace makes now the truth and returns how it differs; the first truth is no change.
func (w *Watcher) replace(now map[string]scan.Stat, first bool) []guest.PathChange {
	old := w.known
	w.known = now
	if first {
		return nil
	}
	var out []guest.PathChange
	for p, st := range now {
		before, was := old[p]
		if c, ok := change(p, before, was, st, true); ok {
			out = append(out, c)
		}
	}
	for p, before := range old {
		if _, is := now[p]; !is {
			c, _ := change(p, before, true, scan.Stat{}, false)
			out = append(out, c)
		}
	}
	return out
}

func change(p string, before scan.Stat, was bool, st scan.Stat, is bool) (guest.PathChange, bool) {
	c := guest.PathChange{Path: p, Size: st.Size, Mode: st.Mode}
	switch {
	case was && is:
		c.Op = "modify"
		return c, before != st
	case is:
		c.Op = "add"
	case was:
		c.Op = "delete"
	default:
		return c, false
	}
	return c, true
}

// flush looks at what was marked and reports what really differs.
func (w *Watcher) flush(ctx context.Context) {
	w.mu.Lock()
	d := w.ui.take()
	tree := w.tree
	w.mu.Unlock()
	if d.empty() || tree == nil {
		return
	}
	if d.all { // more marks than the set holds
		now, err := w.walk(ctx, tree, nil, nil)
		if err == nil {
			w.emit(w.replace(now, false), false)
		}
		return
	}
	if len(d.gone) > 0 {
		for p := range w.known {
			for up, _ := scan.Split(p); up != ""; up, _ = scan.Split(up) {
				if _, ok := d.gone[up]; ok {
					if d.paths == nil {
						d.paths = map[string]struct{}{}
					}
					d.paths[p] = struct{}{}
					break
				}
			}
		}
	}
	var out []guest.PathChange
	for p := range d.paths {
		st, err := tree.Lstat(p)
		is := err == nil && (st.Regular() || st.Link())
		if is {
			kind, git := gitPart(p)
			if git {
				is = kind == gitFile || kind == gitRefs
			} else {
				is = !tree.Ignored(p, false)
			}
		}
		before, was := w.known[p]
		if c, ok := change(p, before, was, st, is); ok {
			out = append(out, c)
		}
		if is {
			w.known[p] = st
		} else {
			delete(w.known, p)
		}
	}
	w.emit(out, false)
}

// sweep compares the whole folder by stat: some writes raise no event (a shared
// mapping, a hard link elsewhere). What differs is marked as if there had been one.
func (w *Watcher) sweep(ctx context.Context) {
	unreadable := map[string]bool{}
	var dirs []string
	now, err := w.walk(ctx, w.tree,
		func(rel string) { dirs = append(dirs, rel) },
		func(rel string, err error) { unreadable[rel] = true })
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.live {
		return
	}
	w.drain(w.in, w.in.queued())
	found := 0
	note := func(p string) {
		if _, marked := w.ui.paths[p]; !marked && !w.ui.all {
			if len(w.ui.gone) == 0 { // else a moved folder's, perhaps
				found++
			}
			w.mark(p)
		}
	}
	for p, st := range now {
		if before, was := w.known[p]; !was || before != st {
			note(p)
		}
	}
	for p := range w.known {
		if _, is := now[p]; !is {
			note(p)
		}
	}
	if found > 0 {
		w.opts.Logf("watcher: the sweep found %d paths that no event had named", found)
	}
	if !w.live {
		return
	}
	for _, rel := range dirs {
		if n := w.in.find(rel); (n == nil || n.wd == 0) && !unreadable[rel] {
			if st, err := w.tree.Lstat(rel); err == nil && st.Dir() && st.Mode&unix.S_IRUSR != 0 {
				w.lose(true, "a folder had no watch")
				return
			}
		}
	}
}

// poll is the sweep of a watcher without watches.
func (w *Watcher) poll(ctx context.Context) {
	if !w.tree.Current() {
		w.mu.Lock()
		w.lose(true, "the watched folder itself was moved or removed")
		w.mu.Unlock()
		return
	}
	w.tree.Forget()
	now, err := w.walk(ctx, w.tree, nil, nil)
	if err != nil {
		return
	}
	w.emit(w.replace(now, false), false)
}

func (w *Watcher) emit(changes []guest.PathChange, resync bool) {
	w.bursting = len(changes) > burst
	w.mu.Lock()
	defer w.mu.Unlock()
	opening := !w.opened
	w.opened = true
	for s := range w.streams {
		s.push(changes, w.epoch, resync, w.degraded)
		if opening {
			s.open()
		}
	}
}
