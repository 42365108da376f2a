// Package gittest builds git repositories for tests with the real git: ordinary
// ones, random ones, and hostile ones whose every way to run a program leads to
// a tripwire. It is for tests alone.
package gittest

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repo is a repository with a work tree (or bare) in a test's folder.
type Repo struct {
	T   testing.TB
	Dir string
	Env []string // added to the fixed environment
}

// Init makes an empty repository with a branch main.
func Init(t testing.TB) *Repo {
	t.Helper()
	r := &Repo{T: t, Dir: t.TempDir()}
	r.Git("init", "-q", "-b", "main", ".")
	r.keepNoHouse(".git/config")
	return r
}

// InitBare makes an empty bare repository.
func InitBare(t testing.TB) *Repo {
	t.Helper()
	r := &Repo{T: t, Dir: filepath.Join(t.TempDir(), "remote.git")}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Git("init", "-q", "--bare", "-b", "main", ".")
	r.keepNoHouse("config")
	return r
}

// keepNoHouse lets git, whoever runs it, begin no upkeep after a command: newer versions
// do it behind the command's end, while a test compares the folder or takes it away.
func (r *Repo) keepNoHouse(config string) {
	r.T.Helper()
	f, err := os.OpenFile(filepath.Join(r.Dir, config), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		r.T.Fatal(err)
	}
	_, err = f.WriteString("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n")
	if cerr := f.Close(); err != nil || cerr != nil {
		r.T.Fatal(err, cerr)
	}
}

// Clean is the environment fixtures are built in: no configuration but their own.
func Clean() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ann Author", "GIT_AUTHOR_EMAIL=ann@example.org", "GIT_AUTHOR_DATE=1700000000 +0100",
		"GIT_COMMITTER_NAME=Cy Committer", "GIT_COMMITTER_EMAIL=cy@example.org", "GIT_COMMITTER_DATE=1700000100 +0000",
	}
}

// Try runs git in the repository.
func (r *Repo) Try(stdin []byte, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.Dir, append(Clean(), r.Env...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("git %s: %v: %s", strings.Join(args, " "), err, errb.String())
	}
	return out.String(), nil
}

// Git runs git and ends the test when it fails; it returns stdout without the last line break.
func (r *Repo) Git(args ...string) string {
	r.T.Helper()
	return r.GitIn(nil, args...)
}

// GitIn is Git with an input.
func (r *Repo) GitIn(stdin []byte, args ...string) string {
	r.T.Helper()
	out, err := r.Try(stdin, args...)
	if err != nil {
		r.T.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

// Write writes a file of the work tree.
func (r *Repo) Write(name, content string) {
	r.T.Helper()
	p := filepath.Join(r.Dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		r.T.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		r.T.Fatal(err)
	}
}

// Remove deletes files or folders of the work tree.
func (r *Repo) Remove(names ...string) {
	r.T.Helper()
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(r.Dir, n)); err != nil {
			r.T.Fatal(err)
		}
	}
}

// Commit stages everything and commits it; it returns the commit.
func (r *Repo) Commit(msg string) string {
	r.T.Helper()
	r.Git("add", "-A", "-f")
	r.Git("commit", "-q", "--allow-empty", "--no-verify", "-m", msg)
	return r.Git("rev-parse", "HEAD")
}

