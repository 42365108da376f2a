package source

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"glasshouse/backend/git/odb"
)

// A folder that cannot be read says nothing about the files in it.
func TestUnreadableFolderHoldsNoDeletions(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	if err := os.MkdirAll(filepath.Join(dir, "open/shut/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	shut := filepath.Join(dir, "open/shut")
	if err := os.Chmod(shut, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(shut, 0o755) })
	if os.Getuid() == 0 {
		// Nothing is shut for root; this thread ends with the test.
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0); runtime.UnlockOSThread() }()
	}
	if _, err := os.ReadDir(shut); err == nil {
		t.Skip("the file system keeps nothing shut")
	}
	s := &Source{Path: dir, Kind: Repository, GitDir: filepath.Join(dir, ".git"), Common: filepath.Join(dir, ".git")}
	opt := ScanOptions{}
	for _, p := range []string{"gone", "open/gone", "open/shut/a", "open/shut/deep/b"} {
		opt.Head = append(opt.Head, odb.File{Path: p, Mode: odb.ModeFile})
	}
	sc, err := s.Scan(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range sc.Dirty {
		got = append(got, d.Op+" "+d.Path)
	}
	if want := []string{"delete gone", "delete open/gone"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if !slices.ContainsFunc(sc.Notes, func(n string) bool { return strings.Contains(n, `"open/shut"`) }) {
		t.Errorf("nothing told of the folder: %q", sc.Notes)
	}
}
