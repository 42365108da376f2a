package git_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/vm/proc"
)

// What is looked at before a project is made is what its making then finds.
func TestLookAgreesWithTheImport(t *testing.T) {
	src := gittest.Init(t)
	src.Write("a.txt", "one\n")
	src.Write("gone.txt", "g\n")
	src.Write(".gitignore", "*.log\n")
	src.Commit("one")
	src.Write("a.txt", "two\n")
	src.Write("new.txt", "n\n")
	src.Write("x.log", "ignored\n")
	src.Write(".env", "SECRET=1\n")
	src.Remove("gone.txt")
	before := fingerprint(t, src.Dir)
	got, err := git.Look(t.Context(), src.Dir, git.Options{Runner: &proc.Runner{}, Getenv: func(k string) string {
		if k == "PATH" {
			return os.Getenv(k)
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	if after := fingerprint(t, src.Dir); !reflect.DeepEqual(before, after) {
		t.Error("the folder changed by being looked at")
	}
	_, want, err := importInto(t, src.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Kind != "repository" || got.Branch != want.Branch || got.Commit != want.Commit || got.Files != want.Files || got.Ignored != want.Ignored {
		t.Errorf("looked at: %+v\nimported: %+v", got, want)
	}
	if !reflect.DeepEqual(got.Dirty, want.Dirty) || len(got.Dirty) != 4 {
		t.Errorf("looked at: %+v\nimported: %+v", got.Dirty, want.Dirty)
	}
}

func TestLookAtWhatIsNoRepository(t *testing.T) {
	opt := git.Options{Runner: &proc.Runner{}}
	dir := t.TempDir()
	if res, err := git.Look(t.Context(), dir, opt); err != nil || res.Kind != "folder" {
		t.Errorf("a folder: %+v, %v", res, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(dir, "no such"), "relative", ""} {
		if _, err := git.Look(t.Context(), bad, opt); err == nil {
			t.Errorf("%q was looked at", bad)
		}
	}
}

// Whatever stands where a repository keeps its own files is looked at in an instant
// and named; nothing is waited for, and it is no fault of the program.
func TestLookAtOddRepositories(t *testing.T) {
	for name, odd := range map[string]string{"configuration": "config", "alternates": "objects/info/alternates", "index": "index", "HEAD": "HEAD"} {
		src := gittest.Init(t)
		src.Write("a.txt", "one\n")
		src.Commit("one")
		p := filepath.Join(src.Dir, ".git", odd)
		if err := errors.Join(os.RemoveAll(p), os.MkdirAll(filepath.Dir(p), 0o700), syscall.Mkfifo(p, 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err := git.Look(t.Context(), src.Dir, git.Options{Runner: &proc.Runner{}, Getenv: func(k string) string { return map[string]string{"PATH": os.Getenv("PATH")}[k] }})
		var e *domain.Error
		if !errors.As(err, &e) || e.Code != domain.CodeInvalid || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("a pipe for its %s: %v", name, err)
		}
		if _, _, err := importInto(t, src.Dir); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("imported with a pipe for its %s: %v", name, err)
		}
	}
}
