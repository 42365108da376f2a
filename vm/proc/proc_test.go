package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// row allows the test's own programs for as long as the test runs.
func row(t *testing.T, role string, timeout time.Duration, programs ...string) {
	t.Helper()
	old := Rows
	Rows = append(append([]Row{}, old...), Row{Role: role, Programs: programs, Timeout: timeout, Why: "a test", Hint: "install it"})
	t.Cleanup(func() { Rows = old })
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !alive(pid) {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
}

func TestOnlyTheTableRuns(t *testing.T) {
	r := &Runner{}
	for _, c := range []Cmd{
		{Role: "no-such-role", Path: "true"},
		{Role: "git-push", Path: "sh"},
		{Role: "git-push", Path: "/tmp/evil/bash"},
		{Role: "netd", Path: "/bin/sh"}, // "self" is our own binary alone
	} {
		if _, err := r.Run(t.Context(), c); err == nil {
			t.Errorf("%s ran %s", c.Role, c.Path)
		}
	}
	if n := len(r.Records()); n != 0 {
		t.Errorf("%d refused commands were recorded as started", n)
	}
	seen := map[string]bool{}
	for _, row := range Rows {
		if seen[row.Role] || row.Why == "" || len(row.Programs) == 0 {
			t.Errorf("row %q is double or lacks its reason", row.Role)
		}
		seen[row.Role] = true
	}
}

func TestMissingProgramSaysWhatToDo(t *testing.T) {
	row(t, "t", time.Minute, "no-such-program-here")
	_, err := (&Runner{}).Run(t.Context(), Cmd{Role: "t", Path: "no-such-program-here"})
	if err == nil || !strings.Contains(err.Error(), "install it") {
		t.Error(err)
	}
}

func TestRunKeepsOutputExitAndRecord(t *testing.T) {
	row(t, "t", time.Minute, "sh")
	var told []Record
	r := &Runner{OnStart: func(rec Record) { told = append(told, rec) }}
	t.Setenv("GH_SECRET", "x")
	res, err := r.Run(t.Context(), Cmd{Role: "t", Path: "sh", Args: []string{"-c", "echo out; echo err >&2; env; exit 7"}})
	var ee *ExitError
	if !errors.As(err, &ee) || ee.Code != 7 || !strings.Contains(err.Error(), "err") {
		t.Fatalf("%v", err)
	}
	if !bytes.HasPrefix(res.Stdout, []byte("out\n")) || res.Code != 7 {
		t.Errorf("%+v", res)
	}
	if bytes.Contains(res.Stdout, []byte("GH_SECRET")) {
		t.Error("the caller's environment reached the process")
	}
	recs := r.Records()
	if len(recs) != 1 || len(told) != 1 || recs[0].Code != 7 || recs[0].End.IsZero() || recs[0].Argv[1] != "-c" || r.Live() != 0 {
		t.Errorf("%+v", recs)
	}
}

// parent starts a shell that has a child; child is 0 when the shell ended before it had one.
func parent(t *testing.T, ctx context.Context, role string) (p *Process, child int) {
	t.Helper()
	pidFile := filepath.Join(t.TempDir(), "pid")
	p, err := (&Runner{}).Start(ctx, Cmd{Role: role, Path: "sh", Args: []string{"-c", "sleep 300 & echo $! >" + pidFile + "; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	for ended := false; ; time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(pidFile)
		if line, whole := strings.CutSuffix(string(b), "\n"); whole {
			child, _ = strconv.Atoi(line)
			return p, child
		}
		if ended {
			return p, 0
		}
		select {
		case <-p.Done():
			ended = true // the file is looked at once more
		default:
		}
	}
}

func TestDeadlineAndCancelEndTheWholeGroup(t *testing.T) {
	row(t, "long", time.Minute, "sh")
	for _, role := range []string{"short", "long"} {
		ctx, cancel := context.WithCancel(t.Context())
		var p *Process
		var child int
		// Where the computer is busy a short deadline ends the shell before it has a child.
		for short := 300 * time.Millisecond; child == 0; short *= 4 {
			if short > time.Hour {
				t.Fatal("the shell never has a child")
			}
			name := role
			if role == "short" {
				name = short.String()
				row(t, name, short, "sh")
			}
			p, child = parent(t, ctx, name)
		}
		if role == "long" {
			cancel()
		}
		_, err := p.Wait()
		cancel()
		if role == "short" && !errors.Is(err, ErrTimeout) || role == "long" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", role, err)
		}
		gone(t, child)
		gone(t, p.Pid())
	}
}

func TestDetachedOutlivesItsContext(t *testing.T) {
	row(t, "t", 0, "sleep")
	ctx, cancel := context.WithCancel(t.Context())
	r := &Runner{}
	p, err := r.Start(ctx, Cmd{Role: "t", Path: "sleep", Args: []string{"300"}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	time.Sleep(100 * time.Millisecond)
	if !alive(p.Pid()) {
		t.Fatal("it ended with its context")
	}
	if sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, uintptr(p.Pid()), 0, 0); int(sid) != p.Pid() {
		t.Errorf("its session is %d", sid)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Done() // reaped
	gone(t, p.Pid())
}

func TestDescriptorsStayHere(t *testing.T) {
	row(t, "t", time.Minute, "sh")
	res, err := (&Runner{}).Run(t.Context(), Cmd{Role: "t", Path: "sh", Args: []string{"-c", "exec ls -l /proc/self/fd"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(res.Stdout), " -> "); n != 4 { // 0, 1, 2 and ls's own
		t.Errorf("%d descriptors are open in the child:\n%s", n, res.Stdout)
	}
}

func TestOutputIsBounded(t *testing.T) {
	row(t, "t", time.Minute, "sh")
	res, err := (&Runner{}).Run(t.Context(), Cmd{Role: "t", Path: "sh", Args: []string{"-c", "head -c 9000000 /dev/zero | tr '\\0' x; printf 'the end' >&2; head -c 9000000 /dev/zero | tr '\\0' y >&2; printf END >&2"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Stdout) != MaxCapture || len(res.Stderr) > MaxCapture || !bytes.HasSuffix(res.Stderr, []byte("yEND")) {
		t.Errorf("%d and %d bytes kept", len(res.Stdout), len(res.Stderr))
	}
}

func TestRecordsAreBounded(t *testing.T) {
	r := &Runner{}
	for range maxRecords + 10 {
		r.recs = append(r.recs, &Record{})
	}
	row(t, "t", time.Minute, "true")
	if _, err := r.Run(t.Context(), Cmd{Role: "t", Path: "true"}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Records()); n > maxRecords {
		t.Errorf("%d records are kept", n)
	}
}

// A descriptor that our own starter left open is not handed on. The test binary
// plays the program: it inherits one and runs a child.
func TestInheritedDescriptorsEndHere(t *testing.T) {
	if os.Getenv("PROC_TEST_CHILD") == "1" {
		Rows = append(Rows, Row{Role: "t", Programs: []string{"ls"}, Timeout: time.Minute, Why: "a test"})
		res, err := (&Runner{}).Run(context.Background(), Cmd{Role: "t", Path: "ls", Args: []string{"-l", "/proc/self/fd"}})
		fmt.Printf("CHILD %v\n%s", err, res.Stdout)
		return
	}
	secret := filepath.Join(t.TempDir(), "inherited-secret")
	f, err := os.Create(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	row(t, "me", time.Minute, filepath.Base(os.Args[0]))
	res, err := (&Runner{}).Run(t.Context(), Cmd{Role: "me", Path: os.Args[0], Args: []string{"-test.run=TestInheritedDescriptorsEndHere", "-test.v"},
		Env: append(MinimalEnv(), "PROC_TEST_CHILD=1"), Files: []*os.File{f}})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(res.Stdout, []byte("CHILD <nil>")) || bytes.Contains(res.Stdout, []byte("inherited-secret")) {
		t.Errorf("%s", res.Stdout)
	}
}
