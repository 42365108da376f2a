package modeltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"glasshouse/backend/model"
)

// Script says what a Server answers.
type Script struct {
	// Model is the only one there is; empty = any. Served is the name that answers
	// carry; empty = as asked for.
	Model  string `yaml:"model"`
	Served string `yaml:"served"`
	// Like makes the face of Chat Completions as strict and as odd as one that speaks it in
	// its own way: "openai", "deepseek", "mistral", "gemini", "openrouter" or "ollama".
	// Empty = like none of them.
	Like string `yaml:"like"`
	// Context is the most tokens that a request and its answer may have together; a
	// longer one is refused. 0 = no limit.
	Context int64 `yaml:"context"`
	// Chunk is how many bytes a delta holds, 0 = 12, and DelayMS the wait before each.
	Chunk   int `yaml:"chunk"`
	DelayMS int `yaml:"delay_ms"`
	// Replay: the same request again gets the same answer again, and one whose client
	// left before its end is not used up. For tests that kill the client.
	Replay bool `yaml:"replay"`
	// Summary is the text for a request that may call no tool, Plain the one for a
	// request that declares none.
	Summary string  `yaml:"summary"`
	Plain   *string `yaml:"plain"`
	// Keyed answers are looked at first: the first whose Match holds is given, Times
	// times (0 = always). Then the Answers, in order.
	Keyed   []Keyed  `yaml:"keyed"`
	Answers []Answer `yaml:"answers"`
}

// Keyed is an answer that is chosen by what was asked.
type Keyed struct {
	Match  Expect `yaml:"match"`
	Times  int    `yaml:"times"`
	Answer `yaml:",inline"`
}

// Answer is one entry of a script. Say, Think, Raw and the strings in Args may hold
// ${name} of an earlier Capture, ${i} (how often this answer was given, from 1) and ${n}
// (the number of the answer, over all).
type Answer struct {
	Think string `yaml:"think"`
	Say   string `yaml:"say"`
	Calls []Call `yaml:"calls"`
	// Stop in place of what follows from the rest: "end", "calls", "length", "refused".
	Stop  model.Stop `yaml:"stop"`
	Usage *Usage     `yaml:"usage"` // reported in place of the count

	Fail     *Fail     `yaml:"fail"`      // an error in place of an answer
	Cut      *Cut      `yaml:"cut"`       // the connection breaks in mid-answer
	Stall    *Point    `yaml:"stall"`     // no more is sent, until the client leaves
	MidError *MidError `yaml:"mid_error"` // an error event within the stream

	// Hold waits in mid-answer until somebody says go on, so that what is looked at while an
	// answer is written need not be quick.
	Hold []Hold `yaml:"hold"`

	DelayMS int `yaml:"delay_ms"` // before each delta; 0 = the script's
	FirstMS int `yaml:"first_ms"` // before anything is sent
	Chunk   int `yaml:"chunk"`    // bytes of a delta; 0 = the script's

	Expect  *Expect           `yaml:"expect"`
	Capture map[string]string `yaml:"capture"` // name: regular expression over the newest texts; its first group
	Repeat  int               `yaml:"repeat"`  // how often it is given; 0 = once

	line int
}

// Call of a tool: Args, or Raw as the model wrote it.
type Call struct {
	Tool string         `yaml:"tool"`
	Args map[string]any `yaml:"args"`
	Raw  *string        `yaml:"raw"`
	ID   string         `yaml:"id"` // empty = a new one
}

// Usage overrides the count.
type Usage struct {
	Input      int64 `yaml:"input"`
	CacheRead  int64 `yaml:"cache_read"`
	CacheWrite int64 `yaml:"cache_write"`
	Output     int64 `yaml:"output"`
	Reasoning  int64 `yaml:"reasoning"`
}

// Fail is an error. Kind gives status and body in the format's own words: "auth" (the
// body quotes the key), "quota", "rate", "busy", "server", "too_long", "invalid",
// "not_found". Status and Body in place of these, or alone.
type Fail struct {
	Kind       string `yaml:"kind"`
	Status     int    `yaml:"status"`
	Body       string `yaml:"body"`
	RetryAfter string `yaml:"retry_after"` // header, as it is
}

// Cut breaks the connection after so many events of the stream or bytes of the body.
type Cut struct {
	AfterEvents int `yaml:"after_events"`
	AfterBytes  int `yaml:"after_bytes"`
	// How: "reset" (empty) or "close", which looks like an orderly end.
	How string `yaml:"how"`
}

// MidError is an error that comes within a stream.
type MidError struct {
	Kind        string `yaml:"kind"` // as of Fail
	AfterEvents int    `yaml:"after_events"`
}

// Hold is a place in a stream where it stands still until a file is there.
type Hold struct {
	AfterEvents int    `yaml:"after_events"`
	File        string `yaml:"file"`
}

// Point in a stream: "true" = after three events.
type Point struct{ AfterEvents int }

// UnmarshalYAML takes true or {after_events: N}.
func (p *Point) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Value == "true" {
		p.AfterEvents = 3
		return nil
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "after_events" {
		return n.Content[1].Decode(&p.AfterEvents)
	}
	return fmt.Errorf("line %d: stall is true or {after_events: N}", n.Line)
}

