package cdp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/chromedp/cdproto/cdp/jsonv2"

	"glasshouse/browser"
)

const (
	defaultChars = 8000
	maxItems     = 20_000 // lines taken from one frame
)

// item is one line as the walker gives it.
type item struct {
	K string   `json:"k"`
	D int      `json:"d"`
	R string   `json:"r"`
	N string   `json:"n"`
	S []string `json:"s"`
	V *string  `json:"v"`
	I int      `json:"i"`
	X int      `json:"x"`
}

type walked struct {
	Items  itemList `json:"items"`
	More   int      `json:"more"`
	URL    string   `json:"url"`
	Title  string   `json:"title"`
	Status int      `json:"status"`
}

// itemList stops decoding at maxItems: a few bytes of JSON make a large struct,
// and the JSON is the guest's.
type itemList []item

func (l *itemList) UnmarshalJSONFrom(d *jsonv2.Decoder) error {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return errors.Join(errors.New("no list of lines"), err)
	}
	*l = nil
	for d.PeekKind() != ']' {
		if len(*l) >= maxItems {
			if err := d.SkipValue(); err != nil {
				return err
			}
			continue
		}
		var it item
		if err := jsonv2.UnmarshalDecode(d, &it); err != nil {
			return err
		}
		*l = append(*l, it)
	}
	_, err := d.ReadToken()
	return err
}

type box struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
	W float64 `json:"w"`
	H float64 `json:"h"`
}

// line is one line of a view; it gets a ref when it is shown.
type line struct {
	item
	depth int
	doc   *doc
}

// view is a tab's page as it was at one moment.
type view struct {
	tab   *tab
	page  browser.Page
	doc   *doc // of the main frame
	lines []line
	more  int
}

// ref is what a shown ref stands for.
type ref struct {
	name  string // "e12"
	tab   *tab
	doc   *doc
	num   int // of the element in its document
	role  string
	label string
}

type refKey struct {
	nonce string
	num   int
}

// look walks all frames of a tab. A document that is replaced meanwhile is
// looked at again.
func (b *chrome) look(ctx context.Context, t *tab, all bool) (*view, error) {
	var err error
	for range 5 {
		var v *view
		if v, err = b.lookOnce(ctx, t, all); err == nil {
			return v, nil
		}
		if !errors.Is(err, errDocGone) {
			return nil, err
		}
		b.until(ctx, b.opt.SettleTimeout, func() bool { return t.crashed || !t.loading })
	}
	return nil, fmt.Errorf("the page keeps changing its document: %w", err)
}

func (b *chrome) lookOnce(ctx context.Context, t *tab, all bool) (*view, error) {
	root, _, err := b.frames(ctx, t)
	if err != nil {
		return nil, docErr(err)
	}
	v := &view{tab: t}
	b.mu.Lock()
	v.page = b.pageOf(t)
	b.mu.Unlock()
	w, d, err := b.walk(ctx, v, root, all, nil, 0)
	if err != nil {
		return nil, err
	}
	v.doc = d
	if v.page.Error == "" {
		v.page.URL, v.page.Title, v.page.Status = clean(w.URL, 2000), clean(w.Title, 300), w.Status
	}
	return v, nil
}

func (b *chrome) walk(ctx context.Context, v *view, f *frame, all bool, clip *box, depth int) (walked, *doc, error) {
	d, err := b.enter(ctx, f)
	if err != nil {
		return walked{}, nil, err
	}
	var w walked
	if err := b.run(ctx, d, &w, "walk", all, clip, maxItems); err != nil {
		return w, d, err
	}
	v.more += max(0, w.More)
	var holders map[int]*frame
	for _, it := range w.Items {
		if len(v.lines) >= 2*maxItems {
			v.more++
			continue
		}
		v.lines = append(v.lines, line{item: it, depth: depth + min(max(it.D, 0), 40), doc: d})
		if it.K != "f" || depth > 400 {
			continue
		}
		if holders == nil {
			holders = b.holders(ctx, f, d)
		}
		kid := holders[it.I]
		if kid == nil {
			continue
		}
		v.lines[len(v.lines)-1].V = new(string)
		*v.lines[len(v.lines)-1].V = "f" + strconv.Itoa(kid.ord)
		var inner *box
		if !all {
			inner = new(box)
			if err := b.run(ctx, d, inner, "frameBox", it.I); err != nil {
				continue
			}
		}
		// A frame that goes away or hangs takes nothing else with it.
		kctx, cancel := ctx, context.CancelFunc(func() {})
		if kid.s != f.s {
			kctx, cancel = context.WithTimeout(ctx, b.frameTimeout())
		}
		_, _, err := b.walk(kctx, v, kid, all, inner, depth+min(max(it.D, 0), 40)+1)
		cancel()
		if errors.Is(err, errSilent) && kid.s != f.s && ctx.Err() == nil {
			v.lines[len(v.lines)-1].S = []string{"not-answering"}
		} else if err != nil && !errors.Is(err, errDocGone) {
			return w, d, err
		}
	}
	return w, d, nil
}

