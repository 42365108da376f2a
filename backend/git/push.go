package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
	"glasshouse/backend/git/source"
	"glasshouse/vm/proc"
)

// PushSpec is one push of one object to one reference.
type PushSpec struct {
	URL      string // raw, as the person gave it; never logged
	Ref      string // full name: refs/heads/…
	Commit   string // what goes there
	Expected string // what must be there now; empty = the reference must not exist
	// Rewrite allows a push that takes commits off the reference.
	Rewrite bool
	// RemotePrograms allows a remote on this computer to run its own hooks.
	RemotePrograms bool
}

// PushResult is the remote's answer.
type PushResult struct {
	OK      bool
	Status  string   // "new", "updated", "forced", "same", or why not
	Remote  []string // the remote's own lines, raw
	Output  string   // all git said, credentials cut out, at most 64 KiB
	Address string   // where it went, credentials cut out
}

const maxPushOutput = 64 << 10

// Target says where a push to an address really goes after the person's own
// rewriting rules; credentials are cut out.
func (m *Mirror) Target(ctx context.Context, address string) (string, error) {
	uc, err := m.userConfig(ctx)
	if err != nil {
		return "", err
	}
	r, err := parseRemote(effective(address, uc.allowed))
	return Redact(r.raw), err
}

// Push sends exactly one commit to exactly one reference, if that still has the
// expected value, with the person's own credentials. Git runs on the mirror alone,
// with a configuration of ours and an allow-list of the person's settings. When the
// remote moved the error wraps ErrRemoteMoved, when it refused ErrRejected; the
// result holds its answer either way. When the connection breaks in the middle the
// remote is asked what became of the push.
func (m *Mirror) Push(ctx context.Context, spec PushSpec) (PushResult, error) {
	var res PushResult
	if err := m.checkSpec(ctx, spec); err != nil {
		return res, err
	}
	side, err := m.remote(ctx, spec.URL, spec.Commit)
	if err != nil {
		return res, err
	}
	defer side.close()
	res.Address = Redact(side.url.raw)
	args := []string{"-c", "core.hooksPath=/dev/null", "push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed",
		"--recurse-submodules=no", "--force-with-lease=" + spec.Ref + ":" + spec.Expected}
	if side.url.protocol == "file" {
		programs, err := localPrograms(side.url.path)
		if err != nil {
			return res, err
		}
		switch {
		case len(programs) == 0 || !spec.RemotePrograms:
			if len(programs) > 0 {
				return res, domain.E(domain.CodeDenied, fmt.Sprintf("the remote %s would run programs of its own on this computer: %s", res.Address, strings.Join(programs, ", ")),
					"take them out there, or push to another remote; nothing was sent", nil)
			}
			args = append(args, "--receive-pack=git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.denyCurrentBranch=refuse -c receive.autogc=false receive-pack")
		default:
			side.allowHooks()
		}
	}
	args = append(args, "glasshouse", spec.Commit+":"+spec.Ref)
	out := &limited{max: 1 << 20}
	errs := &tailBuffer{max: maxPushOutput}
	cmd := side.cmd("git-push", args, out, errs)
	cmd.Memory = 8 * m.opt.MaxMemory // it packs what it sends
	run, runErr := m.opt.Runner.Run(ctx, cmd)
	res.Output = side.redact(strings.ToValidUTF8(errs.String()+"\n"+out.b.String(), "\uFFFD"))
	for line := range strings.SplitSeq(errs.String(), "\n") {
		if text, ok := strings.CutPrefix(line, "remote: "); ok && len(res.Remote) < 200 {
			res.Remote = append(res.Remote, side.redact(strings.TrimRight(text, " \r\x1b[K")))
		}
	}
	flag, reason := porcelain(out.b.String(), spec.Ref)
	switch flag {
	case '*', ' ', '+', '=':
		if runErr == nil {
			res.OK, res.Status = true, map[byte]string{'*': "new", ' ': "updated", '+': "forced", '=': "same"}[flag]
			return res, nil
		}
	case '!':
		res.Status = side.redact(reason)
		return res, refusal(res, spec)
	}
	// No answer came back. The remote may still have taken it.
	if now, err := m.refsOf(context.WithoutCancel(ctx), side); err == nil && now[spec.Ref] == spec.Commit && spec.Commit != spec.Expected {
		res.OK, res.Status = true, "updated"
		return res, nil
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	if runErr == nil {
		runErr = fmt.Errorf("git gave no answer (exit %d)", run.Code)
	}
	if old := tooOld(errs); old != nil {
		return res, old
	}
	return res, domain.E(domain.CodeUnavailable, "the push to "+res.Address+" failed: "+firstLines(side.redact(errs.String())),
		"check the address, the network and your credentials ('git ls-remote' with the same address shows them), then push again", redacted(runErr))
}

// redacted keeps only the kind of a process's error: its text repeats what git printed.
func redacted(err error) error {
	var x *proc.ExitError
	if errors.As(err, &x) {
		if errors.Is(err, proc.ErrTimeout) {
			return proc.ErrTimeout
		}
		return fmt.Errorf("git ended with exit code %d", x.Code)
	}
	return err
}

func refusal(res PushResult, spec PushSpec) error {
	low := strings.ToLower(res.Status)
	for _, w := range []string{"stale info", "fetch first", "non-fast-forward", "cannot lock ref", "failed to update ref", "reference already exists", "incorrect old value"} {
		if strings.Contains(low, w) {
			return domain.E(domain.CodeConflict, fmt.Sprintf("%s on %s is no longer what was reviewed against", spec.Ref, res.Address),
				"bring in what is new there, review again, push again; nothing was changed", fmt.Errorf("%w (%s)", ErrRemoteMoved, res.Status))
		}
	}
	return domain.E(domain.CodeDenied, fmt.Sprintf("%s took nothing", res.Address), "read its answer, change what it asks for, review and push again", fmt.Errorf("%w: %s", ErrRejected, res.Status))
}

// porcelain finds the line about a reference: flag TAB from:to TAB summary.
func porcelain(out, ref string) (byte, string) {
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) == 3 && len(f[0]) == 1 && strings.HasSuffix(f[1], ":"+ref) {
			return f[0][0], f[2]
		}
	}
	return 0, ""
}

