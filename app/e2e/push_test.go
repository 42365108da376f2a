package e2e

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/project"
	"glasshouse/backend/review"
)

// work is what the agent does; the test does the same to a copy of its own.
const work = `set -e
sed -i -e '2s/.*/changed near the top/' -e '30s/.*/changed in the middle/' -e '58s/.*/changed near the end/' a.txt
mv old.txt new.txt; sed -i '10s/.*/edited while it moved/' new.txt
chmod +x run.sh
printf '\000\001new\377' >data.bin
rm gone.txt
printf 'added\n' >added.txt
ln -s a.txt link`

// pushWorld is a world whose person has git settings of their own.
type pushWorld struct {
	*World
	t    *testing.T
	home string
	src  *gittest.Repo
	base string
	// want is a copy of the source with the agent's work done and staged.
	want *gittest.Repo
	// fresh counts branches.
	fresh int
}

func newPushWorld(t *testing.T, kind string) *pushWorld {
	w := &pushWorld{World: NewWorld(t, kind), t: t}
	w.home = filepath.Join(w.Dir, "home")
	if err := os.Mkdir(w.home, 0o700); err != nil {
		t.Fatal(err)
	}
	w.Env = append(w.Env, "HOME="+w.home, "GIT_CONFIG_NOSYSTEM=1")
	w.config("")
	w.Start()
	w.src = gittest.Init(t)
	var lines strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	for name, text := range map[string]string{"a.txt": lines.String(), "old.txt": strings.ReplaceAll(lines.String(), "line", "row"),
		"run.sh": "#!/bin/sh\n", "data.bin": "\x00\x01old\xff", "gone.txt": "gone\n", "keep.txt": "kept\n"} {
		w.src.Write(name, text)
	}
	w.base = w.src.Commit("base")
	w.want = gittest.Init(t)
	w.want.Git("fetch", "-q", w.src.Dir, "main")
	w.want.Git("reset", "-q", "--hard", "FETCH_HEAD")
	c := exec.Command("bash", "-c", work)
	c.Dir = w.want.Dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.want.Git("add", "-A")
	return w
}

func (w *pushWorld) config(more string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.home, ".gitconfig"), []byte("[user]\n\tname = Pat Person\n\temail = pat@example.org\n"+more), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *pushWorld) in(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		old := w.t
		w.t, w.World.t = t, t
		defer func() { w.t, w.World.t = old, old }()
		f(t)
	})
}

// shop makes a project of the source in which the agent ran a script.
func (w *pushWorld) shop(script string) (httpapi.ProjectView, string) {
	w.t.Helper()
	p := w.Project(w.src.Dir)
	s := w.Session(p)
	w.does(s, script)
	return p, s
}

func (w *pushWorld) does(s, script string) {
	w.t.Helper()
	if a := w.Bash(s, script); a.ExitCode == nil || *a.ExitCode != 0 {
		w.t.Fatalf("%+v", a)
	}
}

// open opens a review of what goes to a branch; ref "" = one that nobody has used.
func (w *pushWorld) open(p httpapi.ProjectView, remote, ref string) (v project.ReviewView) {
	w.t.Helper()
	if ref == "" {
		w.fresh++
		ref = fmt.Sprintf("fresh-%d", w.fresh)
	}
	w.Call("POST", "/v1/projects/"+string(p.ID)+"/reviews", map[string]any{"remote": remote, "ref": ref}, &v)
	return v
}

func (w *pushWorld) decide(v *project.ReviewView, file, unit string, d review.Decision) {
	w.t.Helper()
	w.Call("POST", "/v1/reviews/"+string(v.ID)+"/decisions", map[string]any{"file": file, "unit": unit, "decision": d}, v)
}

func (w *pushWorld) push(v project.ReviewView, in map[string]any) (pv project.PushView, err error) {
	err = w.Try("POST", "/v1/reviews/"+string(v.ID)+"/push", in, &pv)
	return pv, err
}

