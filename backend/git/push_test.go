package git_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/backend/git/gittest"
	"glasshouse/vm/proc"
)

// rig is a mirror with two commits of which a remote has the first.
type rig struct {
	m      *git.Mirror
	run    *proc.Runner
	remote *gittest.Repo
	src    *gittest.Repo
	c1, c2 string
	opt    git.Options // of another mirror of the same person
}

func newRig(t testing.TB, home string) *rig {
	t.Helper()
	src := gittest.Init(t)
	src.Write("a", "one\n")
	c1 := src.Commit("one")
	remote := gittest.InitBare(t)
	src.Git("push", "-q", remote.Dir, "main")
	src.Git("tag", "v1")
	src.Write("a", "two\n")
	c2 := src.Commit("two")
	m, run := openMirrorEnv(t, map[string]string{"HOME": home})
	if _, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(c2)), []string{c2}, git.GuestLimits()); err != nil {
		t.Fatal(err)
	}
	opt := git.Options{Runner: run, Getenv: func(k string) string {
		return map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}[k]
	}}
	return &rig{m, run, remote, src, c1, c2, opt}
}

// goesThrough pushes over an address and checks every outcome a remote can give.
func (r *rig) goesThrough(t *testing.T, address string) {
	t.Helper()
	ctx := t.Context()
	r.fetches(t, address)
	refs, err := r.m.RemoteRefs(ctx, address)
	if err != nil || len(refs) != 1 || refs["refs/heads/main"] != r.c1 {
		t.Fatalf("refs %v %v", refs, err)
	}
	// Someone else was faster: nothing is lost on either side.
	other := r.src.CommitTree(r.src.Git("rev-parse", r.c1+"^{tree}"), r.c1)
	r.src.Git("push", "-q", r.remote.Dir, other+":refs/heads/main")
	res, err := r.m.Push(ctx, git.PushSpec{URL: address, Ref: "refs/heads/main", Commit: r.c2, Expected: r.c1})
	if !errors.Is(err, git.ErrRemoteMoved) || domain.CodeOf(err) != domain.CodeConflict {
		t.Fatalf("a remote that moved: %+v %v", res, err)
	}
	if got := r.remote.Git("rev-parse", "main"); got != other {
		t.Fatalf("the other's commit is gone: %s", got)
	}
	r.remote.Git("update-ref", "refs/heads/main", r.c1)

	res, err = r.m.Push(ctx, git.PushSpec{URL: address, Ref: "refs/heads/main", Commit: r.c2, Expected: r.c1})
	if err != nil || !res.OK || res.Status != "updated" {
		t.Fatalf("%+v %v", res, err)
	}
	// A name that must not exist yet, twice.
	spec := git.PushSpec{URL: address, Ref: "refs/heads/agent/work", Commit: r.c2}
	if res, err = r.m.Push(ctx, spec); err != nil || res.Status != "new" {
		t.Fatalf("%+v %v", res, err)
	}
	spec.Commit = r.c1
	if _, err = r.m.Push(ctx, spec); !errors.Is(err, git.ErrRemoteMoved) {
		t.Fatalf("a branch that exists was taken for new: %v", err)
	}
	want := fmt.Sprintf("%s refs/heads/agent/work\n%s refs/heads/main", r.c2, r.c2)
	if got := r.remote.Git("for-each-ref", "--format=%(objectname) %(refname)"); got != want {
		t.Fatalf("references on the remote:\n%s\nwant\n%s", got, want)
	}
	r.remote.Git("fsck", "--strict", "--full", "--no-dangling")
	for _, rec := range r.run.Records() {
		if rec.Role == "git-push" || rec.Role == "git-remote" {
			if strings.Contains(strings.Join(rec.Argv, " "), address) {
				t.Errorf("the address is in an argument list: %q", rec.Argv)
			}
		}
	}
	if n := r.run.Live(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// fetches brings what is new on the remote into the mirror, and starts another mirror from the address.
func (r *rig) fetches(t *testing.T, address string) {
	t.Helper()
	fresh := r.src.CommitTree(r.src.Git("rev-parse", r.c2+"^{tree}"), r.c1)
	r.src.Git("push", "-q", r.remote.Dir, fresh+":refs/heads/fresh")
	f, err := r.m.Fetch(t.Context(), address, "refs/heads/fresh")
	if err != nil || f.Commit != fresh {
		t.Fatalf("%+v %v", f, err)
	}
	inMirror(t, r.m).Git("cat-file", "-e", fresh+"^{tree}")
	if again, err := r.m.Fetch(t.Context(), address, "refs/heads/fresh"); err != nil || again.Commit != fresh || again.Received.Objects != 0 {
		t.Fatalf("%+v %v", again, err)
	}
	if _, err := r.m.Fetch(t.Context(), address, "refs/heads/nowhere"); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Fatalf("a branch that is not there: %v", err)
	}
	r.remote.Git("update-ref", "-d", "refs/heads/fresh")
	if !strings.Contains(address, "://") {
		return
	}
	m, err := git.Open(filepath.Join(t.TempDir(), "new.git"), r.opt)
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.ImportSource(t.Context(), address, git.ImportOptions{})
	if err != nil || res.Commit != r.c1 || res.Branch != "main" || res.Files != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	in := inMirror(t, m)
	in.Git("fsck", "--strict", "--full")
	if got := in.Git("for-each-ref", "--format=%(refname)"); got != git.BaseRef {
		t.Fatalf("references %q", got)
	}
}

func TestPushToPath(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.goesThrough(t, r.remote.Dir)
	r2 := newRig(t, t.TempDir())
	r2.goesThrough(t, "file://"+r2.remote.Dir)
}

func TestPushRewritesUrlsAsThePersonSays(t *testing.T) {
	home := t.TempDir()
	r := newRig(t, home)
	conf := fmt.Sprintf("[url %q]\n\tinsteadOf = mine:\n\tinsteadOf = https://work.example/\n", filepath.Dir(r.remote.Dir)+"/")
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if to, err := r.m.Target(t.Context(), "https://work.example/remote.git"); err != nil || to != r.remote.Dir {
		t.Fatalf("%q %v", to, err)
	}
	r.goesThrough(t, "https://work.example/remote.git")
	// A rule that leads to a program or to the open network is no way around the list.
	for _, to := range []string{"ext::sh -c id ", "http://example.org/", "git://example.org/", "--upload-pack=id "} {
		conf := fmt.Sprintf("[url %q]\n\tinsteadOf = https://work.example/\n", to)
		if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		if refs, err := r.m.RemoteRefs(t.Context(), "https://work.example/x"); domain.CodeOf(err) != domain.CodeInvalid {
			t.Errorf("%q: %v %v", to, refs, err)
		}
	}
}

func TestPushRefusesWhatIsNoReviewedPush(t *testing.T) {
	r := newRig(t, t.TempDir())
	ctx := t.Context()
	for name, s := range map[string]git.PushSpec{
		"tag":              {URL: r.remote.Dir, Ref: "refs/tags/v1", Commit: r.c2},
		"traversal":        {URL: r.remote.Dir, Ref: "refs/heads/../../config", Commit: r.c2},
		"delete":           {URL: r.remote.Dir, Ref: "refs/heads/main", Commit: strings.Repeat("0", 40), Expected: r.c1},
		"unknown object":   {URL: r.remote.Dir, Ref: "refs/heads/main", Commit: strings.Repeat("a", 40), Expected: r.c1},
		"no commit":        {URL: r.remote.Dir, Ref: "refs/heads/main", Commit: r.src.Git("rev-parse", r.c2+"^{tree}"), Expected: r.c1},
		"option":           {URL: "--upload-pack=touch x", Ref: "refs/heads/main", Commit: r.c2},
		"helper":           {URL: "ext::sh -c touch% x", Ref: "refs/heads/main", Commit: r.c2},
		"plain http":       {URL: "http://example.org/x.git", Ref: "refs/heads/main", Commit: r.c2},
		"git protocol":     {URL: "git://127.0.0.1/x.git", Ref: "refs/heads/main", Commit: r.c2},
		"ssh option host":  {URL: "ssh://-oProxyCommand=touch x/y", Ref: "refs/heads/main", Commit: r.c2},
		"relative":         {URL: "../x.git", Ref: "refs/heads/main", Commit: r.c2},
		"history rewrites": {URL: r.remote.Dir, Ref: "refs/heads/main", Commit: r.c1, Expected: r.c2},
	} {
		if res, err := r.m.Push(ctx, s); err == nil {
			t.Errorf("%s: %+v", name, res)
		}
	}
	if got := r.remote.Git("for-each-ref", "--format=%(objectname) %(refname)"); got != r.c1+" refs/heads/main" {
		t.Fatalf("the remote changed: %s", got)
	}
	for _, rec := range r.run.Records() {
		if rec.Role == "git-push" {
			t.Fatalf("git was started: %q", rec.Argv)
		}
	}
}

func TestPushShowsTheRemotesRefusal(t *testing.T) {
	r := newRig(t, t.TempDir())
	hook := filepath.Join(r.remote.Dir, "hooks", "pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho 'ticket number missing' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := git.PushSpec{URL: r.remote.Dir, Ref: "refs/heads/main", Commit: r.c2, Expected: r.c1}
	_, err := r.m.Push(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "hooks/pre-receive") {
		t.Fatalf("a remote with hooks on this computer was not asked about: %v", err)
	}
	spec.RemotePrograms = true
	res, err := r.m.Push(t.Context(), spec)
	if !errors.Is(err, git.ErrRejected) || res.OK || len(res.Remote) == 0 || !strings.Contains(res.Remote[0], "ticket number missing") {
		t.Fatalf("%+v %v", res, err)
	}
	if got := r.remote.Git("rev-parse", "main"); got != r.c1 {
		t.Fatal("the remote changed")
	}
}

func TestPushOverSSH(t *testing.T) {
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Skip("no sshd on this computer: pushing over ssh is not tested")
	}
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen on this computer: pushing over ssh is not tested")
	}
	dir := t.TempDir()
	for _, k := range []string{"host", "id"} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, k)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	pub, err := os.ReadFile(filepath.Join(dir, "id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	hostPub, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("authorized", string(pub))
	_ = os.MkdirAll("/run/sshd", 0o755)
	conf := write("sshd_config", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n", dir, dir))
	port := gittest.ServeSSH(t, sshd, conf)
	write("known", fmt.Sprintf("[127.0.0.1]:%d %s", port, hostPub))
	client := write("ssh_config", fmt.Sprintf("Host *\n  IdentityFile %s/id\n  IdentitiesOnly yes\n  UserKnownHostsFile %s/known\n  StrictHostKeyChecking yes\n", dir, dir))
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(fmt.Sprintf("[core]\n\tsshCommand = ssh -oBatchMode=yes -F %s\n", client)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, home)
	r.goesThrough(t, fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", me.Username, port, r.remote.Dir))
	// A host key that is not the known one: refused, and said so.
	if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "evil")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	evil, _ := os.ReadFile(filepath.Join(dir, "evil.pub"))
	write("known", fmt.Sprintf("[127.0.0.1]:%d %s", port, evil))
	if _, err := r.m.RemoteRefs(t.Context(), fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", me.Username, port, r.remote.Dir)); domain.CodeOf(err) != domain.CodeUnavailable || !strings.Contains(err.Error(), "Host key verification failed") {
		t.Fatalf("a changed host key: %v", err)
	}
}

func TestPushOverHTTPS(t *testing.T) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("no %s: pushing over https is not tested", backend)
	}
	home := t.TempDir()
	r := newRig(t, home)
	const pass = "sesame-7f3a-open"
	asked, landed := 0, 0
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if u, p, ok := q.BasicAuth(); !ok || u != "ann" || p != pass {
			asked++
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you? not "+pass, http.StatusUnauthorized)
			return
		}
		if strings.HasPrefix(q.URL.Path, "/moved") {
			http.Redirect(w, q, strings.Replace(q.URL.String(), "/moved", "/landed", 1), http.StatusFound)
			return
		}
		if strings.HasPrefix(q.URL.Path, "/landed") {
			landed++
		}
		(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.remote.Dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=ann", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}}).ServeHTTP(w, q)
	}))
	defer srv.Close()
	ca := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("[http %q]\n\tsslCAInfo = %s\n\tfollowRedirects = true\n[http]\n\tfollowRedirects = true\n[credential]\n\thelper = \"!f() { test \\\"$1\\\" = get && printf 'username=ann\\\\npassword=%s\\\\n'; }; f\"\n", srv.URL, ca, pass)
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	r.goesThrough(t, srv.URL+"/remote.git")
	if asked == 0 {
		t.Fatal("the server never asked for credentials")
	}
	// A redirect could take the push elsewhere: it is not followed.
	if _, err := r.m.RemoteRefs(t.Context(), srv.URL+"/moved/remote.git"); err == nil {
		t.Fatal("a redirect was followed")
	}
	if landed > 0 {
		t.Fatal("git went where the server sent it")
	}
	// Wrong credentials in the address: the error holds neither them nor what the server echoes.
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(fmt.Sprintf("[http %q]\n\tsslCAInfo = %s\n", srv.URL, ca)), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(srv.URL, "https://", "https://ann:wrong-password-1@", 1) + "/remote.git"
	res, err := r.m.Push(t.Context(), git.PushSpec{URL: bad, Ref: "refs/heads/x", Commit: r.c2})
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, res), "wrong-password") {
		t.Fatalf("%+v %v", res, err)
	}
	for _, rec := range r.run.Records() {
		if s := fmt.Sprint(rec); strings.Contains(s, "wrong-password") || strings.Contains(s, pass) {
			t.Fatalf("a credential was recorded: %s", s)
		}
	}
}

