//go:build amd64 || arm64

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process names one host process for good: a pid alone may belong to somebody
// else by the time it is used.
type process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, field 22 of /proc/PID/stat
}

// run is run.json: the sandbox that was started last.
type run struct {
	BootID   string    `json:"boot_id"` // of the host
	Init     process   `json:"init"`    // pid 1 of the sandbox: guestd
	Monitor  process   `json:"monitor"` // bwrap, outside
	Started  time.Time `json:"started"`
	Stopping bool      `json:"stopping"`
	Cgroups  []string  `json:"cgroups,omitempty"`
	Image    string    `json:"image"`
	Guestd   string    `json:"guestd"`
}

// identify reads a process's start time. ok is false when there is none or it
// is dead already and only waits to be reaped.
func identify(pid int) (p process, ok bool) {
	if pid <= 1 {
		return process{}, false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name in brackets may hold anything, so fields are counted after the last one.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return process{}, false
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return process{}, false
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return process{}, false
	}
	return process{Pid: pid, Start: start}, true
}

// alive says whether exactly this process still runs, started in this boot of
// the host and looking like a program of ours.
func (p process) alive(bootID string) bool {
	now, ok := identify(p.Pid)
	if !ok || now != p || bootID != hostBootID() {
		return false
	}
	argv := cmdline(p.Pid) // empty for a moment while it turns from bwrap into guestd
	return len(argv) == 0 || ours(argv)
}

func ours(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	base := filepath.Base(argv[0])
	return base == "bwrap" || base == filepath.Base(GuestdPath)
}

func cmdline(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

func hostBootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// handle is an open pidfd of a process: signals through it cannot hit another.
type handle struct{ fd int }

// open returns nil when the process is gone.
func (p process) open(bootID string) (*handle, error) {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot watch process %d: %w", p.Pid, err)
	}
	if !p.alive(bootID) { // checked after opening: the descriptor is of what was checked
		_ = unix.Close(fd)
		return nil, nil
	}
	return &handle{fd: fd}, nil
}

func (h *handle) close() { _ = unix.Close(h.fd) }

func (h *handle) kill() error {
	err := unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// wait returns nil once the process has ended, or the context's cause.
func (h *handle) wait(ctx context.Context) error {
	for {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 50)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("cannot wait for a process: %w", err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// end waits for a process until ctx is done, kills it then, and returns when it
// is gone. With pid 1 of a sandbox everything inside goes too.
func (p process) end(ctx context.Context, bootID string) error {
	h, err := p.open(bootID)
	if err != nil || h == nil {
		return err
	}
	defer h.close()
	if h.wait(ctx) == nil {
		return nil
	}
	if err := h.kill(); err != nil {
		return fmt.Errorf("cannot kill process %d: %w", p.Pid, err)
	}
	hard, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	if err := h.wait(hard); err != nil {
		return fmt.Errorf("process %d does not die after SIGKILL (a disk that does not answer?): %w", p.Pid, err)
	}
	return nil
}

// killPatience is how long the kernel may take to tear a killed sandbox down.
const killPatience = 30 * time.Second

// strays finds the sandboxes of a machine folder that no run.json names: the
// core ended between starting bwrap and writing it down, or the file was
// damaged. bwrap shows by the folder in its arguments, what runs inside by
// having the folder as its /workspace. Children come before monitors.
func strays(dir string) []process {
	workspace := filepath.Join(dir, "workspace")
	want, err := os.Stat(workspace)
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	monitors, inside := map[int]bool{}, map[int]bool{}
	parents := map[int]int{}
	sort := func(pid int) (known bool) {
		argv := cmdline(pid)
		if len(argv) == 0 {
			_, lives := identify(pid)
			return !lives || kernels(pid)
		}
		if !ours(argv) {
			return true
		}
		if filepath.Base(argv[0]) == "bwrap" && binds(argv, workspace) {
			monitors[pid] = true
			parents[pid] = parent(pid)
		} else if fi, err := os.Stat(fmt.Sprintf("/proc/%d/root/workspace", pid)); err == nil && os.SameFile(fi, want) {
			inside[pid] = true
		}
		return true
	}
	var blank []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && !sort(pid) {
			blank = append(blank, pid)
		}
	}
	// What becomes another program has no words for a moment.
	for tries := 0; len(blank) > 0 && tries < 50; tries++ {
		time.Sleep(time.Millisecond)
		blank = slices.DeleteFunc(blank, sort)
	}
	for pid, ppid := range parents { // a child of bwrap that has not become guestd yet
		if monitors[ppid] {
			inside[pid] = true
			delete(monitors, pid)
		}
	}
	var out []process
	for _, set := range []map[int]bool{inside, monitors} {
		for pid := range set {
			if p, ok := identify(pid); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// kernels reports whether a process is the kernel's own, which never has any words.
func kernels(pid int) bool { return pid == kthreadd && parent(pid) == 0 || parent(pid) == kthreadd }

// kthreadd is the parent of the kernel's own processes.
const kthreadd = 2

func binds(argv []string, workspace string) bool {
	for i := 0; i+2 < len(argv); i++ {
		if argv[i] == "--bind" && argv[i+1] == workspace && argv[i+2] == "/workspace" {
			return true
		}
	}
	return false
}

func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// listening says whether something inside the sandbox listens on the channel's
// socket. Read from the kernel's table of its network namespace, so that asking
// does not disturb the channel.
func (p process) listening(path string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", p.Pid))
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		// Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 = accepting
		if len(f) >= 8 && f[7] == path && f[4] == "0001" {
			if flags, err := strconv.ParseUint(f[3], 16, 64); err == nil && flags&0x10000 != 0 {
				return true
			}
		}
	}
	return false
}
