package eventlog

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"glasshouse/backend/domain"
)

func TestBlobs(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	l := openTest(t, dir)
	const body = "some bytes\x00 of an artefact"
	b, err := l.PutBlob(ctx, strings.NewReader(body), int64(len(body)))
	must(t, err)
	again, err := l.PutBlob(ctx, strings.NewReader(body), 1<<20)
	must(t, err)
	if b.Size != int64(len(body)) || again.Sha256 != b.Sha256 {
		t.Fatal(b, again)
	}
	got, err := l.ReadBlob(b.Sha256, 1<<20)
	must(t, err)
	if string(got) != body {
		t.Fatalf("%q", got)
	}
	if _, err := l.PutBlob(ctx, strings.NewReader(body), int64(len(body))-1); domain.CodeOf(err) != domain.CodeTooLarge {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if _, err := l.PutBlob(ctx, io.MultiReader(strings.NewReader("x"), &failing{boom}), 100); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if _, err := l.ReadBlob(b.Sha256, 3); domain.CodeOf(err) != domain.CodeTooLarge {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "../../etc/passwd", strings.Repeat("a", 63), strings.Repeat("A", 64), strings.Repeat("a", 62) + "/x"} {
		if _, err := l.OpenBlob(bad); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := l.OpenBlob(strings.Repeat("a", 64)); domain.CodeOf(err) != domain.CodeNotFound {
		t.Fatal(err)
	}

	w, err := l.CreateBlob(5, "text/plain", "out")
	must(t, err)
	for _, p := range []string{"abc", "defg", "h"} {
		if n, err := w.Write([]byte(p)); err != nil || n != len(p) {
			t.Fatal(n, err)
		}
	}
	s, err := w.Commit()
	must(t, err)
	w.Abort()
	if s.Size != 5 || w.Dropped() != 3 || s.Mime != "text/plain" || s.Name != "out" {
		t.Fatal(s, w.Dropped())
	}
	if got, err := l.ReadBlob(s.Sha256, 100); err != nil || string(got) != "abcde" {
		t.Fatal(got, err)
	}

	// Bytes that changed on disk are never handed out as whole; storing them again mends them.
	must(t, os.WriteFile(l.blobPath(b.Sha256), []byte(strings.Replace(body, "some", "SOME", 1)), 0o600))
	if _, err := l.ReadBlob(b.Sha256, 1<<20); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatal(err)
	}
	_, err = l.PutBlob(ctx, strings.NewReader(body), 1<<20)
	must(t, err)
	if got, err := l.ReadBlob(b.Sha256, 1<<20); err != nil || string(got) != body {
		t.Fatal(err)
	}

	// What a crash left half written goes at the next start.
	half, err := l.CreateBlob(100, "", "")
	must(t, err)
	_, _ = half.Write([]byte("half"))
	must(t, l.Close())
	l = openTest(t, dir)
	if left, err := os.ReadDir(l.blobTemp()); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }
