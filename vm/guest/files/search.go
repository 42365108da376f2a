//go:build linux

package files

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"sort"
	"strings"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch/ignore"
	"glasshouse/vm/guest/watch/scan"
)

const (
	maxPattern  = 4096
	defMatches  = 200
	maxMatches  = 2000
	maxText     = 1000
	maxBraces   = 256
	maxJSONLine = 16 << 20
)

// Glob returns the files (and links) whose path matches, by path. * and ? stop at
// slashes, ** spans folders, {a,b} are alternatives. .git is entered only when
// the pattern names it.
func (f *Files) Glob(ctx context.Context, pattern string, all bool, limit int) ([]string, bool, error) {
	if limit <= 0 || limit > maxGlob {
		limit = maxGlob
	}
	if pattern == "" || len(pattern) > maxPattern {
		return nil, false, refuse(pattern, fmt.Sprintf("a pattern has between 1 and %d bytes", maxPattern))
	}
	alternatives, err := braces(pattern)
	if err != nil {
		return nil, false, err
	}
	var root, shown string
	var rels []string
	for i, alt := range alternatives {
		at, err := f.locate(alt)
		if err != nil {
			return nil, false, err
		}
		if i > 0 && at.root != root {
			return nil, false, refuse(pattern, "its alternatives lie in different folders")
		}
		root = at.root
		if root != f.roots[0] {
			shown = root
		}
		rels = append(rels, at.rel)
	}
	tree, err := scan.Open(root)
	if err != nil {
		return nil, false, f.explain(place{show: pattern}, err)
	}
	defer tree.Close()
	w := &globber{ctx: ctx, tree: tree, rels: rels, all: all, limit: limit, shown: shown}
	if err = w.dir("", false); err != nil && ctx.Err() == nil {
		err = f.explain(place{show: pattern}, err)
	}
	return w.out, w.more, err
}

type globber struct {
	ctx     context.Context
	tree    *scan.Tree
	rels    []string
	all     bool
	limit   int
	shown   string
	visited int
	out     []string
	more    bool
}

// dir visits a folder in the order of its paths' bytes.
func (w *globber) dir(rel string, ignored bool) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if strings.Count(rel, "/") >= scan.MaxDepth || len(rel) > scan.MaxPath {
		return nil
	}
	entries, err := w.tree.ReadDir(rel)
	if err != nil && rel == "" {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // what is gone or not readable in the meantime has no matches
	}
	for _, g := range w.rels {
		if g == ".git" || strings.HasPrefix(g, ".git/") {
			if st, err := w.tree.Lstat(".git"); err == nil && rel == "" {
				entries = append(entries, scan.Entry{Name: ".git", Path: ".git", Stat: st})
			}
			break
		}
	}
	for _, e := range ordered(entries) {
		if w.visited++; w.visited > maxVisited {
			w.more = true
			return nil
		}
		if e.Ignored && !w.all && !ignored {
			continue
		}
		if e.Stat.Dir() {
			if w.may(e.Path) {
				if err := w.dir(e.Path, ignored || e.Path == ".git"); err != nil || w.more {
					return err
				}
			}
			continue
		}
		if !e.Stat.Regular() && !e.Stat.Link() {
			continue
		}
		for _, g := range w.rels {
			if ignore.Match(g, e.Path, true) {
				if len(w.out) == w.limit {
					w.more = true
					return nil
				}
				show := e.Path
				if w.shown != "" {
					show = path.Join(w.shown, e.Path)
				}
				w.out = append(w.out, show)
				break
			}
		}
	}
	return nil
}

// ordered sorts entries so that a walk gives paths in byte order.
func ordered(in []scan.Entry) []scan.Entry {
	key := func(e scan.Entry) string {
		if e.Stat.Dir() {
			return e.Name + "/"
		}
		return e.Name
	}
	sort.Slice(in, func(i, j int) bool { return key(in[i]) < key(in[j]) })
	return in
}

// may says whether something below the folder could match.
func (w *globber) may(dir string) bool {
	parts := strings.Split(dir, "/")
next:
	for _, g := range w.rels {
		for i, pat := range strings.Split(g, "/") {
			if pat == "**" {
				return true
			}
			if i == len(parts) {
				return true
			}
			if !ignore.Match(pat, parts[i], true) {
				continue next
			}
		}
	}
	return false
}

// braces expands {a,b}.
func braces(pattern string) ([]string, error) {
	depth, start := 0, -1
	var commas []int
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			if depth == 0 {
				start, commas = i, nil
			}
			depth++
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth > 0 {
				continue
			}
			var out []string
			from := start + 1
			for _, to := range append(commas, i) {
				more, err := braces(pattern[:start] + pattern[from:to] + pattern[i+1:])
				if err != nil {
					return nil, err
				}
				if out = append(out, more...); len(out) > maxBraces {
					return nil, refuse(pattern, fmt.Sprintf("it has more than %d alternatives", maxBraces))
				}
				from = to + 1
			}
			return out, nil
		}
	}
	return []string{pattern}, nil
}

