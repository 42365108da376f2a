package review

import "strings"

// edit replaces base lines [a0,a1) by candidate lines [b0,b1). A list of edits is
// in order and its members do not touch.
type edit struct{ a0, a1, b0, b1 int }

// splitLines cuts a text into lines that keep their line breaks; the last one may
// have none. An empty text has no lines.
func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// diffBudget bounds the steps of one line diff. It is counted, not timed, so
// that the same two texts give the same hunks on every machine and after every
// restart: decisions name hunks.
const diffBudget = 40_000_000

// diffLines compares two texts line by line. The result always turns a into b;
// when the budget runs out parts of it are replaced whole, and exact is false.
func diffLines(a, b []string, budget int) (edits []edit, exact bool) {
	ids := make(map[string]int32, len(a))
	intern := func(lines []string) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = int32(len(ids))
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	x, y := intern(a), intern(b)
	pre := 0
	for pre < len(x) && pre < len(y) && x[pre] == y[pre] {
		pre++
	}
	suf := 0
	for suf < len(x)-pre && suf < len(y)-pre && x[len(x)-1-suf] == y[len(y)-1-suf] {
		suf++
	}
	d := differ{chA: make([]bool, len(x)), chB: make([]bool, len(y)), budget: budget}
	// Lines that occur on one side only are changes whatever the alignment of the
	// rest; without them the problem is small for most real edits.
	inA, inB := make([]bool, len(ids)), make([]bool, len(ids))
	for _, v := range x[pre : len(x)-suf] {
		inA[v] = true
	}
	for _, v := range y[pre : len(y)-suf] {
		inB[v] = true
	}
	keep := func(v []int32, lo, hi int, other, changed []bool) (vals []int32, at []int) {
		for i := lo; i < hi; i++ {
			if other[v[i]] {
				vals, at = append(vals, v[i]), append(at, i)
			} else {
				changed[i] = true
			}
		}
		return vals, at
	}
	d.a, d.atA = keep(x, pre, len(x)-suf, inB, d.chA)
	d.b, d.atB = keep(y, pre, len(y)-suf, inA, d.chB)
	n := len(d.a) + len(d.b) + 3
	d.fw, d.bw, d.mid = make([]int, n), make([]int, n), len(d.b)+1
	d.compare(0, len(d.a), 0, len(d.b))
	return slide(collect(d.chA, d.chB), x, y), d.budget >= 0
}

// differ finds a shortest edit script in linear space (Myers 1986): paths from
// both ends until they meet, then each half by itself.
type differ struct {
	a, b     []int32
	atA, atB []int // where the kept lines stand in the whole texts
	chA, chB []bool
	fw, bw   []int // furthest points by diagonal
	mid      int
	budget   int
}

func (d *differ) markA(lo, hi int) {
	for ; lo < hi; lo++ {
		d.chA[d.atA[lo]] = true
	}
}

func (d *differ) markB(lo, hi int) {
	for ; lo < hi; lo++ {
		d.chB[d.atB[lo]] = true
	}
}

func (d *differ) compare(aLo, aHi, bLo, bHi int) {
	for aLo < aHi && bLo < bHi && d.a[aLo] == d.b[bLo] {
		aLo++
		bLo++
	}
	for aLo < aHi && bLo < bHi && d.a[aHi-1] == d.b[bHi-1] {
		aHi--
		bHi--
	}
	switch {
	case aLo == aHi:
		d.markB(bLo, bHi)
	case bLo == bHi:
		d.markA(aLo, aHi)
	default:
		x, y, ok := d.meet(aLo, aHi, bLo, bHi)
		if !ok {
			d.markA(aLo, aHi)
			d.markB(bLo, bHi)
			return
		}
		d.compare(aLo, x, bLo, y)
		d.compare(x, aHi, y, bHi)
	}
}

