package git_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/vm/proc"
)

// fingerprint is everything about a folder that an import must leave alone:
// names, bytes, modes, owners, links and modification times, .git included.
func fingerprint(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%v %d %s", fi.Mode(), fi.ModTime().UnixNano(), inodeOf(fi))
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(b))
		case fi.Mode()&os.ModeSymlink != 0:
			l, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + l
		}
		rel, _ := filepath.Rel(dir, p)
		out[rel] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameFolder(t testing.TB, before, after map[string]string) {
	t.Helper()
	for k, v := range before {
		if after[k] != v {
			t.Errorf("%q changed:\n  %s\n  %s", k, v, after[k])
		}
	}
	for k := range after {
		if _, ok := before[k]; !ok {
			t.Errorf("%q appeared", k)
		}
	}
}

func importInto(t testing.TB, dir string, picks ...string) (*git.Mirror, git.ImportResult, error) {
	t.Helper()
	m, r := openMirrorEnv(t, nil)
	before := fingerprint(t, dir)
	res, err := m.ImportSource(t.Context(), dir, git.ImportOptions{Overlay: picks})
	sameFolder(t, before, fingerprint(t, dir))
	for _, rec := range r.Records() {
		if rec.Role != "git-index" && rec.Role != "git-config" {
			t.Errorf("an import started %v", rec.Argv)
		}
		if strings.HasPrefix(rec.Dir, dir) {
			t.Errorf("a process ran in the source: %v in %s", rec.Argv, rec.Dir)
		}
	}
	return m, res, err
}

