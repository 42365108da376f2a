//go:build linux

package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm/guest"
)

var bg = context.Background()

func setup(t *testing.T) (f *Files, ws, home, outside string) {
	t.Helper()
	base := t.TempDir()
	ws, home, outside = base+"/ws", base+"/home", base+"/outside"
	for _, d := range []string{ws, home, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, outside+"/secret", "secret")
	return New(Options{Root: ws, Allowed: []string{home}, SearchTime: time.Minute}), ws, home, outside
}

func write(t *testing.T, name, data string) {
	t.Helper()
	os.MkdirAll(filepath.Dir(name), 0o755)
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sum(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }

func TestPathsOutsideAreRefused(t *testing.T) {
	f, ws, home, outside := setup(t)
	os.Symlink(outside, ws+"/out")
	os.Symlink(outside+"/secret", ws+"/file")
	os.Symlink("../outside/secret", ws+"/up")
	os.Symlink("loop2", ws+"/loop1")
	os.Symlink("loop1", ws+"/loop2")
	os.Symlink("/proc/self/root", ws+"/proc")
	unix.Mkfifo(ws+"/pipe", 0o666)
	l, _ := net(ws + "/sock")
	defer l()
	for _, p := range []string{
		"../outside/secret", "a/../../outside/secret", "a/../b", "..", outside, outside + "/secret", "/etc/passwd", "/",
		ws + "-x/a", ws + "/../outside/secret", home + "x", "a\x00b", strings.Repeat("a/", 3000),
		"out/secret", "file", "up", "loop1", "proc/etc/passwd", "pipe", "sock",
	} {
		if _, err := f.Read(bg, p, 0, 0); !errors.Is(err, guest.ErrRefused) {
			t.Errorf("read %.60q: %v", p, err)
		}
		if p == "a/../b" || strings.HasPrefix(p, "/") || strings.HasPrefix(p, "..") {
			if _, err := f.Stat(bg, p); !errors.Is(err, guest.ErrRefused) {
				t.Errorf("stat %.60q: %v", p, err)
			}
		}
		if _, err := f.Write(bg, p, []byte("x"), guest.WriteOptions{}); !errors.Is(err, guest.ErrRefused) {
			t.Errorf("write %.60q: %v", p, err)
		}
	}
	for _, p := range []string{"out/new", "out/a/b", "proc/tmp/x"} {
		if _, err := f.Write(bg, p, []byte("x"), guest.WriteOptions{}); !errors.Is(err, guest.ErrRefused) {
			t.Errorf("write %.60q: %v", p, err)
		}
		if err := f.Mkdir(bg, p); !errors.Is(err, guest.ErrRefused) {
			t.Errorf("mkdir %.60q: %v", p, err)
		}
	}
	for _, p := range []string{"out/secret", ".", "", ws, home, outside} {
		if err := f.Remove(bg, p, true); err == nil {
			t.Errorf("removed %q", p)
		}
	}
	if _, _, err := f.List(bg, "out", 0); !errors.Is(err, guest.ErrRefused) {
		t.Error("listed a folder outside", err)
	}
	if data, _ := os.ReadFile(outside + "/secret"); string(data) != "secret" {
		t.Fatal("the file outside was changed")
	}
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Fatal("something was made outside", names)
	}
}

func net(name string) (func(), error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return func() {}, err
	}
	return func() { unix.Close(fd) }, unix.Bind(fd, &unix.SockaddrUnix{Name: name})
}

func TestReadPieces(t *testing.T) {
	f, ws, home, _ := setup(t)
	write(t, ws+"/a", "hello world")
	os.Symlink("a", ws+"/l")
	write(t, home+"/h", "home")
	for _, c := range []struct {
		path        string
		off, lim    int64
		want, whole string
	}{
		{"a", 0, 0, "hello world", "hello world"},
		{"a", 6, 3, "wor", "hello world"},
		{"a", 6, 100, "world", "hello world"},
		{"a", 11, 5, "", "hello world"},
		{"a", 1 << 40, 5, "", "hello world"},
		{"./a", 0, 5, "hello", "hello world"},
		{ws + "/a", 0, 0, "hello world", "hello world"},
		{"l", 0, 0, "hello world", "hello world"},
		{home + "/h", 0, 0, "home", "home"},
	} {
		got, err := f.Read(bg, c.path, c.off, c.lim)
		if err != nil || string(got.Data) != c.want || got.Info.Sha256 != sum(c.whole) || got.Info.Size != int64(len(c.whole)) || got.Offset != c.off {
			t.Errorf("%+v: %q %+v %v", c, got.Data, got.Info, err)
		}
	}
	if _, err := f.Read(bg, "a", -1, 0); !errors.Is(err, guest.ErrRefused) {
		t.Error(err)
	}
	if _, err := f.Read(bg, "nope", 0, 0); !errors.Is(err, guest.ErrNotFound) {
		t.Error(err)
	}
	if _, err := f.Read(bg, "a/b", 0, 0); !errors.Is(err, guest.ErrNotFound) {
		t.Error(err)
	}
	if _, err := f.Read(bg, ".", 0, 0); !errors.Is(err, guest.ErrRefused) {
		t.Error(err)
	}
	big, _ := os.Create(ws + "/big")
	big.Truncate(10 << 30) // sparse
	big.Close()
	got, err := f.Read(bg, "big", 9<<30, 1<<40)
	if err != nil || len(got.Data) != maxRead || got.Info.Sha256 != "" {
		t.Fatal(len(got.Data), got.Info, err)
	}
}