// expected is the tree that git itself makes of the base and the accepted part.
func (w *pushWorld) expected(accept func(path, unit string) bool, units map[string][]string) string {
	w.t.Helper()
	r := w.want
	old := r.Env
	r.Env = append(slices.Clone(old), "GIT_INDEX_FILE="+filepath.Join(w.t.TempDir(), "index"))
	defer func() { r.Env = old }()
	staged := r.Git("rev-parse", "refs/test/want^{tree}")
	r.Git("read-tree", w.base)
	entry := func(tree, path string) []string {
		f := strings.Fields(r.Git("ls-tree", tree, path))
		return []string{f[0], f[2]}
	}
	set := func(mode, id, path string) { r.Git("update-index", "--add", "--cacheinfo", mode+","+id+","+path) }
	hunks := func(from, to string, path string, picked []bool) {
		diff := strings.SplitAfter(r.Git("diff", "--no-renames", "-U3", from, to, "--")+"\n", "\n")
		var out strings.Builder
		n := -1
		for _, l := range diff {
			if strings.HasPrefix(l, "@@") {
				n++
			}
			switch {
			case n < 0 && strings.HasPrefix(l, "--- "):
				out.WriteString("--- a/" + path + "\n")
			case n < 0 && strings.HasPrefix(l, "+++ "):
				out.WriteString("+++ b/" + path + "\n")
			case n >= 0 && picked[n]:
				out.WriteString(l)
			}
		}
		if n+1 != len(picked) {
			w.t.Fatalf("git sees %d hunks of %s, the review %d", n+1, path, len(picked))
		}
		if slices.Contains(picked, true) {
			r.GitIn([]byte(out.String()), "apply", "--cached", "--recount", "-")
		}
	}
	pick := func(path string) (out []bool) {
		for _, u := range units[path] {
			if u != review.UnitRename && u != review.UnitMode {
				out = append(out, accept(path, u))
			}
		}
		return out
	}
	blobs := func(path, base string) (string, string) { return entry(w.base, base)[1], entry(staged, path)[1] }

	from, to := blobs("a.txt", "a.txt")
	hunks(from, to, "a.txt", pick("a.txt"))
	from, to = blobs("new.txt", "old.txt")
	name := "old.txt"
	if accept("new.txt", review.UnitRename) {
		r.Git("rm", "-q", "--cached", "old.txt")
		name = "new.txt"
		set("100644", from, name)
	}
	hunks(from, to, name, pick("new.txt"))
	if accept("run.sh", review.UnitMode) {
		set("100755", entry(staged, "run.sh")[1], "run.sh")
	}
	if accept("data.bin", review.UnitContent) {
		set("100644", entry(staged, "data.bin")[1], "data.bin")
	}
	if accept("gone.txt", review.UnitFile) {
		r.Git("rm", "-q", "--cached", "gone.txt")
	}
	for _, f := range []string{"added.txt", "link"} {
		if accept(f, review.UnitFile) {
			e := entry(staged, f)
			set(e[0], e[1], f)
		}
	}
	return r.Git("write-tree")
}

func TestPush(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind string) { pushes(t, newPushWorld(t, kind)) })
}