// Search runs ripgrep as the agent user. Hidden files are searched, ignored ones
// and .git are not.
func (f *Files) Search(ctx context.Context, q guest.SearchQuery) (guest.SearchResult, error) {
	var out guest.SearchResult
	if q.Pattern == "" || len(q.Pattern) > maxPattern || len(q.Glob) > maxPattern {
		return out, refuse(q.Pattern, fmt.Sprintf("a pattern has between 1 and %d bytes", maxPattern))
	}
	if strings.ContainsAny(q.Pattern, "\n\x00") || strings.IndexByte(q.Glob, 0) >= 0 {
		return out, refuse(q.Pattern, "a pattern is one line without zero bytes")
	}
	limit := q.Limit
	if limit <= 0 {
		limit = defMatches
	}
	limit = min(limit, maxMatches)
	r, at, err := f.open(q.Path)
	if err != nil {
		return out, err
	}
	_, err = r.Stat(at.rel)
	r.Close()
	if err != nil {
		return out, f.explain(at, err)
	}
	args := []string{"rg", "--json", "--no-config", "--no-messages", "--hidden", "--no-require-git", "--sort", "path"}
	if q.Literal {
		args = append(args, "--fixed-strings")
	}
	if q.IgnoreCase {
		args = append(args, "--ignore-case")
	}
	if q.Glob != "" {
		args = append(args, "--glob="+q.Glob)
	}
	args = append(args, "--glob=!.git", "--regexp="+q.Pattern, "--", "./"+at.rel)

	ctx, cancel := context.WithTimeoutCause(ctx, f.opts.SearchTime, fmt.Errorf("the search took longer than %v; name a narrower path or glob", f.opts.SearchTime))
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	var tail runas.Tail
	go func() {
		err := f.opts.Run(ctx, args, f.opts.Env, at.root, nil, pw, &tail)
		pw.CloseWithError(err)
		done <- err
	}()
	got := &found{limit: limit, base: at.root, workspace: at.root == f.roots[0]}
	parse := got.read(bufio.NewReaderSize(pr, 64<<10))
	slow := context.Cause(ctx)
	cancel()
	pr.CloseWithError(errEnough)
	ran := <-done
	out.Matches, out.More = got.matches, got.more || got.skipped
	switch {
	case got.more:
		return out, nil
	case runas.Missing(ran):
		return out, fmt.Errorf("ripgrep (rg) is not installed in the machine: %w", ran)
	case slow != nil:
		if len(out.Matches) > 0 {
			out.More = true
			return out, nil
		}
		return out, slow
	case parse != nil && !errors.As(parse, new(interface{ ExitCode() int })):
		return out, fmt.Errorf("ripgrep's output is not understood: %w", parse)
	case got.complete:
		return out, nil // exit 1 is "no match", exit 2 here "some file could not be read"
	}
	why := tail.String()
	if why == "" && ran != nil {
		why = ran.Error()
	}
	return out, fmt.Errorf("the search was not possible: %s", why)
}

var errEnough = errors.New("enough")

// found collects ripgrep's messages.
type found struct {
	limit     int
	base      string
	workspace bool
	matches   []guest.Match
	more      bool
	skipped   bool
	complete  bool // the summary came
}

// text is how ripgrep writes strings: text, or base64 when it is no UTF-8.
type text struct {
	Text  *string `json:"text"`
	Bytes string  `json:"bytes"`
}

func (t text) raw() []byte {
	if t.Text != nil {
		return []byte(*t.Text)
	}
	b, _ := base64.StdEncoding.DecodeString(t.Bytes)
	return b
}

func (g *found) read(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if errors.Is(err, errLongLine) {
			g.skipped = true // it matched, and is too long to hold
			continue
		}
		if len(line) > 0 {
			var m struct {
				Type string `json:"type"`
				Data struct {
					Path  text `json:"path"`
					Lines text `json:"lines"`
					Line  int  `json:"line_number"`
				} `json:"data"`
			}
			if err := json.Unmarshal(line, &m); err != nil {
				return err
			}
			switch m.Type {
			case "summary":
				g.complete = true
			case "match":
				if len(g.matches) == g.limit {
					g.more = true
					return nil
				}
				p := strings.TrimPrefix(path.Clean(string(m.Data.Path.raw())), "./")
				if !g.workspace {
					p = path.Join(g.base, p)
				}
				g.matches = append(g.matches, guest.Match{Path: p, Line: m.Data.Line, Text: cut(m.Data.Lines.raw())})
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var errLongLine = errors.New("line too long")

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > maxJSONLine {
			long, line = true, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long && err == nil {
			return nil, errLongLine
		}
		return bytes.TrimSpace(line), err
	}
}

// cut is the line without its end, as valid UTF-8 of at most maxText bytes.
func cut(line []byte) string {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) > maxText {
		line = line[:maxText]
	}
	s := strings.ToValidUTF8(string(line), "\uFFFD")
	for len(s) > maxText {
		s = s[:len(s)-1]
		s = strings.ToValidUTF8(s, "")
	}
	return s
}
