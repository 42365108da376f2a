package review

import (
	"path"
	"sort"
	"strings"
)

// Bounds of the search for renames with edits. Past them a moved file shows as
// deleted and added, which is no less exact, only longer to read.
const (
	renameMaxBytes  = 1 << 20
	renameMaxPairs  = 100_000
	renameMaxTotal  = 64 << 20
	renameThreshold = 50 // percent of the larger file's bytes in common
)

// renames pairs deleted with added files: equal blobs first, then similar ones.
func (b *builder) renames() error {
	usedA, usedD := map[*side]bool{}, map[*side]bool{}
	take := func(d, a *side, similar int) {
		usedD[d], usedA[a] = true, true
		b.out = append(b.out, pair{old: d, new: a, similar: similar})
	}
	// Equal bytes; among several the one with the same name, then the first.
	byID := map[string][]*side{}
	for _, d := range b.dels {
		if regular(d.mode) {
			byID[d.id.String()] = append(byID[d.id.String()], d)
		}
	}
	for _, sameName := range []bool{true, false} {
		for _, a := range b.adds {
			if usedA[a] || !regular(a.mode) {
				continue
			}
			for _, d := range byID[a.id.String()] {
				if usedD[d] || sameName && path.Base(d.path) != path.Base(a.path) {
					continue
				}
				// Empty files are all alike: pairing them would say nothing.
				if _, size, err := b.o.Info(d.id); err != nil {
					return err
				} else if size > 0 {
					take(d, a, 100)
				}
				break
			}
		}
	}
	if err := b.similar(usedA, usedD, take); err != nil {
		return err
	}
	for _, d := range b.dels {
		if !usedD[d] {
			b.out = append(b.out, pair{old: d})
		}
	}
	for _, a := range b.adds {
		if !usedA[a] {
			b.out = append(b.out, pair{new: a})
		}
	}
	b.adds, b.dels = nil, nil
	return nil
}

// bag is a file as a bag of lines with their bytes.
type bag struct {
	lines map[string]int
	size  int
}

func (b *builder) similar(usedA, usedD map[*side]bool, take func(d, a *side, similar int)) error {
	var total int64
	sizes := func(list []*side, used map[*side]bool) (out []*side, size map[*side]int64, err error) {
		size = map[*side]int64{}
		for _, s := range list {
			if used[s] || !regular(s.mode) {
				continue
			}
			_, n, err := b.o.Info(s.id)
			if err != nil {
				return nil, nil, err
			}
			if n > 0 && n <= renameMaxBytes {
				out = append(out, s)
				size[s] = n
				total += n
			}
		}
		return out, size, nil
	}
	dels, dsize, err := sizes(b.dels, usedD)
	if err != nil {
		return err
	}
	adds, asize, err := sizes(b.adds, usedA)
	if err != nil {
		return err
	}
	if len(dels) == 0 || len(adds) == 0 || len(dels)*len(adds) > renameMaxPairs || total > renameMaxTotal {
		return nil
	}
	prints := map[*side]*bag{}
	load := func(s *side) (*bag, error) {
		if p := prints[s]; p != nil {
			return p, nil
		}
		_, data, err := b.o.Read(s.id, renameMaxBytes)
		if err != nil {
			return nil, err
		}
		p := &bag{map[string]int{}, len(data)}
		for l := range strings.SplitAfterSeq(string(data), "\n") {
			p.lines[l]++
		}
		prints[s] = p
		return p, nil
	}
	type match struct {
		d, a    *side
		percent int
	}
	var found []match
	for _, d := range dels {
		for _, a := range adds {
			// Sizes alone can rule a pair out.
			small, large := min(dsize[d], asize[a]), max(dsize[d], asize[a])
			if small*100 < large*renameThreshold {
				continue
			}
			dp, err := load(d)
			if err != nil {
				return err
			}
			ap, err := load(a)
			if err != nil {
				return err
			}
			common := 0
			for l, n := range ap.lines {
				common += len(l) * min(n, dp.lines[l])
			}
			if pc := common * 100 / max(dp.size, ap.size, 1); pc >= renameThreshold {
				found = append(found, match{d, a, min(pc, 99)})
			}
		}
	}
	sort.SliceStable(found, func(i, j int) bool {
		x, y := found[i], found[j]
		if x.percent != y.percent {
			return x.percent > y.percent
		}
		xs, ys := path.Base(x.d.path) == path.Base(x.a.path), path.Base(y.d.path) == path.Base(y.a.path)
		if xs != ys {
			return xs
		}
		if x.d.path != y.d.path {
			return x.d.path < y.d.path
		}
		return x.a.path < y.a.path
	})
	for _, m := range found {
		if !usedD[m.d] && !usedA[m.a] {
			take(m.d, m.a, m.percent)
		}
	}
	return nil
}