func pushes(t *testing.T, w *pushWorld) {
	w.want.Git("update-ref", "refs/test/want", w.want.CommitTree(w.want.Git("write-tree")))
	p, s := w.shop(work)
	remote := gittest.InitBare(t)
	w.src.Git("push", "-q", remote.Dir, "main")

	w.in(t, "undecided and rejected", func(t *testing.T) {
		v := w.open(p, remote.Dir, "never")
		to := map[string]any{"remote": remote.Dir, "ref": "never"}
		if _, err := w.push(v, to); code(err) != "conflict" || !strings.Contains(err.Error(), "wait for a decision") {
			t.Errorf("nothing is decided: %v", err)
		}
		w.decide(&v, "", "", review.Accept)
		w.decide(&v, v.Files[0].ID, v.Files[0].Units[0], review.Undecided)
		if _, err := w.push(v, to); code(err) != "conflict" || !strings.Contains(err.Error(), "1 of ") {
			t.Errorf("one is not decided: %v", err)
		}
		w.decide(&v, "", "", review.Reject)
		if _, err := w.push(v, to); code(err) != "conflict" || !strings.Contains(err.Error(), "every change was rejected") {
			t.Errorf("all is rejected: %v", err)
		}
		if out, err := remote.Try(nil, "rev-parse", "--verify", "-q", "refs/heads/never"); err == nil {
			t.Errorf("something was pushed: %s", out)
		}
	})

	w.in(t, "a part of the changes, exactly", func(t *testing.T) {
		v := w.open(p, remote.Dir, "")
		units := map[string][]string{}
		for _, f := range v.Files {
			units[f.Path] = f.Units
		}
		if len(units) != 7 || len(units["a.txt"]) != 3 || len(units["new.txt"]) != 2 {
			t.Fatalf("the review has %v", units)
		}
		rng := rand.New(rand.NewSource(7))
		for n := range 6 * seeds(1) {
			picked := map[string]bool{}
			ref := fmt.Sprintf("part-%d", n)
			some := false
			for _, f := range v.Files {
				for _, u := range f.Units {
					d := review.Reject
					if rng.Intn(2) == 0 {
						d, some, picked[f.Path+" "+u] = review.Accept, true, true
					}
					w.decide(&v, f.ID, u, d)
				}
			}
			if !some {
				continue
			}
			pv, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": ref, "message": "Part " + ref})
			if err != nil || pv.State != "ok" {
				t.Fatalf("%v %+v", err, pv)
			}
			want := w.expected(func(path, unit string) bool { return picked[path+" "+unit] }, units)
			if got := remote.Git("rev-parse", ref+"^{tree}"); got != want {
				t.Errorf("picked %v\npushed is\n%s\ngit makes\n%s", picked, remote.Git("ls-tree", "-r", got), w.want.Git("ls-tree", "-r", want))
			}
			if got := remote.Git("log", "-1", "--format=%P|%an <%ae>|%cn|%B", ref); got != w.base+"|Pat Person <pat@example.org>|Pat Person|Part "+ref+"\n" {
				t.Errorf("the commit is %q", got)
			}
		}
		remote.Git("fsck", "--strict", "--no-dangling")
	})

	w.in(t, "the plan that was shown", func(t *testing.T) {
		v := w.open(p, remote.Dir, "planned")
		w.decide(&v, "", "", review.Accept)
		in := map[string]any{"remote": remote.Dir, "ref": "planned"}
		var plan review.Plan
		w.Call("POST", "/v1/reviews/"+string(v.ID)+"/plan", in, &plan)
		if out, err := remote.Try(nil, "rev-parse", "--verify", "-q", "refs/heads/planned"); err == nil {
			t.Errorf("a plan pushed %s", out)
		}
		in["digest"] = plan.Digest
		w.decide(&v, v.Files[0].ID, v.Files[0].Units[0], review.Reject)
		if _, err := w.push(v, in); code(err) != "conflict" {
			t.Errorf("a decision changed after the plan: %v", err)
		}
		w.decide(&v, v.Files[0].ID, v.Files[0].Units[0], review.Accept)
		if pv, err := w.push(v, in); err != nil || pv.Commit != plan.Commit || remote.Git("rev-parse", "planned") != plan.Commit {
			t.Errorf("%v %+v", err, pv)
		}
	})

	w.in(t, "the remote moved", func(t *testing.T) {
		// A branch that did not move takes what builds upon it.
		w.src.Git("push", "-q", remote.Dir, "main:still")
		w.lands(t, p, remote, remote.Dir, "still")
		v := w.open(p, remote.Dir, "main")
		if v.Expected != w.base {
			t.Fatalf("%+v", v)
		}
		w.decide(&v, "", "", review.Accept)
		other := gittest.Init(t)
		other.Git("fetch", "-q", remote.Dir, "main")
		other.Git("reset", "-q", "--hard", "FETCH_HEAD")
		other.Write("theirs.txt", "theirs\n")
		theirs := other.Commit("theirs")
		other.Git("push", "-q", remote.Dir, "HEAD:main")
		if _, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "main"}); code(err) != "conflict" || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%v", err)
		}
		if got := remote.Git("rev-parse", "main"); got != theirs {
			t.Errorf("the remote holds %s", got)
		}
		var again project.ReviewView
		w.Call("GET", "/v1/reviews/"+string(v.ID), nil, &again)
		if again.Accepted != v.Accepted || again.Candidate != v.Candidate || len(again.Pushes) != 1 || again.Pushes[0].State != "failed" {
			t.Errorf("after the refusal the review is %+v", again)
		}
		if pv, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "beside"}); err != nil || pv.State != "ok" || remote.Git("rev-parse", "beside") != pv.Commit {
			t.Errorf("to another branch: %v %+v", err, pv)
		}
		// A branch that nobody looked at, with what these changes do not build upon.
		if _, err := w.push(w.reviewed(p, remote), map[string]any{"remote": remote.Dir, "ref": "main"}); code(err) != "conflict" {
			t.Errorf("a branch that nobody looked at: %v", err)
		}
		if got := remote.Git("rev-parse", "main"); got != theirs {
			t.Errorf("the remote holds %s", got)
		}
	})

	w.in(t, "one after the other", func(t *testing.T) {
		v := w.open(p, remote.Dir, "steps")
		rejected := v.Files[0]
		w.decide(&v, "", "", review.Accept)
		w.decide(&v, rejected.ID, "", review.Reject)
		first, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "steps"})
		if err != nil {
			t.Fatal(err)
		}
		// The next one begins where the branch is: what was rejected is asked again.
		v = w.open(p, remote.Dir, "steps")
		if v.Base != first.Commit || len(v.Files) != 1 || v.Files[0].Path != rejected.Path {
			t.Fatalf("%+v", v)
		}
		w.decide(&v, "", "", review.Accept)
		if _, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "steps"}); err != nil {
			t.Fatal(err)
		}
		if got, want := remote.Git("rev-parse", "steps^{tree}"), w.want.Git("rev-parse", "refs/test/want^{tree}"); got != want {
			t.Errorf("the branch holds %s, all of the work is %s", got, want)
		}
		if got := remote.Git("rev-list", "steps", "^"+first.Commit+"^"); len(strings.Fields(got)) != 2 {
			t.Errorf("commits: %s", got)
		}
		if err := w.Try("POST", "/v1/projects/"+string(p.ID)+"/reviews", map[string]any{"remote": remote.Dir, "ref": "steps"}, nil); code(err) != "conflict" {
			t.Errorf("nothing is new: %v", err)
		}
	})

	w.in(t, "a core that died between review and push", func(t *testing.T) {
		v := w.open(p, remote.Dir, "after-death")
		w.decide(&v, "", "", review.Accept)
		w.decide(&v, v.Files[0].ID, "", review.Reject)
		w.KillCore()
		w.Start()
		var again project.ReviewView
		w.Call("GET", "/v1/reviews/"+string(v.ID), nil, &again)
		if again.Accepted != v.Accepted || again.Rejected != v.Rejected || again.Undecided != 0 {
			t.Fatalf("%+v", again)
		}
		if pv, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "after-death"}); err != nil || pv.State != "ok" {
			t.Errorf("%v %+v", err, pv)
		}
	})

	w.in(t, "ssh", func(t *testing.T) { pushOverSSH(t, w, p, remote) })
	w.in(t, "https", func(t *testing.T) { pushOverHTTPS(t, w, p, remote) })
	w.config("")

	w.in(t, "the agent's commits", func(t *testing.T) {
		w.does(s, `git -c user.name=Agent -c user.email=agent@example.org -c commit.gpgsign=false commit -q --allow-empty -m x; git add -A; git -c user.name=Agent -c user.email=agent@example.org commit -q -m "first: all"
echo second >second.txt; git add -A; git -c user.name=Agent -c user.email=agent@example.org commit -q -m "second"`)
		v := w.open(p, remote.Dir, "")
		w.decide(&v, "", "", review.Accept)
		// What comes after the review was opened is not in it.
		w.does(s, `echo evil >evil.txt; git add -A; git -c user.name=Agent -c user.email=agent@example.org commit -q --amend -m evil; echo dirty >dirty.txt`)
		one, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "one"})
		if err != nil {
			t.Fatal(err)
		}
		if got := remote.Git("rev-list", "--parents", "one", "^main^"); got != one.Commit+" "+w.base {
			t.Errorf("one commit is %q", got)
		}
		if got := remote.Git("log", "-1", "--format=%an", "one"); got != "Pat Person" {
			t.Errorf("it is by %s", got)
		}
		whole, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "whole", "history": true})
		if err != nil {
			t.Fatal(err)
		}
		if got := remote.Git("log", "--format=%an %s", "whole", "^"+w.base); got != "Agent second\nAgent first: all\nAgent x" || whole.Commit != v.Candidate {
			t.Errorf("the history is %q", got)
		}
		for _, ref := range []string{"one", "whole"} {
			if got := remote.Git("ls-tree", "-r", "--name-only", ref); strings.Contains(got, "evil") || strings.Contains(got, "dirty") || !strings.Contains(got, "second.txt") {
				t.Errorf("%s holds %s", ref, got)
			}
		}
		if one.Tree != whole.Tree {
			t.Errorf("the trees differ: %s %s", one.Tree, whole.Tree)
		}
		w.decide(&v, v.Files[0].ID, "", review.Reject)
		if _, err := w.push(v, map[string]any{"remote": remote.Dir, "ref": "never", "history": true}); code(err) != "conflict" {
			t.Errorf("history with a part rejected: %v", err)
		}
		remote.Git("fsck", "--strict", "--no-dangling")
	})
}