// meet returns a point on a shortest path through the box.
func (d *differ) meet(aLo, aHi, bLo, bHi int) (int, int, bool) {
	const far = int(^uint(0) >> 1)
	lowest, highest := aLo-bHi, aHi-bLo
	f0, b0 := aLo-bLo, aHi-bHi
	odd := (f0-b0)&1 != 0
	fMin, fMax, bMin, bMax := f0, f0, b0, b0
	fw := func(k int) *int { return &d.fw[k+d.mid] }
	bw := func(k int) *int { return &d.bw[k+d.mid] }
	*fw(f0), *bw(b0) = aLo, aHi
	for {
		if fMin > lowest {
			fMin--
			*fw(fMin - 1) = -1
		} else {
			fMin++
		}
		if fMax < highest {
			fMax++
			*fw(fMax + 1) = -1
		} else {
			fMax--
		}
		for k := fMax; k >= fMin; k -= 2 {
			x := *fw(k + 1)
			if v := *fw(k - 1); v >= x {
				x = v + 1
			}
			y := x - k
			for x < aHi && y < bHi && d.a[x] == d.b[y] {
				x++
				y++
				d.budget--
			}
			*fw(k) = x
			if odd && bMin <= k && k <= bMax && *bw(k) <= x && x <= aHi && y <= bHi {
				return x, y, true
			}
		}
		if bMin > lowest {
			bMin--
			*bw(bMin - 1) = far
		} else {
			bMin++
		}
		if bMax < highest {
			bMax++
			*bw(bMax + 1) = far
		} else {
			bMax--
		}
		for k := bMax; k >= bMin; k -= 2 {
			x := *bw(k - 1)
			if v := *bw(k + 1); v != far && v-1 < x {
				x = v - 1
			}
			y := x - k
			for x > aLo && y > bLo && d.a[x-1] == d.b[y-1] {
				x--
				y--
				d.budget--
			}
			*bw(k) = x
			if !odd && fMin <= k && k <= fMax && x <= *fw(k) && x >= aLo && y >= bLo {
				return x, y, true
			}
		}
		if d.budget -= fMax - fMin + bMax - bMin + 2; d.budget < 0 {
			return 0, 0, false
		}
	}
}

// collect turns marked lines into edits.
func collect(chA, chB []bool) []edit {
	var out []edit
	i, j := 0, 0
	for i < len(chA) || j < len(chB) {
		if i < len(chA) && j < len(chB) && !chA[i] && !chB[j] {
			i++
			j++
			continue
		}
		e := edit{a0: i, b0: j}
		for i < len(chA) && chA[i] {
			i++
		}
		for j < len(chB) && chB[j] {
			j++
		}
		e.a1, e.b1 = i, j
		out = append(out, e)
	}
	return out
}

// slide moves pure insertions and deletions down as far as equal lines allow,
// which is where people expect them (the closing brace of what was added, not of
// what stood there), and joins edits that then touch.
func slide(edits []edit, x, y []int32) []edit {
	for i := len(edits) - 1; i >= 0; i-- {
		e := &edits[i]
		limA, limB := len(x), len(y)
		if i+1 < len(edits) {
			limA, limB = edits[i+1].a0, edits[i+1].b0
		}
		for e.a0 == e.a1 && e.b1 < limB && e.a1 < limA && y[e.b0] == y[e.b1] {
			e.a0++
			e.a1++
			e.b0++
			e.b1++
		}
		for e.b0 == e.b1 && e.a1 < limA && e.b1 < limB && x[e.a0] == x[e.a1] {
			e.a0++
			e.a1++
			e.b0++
			e.b1++
		}
	}
	out := edits[:0]
	for _, e := range edits {
		if n := len(out); n > 0 && out[n-1].a1 == e.a0 && out[n-1].b1 == e.b0 {
			out[n-1].a1, out[n-1].b1 = e.a1, e.b1
			continue
		}
		out = append(out, e)
	}
	return out
}
