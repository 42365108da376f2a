package e2e

import (
	"strings"
	"testing"
)

func TestExecAndQuit(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		p := w.Project("")
		s := w.Session(p)
		a := w.Bash(s, "echo hello; echo oops >&2; echo x >new.txt; exit 3")
		if a.ExitCode == nil || *a.ExitCode != 3 || a.Stdout != "hello\n" || a.Stderr != "oops\n" {
			t.Fatalf("%+v", a)
		}
		if len(a.FileChanges) != 1 || a.FileChanges[0].Path != "new.txt" || a.FileChanges[0].Op != "add" {
			t.Fatalf("changes: %+v", a.FileChanges)
		}
		out, err := w.CLI("exec", "--session", s, "--", "cat", "new.txt")
		if err != nil || out != "x\n" {
			t.Fatalf("%q %v", out, err)
		}
		if out, err = w.CLI("quit"); err != nil || !strings.Contains(out, "all machines are off") {
			t.Fatalf("%q %v", out, err)
		}
		w.core = nil
		if left := w.left(); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	})
}
