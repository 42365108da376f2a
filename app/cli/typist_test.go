package cli

import (
	"fmt"
	"io"
	"testing"
)

// A line that comes right after its prompt is an answer, also where who asked is not
// back from showing it; one that comes while nothing is asked answers nothing.
func TestALineThatComesAtOnceIsTaken(t *testing.T) {
	in, typed := io.Pipe()
	l := (&env{in: in}).lines(func(line string) bool { return line == "for another" })
	// What is written here was read when the write returns, and passed on when the next one does.
	say := func(line string) { fmt.Fprintln(typed, line) }
	say("too early")
	say("for another")
	c := l.next()
	say("yes")
	say("too late")
	say("for another")
	if line, ok := <-c; line != "yes" || !ok {
		t.Errorf("%q %v", line, ok)
	}
	c = l.next()
	l.none()
	say("not awaited any more")
	say("for another")
	select {
	case line, ok := <-c:
		t.Errorf("%q %v", line, ok)
	default:
	}
	c = l.next()
	typed.Close()
	if line, ok := <-c; ok {
		t.Errorf("after the end %q is typed", line)
	}
	if line, ok := <-l.next(); ok {
		t.Errorf("after the end %q is typed", line)
	}
}
