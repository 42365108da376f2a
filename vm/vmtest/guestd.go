package vmtest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"glasshouse/vm/proc"
)

var guestdOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "guestd-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // another user runs it
		return "", err
	}
	path := filepath.Join(dir, "guestd")
	r := &proc.Runner{}
	env := append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	_, err = r.Run(context.Background(), proc.Cmd{
		Role: "go-build", Path: "go", Env: env,
		Args: []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path, "glasshouse/vm/guest/cmd/guestd"},
	})
	return path, err
})

// Guestd builds guestd once per test binary, or takes the one that
// GLASSHOUSE_TEST_GUESTD names. Call RemoveGuestd at the end of TestMain.
func Guestd(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("GLASSHOUSE_TEST_GUESTD"); p != "" {
		return p
	}
	p, err := guestdOnce()
	if err != nil {
		t.Fatalf("guestd cannot be built: %v", err)
	}
	built.Store("path", p)
	return p
}

var built sync.Map

// RemoveGuestd removes what Guestd built.
func RemoveGuestd() {
	if p, ok := built.Load("path"); ok {
		_ = os.RemoveAll(filepath.Dir(p.(string)))
	}
}

// Image is the folder of a built guest image, as named by
// GLASSHOUSE_TEST_IMAGE; without it the test is skipped, saying so.
func Image(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("GLASSHOUSE_TEST_IMAGE")
	if dir == "" {
		t.Skip("SKIPPED: GLASSHOUSE_TEST_IMAGE is not set to the folder of a built guest image (the one with rootfs in it)")
	}
	if _, err := os.Stat(filepath.Join(dir, "rootfs", "usr")); err != nil {
		t.Fatalf("GLASSHOUSE_TEST_IMAGE=%s has no root file system: %v", dir, err)
	}
	return dir
}

// TempDir is a temporary folder that another user may pass through, removed
// with everything a guest made in it.
func TempDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for p := dir; p != filepath.Clean(os.TempDir()) && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // folders that a guest made unreadable for their owner
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	return dir
}

// stopSoon is the context of a Stop in a clean-up.
func stopSoon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}
