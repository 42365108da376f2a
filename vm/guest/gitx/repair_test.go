//go:build linux

package gitx

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

// A repository that is whole stays what it is; one that was destroyed, in whatever
// way, is made anew round the files, and can be reviewed again.
func TestRepair(t *testing.T) {
	src, head := source(t)
	pack := packOf(t, src)
	req := guest.ImportRequest{Branch: "main", Commit: head, AuthorName: "A B", AuthorEmail: "a@b"}
	for name, c := range map[string]struct {
		do   func(t *testing.T, ws string)
		made bool
		kept string // a file of what was there before
	}{
		"whole":         {func(*testing.T, string) {}, false, ""},
		"own commits":   {func(t *testing.T, ws string) { run(t, ws, nil, "git", "commit", "-q", "--allow-empty", "-m", "own") }, false, ""},
		"gone":          {func(t *testing.T, ws string) { must(t, os.RemoveAll(ws+"/.git")) }, true, ""},
		"all gone":      {func(t *testing.T, ws string) { empty(t, ws) }, true, ""},
		"another":       {func(t *testing.T, ws string) { must(t, os.RemoveAll(ws+"/.git")); run(t, ws, nil, "git", "init", "-q") }, true, "config"},
		"no objects":    {func(t *testing.T, ws string) { must(t, os.RemoveAll(ws+"/.git/objects")) }, true, "config"},
		"no packs":      {func(t *testing.T, ws string) { must(t, os.RemoveAll(ws+"/.git/objects/pack")) }, true, "config"},
		"no HEAD":       {func(t *testing.T, ws string) { must(t, os.Remove(ws+"/.git/HEAD")) }, true, "config"},
		"broken config": {func(t *testing.T, ws string) { write(t, ws+"/.git/config", "[core\n") }, true, "config"},
		"a file": {func(t *testing.T, ws string) {
			must(t, os.RemoveAll(ws+"/.git"))
			write(t, ws+"/.git", "gitdir: /nowhere\n")
		}, true, "."},
		"a link": {func(t *testing.T, ws string) {
			must(t, os.RemoveAll(ws+"/.git"))
			must(t, os.Symlink("/etc", ws+"/.git"))
		}, true, "."},
		"killed before": {func(t *testing.T, ws string) {
			must(t, os.RemoveAll(ws+"/.git/objects"))
			must(t, os.MkdirAll(filepath.Join(ws, fresh, "objects"), 0o755))
		}, true, "config"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := filepath.Join(t.TempDir(), "ws")
			g := New(Options{Root: ws, Home: t.TempDir()})
			must(t, g.Import(bg, req, bytes.NewReader(pack)))
			write(t, ws+"/dir/b.txt", "changed\n")
			write(t, ws+"/new", "new\n")
			c.do(t, ws)
			before := listing(t, ws)
			// Without a pack it only looks, and whatever it found no harm is done.
			if made, err := g.Repair(bg, req, nil); made || (err == nil) == c.made {
				t.Fatalf("without a pack: made %v, %v", made, err)
			}
			made, err := g.Repair(bg, req, bytes.NewReader(pack))
			if err != nil || made != c.made {
				t.Fatalf("made %v, %v", made, err)
			}
			if got := listing(t, ws); got != before {
				t.Errorf("the files are\n%s not\n%s", got, before)
			}
			if _, err := os.Lstat(filepath.Join(ws, fresh)); err == nil {
				t.Error("what it was made in is left")
			}
			kept, err := os.Lstat(filepath.Join(ws, ".git", "glasshouse-before", c.kept))
			if (err == nil) != (c.kept != "") {
				t.Errorf("kept: %v %v", kept, err)
			}
			if name == "own commits" {
				return
			}
			if got := run(t, ws, nil, "git", "log", "--format=%s", "main"); got != "two\none" {
				t.Errorf("log: %q", got)
			}
			if got := run(t, ws, nil, "git", "config", "user.name"); got != "A B" {
				t.Errorf("author %q", got)
			}
			run(t, ws, nil, "git", "fsck", "--strict")
			if name != "all gone" {
				if got := run(t, ws, nil, "git", "status", "--porcelain"); got != " M dir/b.txt\n?? new" {
					t.Errorf("status:\n%s", got)
				}
			}
			cand, err := g.Candidate(bg, head, "x")
			if err != nil {
				t.Fatal(err)
			}
			if got := run(t, ws, nil, "git", "diff", "--name-only", head, cand.Commit); name != "all gone" && got != "dir/b.txt\nnew" {
				t.Errorf("the candidate changes %q", got)
			}
			// Again there is nothing to do.
			if made, err := g.Repair(bg, req, bytes.NewReader(pack)); made || err != nil {
				t.Errorf("again: %v %v", made, err)
			}
		})
	}
}

// One that was killed between its last two renames is finished, and what it kept stays.
func TestRepairCutShort(t *testing.T) {
	src, head := source(t)
	ws := filepath.Join(t.TempDir(), "ws")
	g := New(Options{Root: ws, Home: t.TempDir()})
	req := guest.ImportRequest{Branch: "main", Commit: head}
	must(t, g.Import(bg, req, bytes.NewReader(packOf(t, src))))
	must(t, os.RemoveAll(ws+"/.git/objects"))
	if made, err := g.Repair(bg, req, bytes.NewReader(packOf(t, src))); !made || err != nil {
		t.Fatal(made, err)
	}
	must(t, os.Rename(ws+"/.git", filepath.Join(ws, fresh)))
	if made, err := g.Repair(bg, req, nil); !made || err != nil {
		t.Fatal(made, err)
	}
	if _, err := os.Stat(ws + "/.git/glasshouse-before/HEAD"); err != nil {
		t.Error(err)
	}
	run(t, ws, nil, "git", "fsck", "--strict")
}

// A repository without commits is made anew where there is none.
func TestRepairEmpty(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	g := New(Options{Root: ws, Home: t.TempDir()})
	req := guest.ImportRequest{Branch: "main"}
	must(t, g.Import(bg, req, nil))
	write(t, ws+"/x", "x")
	if made, err := g.Repair(bg, req, nil); made || err != nil {
		t.Fatal(made, err)
	}
	must(t, os.RemoveAll(ws+"/.git"))
	if made, err := g.Repair(bg, req, nil); !made || err != nil {
		t.Fatal(made, err)
	}
	if c, err := g.Candidate(bg, "", "x"); err != nil || c.Commit == "" {
		t.Errorf("%+v %v", c, err)
	}
	for _, bad := range []guest.ImportRequest{{}, {Branch: "-x"}, {Branch: "main", Commit: "--all"}, {Branch: "main", Overlay: []guest.OverlayFile{{Path: "x"}}}} {
		if _, err := g.Repair(bg, bad, nil); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range es {
		must(t, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
}

// listing is the files outside .git with what they hold.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		if err != nil || rel == ".git" || rel == fresh {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		if !d.IsDir() {
			b, _ := os.ReadFile(p)
			out.WriteString(rel + ": " + string(b))
		}
		return nil
	}))
	return out.String()
}
