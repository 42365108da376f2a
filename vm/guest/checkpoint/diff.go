//go:build linux

package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/checkpoint/objects"
)

// diffTime is how long counting lines and finding renames may take; afterwards
// the plain list of changes is given.
const diffTime = 20 * time.Second

// changes is what differs between the tree from, that of the checkpoint before,
// and the newest checkpoint.
func (c *Checkpoints) changes(ctx context.Context, from objects.ID) ([]guest.FileChange, bool) {
	plain, more := c.plainChanges()
	if more {
		return plain, true
	}
	ctx, cancel := context.WithTimeout(ctx, diffTime)
	defer cancel()
	out, more, err := c.treeDiff(ctx, from, c.head.tree)
	if err != nil && ctx.Err() == nil {
		out, more, err = c.diff(ctx, from.String(), c.head.tree.String())
	}
	if err != nil {
		c.opts.Logf("checkpoints: changes without line counts: %v", err)
		return plain, false
	}
	return out, more
}

// plainChanges lists the touched paths of the index, without renames and lines.
func (c *Checkpoints) plainChanges() ([]guest.FileChange, bool) {
	var out []guest.FileChange
	for _, p := range slices.Sorted(maps.Keys(c.x.before)) {
		was, is := c.x.before[p], c.x.value(p)
		if was == is {
			continue
		}
		if len(out) == maxChanges {
			return out, true
		}
		f := guest.FileChange{Path: p, OldMode: was.mode, NewMode: is.mode}
		switch {
		case was.mode == 0:
			f.Op = "add"
		case is.mode == 0:
			f.Op = "delete"
		default:
			f.Op = modified(was.mode, is.mode, was.id == is.id)
		}
		out = append(out, f)
	}
	return out, false
}

func modified(was, is uint32, equal bool) string {
	switch {
	case fileType(was) != fileType(is):
		return "type"
	case equal:
		return "mode"
	}
	return "modify"
}

// Diff lists what differs between two checkpoints, at most 1,000 files; true
// when there are more (then without line counts).
func (c *Checkpoints) Diff(ctx context.Context, from, to string) ([]guest.FileChange, bool, error) {
	for _, s := range []string{from, to} {
		if _, err := objects.Parse(s); err != nil {
			return nil, false, err
		}
	}
	if err := c.lock(ctx); err != nil {
		return nil, false, err
	}
	defer c.unlock()
	if err := c.open(ctx); err != nil {
		return nil, false, err
	}
	for _, s := range []string{from, to} {
		if id, _ := objects.Parse(s); !c.store.Has(id) {
			return nil, false, fmt.Errorf("checkpoint %s: %w", s, guest.ErrNotFound)
		}
	}
	return c.diff(ctx, from, to)
}

var (
	errEnough = errors.New("enough")
	diffArgs  = []string{"-r", "-z", "-M", "-l500", "--no-ext-diff", "--no-textconv", "--full-index", "--raw", "--numstat"}
)

func (c *Checkpoints) diff(ctx context.Context, from, to string) ([]guest.FileChange, bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c.git(ctx, nil, pw, append(append([]string{"diff-tree"}, diffArgs...), from, to, "--")...)
		pw.CloseWithError(err)
		done <- err
	}()
	out, more, err := parseDiff(bufio.NewReaderSize(pr, 64<<10), "")
	cancel()
	pr.CloseWithError(errEnough)
	if ran := <-done; ran != nil && err == nil && !more {
		err = ran
	}
	return out, more, err
}

// maxDiffField bounds one field of git's output: a path and some room.
const maxDiffField = 16 << 10

// parseDiff reads the raw lines and then the line counts of diff-tree -z, up to
// end or, when that is empty, the end of the stream. No field starts like end.
func parseDiff(r *bufio.Reader, end string) (out []guest.FileChange, more bool, err error) {
	field := func() (string, error) {
		var b []byte
		for {
			c, err := r.ReadByte()
			if err != nil {
				if errors.Is(err, io.EOF) && len(b) > 0 {
					err = io.ErrUnexpectedEOF
				}
				return "", err
			}
			if c == 0 {
				return string(b), nil
			}
			if b = append(b, c); len(b) > maxDiffField {
				return "", errors.New("git's list of changes has an endless field")
			}
		}
	}
	at := map[string]int{}
	for {
		if end != "" {
			if next, err := r.Peek(1); err != nil {
				return out, false, noEOF(err)
			} else if next[0] == end[0] {
				got := make([]byte, len(end))
				if _, err := io.ReadFull(r, got); err != nil || string(got) != end {
					return out, false, fmt.Errorf("git's list of changes ends in %q: %w", got, noEOF(err))
				}
				return out, false, nil
			}
		}
		f, err := field()
		if errors.Is(err, io.EOF) && end == "" {
			return out, false, nil
		}
		if err != nil {
			return out, false, err
		}
		if f == "" {
			continue
		}
		if f[0] == ':' {
			if len(out) == maxChanges {
				return out, true, nil
			}
			c, two, err := rawChange(f)
			if err != nil {
				return out, false, err
			}
			if c.Path, err = field(); err != nil {
				return out, false, err
			}
			if two {
				c.OldPath = c.Path
				if c.Path, err = field(); err != nil {
					return out, false, err
				}
			}
			at[c.Path] = len(out)
			out = append(out, c)
			continue
		}
		add, rest, ok1 := strings.Cut(f, "\t")
		del, p, ok2 := strings.Cut(rest, "\t")
		if !ok1 || !ok2 {
			return out, false, fmt.Errorf("git's list of changes is not understood at %.80q", f)
		}
		if p == "" { // a rename: the old and the new path follow
			if _, err = field(); err == nil {
				p, err = field()
			}
			if err != nil {
				return out, false, err
			}
		}
		if i, ok := at[p]; ok {
			if add == "-" {
				out[i].Binary = true
			} else {
				out[i].Added, _ = strconv.Atoi(add)
				out[i].Deleted, _ = strconv.Atoi(del)
			}
		}
	}
}

// noEOF makes the end of a stream that should go on an error that tells.
func noEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rawChange reads ":100644 100644 <id> <id> M"; two says that two paths follow.
func rawChange(f string) (c guest.FileChange, two bool, err error) {
	w := strings.Fields(f[1:])
	if len(w) != 5 {
		return c, false, fmt.Errorf("git's list of changes is not understood at %.80q", f)
	}
	was, err1 := strconv.ParseUint(w[0], 8, 32)
	is, err2 := strconv.ParseUint(w[1], 8, 32)
	if err1 != nil || err2 != nil {
		return c, false, fmt.Errorf("git's list of changes is not understood at %.80q", f)
	}
	c.OldMode, c.NewMode = uint32(was), uint32(is)
	switch w[4][0] {
	case 'A':
		c.Op = "add"
	case 'D':
		c.Op = "delete"
	case 'R', 'C':
		c.Op, two = "rename", true
	default:
		c.Op = modified(c.OldMode, c.NewMode, w[2] == w[3])
	}
	return c, two, nil
}
