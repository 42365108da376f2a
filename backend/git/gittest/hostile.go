package gittest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tripwire makes programs that do nothing but note that they ran.
type Tripwire struct {
	t   testing.TB
	dir string
	log string
}

// NewTripwire makes a tripwire in a folder of its own.
func NewTripwire(t testing.TB) *Tripwire {
	t.Helper()
	d := t.TempDir()
	return &Tripwire{t: t, dir: d, log: filepath.Join(d, "fired")}
}

// Program returns the path of a program that notes label and passes its input on.
func (w *Tripwire) Program(label string) string {
	w.t.Helper()
	p := filepath.Join(w.dir, "trip-"+strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '_'
		}
		return r
	}, label))
	// Input is only read where git sends some: a filter that did not would fail first.
	script := fmt.Sprintf("#!/bin/sh\necho '%s' >> '%s'\ncase '%s' in filter.*.process|hook*) exit 1;; filter*) exec cat;; *textconv*) exec cat \"$1\";; esac\nexit 0\n", label, w.log, label)
	if strings.HasPrefix(label, "hook") {
		script = fmt.Sprintf("#!/bin/sh\necho '%s' >> '%s'\nexit 0\n", label, w.log)
	}
	if err := os.WriteFile(p, []byte(script), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// Fired lists what ran, without repeats.
func (w *Tripwire) Fired() []string {
	b, err := os.ReadFile(w.log)
	if err != nil {
		return nil
	}
	out := strings.Fields(string(b))
	slices.Sort(out)
	return slices.Compact(out)
}

// Reset forgets what ran.
func (w *Tripwire) Reset() { _ = os.Remove(w.log) }

// Silent fails the test when anything ran.
func (w *Tripwire) Silent(t testing.TB, during string) {
	t.Helper()
	if f := w.Fired(); len(f) > 0 {
		t.Errorf("%s ran programs of the repository: %q", during, f)
	}
}

// Hooks are all the hooks git knows.
var Hooks = []string{
	"applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout",
	"post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite",
	"sendemail-validate", "fsmonitor-watchman", "post-index-change",
}

// OddNames are file names that break what prints, splits or shows names.
var OddNames = []string{
	"new\nline", "tab\there", "<img src=x onerror=alert(1)>", "\u202egnp.exe", "zero\u200bwidth", "-rf", "--upload-pack=id", " lead", "trail ", "quo\"te", "back\\slash",
	"bad\xff\xfeutf8", strings.Repeat("x", 255), "$(id)", "`id`", ";id", "a'b", "\x1b[31mred", "caf\u00e9", "cafe\u0301", "con", "aux.txt", "a:b", "*", "?",
}

// Poison gives a repository's git directory every setting, hook and attribute
// that can make git run a program; each leads to the tripwire.
func Poison(r *Repo, w *Tripwire) {
	r.T.Helper()
	gd := r.Git("rev-parse", "--absolute-git-dir")
	var b strings.Builder
	set := func(section, key string) {
		fmt.Fprintf(&b, "[%s]\n\t%s = %q\n", section, key, w.Program(strings.NewReplacer(" ", ".", `"`, "").Replace(section)+"."+key))
	}
	for _, k := range []string{"fsmonitor", "sshCommand", "gitProxy", "pager", "editor", "askPass", "alternateRefsCommand"} {
		set("core", k)
	}
	hooks := filepath.Join(w.dir, "hooks-path")
	for _, dir := range []string{hooks, filepath.Join(gd, "hooks")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.T.Fatal(err)
		}
		for _, h := range Hooks {
			body, err := os.ReadFile(w.Program("hook." + h))
			if err != nil {
				r.T.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, h), body, 0o755); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	fmt.Fprintf(&b, "[core]\n\thooksPath = %q\n", hooks)
	set("diff", "external")
	for _, k := range []string{"textconv", "command"} {
		set(`diff "trip"`, k)
	}
	for _, k := range []string{"clean", "smudge"} {
		set(`filter "trip"`, k)
	}
	set(`filter "tripp"`, "process")
	set(`merge "trip"`, "driver")
	set("credential", "helper")
	set("gpg", "program")
	set("sequence", "editor")
	set("interactive", "diffFilter")
	set("uploadpack", "packObjectsHook")
	for _, k := range []string{"uploadpack", "receivepack"} {
		set(`remote "origin"`, k)
	}
	set(`trailer "x"`, "command")
	set(`browser "x"`, "cmd")
	for _, k := range []string{"status", "log", "diff", "push", "ls-remote", "config"} {
		fmt.Fprintf(&b, "[pager]\n\t%s = %q\n[alias]\n\t%s = %q\n", k, w.Program("pager."+k), "x"+k, "!"+w.Program("alias."+k))
	}
	fmt.Fprintf(&b, "[remote \"origin\"]\n\turl = \"ext::%s\"\n", w.Program("remote.url"))
	fmt.Fprintf(&b, "[protocol \"ext\"]\n\tallow = always\n[commit]\n\tgpgSign = true\n[push]\n\tgpgSign = if-asked\n[receive]\n\tprocReceiveRefs = refs\n")
	fmt.Fprintf(&b, "[url \"ext::%s \"]\n\tpushInsteadOf = /\n", w.Program("url.pushInsteadOf"))
	fmt.Fprintf(&b, "[submodule \"m\"]\n\tupdate = \"!%s\"\n\turl = \"ext::%s\"\n", w.Program("submodule.update"), w.Program("submodule.url"))
	inc := filepath.Join(w.dir, "included")
	if err := os.WriteFile(inc, []byte(fmt.Sprintf("[core]\n\tfsmonitor = %q\n[diff \"trip\"]\n\ttextconv = %q\n", w.Program("included.fsmonitor"), w.Program("included.textconv"))), 0o644); err != nil {
		r.T.Fatal(err)
	}
	fmt.Fprintf(&b, "[include]\n\tpath = %q\n[includeIf \"gitdir:/\"]\n\tpath = %q\n", inc, inc)
	f, err := os.OpenFile(filepath.Join(gd, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		r.T.Fatal(err)
	}
	if _, err := f.WriteString(b.String()); err != nil {
		r.T.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.T.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(gd, "info"), 0o755); err != nil {
		r.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(gd, "info", "attributes"), []byte("* filter=trip diff=trip merge=trip\n*.p filter=tripp\n"), 0o644); err != nil {
		r.T.Fatal(err)
	}
}

// Hostile makes a repository with odd names, links to outside, bad submodules and
// changed files, and poisons it. outside is a folder next to it that nobody may touch.
func Hostile(t testing.TB, w *Tripwire) (r *Repo, outside string) {
	t.Helper()
	r = Init(t)
	outside = t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("untouched\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range OddNames {
		r.Write(n, "content of "+n+"\n")
	}
	r.Write("plain.txt", "one\n")
	r.Write("proc.p", "one\n")
	r.Write(".gitattributes", "* filter=trip diff=trip merge=trip\n*.p filter=tripp\n")
	r.Write(".gitmodules", "[submodule \"m\"]\n\tpath = m\n\turl = -u./payload\n[submodule \"../../outside\"]\n\tpath = \"m\r\"\n\turl = ext::sh -c id\n")
	for name, target := range map[string]string{"link-file": filepath.Join(outside, "canary"), "link-dir": outside, "link-up": "../../../../etc", "link-self": "link-self", "link-git": ".git/config"} {
		if err := os.Symlink(target, filepath.Join(r.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit("everything odd")
	r.Write("plain.txt", "two\n")
	r.Write("proc.p", "two\n")
	r.Write("untracked.txt", "new\n")
	Poison(r, w)
	w.Reset()
	return r, outside
}

// Fires is the positive control: plain git in the repository must set the tripwire
// off, else a silent test proves nothing. It returns what ran.
func (r *Repo) Fires(w *Tripwire) []string {
	r.T.Helper()
	w.Reset()
	run := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = r.Dir, Clean()
		_ = cmd.Run() // many of them fail; what matters is what they started
	}
	run("status")
	// A process filter that dies takes git with it, so the rest goes without.
	rest := func(args ...string) {
		run(append([]string{"-c", "filter.tripp.process=", "-c", "filter.tripp.clean=cat"}, args...)...)
	}
	for _, args := range [][]string{{"diff"}, {"log", "-p", "-1"}, {"add", "plain.txt"}, {"-c", "commit.gpgSign=false", "commit", "-m", "x"}, {"commit", "--allow-empty", "-m", "y"}, {"checkout", "-f", "HEAD"}, {"fetch", "origin"}, {"xstatus"}} {
		rest(args...)
	}
	r.Write(".git/info/attributes", "* !diff !filter !merge\n")
	r.Write("plain.txt", "three\n")
	run("diff")
	fired := w.Fired()
	w.Reset()
	return fired
}
