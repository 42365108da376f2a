package packcheck

import (
	"fmt"
	"sort"

	"glasshouse/backend/git/odb"
)

// named records an object under its id and looks into it (data nil: a blob).
func (c *checker) named(e *entry, k int32, t odb.Type, id odb.ID, data []byte) error {
	if _, dup := c.index[id]; dup {
		return corrupt("object %s is in the pack twice", id)
	}
	e.kind, e.id = t, id
	c.index[id] = k
	switch t {
	case odb.Tree:
		return c.tree(id, data)
	case odb.Commit:
		return c.commit(id, data)
	case odb.Tag:
		target, tt, err := odb.ParseTag(data)
		if err != nil {
			return fmt.Errorf("tag %s: %w", id, err)
		}
		return c.need(target, tt)
	}
	return nil
}

// resolve applies the deltas, depth first from each whole object, holding at
// most a bounded number of bytes of the chain it is in.
func (c *checker) resolve() error {
	type pair struct{ base, child int32 }
	var ofs []pair
	refs := map[odb.ID][]int32{}
	deltas := 0
	for i := range c.entries {
		e := &c.entries[i]
		switch e.typ {
		case odb.OfsDelta:
			ofs = append(ofs, pair{e.base, int32(i)})
			deltas++
		case odb.RefDelta:
			refs[e.id] = append(refs[e.id], int32(i))
			deltas++
		}
	}
	if deltas == 0 {
		return nil
	}
	sort.Slice(ofs, func(i, j int) bool {
		return ofs[i].base < ofs[j].base || ofs[i].base == ofs[j].base && ofs[i].child < ofs[j].child
	})
	children := func(k int32) []int32 {
		var out []int32
		lo := sort.Search(len(ofs), func(i int) bool { return ofs[i].base >= k })
		for ; lo < len(ofs) && ofs[lo].base == k; lo++ {
			out = append(out, ofs[lo].child)
		}
		return append(out, refs[c.entries[k].id]...)
	}
	d := &descent{c: c, budget: max(4*c.lim.DeltaBytes, 64<<20)}
	if d.budget > c.lim.MemoryBytes/4 {
		d.budget = c.lim.MemoryBytes / 4
	}
	done := 0
	for i := range c.entries {
		if c.entries[i].typ == odb.OfsDelta || c.entries[i].typ == odb.RefDelta {
			continue
		}
		kids := children(int32(i))
		if len(kids) == 0 {
			continue
		}
		d.stack = append(d.stack[:0], frame{k: int32(i), kids: kids})
		for len(d.stack) > 0 {
			top := &d.stack[len(d.stack)-1]
			if len(top.kids) == 0 {
				d.drop(len(d.stack) - 1)
				d.stack = d.stack[:len(d.stack)-1]
				continue
			}
			k := top.kids[0]
			top.kids = top.kids[1:]
			data, err := d.child(k)
			if err != nil {
				return fmt.Errorf("object at offset %d: %w", c.entries[k].off, err)
			}
			done++
			if kids := children(k); len(kids) > 0 {
				d.stack = append(d.stack, frame{k: k, kids: kids, data: data})
				d.held += int64(len(data))
				d.trim()
			}
		}
	}
	if done != deltas {
		return corrupt("%d deltas have a base that is not in the pack", deltas-done)
	}
	return c.checkRatio()
}

type frame struct {
	k    int32
	kids []int32
	data []byte // nil: read again when needed
}

type descent struct {
	c      *checker
	stack  []frame
	held   int64
	budget int64
}

func (d *descent) drop(i int) {
	d.held -= int64(len(d.stack[i].data))
	d.stack[i].data = nil
}

// trim forgets contents from the bottom of the chain while too much is held.
func (d *descent) trim() {
	for i := 0; i < len(d.stack)-1 && d.held > d.budget; i++ {
		d.drop(i)
	}
}

// content returns what the frame at depth i holds, reading it again if it was forgotten.
func (d *descent) content(i int) ([]byte, error) {
	j := i
	for j > 0 && d.stack[j].data == nil {
		j--
	}
	if d.stack[j].data == nil {
		e := &d.c.entries[d.stack[j].k]
		if e.size > d.c.lim.DeltaBytes {
			return nil, tooLarge("a delta's base of %d bytes, at most %d are taken", e.size, d.c.lim.DeltaBytes)
		}
		_, data, err := odb.ReadEntry(d.c.f, e.off, d.c.end, d.c.lim.DeltaBytes)
		if err != nil {
			return nil, err
		}
		if len(data) == 0 {
			data = []byte{}
		}
		d.stack[j].data = data
		d.held += int64(len(data))
	}
	data := d.stack[j].data
	for j++; j <= i; j++ {
		out, err := d.apply(d.stack[j].k, data)
		if err != nil {
			return nil, err
		}
		// Only the top is kept: what lies between is needed again only after it.
		data = out
	}
	if d.stack[i].data == nil {
		d.stack[i].data = data
		d.held += int64(len(data))
		d.trim()
	}
	return data, nil
}

func (d *descent) apply(k int32, base []byte) ([]byte, error) {
	e := &d.c.entries[k]
	_, delta, err := odb.ReadEntry(d.c.f, e.off, d.c.end, d.c.lim.DeltaBytes)
	if err != nil {
		return nil, err
	}
	return odb.Delta(base, delta, min(d.c.lim.DeltaBytes, d.c.lim.BlobBytes))
}

// child resolves entry k, a delta upon the top of the stack.
func (d *descent) child(k int32) ([]byte, error) {
	i := len(d.stack) - 1
	if len(d.stack) > d.c.lim.Depth {
		return nil, tooLarge("a chain of more than %d deltas", d.c.lim.Depth)
	}
	base, err := d.content(i)
	if err != nil {
		return nil, err
	}
	data, err := d.apply(k, base)
	if err != nil {
		return nil, err
	}
	if data == nil {
		data = []byte{}
	}
	if err := d.c.grow(int64(len(data))); err != nil {
		return nil, err
	}
	if err := d.c.checkRatio(); err != nil {
		return nil, err
	}
	t := d.c.entries[d.stack[i].k].kind
	if t != odb.Blob && int64(len(data)) > odb.MaxMeta {
		return nil, tooLarge("a %s of %d bytes", t, len(data))
	}
	return data, d.c.named(&d.c.entries[k], k, t, odb.Hash(t, data), data)
}
