package proc

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process and what it starts hold no more than they may; others are as they were.
func TestMemoryIsBounded(t *testing.T) {
	row(t, "test-memory", time.Minute, "sh")
	r := &Runner{}
	// It asks once it is told to: the bound is there when Start has returned.
	ask := func(n int64) string {
		in, told := io.Pipe()
		var out lockedText
		p, err := r.Start(t.Context(), Cmd{Role: "test-memory", Path: "sh", Args: []string{"-c", "read x; sh -c 'ulimit -d'"}, Stdin: in, Stdout: &out, Memory: n})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(told, "go")
		told.Close()
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.text())
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
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := r.Start(t.Context(), Cmd{Role: "test-memory", Path: "sh", Args: []string{"-c", "sh -c 'echo up; read x <" + gate + "; sh -c \"ulimit -d\"; exit' & wait"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(out.text(), "up"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child never came")
		}
	}
	boundMemory(p.Pid(), 64<<20)
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
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
