package cdp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"glasshouse/browser"
)

const (
	maxDiff      = 2000 // characters
	maxDiffLines = 150  // of a frame, each way
)

// marks are the documents that remember their lines: by nonce, and by frame.
type marks struct {
	docs   map[string]bool
	frames map[string]bool
}

// changed is what a page's lines did since markLines.
type changed struct {
	page  browser.Page
	text  string
	other bool // another document is shown now
}

// markLines has every document of a tab remember its lines. They stay in the
// page: only what changes comes over the pipe.
func (b *chrome) markLines(ctx context.Context, t *tab) (marks, error) {
	m := marks{docs: map[string]bool{}, frames: map[string]bool{}}
	root, all, err := b.frames(ctx, t)
	if err != nil {
		return m, err
	}
	for _, f := range all {
		m.frames[f.id] = true
		err := b.inFrame(ctx, f, root, func(ctx context.Context, d *doc) error {
			m.docs[d.nonce] = true
			return b.run(ctx, d, nil, "mark", maxItems)
		})
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// inFrame runs f in a frame's document. What goes wrong in a frame that is not
// the main one is that frame's own matter.
func (b *chrome) inFrame(ctx context.Context, fr, root *frame, f func(ctx context.Context, d *doc) error) error {
	fctx, cancel := ctx, context.CancelFunc(func() {})
	if fr.s != root.s {
		fctx, cancel = context.WithTimeout(ctx, b.frameTimeout())
	}
	defer cancel()
	d, err := b.enter(fctx, fr)
	if err == nil {
		err = f(fctx, d)
	}
	if fr != root && err != nil && ctx.Err() == nil && b.m.failed() == nil && (fr.s != root.s || errors.Is(err, errDocGone)) {
		return nil
	}
	return err
}

type delta struct {
	Came   itemList `json:"came"`
	Went   itemList `json:"went"`
	More   int      `json:"more"`
	URL    string   `json:"url"`
	Title  string   `json:"title"`
	Status int      `json:"status"`
}

// changes tells what came (+) and went (-) since markLines, frame by frame.
func (b *chrome) changes(ctx context.Context, t *tab, m marks) (changed, error) {
	c := changed{}
	b.mu.Lock()
	c.page = b.pageOf(t)
	b.mu.Unlock()
	root, _, err := b.frames(ctx, t)
	if err != nil {
		return c, err
	}
	w := diffText{b: b, t: t}
	var each func(f *frame) error
	each = func(f *frame) error {
		err := b.inFrame(ctx, f, root, func(ctx context.Context, d *doc) error {
			if f == root && !m.docs[d.nonce] {
				c.other = true
				return nil
			}
			if !m.docs[d.nonce] && m.frames[f.id] {
				w.row("+ iframe [f" + fmt.Sprint(f.ord) + "] shows another document")
				return nil
			}
			var x delta
			if err := b.run(ctx, d, &x, "delta", maxItems, maxDiffLines); err != nil {
				return err
			}
			if f == root {
				c.page.URL, c.page.Title, c.page.Status = clean(x.URL, 2000), clean(x.Title, 300), x.Status
			}
			w.left += max(0, x.More)
			for _, it := range x.Went {
				w.went(line{item: it, doc: d})
			}
			for _, it := range x.Came {
				w.came(line{item: it, doc: d})
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, k := range f.kids {
			if err := each(k); err != nil {
				return err
			}
		}
		return nil
	}
	err = each(root)
	if errors.Is(err, errDocGone) { // it left just now
		c.other = true
		c.page = b.page(ctx, t)
		return c, nil
	}
	c.text = w.String()
	return c, err
}

// diffText writes a diff, at most maxDiff characters.
type diffText struct {
	b    *chrome
	t    *tab
	out  strings.Builder
	left int
}

func (w *diffText) row(s string) bool {
	if w.out.Len()+len(s)+1 > maxDiff {
		w.left++
		return false
	}
	w.out.WriteString(s + "\n")
	return true
}

func (w *diffText) went(l line) {
	name := ""
	if l.K == "a" {
		name = w.b.refKey[refKey{l.doc.nonce, l.I}]
	}
	w.row("-" + l.row(name)[1:])
}

func (w *diffText) came(l line) {
	ref, isNew := w.b.refFor(w.t, l)
	if !w.row("+"+l.row(ref)[1:]) || ref == "" {
		return
	}
	if isNew {
		w.b.remember(ref, w.t, l)
	} else {
		w.b.refresh(ref, l)
	}
}

func (w *diffText) String() string {
	if w.left > 0 {
		return w.out.String() + fmt.Sprintf("[+%d more lines changed]\n", w.left)
	}
	return w.out.String()
}
