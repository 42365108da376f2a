package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
)

var (
	// ErrNothing: every change was rejected, so there is nothing to push.
	ErrNothing = errors.New("nothing was accepted")
	// ErrChanged: something is no longer as it was approved; plan again.
	ErrChanged = errors.New("the approval no longer holds")
)

// maxHistory bounds the commits of a candidate that go out one by one.
const maxHistory = 200

// PushRequest is what a push is planned from.
type PushRequest struct {
	Review    *Review
	Decisions Decisions
	URL, Ref  string
	// Expected is what the reference held when it was looked at; empty: it did not exist.
	Expected string
	// Author, Committer and Message of a commit the host makes. An empty message
	// takes the candidate's.
	Author, Committer git.Person
	Message           string
	// History sends the candidate's own commits one by one instead of one commit of
	// all accepted changes. Everything must be accepted, and the history linear: what
	// the commits before the last hold is not in the diff, so it is the person's
	// explicit choice, with the commits listed in the plan.
	History bool
	// Rewrite allows taking commits off the reference; RemotePrograms a remote on this
	// computer to run its hooks.
	Rewrite, RemotePrograms bool
}

// Plan is exactly what a push would do. A person approves its Digest; it binds the
// commit, its tree and parent, the reference, the address, the expected value, the
// review's two commits and every decision in it.
type Plan struct {
	Commit   string   `json:"commit"`
	Tree     string   `json:"tree"`
	Parent   string   `json:"parent,omitempty"`
	Ref      string   `json:"ref"`
	Address  string   `json:"address"` // where it really goes; credentials cut out
	Expected string   `json:"expected,omitempty"`
	Own      bool     `json:"own,omitempty"`     // the candidate itself, else a commit of the host's
	Commits  []string `json:"commits,omitempty"` // with History: all commits that go out, newest first
	Message  string   `json:"message"`
	Author   string   `json:"author"`
	Digest   string   `json:"digest"`

	spec git.PushSpec
	req  PushRequest
}

// MakePlan decides which commit goes out. The candidate itself does when everything
// in it is accepted and it is one well-formed commit right upon the base; otherwise
// the host makes one commit of the accepted tree. Nothing is sent. It wraps
// ErrUndecided, ErrNothing, ErrConflict or git.ErrRemoteMoved.
func MakePlan(ctx context.Context, m *git.Mirror, req PushRequest) (Plan, error) {
	r := req.Review
	accepted, _, undecided := req.Decisions.Count(r)
	switch {
	case undecided > 0:
		return Plan{}, domain.E(domain.CodeConflict, fmt.Sprintf("%d of %d changes wait for a decision", undecided, r.Units), "accept or reject each; silence decides nothing", ErrUndecided)
	case accepted == 0:
		return Plan{}, domain.E(domain.CodeConflict, "every change was rejected", "there is nothing to push", ErrNothing)
	}
	o, err := m.Objects()
	if err != nil {
		return Plan{}, err
	}
	defer o.Close()
	tree, err := AcceptedTree(ctx, o, r, req.Decisions)
	if err != nil {
		if errors.Is(err, ErrConflict) {
			err = domain.E(domain.CodeConflict, "the accepted changes cannot be put together", "change one of the decisions it names", err)
		}
		return Plan{}, err
	}
	p := Plan{Tree: tree.String(), Parent: r.Base, Ref: req.Ref, Expected: req.Expected, req: req}
	p.req.Decisions = req.Decisions.Clone()
	if p.Address, err = m.Target(ctx, req.URL); err != nil {
		return Plan{}, err
	}
	if err := p.choose(ctx, m, o, tree); err != nil {
		return Plan{}, err
	}
	if err := p.builds(ctx, o); err != nil {
		return Plan{}, err
	}
	p.spec = git.PushSpec{URL: req.URL, Ref: req.Ref, Commit: p.Commit, Expected: req.Expected, Rewrite: req.Rewrite, RemotePrograms: req.RemotePrograms}
	p.Digest = p.digest(p.req.Decisions)
	return p, nil
}

// choose picks or makes the commit.
func (p *Plan) choose(ctx context.Context, m *git.Mirror, o *git.Objects, tree git.ID) error {
	r := p.req.Review
	cid, err := git.ParseID(r.Candidate)
	if err != nil {
		return err
	}
	cand, err := o.Commit(cid)
	if err != nil {
		return err
	}
	all := p.Tree == r.CandidateTree
	if p.req.History {
		if !all {
			return domain.E(domain.CodeConflict, "the commits cannot go out one by one: parts of them were rejected", "push one commit of what was accepted", nil)
		}
		if err := p.history(ctx, o, cid); err != nil {
			return err
		}
	}
	if all && (p.req.History || acceptable(cand, r.Base)) {
		p.Commit, p.Own, p.Message, p.Author = r.Candidate, true, cand.Message, cand.Author
		return nil
	}
	msg := p.req.Message
	if strings.TrimSpace(msg) == "" {
		msg = cand.Message
	}
	var parents []git.ID
	if r.Base != "" {
		base, err := git.ParseID(r.Base)
		if err != nil {
			return err
		}
		parents = []git.ID{base}
	}
	id, err := commitOnce(m, o, git.NewCommit{Tree: tree, Parents: parents, Author: p.req.Author, Committer: p.req.Committer, Message: msg})
	if err != nil {
		return err
	}
	made, err := o.Commit(id)
	if err != nil {
		return err
	}
	p.Commit, p.Message, p.Author = id.String(), made.Message, made.Author
	return nil
}

