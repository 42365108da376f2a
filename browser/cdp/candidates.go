package cdp

import (
	"context"
	"sort"
	"strings"
)

// candidates lists the lines of the page as it is now that come nearest to what
// a failed ref stood for, with refs of their own.
func (b *chrome) candidates(ctx context.Context, r *ref) []string {
	t := b.current()
	if r == nil || t == nil || b.m.failed() != nil {
		return nil
	}
	v, err := b.look(ctx, t, true)
	if err != nil {
		return nil
	}
	type scored struct {
		l line
		n int
	}
	var all []scored
	for _, l := range v.lines {
		if l.K != "a" {
			continue
		}
		if n := near(r, l); n >= 3 {
			all = append(all, scored{l, n})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].n > all[j].n })
	var out []string
	for _, s := range all[:min(3, len(all))] {
		name, isNew := b.refFor(t, s.l)
		if isNew {
			b.remember(name, t, s.l)
		} else {
			b.refresh(name, s.l)
		}
		out = append(out, s.l.row(name))
	}
	return out
}

func near(r *ref, l line) int {
	n := 0
	if l.doc.nonce == r.doc.nonce && l.I == r.num {
		n += 5
	}
	if l.R == r.role {
		n += 2
	}
	a, c := strings.ToLower(r.label), strings.ToLower(l.N)
	switch {
	case a == c && a != "":
		n += 4
	case a != "" && c != "" && (strings.Contains(a, c) || strings.Contains(c, a)):
		n += 2
	default:
		shared := 0
		for _, w := range strings.Fields(a) {
			if len(w) > 2 && strings.Contains(c, w) {
				shared++
			}
		}
		n += min(shared, 2)
	}
	return n
}
