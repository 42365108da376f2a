package proc

import (
	"strings"
	"testing"
	"time"
)

// A process and what it starts hold no more than they may; others are as they were.
func TestMemoryIsBounded(t *testing.T) {
	row(t, "test-memory", time.Minute, "sh")
	r := &Runner{}
	// Reading a line first gives the bound time to be there, as a slow start would.
	ask := func(n int64) string {
		in := slowly("go\n")
		res, err := r.Run(t.Context(), Cmd{Role: "test-memory", Path: "sh", Args: []string{"-c", "read x; sh -c 'ulimit -d'"}, Stdin: in, Memory: n})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	if got := ask(64 << 20); got != "65536" {
		t.Errorf("a child's bound is %q KiB", got)
	}
	if got := ask(0); got != "unlimited" {
		t.Skipf("this computer bounds all processes already: %s", got)
	}
}

// slowly gives a text after a moment.
type slowly string

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Millisecond)
	return copy(p, s), nil
}