// CommitTree commits a tree made by hand.
func (r *Repo) CommitTree(tree string, parents ...string) string {
	r.T.Helper()
	args := []string{"commit-tree", tree, "-m", "by hand"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return r.Git(args...)
}

// Object writes an object of any content, without git's checks.
func (r *Repo) Object(typ string, data []byte) string {
	r.T.Helper()
	return r.GitIn(data, "hash-object", "-t", typ, "-w", "--stdin", "--literally")
}

// Entry is one raw tree entry.
type Entry struct {
	Mode, Name, ID string
}

// RawTree writes a tree with exactly these entries, in this order.
func (r *Repo) RawTree(entries ...Entry) string {
	r.T.Helper()
	var b []byte
	for _, e := range entries {
		b = append(b, e.Mode+" "+e.Name+"\x00"...)
		for i := 0; i < 40; i += 2 {
			var c byte
			_, _ = fmt.Sscanf(e.ID[i:i+2], "%02x", &c)
			b = append(b, c)
		}
	}
	return r.Object("tree", b)
}

// Pack returns a pack of what the revisions select.
func (r *Repo) Pack(revs ...string) []byte {
	r.T.Helper()
	cmd := exec.Command("git", "pack-objects", "--revs", "--stdout", "-q")
	cmd.Dir, cmd.Env = r.Dir, append(Clean(), r.Env...)
	cmd.Stdin = strings.NewReader(strings.Join(revs, "\n") + "\n")
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.Output()
	if err != nil {
		r.T.Fatalf("pack-objects: %v: %s", err, errb.String())
	}
	return out
}

// Mutate changes a random part of the work tree: edits, adds, deletes, renames,
// modes, links, folders that become files.
func (r *Repo) Mutate(rnd *rand.Rand, n int) {
	r.T.Helper()
	for range n {
		files := r.files()
		name := fmt.Sprintf("d%d/f%d", rnd.Intn(4), rnd.Intn(30))
		pick := name
		if len(files) > 0 {
			pick = files[rnd.Intn(len(files))]
		}
		full := filepath.Join(r.Dir, pick)
		switch k := rnd.Intn(12); {
		case k < 5 && len(files) > 0:
			data, err := os.ReadFile(full)
			if err != nil {
				continue
			}
			if fi, err := os.Lstat(full); err != nil || !fi.Mode().IsRegular() {
				continue
			}
			if err := os.WriteFile(full, []byte(Scramble(rnd, string(data))), 0o644); err != nil {
				r.T.Fatal(err)
			}
		case k < 8:
			r.tryWrite(name, RandomText(rnd, rnd.Intn(60)))
		case k == 8 && len(files) > 3:
			r.Remove(pick)
		case k == 9 && len(files) > 0:
			if dst := filepath.Join(r.Dir, fmt.Sprintf("d%d/r%d", rnd.Intn(4), rnd.Intn(100))); os.MkdirAll(filepath.Dir(dst), 0o755) == nil {
				_ = os.Rename(full, dst)
			}
		case k == 10 && len(files) > 0:
			if fi, err := os.Lstat(full); err == nil && fi.Mode().IsRegular() {
				_ = os.Chmod(full, fi.Mode().Perm()^0o111)
			}
		case k == 11:
			r.Remove(pick)
			_ = os.MkdirAll(filepath.Dir(full), 0o755)
			_ = os.Symlink("f"+fmt.Sprint(rnd.Intn(9)), full)
		}
	}
}

func (r *Repo) tryWrite(name, content string) {
	p := filepath.Join(r.Dir, name)
	if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
		_ = os.WriteFile(p, []byte(content), 0o644)
	}
}

func (r *Repo) files() []string {
	var out []string
	_ = filepath.WalkDir(r.Dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, _ := filepath.Rel(r.Dir, p)
		out = append(out, rel)
		return nil
	})
	return out
}

// RandomText makes lines of few distinct words, some with odd ends.
func RandomText(rnd *rand.Rand, lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "w%d", rnd.Intn(12))
		switch {
		case rnd.Intn(40) == 0:
			b.WriteString("\r\n")
		case i == lines-1 && rnd.Intn(3) == 0: // no line break at the end
		default:
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Scramble edits some lines of a text.
func Scramble(rnd *rand.Rand, s string) string {
	lines := strings.SplitAfter(s, "\n")
	for range 1 + rnd.Intn(4) {
		i := rnd.Intn(len(lines))
		switch rnd.Intn(4) {
		case 0:
			lines[i] = fmt.Sprintf("new%d\n", rnd.Intn(100))
		case 1:
			lines = append(lines[:i], append([]string{fmt.Sprintf("ins%d\n", rnd.Intn(100))}, lines[i:]...)...)
		case 2:
			lines = append(lines[:i], lines[i+1:]...)
		case 3:
			lines[i] = strings.TrimSuffix(lines[i], "\n") + "x\n"
		}
		if len(lines) == 0 {
			lines = []string{"only\n"}
		}
	}
	out := strings.Join(lines, "")
	if rnd.Intn(6) == 0 {
		out = strings.TrimSuffix(out, "\n")
	}
	return out
}
