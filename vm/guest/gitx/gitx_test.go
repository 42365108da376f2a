//go:build linux

package gitx

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/runas"
)

var bg = context.Background()

func run(t *testing.T, dir string, stdin []byte, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=src", "GIT_AUTHOR_EMAIL=s@x", "GIT_COMMITTER_NAME=src", "GIT_COMMITTER_EMAIL=s@x",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, errs.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func write(t *testing.T, name, data string) {
	t.Helper()
	os.MkdirAll(filepath.Dir(name), 0o755)
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// source is a repository to import, with two commits, a side branch and a tag.
func source(t *testing.T) (dir, head string) {
	t.Helper()
	dir = t.TempDir()
	run(t, dir, nil, "git", "init", "-q", "-b", "main")
	write(t, dir+"/a.txt", "one\n")
	write(t, dir+"/dir/b.txt", "b\n")
	run(t, dir, nil, "git", "add", "-A")
	run(t, dir, nil, "git", "commit", "-qm", "one")
	run(t, dir, nil, "git", "branch", "side")
	write(t, dir+"/a.txt", "one\ntwo\n")
	run(t, dir, nil, "git", "commit", "-qam", "two")
	run(t, dir, nil, "git", "tag", "-m", "tag", "v1")
	return dir, run(t, dir, nil, "git", "rev-parse", "HEAD")
}

func packOf(t *testing.T, dir string) []byte {
	t.Helper()
	cmd := exec.Command("git", "pack-objects", "--revs", "--all", "--stdout", "-q")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type rig struct {
	t        *testing.T
	g        *Git
	ws, head string
	pack     []byte
}

func imported(t *testing.T) *rig {
	t.Helper()
	src, head := source(t)
	r := &rig{t: t, ws: t.TempDir() + "/ws", head: head, pack: packOf(t, src)}
	r.g = New(Options{Root: r.ws, Home: t.TempDir()})
	err := r.g.Import(bg, guest.ImportRequest{Branch: "main", Commit: head, AuthorName: `Ann "O" \ Ä`, AuthorEmail: "ann@x",
		Refs: map[string]string{"refs/remotes/origin/main": head}}, bytes.NewReader(r.pack))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) git(args ...string) string {
	r.t.Helper()
	return run(r.t, r.ws, nil, append([]string{"git"}, args...)...)
}

// userState is all of .git that a candidate must not touch.
func (r *rig) userState() string {
	h := sha256.New()
	filepath.Walk(r.ws+"/.git", func(p string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() && !strings.Contains(p, "/objects/") {
			data, _ := os.ReadFile(p)
			when := fi.ModTime()
			if strings.Contains(p, "sharedindex.") {
				when = time.Time{} // any reader freshens it
			}
			fmt.Fprintf(h, "%s %x %v\n", p, sha256.Sum256(data), when)
		}
		return nil
	})
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (r *rig) candidate(base string) guest.Candidate {
	r.t.Helper()
	was := r.userState()
	c, err := r.g.Candidate(bg, base, "the message\n\nbody")
	if err != nil {
		r.t.Fatal(err)
	}
	if r.userState() != was {
		r.t.Fatal("the candidate touched the user's .git")
	}
	if got := r.git("rev-parse", c.Commit+"^{tree}"); got != c.Tree {
		r.t.Fatalf("tree %s, want %s", c.Tree, got)
	}
	return c
}

func TestImport(t *testing.T) {
	r := imported(t)
	if got := r.git("status", "--porcelain"); got != "" {
		t.Fatal(got)
	}
	if r.git("rev-parse", "HEAD") != r.head || r.git("symbolic-ref", "HEAD") != "refs/heads/main" || r.git("rev-parse", "origin/main") != r.head {
		t.Fatal("refs")
	}
	if got := r.git("config", "user.name"); got != `Ann "O" \ Ä` {
		t.Fatalf("%q", got)
	}
	if r.git("config", "remote.origin.url") != Remote || r.git("rev-parse", "--abbrev-ref", "@{u}") != "origin/main" {
		t.Fatal("remote")
	}
	if data, _ := os.ReadFile(r.ws + "/a.txt"); string(data) != "one\ntwo\n" {
		t.Fatalf("%q", data)
	}
	r.git("fsck", "--strict")
	h, err := r.g.Head(bg)
	if err != nil || h != (guest.HeadInfo{Branch: "main", Commit: r.head, Clean: true, Repo: true}) {
		t.Fatal(h, err)
	}
	// A second import would overwrite work.
	if err := r.g.Import(bg, guest.ImportRequest{Branch: "main", Commit: r.head}, bytes.NewReader(r.pack)); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Fatal(err)
	}
}

func TestImportDetachedWithOverlay(t *testing.T) {
	src, head := source(t)
	ws := t.TempDir()
	g := New(Options{Root: ws, Home: t.TempDir()})
	err := g.Import(bg, guest.ImportRequest{Commit: head, Overlay: []guest.OverlayFile{
		{Path: "a.txt", Mode: 0o100755, Data: []byte("dirty\r\n")},
		{Path: "dir/b.txt", Deleted: true},
		{Path: "dir", Mode: 0o120000, Data: []byte("a.txt")},
		{Path: "new/x/y", Mode: 0o100644, Data: []byte("n")},
		{Path: "never/was", Deleted: true},
	}}, bytes.NewReader(packOf(t, src)))
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.Head(bg)
	if err != nil || h.Branch != "" || h.Commit != head || h.Clean {
		t.Fatal(h, err)
	}
	if to, _ := os.Readlink(ws + "/dir"); to != "a.txt" {
		t.Fatal(to)
	}
	if fi, _ := os.Stat(ws + "/a.txt"); fi.Mode().Perm() != 0o755 {
		t.Fatal(fi.Mode())
	}
	if data, _ := os.ReadFile(ws + "/a.txt"); string(data) != "dirty\r\n" {
		t.Fatalf("%q", data)
	}
	if data, _ := os.ReadFile(ws + "/new/x/y"); string(data) != "n" {
		t.Fatalf("%q", data)
	}
}

func TestEmptyRepository(t *testing.T) {
	ws := t.TempDir()
	g := New(Options{Root: ws, Home: t.TempDir()})
	if h, err := g.Head(bg); err != nil || h.Repo {
		t.Fatal(h, err)
	}
	if _, err := g.Candidate(bg, "", "m"); err == nil {
		t.Fatal("a candidate of no repository")
	}
	if err := g.Import(bg, guest.ImportRequest{Branch: "trunk"}, nil); err != nil {
		t.Fatal(err)
	}
	h, err := g.Head(bg)
	if err != nil || h != (guest.HeadInfo{Branch: "trunk", Clean: true, Repo: true}) {
		t.Fatal(h, err)
	}
	// The first commit, by the agent's tree and by the agent itself.
	write(t, ws+"/f", "1\n")
	c, err := g.Candidate(bg, "", "first")
	if err != nil || c.Own {
		t.Fatal(c, err)
	}
	r := &rig{t: t, g: g, ws: ws}
	if r.git("rev-list", "--count", c.Commit) != "1" || r.git("show", c.Commit+":f") != "1" {
		t.Fatal("not a root commit")
	}
	r.git("add", "f")
	r.git("commit", "-qm", "own")
	c = r.candidate("")
	if !c.Own || c.Commit != r.git("rev-parse", "HEAD") {
		t.Fatal(c)
	}
	// An empty first commit.
	ws2 := t.TempDir()
	g2 := New(Options{Root: ws2, Home: t.TempDir()})
	if err := g2.Import(bg, guest.ImportRequest{Branch: "main"}, nil); err != nil {
		t.Fatal(err)
	}
	c, err = g2.Candidate(bg, "", "nothing")
	if err != nil || c.Tree != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Fatal(c, err)
	}
}

func TestImportRefuses(t *testing.T) {
	src, head := source(t)
	pack := packOf(t, src)
	broken := append([]byte(nil), pack...)
	broken[len(broken)/2] ^= 0x55
	for name, c := range map[string]struct {
		req  guest.ImportRequest
		pack []byte
	}{
		"branch":         {guest.ImportRequest{Branch: "a..b", Commit: head}, pack},
		"dash":           {guest.ImportRequest{Branch: "-b", Commit: head}, pack},
		"option":         {guest.ImportRequest{Branch: "main", Commit: "--all"}, pack},
		"short":          {guest.ImportRequest{Branch: "main", Commit: head[:39]}, pack},
		"ref":            {guest.ImportRequest{Branch: "main", Commit: head, Refs: map[string]string{"refs/../config": head}}, pack},
		"ref outside":    {guest.ImportRequest{Branch: "main", Commit: head, Refs: map[string]string{"config": head}}, pack},
		"ref with NUL":   {guest.ImportRequest{Branch: "main", Commit: head, Refs: map[string]string{"refs/heads/a\x00b": head}}, pack},
		"no pack":        {guest.ImportRequest{Branch: "main", Commit: head}, nil},
		"broken pack":    {guest.ImportRequest{Branch: "main", Commit: head}, broken},
		"cut pack":       {guest.ImportRequest{Branch: "main", Commit: head}, pack[:len(pack)-30]},
		"missing commit": {guest.ImportRequest{Branch: "main", Commit: strings.Repeat("1", 40)}, pack},
		"author":         {guest.ImportRequest{Branch: "main", Commit: head, AuthorName: "a\n[core]\nfsmonitor=x"}, pack},
		"overlay up":     {guest.ImportRequest{Branch: "main", Commit: head, Overlay: []guest.OverlayFile{{Path: "../x"}}}, pack},
		"overlay git":    {guest.ImportRequest{Branch: "main", Commit: head, Overlay: []guest.OverlayFile{{Path: "a/.GIT/config"}}}, pack},
		"nothing":        {guest.ImportRequest{}, nil},
	} {
		ws := t.TempDir() + "/ws"
		g := New(Options{Root: ws, Home: t.TempDir()})
		var in io.Reader
		if c.pack != nil {
			in = bytes.NewReader(c.pack)
		}
		if err := g.Import(bg, c.req, in); err == nil {
			t.Errorf("%s: went through", name)
			continue
		}
		if h, err := g.Head(bg); err != nil || h.Repo {
			t.Errorf("%s: half an import counts as a repository: %+v %v", name, h, err)
		}
		// After any failure a proper import works: what was begun is begun again.
		if err := g.Import(bg, guest.ImportRequest{Branch: "main", Commit: head}, bytes.NewReader(pack)); err != nil {
			t.Errorf("%s: and then: %v", name, err)
		}
	}
	ws := t.TempDir()
	write(t, ws+"/work", "precious")
	if err := New(Options{Root: ws, Home: t.TempDir()}).Import(bg, guest.ImportRequest{Branch: "main", Commit: head}, bytes.NewReader(pack)); err == nil {
		t.Fatal("imported over files")
	}
	if data, _ := os.ReadFile(ws + "/work"); string(data) != "precious" {
		t.Fatal("lost")
	}
}

func TestCandidate(t *testing.T) {
	r := imported(t)
	// Nothing done: base itself.
	if c := r.candidate(r.head); c.Commit != r.head || c.Own {
		t.Fatal(c)
	}
	// A touched file is no change.
	os.Chtimes(r.ws+"/a.txt", time.Unix(1e9, 0), time.Unix(1e9, 0))
	if c := r.candidate(r.head); c.Commit != r.head {
		t.Fatal(c)
	}
	// Dirty tree: a commit on top of HEAD with the user's rules; staged, unstaged and new files.
	write(t, r.ws+"/.gitignore", "*.o\n")
	write(t, r.ws+"/x.o", "ignored")
	write(t, r.ws+"/new", "new\n")
	write(t, r.ws+"/a.txt", "staged\n")
	r.git("add", "a.txt")
	write(t, r.ws+"/a.txt", "unstaged\n")
	os.Remove(r.ws + "/dir/b.txt")
	c := r.candidate(r.head)
	if c.Own || r.git("rev-parse", c.Commit+"^") != r.head || r.git("log", "-1", "--format=%s|%an", c.Commit) != "the message|Ann \"O\" \\ Ä" {
		t.Fatal(c, r.git("log", "-1", "--format=%B|%an", c.Commit))
	}
	if got := r.git("ls-tree", "-r", "--name-only", c.Commit); got != ".gitignore\na.txt\nnew" || r.git("show", c.Commit+":a.txt") != "unstaged" {
		t.Fatal(got)
	}
	if r.git("show", ":a.txt") != "staged" {
		t.Fatal("the user's index moved")
	}
	// The agent's own commit, clean.
	r.git("add", "-A")
	r.git("commit", "-qm", "own one")
	r.git("commit", "-qm", "own two", "--allow-empty")
	head := r.git("rev-parse", "HEAD")
	if c := r.candidate(r.head); !c.Own || c.Commit != head {
		t.Fatal(c)
	}
	// And dirty again: on top of the agent's commits.
	write(t, r.ws+"/new", "newer\n")
	if c := r.candidate(r.head); c.Own || r.git("rev-parse", c.Commit+"^") != head {
		t.Fatal(c)
	}
	// HEAD went back behind base or elsewhere: the commit is on base.
	for _, to := range []string{r.head + "^", ""} {
		if to != "" {
			r.git("reset", "-q", "--hard", to)
		} else {
			r.git("checkout", "-q", "--orphan", "else")
			r.git("commit", "-qm", "unrelated")
		}
		write(t, r.ws+"/new", "again\n")
		if c := r.candidate(r.head); c.Own || r.git("rev-parse", c.Commit+"^") != r.head {
			t.Fatal(to, c)
		}
	}
	for _, base := range []string{strings.Repeat("1", 40), "HEAD", "--all"} {
		if c, err := r.g.Candidate(bg, base, "m"); err == nil {
			t.Fatal(base, c)
		}
	}
	left, _ := filepath.Glob(r.ws + "/.git/glasshouse-index-*")
	if len(left) != 0 {
		t.Fatal(left)
	}
}

func TestCandidateByTheUsersRules(t *testing.T) {
	r := imported(t)
	ran := t.TempDir() + "/ran"
	for _, h := range []string{"pre-commit", "post-index-change", "commit-msg", "post-checkout", "reference-transaction"} {
		write(t, r.ws+"/.git/hooks/"+h, "#!/bin/sh\ntouch "+ran+"\n")
		os.Chmod(r.ws+"/.git/hooks/"+h, 0o755)
	}
	// The global excludes file of the user and the filters of the repository count.
	write(t, r.g.opts.Home+"/.config/git/ignore", "*.swp\n")
	write(t, r.g.opts.Home+"/.gitconfig", "[filter \"up\"]\n\tclean = tr a-z A-Z\n")
	write(t, r.ws+"/.gitattributes", "*.up filter=up\n*.crlf text eol=crlf\n")
	write(t, r.ws+"/x.up", "shout\n")
	write(t, r.ws+"/x.swp", "no\n")
	write(t, r.ws+"/x.crlf", "a\r\nb\r\n")
	write(t, r.ws+"/sub/f", "nested\n")
	run(t, r.ws+"/sub", nil, "git", "init", "-q")
	run(t, r.ws+"/sub", nil, "git", "add", "f")
	run(t, r.ws+"/sub", nil, "git", "commit", "-qm", "x")
	c := r.candidate(r.head)
	if r.git("show", c.Commit+":x.up") != "SHOUT" || r.git("show", c.Commit+":x.crlf") != "a\nb" {
		t.Fatal("filters or line ends did not apply")
	}
	tree := r.git("ls-tree", c.Commit)
	if strings.Contains(tree, "swp") || !strings.Contains(tree, "160000 commit") {
		t.Fatal(tree)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Fatal("a hook ran")
	}
	// An index only git understands.
	r.git("update-index", "--split-index")
	write(t, r.ws+"/x.up", "louder\n")
	if c := r.candidate(r.head); r.git("show", c.Commit+":x.up") != "LOUDER" {
		t.Fatal("split index")
	}
	// Something unmerged is taken as it lies there.
	r.git("stash", "-q", "-u")
	r.git("checkout", "-q", "-b", "other", r.head+"^")
	write(t, r.ws+"/a.txt", "conflict\n")
	r.git("commit", "-qam", "other")
	cmd := exec.Command("git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "safe.directory=*", "merge", "main")
	cmd.Dir = r.ws
	cmd.Run()
	if h, err := r.g.Head(bg); err != nil || h.Clean {
		t.Fatal(h, err)
	}
	if c := r.candidate(r.head); !strings.Contains(r.git("show", c.Commit+":a.txt"), "<<<<<<<") {
		t.Fatal("unmerged")
	}
}

// A file that was changed in the second it was staged in, without another size, is
// told from an unchanged one only by the time of the index.
func TestCandidateSeesChangesWithinASecond(t *testing.T) {
	r := imported(t)
	r.git("config", "core.trustctime", "false") // what a slow machine's clock would hide
	then := time.Unix(1_700_000_000, 0)
	set := func(text string) {
		write(t, r.ws+"/a.txt", text)
		if err := os.Chtimes(r.ws+"/a.txt", then, then); err != nil {
			t.Fatal(err)
		}
	}
	set("one\n")
	r.git("add", "a.txt")
	if err := os.Chtimes(r.ws+"/.git/index", then, then); err != nil {
		t.Fatal(err)
	}
	set("two\n")
	if c := r.candidate(r.head); r.git("show", c.Commit+":a.txt") != "two" {
		t.Fatal("the change is not in the candidate")
	}
}

func TestCandidateWithoutIdentity(t *testing.T) {
	src, head := source(t)
	ws := t.TempDir()
	g := New(Options{Root: ws, Home: t.TempDir(), Env: []string{"GIT_CONFIG_NOSYSTEM=1"}})
	if err := g.Import(bg, guest.ImportRequest{Branch: "main", Commit: head}, bytes.NewReader(packOf(t, src))); err != nil {
		t.Fatal(err)
	}
	run(t, ws, nil, "git", "config", "user.useConfigOnly", "true")
	write(t, ws+"/n", "n")
	c, err := g.Candidate(bg, head, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, ws, nil, "git", "log", "-1", "--format=%an", c.Commit); got != "Agent" {
		t.Fatal(got)
	}
}

func TestExport(t *testing.T) {
	r := imported(t)
	write(t, r.ws+"/new", strings.Repeat("line\n", 1000))
	c := r.candidate(r.head)
	read := func(want, have []string, most int64) ([]byte, error) {
		p, err := r.g.Export(bg, want, have, most)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		return io.ReadAll(p)
	}
	// The pack holds exactly what is new, and stands on its own given base.
	pack, err := read([]string{c.Commit}, []string{r.head, strings.Repeat("1", 40)}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	run(t, dst, nil, "git", "init", "-q", "--bare")
	write(t, dst+"/p.pack", string(pack))
	run(t, dst, nil, "git", "index-pack", "p.pack") // fails on a thin pack
	var got []string
	for _, l := range strings.Split(run(t, dst, nil, "git", "verify-pack", "-v", "p.pack"), "\n") {
		if f := strings.Fields(l); len(f) >= 5 && isID(f[0]) {
			got = append(got, f[0])
		}
	}
	want := []string{c.Commit, c.Tree, r.git("rev-parse", c.Commit+":new")}
	sort.Strings(want)
	sort.Strings(got)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("the pack holds %v, want %v", got, want)
	}
	// Everything.
	pack, err = read([]string{c.Commit}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	run(t, full, nil, "git", "init", "-q", "--bare")
	run(t, full, pack, "git", "index-pack", "--stdin", "--strict")
	run(t, full, nil, "git", "rev-list", "--objects", c.Commit)
	// Nothing new is an empty pack, not an error.
	if pack, err = read([]string{r.head}, []string{r.head}, 1<<20); err != nil || !bytes.HasPrefix(pack, []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")) {
		t.Fatal(err, len(pack))
	}
	noise := make([]byte, 1<<20)
	f, _ := os.Open("/dev/urandom")
	io.ReadFull(f, noise)
	f.Close()
	write(t, r.ws+"/noise", string(noise))
	big := r.candidate(r.head)
	if _, err := read([]string{big.Commit}, []string{r.head}, 100_000); !errors.Is(err, guest.ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := read([]string{strings.Repeat("1", 40)}, nil, 0); !errors.Is(err, guest.ErrNotFound) {
		t.Fatal(err)
	}
	for _, bad := range [][]string{nil, {"HEAD"}, {"--all"}, {c.Commit + "\n--all"}, {c.Tree}} {
		if _, err := read(bad, nil, 0); err == nil {
			t.Fatal(bad)
		}
	}
	// Closing early ends git and nothing hangs.
	p, err := r.g.Export(bg, []string{big.Commit}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(p, make([]byte, 10))
	p.Close()
	if _, err := p.Read(make([]byte, 1)); err == nil {
		t.Fatal("read after close")
	}
	// A git that dies in the middle is an error, not a short pack.
	blob := r.git("rev-parse", big.Commit+":noise")
	os.Remove(r.ws + "/.git/objects/" + blob[:2] + "/" + blob[2:])
	if _, err := read([]string{big.Commit}, []string{r.head}, 0); err == nil {
		t.Fatal("a pack with a missing object")
	}
}

// TestAsAnotherUser: guestd is root, the repository is the agent's.
func TestAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	src, head := source(t)
	base, err := os.MkdirTemp("/tmp", "gitx")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	os.Chmod(base, 0o755)
	const uid = 34567
	os.Mkdir(base+"/home", 0o755)
	os.Chown(base+"/home", uid, uid)
	os.Mkdir(base+"/ws", 0o755)
	os.Chown(base+"/ws", uid, uid)
	ws := base + "/ws"
	g := New(Options{Root: ws, Home: base + "/home", UID: uid, GID: uid})
	err = g.Import(bg, guest.ImportRequest{Branch: "main", Commit: head, AuthorName: "A", AuthorEmail: "a@x",
		Overlay: []guest.OverlayFile{{Path: "n/m", Mode: 0o644, Data: []byte("x")}}}, bytes.NewReader(packOf(t, src)))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := g.Candidate(bg, head, "m"); err != nil || c.Commit == head {
		t.Fatal(c, err)
	}
	filepath.Walk(ws, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		if fi.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%s is not the agent's", p)
		}
		return nil
	})
	// The agent's own git works in it without any safe.directory.
	cmd := []string{"git", "status", "--porcelain"}
	var out bytes.Buffer
	err = runas.User(uid, uid)(bg, cmd, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base + "/home"}, ws, nil, &out, &out)
	if err != nil || out.String() != "?? n/\n" {
		t.Fatalf("%v %s", err, out.String())
	}
	// Its settings run as the agent, never as root.
	write(t, base+"/home/.gitconfig", "[filter \"who\"]\n\tclean = id -u\n")
	write(t, ws+"/.gitattributes", "*.who filter=who\n")
	write(t, ws+"/x.who", "?")
	c, err := g.Candidate(bg, head, "m")
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, ws, nil, "git", "show", c.Commit+":x.who"); got != fmt.Sprint(uid) {
		t.Fatalf("a filter ran as uid %s", got)
	}
}
