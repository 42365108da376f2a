package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

const (
	maxFile    = 8 << 20 // what read looks through and edit works on
	maxContent = 6 << 20 // what write takes
	// fileText is how many bytes of JSON of a file's text one read returns.
	fileText = 26 << 10
	maxNames = 1000
)

type pathArgs struct {
	Path string `json:"path"`
}

func pathAction(write bool) func(json.RawMessage) policy.Action {
	return func(raw json.RawMessage) policy.Action {
		return policy.Action{Paths: []string{abs(args[pathArgs](raw).Path)}, Write: write}
	}
}

func pathTitle(verb string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string { return verb + " " + rel(args[pathArgs](raw).Path) }
}

// rel shows a path as short as it is clear.
func rel(p string) string {
	p = abs(p)
	if p == guest.Workspace {
		return p
	}
	return strings.TrimPrefix(p, guest.Workspace+"/")
}

func readTool() tool.Tool {
	return tool.Tool{
		Name: "read",
		Description: "Read a text file. The answer has its text, the numbers of the first and last line in it, and the file's sha256 (give it to write or edit to be sure that nothing changed in between). " +
			"Long files come in parts: when more is true, read again with offset set to last_line + 1. Files that are no text are only described.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "relative to /workspace, or absolute"},
				"offset": {"type": "integer", "minimum": 1, "maximum": 100000000, "description": "first line, from 1; default 1"},
				"limit": {"type": "integer", "minimum": 1, "maximum": 5000, "description": "most lines; default 2000"}
			},
			"required": ["path"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachRead, Title: pathTitle("Read"), Action: pathAction(false), Handler: answering(runRead, false),
	}
}

func runRead(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[struct {
		Path          string
		Offset, Limit int
	}](c.Args)
	if err := checkPath("/path", a.Path); err != nil {
		return tool.Result{}, err
	}
	if a.Offset == 0 {
		a.Offset = 1
	}
	if a.Limit == 0 {
		a.Limit = 2000
	}
	d, err := g.Files().Read(ctx, abs(a.Path), 0, maxFile)
	if err != nil {
		return tool.Result{}, fileError(a.Path, err)
	}
	out := struct {
		Path      string `json:"path"`
		Text      string `json:"text"`
		FirstLine int    `json:"first_line"`
		LastLine  int    `json:"last_line"`
		Lines     int    `json:"lines,omitempty"` // of the whole file, when it was looked through
		More      bool   `json:"more,omitempty"`
		Size      int64  `json:"size"`
		Sha256    string `json:"sha256,omitempty"`
		Binary    bool   `json:"binary,omitempty"`
		Note      string `json:"note,omitempty"`
	}{Path: clean(abs(a.Path)), Size: d.Info.Size, Sha256: shaOf(d.Info)}
	if isBinary(d.Data) {
		out.Binary, out.Note = true, "This file is no text; look at it with exec (file, xxd, …)."
		return answer(out)
	}
	lines := bytes.SplitAfter(d.Data, []byte{'\n'})
	if n := len(lines); n > 0 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	whole := int64(len(d.Data)) >= d.Info.Size
	if whole {
		out.Lines = len(lines)
	}
	if a.Offset > len(lines) && !(a.Offset == 1 && len(lines) == 0) {
		if !whole {
			return tool.Result{}, domain.E(domain.CodeTooLarge, fmt.Sprintf("Line %d of %s is past its first %d MiB", a.Offset, show(a.Path), maxFile>>20), "use exec with sed -n", nil)
		}
		e := domain.E(domain.CodeInvalid, fmt.Sprintf("%s has %s", show(a.Path), plural(len(lines), "line", "lines")), "read from a line that is there", nil)
		e.Pointer = "/offset"
		return tool.Result{}, e
	}
	var b strings.Builder
	room := fileText
	out.FirstLine, out.LastLine = a.Offset, a.Offset-1
	for _, l := range lines[min(a.Offset-1, len(lines)):] {
		if out.LastLine-a.Offset+1 == a.Limit {
			out.More = true
			break
		}
		s := clean(string(l))
		h := headOf(s, room)
		if h != s {
			out.More = true
			if b.Len() == 0 { // one line that is longer than an answer
				b.WriteString(h)
				out.LastLine++
				out.Note = fmt.Sprintf("Line %d is longer than one answer; its end is left out.", out.LastLine)
			}
			break
		}
		b.WriteString(s)
		for _, r := range s {
			room -= cost(r)
		}
		out.LastLine++
	}
	out.More = out.More || !whole
	out.Text = b.String()
	res, err := answer(out)
	res.Text = out.Text
	return res, err
}

func isBinary(p []byte) bool { return bytes.IndexByte(p[:min(len(p), 8000)], 0) >= 0 }

