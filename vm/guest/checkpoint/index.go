//go:build linux

package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest/checkpoint/objects"
	"glasshouse/vm/guest/watch/scan"
)

// Modes of git's trees.
const (
	modeFile = 0o100644
	modeExec = 0o100755
	modeLink = 0o120000
)

// value is what a checkpoint records of a path; the zero value is "nothing".
type value struct {
	mode uint32
	id   objects.ID
}

// entry is a recorded file and what stat said when it was read.
type entry struct {
	value
	st scan.Stat
	// racy: the file was written so shortly before it was read that a later
	// write may leave no trace in its stat.
	racy bool
}

func gitMode(st scan.Stat) uint32 {
	switch {
	case st.Link():
		return modeLink
	case st.Mode&0o100 != 0:
		return modeExec
	}
	return modeFile
}

type folder struct {
	files map[string]*entry
	dirs  map[string]*folder
	order []string // names in tree order, folders with a slash; nil = not sorted
	id    objects.ID
	valid bool // id is that of the present contents
}

// index is the recorded tree in memory. before keeps what each touched path was
// at the last checkpoint.
type index struct {
	top    *folder
	count  int
	before map[string]value
}

func newIndex() *index { return &index{top: &folder{}, before: map[string]value{}} }

// folder finds a folder, or nil.
func (x *index) folder(rel string) *folder {
	f := x.top
	if rel == "" {
		return f
	}
	for part := range strings.SplitSeq(rel, "/") {
		if f = f.dirs[part]; f == nil {
			return nil
		}
	}
	return f
}

func (x *index) get(rel string) *entry {
	dir, name := scan.Split(rel)
	if f := x.folder(dir); f != nil {
		return f.files[name]
	}
	return nil
}

func (x *index) value(rel string) value {
	if e := x.get(rel); e != nil {
		return e.value
	}
	return value{}
}

func (x *index) touch(rel string, was value) {
	if _, ok := x.before[rel]; !ok {
		x.before[rel] = was
	}
}

// set records rel, in place of whatever was at it or at a path above it.
func (x *index) set(rel string, e entry) {
	f := x.top
	f.valid = false
	name := rel
	for {
		up, more, deeper := strings.Cut(name, "/")
		if !deeper {
			break
		}
		if old := f.files[up]; old != nil {
			x.touch(rel[:len(rel)-len(more)-1], old.value)
			delete(f.files, up)
			f.order = nil
			x.count--
		}
		f = f.sub(up)
		f.valid = false
		name = more
	}
	if d := f.dirs[name]; d != nil {
		x.clear(rel, d, nil)
		delete(f.dirs, name)
		f.order = nil
	}
	old := f.files[name]
	switch {
	case old == nil:
		if f.files == nil {
			f.files = map[string]*entry{}
		}
		f.order = nil
		x.count++
		x.touch(rel, value{})
	case old.value != e.value:
		x.touch(rel, old.value)
	}
	f.files[name] = &e
}

func (f *folder) sub(name string) *folder {
	d := f.dirs[name]
	if d == nil {
		if f.dirs == nil {
			f.dirs = map[string]*folder{}
		}
		d = &folder{}
		f.dirs[name] = d
		f.order = nil
	}
	return d
}

// removeFile forgets a file, and nothing that is below a folder of its name.
func (x *index) removeFile(rel string) {
	dir, name := scan.Split(rel)
	f := x.folder(dir)
	if f == nil || f.files[name] == nil {
		return
	}
	x.touch(rel, f.files[name].value)
	delete(f.files, name)
	x.count--
	x.prune(rel)
}

// remove drops rel and all below it, but for the paths in keep. Folders that
// become empty go too, as git has none.
func (x *index) remove(rel string, keep map[string]bool) {
	dir, name := scan.Split(rel)
	f := x.folder(dir)
	if f == nil {
		return
	}
	changed := false
	if e := f.files[name]; e != nil && !keep[rel] {
		x.touch(rel, e.value)
		delete(f.files, name)
		x.count--
		changed = true
	}
	if d := f.dirs[name]; d != nil {
		changed = x.clear(rel, d, keep) || changed
	}
	if changed {
		x.prune(rel)
	}
}

