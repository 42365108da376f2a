package eventlog

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"glasshouse/backend/domain"
)

func fill(t *testing.T, dir string, n int) {
	t.Helper()
	l := openTest(t, dir)
	for range n {
		if _, err := l.Append(context.Background(), msg("session:a", strings.Repeat("payload ", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is not a whole log of ours is refused in words, and not one byte of it changes.
func TestOpenRefusesAndLeavesAlone(t *testing.T) {
	cases := []struct {
		name string
		make func(t *testing.T, path string)
		say  string
	}{
		{"text file", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("these are my notes, not a database; do not touch them"), 0o600))
		}, "not a SQLite database"},
		{"short file", func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("SQL"), 0o600)) }, "not a SQLite database"},
		{"header only", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("SQLite format 3\x00"), 0o600))
		}, "damaged"},
		{"foreign database", func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", "file:"+path)
			must(t, err)
			_, err = db.Exec("CREATE TABLE song(name TEXT); INSERT INTO song VALUES('x')")
			must(t, errors.Join(err, db.Close()))
		}, "another program"},
		{"newer schema", func(t *testing.T, path string) {
			fill(t, filepath.Dir(path), 3)
			edit(t, path, func(b []byte) []byte { binary.BigEndian.PutUint32(b[60:], 99); return b })
		}, "newer Glasshouse"},
		{"cut off", func(t *testing.T, path string) {
			fill(t, filepath.Dir(path), 50)
			edit(t, path, func(b []byte) []byte { return b[:len(b)-5000] })
		}, "damaged"},
		{"page overwritten", func(t *testing.T, path string) {
			fill(t, filepath.Dir(path), 50)
			edit(t, path, func(b []byte) []byte {
				for i := 4096; i < 3*4096; i++ {
					b[i] = 0xa5
				}
				return b
			})
		}, "damaged"},
		{"main file gone", func(t *testing.T, path string) {
			must(t, os.WriteFile(path+"-wal", []byte("not empty"), 0o600))
			must(t, os.WriteFile(path, nil, 0o600))
		}, "main file is empty"},
		{"folder", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "not a file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			c.make(t, path)
			before, _ := os.ReadFile(path)
			l, err := Open(dir, Options{})
			if err == nil {
				l.Close()
				t.Fatal("it was opened")
			}
			var e *domain.Error
			if !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), c.say) {
				t.Fatalf("unclear: %v", err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Fatal("the file was changed")
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, fn(b), 0o600))
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir)
	if _, err := Open(dir, Options{}); domain.CodeOf(err) != domain.CodeConflict {
		t.Fatal(err)
	}
}

func TestOddFolderName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "50% of ?my #data & ü")
	fill(t, dir, 2)
	if _, err := os.Stat(filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	l := openTest(t, dir)
	if rep := mustVerify(t, l); rep.Events != 2 {
		t.Fatal(rep)
	}
}

// A folder without permission to write: run as an unprivileged user, since root may write anywhere.
func TestNoPermission(t *testing.T) {
	if dir := os.Getenv("EVENTLOG_NO_PERMISSION"); dir != "" {
		_, err := Open(dir, Options{})
		if err == nil {
			os.Exit(3)
		}
		os.Stdout.WriteString(err.Error())
		os.Exit(0)
	}
	for _, withLog := range []bool{false, true} {
		dir, err := os.MkdirTemp("", "eventlog")
		must(t, err)
		defer os.RemoveAll(dir)
		if withLog {
			fill(t, dir, 1)
		}
		must(t, os.Chmod(dir, 0o555))
		exe, err := os.Executable()
		must(t, err)
		cmd := exec.Command(exe, "-test.run=^TestNoPermission$")
		cmd.Env = append(os.Environ(), "EVENTLOG_NO_PERMISSION="+dir)
		if os.Getuid() == 0 {
			copied := filepath.Join(t.TempDir(), "test") // the build folder may be closed to others
			b, err := os.ReadFile(exe)
			must(t, err)
			must(t, os.WriteFile(copied, b, 0o755))
			for p := filepath.Dir(copied); p != filepath.Clean(os.TempDir()) && len(p) > 1; p = filepath.Dir(p) {
				must(t, os.Chmod(p, 0o755))
			}
			cmd.Path = copied
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), "permission") || !strings.Contains(string(out), "writable") {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func TestUpgradeKeepsACopy(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, 3)
	two := append(append([]string{}, migrations...), "CREATE TABLE extra(x TEXT) STRICT; INSERT INTO extra VALUES('new')")
	broken := append(append([]string{}, two...), "CREATE TABLE third(x TEXT) STRICT; INSERT INTO nowhere VALUES(1)")

	if l, err := open(dir, Options{}, broken); err == nil {
		l.Close()
		t.Fatal("a broken migration passed")
	}
	// The good step stays, the broken one left nothing.
	l, err := open(dir, Options{}, two)
	must(t, err)
	var x string
	var n int
	must(t, l.r.QueryRow("SELECT x FROM extra").Scan(&x))
	must(t, l.r.QueryRow("SELECT count(*) FROM sqlite_master WHERE name = 'third'").Scan(&n))
	if x != "new" || n != 0 {
		t.Fatal(x, n)
	}
	if rep := mustVerify(t, l); rep.Events != 3 {
		t.Fatal(rep)
	}
	must(t, l.Close())
	copies, err := filepath.Glob(filepath.Join(dir, FileName+".schema1-*"))
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	// The copy is a log that the older program opens.
	old := t.TempDir()
	b, err := os.ReadFile(copies[0])
	must(t, err)
	must(t, os.WriteFile(filepath.Join(old, FileName), b, 0o600))
	if rep := mustVerify(t, openTest(t, old)); rep.Events != 3 {
		t.Fatal(rep)
	}
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Fatal(err)
	}
}

func TestWALStaysBounded(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	l := openTest(t, dir)
	sub := l.Subscribe(Filter{}, 0) // a reader that stopped reading
	defer sub.Close()
	if _, err := l.Append(ctx, msg("session:a", "x")); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Next(ctx); err != nil {
		t.Fatal(err)
	}
	var most int64
	text := strings.Repeat("x", 40000)
	for range 800 { // 32 MB
		_, err := l.Append(ctx, msg("session:a", text))
		must(t, err)
		if st, err := os.Stat(filepath.Join(dir, FileName+"-wal")); err == nil {
			most = max(most, st.Size())
		}
	}
	if most > 9<<20 {
		t.Fatalf("the write-ahead log grew to %d bytes", most)
	}
}

// A kill cannot show what a power cut would lose, so the settings that promise it are checked.
func TestDurabilitySettings(t *testing.T) {
	l := openTest(t, t.TempDir())
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "secure_delete": "1"} {
		var got string
		must(t, l.w.QueryRow("PRAGMA "+pragma).Scan(&got))
		if got != want {
			t.Errorf("%s is %s", pragma, got)
		}
	}
	if _, err := l.r.Exec("DELETE FROM event"); err == nil {
		t.Error("a reader may write")
	}
}

// A process that is being started has copies of all files for a moment: a log that was
// closed meanwhile is free all the same.
func TestClosedLogIsFreeAtOnce(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir)
	copied, err := unix.Dup(int(l.lock.Fd())) // as such a process has it
	must(t, err)
	defer unix.Close(copied)
	must(t, l.Close())
	l, err = Open(dir, Options{})
	must(t, err)
	must(t, l.Close())
}