// holders maps the numbers of frame elements in d to the frames they hold.
func (b *chrome) holders(ctx context.Context, f *frame, d *doc) map[int]*frame {
	out := map[int]*frame{}
	for _, k := range f.kids {
		el, err := b.owner(ctx, k, d, groupLook)
		if err != nil {
			continue
		}
		var n int
		if b.runOn(ctx, d, el, &n, "number") == nil {
			out[n] = k
		}
	}
	if len(out) > 0 {
		d.s.post("Runtime.releaseObjectGroup", map[string]string{"objectGroup": groupLook})
	}
	return out
}

// Snapshot implements browser.Browser.
func (b *chrome) Snapshot(ctx context.Context, opt browser.SnapshotOptions) (browser.Snapshot, error) {
	var out browser.Snapshot
	err := b.op(ctx, "reading the page", 3*b.opt.CallTimeout, func(ctx context.Context) error {
		t, err := b.tabFor()
		if err != nil {
			return err
		}
		v, err := b.look(ctx, t, opt.WholePage)
		if err != nil {
			return err
		}
		out = b.write(v, opt.MaxChars)
		return nil
	})
	return out, err
}

// write makes the text of a view, at most maxChars long, and gives refs to the
// elements that are in it.
func (b *chrome) write(v *view, maxChars int) browser.Snapshot {
	if maxChars <= 0 {
		maxChars = defaultChars
	}
	budget := maxChars - len("[+1000000 more]\n")
	s := browser.Snapshot{Page: v.page, More: v.more}
	var text strings.Builder
	full := false
	for _, l := range v.lines {
		if full {
			s.More++
			continue
		}
		ref, isNew := b.refFor(v.tab, l)
		row := strings.Repeat("  ", l.depth) + l.row(ref)
		if text.Len()+len(row)+1 > budget {
			full = true
			s.More++
			continue
		}
		if ref != "" {
			if isNew {
				b.remember(ref, v.tab, l)
			} else {
				b.refresh(ref, l)
			}
			s.Refs++
		}
		text.WriteString(row)
		text.WriteByte('\n')
	}
	if s.More > 0 {
		fmt.Fprintf(&text, "[+%d more]\n", s.More)
	}
	s.Text = text.String()
	return s
}

// refFor is the ref a line has, or the next free one.
func (b *chrome) refFor(t *tab, l line) (string, bool) {
	if l.K != "a" || l.I <= 0 {
		return "", false
	}
	if r, ok := b.refKey[refKey{l.doc.nonce, l.I}]; ok {
		return r, false
	}
	name := "e" + strconv.Itoa(b.nextRef+1)
	if l.doc.ord > 0 {
		name = "f" + strconv.Itoa(l.doc.ord) + name
	}
	return name, true
}

// remember binds a new ref. Numbers go up for as long as the browser lives, so
// that no ref ever names two elements.
func (b *chrome) remember(name string, t *tab, l line) {
	b.nextRef++
	b.refs[name] = &ref{name: name, tab: t, doc: l.doc, num: l.I, role: l.R, label: l.N}
	b.refKey[refKey{l.doc.nonce, l.I}] = name
	b.refOrd = append(b.refOrd, name)
	for len(b.refOrd) > maxRefs {
		if old := b.refs[b.refOrd[0]]; old != nil {
			delete(b.refKey, refKey{old.doc.nonce, old.num})
			delete(b.refs, b.refOrd[0])
		}
		b.refOrd = b.refOrd[1:]
	}
}

// refresh takes over what the caller has now been shown of an element.
func (b *chrome) refresh(name string, l line) {
	if r := b.refs[name]; r != nil {
		r.role, r.label = l.R, l.N
	}
}

// row is a line's text without its indent.
func (l line) row(ref string) string {
	var s strings.Builder
	s.WriteString("- ")
	switch l.K {
	case "t":
		s.WriteString("text ")
		s.WriteString(quote(l.N, 1000))
		return s.String()
	case "f":
		s.WriteString("iframe")
	default:
		role := word(l.R)
		if role == "" {
			role = "element"
		}
		s.WriteString(role)
	}
	if l.N != "" {
		s.WriteByte(' ')
		s.WriteString(quote(l.N, 120))
	}
	if ref != "" {
		s.WriteString(" [" + ref + "]")
	}
	for i, st := range l.S {
		if w := word(st); w != "" && i < 12 {
			s.WriteByte(' ')
			s.WriteString(w)
		}
	}
	if l.V != nil {
		if l.K == "f" {
			s.WriteString(" [" + word(*l.V) + "]")
		} else {
			s.WriteString(" value=" + quote(*l.V, 400))
		}
	}
	return s.String()
}
