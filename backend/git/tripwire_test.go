package git_test

import (
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
)

// TestHostileSourceRunsNothing: everything the host does with a repository that is
// poisoned from top to bottom, with a control that the poison works.
func TestHostileSourceRunsNothing(t *testing.T) {
	w := gittest.NewTripwire(t)
	src, outside := gittest.Hostile(t, w)
	beforeOut := fingerprint(t, outside)
	m, res, err := importInto(t, src.Dir, "untracked.txt") // compares the folder before and after
	if err != nil {
		t.Fatal(err)
	}
	w.Silent(t, "importing")
	sameFolder(t, beforeOut, fingerprint(t, outside))
	// The clean filter would have to run to know whether the other two changed.
	if len(res.Overlay) != 1 || string(res.Overlay[0].Data) != "new\n" || !slices.Equal(res.MayDiffer, []string{"plain.txt", "proc.p"}) {
		t.Fatalf("%+v %q", res.Overlay, res.MayDiffer)
	}
	for _, f := range res.Overlay {
		if strings.Contains(string(f.Data), "untouched") {
			t.Error("a file was read through a link")
		}
	}
	in := inMirror(t, m)
	names := strings.Split(in.Git("ls-tree", "-r", "-z", "--name-only", res.Commit), "\x00")
	for _, n := range gittest.OddNames {
		if !slices.Contains(names, n) {
			t.Errorf("the name %q did not survive", n)
		}
	}
	p, err := m.PackFor(t.Context(), res.Commit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, p); err != nil {
		t.Fatal(err)
	}
	_ = p.Close()

	// Out of the mirror, whose history is the hostile one.
	remote := gittest.InitBare(t)
	if _, err := m.Push(t.Context(), git.PushSpec{URL: remote.Dir, Ref: "refs/heads/main", Commit: res.Commit}); err != nil {
		t.Fatal(err)
	}
	w.Silent(t, "pushing what came from it")

	// To a remote on this computer that is poisoned itself.
	poisoned := gittest.InitBare(t)
	gittest.Poison(poisoned, w)
	w.Reset()
	spec := git.PushSpec{URL: poisoned.Dir, Ref: "refs/heads/main", Commit: res.Commit}
	if _, err := m.Push(t.Context(), spec); domain.CodeOf(err) != domain.CodeDenied {
		t.Errorf("a poisoned remote was not asked about: %v", err)
	}
	if _, err := m.RemoteRefs(t.Context(), poisoned.Dir); err != nil {
		t.Logf("asking the poisoned remote: %v", err)
	}
	w.Silent(t, "asking a poisoned remote")
	if _, err := m.Push(t.Context(), git.PushSpec{URL: src.Dir, Ref: "refs/heads/other", Commit: res.Commit}); domain.CodeOf(err) != domain.CodeDenied {
		t.Errorf("the poisoned source as a remote was not asked about: %v", err)
	}
	w.Silent(t, "pushing to the source")
	if f, err := m.Fetch(t.Context(), src.Dir, "refs/heads/main"); err != nil || f.Commit != res.Commit {
		t.Errorf("fetching from it: %+v %v", f, err)
	}
	m2, _ := openMirrorEnv(t, nil)
	if _, err := m2.ImportSource(t.Context(), "file://"+src.Dir, git.ImportOptions{}); err != nil {
		t.Errorf("importing it by address: %v", err)
	}
	w.Silent(t, "fetching from it")
	sameFolder(t, beforeOut, fingerprint(t, outside))

	// The control.
	fired := src.Fires(w)
	for _, want := range []string{"core.fsmonitor", "filter.trip.clean", "diff.external", "diff.trip.textconv", "hook.pre-commit", "alias.status"} {
		if !slices.Contains(fired, want) && !(want == "core.fsmonitor" && slices.Contains(fired, "included.fsmonitor")) && !(want == "diff.trip.textconv" && (slices.Contains(fired, "included.textconv") || slices.Contains(fired, "diff.trip.command"))) {
			t.Errorf("plain git does not fire %s, so its silence proves nothing; fired: %q", want, fired)
		}
	}
	if len(fired) < 6 {
		t.Errorf("only %q fired under plain git", fired)
	}
	t.Logf("under plain git: %q", fired)
}

