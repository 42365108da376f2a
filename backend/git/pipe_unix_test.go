package git_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func replaceWithPipe(t testing.TB, path string) {
	t.Helper()
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.Remove(path)
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}
