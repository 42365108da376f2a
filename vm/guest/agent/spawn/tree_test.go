//go:build linux

package spawn

import (
	"fmt"
	"os"
	"os/exec"
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
	if !tree.KillAll(third.Empty, 20*time.Second) {
		return "a command survived"
	}
	return "spared"
}
