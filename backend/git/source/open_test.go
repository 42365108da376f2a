package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error names what was typed, not the part of it at which the system stopped.
func TestOpenNamesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "such", "folder")
	_, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), "there is no folder "+path) || strings.Contains(err.Error(), "lstat") {
		t.Errorf("%v", err)
	}
}

// A bare repository whose HEAD names a branch that was never pushed is no empty one.
func TestOpenBareWithoutItsBranch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("HEAD", "ref: refs/heads/master\n")
	write("config", "[core]\n\tbare = true\n\trepositoryformatversion = 0\n")
	for _, d := range []string{"objects", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := Open(dir); err != nil || s.Kind != Bare {
		t.Fatalf("an empty one: %v %v", s, err)
	}
	id := strings.Repeat("1", 40)
	write("packed-refs", "# pack-refs with: peeled fully-peeled sorted \n"+id+" refs/heads/main\n")
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "names the branch master, which is not there; it has main") {
		t.Errorf("packed: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "packed-refs")); err != nil {
		t.Fatal(err)
	}
	write("refs/heads/topic/one", id+"\n")
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "it has topic/one") {
		t.Errorf("loose: %v", err)
	}
}
