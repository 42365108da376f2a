package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/event"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/project"
	"glasshouse/vm/proc"
)

// canary stands in what must stay outside, found in what comes inside.
const (
	canary = "c4n4ry-0ut51d3-7f3a"
	inside = "c4n4ry-1n51d3-90be"
)

// fingerprint is one hash over names, modes, times, links and bytes of a tree.
func fingerprint(t *testing.T, roots ...string) string {
	t.Helper()
	h := sha256.New()
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			i, err := e.Info()
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%q %v %d %d\n", path, i.Mode(), i.ModTime().UnixNano(), i.Size())
			switch {
			case i.Mode().IsRegular():
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(h, "%x\n", sha256.Sum256(b))
			case i.Mode()&fs.ModeSymlink != 0:
				to, err := os.Readlink(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(h, "%q\n", to)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// search looks for a text everywhere in the guest that the agent's user can read:
// files, environments and the objects of the repository. The text itself is not in
// the command, which would find itself.
func (w *World) search(t *testing.T, s, text string) string {
	t.Helper()
	script := `C=$(echo ` + reversed(text) + ` | rev)
grep -rslF --devices=skip "$C" /workspace /home /tmp /var /run /etc /root /srv /opt /mnt 2>/dev/null
tr '\0' '\n' 2>/dev/null </proc/1/environ | grep -F "$C"; env | grep -vE '^C=' | grep -F "$C"
cd /workspace && git cat-file --batch-all-objects --batch --buffer 2>/dev/null | grep -caF "$C" | sed 's/^/objects: /' | grep -v ': 0$'
git log --all --format=%B%an%ae 2>/dev/null | grep -F "$C"
exit 0`
	a := w.Bash(s, script)
	if a.ExitCode == nil || *a.ExitCode != 0 || a.Stderr != "" {
		t.Fatalf("%+v", a)
	}
	return a.Stdout
}

// keepOut puts the canary into a source's places that must stay outside.
func keepOut(r *gittest.Repo, git bool) {
	if git {
		r.Write(".gitignore", "ignored/\n*.secret\n.env\n")
	} else {
		r.Write(".gitignore", "ignored/\n*.secret\n") // a folder's secrets stay outside by their names too
	}
	r.Write("ignored/file", canary)
	r.Write("x.secret", canary)
	r.Write(".env", "TOKEN="+canary)
	r.Write("sub/.env", "TOKEN="+canary)
	if git {
		r.Git("config", "remote.origin.url", "https://user:"+canary+"@host.example/x.git")
		r.Git("config", "http.extraHeader", "Authorization: "+canary)
		r.Write(".git/hooks/pre-commit", "#!/bin/sh\n# "+canary+"\n")
		r.Write("stashed", canary)
		r.Git("stash", "push", "-q", "-u", "--", "stashed")
		r.Git("checkout", "-q", "--orphan", "private")
		r.Write("other-branch", canary)
		r.Git("add", "-f", "other-branch")
		r.Git("commit", "-q", "-m", "private "+canary)
		r.Git("checkout", "-q", "main")
	}
}

// TestSources makes projects out of all sorts of folders.
func TestSources(t *testing.T) {
	onKind(t, "local")
	t.Parallel()
	w := NewWorld(t, "local")
	w.Start()
	type ask struct {
		dir  string
		with []string
	}
	for _, c := range []struct {
		name  string
		make  func(t *testing.T, r *gittest.Repo) ask
		check func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string)
	}{
		{"a plain folder", func(t *testing.T, r *gittest.Repo) ask {
			r.Remove(".git")
			keepOut(r, false)
			r.Write("a.txt", inside)
			r.Write("deep/er/b.txt", "b\n")
			return ask{dir: r.Dir}
		}, func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string) {
			if got := run("git ls-files; git status --porcelain; git rev-list --count HEAD"); got != ".gitignore\na.txt\ndeep/er/b.txt\n1\n" {
				t.Errorf("inside is %q", got)
			}
			if p.Imported.IgnoredOut == 0 {
				t.Error("nothing is said of what was left outside")
			}
		}},
		{"no commits yet", func(t *testing.T, r *gittest.Repo) ask {
			r.Write("untracked", canary)
			return ask{dir: r.Dir}
		}, func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string) {
			if got := run("ls -A; git rev-parse HEAD 2>/dev/null; git symbolic-ref HEAD"); got != ".git\nHEAD\nrefs/heads/main\n" && got != ".git\nrefs/heads/main\n" {
				t.Errorf("inside is %q", got)
			}
			if !slices.Contains(p.Imported.Dirty, "untracked") {
				t.Errorf("%+v", p.Imported)
			}
		}},
		{"an empty first commit and no branch", func(t *testing.T, r *gittest.Repo) ask {
			r.Git("commit", "-q", "--allow-empty", "-m", "nothing yet "+inside)
			r.Git("checkout", "-q", "--detach")
			return ask{dir: r.Dir}
		}, func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string) {
			if got, want := run("git rev-parse HEAD; ls -A"), r.Git("rev-parse", "HEAD")+"\n.git\n"; got != want || p.Imported.Commit == "" {
				t.Errorf("inside is %q, %q was made", got, want)
			}
		}},
		{"changed files", func(t *testing.T, r *gittest.Repo) ask {
			r.Write("a.txt", "one\n")
			r.Write("b.txt", "one\n"+inside)
			r.Write("gone.txt", "one\n")
			r.Write(".gitignore", "ignored/\n*.secret\n.env\n")
			r.Commit("base")
			keepOut(r, true)
			r.Write("a.txt", "two\n")
			r.Write("b.txt", "two "+canary+"\n")
			r.Write("new.txt", "new\n")
			r.Write("staged.txt", canary)
			r.Git("add", "staged.txt")
			r.Remove("gone.txt")
			return ask{dir: r.Dir, with: []string{"a.txt", "new.txt", "gone.txt"}}
		}, func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string) {
			if got, want := run("git status --porcelain; cat a.txt new.txt; git rev-parse HEAD; git branch --show-current"), " M a.txt\n D gone.txt\n?? new.txt\ntwo\nnew\n"+r.Git("rev-parse", "HEAD")+"\nmain\n"; got != want {
				t.Errorf("inside is %q, want %q", got, want)
			}
			slices.Sort(p.Imported.Overlaid)
			if fmt.Sprint(p.Imported.Overlaid) != "[a.txt gone.txt new.txt]" || !slices.Contains(p.Imported.Dirty, "b.txt") || !slices.Contains(p.Imported.Dirty, "staged.txt") || slices.Contains(p.Imported.Dirty, "a.txt") {
				t.Errorf("%+v", p.Imported)
			}
		}},
		{"submodule, links, odd names, filters", func(t *testing.T, r *gittest.Repo) ask {
			other := gittest.Init(t)
			other.Write("in-sub", canary)
			other.Commit("sub")
			r.Git("-c", "protocol.file.allow=always", "submodule", "add", "-q", other.Dir, "mod")
			for _, n := range gittest.OddNames {
				r.Write("odd/"+n, "of "+n)
			}
			outside := t.TempDir()
			if err := os.WriteFile(filepath.Join(outside, "secret"), []byte(canary), 0o644); err != nil {
				t.Fatal(err)
			}
			for n, to := range map[string]string{"out": filepath.Join(outside, "secret"), "outdir": outside, "self": "self", "up": "../../../etc/passwd", "dangling": "nowhere"} {
				if err := os.Symlink(to, filepath.Join(r.Dir, n)); err != nil {
					t.Fatal(err)
				}
			}
			r.Write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
			r.Write("large.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:"+strings.Repeat("a", 64)+"\nsize 9\n"+inside)
			r.Commit("everything odd")
			r.Write("large.bin", "the large file itself "+canary)
			keepOut(r, true)
			return ask{dir: r.Dir}
		}, func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string) {
			got := run("git ls-tree -r -z HEAD | sha256sum; for f in out outdir self up dangling; do readlink $f; done; head -1 large.bin; ls -A mod; git ls-files -z odd | tr -cd '\\0' | wc -c; git status --porcelain --ignore-submodules=all | wc -l")
			want := ""
			sum := sha256.Sum256([]byte(r.Git("ls-tree", "-r", "-z", "HEAD")))
			want += hex.EncodeToString(sum[:]) + "  -\n"
			for _, f := range []string{"out", "outdir", "self", "up", "dangling"} {
				to, err := os.Readlink(filepath.Join(r.Dir, f))
				if err != nil {
					t.Fatal(err)
				}
				want += to + "\n"
			}
			want += fmt.Sprintf("version https://git-lfs.github.com/spec/v1\n%d\n0\n", len(gittest.OddNames))
			if got != want {
				t.Errorf("inside is\n%s\nwant\n%s", got, want)
			}
			if !slices.Contains(p.Imported.MayDiffer, "large.bin") {
				t.Errorf("%+v", p.Imported)
			}
		}},
		{"a linked work tree", func(t *testing.T, r *gittest.Repo) ask {
			r.Write("a.txt", inside)
			r.Commit("base")
			keepOut(r, true)
			dir := filepath.Join(t.TempDir(), "linked")
			r.Git("worktree", "add", "-q", "-b", "side", dir)
			return ask{dir: dir}
		}, func(t *testing.T, r *gittest.Repo, p httpapi.ProjectView, run func(string) string) {
			if got, want := run("git rev-parse HEAD; git branch --show-current; cat a.txt"), r.Git("rev-parse", "side")+"\nside\n"+inside; got != want {
				t.Errorf("inside is %q", got)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := w.t
			w.t = t
			defer func() { w.t = old }()
			r := gittest.Init(t)
			a := c.make(t, r)
			before := fingerprint(t, a.dir, r.Dir)
			var p httpapi.ProjectView
			w.Call("POST", "/v1/projects", httpapi.NewProject{Name: "x", Source: a.dir, Kind: "local", Overlay: a.with}, &p)
			if p.Imported == nil {
				t.Fatalf("%+v", p)
			}
			s := w.Session(p)
			c.check(t, r, p, func(code string) string {
				t.Helper()
				a := w.Bash(s, code)
				if a.Stderr != "" {
					t.Errorf("%s: %s", code, a.Stderr)
				}
				return a.Stdout
			})
			if got := w.search(t, s, canary); got != "" {
				t.Errorf("what must stay outside is inside: %s", got)
			}
			if got := w.search(t, s, inside); c.name != "no commits yet" && got == "" {
				t.Error("the search finds nothing at all")
			}
			if a := w.Bash(s, "find / -xdev -name .env -not -path '/usr/*' 2>/dev/null"); a.Stdout != "" {
				t.Errorf("inside: %s", a.Stdout)
			}
			w.Call("DELETE", "/v1/projects/"+string(p.ID), nil, nil)
			if after := fingerprint(t, a.dir, r.Dir); after != before {
				t.Error("the source was changed")
			}
		})
	}

	t.Run("refused", func(t *testing.T) {
		old := w.t
		w.t = t
		defer func() { w.t = old }()
		r := gittest.Init(t)
		r.Write("a.txt", "a\n")
		r.Commit("base")
		keepOut(r, true)
		file := filepath.Join(r.Dir, "a.txt")
		torn := gittest.Init(t)
		torn.Write("a.txt", "a\n")
		torn.Commit("base")
		if err := os.WriteFile(filepath.Join(torn.Dir, ".git", "HEAD"), []byte("garbage"), 0o644); err != nil {
			t.Fatal(err)
		}
		lost := gittest.Init(t)
		lost.Write("a.txt", "a\n")
		lost.Commit("base")
		lost.Remove(".git/objects")
		if err := os.MkdirAll(filepath.Join(lost.Dir, ".git", "objects"), 0o755); err != nil {
			t.Fatal(err)
		}
		before := fingerprint(t, r.Dir, torn.Dir, lost.Dir)
		for name, in := range map[string]httpapi.NewProject{
			"a file": {Source: file}, "nothing there": {Source: filepath.Join(r.Dir, "none")}, "a relative path": {Source: "src"},
			"credentials": {Source: "https://ann:secret@host.example/x.git"}, "a remote helper": {Source: "ext::sh -c true"}, "an option": {Source: "ssh://-oProxyCommand=true/x"},
			"an ignored file along": {Source: r.Dir, Overlay: []string{"x.secret"}}, "secrets along": {Source: r.Dir, Overlay: []string{".env"}},
			"from outside along": {Source: r.Dir, Overlay: []string{"../x"}}, "git's own along": {Source: r.Dir, Overlay: []string{".git/config"}},
			"an absolute path along": {Source: r.Dir, Overlay: []string{"/etc/passwd"}}, "an unknown file along": {Source: r.Dir, Overlay: []string{"none"}},
			"no HEAD": {Source: torn.Dir}, "no objects": {Source: lost.Dir},
		} {
			in.Name, in.Kind = "refused", "local"
			err := w.Try("POST", "/v1/projects", in, nil)
			e, ok := err.(*apiErr)
			if !ok || e.Status >= 500 || e.What == "" || e.Hint == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
		var ps []httpapi.ProjectView
		w.Call("GET", "/v1/projects", nil, &ps)
		if len(ps) != 0 {
			t.Errorf("left are %+v", ps)
		}
		if fingerprint(t, r.Dir, torn.Dir, lost.Dir) != before {
			t.Error("a source was changed")
		}
	})
}