func TestPushRunsAsTheInvoker(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can push as another user: not tested")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("no user nobody: pushing as another user is not tested")
	}
	var uid, gid uint32
	_, _ = fmt.Sscan(nobody.Uid, &uid)
	_, _ = fmt.Sscan(nobody.Gid, &gid)
	src := gittest.Init(t)
	src.Write("a", "1")
	c := src.Commit("one")
	// A folder the other user can reach and write.
	base, err := os.MkdirTemp("", "glasshouse-invoker-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	remote := &gittest.Repo{T: t, Dir: filepath.Join(base, "remote.git")}
	if err := os.MkdirAll(remote.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	remote.Git("init", "-q", "--bare", ".")
	home := filepath.Join(base, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", "-R", nobody.Uid+":"+nobody.Gid, base).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := &proc.Runner{}
	m, err := git.Open(filepath.Join(t.TempDir(), "m.git"), git.Options{Runner: run, Invoker: &proc.User{UID: uid, GID: gid, Name: "nobody", Home: home}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Receive(t.Context(), bytes.NewReader(src.Pack(c)), []string{c}, git.GuestLimits()); err != nil {
		t.Fatal(err)
	}
	res, err := m.Push(t.Context(), git.PushSpec{URL: remote.Dir, Ref: "refs/heads/main", Commit: c})
	if err != nil || !res.OK {
		t.Fatalf("%+v %v", res, err)
	}
	out, err := exec.Command("stat", "-c", "%u", filepath.Join(remote.Dir, "refs/heads/main")).Output()
	if err != nil || strings.TrimSpace(string(out)) != nobody.Uid {
		t.Fatalf("the push ran as user %s: %v", out, err)
	}
	remote.Env = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}
	if got := remote.Git("rev-parse", "main"); got != c {
		t.Fatal(got)
	}
}

func TestPushLearnsTheOutcomeOfABrokenConnection(t *testing.T) {
	home := t.TempDir()
	r := newRig(t, home)
	// A git that pushes, then dies before it says so.
	fake := filepath.Join(t.TempDir(), "git")
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' push '*) %s \"$@\" >/dev/null 2>&1; exit 128;; esac\nexec %s \"$@\"\n", real, real)
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := git.Open(r.m.Dir(), git.Options{Runner: r.run, Git: fake, Getenv: func(k string) string {
		return map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}[k]
	}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.Push(t.Context(), git.PushSpec{URL: r.remote.Dir, Ref: "refs/heads/main", Commit: r.c2, Expected: r.c1})
	if err != nil || !res.OK {
		t.Fatalf("%+v %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Push(ctx, git.PushSpec{URL: r.remote.Dir, Ref: "refs/heads/main", Commit: r.c2, Expected: r.c1}); err == nil {
		t.Fatal("a cancelled push said nothing")
	}
}

func TestAnOldGitIsSaidToBeOld(t *testing.T) {
	r := newRig(t, t.TempDir())
	fake := filepath.Join(t.TempDir(), "git")
	script := "#!/bin/sh\ncase \" $* \" in *' config '*) exec git \"$@\";; esac\nunset GIT_CONFIG_GLOBAL\nexec git \"$@\"\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	opt := r.opt
	opt.Git = fake
	m, err := git.Open(r.m.Dir(), opt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Push(t.Context(), git.PushSpec{URL: r.remote.Dir, Ref: "refs/heads/main", Commit: r.c2, Expected: r.c1})
	if err == nil || !strings.Contains(err.Error(), "2.32") {
		t.Fatalf("%v", err)
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"https://ghp_token@host/x":               "https://***@host/x",
		"https://u:p@host/x?a=1":                 "https://***@host/x?a=1",
		"fatal: 'ssh://git@host/x' and more":     "fatal: 'ssh://git@host/x' and more",
		"ssh://git:pw@host/x":                    "ssh://git:***@host/x",
		"git@host:path":                          "git@host:path",
		"https://host/x?private_token=abc&b=2":   "https://host/x?private_token=***&b=2",
		"one https://a:b@h/ two https://c:d@i/ ": "one https://***@h/ two https://***@i/ ",
	} {
		if got := git.Redact(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
