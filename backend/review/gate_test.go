package review_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/review"
)

var me = git.Person{Name: "Rae Reviewer", Email: "rae@example.org", When: time.Unix(1700001000, 0).UTC()}

// gateRig: a remote has the base, the mirror base and candidate.
type gateRig struct {
	src, remote *gittest.Repo
	m           *git.Mirror
	r           *review.Review
	d           review.Decisions
	base, cand  string
}

func newGateRig(t testing.TB) *gateRig {
	t.Helper()
	src := gittest.Init(t)
	src.Write("a.txt", strings.Repeat("line\n", 40)+"end\n")
	src.Write("b.txt", "b\n")
	base := src.Commit("base")
	remote := gittest.InitBare(t)
	src.Git("push", "-q", remote.Dir, "main")
	src.Write("a.txt", "first\n"+strings.Repeat("line\n", 40)+"END\n")
	src.Write("c.txt", "c\n")
	cand := src.Commit("the agent's words")
	m := mirrorOf(t, src, base, cand)
	return &gateRig{src, remote, m, build(t, objects(t, m), base, cand), review.Decisions{}, base, cand}
}

func (g *gateRig) request() review.PushRequest {
	return review.PushRequest{Review: g.r, Decisions: g.d, URL: g.remote.Dir, Ref: "refs/heads/main", Expected: g.base, Author: me, Committer: me}
}

