package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
	"glasshouse/backend/git/source"
)

// fetchTimeout bounds one transfer from a remote.
const fetchTimeout = 30 * time.Minute

// Fetched is what a remote's branch brought.
type Fetched struct {
	Ref      string // full name
	Commit   string
	Received Received
}

// Fetch brings a branch of a remote into the mirror, with the isolation and
// credentials of a push: to review against what is new there, or to start from an
// address instead of a folder. ref is a full name; empty takes the branch the remote's HEAD
// names. Git runs in an empty repository of ours beside the mirror; what it got
// then goes through the same checks as a person's own repository. No reference is moved.
func (m *Mirror) Fetch(ctx context.Context, address, ref string) (Fetched, error) {
	return m.fetch(ctx, address, ref, nil)
}

func (m *Mirror) fetch(ctx context.Context, address, ref string, progress func(FetchProgress)) (Fetched, error) {
	var out Fetched
	if ref != "" && (!strings.HasPrefix(ref, "refs/heads/") || !source.SafeRef(ref)) {
		return out, domain.E(domain.CodeInvalid, fmt.Sprintf("%q is no branch", clip(ref, 100)), "use refs/heads/NAME", nil)
	}
	side, err := m.remote(ctx, address, "")
	if err != nil {
		return out, err
	}
	defer side.close()
	if ref == "" {
		if ref, err = m.headOf(ctx, side); err != nil {
			return out, err
		}
	}
	out.Ref = ref
	say := newFetchSay(progress)
	inbox := filepath.Join(side.dir, "inbox.git")
	if err := m.lend(inbox, false); err != nil {
		return out, err
	}
	env := append([]string{}, side.env...)
	for i, e := range env {
		if strings.HasPrefix(e, "GIT_DIR=") {
			env[i] = "GIT_DIR=" + inbox
		}
	}
	if m.opt.Invoker == nil {
		// What the mirror has need not come again.
		env = append(env, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+m.objectsDir())
	}
	// A server that has gone quiet for a minute is given up, not waited for.
	args := []string{"-c", "core.hooksPath=/dev/null", "-c", "fetch.unpackLimit=1", "-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=60", "fetch", "--no-tags", "--no-write-fetch-head",
		"--no-recurse-submodules", "--no-auto-maintenance", "--refmap=", "--progress", "glasshouse", "+" + ref + ":refs/heads/in"}
	// Faults of old histories are for our own check to tell apart, so fsckObjects is left out.
	// Commits the mirror knows are offered as they are: the inbox has no references.
	if base, err := m.Ref(BaseRef); err == nil && m.opt.Invoker == nil {
		if err := os.WriteFile(filepath.Join(inbox, "refs", "heads", "base"), []byte(base+"\n"), 0o600); err != nil {
			return out, err
		}
	}
	errs := &tailBuffer{max: maxPushOutput}
	cmd := side.cmd("git-remote", args, &limited{max: 1 << 20}, &fetchLines{say: say, rest: errs})
	cmd.Env, cmd.Timeout, cmd.Memory = env, fetchTimeout, 8*m.opt.MaxMemory
	fctx, done := m.watchInbox(ctx, inbox, say)
	_, err = m.opt.Runner.Run(fctx, cmd)
	if why := done(); why != nil {
		return out, why
	}
	if err != nil {
		return out, m.silent(side, errs, err)
	}
	say.now("checking what came", 0, 0)
	id, err := os.ReadFile(filepath.Join(inbox, "refs", "heads", "in"))
	if err != nil {
		return out, fmt.Errorf("git fetched nothing: %w", err)
	}
	commit, err := odb.ParseID(strings.TrimSpace(string(id)))
	if err != nil {
		return out, err
	}
	out.Commit = commit.String()
	return out, m.takeFetched(ctx, filepath.Join(inbox, "objects"), commit, &out)
}

