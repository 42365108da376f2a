package git_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
)

// inMirror lets the real git look at a mirror.
func inMirror(t testing.TB, m *git.Mirror) *gittest.Repo {
	return &gittest.Repo{T: t, Dir: m.Dir()}
}

func TestReceiveAndPackForAgreeWithGit(t *testing.T) {
	for seed := range int64(4) {
		rnd := rand.New(rand.NewSource(seed))
		src := gittest.Init(t)
		var commits []string
		for i := range 12 {
			src.Mutate(rnd, 8)
			if i == 7 {
				src.Git("repack", "-adfq", "--depth=50", "--window=20")
			}
			commits = append(commits, src.Commit("step"))
		}
		head := commits[len(commits)-1]
		m, _ := openMirror(t)
		// In two parts: the second builds upon the first.
		rec, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(commits[5])), []string{commits[5]}, git.GuestLimits())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if rec.Objects == 0 || rec.Inflated == 0 {
			t.Fatalf("nothing counted: %+v", rec)
		}
		if _, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(head, "^"+commits[5])), []string{head}, git.GuestLimits()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := m.SetRef("refs/glasshouse/base", head, ""); err != nil {
			t.Fatal(err)
		}
		in := inMirror(t, m)
		in.Git("fsck", "--strict", "--full", "--no-dangling")
		if got, want := in.Git("rev-list", "--objects", "--all", "--no-object-names"), src.Git("rev-list", "--objects", "HEAD", "--no-object-names"); got != want {
			t.Fatal("the mirror's objects differ from the source's")
		}
		// Out again, whole and as the difference.
		for _, have := range [][]string{nil, {commits[5]}} {
			p, err := m.PackFor(t.Context(), head, have...)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			dst := gittest.InitBare(t)
			if have != nil {
				dst.GitIn(src.Pack(commits[5]), "index-pack", "--stdin")
			}
			dst.GitIn(data, "index-pack", "--stdin", "--strict")
			if got, want := dst.Git("rev-list", "--objects", "--no-object-names", head), src.Git("rev-list", "--objects", "HEAD", "--no-object-names"); got != want {
				t.Fatal("the pack's objects differ from the source's")
			}
		}
	}
}

func TestReceiveNeedsWhatIsNamed(t *testing.T) {
	src := gittest.Init(t)
	src.Write("a", "one\n")
	c1 := src.Commit("one")
	src.Write("b", "two\n")
	c2 := src.Commit("two")
	m, _ := openMirror(t)
	_, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(c2, "^"+c1)), []string{c2}, git.GuestLimits())
	wantPackError(t, m, err, git.ErrMissing)
	_, err = m.Receive(t.Context(), bytes.NewReader(src.Pack(c1)), []string{c2}, git.GuestLimits())
	wantPackError(t, m, err, git.ErrMissing)
	tree := src.Git("rev-parse", c1+"^{tree}")
	_, err = m.Receive(t.Context(), bytes.NewReader(src.Pack(c1)), []string{tree}, git.GuestLimits())
	wantPackError(t, m, err, git.ErrMissing)
}

func wantPackError(t testing.TB, m *git.Mirror, err, want error) {
	t.Helper()
	var pe *git.PackError
	if !errors.As(err, &pe) || pe.Why != want {
		t.Fatalf("got %v, want a PackError of %v", err, want)
	}
	if !strings.Contains(err.Error(), "unchanged") || len(err.Error()) > 1500 {
		t.Fatalf("unhelpful error: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(m.Dir(), "objects", "pack", "*"))
	q, _ := os.ReadDir(filepath.Join(m.Dir(), "quarantine"))
	if len(left) != 0 || len(q) != 0 {
		t.Fatalf("the mirror changed: %v %v", left, q)
	}
}