// clear empties the folder d at rel.
func (x *index) clear(rel string, d *folder, keep map[string]bool) (changed bool) {
	for name, e := range d.files {
		if p := scan.Join(rel, name); !keep[p] {
			x.touch(p, e.value)
			delete(d.files, name)
			x.count--
			changed = true
		}
	}
	for name, sub := range d.dirs {
		changed = x.clear(scan.Join(rel, name), sub, keep) || changed
		if len(sub.files)+len(sub.dirs) == 0 {
			delete(d.dirs, name)
			changed = true
		}
	}
	if changed {
		d.valid, d.order = false, nil
	}
	return changed
}

// prune marks the folders above rel as changed and drops the empty ones.
func (x *index) prune(rel string) {
	var chain []*folder
	var names []string
	f := x.top
	chain = append(chain, f)
	for part := range strings.SplitSeq(rel, "/") {
		names = append(names, part)
		if f = f.dirs[part]; f == nil {
			break
		}
		chain = append(chain, f)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		chain[i].valid, chain[i].order = false, nil
		if i > 0 && len(chain[i].files)+len(chain[i].dirs) == 0 {
			delete(chain[i-1].dirs, names[i-1])
		}
	}
}

// sorted is the names of a folder in the order of git's trees, in which a folder
// counts as if its name ended in a slash.
func (f *folder) sorted() []string {
	if f.order == nil {
		f.order = make([]string, 0, len(f.files)+len(f.dirs))
		for name := range f.files {
			f.order = append(f.order, name)
		}
		for name := range f.dirs {
			f.order = append(f.order, name+"/")
		}
		sort.Strings(f.order)
	}
	return f.order
}

// each visits all files in tree order, which is the order of their paths' bytes.
func (x *index) each(visit func(rel string, e *entry)) { x.top.each("", visit) }

func (f *folder) each(rel string, visit func(string, *entry)) {
	for _, name := range f.sorted() {
		if sub, ok := strings.CutSuffix(name, "/"); ok {
			f.dirs[sub].each(scan.Join(rel, sub), visit)
		} else {
			visit(scan.Join(rel, name), f.files[name])
		}
	}
}

// write adds the trees that changed to the batch and returns the id of f's.
func (f *folder) write(b *objects.Batch) (objects.ID, error) {
	if f.valid {
		return f.id, nil
	}
	var tree []byte
	for _, name := range f.sorted() {
		if sub, ok := strings.CutSuffix(name, "/"); ok {
			id, err := f.dirs[sub].write(b)
			if err != nil {
				return id, err
			}
			tree = append(append(tree, "40000 "+sub+"\x00"...), id[:]...)
			continue
		}
		e := f.files[name]
		tree = append(fmt.Appendf(tree, "%o %s\x00", e.mode, name), e.id[:]...)
	}
	id, err := b.Put("tree", tree)
	if err != nil {
		return id, err
	}
	f.id, f.valid = id, true
	return id, nil
}

// sum is sha256 over what `git ls-tree -r -z` prints of the tree.
func (x *index) sum() string {
	h := sha256.New()
	var buf []byte
	x.each(func(rel string, e *entry) {
		buf = strconv.AppendUint(buf[:0], uint64(e.mode), 8) // six digits, always
		buf = hex.AppendEncode(append(buf, " blob "...), e.id[:])
		buf = append(append(append(buf, '\t'), rel...), 0)
		h.Write(buf)
	})
	return hex.EncodeToString(h.Sum(nil))
}

// refused says that git takes no tree with an entry of that name: .git in any
// spelling some file system folds to it. Such files are not captured.
func refused(name string) bool {
	if name == "." || name == ".." || name == "" {
		return true
	}
	folded := strings.ToLower(strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name))
	if folded == ".git" {
		return true
	}
	for part := range strings.SplitSeq(strings.ToLower(name), `\`) {
		rest, ok := strings.CutPrefix(part, ".git")
		if !ok {
			rest, ok = strings.CutPrefix(part, "git~1")
		}
		if !ok {
			continue
		}
		rest, _, _ = strings.Cut(rest, ":")
		if strings.Trim(rest, ". ") == "" {
			return true
		}
	}
	return false
}

// fileType is the type bits of a mode.
func fileType(mode uint32) uint32 { return mode & unix.S_IFMT }