// Expect holds a request to something. "The newest texts" are the texts of all that
// came after the last answer of the model: results of tools and what the user says.
type Expect struct {
	Has     []string `yaml:"has"`     // the newest texts hold each of them
	HasNot  []string `yaml:"has_not"` // and none of these
	Matches []string `yaml:"matches"` // regular expressions, over the newest texts
	System  []string `yaml:"system"`  // the system text holds each
	All     []string `yaml:"all"`     // the conversation holds each, anywhere
	AllNot  []string `yaml:"all_not"` // and none of these; the system text counts too
	Tools   []string `yaml:"tools"`   // are declared
	Roles   []string `yaml:"roles"`   // of all messages in order: user, assistant, tool
	Results *int     `yaml:"results"` // how many results came since the last answer
	Images  *int     `yaml:"images"`  // how many images came since the last answer
	Format  string   `yaml:"format"`  // the wire format
}

// Parse reads a script; name is for errors, which give lines.
func Parse(name string, text []byte) (*Script, error) {
	s := new(Script)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is a second document", name)
	}
	s.lines(text)
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// Load reads a script from a file.
func Load(path string) (*Script, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, b)
}

// lines notes where each answer stands, for errors.
func (s *Script) lines(text []byte) {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return
	}
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		for j, n := range top[i+1].Content {
			switch {
			case top[i].Value == "answers" && j < len(s.Answers):
				s.Answers[j].line = n.Line
			case top[i].Value == "keyed" && j < len(s.Keyed):
				s.Keyed[j].line = n.Line
			}
		}
	}
}

// Check says what is wrong with a script, also one that was not parsed.
func (s *Script) Check() error {
	if s.Like != "" && !slices.Contains(likes, s.Like) {
		return fmt.Errorf("there is no server like %q, only %s", s.Like, strings.Join(likes, ", "))
	}
	for i := range s.Answers {
		if err := s.Answers[i].check(); err != nil {
			return fmt.Errorf("%s: %w", s.Answers[i].where(i), err)
		}
	}
	for i := range s.Keyed {
		k := &s.Keyed[i]
		if err := errors.Join(k.check(), k.Match.check()); err != nil {
			return fmt.Errorf("%s: %w", k.where(i), err)
		}
	}
	return nil
}

func (a *Answer) where(i int) string {
	if a.line > 0 {
		return fmt.Sprintf("line %d", a.line)
	}
	return fmt.Sprintf("answer %d", i+1)
}

var failKinds = []string{"auth", "quota", "rate", "busy", "server", "too_long", "invalid", "not_found"}

func (a *Answer) check() error {
	instead := 0
	for _, set := range []bool{a.Fail != nil, a.Cut != nil, a.Stall != nil, a.MidError != nil} {
		if set {
			instead++
		}
	}
	switch {
	case instead > 1:
		return errors.New("an answer has one of fail, cut, stall and mid_error")
	case a.Fail != nil && (a.Say != "" || a.Think != "" || len(a.Calls) > 0):
		return errors.New("an answer that fails says nothing and calls nothing")
	case a.Fail != nil && a.Fail.Kind == "" && a.Fail.Status == 0:
		return errors.New("fail needs a kind or a status")
	case a.Fail != nil && a.Fail.Kind != "" && !slices.Contains(failKinds, a.Fail.Kind):
		return fmt.Errorf("there is no failure %q, only %s", a.Fail.Kind, strings.Join(failKinds, ", "))
	case a.MidError != nil && !slices.Contains(failKinds, a.MidError.Kind):
		return fmt.Errorf("mid_error has the kind %q, not one of %s", a.MidError.Kind, strings.Join(failKinds, ", "))
	case a.Cut != nil && (a.Cut.AfterEvents > 0) == (a.Cut.AfterBytes > 0):
		return errors.New("cut needs after_events or after_bytes")
	case a.Cut != nil && a.Cut.How != "" && a.Cut.How != "reset" && a.Cut.How != "close":
		return fmt.Errorf("a connection is cut by reset or close, not %q", a.Cut.How)
	case a.Stop != "" && !slices.Contains([]model.Stop{model.StopEnd, model.StopCalls, model.StopLength, model.StopRefused}, a.Stop):
		return fmt.Errorf("there is no stop %q", a.Stop)
	case a.Repeat < 0 || a.DelayMS < 0 || a.FirstMS < 0 || a.Chunk < 0:
		return errors.New("a number is below 0")
	}
	for _, h := range a.Hold {
		if h.AfterEvents < 1 || h.File == "" {
			return errors.New("hold needs after_events and a file")
		}
	}
	for _, c := range a.Calls {
		if c.Tool == "" {
			return errors.New("a call names no tool")
		}
		if c.Raw != nil && c.Args != nil {
			return fmt.Errorf("the call of %s has both args and raw", c.Tool)
		}
	}
	for name, re := range a.Capture {
		if _, err := regexp.Compile(re); err != nil {
			return fmt.Errorf("capture %s: %w", name, err)
		}
	}
	if a.Expect != nil {
		return a.Expect.check()
	}
	return nil
}

func (e *Expect) check() error {
	for _, re := range e.Matches {
		if _, err := regexp.Compile(re); err != nil {
			return err
		}
	}
	return nil
}
