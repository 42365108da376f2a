package eventlog

import (
	"os"
	"path/filepath"
	"testing"
)

// The folder of a root core is passed through by other users, so the files
// themselves must be closed to them, however old they are.
func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, 1)
	must(t, os.Chmod(filepath.Join(dir, FileName), 0o644)) // as earlier versions made it
	l := openTest(t, dir)
	defer l.Close()
	if _, err := l.Append(t.Context(), msg("session:a", "x")); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, suffix := range []string{"", "-wal", "-shm"} {
		st, err := os.Stat(filepath.Join(dir, FileName+suffix))
		must(t, err)
		seen++
		if st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s%s has mode %v", FileName, suffix, st.Mode().Perm())
		}
	}
	fresh := t.TempDir()
	l2 := openTest(t, fresh)
	defer l2.Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if st, err := os.Stat(filepath.Join(fresh, FileName+suffix)); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("a new %s%s: %v %v", FileName, suffix, st, err)
		}
	}
	if seen != 3 {
		t.Fatal("nothing was looked at")
	}
}