// reviewed opens a review and accepts all of it.
func (w *pushWorld) reviewed(p httpapi.ProjectView, remote *gittest.Repo) project.ReviewView {
	w.t.Helper()
	v := w.open(p, remote.Dir, "")
	w.decide(&v, "", "", review.Accept)
	return v
}

// lands pushes a fresh review to an address and looks at what came of it.
func (w *pushWorld) lands(t *testing.T, p httpapi.ProjectView, remote *gittest.Repo, address, ref string) {
	t.Helper()
	v := w.open(p, address, ref)
	w.decide(&v, "", "", review.Accept)
	pv, err := w.push(v, map[string]any{"remote": address, "ref": ref})
	if err != nil || pv.State != "ok" {
		t.Fatalf("%v %+v", err, pv)
	}
	if got := remote.Git("rev-parse", "refs/heads/"+ref); got != pv.Commit {
		t.Errorf("the remote holds %s, pushed was %s", got, pv.Commit)
	}
	remote.Git("fsck", "--strict", "--no-dangling")
}

func pushOverSSH(t *testing.T, w *pushWorld, p httpapi.ProjectView, remote *gittest.Repo) {
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Skip("SKIPPED: there is no sshd on this computer, so no push goes over ssh; install openssh-server")
	}
	dir := t.TempDir()
	key := func(name string) string {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(filepath.Join(dir, name+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host := key("host")
	put("authorized", key("id"))
	put("sshd", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n", dir, dir))
	if os.Geteuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755)
	}
	port := gittest.ServeSSH(t, sshd, filepath.Join(dir, "sshd"))
	put("known", fmt.Sprintf("[127.0.0.1]:%d %s", port, host))
	put("client", fmt.Sprintf("Host *\n  IdentityFile %s/id\n  IdentitiesOnly yes\n  UserKnownHostsFile %s/known\n  StrictHostKeyChecking yes\n", dir, dir))
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	w.config(fmt.Sprintf("[core]\n\tsshCommand = ssh -oBatchMode=yes -F %s/client\n", dir))
	address := fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", me.Username, port, remote.Dir)
	w.lands(t, p, remote, address, "by-ssh")
	w.lands(t, p, remote, fmt.Sprintf("ssh://127.0.0.1:%d%s", port, remote.Dir), "by-ssh-again")
	// Another host key than the known one.
	v := w.reviewed(p, remote)
	put("known", fmt.Sprintf("[127.0.0.1]:%d %s", port, key("evil")))
	if _, err := w.push(v, map[string]any{"remote": address, "ref": "never"}); code(err) != "unavailable" || !strings.Contains(err.Error(), "Host key verification failed") {
		t.Errorf("a changed host key: %v", err)
	}
	// No key that the server knows.
	put("known", fmt.Sprintf("[127.0.0.1]:%d %s", port, host))
	put("authorized", "")
	if _, err := w.push(v, map[string]any{"remote": address, "ref": "never"}); code(err) != "unavailable" || !strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("a key that the server does not know: %v", err)
	}
}

