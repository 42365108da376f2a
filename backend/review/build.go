package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"glasshouse/backend/git"
	"glasshouse/backend/git/odb"
)

// Limits of what is shown line by line. Past them a file is decided whole.
const (
	MaxFiles     = 50_000
	MaxTextBytes = 4 << 20   // of one side of a file
	MaxLines     = 200_000   // of one side of a file
	maxReadBytes = 512 << 20 // of all files of a review
	maxHunkLines = 1_000_000 // shown in all files of a review
	maxTrees     = 400_000
	contextLines = 3
)

// Build compares two commits of a mirror. base may be empty: then all is new.
func Build(ctx context.Context, o *git.Objects, base, candidate string) (*Review, error) {
	r := &Review{Base: base, Candidate: candidate, byID: map[string]int{}}
	cid, err := git.ParseID(candidate)
	if err != nil {
		return nil, err
	}
	c, err := o.Commit(cid)
	if err != nil {
		return nil, fmt.Errorf("the candidate: %w", err)
	}
	var from git.ID
	if base != "" {
		bid, err := git.ParseID(base)
		if err != nil {
			return nil, err
		}
		b, err := o.Commit(bid)
		if err != nil {
			return nil, fmt.Errorf("the base: %w", err)
		}
		from = b.Tree
		r.BaseTree = from.String()
	}
	r.CandidateTree = c.Tree.String()
	b := &builder{ctx: ctx, o: o}
	if err := b.trees(from, c.Tree, "", 0); err != nil {
		return nil, err
	}
	if err := b.renames(); err != nil {
		return nil, err
	}
	sort.Slice(b.out, func(i, j int) bool { return b.out[i].key() < b.out[j].key() })
	for _, p := range b.out {
		f, err := b.file(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Display(p.key()), err)
		}
		r.byID[f.ID] = len(r.Files)
		r.Added += f.Added
		r.Deleted += f.Deleted
		r.Units += len(f.Units)
		r.Files = append(r.Files, f)
	}
	flagTwins(r)
	return r, nil
}

// side is one end of a change.
type side struct {
	path string
	mode uint32
	id   git.ID
}

// pair is a change: a nil side does not exist.
type pair struct {
	old, new *side
	similar  int
}

func (p pair) key() string {
	if p.new != nil {
		return p.new.path
	}
	return p.old.path
}

type builder struct {
	ctx   context.Context
	o     *git.Objects
	out   []pair
	adds  []*side
	dels  []*side
	seen  int
	read  int64
	shown int
}

func (b *builder) entries(id git.ID) ([]odb.Entry, error) {
	if id.IsZero() {
		return nil, nil
	}
	if b.seen++; b.seen > maxTrees {
		return nil, fmt.Errorf("%w: more than %d folders differ", ErrTooLarge, maxTrees)
	}
	return b.o.Tree(id)
}

