//go:build linux

package watch

// maxDirty is how many paths a set holds before it says "anything".
const maxDirty = 200_000

// dirtySet collects marks for one taker.
type dirtySet struct {
	all   bool
	paths map[string]struct{}
	gone  map[string]struct{} // folders that went; all below them is dirty
}

func (d *dirtySet) add(rel string) {
	if d.all {
		return
	}
	if d.paths == nil {
		d.paths = map[string]struct{}{}
	}
	d.paths[rel] = struct{}{}
	d.check()
}

func (d *dirtySet) addGone(rel string) {
	if d.all {
		return
	}
	if d.gone == nil {
		d.gone = map[string]struct{}{}
	}
	d.gone[rel] = struct{}{}
	d.check()
}

func (d *dirtySet) check() {
	if len(d.paths)+len(d.gone) > maxDirty {
		d.everything()
	}
}

func (d *dirtySet) everything() { *d = dirtySet{all: true} }

func (d *dirtySet) empty() bool { return !d.all && len(d.paths) == 0 && len(d.gone) == 0 }

// take empties the set and returns what it held.
func (d *dirtySet) take() dirtySet {
	out := *d
	*d = dirtySet{}
	return out
}

// list is all paths, gone folders included.
func (d *dirtySet) list() []string {
	out := make([]string, 0, len(d.paths)+len(d.gone))
	for p := range d.paths {
		out = append(out, p)
	}
	for p := range d.gone {
		if _, twice := d.paths[p]; !twice {
			out = append(out, p)
		}
	}
	return out
}
