package source

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/git/gittest"
)

// untracked lists what a scan finds beside the ignored, as git would list it.
func untracked(t testing.TB, dir string) []string {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := s.Scan(t.Context(), ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range sc.Dirty {
		out = append(out, d.Path)
	}
	return out
}

func gitUntracked(r *gittest.Repo) []string {
	var out []string
	for f := range strings.SplitSeq(r.Git("ls-files", "-o", "--exclude-standard", "-z"), "\x00") {
		if f != "" {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}

var corners = []string{
	"*.o", "/build", "build/", "!keep.o", "a/b", "a/**/z", "**/foo", "foo/**", "**/foo/**", "*", "!*/", "!*.c", "\\#hash", "#comment", "\\!bang", "trail\\ ", "trail ", "[ab]*", "[!a]x", "[a-c]?", "a?b",
	"**", "a**b", "x/*", "/*", "!/a", "[[:digit:]]*", "[]]", "[\\]]", "foo\r", "a//b", "/", "//", "!", "\\", "a\\", "[", "[a", "**/", "/**", "a/**", "dir/*.c", "*/x", "é", "[^a]*", "***", "a/***/b", "**a", "b**/z", "*/**/x",
}

// TestIgnoreRulesAgreeWithGit: fixed corners one by one, then random rule files in
// random folders.
func TestIgnoreRulesAgreeWithGit(t *testing.T) {
	r := gittest.Init(t)
	names := []string{
		"a", "foo", "build/x", "sub/build/y", "sub/build2", "keep.o", "x.o", "sub/x.o", "sub/keep.o", "a1/b", "sub/a1/b", "#hash", "!bang", "trail ", "trail", "ax", "bx", "cx", "a-b", "5x", "]", "x/y", "x/z/w", "foo2/bar", "q/foo/r",
		"aXb", "axxb", "dir/m.c", "dir/n/m.c", "é", "main.c", "deep/er/x", "bb/z", "bq/r/z", "w/x", "w/v/x", "A", "foo.c", "\\", "[", "[a",
	}
	for _, n := range names {
		r.Write(n, "x")
	}
	for _, c := range corners {
		r.Write(".gitignore", c+"\n")
		if got, want := untracked(t, r.Dir), gitUntracked(r); !slices.Equal(got, want) {
			t.Errorf("rule %q:\n got %q\nwant %q", c, got, want)
		}
	}
	for seed := range int64(60) {
		rnd := rand.New(rand.NewSource(seed))
		rules := func() string {
			var b strings.Builder
			for range 1 + rnd.Intn(5) {
				if rnd.Intn(3) == 0 {
					b.WriteByte('!')
				}
				b.WriteString(corners[rnd.Intn(len(corners))])
				b.WriteByte('\n')
			}
			return b.String()
		}
		places := []string{".gitignore", "sub/.gitignore", "x/.gitignore", ".git/info/exclude", "sub/build/.gitignore"}
		for _, p := range places {
			r.Remove(p)
			if rnd.Intn(2) == 0 {
				r.Write(p, rules())
			}
		}
		if got, want := untracked(t, r.Dir), gitUntracked(r); !slices.Equal(got, want) {
			var show strings.Builder
			for _, p := range places {
				b, err := os.ReadFile(filepath.Join(r.Dir, p))
				if err == nil {
					fmt.Fprintf(&show, "%s: %q\n", p, b)
				}
			}
			t.Errorf("seed %d:\n got %q\nwant %q\n%s", seed, got, want, show.String())
		}
	}
}

// TestPatternsThatTakeForEver end: out of budget counts as ignored, which keeps a file outside.
func TestPatternsThatTakeForEver(t *testing.T) {
	start := time.Now()
	for _, p := range []string{strings.Repeat("a*", 200) + "b", strings.Repeat("**/", 100) + "z", strings.Repeat("*", 5000) + "x", strings.Repeat("[a-z]*", 300)} {
		wildmatch(p, strings.Repeat("a/", 500)+strings.Repeat("a", 500), true, false)
		wildmatch(p, strings.Repeat("a", 4000), false, false)
	}
	if d := time.Since(start); d > time.Minute {
		t.Fatalf("%s", d)
	}
}

func FuzzWildmatch(f *testing.F) {
	for _, c := range corners {
		f.Add(c, "a/b/c")
	}
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 200 || len(s) > 200 {
			return
		}
		wildmatch(p, s, true, false)
		wildmatch(p, s, false, true)
		parseIgnore([]byte(p+"\n"+s), "d/")
		parseAttributes([]byte(p+"\n"+s), "")
	})
}

func TestSecretNames(t *testing.T) {
	for p, want := range map[string]bool{
		".env": true, "a/.env.local": true, ".env.example": false, "prod.env": true, "id_rsa": true, "id_rsa.pub": false, "x/server.key": true, "cert.PEM": true, ".aws/credentials": true,
		"environment.ts": false, "keys.go": false, ".ssh/config": true, ".npmrc": true, "README": false,
	} {
		if Secret(p) != want {
			t.Errorf("%s: %v", p, !want)
		}
	}
}