// trees walks two trees side by side; equal folders are not opened.
func (b *builder) trees(old, new git.ID, prefix string, depth int) error {
	if old == new {
		return nil
	}
	if depth > odb.MaxDepth {
		return fmt.Errorf("%w: folders nest deeper than %d", ErrTooLarge, odb.MaxDepth)
	}
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	oe, err := b.entries(old)
	if err != nil {
		return err
	}
	ne, err := b.entries(new)
	if err != nil {
		return err
	}
	was := make(map[string]odb.Entry, len(oe))
	for _, e := range oe {
		was[e.Name] = e
	}
	for _, n := range ne {
		e, had := was[n.Name]
		delete(was, n.Name)
		if err := b.entry(prefix+n.Name, e, had, n, true, depth); err != nil {
			return err
		}
	}
	for _, e := range oe {
		if _, left := was[e.Name]; left {
			if err := b.entry(prefix+e.Name, e, true, odb.Entry{}, false, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) entry(path string, o odb.Entry, had bool, n odb.Entry, has bool, depth int) error {
	om, _ := odb.CanonicalMode(o.Mode)
	nm, _ := odb.CanonicalMode(n.Mode)
	var od, nd git.ID
	if had && om == odb.ModeDir {
		od, had = o.ID, false
	}
	if has && nm == odb.ModeDir {
		nd, has = n.ID, false
	}
	if !od.IsZero() || !nd.IsZero() {
		if err := b.trees(od, nd, path+"/", depth+1); err != nil {
			return err
		}
	}
	if len(b.out)+len(b.adds)+len(b.dels) >= MaxFiles && (had || has) {
		return fmt.Errorf("%w: more than %d files differ", ErrTooLarge, MaxFiles)
	}
	switch {
	case had && has:
		if o.ID != n.ID || om != nm {
			b.out = append(b.out, pair{old: &side{path, om, o.ID}, new: &side{path, nm, n.ID}})
		}
	case had:
		b.dels = append(b.dels, &side{path, om, o.ID})
	case has:
		b.adds = append(b.adds, &side{path, nm, n.ID})
	}
	return nil
}

func regular(mode uint32) bool { return mode == odb.ModeFile || mode == odb.ModeExec }

// text reads one side; ok is false when it is not to be shown by lines, with why.
func (b *builder) text(s *side) (text string, size int64, why string, binary bool, err error) {
	if s == nil {
		return "", 0, "", false, nil
	}
	if s.mode == odb.ModeGitlink {
		return "", 0, "a submodule", false, nil
	}
	_, size, err = b.o.Info(s.id)
	if err != nil {
		return "", 0, "", false, err
	}
	if size > MaxTextBytes {
		// Its kind is told from what a larger read would cost too much for.
		return "", size, fmt.Sprintf("larger than %d MiB", MaxTextBytes>>20), false, nil
	}
	if b.read += size; b.read > maxReadBytes {
		return "", size, "the review as a whole is too large", false, nil
	}
	_, data, err := b.o.Read(s.id, MaxTextBytes)
	if err != nil {
		return "", size, "", false, err
	}
	text = string(data)
	if strings.IndexByte(text, 0) >= 0 {
		return "", size, "binary", true, nil
	}
	if !utf8.ValidString(text) {
		return "", size, "not UTF-8", true, nil
	}
	return text, size, "", false, nil
}

func (b *builder) file(p pair) (File, error) {
	f := File{Path: p.key(), Similar: p.similar}
	if b.ctx.Err() != nil {
		return f, context.Cause(b.ctx)
	}
	if p.old != nil {
		f.OldMode, f.OldOID = p.old.mode, p.old.id.String()
	}
	if p.new != nil {
		f.NewMode, f.NewOID = p.new.mode, p.new.id.String()
	}
	if p.old != nil && p.new != nil && p.old.path != p.new.path {
		f.OldPath = p.old.path
	}
	f.Display = Display(f.Path)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %o %o %s %s", f.OldPath, f.Path, f.OldMode, f.NewMode, f.OldOID, f.NewOID))
	f.ID = hex.EncodeToString(sum[:10])
	ot, osize, owhy, obin, err := b.text(p.old)
	if err != nil {
		return f, err
	}
	nt, nsize, nwhy, nbin, err := b.text(p.new)
	if err != nil {
		return f, err
	}
	f.OldSize, f.NewSize, f.Binary = osize, nsize, obin || nbin
	f.Whole = owhy
	if nwhy != "" {
		f.Whole = nwhy
	}
	single := true
	switch {
	case p.old == nil:
		f.Op = OpAdd
	case p.new == nil:
		f.Op = OpDelete
	case p.old.mode != p.new.mode && !(regular(p.old.mode) && regular(p.new.mode)):
		f.Op = OpType
	case p.new.mode == odb.ModeGitlink:
		f.Op = OpModify
	default:
		single = false
		f.Op = OpModify
		if p.old.id == p.new.id {
			f.Op = OpMode
		}
		if f.OldPath != "" {
			f.Op = OpRename
		}
	}
	if f.Whole == "" && p.old != nil && p.new != nil && f.Op == OpType {
		f.Whole = "it became another kind of file"
	}
	if f.Whole == "" && (p.old == nil || p.new == nil || p.old.id != p.new.id) {
		b.hunks(&f, ot, nt)
	}
	switch {
	case single:
		f.Units = []string{UnitFile}
		if f.Whole == "" {
			f.Whole = "it is decided as one"
		}
	default:
		if f.OldPath != "" {
			f.Units = append(f.Units, UnitRename)
		}
		if f.OldMode != f.NewMode {
			f.Units = append(f.Units, UnitMode)
		}
		if f.OldOID != f.NewOID {
			if f.Whole != "" {
				f.Units = append(f.Units, UnitContent)
			}
			for _, h := range f.Hunks {
				if f.Whole == "" {
					f.Units = append(f.Units, h.ID)
				}
			}
		} else {
			f.Whole = ""
		}
	}
	b.flag(&f, ot, nt)
	return f, nil
}

// hunks fills in the line diff of two texts, or says why there is none.
func (b *builder) hunks(f *File, ot, nt string) {
	if strings.Count(ot, "\n") > MaxLines || strings.Count(nt, "\n") > MaxLines {
		f.Whole = fmt.Sprintf("more than %d lines", MaxLines)
		return
	}
	old, new := splitLines(ot), splitLines(nt)
	edits, exact := diffLines(old, new, diffBudget)
	for _, e := range edits {
		f.Deleted += e.a1 - e.a0
		f.Added += e.b1 - e.b0
	}
	if b.shown += f.Deleted + f.Added; b.shown > maxHunkLines {
		f.Whole = "the review as a whole is too large"
		return
	}
	f.Coarse, f.edits = !exact, edits
	for i := 0; i < len(edits); {
		j := i + 1
		for j < len(edits) && edits[j].a0-edits[j-1].a1 <= 2*contextLines {
			j++
		}
		f.Hunks = append(f.Hunks, makeHunk(f, old, new, edits, i, j))
		i = j
	}
}

func makeHunk(f *File, old, new []string, edits []edit, first, last int) Hunk {
	h := Hunk{first: first, last: last}
	a := max(0, edits[first].a0-contextLines)
	// The number of unchanged lines before a change is the same on both sides.
	n := edits[first].b0 - (edits[first].a0 - a)
	end := min(len(old), edits[last-1].a1+contextLines)
	h.OldStart, h.NewStart = a+1, n+1
	h.Section = section(old, edits[first].a0)
	sum := sha256.New()
	add := func(op string, s string, o, nw int) {
		text, eol := strings.CutSuffix(s, "\n")
		h.Lines = append(h.Lines, Line{Op: op, Text: text, Old: o, New: nw, NoEOL: !eol})
		sum.Write([]byte(op + s + "\x00"))
	}
	same := func(to int) {
		for ; a < to; a, n = a+1, n+1 {
			add(" ", old[a], a+1, n+1)
		}
	}
	for _, e := range edits[first:last] {
		same(e.a0)
		for ; a < e.a1; a++ {
			add("-", old[a], a+1, 0)
		}
		for ; n < e.b1; n++ {
			add("+", new[n], 0, n+1)
		}
	}
	same(end)
	h.OldLines, h.NewLines = a-h.OldStart+1, n-h.NewStart+1
	if h.OldLines == 0 {
		h.OldStart--
	}
	if h.NewLines == 0 {
		h.NewStart--
	}
	fmt.Fprintf(sum, "%q %d %d", f.Path, h.OldStart, h.NewStart)
	h.ID = hex.EncodeToString(sum.Sum(nil)[:10])
	return h
}

// maxSection bounds how far above, and how much of it is shown.
const maxSection, sectionBytes = 4000, 120

// section is the nearest line above that begins, without a space, with a letter: in
// most languages it names the function or type that the lines below belong to.
func section(lines []string, at int) string {
	for i := at - 1; i >= 0 && i > at-maxSection; i-- {
		l := lines[i]
		if l[0] == '_' || l[0] == '$' || l[0] >= 'a' && l[0] <= 'z' || l[0] >= 'A' && l[0] <= 'Z' {
			return strings.TrimSpace(strings.ToValidUTF8(clip(strings.TrimSuffix(l, "\n"), sectionBytes), ""))
		}
	}
	return ""
}