func shaOf(i guest.FileInfo) string {
	if len(i.Sha256) == 64 {
		return clean(i.Sha256)
	}
	return ""
}

func writeTool() tool.Tool {
	return tool.Tool{
		Name: "write",
		Description: "Create a file or replace all of it. Missing folders are made. The file is replaced in one go: it is never half written. " +
			"Set expect to the sha256 from your last read to write only if nobody changed the file since, or to \"absent\" to only create a new one. To change a part of a file use edit.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "relative to /workspace, or absolute"},
				"content": {"type": "string", "description": "the whole file"},
				"expect": {"type": "string", "pattern": "^([0-9a-f]{64}|absent)$", "description": "sha256 the file must have now, or absent"},
				"executable": {"type": "boolean", "description": "make a new file executable"}
			},
			"required": ["path", "content"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachMachine, Changes: true, Title: pathTitle("Write"), Action: pathAction(true),
		Detail: func(raw json.RawMessage) []event.Field {
			a := args[struct{ Path, Content, Expect string }](raw)
			out := []event.Field{{Name: "file", Value: abs(a.Path), Origin: domain.OriginAgent}}
			if a.Expect != "" {
				out = append(out, event.Field{Name: "expected now", Value: a.Expect, Origin: domain.OriginAgent})
			}
			return append(out, event.Field{Name: "content", Value: a.Content, Origin: domain.OriginAgent})
		},
		Handler: answering(runWrite, true),
	}
}

func runWrite(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[struct {
		Path, Content, Expect string
		Executable            bool
	}](c.Args)
	if err := checkPath("/path", a.Path); err != nil {
		return tool.Result{}, err
	}
	if len(a.Content) > maxContent {
		e := domain.E(domain.CodeTooLarge, fmt.Sprintf("The content has %d bytes, at most %d are taken", len(a.Content), maxContent), "make the file with exec", nil)
		e.Pointer = "/content"
		return tool.Result{}, e
	}
	opt := guest.WriteOptions{IfMatch: a.Expect}
	if a.Executable {
		opt.Mode = 0o755
	}
	info, err := g.Files().Write(ctx, abs(a.Path), []byte(a.Content), opt)
	if err != nil {
		if a.Expect == "absent" && domain.CodeOf(fileError(a.Path, err)) == domain.CodeConflict {
			return tool.Result{}, domain.E(domain.CodeConflict, fmt.Sprintf("%s exists already", show(a.Path)), "read it first, then edit it or write with expect set to its sha256", err)
		}
		return tool.Result{}, fileError(a.Path, err)
	}
	res, err := answer(map[string]any{"path": clean(abs(a.Path)), "size": len(a.Content), "sha256": shaOf(info)})
	res.Text = fmt.Sprintf("wrote %s (%s)", rel(a.Path), plural(len(a.Content), "byte", "bytes"))
	return res, err
}

