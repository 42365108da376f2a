//go:build linux

package spawn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A kill that is late, because its command ended meanwhile, must not meet the
// command that uses the tree next. The test binary plays the shim, for a Tree
// reaps every child of its process.
func TestLateKillSparesTheNextCommand(t *testing.T) {
	if os.Getenv("SPAWN_TEST_SHIM") == "1" {
		fmt.Println("SHIM " + lateKill())
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestLateKillSparesTheNextCommand", "-test.v")
	cmd.Env = append(os.Environ(), "SPAWN_TEST_SHIM=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SHIM spared") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Who left the cgroup of a command gets a signal too, and who is in it gets it once. An
// ordinary folder stands in for the cgroup: it lists what this test says.
func TestSignalFindsWhoLeftTheCgroup(t *testing.T) {
	if dir := os.Getenv("SPAWN_TEST_STRAY"); dir != "" {
		fmt.Println("SHIM " + stray(dir))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestSignalFindsWhoLeftTheCgroup", "-test.v")
	cmd.Env = append(os.Environ(), "SPAWN_TEST_STRAY="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SHIM found") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func stray(dir string) string {
	tree, err := New()
	if err != nil {
		return err.Error()
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	// It says each TERM that it gets, and ends with its child.
	script := `trap 'echo term >> "$D/terms"' TERM
sleep 600 & child=$!
echo $child > "$D/child"
while kill -0 $child 2> /dev/null; do wait $child; done`
	run, err := tree.Start(Request{Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(script)}, Dir: []byte("/"), UID: -1, GID: -1,
		Env: [][]byte{[]byte("PATH=/usr/bin:/bin"), []byte("D=" + dir)}}, [3]*os.File{null, null, null})
	if err != nil {
		return err.Error()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if b, _ := os.ReadFile(filepath.Join(dir, "child")); strings.HasSuffix(string(b), "\n") {
			break
		}
		if time.Now().After(end) {
			return "the command does not run"
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(run.Pid)+"\n"), 0o600); err != nil {
		return err.Error()
	}
	tree.mu.Lock()
	tree.cgroup = dir
	tree.mu.Unlock()
	tree.SignalAll(run, syscall.SIGTERM, syscall.SIGCONT)
	select {
	case <-run.Empty:
	case <-time.After(time.Minute):
		return "who is not in the cgroup got nothing"
	}
	terms, err := os.ReadFile(filepath.Join(dir, "terms"))
	if string(terms) != "term\n" {
		return fmt.Sprintf("who is in it got %q (%v)", terms, err)
	}
	return "found"
}

func lateKill() string {
	tree, err := New()
	if err != nil {
		return err.Error()
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	start := func(argv ...string) *Run {
		r := Request{Env: [][]byte{[]byte("PATH=/usr/bin:/bin")}, Dir: []byte("/"), UID: -1, GID: -1}
		for _, w := range argv {
			r.Argv = append(r.Argv, []byte(w))
		}
		run, err := tree.Start(r, [3]*os.File{null, null, null})
		if err != nil {
			panic(err)
		}
		return run
	}
	first := start("/bin/true")
	<-first.Exited
	<-first.Empty
	second := start("/bin/sleep", "1")
	if !tree.KillAll(first.Empty, time.Second) {
		return "the first command's tree is said not to be empty"
	}
	tree.SignalAll(first, syscall.SIGKILL)
	if e := <-second.Exited; e.Code != 0 || e.Signal != "" {
		return fmt.Sprintf("killed: %+v", e)
	}
	// And it does what it is for.
	third := start("/bin/sleep", "600")
	if !tree.KillAll(third.Empty, time.Minute) {
		return "a command survived"
	}
	return "spared"
}