func TestGatePushesTheCandidateItself(t *testing.T) {
	g := newGateRig(t)
	if _, err := review.MakePlan(t.Context(), g.m, g.request()); !errors.Is(err, review.ErrUndecided) {
		t.Fatalf("silence decided: %v", err)
	}
	_ = g.d.SetAll(g.r, review.Accept)
	p, err := review.MakePlan(t.Context(), g.m, g.request())
	if err != nil || !p.Own || p.Commit != g.cand || p.Parent != g.base {
		t.Fatalf("%+v %v", p, err)
	}
	res, err := p.Push(t.Context(), g.m, p.Digest, g.d)
	if err != nil || !res.OK {
		t.Fatalf("%+v %v", res, err)
	}
	if got := g.remote.Git("rev-parse", "main"); got != g.cand {
		t.Fatalf("the remote has %s", got)
	}
	g.remote.Git("fsck", "--strict", "--no-dangling")
	// The same plan again, as after an answer that got lost: it is there already.
	if res, err := p.Push(t.Context(), g.m, p.Digest, g.d); err != nil || res.Status != "same" {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestGatePushesPartOfIt(t *testing.T) {
	g := newGateRig(t)
	_ = g.d.SetAll(g.r, review.Reject)
	if _, err := review.MakePlan(t.Context(), g.m, g.request()); !errors.Is(err, review.ErrNothing) {
		t.Fatalf("%v", err)
	}
	f := &g.r.Files[0]
	if f.Path != "a.txt" || len(f.Hunks) != 2 {
		t.Fatalf("%+v", f)
	}
	_ = g.d.Set(g.r, f.ID, f.Hunks[1].ID, review.Accept)
	p, err := review.MakePlan(t.Context(), g.m, g.request())
	if err != nil || p.Own || p.Message != "the agent's words\n" {
		t.Fatalf("%+v %v", p, err)
	}
	// Made again later it is the same plan, so what was shown can be approved.
	req := g.request()
	req.Author.When, req.Committer.When = me.When.Add(time.Hour), me.When.Add(time.Hour)
	if again, err := review.MakePlan(t.Context(), g.m, req); err != nil || again.Digest != p.Digest || again.Commit != p.Commit {
		t.Fatalf("another plan of the same: %+v %v", again, err)
	}
	req.Message = "other words"
	if other, err := review.MakePlan(t.Context(), g.m, req); err != nil || other.Digest == p.Digest {
		t.Fatalf("%+v %v", other, err)
	}
	if _, err := p.Push(t.Context(), g.m, p.Digest, g.d); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("line\n", 40) + "END"
	if got := g.remote.Git("cat-file", "blob", "main:a.txt"); got != want {
		t.Fatalf("%q", got)
	}
	if got := g.remote.Git("ls-tree", "--name-only", "main"); got != "a.txt\nb.txt" {
		t.Fatalf("%q", got)
	}
	if got := g.remote.Git("log", "-1", "--format=%P %an %ae %cn %ct %s", "main"); got != g.base+" Rae Reviewer rae@example.org Rae Reviewer 1700001000 the agent's words" {
		t.Fatalf("%q", got)
	}
	g.remote.Git("fsck", "--strict", "--no-dangling")
}

// TestGateBindsWhatWasApproved changes every single thing between approval and push.
func TestGateBindsWhatWasApproved(t *testing.T) {
	g := newGateRig(t)
	_ = g.d.SetAll(g.r, review.Accept)
	p, err := review.MakePlan(t.Context(), g.m, g.request())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(name string, p review.Plan, approved string, d review.Decisions) {
		t.Helper()
		if _, err := p.Push(t.Context(), g.m, approved, d); !errors.Is(err, review.ErrChanged) || domain.CodeOf(err) != domain.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("another digest", p, strings.Repeat("0", 64), g.d)
	refused("no approval", p, "", g.d)
	for i := range g.r.Files {
		f := &g.r.Files[i]
		for _, u := range f.Units {
			for _, v := range []review.Decision{review.Reject, review.Undecided} {
				d := g.d.Clone()
				_ = d.Set(g.r, f.ID, u, v)
				refused("decision on "+u, p, p.Digest, d)
			}
		}
	}
	for name, change := range map[string]func(*review.Plan){
		"commit":   func(p *review.Plan) { p.Commit = g.base },
		"tree":     func(p *review.Plan) { p.Tree = g.r.BaseTree },
		"parent":   func(p *review.Plan) { p.Parent = g.cand },
		"ref":      func(p *review.Plan) { p.Ref = "refs/heads/other" },
		"expected": func(p *review.Plan) { p.Expected = "" },
		"address":  func(p *review.Plan) { p.Address = "/elsewhere" },
	} {
		q := p
		change(&q)
		refused(name, q, p.Digest, g.d)
	}
	// Requests that differ in anything have another digest.
	seen := map[string]string{p.Digest: "the plan"}
	for name, change := range map[string]func(*review.PushRequest){
		"ref":      func(q *review.PushRequest) { q.Ref = "refs/heads/x" },
		"expected": func(q *review.PushRequest) { q.Expected = "" },
		"url":      func(q *review.PushRequest) { q.URL = "file://" + g.remote.Dir },
		"rewrite":  func(q *review.PushRequest) { q.Rewrite = true },
		"programs": func(q *review.PushRequest) { q.RemotePrograms = true },
		"history":  func(q *review.PushRequest) { q.History = true },
		"decisions": func(q *review.PushRequest) {
			q.Decisions = q.Decisions.Clone()
			_ = q.Decisions.Set(g.r, g.r.Files[0].ID, g.r.Files[0].Units[0], review.Reject)
		},
	} {
		q := g.request()
		change(&q)
		o, err := review.MakePlan(t.Context(), g.m, q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if was, dup := seen[o.Digest]; dup {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[o.Digest] = name
	}
	if got := g.remote.Git("rev-parse", "main"); got != g.base {
		t.Fatal("something was pushed")
	}
}

func TestGateSquashesHistoryUnlessAsked(t *testing.T) {
	src := gittest.Init(t)
	src.Write("a", "1\n")
	base := src.Commit("base")
	remote := gittest.InitBare(t)
	src.Git("push", "-q", remote.Dir, "main")
	src.Write("secret", "was here once\n")
	mid := src.Commit("with a secret")
	src.Remove("secret")
	src.Write("a", "2\n")
	cand := src.Commit("without it")
	m := mirrorOf(t, src, base, cand)
	r := build(t, objects(t, m), base, cand)
	d := review.Decisions{}
	_ = d.SetAll(r, review.Accept)
	req := review.PushRequest{Review: r, Decisions: d, URL: remote.Dir, Ref: "refs/heads/main", Expected: base, Author: me, Committer: me}
	p, err := review.MakePlan(t.Context(), m, req)
	if err != nil || p.Own || p.Tree != r.CandidateTree {
		t.Fatalf("%+v %v", p, err)
	}
	if _, err := p.Push(t.Context(), m, p.Digest, d); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Try(nil, "cat-file", "-e", mid); err == nil {
		t.Fatal("a commit went out that nobody saw")
	}
	remote.Git("update-ref", "refs/heads/main", base)
	req.History = true
	p, err = review.MakePlan(t.Context(), m, req)
	if err != nil || !p.Own || strings.Join(p.Commits, " ") != cand+" "+mid {
		t.Fatalf("%+v %v", p, err)
	}
}

func TestGateNeedsTheRemoteToBeUnderTheBase(t *testing.T) {
	g := newGateRig(t)
	_ = g.d.SetAll(g.r, review.Accept)
	other := g.src.CommitTree(g.src.Git("rev-parse", g.base+"^{tree}"), g.base)
	g.src.Git("push", "-q", g.remote.Dir, other+":refs/heads/main")
	req := g.request()
	req.Expected = other
	if _, err := review.MakePlan(t.Context(), g.m, req); !errors.Is(err, git.ErrRemoteMoved) {
		t.Fatalf("a remote with a commit the mirror does not know: %v", err)
	}
	req.Expected = g.base
	p, err := review.MakePlan(t.Context(), g.m, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Push(t.Context(), g.m, p.Digest, g.d); !errors.Is(err, git.ErrRemoteMoved) {
		t.Fatalf("%v", err)
	}
	if got := g.remote.Git("rev-parse", "main"); got != other {
		t.Fatal("the other's commit is gone")
	}
}

// TestGateRaces: someone pushes at the same time. Whoever wins, the remote holds
// either theirs or exactly what was approved, and nothing is lost.
func TestGateRaces(t *testing.T) {
	n := 40
	if testing.Short() {
		n = 8
	}
	g := newGateRig(t)
	_ = g.d.SetAll(g.r, review.Accept)
	other := g.src.CommitTree(g.src.Git("rev-parse", g.base+"^{tree}"), g.base)
	g.src.Git("push", "-q", g.remote.Dir, other+":refs/heads/other")
	ours, theirs := 0, 0
	for i := range n {
		p, err := review.MakePlan(t.Context(), g.m, g.request())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(rand.New(rand.NewSource(int64(i))).Intn(60)) * time.Millisecond)
			_, err := g.remote.Try(nil, "update-ref", "refs/heads/main", other, g.base)
			done <- err
		}()
		_, perr := p.Push(t.Context(), g.m, p.Digest, g.d)
		terr := <-done
		switch got := g.remote.Git("rev-parse", "main"); {
		case got == g.cand && perr == nil && terr != nil:
			ours++
		case got == other && errors.Is(perr, git.ErrRemoteMoved) && terr == nil:
			theirs++
		default:
			t.Fatalf("round %d: the remote has %s, our push said %v, theirs %v", i, got, perr, terr)
		}
		g.remote.Git("update-ref", "refs/heads/main", g.base)
	}
	t.Logf("%d ours, %d theirs", ours, theirs)
}

func TestGateFirstPushOfANewRepository(t *testing.T) {
	src := gittest.Init(t)
	src.Write("a", "1\n")
	cand := src.Commit("first")
	remote := gittest.InitBare(t)
	m := mirrorOf(t, src, cand)
	r := build(t, objects(t, m), "", cand)
	d := review.Decisions{}
	_ = d.SetAll(r, review.Accept)
	p, err := review.MakePlan(t.Context(), m, review.PushRequest{Review: r, Decisions: d, URL: remote.Dir, Ref: "refs/heads/main", Author: me, Committer: me})
	if err != nil || !p.Own {
		t.Fatalf("%+v %v", p, err)
	}
	if res, err := p.Push(t.Context(), m, p.Digest, d); err != nil || res.Status != "new" {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestHostsCommitTakesNoMarkupFromNames(t *testing.T) {
	g := newGateRig(t)
	_ = g.d.SetAll(g.r, review.Accept)
	_ = g.d.Set(g.r, g.r.Files[1].ID, "", review.Reject)
	req := g.request()
	req.Author = git.Person{Name: "E<v>il\nparent " + g.base, Email: "a>b\x00", When: me.When}
	req.Message = "line\x00 one\n\n\nbody\n\n\n"
	p, err := review.MakePlan(t.Context(), g.m, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Push(t.Context(), g.m, p.Digest, g.d); err != nil {
		t.Fatal(err)
	}
	g.remote.Git("fsck", "--strict", "--no-dangling")
	if got := g.remote.Git("rev-list", "--count", "main"); got != "2" {
		t.Fatal(got)
	}
	var b bytes.Buffer
	fmt.Fprint(&b, p.Author)
	if strings.ContainsAny(b.String(), "\n\x00") {
		t.Fatalf("%q", p.Author)
	}
}
