package review

import (
	"errors"
	"strings"

	"glasshouse/backend/git"
)

// ErrNoLines: the content has no lines that could be named: it is binary, a
// submodule, or too large.
var ErrNoLines = errors.New("it has no lines")

// Sides of a change.
const (
	SideOld = "old"
	SideNew = "new"
)

// Anchor holds a comment to a line by what the line and its neighbours say, so that
// it is found again when other lines came or went around it.
type Anchor struct {
	Line          int    // from 1, in Blob
	Blob          string // the content it was made on
	Quoted        string
	Before, After []string // up to three lines, the nearest last and first
}

// maxQuoted bounds, in bytes, what is kept of one line.
const maxQuoted = 1000

// around is how many lines on each side are kept.
const around = 3

func quoted(line string) string {
	line = strings.TrimSuffix(line, "\n")
	if len(line) > maxQuoted {
		line = strings.ToValidUTF8(line[:maxQuoted], "")
	}
	return line
}

// Lines reads one side of a file. A side that does not exist has none.
func Lines(o *git.Objects, f *File, side string) (blob string, lines []string, err error) {
	blob = f.NewOID
	if side == SideOld {
		blob = f.OldOID
	}
	if blob == "" {
		return "", nil, nil
	}
	if f.Binary {
		return blob, nil, ErrNoLines
	}
	s, err := readText(o, blob)
	if err != nil || strings.IndexByte(s, 0) >= 0 {
		return blob, nil, errors.Join(ErrNoLines, err)
	}
	lines = splitLines(s)
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\n")
	}
	return blob, lines, nil
}

// Hold makes the anchor of a line that is there.
func Hold(blob string, lines []string, line int) Anchor {
	a := Anchor{Line: line, Blob: blob, Quoted: quoted(lines[line-1])}
	for i := max(0, line-1-around); i < line-1; i++ {
		a.Before = append(a.Before, quoted(lines[i]))
	}
	for i := line; i < min(len(lines), line+around); i++ {
		a.After = append(a.After, quoted(lines[i]))
	}
	return a
}

// Find says where the anchor's line is in other content: where the line reads the
// same and its nearest neighbours do, the nearest to where it was. A line that says
// little (a blank, a brace) is only found among neighbours it had.
func (a Anchor) Find(blob string, lines []string) (int, bool) {
	if a.Line < 1 {
		return 0, false
	}
	if blob == a.Blob && a.Line <= len(lines) {
		return a.Line, true
	}
	best, at := -1, 0
	for i, l := range lines {
		if quoted(l) != a.Quoted {
			continue
		}
		score, same := 0, 0
		near := func(j, distance int, want string) {
			if j < 0 || j >= len(lines) || quoted(lines[j]) != want {
				return
			}
			same++
			weight := around + 1 - distance
			if !little(want) {
				weight *= 2
			}
			score += weight
		}
		for k, b := range a.Before {
			d := len(a.Before) - k
			near(i-d, d, b)
		}
		for k, b := range a.After {
			near(i+1+k, k+1, b)
		}
		if little(a.Quoted) && same < min(2, len(a.Before)+len(a.After)) {
			continue
		}
		if score > best || score == best && abs(i+1-a.Line) < abs(at-a.Line) {
			best, at = score, i+1
		}
	}
	return at, best >= 0
}

// little reports a line that says nothing by itself.
func little(line string) bool { return len(strings.TrimSpace(line)) < 4 }

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
