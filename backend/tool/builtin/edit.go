package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
	"glasshouse/vm/guest"
)

type editArgs struct {
	Path   string `json:"path"`
	Old    string `json:"old"`
	New    string `json:"new"`
	All    bool   `json:"all"`
	Expect string `json:"expect"`
}

func editTool() tool.Tool {
	return tool.Tool{
		Name: "edit",
		Description: "Replace a piece of a text file. old must be in the file exactly as given, with its spaces and line ends, and exactly once (give more lines around it to make it so, or set all to replace every one). " +
			"Nothing is written when old is missing, is there more than once, or the file changes meanwhile.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "relative to /workspace, or absolute"},
				"old": {"type": "string", "minLength": 1, "maxLength": 1000000, "description": "text that is there now"},
				"new": {"type": "string", "maxLength": 1000000, "description": "text to put in its place"},
				"all": {"type": "boolean", "description": "replace every occurrence"},
				"expect": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "sha256 the file must have now"}
			},
			"required": ["path", "old", "new"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachMachine, Changes: true, Title: pathTitle("Edit"), Action: pathAction(true),
		Detail: func(raw json.RawMessage) []event.Field {
			a := args[editArgs](raw)
			every := "the only one"
			if a.All {
				every = "every one"
			}
			return []event.Field{{Name: "file", Value: abs(a.Path), Origin: domain.OriginAgent}, {Name: "replace", Value: a.Old, Origin: domain.OriginAgent},
				{Name: "by", Value: a.New, Origin: domain.OriginAgent}, {Name: "which", Value: every, Origin: domain.OriginHost}}
		},
		Handler: answering(runEdit, true),
	}
}

func runEdit(ctx context.Context, c tool.Call) (tool.Result, error) {
	g, err := machine(&c)
	if err != nil {
		return tool.Result{}, err
	}
	a := args[editArgs](c.Args)
	if err := checkPath("/path", a.Path); err != nil {
		return tool.Result{}, err
	}
	bad := func(pointer, what, hint string) error {
		e := domain.E(domain.CodeInvalid, what, hint, nil)
		e.Pointer = pointer
		return e
	}
	if a.Old == a.New {
		return tool.Result{}, bad("/new", "old and new are the same", "nothing was written")
	}
	d, err := g.Files().Read(ctx, abs(a.Path), 0, maxFile)
	if err != nil {
		return tool.Result{}, fileError(a.Path, err)
	}
	if int64(len(d.Data)) < d.Info.Size {
		return tool.Result{}, fileError(a.Path, guest.ErrTooLarge)
	}
	if !validText(d.Data) {
		return tool.Result{}, bad("/path", show(a.Path)+" is no UTF-8 text", "change it with exec")
	}
	if shaOf(d.Info) == "" {
		return tool.Result{}, domain.E(domain.CodeUnavailable, "The machine does not say what "+show(a.Path)+" holds", "change it with exec", nil)
	}
	if a.Expect != "" && a.Expect != d.Info.Sha256 {
		return tool.Result{}, fileError(a.Path, guest.ErrConflict)
	}
	text := string(d.Data)
	n := strings.Count(text, a.Old)
	switch {
	case n == 0:
		return tool.Result{}, bad("/old", "The text of old is not in "+show(a.Path), nearestHint(text, a.Old))
	case n > 1 && !a.All:
		return tool.Result{}, bad("/old", fmt.Sprintf("The text of old is in %s %d times, at lines %s", show(a.Path), n, linesOf(text, a.Old)),
			"give more of the lines around the one that is meant, or set all")
	}
	if grown := int64(len(text)) + int64(n)*int64(len(a.New)-len(a.Old)); grown > maxFile {
		return tool.Result{}, fileError(a.Path, guest.ErrTooLarge)
	}
	at := strings.Index(text, a.Old)
	line := 1 + strings.Count(text[:at], "\n")
	// Compare and swap: what was read is what is replaced.
	info, err := g.Files().Write(ctx, abs(a.Path), []byte(strings.ReplaceAll(text, a.Old, a.New)), guest.WriteOptions{IfMatch: d.Info.Sha256})
	if err != nil {
		return tool.Result{}, fileError(a.Path, err)
	}
	res, err := answer(map[string]any{"path": clean(abs(a.Path)), "replaced": n, "line": line, "sha256": shaOf(info)})
	res.Text = fmt.Sprintf("replaced %s in %s, the first at line %d", plural(n, "place", "places"), rel(a.Path), line)
	return res, err
}

// linesOf names the lines where text has old, at most ten.
func linesOf(text, old string) string {
	var out []string
	line, from := 1, 0
	for {
		i := strings.Index(text[from:], old)
		if i < 0 {
			break
		}
		if len(out) == 10 {
			out = append(out, "…")
			break
		}
		line += strings.Count(text[from:from+i], "\n")
		out = append(out, fmt.Sprint(line))
		line += strings.Count(old, "\n")
		from += i + len(old)
	}
	return strings.Join(out, ", ")
}

// nearestHint shows the place that is most like old, so that the next try fits.
func nearestHint(text, old string) string {
	if strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), old) {
		return `the file has Windows line ends: write \r\n in old and new`
	}
	want := strings.Split(strings.TrimRight(old, "\n"), "\n")
	have := strings.Split(text, "\n")
	if len(have) > 50000 {
		have = have[:50000]
	}
	// The line of old that says most is looked for; the others are put around it.
	key := 0
	for i := range want {
		if len(strings.TrimSpace(want[i])) > len(strings.TrimSpace(want[key])) {
			key = i
		}
	}
	k := strings.TrimSpace(want[key])
	if k == "" {
		return "read the file and copy the text from there"
	}
	best, score := -1, 0.0
	for i, h := range have {
		if s := similar(k, strings.TrimSpace(h)); s > score {
			best, score = i, s
		}
	}
	if best < 0 || score < 0.4 {
		return "nothing in the file looks like it; read it and copy the text from there"
	}
	from := max(best-key-1, 0)
	to := min(best-key+len(want)+1, len(have), from+12)
	var b strings.Builder
	if strings.Join(strings.Fields(strings.Join(have[max(best-key, 0):min(best-key+len(want), len(have))], " ")), " ") == strings.Join(strings.Fields(old), " ") {
		b.WriteString("only spaces, tabs or line ends differ; ")
	}
	b.WriteString("the nearest lines are:")
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "\n%d: %s", i+1, headOf(clean(have[i]), 300))
	}
	return b.String()
}

// similar is the share of neighbouring letter pairs that two lines have in common (0 to 1).
func similar(a, b string) float64 {
	if a == b {
		return 1
	}
	if len(a) < 2 || len(b) < 2 || len(b) > 4*len(a)+40 || len(a) > 4*len(b)+40 {
		return 0
	}
	a, b = a[:min(len(a), 400)], b[:min(len(b), 400)]
	var pairs [65536]int8
	for i := 0; i+1 < len(a); i++ {
		p := int(a[i])<<8 | int(a[i+1])
		if pairs[p] < 100 {
			pairs[p]++
		}
	}
	common := 0
	for i := 0; i+1 < len(b); i++ {
		p := int(b[i])<<8 | int(b[i+1])
		if pairs[p] > 0 {
			pairs[p]--
			common++
		}
	}
	return 2 * float64(common) / float64(len(a)+len(b)-2)
}
