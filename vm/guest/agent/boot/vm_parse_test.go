//go:build linux

package boot

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseSysctl(t *testing.T) {
	for line, want := range map[string][2]string{
		"fs.inotify.max_user_watches = 1048576": {"fs/inotify/max_user_watches", "1048576"},
		"-net.ipv4.ip_forward=0":                {"net/ipv4/ip_forward", "0"},
		"net/ipv4/conf/eth0.1/x = 1 2":          {"net/ipv4/conf/eth0.1/x", "1 2"},
	} {
		k, v, ok := parseSysctl(line)
		if !ok || k != want[0] || v != want[1] {
			t.Errorf("%q: %q %q %v", line, k, v, ok)
		}
	}
	for _, line := range []string{"", "# x = 1", "; x = 1", "novalue", "= 1", "../../etc/passwd = x", "a/../../b = x"} {
		if k, v, ok := parseSysctl(line); ok {
			t.Errorf("%q gave %q %q", line, k, v)
		}
	}
}

func TestParseCmdline(t *testing.T) {
	w := parseCmdline("console=ttyS0 quiet gh.hostname=glass gh.gw=192.168.104.2 gh.empty= a=b=c\n")
	if w["gh.hostname"] != "glass" || w["gh.gw"] != "192.168.104.2" || w["a"] != "b=c" {
		t.Fatalf("%q", w)
	}
	if _, ok := w["quiet"]; ok {
		t.Error("a flag became a value")
	}
}

// reap must tell the worker's end apart from others'.
func TestReap(t *testing.T) {
	spawn := func(script string) int {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Env: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	other := spawn("exit 3")
	// It ends once the other one was collected, however long that one takes.
	mine := spawn(fmt.Sprintf("while kill -0 %d 2>/dev/null; do sleep 0.01; done; exit 81", other))
	for end := time.Now().Add(hang); ; time.Sleep(time.Millisecond) {
		code, ended := reap(mine)
		if ended {
			if code != 81 {
				t.Fatalf("code %d", code)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("a child was not collected")
		}
	}
}

const hang = time.Minute // a guard, never a measure

func TestMarkOpen(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil { // stays open in what is run
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	low, high := min(fds[0], fds[1]), max(fds[0], fds[1])
	if err := markOpen(high); err != nil {
		t.Fatal(err)
	}
	for fd, want := range map[int]int{low: 0, high: unix.FD_CLOEXEC} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != want {
			t.Errorf("descriptor %d of %v: flags %d, %v; want %d", fd, fds, flags, err, want)
		}
	}
}
