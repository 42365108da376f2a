//go:build linux

package gitx

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

// The repository made without git is what git itself would have made.
func TestEmptyImportIsWhatGitInits(t *testing.T) {
	ws, plain := t.TempDir()+"/ws", t.TempDir()
	g := New(Options{Root: ws, Home: t.TempDir()})
	if err := g.Import(bg, guest.ImportRequest{Branch: "neu/ä"}, nil); err != nil {
		t.Fatal(err)
	}
	run(t, plain, nil, "git", "init", "-q", "-b", "neu/ä")
	core := func(dir string) string {
		return run(t, dir, nil, "git", "config", "--local", "--get-regexp", "^(core|extensions)[.]")
	}
	if got, want := core(ws), core(plain); got != want {
		t.Errorf("settings\n%s\ngit init makes\n%s", got, want)
	}
	for _, name := range []string{"HEAD", "description"} {
		got, err := os.ReadFile(filepath.Join(ws, ".git", name))
		want, err2 := os.ReadFile(filepath.Join(plain, ".git", name))
		if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is %q, git init writes %q (%v)", name, got, want, err)
		}
	}
	// Every folder that git init makes is there, with the same mode.
	err := filepath.Walk(plain+"/.git", func(p string, fi os.FileInfo, err error) error {
		if err != nil || !fi.IsDir() || fi.Name() == "branches" { // long out of use
			return err
		}
		got, err := os.Stat(ws + strings.TrimPrefix(p, plain))
		if err == nil && got.Mode() != fi.Mode() {
			t.Errorf("%s is %v, git init makes it %v", p, got.Mode(), fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if h, err := g.Head(bg); err != nil || !h.Repo || h.Branch != "neu/ä" || h.Commit != "" || !h.Clean {
		t.Errorf("%+v, %v", h, err)
	}
	// It can be worked in at once.
	write(t, ws+"/a", "a\n")
	run(t, ws, nil, "git", "add", "a")
	run(t, ws, nil, "git", "commit", "-qm", "first")
	run(t, ws, nil, "git", "fsck", "--strict")
}

func TestBranchNamesAreGits(t *testing.T) {
	for _, name := range []string{"main", "a/b", "neu/ä", "@", "a@b", "-x", "a.lock", "a.lock/b", "x.", "a@{1}", "a..b", ".a", "a/.b", "a//b", "/a", "a/", "a b", "a~1", "a:b", "a\\b", "a*", "a\x01b"} {
		err := checkRef("refs/heads/" + name)
		cmd := exec.Command("git", "check-ref-format", "refs/heads/"+name)
		if git := cmd.Run(); (err == nil) != (git == nil) {
			t.Errorf("%q: %v, and git says %v", name, err, git)
		}
	}
}