// commitOnce makes a commit of the host's, or finds the one it made for the same
// tree, parents, people and message: a plan that is made again, also after a
// restart, is then the plan that was shown, although time went on.
func commitOnce(m *git.Mirror, o *git.Objects, c git.NewCommit) (git.ID, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s %v %q %q %q %q %q", c.Tree, c.Parents, c.Author.Name, c.Author.Email, c.Committer.Name, c.Committer.Email, c.Message))
	ref := "refs/glasshouse/commits/" + hex.EncodeToString(key[:16])
	if was, err := m.Ref(ref); err == nil {
		id, err := git.ParseID(was)
		if err != nil {
			return id, err
		}
		if old, err := o.Commit(id); err == nil && old.Tree == c.Tree && slices.Equal(old.Parents, c.Parents) {
			return id, nil
		}
	} else if !errors.Is(err, git.ErrNotFound) {
		return git.ID{}, err
	}
	id, err := o.WriteCommit(c)
	if err != nil {
		return id, err
	}
	return id, m.SetRef(ref, id.String(), "*")
}

// acceptable reports whether a commit may go out as it is: one step from the
// base, so that its diff is all there is to it, with nothing in its head that the
// review does not show.
func acceptable(c git.Commit, base string) bool {
	if len(c.Extra) > 0 || c.Encoding != "" || strings.Contains(c.Message, "\x00") {
		return false
	}
	if base == "" {
		return len(c.Parents) == 0
	}
	return len(c.Parents) == 1 && c.Parents[0].String() == base
}

// history lists the commits from the base to the candidate.
func (p *Plan) history(ctx context.Context, o *git.Objects, id git.ID) error {
	for len(p.Commits) < maxHistory {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.Commits = append(p.Commits, id.String())
		c, err := o.Commit(id)
		if err != nil {
			return err
		}
		switch {
		case len(c.Parents) == 0 && p.req.Review.Base == "", len(c.Parents) == 1 && c.Parents[0].String() == p.req.Review.Base:
			return nil
		case len(c.Parents) != 1:
			return domain.E(domain.CodeConflict, "the candidate's history is not one line from the base", "push one commit of what was accepted", nil)
		}
		id = c.Parents[0]
	}
	return domain.E(domain.CodeTooLarge, fmt.Sprintf("the candidate has more than %d commits", maxHistory), "push one commit of what was accepted", nil)
}

// builds requires that the commit stands upon what the remote had.
func (p *Plan) builds(ctx context.Context, o *git.Objects) error {
	if p.Expected == "" || p.req.Rewrite {
		return nil
	}
	moved := domain.E(domain.CodeConflict, fmt.Sprintf("%s holds %s, which these changes do not build upon", p.Ref, clip(p.Expected, 12)),
		"bring in what is new there and review again, or push to another branch", git.ErrRemoteMoved)
	old, err := git.ParseID(p.Expected)
	if err != nil {
		return err
	}
	if !o.Has(old) {
		return moved
	}
	id, err := git.ParseID(p.Commit)
	if err != nil {
		return err
	}
	ok, err := o.IsAncestor(ctx, old, id)
	if err == nil && !ok {
		err = moved
	}
	return err
}

// digest binds everything a person approves.
func (p *Plan) digest(d Decisions) string {
	h := sha256.New()
	fmt.Fprintf(h, "glasshouse push 1\n%s\n%s\n%s\n%s\n", p.Commit, p.Tree, p.Parent, strings.Join(p.Commits, " "))
	fmt.Fprintf(h, "%q\n%q\n%q\n%q\n%v %v\n", p.req.URL, p.Address, p.Ref, p.Expected, p.req.Rewrite, p.req.RemotePrograms)
	fmt.Fprintf(h, "%s %s %s %s\n", p.req.Review.Base, p.req.Review.Candidate, p.req.Review.BaseTree, p.req.Review.CandidateTree)
	var lines []string
	for i := range p.req.Review.Files {
		f := &p.req.Review.Files[i]
		for _, u := range f.Units {
			lines = append(lines, fmt.Sprintf("%s %s %s\n", f.ID, u, d.Of(f.ID, u)))
		}
	}
	sort.Strings(lines)
	for _, l := range lines {
		h.Write([]byte(l))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Push does what the plan says, if it is the plan that was approved and the
// decisions are still those it was made from. The commit is read again first: it must be
// the one with the planned tree and parent. Errors are those of git.Mirror.Push, or
// wrap ErrChanged, in which case nothing was sent.
func (p Plan) Push(ctx context.Context, m *git.Mirror, approved string, now Decisions) (git.PushResult, error) {
	changed := func(what string) (git.PushResult, error) {
		return git.PushResult{}, domain.E(domain.CodeConflict, what, "look at the review and approve the push again", ErrChanged)
	}
	if approved == "" || approved != p.Digest || p.digest(p.req.Decisions) != p.Digest {
		return changed("what was approved is another push")
	}
	if p.digest(now) != p.Digest {
		return changed("decisions changed after the push was approved")
	}
	to, err := m.Target(ctx, p.spec.URL)
	if err != nil {
		return git.PushResult{}, err
	}
	if to != p.Address {
		return changed("the address leads elsewhere than when the push was approved")
	}
	o, err := m.Objects()
	if err != nil {
		return git.PushResult{}, err
	}
	defer o.Close()
	id, err := git.ParseID(p.Commit)
	if err != nil {
		return git.PushResult{}, err
	}
	c, err := o.Commit(id)
	if err != nil {
		return git.PushResult{}, err
	}
	if c.Tree.String() != p.Tree || !p.Own && p.Parent != "" && (len(c.Parents) != 1 || c.Parents[0].String() != p.Parent) {
		return changed("the commit is not the one that was approved")
	}
	return m.Push(ctx, p.spec)
}
