//go:build linux

package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
	"glasshouse/vm/guest/watch/scan"
)

const (
	maxChanges     = 1_000
	maxNotCaptured = 100
	saveEvery      = 20 // checkpoints between two saves of the state
)

// Take records the workspace and returns once that survives a power loss. The
// first checkpoint has no parent and so no changes.
func (c *Checkpoints) Take(ctx context.Context, req guest.CheckpointRequest) (guest.Checkpoint, error) {
	if err := c.lock(ctx); err != nil {
		return guest.Checkpoint{}, err
	}
	defer c.unlock()
	return c.take(ctx, req, nil)
}

// take is Take; also names paths to capture even if they are ignored or large,
// because they are about to be overwritten. The turn is held.
func (c *Checkpoints) take(ctx context.Context, req guest.CheckpointRequest, also []string) (out guest.Checkpoint, err error) {
	if err := c.open(ctx); err != nil {
		return out, err
	}
	full := req.Full || c.stale || c.opts.Watcher == nil
	if c.opts.Watcher != nil {
		d, err := c.opts.Watcher.Barrier(ctx)
		if err != nil {
			return out, err
		}
		full = full || d.All
		for _, p := range d.Paths {
			c.pending[p] = true
		}
	}
	defer func() {
		if err != nil {
			// The index may name blobs that were never finished.
			c.x, c.stale = nil, true
		}
	}()

	busy, err := c.look(ctx, full, also)
	if err != nil {
		return out, err
	}
	b := busy.batch
	defer b.Abort()
	root, err := c.x.top.write(b)
	if err != nil {
		return out, fmt.Errorf("the checkpoint cannot be written: %w", err)
	}
	same := c.head.ok && root == c.head.tree
	from := c.head.tree
	if !same {
		if err := c.record(ctx, req, root, b); err != nil {
			return out, fmt.Errorf("the checkpoint cannot be written: %w", err)
		}
	} else if err := objects.SyncFS(c.opts.Root); err != nil {
		return out, err
	}
	out = guest.Checkpoint{Commit: c.head.commit.String(), Tree: c.head.tree.String(), Same: same}
	if !c.head.parent.Zero() {
		out.Parent = c.head.parent.String()
	}
	if c.head.sum == "" {
		c.head.sum = c.x.sum()
	}
	out.Sum = c.head.sum
	for _, n := range c.ignored {
		out.Ignored += n
	}
	out.NotCaptured = slices.Sorted(maps.Keys(c.left))
	if len(out.NotCaptured) > maxNotCaptured {
		out.NotCaptured = out.NotCaptured[:maxNotCaptured]
	}
	if !same && out.Parent != "" {
		out.Changes, out.More = c.changes(ctx, from)
	}
	c.x.before = map[string]value{}
	c.stale = false
	c.pending = map[string]bool{}
	for _, p := range busy.paths {
		c.pending[p] = true
	}
	if c.saved++; full || c.saved >= saveEvery {
		if err := saveState(c.opts.Shadow, c.x); err != nil {
			c.opts.Logf("checkpoints: the state cannot be saved, so the next start reads everything: %v", err)
		}
		c.saved = 0
	}
	return out, nil
}

// looked is what a look leaves behind.
type looked struct {
	batch *objects.Batch
	paths []string // racily clean or still being written: to be read again
}

// look brings the index up to date with the workspace and writes new blobs.
func (c *Checkpoints) look(ctx context.Context, full bool, also []string) (out looked, err error) {
	// Rules are read again each time: a folder that came or went has others.
	c.tree.Forget()
	l := &look{c: c, x: c.x, tree: c.tree}
	if full {
		l.forgetBelow("")
		if err := l.dir(ctx, ""); err != nil {
			return out, err
		}
	} else {
		paths := slices.Sorted(maps.Keys(c.pending))
		for i, p := range paths {
			if i > 0 && under(p, paths[:i]) {
				continue
			}
			if err := l.path(ctx, p); err != nil {
				return out, err
			}
		}
		if c.x.count <= alwaysStat {
			if err := l.statAll(ctx); err != nil {
				return out, err
			}
		}
	}
	st, _ := c.tree.Lstat(".git/index")
	if full || st != c.gitIdx {
		prev := c.tracked
		if c.gitIdx = st; !l.readTracked(ctx) {
			c.gitIdx = scan.Stat{}
		}
		for p := range prev {
			if !c.tracked[p] {
				if err := l.path(ctx, p); err != nil {
					return out, err
				}
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.tracked)) {
		if err := l.forced(p, false); err != nil {
			return out, err
		}
	}
	for _, p := range also {
		if c.x.get(p) == nil {
			if err := l.forced(p, true); err != nil {
				return out, err
			}
		}
	}
	l.once()
	for i, j := range l.jobs {
		// One that is recorded and has changed must be kept, too, or it is lost.
		if _, ok := slices.BinarySearch(also, j.path); ok {
			l.jobs[i].force = true
		}
	}
	pack := len(l.jobs) > packFrom
	if out.batch, err = c.store.Begin(pack); err != nil {
		return out, fmt.Errorf("the checkpoint cannot be written: %w", err)
	}
	if out.paths, err = l.read(ctx, out.batch); err != nil {
		out.batch.Abort()
		return out, err
	}
	return out, nil
}

// once drops all but the last job of each path.
func (l *look) once() {
	last := make(map[string]int, len(l.jobs))
	for i, j := range l.jobs {
		if old, ok := last[j.path]; ok {
			l.jobs[i].force = j.force || l.jobs[old].force
		}
		last[j.path] = i
	}
	if len(last) == len(l.jobs) {
		return
	}
	kept := l.jobs[:0]
	for i, j := range l.jobs {
		if last[j.path] == i {
			kept = append(kept, j)
		}
	}
	l.jobs = kept
}

// under says whether a folder above p is in the sorted paths, so that looking at
// it covers p.
func under(p string, sorted []string) bool {
	for up, _ := scan.Split(p); up != ""; up, _ = scan.Split(up) {
		if i := sort.SearchStrings(sorted, up); i < len(sorted) && sorted[i] == up {
			return true
		}
	}
	return false
}

// record makes root the newest checkpoint: objects, sync, ref, in this order.
func (c *Checkpoints) record(ctx context.Context, req guest.CheckpointRequest, root objects.ID, b *objects.Batch) error {
	var text strings.Builder
	fmt.Fprintf(&text, "tree %s\n", root)
	if c.head.ok {
		fmt.Fprintf(&text, "parent %s\n", c.head.commit)
	}
	who := fmt.Sprintf("Glasshouse <checkpoint@glasshouse.invalid> %d +0000", max(0, c.opts.Now().Unix()))
	fmt.Fprintf(&text, "author %s\ncommitter %s\n\nCheckpoint\n\nSession: %s\nStep: %s\n",
		who, who, oneLine(req.Session), oneLine(req.Step))
	id, err := b.Put("commit", []byte(text.String()))
	if err != nil {
		return err
	}
	if err := b.Finish(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := objects.SyncFS(c.opts.Root); err != nil {
		return err
	}
	if !objects.SameFS(c.opts.Root, c.opts.Shadow) {
		if err := c.store.Sync(); err != nil {
			return err
		}
	}
	if err := c.store.SetHead(id); err != nil {
		return err
	}
	next := head{ok: true, commit: id, tree: root}
	if c.head.ok {
		next.parent = c.head.commit
	}
	c.head = next
	return nil
}

func oneLine(s string) string {
	if len(s) > 200 {
		s = s[:200]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}, s)
}