func listTool() tool.Tool {
	return tool.Tool{
		Name:        "list",
		Description: "List a folder: names, types and sizes, sorted by name. Use glob to find files in many folders.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "maxLength": 4096, "description": "default /workspace"},
				"limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "most entries; default 200"}
			},
			"additionalProperties": false
		}`),
		Reach: domain.ReachRead, Title: pathTitle("List"), Action: pathAction(false), Handler: answering(runList, false),
	}
}

func runList(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[struct {
		Path  string
		Limit int
	}](c.Args)
	if err := checkPath("/path", a.Path); err != nil {
		return tool.Result{}, err
	}
	if a.Limit == 0 {
		a.Limit = 200
	}
	entries, more, err := g.Files().List(ctx, abs(a.Path), a.Limit)
	if err != nil {
		return tool.Result{}, fileError(a.Path, err)
	}
	type entry struct {
		Name   string `json:"name"`
		Type   string `json:"type"`
		Size   int64  `json:"size,omitempty"`
		Target string `json:"target,omitempty"`
	}
	out := struct {
		Path    string  `json:"path"`
		Entries []entry `json:"entries"`
		More    bool    `json:"more,omitempty"`
	}{Path: clean(abs(a.Path)), Entries: []entry{}, More: more}
	room := budget(fileText)
	var text strings.Builder
	for _, e := range entries {
		name := clean(e.Path[strings.LastIndexByte(e.Path, '/')+1:])
		if !room.take(60, name, e.Target) || len(out.Entries) == maxNames {
			out.More = true
			break
		}
		out.Entries = append(out.Entries, entry{name, clean(e.Type), e.Size, clean(e.Target)})
		text.WriteString(name)
		if e.Type == "dir" {
			text.WriteByte('/')
		}
		text.WriteByte('\n')
	}
	res, err := answer(out)
	res.Text = text.String()
	return res, err
}

// budget counts down the bytes of JSON that an answer has room for.
type budget int

func (b *budget) take(fixed int, texts ...string) bool {
	n := fixed
	for _, t := range texts {
		for _, r := range t {
			n += cost(r)
		}
	}
	if *b -= budget(n); *b < 0 {
		return false
	}
	return true
}

func globTool() tool.Tool {
	return tool.Tool{
		Name:        "glob",
		Description: "Find files by name: * matches within a folder, ** across folders (src/**/*.go). Files that git ignores are left out unless all is true.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"pattern": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "relative to /workspace"},
				"all": {"type": "boolean", "description": "also ignored files"},
				"limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "most paths; default 200"}
			},
			"required": ["pattern"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachRead,
		Title: func(raw json.RawMessage) string { return "Find " + args[struct{ Pattern string }](raw).Pattern },
		Action: func(raw json.RawMessage) policy.Action {
			return policy.Action{}
		},
		Handler: answering(runGlob, false),
	}
}

func runGlob(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[struct {
		Pattern string
		All     bool
		Limit   int
	}](c.Args)
	if err := checkPath("/pattern", a.Pattern); err != nil {
		return tool.Result{}, err
	}
	if a.Limit == 0 {
		a.Limit = 200
	}
	paths, more, err := g.Files().Glob(ctx, a.Pattern, a.All, a.Limit)
	if err != nil {
		return tool.Result{}, fileError(a.Pattern, err)
	}
	out := struct {
		Paths []string `json:"paths"`
		More  bool     `json:"more,omitempty"`
	}{Paths: []string{}, More: more}
	room := budget(fileText)
	for _, p := range paths {
		if p = clean(p); !room.take(4, p) || len(out.Paths) == maxNames {
			out.More = true
			break
		}
		out.Paths = append(out.Paths, p)
	}
	res, err := answer(out)
	res.Text = strings.Join(out.Paths, "\n")
	return res, err
}

func searchTool() tool.Tool {
	return tool.Tool{
		Name: "search",
		Description: "Search file contents with a regular expression (ripgrep's syntax), line by line. Set literal to search for the pattern as plain text. " +
			"Files that git ignores and files that are no text are left out. Narrow it down with path (a folder or file) and glob (*.go).",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"pattern": {"type": "string", "minLength": 1, "maxLength": 2000},
				"literal": {"type": "boolean", "description": "pattern is plain text"},
				"ignore_case": {"type": "boolean"},
				"path": {"type": "string", "maxLength": 4096, "description": "default /workspace"},
				"glob": {"type": "string", "maxLength": 1000, "description": "only files that match"},
				"limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "most matches; default 100"}
			},
			"required": ["pattern"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachRead, Action: pathAction(false), Handler: answering(runSearch, false),
		Title: func(raw json.RawMessage) string {
			a := args[struct{ Pattern, Path string }](raw)
			if a.Path == "" {
				return "Search " + a.Pattern
			}
			return "Search " + a.Pattern + " in " + rel(a.Path)
		},
	}
}

func runSearch(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[struct {
		Pattern    string
		Literal    bool
		IgnoreCase bool `json:"ignore_case"`
		Path, Glob string
		Limit      int
	}](c.Args)
	if err := checkPath("/path", a.Path); err != nil {
		return tool.Result{}, err
	}
	if a.Limit == 0 {
		a.Limit = 100
	}
	found, err := g.Files().Search(ctx, guest.SearchQuery{Pattern: a.Pattern, Literal: a.Literal, IgnoreCase: a.IgnoreCase, Path: abs(a.Path), Glob: a.Glob, Limit: a.Limit})
	if err != nil {
		return tool.Result{}, fileError(a.Path, err)
	}
	type match struct {
		Path string `json:"path"`
		Line int    `json:"line"`
		Text string `json:"text"`
	}
	out := struct {
		Matches []match `json:"matches"`
		More    bool    `json:"more,omitempty"`
	}{Matches: []match{}, More: found.More}
	room := budget(fileText)
	var text strings.Builder
	for _, m := range found.Matches {
		line := headOf(clean(strings.TrimRight(m.Text, "\r\n")), 1000)
		if !room.take(40, clean(m.Path), line) || len(out.Matches) == maxNames {
			out.More = true
			break
		}
		out.Matches = append(out.Matches, match{clean(m.Path), m.Line, line})
		fmt.Fprintf(&text, "%s:%d:%s\n", clean(m.Path), m.Line, line)
	}
	res, err := answer(out)
	res.Text = text.String()
	if len(out.Matches) == 0 {
		res.Text = "no match"
	}
	return res, err
}

func validText(p []byte) bool { return utf8.Valid(p) && !isBinary(p) }