func (m *Mirror) checkSpec(ctx context.Context, spec PushSpec) error {
	if !strings.HasPrefix(spec.Ref, "refs/heads/") && !strings.HasPrefix(spec.Ref, "refs/for/") || !source.SafeRef(spec.Ref) {
		return domain.E(domain.CodeInvalid, fmt.Sprintf("%q is no branch a push can go to", clip(spec.Ref, 100)), "use refs/heads/NAME", nil)
	}
	commit, err := odb.ParseID(spec.Commit)
	if err != nil {
		return domain.E(domain.CodeInvalid, "the push names no commit", "", err)
	}
	o, err := m.Objects()
	if err != nil {
		return err
	}
	defer o.Close()
	if _, err := o.Commit(commit); err != nil {
		return domain.E(domain.CodeNotFound, "the commit to push is not in the mirror", "", err)
	}
	if spec.Expected == "" {
		return nil
	}
	old, err := odb.ParseID(spec.Expected)
	if err != nil {
		return domain.E(domain.CodeInvalid, "the push names no proper expected value", "", err)
	}
	if spec.Rewrite {
		return nil
	}
	ok := false
	if o.Has(old) {
		if ok, err = o.IsAncestor(ctx, old, commit); err != nil {
			return err
		}
	}
	if !ok {
		return domain.E(domain.CodeConflict, fmt.Sprintf("the commit does not build upon %s, which %s has", spec.Expected[:12], spec.Ref),
			"bring in what is new there, review again, push again", ErrRewrites)
	}
	return nil
}

// RemoteRefs asks a remote for its branches, by full name, with the same isolation as a push.
func (m *Mirror) RemoteRefs(ctx context.Context, address string) (map[string]string, error) {
	side, err := m.remote(ctx, address, "")
	if err != nil {
		return nil, err
	}
	defer side.close()
	return m.refsOf(ctx, side)
}

