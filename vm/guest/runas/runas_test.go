//go:build linux

package runas

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

var env = []string{"PATH=/usr/bin:/bin", "A=b"}

func TestRun(t *testing.T) {
	t.Setenv("SECRET", "x")
	run := User(-1, -1)
	var out bytes.Buffer
	err := run(context.Background(), []string{"sh", "-c", "env; pwd; cat"}, env, "/tmp", strings.NewReader("in"), &out, nil)
	if err != nil || strings.Contains(out.String(), "SECRET") || !strings.Contains(out.String(), "A=b\n") || !strings.HasSuffix(out.String(), "/tmp\nin") {
		t.Fatalf("%v %q", err, out.String())
	}
	if err := run(context.Background(), []string{"sh", "-c", "exit 7"}, env, "/", nil, nil, nil); Code(err) != 7 || Missing(err) {
		t.Fatal(err)
	}
	for _, e := range [][]string{nil, {"PATH="}, env} {
		if err := run(context.Background(), []string{"no-such-program"}, e, "/", nil, nil, nil); !Missing(err) || Code(err) != -1 {
			t.Fatal(err)
		}
	}
	if err := run(context.Background(), nil, env, "/", nil, nil, nil); err == nil {
		t.Fatal("ran nothing")
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("because")
	pid := t.TempDir() + "/pid"
	done := make(chan error, 1)
	go func() {
		done <- User(-1, -1)(ctx, []string{"sh", "-c", "sleep 1000 & echo $! > " + pid + "; wait"}, env, "/", nil, nil, nil)
	}()
	var child string
	for end := time.Now().Add(time.Minute); child == ""; time.Sleep(time.Millisecond) {
		data, _ := os.ReadFile(pid)
		child = strings.TrimSpace(string(data))
		if time.Now().After(end) {
			t.Fatal("it never started")
		}
	}
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("its child goes on")
		}
	}
}

func TestAChildThatHoldsTheOutput(t *testing.T) {
	var out bytes.Buffer
	err := User(-1, -1)(context.Background(), []string{"sh", "-c", "echo hello; sleep 1000 & echo $!"}, env, "/", nil, &out, nil)
	f := strings.Fields(out.String())
	if err != nil || len(f) != 2 || f[0] != "hello" {
		t.Fatalf("%v %q", err, out.String())
	}
	User(-1, -1)(context.Background(), []string{"kill", f[1]}, env, "/", nil, nil, nil)
}

func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	var out bytes.Buffer
	if err := User(34567, 34568)(context.Background(), []string{"sh", "-c", "id -u; id -g; id -G"}, env, "/", nil, &out, nil); err != nil || out.String() != "34567\n34568\n34568\n" {
		t.Fatalf("%v %q", err, out.String())
	}
}

func TestTail(t *testing.T) {
	var tail Tail
	for range 10_000 {
		tail.Write([]byte("x\x1b[31m\n"))
	}
	tail.Write([]byte("end\xff\n"))
	if s := tail.String(); len(s) > tailBytes || !strings.HasSuffix(s, "end?") || strings.ContainsAny(s, "\x1b\n") {
		t.Fatalf("%d %q", len(s), s[len(s)-20:])
	}
}
