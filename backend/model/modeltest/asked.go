package modeltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glasshouse/backend/model"
)

// Asked is what a model would read of a request, alike for all formats.
type Asked struct {
	Format    model.Format
	Model     string
	Stream    bool
	System    string
	Entries   []Entry
	Tools     []string
	Quiet     bool // tools are declared and none may be called
	MaxOutput int64
	Effort    string

	canon  canon
	marks  []int // offsets in canon of what may be cached
	images int64
}

// Entry is one message. Results of tools are entries of their own.
type Entry struct {
	Role    string // "user", "assistant", "tool"
	Text    string
	Thought string
	Calls   []AskedCall
	Results []AskedResult
	Images  int
}

// AskedCall is a call in the conversation.
type AskedCall struct{ ID, Tool, Args string }

// AskedResult is a result in the conversation.
type AskedResult struct {
	ID     string
	Text   string
	Failed bool // only Anthropic's format says so
}

// Tokens of the request.
func (a *Asked) Tokens() int64 { return quarter(len(a.canon.b)) + imageTokens*a.images }

const imageTokens = 1000

func quarter(n int) int64 { return int64(n+3) / 4 }

// Newest are the entries after the last answer of the model.
func (a *Asked) Newest() []Entry {
	for i := len(a.Entries) - 1; i >= 0; i-- {
		if a.Entries[i].Role == "assistant" {
			return a.Entries[i+1:]
		}
	}
	return a.Entries
}

// Text of entries: what users said and what results hold, one a line.
func text(es []Entry, answers bool) string {
	var b strings.Builder
	for _, e := range es {
		if e.Role == "assistant" && !answers {
			continue
		}
		if e.Text != "" {
			b.WriteString(e.Text + "\n")
		}
		for _, c := range e.Calls {
			b.WriteString(c.Tool + " " + c.Args + "\n")
		}
		for _, r := range e.Results {
			b.WriteString(r.Text + "\n")
		}
	}
	return b.String()
}

// NewestText is what came after the last answer.
func (a *Asked) NewestText() string { return text(a.Newest(), false) }

// AllText is the whole conversation without the system text.
func (a *Asked) AllText() string { return text(a.Entries, true) }

// canon is the canonical text of a request.
type canon struct{ b []byte }

func (c *canon) line(kind, text string) {
	c.b = append(append(append(append(c.b, kind...), ' '), text...), '\n')
}

// Tools come first, then the system text, then the conversation.
func (a *Asked) tool(name, description string, schema json.RawMessage) {
	a.Tools = append(a.Tools, name)
	var s bytes.Buffer
	if json.Compact(&s, schema) != nil {
		s.Write(schema)
	}
	a.canon.line("tool", name+" "+description+" "+s.String())
}

func (a *Asked) system(text string) {
	if a.System != "" {
		a.System += "\n"
	}
	a.System += text
	a.canon.line("system", text)
}

// last is the entry of a role that is being filled; another role begins a new one.
func (a *Asked) begin(role string) *Entry {
	a.Entries = append(a.Entries, Entry{Role: role})
	return &a.Entries[len(a.Entries)-1]
}

func (a *Asked) text(e *Entry, text string) {
	if e.Text != "" {
		e.Text += "\n"
	}
	e.Text += text
	a.canon.line(e.Role, text)
}

func (a *Asked) thought(e *Entry, text string) {
	e.Thought += text
	a.canon.line("thought", text)
}

func (a *Asked) call(e *Entry, id, tool, args string) {
	e.Calls = append(e.Calls, AskedCall{id, tool, args})
	a.canon.line("call", tool+" "+args)
}

func (a *Asked) result(e *Entry, id, text string, failed bool) {
	e.Results = append(e.Results, AskedResult{id, text, failed})
	a.canon.line("result", text)
}

func (a *Asked) image(e *Entry, data []byte) {
	e.Images++
	a.images++
	a.canon.line("image", fmt.Sprintf("%x", sha256.Sum256(data))[:16])
}

// mark says that all until here may be cached.
func (a *Asked) mark() { a.marks = append(a.marks, len(a.canon.b)) }

// met says what of an expectation is not so; "" = all is.
func (e *Expect) met(a *Asked) string {
	newest, all := a.NewestText(), a.AllText()
	short := func(s string) string {
		if len(s) > 600 {
			return s[:300] + " … " + s[len(s)-300:]
		}
		return s
	}
	holds := func(where, s string, has, not []string) string {
		for _, h := range has {
			if !strings.Contains(s, h) {
				return fmt.Sprintf("%s should hold %q: %q", where, h, short(s))
			}
		}
		for _, h := range not {
			if strings.Contains(s, h) {
				return fmt.Sprintf("%s should not hold %q", where, h)
			}
		}
		return ""
	}
	for _, bad := range []string{holds("what came last", newest, e.Has, e.HasNot), holds("the system text", a.System, e.System, nil),
		holds("the conversation", all, e.All, nil), holds("the request", a.System+"\n"+all, nil, e.AllNot)} {
		if bad != "" {
			return bad
		}
	}
	for _, re := range e.Matches {
		if !compile(re).MatchString(newest) {
			return fmt.Sprintf("what came last should match %q: %q", re, short(newest))
		}
	}
	for _, name := range e.Tools {
		if !slices.Contains(a.Tools, name) {
			return fmt.Sprintf("the tool %q should be declared, beside %s", name, strings.Join(a.Tools, ", "))
		}
	}
	var roles []string
	results, images := 0, 0
	for _, x := range a.Entries {
		roles = append(roles, x.Role)
	}
	for _, x := range a.Newest() {
		results += len(x.Results)
		images += x.Images
	}
	switch {
	case e.Roles != nil && !slices.Equal(e.Roles, roles):
		return fmt.Sprintf("the roles should be %v and are %v", e.Roles, roles)
	case e.Results != nil && *e.Results != results:
		return fmt.Sprintf("there should be %d new results and are %d", *e.Results, results)
	case e.Images != nil && *e.Images != images:
		return fmt.Sprintf("there should be %d new images and are %d", *e.Images, images)
	case e.Format != "" && e.Format != string(a.Format):
		return fmt.Sprintf("the format should be %s and is %s", e.Format, a.Format)
	}
	return ""
}
