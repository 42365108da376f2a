//go:build linux

package boot_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

// hostGit runs git in a repository of the test's own.
func hostGit(t *testing.T, dir string, in []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x"}
	cmd.Stdin = bytes.NewReader(in)
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, errb.String())
	}
	return strings.TrimSpace(string(out))
}

// gitRound takes a repository in, works on it there, and takes the work out.
func gitRound(t *testing.T, h *house, g guest.Guest) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("needs git: %v", err)
	}
	repo := t.TempDir()
	hostGit(t, repo, nil, "init", "-q", "-b", "main")
	os.WriteFile(repo+"/a.txt", []byte("one\n"), 0o644)
	os.WriteFile(repo+"/run.sh", []byte("#!/bin/sh\n"), 0o755)
	os.WriteFile(repo+"/big", bytes.Repeat([]byte("0123456789\n"), 100_000), 0o644)
	hostGit(t, repo, nil, "add", "-A")
	hostGit(t, repo, nil, "commit", "-q", "-m", "first")
	base := hostGit(t, repo, nil, "rev-parse", "HEAD")
	pack := []byte(hostGit2(t, repo, []byte(base+"\n"), "pack-objects", "--revs", "--stdout", "-q"))
	if _, err := g.Git().Head(h.ctx()); err != nil {
		t.Fatalf("head of no repository: %v", err)
	}
	err := g.Git().Import(h.ctx(), guest.ImportRequest{
		Branch: "work", Commit: base, Refs: map[string]string{"refs/heads/main": base}, AuthorName: "Ann", AuthorEmail: "ann@example.test",
		Overlay: []guest.OverlayFile{{Path: "dirty.txt", Mode: 0o644, Data: bytes.Repeat([]byte("d"), 600_000)}, {Path: "a.txt", Deleted: true}},
	}, bytes.NewReader(pack))
	if err != nil {
		t.Fatal(err)
	}
	head, err := g.Git().Head(h.ctx())
	if err != nil || head.Branch != "work" || head.Commit != base || head.Clean || !head.Repo {
		t.Fatalf("%+v %v", head, err)
	}
	if r := h.run(g, sh("git status --porcelain; wc -c <dirty.txt; git config user.name; test -x run.sh && echo x")); r.out != " D a.txt\n?? dirty.txt\n600000\nAnn\nx\n" {
		t.Fatalf("got %q %q", r.out, r.err)
	}
	// Work that was not committed becomes a candidate of ours ...
	c, err := g.Git().Candidate(h.ctx(), base, "what the agent did")
	if err != nil || c.Own {
		t.Fatalf("%+v %v", c, err)
	}
	check := func(commit string, files ...string) {
		t.Helper()
		r, err := g.Git().Export(h.ctx(), []string{commit}, []string{base}, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		hostGit(t, repo, b, "index-pack", "--stdin", "--fix-thin")
		if got := hostGit(t, repo, nil, "ls-tree", "-r", "--name-only", commit); got != strings.Join(files, "\n") {
			t.Fatalf("the commit holds %q", got)
		}
		if got := hostGit(t, repo, nil, "merge-base", base, commit); got != base {
			t.Fatalf("it stands on %s", got)
		}
	}
	check(c.Commit, "big", "dirty.txt", "run.sh")
	// ... and a commit of the agent's is itself the candidate.
	h.run(g, sh("git add -A && git commit -q -m mine"))
	own, err := g.Git().Candidate(h.ctx(), base, "unused")
	if err != nil || !own.Own || own.Tree != c.Tree {
		t.Fatalf("%+v %v", own, err)
	}
	check(own.Commit, "big", "dirty.txt", "run.sh")
	// A pack larger than allowed is an error, not a cut pack.
	h.run(g, sh("head -c 3000000 /dev/urandom >noise; git add noise; git commit -q -m noise"))
	head, err = g.Git().Head(h.ctx())
	if err != nil || !head.Clean {
		t.Fatalf("%+v %v", head, err)
	}
	r, err := g.Git().Export(h.ctx(), []string{head.Commit}, []string{base}, 100_000)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	if !errors.Is(err, guest.ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	if err := g.Git().Import(h.ctx(), guest.ImportRequest{Branch: "x", Commit: base}, bytes.NewReader(pack)); err == nil {
		t.Error("imported over a workspace that is in use")
	}
}

// hostGit2 is hostGit with the output as it is.
func hostGit2(t *testing.T, dir string, in []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func TestGitOverTheChannel(t *testing.T) {
	h := newHouse(t)
	gitRound(t, h, h.open(nil))
}

func TestSandboxGit(t *testing.T) {
	h := newSandbox(t)
	g := h.open(nil)
	gitRound(t, h, g)
	// What a repository can make git run, runs in a cell and sees nothing of guestd's.
	h.run(g, sh(`printf '#!/bin/sh\nls /run/glasshouse /var/lib/glasshouse >/workspace/.git/leak 2>&1\ncat\n' >/tmp/filter; chmod +x /tmp/filter
git config filter.f.clean /tmp/filter; echo '* filter=f' >.gitattributes; echo new >new`))
	if _, err := g.Git().Candidate(h.ctx(), "", "m"); err != nil {
		t.Logf("candidate: %v", err)
	}
	if r := h.run(g, sh("cat .git/leak")); strings.Contains(r.out, "chan.sock") || strings.Contains(r.out, "journal") || r.out == "" {
		t.Fatalf("the filter saw %q", r.out)
	}
}

func TestVMGit(t *testing.T) {
	h := newVM(t)
	g := h.open(nil)
	h.run(g, sh("find /workspace -mindepth 1 -delete"))
	gitRound(t, h, g)
	if r := h.run(g, sh("find /workspace ! -user agent | wc -l")); r.out != "0\n" {
		t.Errorf("%s files are not the agent's", r.out)
	}
}
