package eventlog

import (
	"context"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// The disk fills up: the append fails in words, nothing that was confirmed is
// lost, and when there is space again the log goes on without a gap.
func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	l, err := Open(dir, Options{})
	must(t, err)
	defer l.Close()
	big := strings.Repeat("x", 30000)
	var last event.Envelope
	for range 1000 {
		var out []event.Envelope
		if out, err = l.Append(ctx, msg("session:a", big)); err != nil {
			break
		}
		last = out[0]
	}
	if domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "disk") || last.ID == 0 {
		t.Fatalf("after event %d: %v", last.ID, err)
	}
	if _, err := l.PutBlob(ctx, strings.NewReader(strings.Repeat(big, 200)), 1<<30); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Fatalf("artefact on a full disk: %v", err)
	}
	if left, err := os.ReadDir(l.blobTemp()); err != nil || len(left) != 0 {
		t.Fatal("a half written artefact stays", left, err)
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=40m"))
	out, err := l.Append(ctx, msg("session:a", "again"))
	must(t, err)
	if out[0].ID != last.ID+1 || out[0].Seq != last.Seq+1 {
		t.Fatalf("%d after %d", out[0].ID, last.ID)
	}
	mustVerify(t, l)
}
