package proc

import (
	"strings"
	"sync"
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

// A child that was started before the bound was set has it too, and so has its child.
func TestMemoryOfEarlierChildrenIsBounded(t *testing.T) {
	row(t, "test-memory", time.Minute, "sh")
	r := &Runner{}
	var out lockedText
	p, err := r.Start(t.Context(), Cmd{Role: "test-memory", Path: "sh", Args: []string{"-c", "sh -c 'echo up; sleep 0.7; sh -c \"ulimit -d\"; exit' & wait"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out.text(), "up"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child never came")
		}
	}
	boundMemory(p.Pid(), 64<<20)
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.text()); len(got) != 2 || got[1] != "65536" {
		t.Errorf("%q", got)
	}
}

// lockedText keeps what is written to it.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// slowly gives a text after a moment.
type slowly string

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Millisecond)
	return copy(p, s), nil
}