// TestTripwire takes a repository whose every setting and hook leads to an alarm
// through everything the host does with one.
func TestTripwire(t *testing.T) {
	onKind(t, "local")
	t.Parallel()
	wire := gittest.NewTripwire(t)
	repo, outside := gittest.Hostile(t, wire)
	w := NewWorld(t, "local")
	home, tmp := filepath.Join(w.Dir, "home"), filepath.Join(w.Dir, "tmp")
	for _, d := range []string{home, tmp} {
		if err := os.Mkdir(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	w.Env = append(w.Env, "HOME="+home, "TMPDIR="+tmp, "GIT_CONFIG_NOSYSTEM=1")
	w.Start()
	before := fingerprint(t, repo.Dir, outside, home)

	var p httpapi.ProjectView
	w.Call("POST", "/v1/projects", httpapi.NewProject{Name: "hostile", Source: repo.Dir, Kind: "local", Overlay: []string{"untracked.txt"}}, &p)
	wire.Silent(t, "creating the project")
	s := w.Session(p)
	a := w.Bash(s, `set -e
printf 'three\n' >plain.txt; printf 'agent\n' >agent.txt; chmod +x agent.txt
git config core.fsmonitor /bin/false; git config core.hooksPath /workspace/hooks; git config filter.trip.clean cat
mkdir -p hooks; printf '#!/bin/sh\n' >hooks/post-commit; chmod +x hooks/post-commit
ln -s /etc/passwd agent-link`)
	if a.ExitCode == nil || *a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	wire.Silent(t, "a step")
	remote := gittest.InitBare(t)
	var rv project.ReviewView
	w.Call("POST", "/v1/projects/"+string(p.ID)+"/reviews", map[string]any{"remote": remote.Dir, "ref": "fix"}, &rv)
	wire.Silent(t, "opening a review")
	for i, f := range rv.Files {
		decision := "accept"
		if i%2 == 1 {
			decision = "reject"
		}
		w.Call("POST", "/v1/reviews/"+string(rv.ID)+"/decisions", map[string]any{"file": f.ID, "decision": decision}, &rv)
	}
	if rv.Accepted == 0 || rv.Rejected == 0 {
		t.Fatalf("%+v", rv)
	}
	var pv project.PushView
	w.Call("POST", "/v1/reviews/"+string(rv.ID)+"/push", map[string]any{"remote": remote.Dir, "ref": "fix"}, &pv)
	if pv.State != "ok" || remote.Git("rev-parse", "refs/heads/fix") != pv.Commit {
		t.Fatalf("%+v", pv)
	}
	wire.Silent(t, "a push")
	// A remote on this computer with programs of its own.
	armed := gittest.InitBare(t)
	gittest.Poison(armed, wire)
	armedBefore := fingerprint(t, armed.Dir)
	if err := w.Try("POST", "/v1/reviews/"+string(rv.ID)+"/push", map[string]any{"remote": armed.Dir, "ref": "fix"}, nil); code(err) != "denied" || !strings.Contains(err.Error(), "programs of its own") {
		t.Errorf("a push to a remote that runs programs: %v", err)
	}
	wire.Silent(t, "a push to a remote that runs programs")
	if err := w.Try("POST", "/v1/reviews/"+string(rv.ID)+"/push", map[string]any{"remote": "ext::" + wire.Program("ext"), "ref": "fix"}, nil); code(err) != "invalid" {
		t.Errorf("a push through a helper program: %v", err)
	}
	w.Call("DELETE", "/v1/projects/"+string(p.ID), nil, nil)
	wire.Silent(t, "deleting the project")

	if fingerprint(t, repo.Dir, outside, home) != before {
		t.Error("the source, a folder beside it or the home folder was changed")
	}
	if fingerprint(t, armed.Dir) != armedBefore {
		t.Error("the refused remote was changed")
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left in the temporary folder: %v", left)
	}
	remote.Git("rev-list", "--objects", "refs/heads/fix") // fsck itself dislikes the source's .gitmodules

	// What ran on the host, by the runner's own record.
	var ran []httpapi.ProcessRecord
	w.Call("GET", "/v1/processes", nil, &ran)
	expected := map[string]bool{"git-config git": false, "git-remote git": false, "git-push git": false, "git-index glasshouse": false, "bwrap bwrap": false, "bwrap-probe bwrap": false, "prlimit prlimit": false}
	for _, r := range ran {
		if len(r.Argv) == 0 {
			t.Fatalf("a process without a name: %+v", r)
		}
		row := slices.IndexFunc(proc.Rows, func(x proc.Row) bool { return x.Role == r.Role })
		base := filepath.Base(r.Argv[0])
		key := r.Role + " " + base
		if row < 0 || !slices.Contains(proc.Rows[row].Programs, base) && !(slices.Contains(proc.Rows[row].Programs, "self") && base == "glasshouse") {
			t.Errorf("the table has no row for %q", r.Argv)
		}
		if _, ok := expected[key]; !ok {
			t.Errorf("nobody expects %s: %q", key, r.Argv)
		}
		expected[key] = true
		for _, arg := range r.Argv {
			if strings.Contains(arg, repo.Dir) || strings.Contains(arg, outside) {
				t.Errorf("a program was pointed at the source: %q", r.Argv)
			}
		}
	}
	for key, seen := range expected {
		if !seen {
			t.Errorf("%s never ran: the list is out of date, or the test is blind", key)
		}
	}
	// The control: plain git sets it all off.
	if fired := repo.Fires(wire); len(fired) < 5 {
		t.Errorf("plain git fires only %q: the tripwire is dead", fired)
	}
	var evs []event.Envelope
	for _, e := range w.Log(url.Values{}) {
		if e.Type == "push.ended" {
			evs = append(evs, e)
		}
	}
	if len(evs) != 2 {
		t.Errorf("%d pushes have an end in the record", len(evs))
	}
}