// TestHostilePlacesInGitDirs: things in the place of files that would hold a reader for ever or lead it away.
func TestHostilePlacesInGitDirs(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, gd string){
		"HEAD is a pipe":              func(t *testing.T, gd string) { replaceWithPipe(t, filepath.Join(gd, "HEAD")) },
		"the branch is a pipe":        func(t *testing.T, gd string) { replaceWithPipe(t, filepath.Join(gd, "refs/heads/main")) },
		"the index is a pipe":         func(t *testing.T, gd string) { replaceWithPipe(t, filepath.Join(gd, "index")) },
		"the configuration is a pipe": func(t *testing.T, gd string) { replaceWithPipe(t, filepath.Join(gd, "config")) },
		"packed-refs is a pipe": func(t *testing.T, gd string) {
			_ = os.Remove(filepath.Join(gd, "refs/heads/main"))
			replaceWithPipe(t, filepath.Join(gd, "packed-refs"))
		},
		"alternates is a pipe": func(t *testing.T, gd string) { replaceWithPipe(t, filepath.Join(gd, "objects/info/alternates")) },
		"HEAD leaves the repository": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "HEAD"), "ref: refs/heads/../../../../etc/passwd\n")
		},
		"HEAD names a file": func(t *testing.T, gd string) { put(t, filepath.Join(gd, "HEAD"), "ref: ../../etc/passwd\n") },
		"HEAD in a circle": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "HEAD"), "ref: refs/heads/main\n")
			put(t, filepath.Join(gd, "refs/heads/main"), "ref: refs/heads/main\n")
		},
		"HEAD is garbage":              func(t *testing.T, gd string) { put(t, filepath.Join(gd, "HEAD"), strings.Repeat("x", 3000)) },
		"the configuration is garbage": func(t *testing.T, gd string) { put(t, filepath.Join(gd, "config"), "[[[\x00\xff") },
		"the configuration is endless": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "config"), strings.Repeat("[a]\nb=c\n", 1<<18))
		},
		"a pack index is garbage": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "objects/pack/pack-"+strings.Repeat("a", 40)+".idx"), "x")
			put(t, filepath.Join(gd, "objects/pack/pack-"+strings.Repeat("a", 40)+".pack"), "y")
		},
		"a newer format": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "config"), "[core]\n\trepositoryformatversion = 99\n")
		},
		"an unknown extension": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "config"), "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tmagic = true\n")
		},
		"reftable": func(t *testing.T, gd string) {
			put(t, filepath.Join(gd, "config"), "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefstorage = reftable\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := gittest.Init(t)
			src.Write("a", "1")
			src.Commit("one")
			spoil(t, filepath.Join(src.Dir, ".git"))
			m, _ := openMirrorEnv(t, nil)
			_, err := m.ImportSource(t.Context(), src.Dir, git.ImportOptions{})
			if err == nil {
				t.Fatal("it was taken")
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			unchangedObjects(t, m)
		})
	}
}

func unchangedObjects(t testing.TB, m *git.Mirror) {
	t.Helper()
	refs, err := m.Refs()
	if err != nil || len(refs) != 0 && refs[git.BaseRef] == "" {
		t.Fatalf("%v %v", refs, err)
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestNoWorkTreeInTheHostsCode: the library's root package holds the work tree,
// status, checkout and clone; nothing here may import it.
func TestNoWorkTreeInTheHostsCode(t *testing.T) {
	const root = "github.com/go-git/go-git/v5"
	banned := map[string]string{
		root: "its root package has work trees, status and checkout", root + "/storage/filesystem": "it follows alternates by itself",
		root + "/plumbing/transport": "transports start programs", "os/exec": "processes go through glasshouse/vm/proc",
	}
	files := 0
	for _, dir := range []string{".", "../review"} {
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "gittest" {
				if d != nil && d.IsDir() && d.Name() == "gittest" {
					return filepath.SkipDir
				}
				return err
			}
			if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
				return nil
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, im := range f.Imports {
				path := strings.Trim(im.Path.Value, `"`)
				for b, why := range banned {
					if path == b || b != root && strings.HasPrefix(path, b+"/") {
						t.Errorf("%s imports %s: %s", p, path, why)
					}
				}
				if strings.HasSuffix(path, "/gittest") {
					t.Errorf("%s imports %s, which is for tests", p, path)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 15 {
		t.Fatalf("only %d files were looked at", files)
	}
}
