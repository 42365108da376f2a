package ignore

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

// ask answers for a path from the rules files in a map folder -> content.
func ask(files map[string]string, exclude, p string, dir bool) bool {
	var ex *Rules
	if exclude != "" {
		ex = Parse([]byte(exclude))
	}
	d := Top(Parse([]byte(files[""])), ex)
	parts := strings.Split(p, "/")
	for i, part := range parts[:len(parts)-1] {
		d = d.Child(part, Parse([]byte(files[strings.Join(parts[:i+1], "/")])))
	}
	return d.Ignored(parts[len(parts)-1], dir)
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		rules, path string
		dir, want   bool
	}{
		{"*.o\n", "a/b.o", false, true},
		{"/b.o\n", "a/b.o", false, false},
		{"build/\n", "build", false, false},
		{"build/\n", "build", true, true},
		{"build/\n!build/x\n", "build/x", false, true},
		{"*\n!a\n", "a", false, false},
		{"a/**/z\n", "a/z", false, true},
		{"a/**/z\n", "a/b/c/z", false, true},
		{"**/z\n", "z", false, true},
		{"a/**\n", "a", true, false},
		{"a/**\n", "a/q", false, true},
		{"a/*\n", "a/q/r", false, true}, // through the folder a/q
		{"\\#x\n", "#x", false, true},
		{"\\!x\n", "!x", false, true},
		{"x \n", "x", false, true},
		{"x\\ \n", "x ", false, true},
		{"x\r\n", "x", false, true},
		{"\xef\xbb\xbfx\n", "x", false, true},
		{"[a-c]x\n", "bx", false, true},
		{"[!a-c]x\n", "bx", false, false},
		{"[[:digit:]]\n", "7", false, true},
		{"[]]\n", "]", false, true},
		{"[\n", "[", false, false},
		{"foo\\\n", "foo\\", false, false},
		{"**foo\n", "xfoo", false, true},
		{"a**/*.o\n", "a.o", false, true}, // git's own reading
	} {
		if got := ask(map[string]string{"": c.rules}, "", c.path, c.dir); got != c.want {
			t.Errorf("rules %q path %q dir=%v: ignored=%v, want %v", c.rules, c.path, c.dir, got, c.want)
		}
	}
}

func TestHostilePatternEnds(t *testing.T) {
	p := strings.Repeat("**/a*", 40) + "b"
	n := strings.Repeat("a/", 200) + "a"
	if Match(p, n, true) {
		t.Fatal("matched")
	}
}

// TestAgainstGit makes random trees and rules and compares with check-ignore.
func TestAgainstGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("git is needed: ", err)
	}
	seeds := 8
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		r := rand.New(rand.NewSource(int64(seed)))
		dir := t.TempDir()
		git(t, dir, nil, "init", "-q", "--template=")
		names := []string{"a", "b", "ab", "a.o", "b.c", "build", "x y", "#h", "!n", "[z]", "*", "a\\b", "é", "n\nl", "tail "}
		atoms := []string{"a", "b", "ab", "*", "**", "?", "*.o", "*.c", "[ab]", "[!a]", "[^b]", "[a-z]*", "[[:alpha:]]", "[[:punct:]]*", "build", "\\#h", "\\!n", "\\[z]", "x y", "x\\ y", "tail\\ ", "tail ", "\\*", "a\\\\b", "é", "[]z]", "[z", "a**", "**b", "***"}
		line := func() string {
			var s string
			if r.Intn(5) == 0 {
				s = "!"
			}
			if r.Intn(4) == 0 {
				s += "/"
			}
			n := 1 + r.Intn(3)
			if r.Intn(2) == 0 {
				n = 1
			}
			for i := range n {
				if i > 0 {
					s += "/"
				}
				s += atoms[r.Intn(len(atoms))]
			}
			if r.Intn(4) == 0 {
				s += "/"
			}
			if r.Intn(10) == 0 {
				s += "\r"
			}
			return s + "\n"
		}
		rules := func() string {
			var s string
			for range 1 + r.Intn(4) {
				s += line()
			}
			return s
		}
		files := map[string]string{}
		var paths []string
		var isDir []bool
		var fill func(rel string, depth int)
		fill = func(rel string, depth int) {
			if rel == "" || r.Intn(4) == 0 {
				files[rel] = rules()
				write(t, filepath.Join(dir, rel, ".gitignore"), files[rel])
			}
			for _, n := range names {
				p := n
				if rel != "" {
					p = rel + "/" + n
				}
				sub := depth < 3 && r.Intn(3) == 0
				if sub {
					if err := os.Mkdir(filepath.Join(dir, p), 0o755); err != nil {
						t.Fatal(err)
					}
					fill(p, depth+1)
				} else {
					write(t, filepath.Join(dir, p), "")
				}
				paths, isDir = append(paths, p), append(isDir, sub)
			}
		}
		fill("", 0)
		var exclude string
		if r.Intn(2) == 0 {
			exclude = rules()
			os.MkdirAll(filepath.Join(dir, ".git/info"), 0o755)
			write(t, filepath.Join(dir, ".git/info/exclude"), exclude)
		}
		want := map[string]bool{}
		why := map[string]string{}
		in := strings.Join(paths, "\x00") + "\x00"
		fields := strings.Split(git(t, dir, []byte(in), "check-ignore", "-z", "-v", "-n", "--stdin"), "\x00")
		for i := 0; i+3 < len(fields); i += 4 {
			why[fields[i+3]] = strings.Join(fields[i:i+3], ":")
			want[fields[i+3]] = fields[i] != "" && !strings.HasPrefix(fields[i+2], "!")
		}
		bad := 0
		for i, p := range paths {
			got := ask(files, exclude, p, isDir[i])
			if got != want[p] {
				if bad++; bad < 4 {
					t.Errorf("seed %d: %q dir=%v: ignored=%v, git says %v by %q", seed, p, isDir[i], got, want[p], why[p])
				}
			}
		}
	}
}

func write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		if ee, ok := err.(*exec.ExitError); ok && ee.ExitCode() == 1 && args[0] == "check-ignore" {
			return string(out)
		}
		t.Fatal(fmt.Errorf("git %v: %w", args, err))
	}
	return string(out)
}
