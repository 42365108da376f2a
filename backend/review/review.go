// Package review compares two trees of objects on the host, lets a person decide
// about every change in it, and is the gate a push goes through.
//
// A review is bound to two commits, base and candidate. What it shows is computed
// from their objects in the mirror, never from text a guest sent, and the same two
// commits always give the same files, hunks and ids. Decisions are made on units:
//
//   - added, deleted and type-changed files, and submodules, are one unit, "file";
//   - a file that stays has a unit per hunk; or one unit "content" when its bytes
//     are binary, not UTF-8, or too large to show;
//   - a renamed file has a unit "rename", a changed exec bit a unit "mode".
//
// The units of a file do not depend on each other: content, name and mode are
// decided apart. A renamed and edited file whose rename is rejected keeps its old
// name and takes the accepted hunks; one whose hunks are all rejected moves with
// its old bytes. The only decisions that cannot stand together are those that
// would make one path a file and a folder at once (a file kept while another moves
// below its name); the accepted tree then reports a conflict and nothing is built.
//
// The accepted tree is computed on the base's line arrays; no patch text is parsed
// anywhere.
package review

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"glasshouse/backend/git"
)

// Review is all changes between two commits.
type Review struct {
	Base          string `json:"base"` // commit; empty: everything is new
	Candidate     string `json:"candidate"`
	BaseTree      string `json:"base_tree"`
	CandidateTree string `json:"candidate_tree"`
	Files         []File `json:"files"`
	Added         int    `json:"added"`   // lines
	Deleted       int    `json:"deleted"` // lines
	Units         int    `json:"units"`   // decisions to make

	byID map[string]int
}

// Op says what happened to a file.
type Op string

const (
	OpAdd    Op = "add"
	OpModify Op = "modify" // content, perhaps the mode as well
	OpDelete Op = "delete"
	OpRename Op = "rename" // perhaps with edits and another mode
	OpMode   Op = "mode"   // the mode alone
	OpType   Op = "type"   // file, link and submodule changed into each other
)

// Unit ids of a file beside its hunks.
const (
	UnitFile    = "file"
	UnitContent = "content"
	UnitRename  = "rename"
	UnitMode    = "mode"
)

// File is one changed path. ID names the path, modes and blobs of both sides, so
// marks a person made stay valid as long as the file's change stays the same.
type File struct {
	ID      string   `json:"id"`
	Path    string   `json:"path"` // raw bytes; of a deletion the old path
	OldPath string   `json:"old_path,omitempty"`
	Display string   `json:"display"` // Path with every odd character spelt out
	Op      Op       `json:"op"`
	OldMode uint32   `json:"old_mode,omitempty"`
	NewMode uint32   `json:"new_mode,omitempty"`
	OldOID  string   `json:"old_oid,omitempty"`
	NewOID  string   `json:"new_oid,omitempty"`
	OldSize int64    `json:"old_size"`
	NewSize int64    `json:"new_size"`
	Similar int      `json:"similar,omitempty"` // percent, of a rename
	Binary  bool     `json:"binary,omitempty"`
	Whole   string   `json:"whole,omitempty"` // why the content is one decision
	Added   int      `json:"added"`
	Deleted int      `json:"deleted"`
	Coarse  bool     `json:"coarse,omitempty"` // the diff ran out of steps: right, but not minimal
	Flags   []Flag   `json:"flags,omitempty"`
	Units   []string `json:"units"`
	Hunks   []Hunk   `json:"hunks,omitempty"`

	edits []edit // of all hunks
}

// Hunk is a group of changed lines with three lines around it. Line numbers count from 1.
type Hunk struct {
	ID       string `json:"id"`
	OldStart int    `json:"old_start"`
	OldLines int    `json:"old_lines"`
	NewStart int    `json:"new_start"`
	NewLines int    `json:"new_lines"`
	Section  string `json:"section,omitempty"` // the line above that names what this is in, such as a function
	Lines    []Line `json:"lines"`

	first, last int // its edits
}

// Line of a hunk. Text has no line break.
type Line struct {
	Op    string `json:"op"` // " ", "-", "+"
	Text  string `json:"text"`
	Old   int    `json:"old,omitempty"` // line number in the base
	New   int    `json:"new,omitempty"`
	NoEOL bool   `json:"no_eol,omitempty"` // no line break at the end of the file
}

// Flag is something a person should look at twice.
type Flag struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// File returns a file by id.
func (r *Review) File(id string) (*File, bool) {
	i, ok := r.byID[id]
	if !ok {
		return nil, false
	}
	return &r.Files[i], true
}

// Has reports whether a unit belongs to the file.
func (f *File) Has(unit string) bool {
	for _, u := range f.Units {
		if u == unit {
			return true
		}
	}
	return false
}

// Hunk returns a hunk by id.
func (f *File) Hunk(id string) (*Hunk, bool) {
	for i := range f.Hunks {
		if f.Hunks[i].ID == id {
			return &f.Hunks[i], true
		}
	}
	return nil, false
}

// Decision about a unit.
type Decision string

const (
	Undecided Decision = "undecided"
	Accept    Decision = "accept"
	Reject    Decision = "reject"
)

// Decisions by file and unit; what is missing is undecided.
type Decisions map[string]map[string]Decision

// Of returns the decision about a unit.
func (d Decisions) Of(file, unit string) Decision {
	if v, ok := d[file][unit]; ok {
		return v
	}
	return Undecided
}

var (
	// ErrUnknown: the review has no such file or unit. It may be of another candidate.
	ErrUnknown = errors.New("the review has no such change")
	// ErrUndecided: a change waits for a decision; nothing is pushed before.
	ErrUndecided = errors.New("changes are not decided yet")
	// ErrConflict: accepted and rejected changes cannot stand together.
	ErrConflict = errors.New("these decisions cannot stand together")
	// ErrTooLarge: the change is past a limit of what can be reviewed.
	ErrTooLarge = git.ErrTooLarge
)

// Set records a decision about one unit, or about all of a file's when unit is empty.
func (d Decisions) Set(r *Review, file, unit string, v Decision) error {
	f, ok := r.File(file)
	if !ok {
		return fmt.Errorf("%w: file %q", ErrUnknown, clip(file, 80))
	}
	switch v {
	case Accept, Reject, Undecided:
	default:
		return fmt.Errorf("%q is no decision; use accept, reject or undecided", clip(string(v), 40))
	}
	if unit != "" && !f.Has(unit) {
		return fmt.Errorf("%w: %q in %s", ErrUnknown, clip(unit, 80), f.Display)
	}
	if d[file] == nil {
		d[file] = map[string]Decision{}
	}
	for _, u := range f.Units {
		if unit == "" || u == unit {
			d[file][u] = v
		}
	}
	return nil
}

// SetAll records one decision about everything.
func (d Decisions) SetAll(r *Review, v Decision) error {
	for i := range r.Files {
		if err := d.Set(r, r.Files[i].ID, "", v); err != nil {
			return err
		}
	}
	return nil
}

// Count adds up the decisions of a review.
func (d Decisions) Count(r *Review) (accepted, rejected, undecided int) {
	for i := range r.Files {
		f := &r.Files[i]
		for _, u := range f.Units {
			switch d.Of(f.ID, u) {
			case Accept:
				accepted++
			case Reject:
				rejected++
			default:
				undecided++
			}
		}
	}
	return accepted, rejected, undecided
}

// Clone copies decisions.
func (d Decisions) Clone() Decisions {
	out := make(Decisions, len(d))
	for f, m := range d {
		c := make(map[string]Decision, len(m))
		for u, v := range m {
			c[u] = v
		}
		out[f] = c
	}
	return out
}

// Display spells out everything in a name that could hide, reorder or break what
// is shown: control and format characters, unassigned ones, bytes that are no UTF-8.
func Display(s string) string {
	odd := false
	for _, r := range s {
		if r == utf8.RuneError || hidden(r) || r == '\\' {
			odd = true
			break
		}
	}
	if !odd {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
			n = 1
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case hidden(r):
			fmt.Fprintf(&b, `\u{%04x}`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// hidden reports characters that are not what they seem when shown.
func hidden(r rune) bool {
	switch {
	case r < ' ' || r == 0x7f:
		return true
	case r < 0x7f:
		return false
	case r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0 || r == 0x034f || r == 0x2800:
		return true // blank letters
	case r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef:
		return true // variation selectors
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || !unicode.IsGraphic(r)
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
