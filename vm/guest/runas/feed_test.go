package runas

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A conversation ends with its program, also when the other side only listens: nothing
// more will be said to a program that is gone.
func TestAConversationEndsWithItsProgram(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		cancel bool
	}{
		"it ends":     {"read x; echo $x; exit 3", false},
		"it is ended": {"read x; echo $x; exec sleep 600", true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				err := User(-1, -1)(ctx, []string{"sh", "-c", c.script}, []string{"PATH=/usr/bin:/bin"}, "/", inR, outW, io.Discard)
				inR.CloseWithError(errors.New("gone"))
				outW.CloseWithError(errors.New("gone"))
				ended <- err
			}()
			if _, err := io.WriteString(inW, "hello\n"); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(outR)
			if line, err := out.ReadString('\n'); line != "hello\n" || err != nil {
				t.Fatalf("%q %v", line, err)
			}
			if c.cancel {
				cancel()
			}
			if _, err := out.ReadString('\n'); err == nil || err.Error() != "gone" {
				t.Errorf("the listener heard %v", err)
			}
			select {
			case err := <-ended:
				if c.cancel != errors.Is(err, context.Canceled) || !c.cancel && Code(err) != 3 {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it never returned")
			}
		})
	}
}

func TestFeeding(t *testing.T) {
	run := func(in io.Reader, script string) (string, error) {
		var out bytes.Buffer
		err := User(-1, -1)(t.Context(), []string{"sh", "-c", script}, []string{"PATH=/usr/bin:/bin"}, "/", in, &out, io.Discard)
		return strings.TrimSpace(out.String()), err
	}
	large := strings.Repeat("0123456789abcdef", 1<<16)
	if out, err := run(strings.NewReader(large), "wc -c"); out != fmt.Sprint(len(large)) || err != nil {
		t.Errorf("%q %v", out, err)
	}
	if out, err := run(strings.NewReader(large), "head -c 3"); out != "012" || err != nil {
		t.Errorf("what it does not want: %q %v", out, err)
	}
	if _, err := run(io.MultiReader(strings.NewReader("some"), iotest.ErrReader(errors.New("cut"))), "cat"); err == nil || err.Error() != "cut" {
		t.Errorf("a reader that fails: %v", err)
	}
	if out, err := run(nil, "wc -c"); out != "0" || err != nil {
		t.Errorf("nothing: %q %v", out, err)
	}
}