func (m *Mirror) takeFetched(ctx context.Context, objects string, commit odb.ID, out *Fetched) error {
	mine, err := odb.Open(m.objectsDir())
	if err != nil {
		return err
	}
	defer mine.Close()
	if mine.Has(commit) {
		return nil
	}
	s, err := odb.Open(objects, m.objectsDir())
	if err != nil {
		return err
	}
	defer s.Close()
	var have []odb.ID
	if base, err := m.Ref(BaseRef); err == nil {
		if id, err := odb.ParseID(base); err == nil && mine.Has(id) {
			have = append(have, id)
		}
	}
	ids, err := s.Walk(ctx, []odb.ID{commit}, have, maxSourceObjects)
	if err != nil {
		return err
	}
	out.Received, err = m.take(ctx, s, ids, commit)
	return err
}

// headOf asks which branch a remote's HEAD names.
func (m *Mirror) headOf(ctx context.Context, side *remoteSide) (string, error) {
	lines := &limited{max: 1 << 20}
	errs := &tailBuffer{max: maxPushOutput}
	_, err := m.opt.Runner.Run(ctx, side.cmd("git-remote", []string{"-c", "core.hooksPath=/dev/null", "ls-remote", "--symref", "glasshouse", "HEAD"}, lines, errs))
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", m.silent(side, errs, err)
	}
	for line := range strings.SplitSeq(lines.b.String(), "\n") {
		if ref, ok := strings.CutPrefix(line, "ref: "); ok {
			if ref, _, ok = strings.Cut(ref, "\t"); ok && strings.HasPrefix(ref, "refs/heads/") && source.SafeRef(ref) {
				return ref, nil
			}
		}
	}
	return "", domain.E(domain.CodeNotFound, "the remote "+Redact(side.url.raw)+" names no branch to start from", "give the branch, such as refs/heads/main; an empty repository has none", nil)
}

// silent is the error of a remote that gave no answer.
func (m *Mirror) silent(side *remoteSide, errs *tailBuffer, err error) error {
	if old := tooOld(errs); old != nil {
		return old
	}
	return domain.E(domain.CodeUnavailable, "the remote "+Redact(side.url.raw)+" did not answer: "+firstLines(side.redact(errs.String())),
		"check the address, the network and your credentials", redacted(err))
}

// importAddress fills the mirror from a remote instead of a folder.
func (m *Mirror) importAddress(ctx context.Context, address string, opt ImportOptions) (ImportResult, error) {
	res := ImportResult{Kind: "remote", Origin: address}
	if err := CheckAddress(address); err != nil {
		return res, err
	}
	ref := opt.Branch
	if ref != "" && !strings.HasPrefix(ref, "refs/") {
		ref = "refs/heads/" + ref
	}
	if ref != "" && (!strings.HasPrefix(ref, "refs/heads/") || !source.SafeRef(ref)) {
		return res, &domain.Error{Code: domain.CodeInvalid, Pointer: "/branch", What: fmt.Sprintf("%q is no branch", clip(opt.Branch, 100)), Hint: "give the name of a branch, such as main"}
	}
	f, err := m.fetch(ctx, address, ref, opt.Progress)
	if err != nil {
		return res, addressError(ctx, address, opt.Branch, err)
	}
	id, err := odb.ParseID(f.Commit)
	if err != nil {
		return res, err
	}
	files, err := m.files(ctx, id)
	if err != nil {
		return res, err
	}
	res.Path, res.Branch, res.Commit = Redact(address), strings.TrimPrefix(f.Ref, "refs/heads/"), f.Commit
	res.Files, res.Findings = len(files), f.Received.Findings
	return res, m.SetRef(BaseRef, f.Commit, "*")
}

// addressError says what a fetch that failed means for one who wants a project of it.
func addressError(ctx context.Context, address, branch string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var known *domain.Error
	if errors.As(err, &known) {
		if branch != "" && strings.Contains(known.What, "couldn't find remote ref") {
			return &domain.Error{Code: domain.CodeNotFound, Pointer: "/branch", What: fmt.Sprintf("the remote %s has no branch %q", Redact(address), clip(branch, 100)), Hint: "check its name, or give none for the branch its HEAD names"}
		}
		return err
	}
	return domain.E(domain.CodeDenied, "what the remote "+Redact(address)+" sent was not taken over", "'git clone' and 'git fsck' show what is wrong with it; nothing of it was kept", err)
}
