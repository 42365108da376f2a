package vmtest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"glasshouse/vm/guest"
)

// repo is a small repository made outside.
type repo struct {
	st     *memory.Storage
	commit plumbing.Hash
	pack   []byte
}

func newRepo(t testing.TB) repo {
	t.Helper()
	st := memory.NewStorage()
	var all []plumbing.Hash
	put := func(enc func(plumbing.EncodedObject) error) plumbing.Hash {
		t.Helper()
		o := st.NewEncodedObject()
		must(t, enc(o))
		h, err := st.SetEncodedObject(o)
		must(t, err)
		all = append(all, h)
		return h
	}
	blob := func(text string) plumbing.Hash {
		return put(func(o plumbing.EncodedObject) error {
			o.SetType(plumbing.BlobObject)
			w, err := o.Writer()
			if err == nil {
				_, err = io.WriteString(w, text)
			}
			return err
		})
	}
	sub := put((&object.Tree{Entries: []object.TreeEntry{{Name: "run.sh", Mode: filemode.Executable, Hash: blob("#!/bin/sh\necho hi\n")}}}).Encode)
	tree := put((&object.Tree{Entries: []object.TreeEntry{
		{Name: "README.md", Mode: filemode.Regular, Hash: blob("# Glass\n")},
		{Name: "bin", Mode: filemode.Dir, Hash: sub},
		{Name: "link", Mode: filemode.Symlink, Hash: blob("README.md")},
	}}).Encode)
	who := object.Signature{Name: "A Person", Email: "person@example.test", When: time.Unix(1_700_000_000, 0)}
	first := put((&object.Commit{Author: who, Committer: who, Message: "First\n", TreeHash: tree}).Encode)
	second := put((&object.Commit{Author: who, Committer: who, Message: "Second\n", TreeHash: tree, ParentHashes: []plumbing.Hash{first}}).Encode)
	var b bytes.Buffer
	_, err := packfile.NewEncoder(&b, st, false).Encode(all, 10)
	must(t, err)
	return repo{st, second, b.Bytes()}
}

// git: a repository goes in as one pack, and what the agent made comes out as one.
func (s *suite) git(t *testing.T) {
	s.can(t)
	g := s.open(t)
	s.sh(t, g, "cd /workspace && find . -mindepth 1 -delete")
	if h, err := g.Git().Head(s.ctx(t)); err != nil || h.Repo {
		t.Errorf("an empty workspace: %+v %v", h, err)
	}
	r := newRepo(t)
	must(t, g.Git().Import(s.ctx(t), guest.ImportRequest{
		Branch: "main", Commit: r.commit.String(), AuthorName: "Agent of A Person", AuthorEmail: "agent@example.test",
		Overlay: []guest.OverlayFile{{Path: "dirty.txt", Mode: 0o644, Data: []byte("brought along\n")}},
	}, bytes.NewReader(r.pack)))
	h, err := g.Git().Head(s.ctx(t))
	if err != nil || !h.Repo || h.Branch != "main" || h.Commit != r.commit.String() || h.Clean {
		t.Errorf("head: %+v %v", h, err)
	}
	in := s.sh(t, g, "git log --format=%s; cat README.md dirty.txt; readlink link; ./bin/run.sh; git status --porcelain; git config user.email; git fsck 2>&1 | grep -v dangling")
	if in.out() != "Second\nFirst\n# Glass\nbrought along\nREADME.md\nhi\n?? dirty.txt\nagent@example.test\n" {
		t.Errorf("inside: %v", in)
	}

	// The agent commits; its own commit is the candidate.
	if c := s.sh(t, g, "git rm -q bin/run.sh && echo more >> README.md && git add -A && git commit -q -m 'By the agent' && git status --porcelain"); c.out() != "" || c.exit.Code != 0 {
		t.Fatalf("commit inside: %v", c)
	}
	cand, err := g.Git().Candidate(s.ctx(t), r.commit.String(), "unused")
	must(t, err)
	if tip := strings.TrimSpace(s.sh(t, g, "git rev-parse HEAD").out()); !cand.Own || cand.Commit != tip {
		t.Errorf("candidate: %+v, tip %s", cand, tip)
	}
	msg := s.exportedMessage(t, g, r, cand.Commit)
	if !strings.HasPrefix(msg, "By the agent") {
		t.Errorf("exported: %q", msg)
	}

	// Uncommitted work: a commit is made for it, and HEAD and index stay.
	s.sh(t, g, "echo wip > wip.txt; echo staged > staged.txt; git add staged.txt")
	before := s.sh(t, g, "git rev-parse HEAD; git status --porcelain")
	cand, err = g.Git().Candidate(s.ctx(t), r.commit.String(), "Made for review")
	must(t, err)
	if cand.Own {
		t.Errorf("candidate of a dirty tree: %+v", cand)
	}
	if after := s.sh(t, g, "git rev-parse HEAD; git status --porcelain"); after.out() != before.out() {
		t.Errorf("the agent's state changed:\n%s\nwas\n%s", after.stdout, before.stdout)
	}
	if msg := s.exportedMessage(t, g, r, cand.Commit); !strings.HasPrefix(msg, "Made for review") {
		t.Errorf("exported: %q", msg)
	}

	// Bounds and nonsense.
	if rc, err := g.Git().Export(s.ctx(t), []string{cand.Commit}, nil, 64); err == nil {
		_, err = io.Copy(io.Discard, rc)
		closeQuietly(rc)
		if !errors.Is(err, guest.ErrTooLarge) {
			t.Errorf("a pack past its limit: %v", err)
		}
	} else if !errors.Is(err, guest.ErrTooLarge) {
		t.Errorf("a pack past its limit: %v", err)
	}
	if rc, err := g.Git().Export(s.ctx(t), []string{"--all"}, nil, 1<<20); err == nil {
		_, err = io.Copy(io.Discard, rc)
		closeQuietly(rc)
		if err == nil {
			t.Error("an option was taken for an object")
		}
	}
	if err := g.Git().Import(s.ctx(t), guest.ImportRequest{Branch: "main", Commit: r.commit.String()}, strings.NewReader("not a pack")); err == nil {
		t.Error("garbage was imported")
	}
}

// exportedMessage exports a commit without what the host has, and reads it back outside.
func (s *suite) exportedMessage(t testing.TB, g guest.Guest, r repo, commit string) string {
	t.Helper()
	rc, err := g.Git().Export(s.ctx(t), []string{commit}, []string{r.commit.String()}, 8<<20)
	must(t, err)
	pack, err := io.ReadAll(rc)
	must(t, err)
	must(t, rc.Close())
	must(t, packfile.UpdateObjectStorage(r.st, bytes.NewReader(pack)))
	c, err := object.GetCommit(r.st, plumbing.NewHash(commit))
	if err != nil {
		t.Fatalf("the pack does not hold %s: %v", commit, err)
	}
	tree, err := c.Tree()
	must(t, err)
	must(t, tree.Files().ForEach(func(f *object.File) error { _, err := f.Contents(); return err }))
	return c.Message
}
