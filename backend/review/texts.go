package review

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// TextDiff is the line diff of two versions of one file, shaped like a review's file.
type TextDiff struct {
	Hunks   []Hunk
	Added   int
	Deleted int
	Coarse  bool   // right, but not minimal
	Binary  bool   // one side is no text: no hunks
	Large   bool   // one side is past what is shown by lines: no hunks
	Why     string // why there are no hunks
}

// DiffTexts compares two versions of the file at path; an absent one is nil.
func DiffTexts(path string, old, new []byte) TextDiff {
	for _, b := range [][]byte{old, new} {
		switch {
		case len(b) > MaxTextBytes:
			return TextDiff{Large: true, Why: fmt.Sprintf("larger than %d MiB", MaxTextBytes>>20)}
		case strings.IndexByte(string(b), 0) >= 0:
			return TextDiff{Binary: true, Why: "binary"}
		case !utf8.Valid(b):
			return TextDiff{Binary: true, Why: "not UTF-8"}
		}
	}
	f := File{Path: path}
	b := &builder{}
	b.hunks(&f, string(old), string(new))
	return TextDiff{Hunks: f.Hunks, Added: f.Added, Deleted: f.Deleted, Coarse: f.Coarse, Large: f.Whole != "", Why: f.Whole}
}