func (m *Mirror) refsOf(ctx context.Context, side *remoteSide) (map[string]string, error) {
	out := &limited{max: 32 << 20}
	errs := &tailBuffer{max: maxPushOutput}
	args := []string{"-c", "core.hooksPath=/dev/null", "ls-remote", "--heads", "glasshouse"}
	_, err := m.opt.Runner.Run(ctx, side.cmd("git-remote", args, out, errs))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, m.silent(side, errs, err)
	}
	if out.over {
		return nil, domain.E(domain.CodeTooLarge, "the remote has too many branches to list", "", nil)
	}
	refs := map[string]string{}
	for line := range strings.SplitSeq(out.b.String(), "\n") {
		id, name, ok := strings.Cut(line, "\t")
		if _, err := odb.ParseID(id); ok && err == nil && source.SafeRef(name) {
			refs[name] = id
		}
	}
	return refs, nil
}

// remoteSide is what one run of git against a remote needs: a folder with the
// configuration, and the repository to run on.
type remoteSide struct {
	m       *Mirror
	url     remoteURL
	dir     string // scratch
	gitDir  string
	config  string
	env     []string
	secrets []string
}

// remote prepares git's surroundings. The address goes in by the configuration
// file, so that no argument list ever holds what may be in it.
func (m *Mirror) remote(ctx context.Context, address, commit string) (*remoteSide, error) {
	uc, err := m.userConfig(ctx)
	if err != nil {
		return nil, domain.E(domain.CodeUnavailable, "your global git settings could not be read", "'git config --global --list' shows what is wrong", redacted(err))
	}
	u, err := parseRemote(effective(address, uc.allowed))
	if err != nil {
		return nil, err
	}
	dir, err := m.scratch()
	if err != nil {
		return nil, err
	}
	s := &remoteSide{m: m, url: u, dir: dir, gitDir: m.dir, config: filepath.Join(dir, "config")}
	if err := s.prepare(ctx, address, commit, uc); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *remoteSide) prepare(ctx context.Context, address, commit string, uc userConfig) error {
	if s.m.opt.Invoker != nil {
		s.gitDir = filepath.Join(s.dir, "mirror.git")
		if err := s.m.lend(s.gitDir, commit != ""); err != nil {
			return err
		}
	}
	var b strings.Builder
	b.WriteString("# Made for one push; deleted after it.\n")
	sshCommand := false
	for _, c := range uc.allowed {
		writeSetting(&b, c)
		sshCommand = sshCommand || c.key == "core.sshcommand"
		if strings.HasSuffix(c.key, ".extraheader") {
			if _, v, ok := strings.Cut(c.val, ":"); ok {
				s.secrets = append(s.secrets, strings.Fields(v)...)
			}
		}
	}
	if !sshCommand {
		writeSetting(&b, setting{key: "core.sshcommand", val: "ssh -oBatchMode=yes -oConnectTimeout=30"})
	}
	protocols := []string{"file", "ssh", "https"}
	if s.url.protocol == "http" {
		protocols = append(protocols, "http")
	}
	for _, c := range []setting{
		{key: "remote.glasshouse.url", val: address},
		{key: "core.hookspath", val: "/dev/null"},
		{key: "core.fsmonitor", val: "false"},
		{key: "core.pager", val: "cat"},
		{key: "core.askpass", val: ""},
		{key: "credential.interactive", val: "false"},
		{key: "gc.auto", val: "0"},
		{key: "maintenance.auto", val: "false"},
		{key: "push.recursesubmodules", val: "no"},
		{key: "push.followtags", val: "false"},
		{key: "push.gpgsign", val: "false"},
		{key: "http.followredirects", val: "false"},
		{key: "protocol.allow", val: "never"},
	} {
		writeSetting(&b, c)
	}
	for _, p := range protocols {
		writeSetting(&b, setting{key: "protocol." + p + ".allow", val: "always"})
	}
	if err := os.WriteFile(s.config, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if err := s.m.own(s.config); err != nil {
		return err
	}
	s.env = append(s.m.baseEnv(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+s.config, "GIT_DIR="+s.gitDir, "GIT_CEILING_DIRECTORIES="+s.dir,
		"GIT_TERMINAL_PROMPT=0", "SSH_ASKPASS_REQUIRE=never", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL="+strings.Join(protocols, ":"))
	for _, a := range []string{address, s.url.raw} {
		if g := userInfo.FindStringSubmatch(a); g != nil {
			user, pass, has := strings.Cut(g[2], ":")
			if has {
				s.secrets = append(s.secrets, pass)
			} else if s.url.protocol != "ssh" {
				s.secrets = append(s.secrets, user)
			}
		}
	}
	return ctx.Err()
}

// allowHooks lets the other side's hooks run: hooksPath then stays with our own side, on the command line.
func (s *remoteSide) allowHooks() {
	b, err := os.ReadFile(s.config)
	if err == nil {
		_ = os.WriteFile(s.config, []byte(strings.ReplaceAll(string(b), "[core]\n\thookspath = \"/dev/null\"\n", "")), 0o600)
	}
}

func (s *remoteSide) cmd(role string, args []string, out, errs io.Writer) proc.Cmd {
	return proc.Cmd{Role: role, Path: s.m.opt.Git, Args: args, Dir: s.dir, Env: s.env, Stdout: out, Stderr: errs, User: s.m.opt.Invoker, Memory: s.m.opt.MaxMemory}
}

func (s *remoteSide) close() { _ = os.RemoveAll(s.dir) }

func (s *remoteSide) redact(text string) string {
	for _, x := range s.secrets {
		if len(x) >= 4 {
			text = strings.ReplaceAll(text, x, "***")
		}
	}
	return Redact(text)
}

// lend makes a repository of the mirror's objects that the person git runs as
// can read: hard links where that works, else copies.
func (m *Mirror) lend(dst string, objects bool) error {
	for _, d := range []string{"", "objects", "objects/pack", "refs", "refs/heads"} {
		p := filepath.Join(dst, d)
		if err := os.MkdirAll(p, 0o700); err != nil {
			return err
		}
		if err := m.own(p); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"config": mirrorConfig, "HEAD": "ref: refs/heads/none\n"} {
		p := filepath.Join(dst, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			return err
		}
		if err := m.own(p); err != nil {
			return err
		}
	}
	if !objects {
		return nil
	}
	return filepath.WalkDir(m.objectsDir(), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(m.objectsDir(), p)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, "objects", rel)
		if d.IsDir() {
			if err := os.MkdirAll(to, 0o700); err != nil {
				return err
			}
			return m.own(to)
		}
		if !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "tmp_") {
			return nil
		}
		if os.Link(p, to) == nil {
			return nil
		}
		return copyFile(p, to)
	})
}

func copyFile(from, to string) error {
	in, err := odb.OpenRegular(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// tailBuffer keeps the last bytes written.
type tailBuffer struct {
	b   []byte
	max int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - t.max; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string { return string(t.b) }

// tooOld recognises a git that does not read the configuration it is pointed to:
// it then knows no remote of our name, and nothing was sent.
func tooOld(errs *tailBuffer) error {
	if !strings.Contains(errs.String(), "'glasshouse' does not appear to be a git repository") {
		return nil
	}
	return domain.E(domain.CodeUnavailable, "the installed git is too old to be kept apart from your other settings", "install git 2.32 or newer", nil)
}

// firstLines is what of git's words fits into one sentence: the first and the last lines.
func firstLines(s string) string {
	var lines []string
	for l := range strings.SplitSeq(s, "\n") {
		l = strings.Trim(l, "@ \t\r")
		switch l {
		case "", "Please make sure you have the correct access rights", "and the repository exists.", "fatal: Could not read from remote repository.":
		default:
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return "no reason was given"
	}
	if len(lines) > 5 {
		lines = append(lines[:2:2], lines[len(lines)-3:]...)
	}
	return clip(strings.Join(lines, "; "), 500)
}
