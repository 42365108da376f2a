package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// screen is the output of a command that writes text as it comes, lines meanwhile and
// questions beside them. Only on a terminal does it know what stands on the last line:
// what is written next then begins on a line of its own, and a prompt that waits is
// shown again below it.
type screen struct {
	mu     sync.Mutex
	out    io.Writer
	tty    bool
	colour bool
	open   bool   // the last line has no end yet
	torn   bool   // other lines came into text that goes on
	state  string // stands on the last line for the time being
	prompt string // what waits to be typed after
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, tty: isTerminal(out)}
	s.colour = s.tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// isTerminal reports whether a reader or writer is a terminal that a person may be at.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Write writes whole lines.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines(s.out, b)
}

func (s *screen) lines(w io.Writer, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s.wipe()
	if s.open {
		_, _ = io.WriteString(s.out, "\n")
		s.torn = true
	}
	s.open = !bytes.HasSuffix(b, []byte("\n"))
	n, err := w.Write(b)
	if s.prompt != "" && err == nil {
		_, err = io.WriteString(w, s.prompt)
		s.open = true
	}
	return n, err
}

// text goes on with the open line; where that was ended for another, on one set in by gutter.
func (s *screen) text(gutter, t string) {
	if t == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	if s.prompt != "" && s.open { // never into what a person types
		_, _ = io.WriteString(s.out, "\n")
		s.prompt = ""
	}
	if s.torn && t[0] != '\n' {
		t = gutter + t
	}
	s.torn = false
	_, _ = io.WriteString(s.out, t)
	s.open = !strings.HasSuffix(t, "\n")
}

// end ends an open line.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	if s.open {
		_, _ = io.WriteString(s.out, "\n")
	}
	s.open, s.torn = false, false
}

// status shows a text on the last line of a terminal until something else is written;
// "" takes it away. It stays away where a line is open.
func (s *screen) status(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tty || os.Getenv("TERM") == "dumb" || s.open || s.prompt != "" || text == s.state {
		return
	}
	s.wipe()
	if f, is := s.out.(*os.File); is { // a text of more than a line cannot be wiped
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 1 {
			text = string([]rune(text)[:min(len([]rune(text)), w-1)])
		}
	}
	_, _ = io.WriteString(s.out, s.paint(dim, text))
	s.state = text
}

func (s *screen) wipe() {
	if s.state != "" {
		_, _ = io.WriteString(s.out, "\r\x1b[K")
		s.state = ""
	}
}

// beside returns a writer for lines on w that keep clear of what the screen shows.
func (s *screen) beside(w io.Writer) besides {
	return besides{s, w, s.tty && isTerminal(w)}
}

type besides struct {
	s    *screen
	w    io.Writer
	same bool // both are seen in one place
}

func (b besides) Write(p []byte) (int, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if !b.same {
		return b.w.Write(p)
	}
	return b.s.lines(b.w, p)
}

// ask shows a prompt; "" takes it away, for its line was typed or is not awaited any more.
func (b besides) ask(prompt string, typed bool) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if !b.same {
		_, _ = io.WriteString(b.w, prompt)
		return
	}
	if prompt == "" {
		b.s.prompt = ""
		if typed {
			b.s.open = false // the terminal ended it
		}
		return
	}
	_, _ = b.s.lines(b.w, []byte(prompt))
	b.s.prompt = prompt
}

// paint colours text where colours are wanted.
func (s *screen) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Colours by what they mean.
const (
	dim    = "2"
	good   = "32"
	bad    = "31"
	asking = "33"
)
