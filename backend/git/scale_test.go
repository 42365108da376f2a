package git_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
)

// BenchmarkImport brings in a repository of 13,000 files and 400 commits, and packs
// it for a guest. Run it with -benchtime 1x.
func BenchmarkImport(b *testing.B) {
	src := largeRepo(b, 13_000, 400)
	for range b.N {
		m, r := openMirrorEnv(b, nil)
		start := time.Now()
		res, err := m.ImportSource(b.Context(), src.Dir, git.ImportOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/import")
		start = time.Now()
		p, err := m.PackFor(b.Context(), res.Commit)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, p)
		if err != nil {
			b.Fatal(err)
		}
		_ = p.Close()
		b.ReportMetric(time.Since(start).Seconds(), "s/pack")
		b.ReportMetric(float64(n)/(1<<20), "MiB/pack")
		if len(res.Dirty) != 0 {
			b.Fatalf("%d dirty files in a clean repository", len(res.Dirty))
		}
		_ = r
	}
}

// largeRepo is made by fast-import, packed, and checked out.
func largeRepo(t testing.TB, files, commits int) *gittest.Repo {
	t.Helper()
	r := gittest.Init(t)
	rnd := rand.New(rand.NewSource(1))
	var b bytes.Buffer
	content := func(i, v int) string {
		s := fmt.Sprintf("// file %d version %d\n", i, v)
		for k := range 60 {
			s += fmt.Sprintf("line %d of file %d: %d\n", k, i, (i*k)%97)
		}
		return s
	}
	for c := range commits {
		fmt.Fprintf(&b, "commit refs/heads/main\ncommitter C <c@example.org> %d +0000\ndata 4\nstep\n", 1700000000+c)
		n := 30
		if c == 0 {
			n = files
		}
		for k := range n {
			i := k
			if c > 0 {
				i = rnd.Intn(files)
			}
			s := content(i, c)
			fmt.Fprintf(&b, "M 100644 inline p%d/q%d/f%d.go\ndata %d\n%s\n", i%40, i%7, i, len(s), s)
		}
	}
	r.GitIn(b.Bytes(), "fast-import", "--quiet")
	r.Git("repack", "-adfq")
	r.Git("checkout", "-q", "-f", "main")
	old := time.Now().Add(-time.Hour)
	_ = filepath.WalkDir(r.Dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_ = os.Chtimes(p, old, old)
		}
		return nil
	})
	r.Git("update-index", "-q", "--refresh")
	return r
}
