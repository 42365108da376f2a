package review

import (
	"fmt"
	"strings"

	"glasshouse/backend/git"
	"glasshouse/backend/git/odb"
)

// Patch writes the accepted changes of text files as a patch that git and others
// apply to the base. It is for export and as a check; nothing here reads patches. What
// has no text form (binary and too large content, submodules) is left out and listed.
func Patch(o *git.Objects, r *Review, d Decisions) (patch string, left []string, err error) {
	var b strings.Builder
	for i := range r.Files {
		f := &r.Files[i]
		ok, err := filePatch(&b, o, f, d)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", f.Display, err)
		}
		if !ok {
			left = append(left, f.Display)
		}
	}
	return b.String(), left, nil
}

func filePatch(b *strings.Builder, o *git.Objects, f *File, d Decisions) (bool, error) {
	yes := func(unit string) bool { return d.Of(f.ID, unit) == Accept }
	switch {
	case f.Has(UnitFile):
		if !yes(UnitFile) {
			return true, nil
		}
		return wholePatch(b, o, f)
	case f.Has(UnitContent) && yes(UnitContent):
		return false, nil
	}
	old, name := f.Path, f.Path
	if f.OldPath != "" {
		old, name = f.OldPath, f.OldPath
		if yes(UnitRename) {
			name = f.Path
		}
	}
	mode := f.OldMode != f.NewMode && yes(UnitMode)
	var hunks []Hunk
	for _, h := range f.Hunks {
		if yes(h.ID) {
			hunks = append(hunks, h)
		}
	}
	if name == old && !mode && len(hunks) == 0 {
		return true, nil
	}
	fmt.Fprintf(b, "diff --git %s %s\n", quote("a/"+old), quote("b/"+name))
	if mode {
		fmt.Fprintf(b, "old mode %06o\nnew mode %06o\n", f.OldMode, f.NewMode)
	}
	if name != old {
		fmt.Fprintf(b, "rename from %s\nrename to %s\n", quote(old), quote(name))
	}
	if len(hunks) > 0 {
		fmt.Fprintf(b, "--- %s\n+++ %s\n", header("a/"+old), header("b/"+name))
		writeHunks(b, hunks)
	}
	return true, nil
}

// wholePatch writes an added, deleted or type-changed file.
func wholePatch(b *strings.Builder, o *git.Objects, f *File) (bool, error) {
	if f.Op == OpModify || f.Binary || f.NewMode == odb.ModeGitlink || f.OldMode == odb.ModeGitlink {
		return false, nil
	}
	part := func(del bool, mode uint32, oid string) (bool, error) {
		text, err := readText(o, oid)
		if err != nil {
			return false, err
		}
		lines := splitLines(text)
		fmt.Fprintf(b, "diff --git %s %s\n", quote("a/"+f.Path), quote("b/"+f.Path))
		word, op, from, to := "new", "+", "/dev/null", header("b/"+f.Path)
		if del {
			word, op, from, to = "deleted", "-", header("a/"+f.Path), "/dev/null"
		}
		fmt.Fprintf(b, "%s file mode %06o\n", word, mode)
		// git takes an empty file only with its blob named.
		fmt.Fprintf(b, "index %s\n", map[bool]string{true: oid + ".." + strings.Repeat("0", 40), false: strings.Repeat("0", 40) + ".." + oid}[del])
		if len(lines) == 0 {
			return true, nil
		}
		h := Hunk{}
		if del {
			h.OldStart, h.OldLines = 1, len(lines)
		} else {
			h.NewStart, h.NewLines = 1, len(lines)
		}
		for _, l := range lines {
			text, eol := strings.CutSuffix(l, "\n")
			h.Lines = append(h.Lines, Line{Op: op, Text: text, NoEOL: !eol})
		}
		fmt.Fprintf(b, "--- %s\n+++ %s\n", from, to)
		writeHunks(b, []Hunk{h})
		return true, nil
	}
	if f.OldSize > MaxTextBytes || f.NewSize > MaxTextBytes {
		return false, nil
	}
	if f.OldOID != "" {
		if ok, err := part(true, f.OldMode, f.OldOID); err != nil || !ok {
			return ok, err
		}
	}
	if f.NewOID != "" {
		return part(false, f.NewMode, f.NewOID)
	}
	return true, nil
}

func writeHunks(b *strings.Builder, hunks []Hunk) {
	shift := 0
	for _, h := range hunks {
		start := h.OldStart + shift
		if h.OldLines == 0 && h.NewLines > 0 {
			start++
		} else if h.NewLines == 0 && h.OldLines > 0 {
			start--
		}
		fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", h.OldStart, h.OldLines, max(start, 0), h.NewLines)
		shift += h.NewLines - h.OldLines
		for _, l := range h.Lines {
			b.WriteString(l.Op)
			b.WriteString(l.Text)
			b.WriteByte('\n')
			if l.NoEOL {
				b.WriteString("\\ No newline at end of file\n")
			}
		}
	}
}

// header is a name in a --- or +++ line: one with a space ends in a tab, as git writes it.
func header(s string) string {
	q := quote(s)
	if q == s && strings.Contains(s, " ") {
		return s + "\t"
	}
	return q
}

// quote writes a name as git does in patches.
func quote(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