func pushOverHTTPS(t *testing.T, w *pushWorld, p httpapi.ProjectView, remote *gittest.Repo) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("SKIPPED: there is no %s, so no push goes over https", backend)
	}
	const pass, wrong = "open-sesame-41c7", "wrong-sesame-88d2"
	var asked, inside atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		u, pw, ok := q.BasicAuth()
		if !ok || u != "pat" || pw != pass {
			asked.Add(1)
			rw.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(rw, "who are you, "+pw+"?", http.StatusUnauthorized)
			return
		}
		inside.Add(1)
		(&cgi.Handler{Path: backend, Stderr: io.Discard, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(remote.Dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=pat", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}}).ServeHTTP(rw, q)
	}))
	defer srv.Close()
	srv.Config.ErrorLog = nil
	remote.Git("config", "http.receivepack", "true")
	ca := filepath.Join(w.home, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(w.home, "helper")
	if err := os.WriteFile(helper, []byte("#!/bin/sh\ntest \"$1\" = get && printf 'username=pat\\npassword="+pass+"\\n'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	trust := fmt.Sprintf("[http]\n\tsslCAInfo = %s\n", ca)
	address := srv.URL + "/" + filepath.Base(remote.Dir)
	v := w.reviewed(p, remote)
	fails := func(what, address string, codes ...string) {
		t.Helper()
		if _, err := w.push(v, map[string]any{"remote": address, "ref": "never"}); err == nil || !slices.Contains(codes, code(err)) || strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), pass) {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.config("")
	fails("a certificate that nobody trusts", address, "unavailable")
	w.config(trust)
	fails("no credentials", address, "unavailable")
	fails("wrong credentials in the address", strings.Replace(address, "https://", "https://pat:"+wrong+"@", 1), "unavailable")
	if inside.Load() != 0 {
		t.Fatal("somebody came in without the password")
	}
	w.config(trust + "[credential]\n\thelper = " + helper + "\n")
	w.lands(t, p, remote, address, "by-https")
	if asked.Load() == 0 || inside.Load() == 0 {
		t.Error("the server was never asked")
	}
	fails("plain http to elsewhere", "http://host.example/x.git", "invalid")
	fails("no such repository", srv.URL+"/none.git", "unavailable")
	// No record holds a password.
	for _, e := range w.Log(url.Values{}) {
		if bytes.Contains(e.Data, []byte(pass)) || bytes.Contains(e.Data, []byte(wrong)) {
			t.Errorf("event %d holds a password: %s", e.ID, e.Data)
		}
	}
	var ran []httpapi.ProcessRecord
	w.Call("GET", "/v1/processes", nil, &ran)
	if s := fmt.Sprint(ran); strings.Contains(s, pass) || strings.Contains(s, wrong) {
		t.Error("an argument list holds a password")
	}
	if b, err := os.ReadFile(w.log); err != nil || bytes.Contains(b, []byte(pass)) || bytes.Contains(b, []byte(wrong)) {
		t.Errorf("the core's log holds a password (%v)", err)
	}
}