// openMirrorEnv opens a mirror for a person with a home folder of the test's own.
func openMirrorEnv(t testing.TB, env map[string]string) (*git.Mirror, *proc.Runner) {
	t.Helper()
	r := &proc.Runner{}
	home := t.TempDir()
	m, err := git.Open(filepath.Join(t.TempDir(), "mirror.git"), git.Options{Runner: r, Getenv: func(k string) string {
		if v, ok := env[k]; ok {
			return v
		}
		switch k {
		case "HOME":
			return home
		case "PATH":
			return os.Getenv("PATH")
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

func paths(d []git.DirtyFile) (out []string) {
	for _, x := range d {
		out = append(out, x.Op+" "+x.Path)
	}
	return out
}

func TestImportSourceTakesHeadAndListsWhatDiffers(t *testing.T) {
	src := gittest.Init(t)
	src.Write("a.txt", "one\ntwo\n")
	src.Write("dir/b.txt", "b\n")
	src.Write("gone.txt", "g\n")
	src.Write("exec.sh", "#!/bin/sh\n")
	src.Write("same-size", "xxxx")
	src.Write(".gitignore", "*.log\n/build/\n!keep.log\n")
	src.Write("kept.log", "tracked although ignored\n")
	if err := os.Symlink("a.txt", filepath.Join(src.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	c1 := src.Commit("one")
	src.Git("branch", "other")
	src.Write("secret-branch", "only there\n")
	src.Git("checkout", "-q", "other")
	src.Commit("two")
	src.Git("checkout", "-q", "main")
	other := src.Git("rev-parse", "other")

	src.Write("a.txt", "one\nTWO\n")
	src.Write("new.txt", "n\n")
	src.Write("staged.txt", "s\n")
	src.Git("add", "staged.txt")
	src.Remove("gone.txt")
	src.Write("x.log", "ignored\n")
	src.Write("keep.log", "not ignored\n")
	src.Write("build/out/deep", "ignored\n")
	src.Write(".env", "SECRET=1\n")
	if err := os.Chmod(filepath.Join(src.Dir, "exec.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The same size and, right after the commit, perhaps the same second: only
	// hashing settles it.
	src.Write("same-size", "yyyy")

	m, res, err := importInto(t, src.Dir, "a.txt", "new.txt", "gone.txt")
	if err != nil {
		t.Fatal(err)
	}
	if res.Commit != c1 || res.Branch != "main" || res.Kind != "repository" || res.Files != 8 {
		t.Fatalf("got %s %q %s %d files", res.Commit, res.Branch, res.Kind, res.Files)
	}
	want := []string{"add .env", "modify a.txt", "mode exec.sh", "delete gone.txt", "add keep.log", "add new.txt", "modify same-size", "add staged.txt"}
	if got := paths(res.Dirty); !slices.Equal(got, want) {
		t.Fatalf("dirty files\n got %q\nwant %q", got, want)
	}
	if res.Ignored != 2 {
		t.Fatalf("%d ignored, want the file and the folder", res.Ignored)
	}
	if len(res.Overlay) != 3 || string(res.Overlay[0].Data) != "one\nTWO\n" || !res.Overlay[1].Deleted {
		t.Fatalf("overlay %+v", res.Overlay)
	}
	in := inMirror(t, m)
	in.Git("fsck", "--strict", "--full")
	if got, want := in.Git("rev-list", "--objects", "--no-object-names", git.BaseRef), src.Git("rev-list", "--objects", "--no-object-names", "main"); got != want {
		t.Fatal("the mirror does not hold what HEAD reaches")
	}
	if _, err := in.Try(nil, "cat-file", "-e", other); err == nil {
		t.Fatal("another branch's commit came along")
	}
	for _, pick := range []string{".env", "x.log", "build/out/deep", "../outside", "nothing"} {
		m2, _ := openMirrorEnv(t, nil)
		_, err := m2.ImportSource(t.Context(), src.Dir, git.ImportOptions{Overlay: []string{pick}})
		if c := domain.CodeOf(err); err == nil || c != domain.CodeInvalid && c != domain.CodeDenied {
			t.Errorf("picking %q: %v", pick, err)
		}
	}
}

func TestImportAgreesWithGitStatus(t *testing.T) {
	// Stat data older than the index, as in a repository a person works in.
	for seed := range int64(6) {
		rnd := newRand(seed)
		src := gittest.Init(t)
		src.Write(".gitignore", "*.o\nd3/\n")
		src.Mutate(rnd, 40)
		src.Git("add", "-A")
		src.Git("commit", "-qm", "base", "--allow-empty")
		if seed%2 == 0 {
			old := time.Now().Add(-time.Hour)
			_ = filepath.WalkDir(src.Dir, func(p string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() && !strings.Contains(p, "/.git/") {
					_ = os.Chtimes(p, old, old)
				}
				return nil
			})
			src.Git("status")
		}
		src.Mutate(rnd, 25)
		_, res, err := importInto(t, src.Dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range res.Dirty {
			got = append(got, d.Path)
		}
		want := map[string]bool{}
		for f := range strings.SplitSeq(src.Git("diff", "--name-only", "--no-renames", "-z", "HEAD"), "\x00") {
			want[f] = true
		}
		for f := range strings.SplitSeq(src.Git("ls-files", "-o", "--exclude-standard", "-z"), "\x00") {
			want[f] = true
		}
		delete(want, "")
		var wl []string
		for f := range want {
			wl = append(wl, f)
		}
		slices.Sort(wl)
		if !slices.Equal(got, wl) {
			t.Fatalf("seed %d:\n got %q\nwant %q", seed, got, wl)
		}
	}
}

func TestImportOddRepositories(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		src := gittest.Init(t)
		src.Write("new", "x")
		_, res, err := importInto(t, src.Dir, "new")
		if err != nil || res.Commit != "" || res.Branch != "main" || len(res.Overlay) != 1 {
			t.Fatalf("%+v %v", res, err)
		}
	})
	t.Run("empty first commit", func(t *testing.T) {
		src := gittest.Init(t)
		c := src.Commit("nothing")
		_, res, err := importInto(t, src.Dir)
		if err != nil || res.Commit != c || res.Files != 0 {
			t.Fatalf("%+v %v", res, err)
		}
	})
	t.Run("detached", func(t *testing.T) {
		src := gittest.Init(t)
		src.Write("a", "1")
		c := src.Commit("one")
		src.Git("checkout", "-q", "--detach")
		_, res, err := importInto(t, src.Dir)
		if err != nil || res.Commit != c || res.Branch != "" {
			t.Fatalf("%+v %v", res, err)
		}
	})
	t.Run("linked work tree with packed refs", func(t *testing.T) {
		src := gittest.Init(t)
		src.Write("a", "1")
		src.Commit("one")
		wt := filepath.Join(t.TempDir(), "wt")
		src.Git("worktree", "add", "-q", "-b", "side/branch", wt)
		linked := &gittest.Repo{T: t, Dir: wt}
		linked.Write("b", "2")
		c := linked.Commit("two")
		src.Git("pack-refs", "--all")
		linked.Write("a", "changed")
		_, res, err := importInto(t, wt)
		if err != nil || res.Commit != c || res.Branch != "side/branch" || !slices.Equal(paths(res.Dirty), []string{"modify a"}) {
			t.Fatalf("%+v %v", res, err)
		}
	})
	t.Run("submodule stays a gitlink", func(t *testing.T) {
		sub := gittest.Init(t)
		sub.Write("s", "1")
		sub.Commit("sub")
		src := gittest.Init(t)
		src.Git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.Dir, "mod")
		src.Git("commit", "-qm", "with a submodule")
		src.Write("mod/dirty", "x")
		m, res, err := importInto(t, src.Dir)
		if err != nil || len(res.Dirty) != 0 || res.Files != 2 {
			t.Fatalf("%+v %v", res, err)
		}
		if !strings.Contains(inMirror(t, m).Git("ls-tree", res.Commit), "160000 commit") {
			t.Fatal("no gitlink in the mirror")
		}
	})
	t.Run("the work tree of a submodule", func(t *testing.T) {
		sub := gittest.Init(t)
		sub.Write("s", "1")
		c := sub.Commit("sub")
		src := gittest.Init(t)
		src.Git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.Dir, "mod")
		_, res, err := importInto(t, filepath.Join(src.Dir, "mod"))
		if err != nil || res.Commit != c {
			t.Fatalf("%+v %v", res, err)
		}
	})
	t.Run("alternates", func(t *testing.T) {
		base := gittest.Init(t)
		base.Write("a", "1")
		base.Commit("one")
		dir := filepath.Join(t.TempDir(), "shared")
		base.Git("clone", "-q", "--shared", base.Dir, dir)
		_, res, err := importInto(t, dir)
		if err != nil || res.Commit == "" || len(res.Notes) == 0 {
			t.Fatalf("%+v %v", res, err)
		}
		if err := os.RemoveAll(base.Dir); err != nil {
			t.Fatal(err)
		}
		_, _, err = importInto(t, dir)
		wantHint(t, err, "borrows objects")
	})
	t.Run("bare", func(t *testing.T) {
		src := gittest.Init(t)
		src.Write("a", "1")
		c := src.Commit("one")
		dir := filepath.Join(t.TempDir(), "bare.git")
		src.Git("clone", "-q", "--bare", src.Dir, dir)
		_, res, err := importInto(t, dir)
		if err != nil || res.Commit != c || res.Kind != "bare" {
			t.Fatalf("%+v %v", res, err)
		}
	})
	t.Run("refused with what to do", func(t *testing.T) {
		src := gittest.Init(t)
		src.Write("a", "1")
		src.Commit("one")
		src.Write("b", "1")
		src.Commit("two")
		shallow := filepath.Join(t.TempDir(), "shallow")
		src.Git("clone", "-q", "--depth=1", "file://"+src.Dir, shallow)
		_, _, err := importInto(t, shallow)
		wantHint(t, err, "git fetch --unshallow")

		partial := filepath.Join(t.TempDir(), "partial")
		src.Git("-c", "uploadpack.allowFilter=true", "clone", "-q", "--no-local", "--filter=blob:none", "file://"+src.Dir, partial)
		_, _, err = importInto(t, partial)
		wantHint(t, err, "partial clone")

		sha256 := t.TempDir()
		(&gittest.Repo{T: t, Dir: sha256}).Git("init", "-q", "--object-format=sha256", ".")
		_, _, err = importInto(t, sha256)
		wantHint(t, err, "SHA-1")

		split := gittest.Init(t)
		split.Write("a", "1")
		split.Commit("one")
		split.Git("update-index", "--split-index")
		_, _, err = importInto(t, split.Dir)
		wantHint(t, err, "--no-split-index")

		broken := gittest.Init(t)
		broken.Write("a", "1")
		c := broken.Commit("one")
		blob := broken.Git("rev-parse", c+":a")
		broken.Remove(".git/objects/" + blob[:2] + "/" + blob[2:])
		_, _, err = importInto(t, broken.Dir)
		wantHint(t, err, "git fsck")

		for _, bad := range []string{"/nonexistent/folder", "ext::sh -c id", "git://127.0.0.1/x", filepath.Join(src.Dir, "a")} {
			m, _ := openMirrorEnv(t, nil)
			if _, err := m.ImportSource(t.Context(), bad, git.ImportOptions{}); err == nil {
				t.Errorf("%s was taken", bad)
			}
		}
	})
}

func wantHint(t testing.TB, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Fatalf("the error %v does not say %q", err, words)
	}
	var de *domain.Error
	if !errors.As(err, &de) || de.Hint == "" {
		t.Fatalf("the error %v does not say what to do", err)
	}
}

func TestImportPlainFolder(t *testing.T) {
	dir := t.TempDir()
	f := &gittest.Repo{T: t, Dir: dir}
	f.Write("a.txt", "one\r\n")
	f.Write("run.sh", "#!/bin/sh\n")
	_ = os.Chmod(filepath.Join(dir, "run.sh"), 0o755)
	f.Write("sub/.gitignore", "tmp/\n*.o\n")
	f.Write("sub/tmp/x", "no")
	f.Write("sub/y.o", "no")
	f.Write("sub/deep/z.o", "no")
	f.Write("sub/deep/z.c", "yes")
	f.Write(".env", "TOKEN=1")
	f.Write("id_ed25519", "key")
	f.Write("inner/.git/HEAD", "ref: refs/heads/main\n")
	f.Write("inner/file", "yes")
	_ = os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	_ = syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644)
	_ = os.WriteFile(filepath.Join(dir, "bad\xff\nname"), []byte("x"), 0o644)
	m, res, err := importInto(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.SplitSeq(inMirror(t, m).Git("ls-tree", "-r", "-z", res.Commit), "\x00") {
		if meta, name, ok := strings.Cut(line, "\t"); ok {
			got = append(got, meta[:6]+" "+name)
		}
	}
	want := []string{"100644 a.txt", "100644 bad\xff\nname", "100644 inner/file", "120000 link", "100755 run.sh", "100644 sub/.gitignore", "100644 sub/deep/z.c"}
	if !slices.Equal(got, want) {
		t.Fatalf("files\n got %q\nwant %q", got, want)
	}
	if res.Kind != "folder" || res.Branch != "main" || res.Ignored != 3 || res.Files != 7 {
		t.Fatalf("%+v", res)
	}
	var held []string
	for _, d := range res.Dirty {
		held = append(held, d.Path)
	}
	if !slices.Equal(held, []string{".env", "id_ed25519"}) {
		t.Fatalf("withheld %q", held)
	}
	inMirror(t, m).Git("fsck", "--strict")
	blob := inMirror(t, m).GitIn(nil, "cat-file", "blob", res.Commit+":a.txt")
	if blob+"\n" != "one\r\n" {
		t.Fatalf("bytes changed: %q", blob)
	}
	p, err := m.PackFor(t.Context(), res.Commit)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(p); err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	gittest.InitBare(t).GitIn(b.Bytes(), "index-pack", "--stdin", "--strict")
	_, res, err = importInto(t, t.TempDir())
	if err != nil || res.Commit != "" {
		t.Fatalf("an empty folder: %+v %v", res, err)
	}
}

func TestImportLineEndsAndFilters(t *testing.T) {
	src := gittest.Init(t)
	src.Write(".gitattributes", "*.bin filter=lfs -text\n*.txt text\n")
	src.Write("a.txt", "one\ntwo\n")
	src.Write("raw", "one\ntwo\n")
	src.Write("big.bin", "version https://git-lfs.github.com/spec/v1\n")
	src.Commit("one")
	src.Write("a.txt", "one\r\ntwo\r\n")
	src.Write("raw", "one\r\ntwo\r\n")
	src.Write("big.bin", "what the filter would make of it")
	_, res, err := importInto(t, src.Dir)
	if err != nil || !slices.Equal(paths(res.Dirty), []string{"modify raw"}) || !slices.Equal(res.MayDiffer, []string{"big.bin"}) {
		t.Fatalf("%q %q %v", paths(res.Dirty), res.MayDiffer, err)
	}
	src.Git("config", "core.autocrlf", "true")
	_, res, err = importInto(t, src.Dir)
	if err != nil || len(res.Dirty) != 0 {
		t.Fatalf("with autocrlf: %q %v", paths(res.Dirty), err)
	}
	src.Write("raw", "one\r\nTWO\r\n")
	_, res, err = importInto(t, src.Dir, "raw")
	if err != nil || len(res.Overlay) != 1 || string(res.Overlay[0].Data) != "one\nTWO\n" {
		t.Fatalf("%+v %v", res.Overlay, err)
	}
}

func TestImportHonoursGlobalExcludes(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\texcludesFile = ~/ign\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "ign"), []byte("*.mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	src := gittest.Init(t)
	src.Write("a", "1")
	src.Commit("one")
	src.Write("x.mine", "1")
	src.Write("y", "1")
	m, _ := openMirrorEnv(t, map[string]string{"HOME": home})
	res, err := m.ImportSource(t.Context(), src.Dir, git.ImportOptions{})
	if err != nil || !slices.Equal(paths(res.Dirty), []string{"add y"}) || res.Ignored != 1 {
		t.Fatalf("%+v %v", res, err)
	}
}