func TestWrite(t *testing.T) {
	f, ws, _, _ := setup(t)
	info, err := f.Write(bg, "d/e/f", []byte("one"), guest.WriteOptions{Mode: 0o755, IfMatch: "absent"})
	if err != nil || info.Sha256 != sum("one") || info.Mode != 0o755 || info.Path != "d/e/f" || info.Size != 3 {
		t.Fatal(info, err)
	}
	if _, err = f.Write(bg, "d/e/f", []byte("x"), guest.WriteOptions{IfMatch: "absent"}); !errors.Is(err, guest.ErrConflict) {
		t.Fatal(err)
	}
	if _, err = f.Write(bg, "d/e/f", []byte("x"), guest.WriteOptions{IfMatch: sum("other")}); !errors.Is(err, guest.ErrConflict) {
		t.Fatal(err)
	}
	if _, err = f.Write(bg, "d/e/none", []byte("x"), guest.WriteOptions{IfMatch: sum("other")}); !errors.Is(err, guest.ErrConflict) {
		t.Fatal(err)
	}
	if _, err = f.Write(bg, "d/e/f", []byte("x"), guest.WriteOptions{IfMatch: "abc"}); !errors.Is(err, guest.ErrRefused) {
		t.Fatal(err)
	}
	info, err = f.Write(bg, "d/e/f", []byte("two"), guest.WriteOptions{IfMatch: strings.ToUpper(sum("one")), Mode: 0o600})
	if err != nil || info.Mode != 0o755 {
		t.Fatal("the mode of an existing file must stay: ", info, err)
	}
	for _, p := range []string{"d", ".", "d/e/f/g"} {
		if _, err := f.Write(bg, p, nil, guest.WriteOptions{}); err == nil {
			t.Fatal("wrote ", p)
		}
	}
	os.Symlink("e/f", ws+"/d/l")
	if _, err := f.Write(bg, "d/l", []byte("three"), guest.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Lstat(ws + "/d/l"); fi.Mode()&os.ModeSymlink == 0 {
		t.Fatal("the link was replaced")
	}
	if data, _ := os.ReadFile(ws + "/d/e/f"); string(data) != "three" {
		t.Fatalf("%q", data)
	}
	if os.Geteuid() == 0 {
		os.Chown(ws+"/d/e/f", 1234, 1235)
		f.opts.UID, f.opts.GID = 4321, 4322
		f.Write(bg, "d/e/f", []byte("four"), guest.WriteOptions{})
		f.Write(bg, "n/m/new", []byte("five"), guest.WriteOptions{})
		for p, want := range map[string]int{"d/e/f": 1234, "n/m/new": 4321, "n/m": 4321, "n": 4321} {
			fi, err := os.Stat(ws + "/" + p)
			if err != nil || int(fi.Sys().(*syscall.Stat_t).Uid) != want {
				t.Fatal(p, fi, err)
			}
		}
	} else {
		t.Log("owners are not checked: not root")
	}
	left := 0
	filepath.Walk(ws, func(p string, fi os.FileInfo, err error) error {
		if strings.Contains(p, ".tmp") {
			left++
		}
		return nil
	})
	if left != 0 {
		t.Fatal("temporary files stayed")
	}
	if _, err := f.Write(bg, "huge", make([]byte, maxWrite+1), guest.WriteOptions{}); !errors.Is(err, guest.ErrTooLarge) {
		t.Fatal(err)
	}
}

// TestOneOfManyWins: of writers with the same IfMatch exactly one succeeds.
func TestOneOfManyWins(t *testing.T) {
	f, ws, _, _ := setup(t)
	for _, match := range []string{"absent", ""} {
		if match == "" {
			match = sum(string(must(os.ReadFile(ws + "/f"))))
		}
		var wg sync.WaitGroup
		won := make(chan int, 20)
		for i := range 20 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, err := f.Write(bg, "f", fmt.Appendf(nil, "%d %s", i, match), guest.WriteOptions{IfMatch: match})
				if err == nil {
					won <- i
				} else if !errors.Is(err, guest.ErrConflict) {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatal(len(won), " writers won")
		}
		if i := <-won; string(must(os.ReadFile(ws+"/f"))) != fmt.Sprint(i, " ", match) {
			t.Fatal("the file is not the winner's")
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestSwappedFolder(t *testing.T) {
	// A folder and a link to the outside take turns at one name.
	f, ws, _, outside := setup(t)
	os.Mkdir(ws+"/real", 0o755)
	os.Symlink(outside, ws+"/link")
	os.Mkdir(ws+"/x", 0o755)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			unix.Renameat2(unix.AT_FDCWD, ws+"/x", unix.AT_FDCWD, ws+"/link", unix.RENAME_EXCHANGE)
		}
	}()
	for range 2000 {
		f.Write(bg, "x/planted", []byte("p"), guest.WriteOptions{})
		if d, err := f.Read(bg, "x/secret", 0, 0); err == nil {
			t.Fatalf("read %q from outside", d.Data)
		}
	}
	close(stop)
	wg.Wait()
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Fatal("something was written outside: ", names)
	}
}

func TestListStatRemove(t *testing.T) {
	f, ws, home, _ := setup(t)
	write(t, ws+"/d/b", "1")
	write(t, ws+"/d/a\n", "22")
	os.Mkdir(ws+"/d/c", 0o700)
	os.Symlink("/nowhere", ws+"/d/l")
	unix.Mkfifo(ws+"/d/p", 0o644)
	got, more, err := f.List(bg, "d", 0)
	if err != nil || more {
		t.Fatal(err, more)
	}
	var s []string
	for _, e := range got {
		s = append(s, fmt.Sprintf("%q %s %d %o %s", e.Path, e.Type, e.Size, e.Mode, e.Target))
	}
	if got[2].Size = 0; len(s) != 5 || s[0] != `"d/a\n" file 2 644 ` || !strings.HasPrefix(s[2], `"d/c" dir`) || !strings.HasSuffix(s[3], "/nowhere") || !strings.Contains(s[4], "other") {
		t.Fatal(strings.Join(s, "\n"))
	}
	if got, more, _ := f.List(bg, "d", 2); len(got) != 2 || !more {
		t.Fatal(got, more)
	}
	if _, _, err := f.List(bg, "d/b", 0); !errors.Is(err, guest.ErrRefused) {
		t.Fatal(err)
	}
	if got, _, err := f.List(bg, "", 0); err != nil || len(got) != 1 || got[0].Path != "d" {
		t.Fatal(got, err)
	}
	if i, err := f.Stat(bg, "d/b"); err != nil || i.Sha256 != sum("1") || i.Type != "file" {
		t.Fatal(i, err)
	}
	if i, err := f.Stat(bg, "d/l"); err != nil || i.Type != "link" || i.Target != "/nowhere" {
		t.Fatal(i, err)
	}
	if i, err := f.Stat(bg, "d/p"); err != nil || i.Type != "other" {
		t.Fatal(i, err)
	}
	if i, err := f.Stat(bg, home); err != nil || i.Type != "dir" || i.Path != home {
		t.Fatal(i, err)
	}
	if err := f.Remove(bg, "d", false); !errors.Is(err, guest.ErrRefused) {
		t.Fatal(err)
	}
	if err := f.Remove(bg, "d/zz", true); !errors.Is(err, guest.ErrNotFound) {
		t.Fatal(err)
	}
	if err := f.Remove(bg, "d/p", false); err != nil {
		t.Fatal(err)
	}
	os.Symlink(ws+"/../outside", ws+"/d/out")
	if err := f.Remove(bg, "d", true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ws + "/../outside/secret"); err != nil {
		t.Fatal("a removal followed a link")
	}
	if err := f.Mkdir(bg, "x/y/z"); err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir(bg, "x/y/z"); err != nil {
		t.Fatal(err)
	}
	write(t, ws+"/x/file", "")
	if err := f.Mkdir(bg, "x/file/z"); err == nil {
		t.Fatal("made a folder below a file")
	}
}

func TestGlob(t *testing.T) {
	f, ws, home, _ := setup(t)
	for _, p := range []string{"a.go", "b.txt", "src/a.go", "src/x/b.go", "src/x/.hid.go", "node_modules/m/i.go", ".git/config", "sub/.git/config", "sub/c.go", "a/b", "a.b", "gen.go"} {
		write(t, ws+"/"+p, "x")
	}
	write(t, ws+"/.gitignore", "node_modules\n/gen.go\n")
	write(t, home+"/notes/n.go", "x")
	os.Symlink("a.go", ws+"/l.go")
	os.Symlink("src", ws+"/ls")
	for _, c := range []struct {
		pattern string
		all     bool
		want    string
	}{
		{"*.go", false, "a.go l.go"},
		{"*.go", true, "a.go gen.go l.go"},
		{"**/*.go", false, "a.go l.go src/a.go src/x/.hid.go src/x/b.go sub/c.go"},
		{"**/*.go", true, "a.go gen.go l.go node_modules/m/i.go src/a.go src/x/.hid.go src/x/b.go sub/c.go"},
		{"src/**", false, "src/a.go src/x/.hid.go src/x/b.go"},
		{"src/*/b.go", false, "src/x/b.go"},
		{"{src,sub}/**/{a,c}.go", false, "src/a.go sub/c.go"},
		{"a*/**", false, "a/b"},
		{"a?b", false, "a.b"},
		{ws + "/src/[a]*.go", false, "src/a.go"},
		{".git/*", false, ".git/config"},
		{"**/config", true, ""},
		{home + "/**/*.go", false, home + "/notes/n.go"},
		{"nothing/**", false, ""},
	} {
		got, more, err := f.Glob(bg, c.pattern, c.all, 0)
		if err != nil || more || strings.Join(got, " ") != c.want {
			t.Errorf("%s all=%v: %q %v %v, want %q", c.pattern, c.all, got, more, err, c.want)
		}
	}
	if got, more, _ := f.Glob(bg, "**/*.go", false, 2); len(got) != 2 || !more {
		t.Error(got, more)
	}
	for _, p := range []string{"", "../**", "/etc/*", strings.Repeat("{a,b}", 20)} {
		if _, _, err := f.Glob(bg, p, false, 0); !errors.Is(err, guest.ErrRefused) {
			t.Error(p, err)
		}
	}
	// The order is that of the paths' bytes, so that a limit is stable.
	got, _, _ := f.Glob(bg, "**", true, 0)
	if !slices.IsSorted(got) || !slices.Contains(got, "a.b") {
		t.Error(got)
	}
}

func TestSearch(t *testing.T) {
	if _, err := exec.LookPath("rg"); err != nil {
		t.Fatal("ripgrep is needed: ", err)
	}
	f, ws, home, outside := setup(t)
	write(t, ws+"/a.txt", "one\ntwo needle\nthree\n")
	write(t, ws+"/.hidden/b.txt", "a Needle\r\n")
	write(t, ws+"/bad\xff.txt", "pre \xff needle\n")
	write(t, ws+"/ign/c.txt", "needle")
	write(t, ws+"/.gitignore", "ign\n")
	write(t, ws+"/.git/config", "needle")
	write(t, ws+"/long", strings.Repeat("é", 3000)+"needle\n")
	write(t, home+"/h.txt", "needle\n")
	write(t, ws+"/z.txt", strings.Repeat("needle\n", 50))
	os.Symlink(outside, ws+"/out")
	got, err := f.Search(bg, guest.SearchQuery{Pattern: "needle"})
	if err != nil || got.More {
		t.Fatal(err, got.More)
	}
	var s []string
	for _, m := range got.Matches[:3] {
		s = append(s, fmt.Sprintf("%q:%d:%.10s", m.Path, m.Line, m.Text))
		if len(m.Text) > maxText || strings.ContainsAny(m.Text, "\r\n") {
			t.Errorf("%q", m.Text)
		}
	}
	if s[0] != `"a.txt":2:two needle` || !strings.HasPrefix(s[1], `"bad\xff.txt":1:pre`) || len(got.Matches) != 53 {
		t.Fatalf("%q %d", s, len(got.Matches))
	}
	if got, err := f.Search(bg, guest.SearchQuery{Pattern: "needle", Limit: 5}); err != nil || len(got.Matches) != 5 || !got.More {
		t.Fatal(got, err)
	}
	if got, err := f.Search(bg, guest.SearchQuery{Pattern: "NEEDLE", IgnoreCase: true, Glob: "*.txt", Path: ".hidden"}); err != nil || len(got.Matches) != 1 || got.Matches[0].Path != ".hidden/b.txt" || got.Matches[0].Text != "a Needle" {
		t.Fatal(got, err)
	}
	if got, err := f.Search(bg, guest.SearchQuery{Pattern: "needle", Path: home}); err != nil || len(got.Matches) != 1 || got.Matches[0].Path != home+"/h.txt" {
		t.Fatal(got, err)
	}
	if got, err := f.Search(bg, guest.SearchQuery{Pattern: "not there"}); err != nil || len(got.Matches) != 0 {
		t.Fatal(got, err)
	}
	if got, err := f.Search(bg, guest.SearchQuery{Pattern: "a(", Literal: true}); err != nil || len(got.Matches) != 0 {
		t.Fatal(got, err)
	}
	if _, err := f.Search(bg, guest.SearchQuery{Pattern: "a("}); err == nil || !strings.Contains(err.Error(), "unclosed group") {
		t.Fatal("a bad pattern must be explained: ", err)
	}
	if _, err := f.Search(bg, guest.SearchQuery{Pattern: "x", Glob: "{"}); err == nil {
		t.Fatal("a bad glob went through")
	}
	if _, err := f.Search(bg, guest.SearchQuery{Pattern: "--pre=touch " + outside + "/x"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []guest.SearchQuery{{Pattern: ""}, {Pattern: "x", Path: "../outside"}, {Pattern: "x", Path: "out"}, {Pattern: "a\nb"}} {
		if _, err := f.Search(bg, q); !errors.Is(err, guest.ErrRefused) {
			t.Fatalf("%+v: %v", q, err)
		}
	}
	if _, err := f.Search(bg, guest.SearchQuery{Pattern: "x", Path: "nope"}); !errors.Is(err, guest.ErrNotFound) {
		t.Fatal(err)
	}
	f.opts.Env = []string{"PATH=/nonexistent"}
	t.Setenv("PATH", "/nonexistent")
	if _, err := f.Search(bg, guest.SearchQuery{Pattern: "x"}); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Fatal(err)
	}
}

func TestSearchIsBounded(t *testing.T) {
	f, ws, _, _ := setup(t)
	write(t, ws+"/one-line", strings.Repeat("x", 40<<20)+"needle")
	write(t, ws+"/z", "needle\n")
	got, err := f.Search(bg, guest.SearchQuery{Pattern: "needle"})
	if err != nil || len(got.Matches) != 1 || !got.More {
		t.Fatal(got, err)
	}
	f.opts.SearchTime = time.Nanosecond
	if _, err := f.Search(bg, guest.SearchQuery{Pattern: "needle"}); err == nil {
		t.Fatal("a search without time found something")
	}
}

func TestCut(t *testing.T) {
	for _, c := range [][2]string{
		{"a\r\n", "a"}, {"\xff", "\uFFFD"}, {strings.Repeat("a", 2000), strings.Repeat("a", 1000)},
		{strings.Repeat("\xff", 1000), strings.Repeat("\uFFFD", 333)},
	} {
		got := cut([]byte(c[0]))
		if len(got) > maxText || !bytes.HasPrefix([]byte(got), []byte(c[1][:min(len(c[1]), 3)])) {
			t.Errorf("%q -> %q", c[0], got)
		}
	}
}

// A listing of the workspace says what git would ignore, at every depth.
func TestListSaysIgnored(t *testing.T) {
	f, ws, home, _ := setup(t)
	write(t, ws+"/.gitignore", "node_modules/\n*.log\n!keep.log\n")
	write(t, ws+"/node_modules/m/i.js", "1")
	write(t, ws+"/src/.gitignore", "gen\n")
	write(t, ws+"/src/gen/x", "1")
	write(t, ws+"/src/a.log", "1")
	write(t, ws+"/src/keep.log", "1")
	write(t, ws+"/.git/config", "")
	write(t, home+"/a.log", "1")
	for dir, want := range map[string]string{
		"":               ".git:true .gitignore:false node_modules:true src:false",
		"/workspace":     ".git:true .gitignore:false node_modules:true src:false",
		"src":            ".gitignore:false a.log:true gen:true keep.log:false",
		"node_modules/m": "i.js:true",
		".git":           "config:true",
		home:             "a.log:false",
	} {
		if dir == "/workspace" {
			dir = ws
		}
		got, _, err := f.List(bg, dir, 0)
		if err != nil {
			t.Fatal(dir, err)
		}
		var s []string
		for _, e := range got {
			s = append(s, fmt.Sprintf("%s:%v", path.Base(e.Path), e.Ignored))
		}
		if strings.Join(s, " ") != want {
			t.Errorf("%q: %s, want %s", dir, strings.Join(s, " "), want)
		}
	}
}
