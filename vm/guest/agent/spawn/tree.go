//go:build linux

package spawn

import (
	"bytes"
	"errors"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"glasshouse/vm/guest"
)

// Signal goes to the command's own process group.
func (r *Run) Signal(sig syscall.Signal) error { return syscall.Kill(-r.Pid, sig) }

// straysAfter is how long what is in the cgroup has to end before those are looked for
// that left it, which takes reading about every process there is.
const straysAfter = 100 * time.Millisecond

// SignalAll sends signals to every process of the tree, while it is run's. A tree is
// used again at once: without the lock a signal meant for what a command left
// behind could meet the next command.
func (t *Tree) SignalAll(run *Run, sigs ...syscall.Signal) {
	told := map[int]bool{}
	if t.signalCgroup(run, told, sigs) {
		end := time.NewTimer(straysAfter)
		defer end.Stop()
		select {
		case <-run.Empty:
			return
		case <-end.C:
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds(run.Empty) {
		t.signal(told, sigs...)
	}
}

// signalCgroup reports whether the tree is run's and has a cgroup; what is in it has then
// got the signals and is in told.
func (t *Tree) signalCgroup(run *Run, told map[int]bool, sigs []syscall.Signal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.self == 1 || t.cgroup == "" || !t.holds(run.Empty) {
		return false
	}
	for _, pid := range cgroupPids(t.cgroup, 0) {
		told[pid] = true
		send(pid, sigs)
	}
	return true
}

func send(pid int, sigs []syscall.Signal) {
	for _, sig := range sigs {
		syscall.Kill(pid, sig)
	}
}

// holds reports whether the tree is still that of the run with this channel; t.mu is held.
func (t *Tree) holds(empty <-chan struct{}) bool { return t.empty != nil && t.empty == empty }

// signal leaves out those that were told already; t.mu is held.
func (t *Tree) signal(told map[int]bool, sigs ...syscall.Signal) {
	if t.self == 1 {
		send(-1, sigs)
		return
	}
	for _, pid := range t.pids() {
		if !told[pid] {
			send(pid, sigs)
		}
	}
}

// KillCgroup kills everything in the cgroup at dir. One that is gone has nothing
// left to kill.
func KillCgroup(dir string) {
	err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
		log.Printf("cgroup: %v", err)
	}
}

// KillAll sends SIGKILL until nothing of the run is left or the time is up. It
// returns whether the run's tree is empty.
func (t *Tree) KillAll(empty <-chan struct{}, wait time.Duration) bool {
	end := time.NewTimer(wait)
	defer end.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		t.mu.Lock()
		if !t.holds(empty) {
			t.mu.Unlock()
			return true // what runs here now is another command
		}
		if t.cgroup != "" {
			KillCgroup(t.cgroup)
		}
		t.signal(nil, syscall.SIGKILL)
		t.mu.Unlock()
		select {
		case <-empty:
			return true
		case <-end.C:
			return false
		case <-time.After(pause):
		}
	}
}

// Rest lists the living processes of the tree, at most limit.
func (t *Tree) Rest(limit int) []guest.BackgroundProcess {
	var out []guest.BackgroundProcess
	t.mu.Lock()
	pids := t.pids()
	t.mu.Unlock()
	for _, pid := range pids {
		if len(out) == limit {
			break
		}
		argv := Argv(pid)
		// One that becomes another program has no words for a moment.
		for tries := 0; len(argv) == 0 && tries < 100; tries++ {
			if !Lives(pid) {
				break
			}
			time.Sleep(time.Millisecond)
			argv = Argv(pid)
		}
		if len(argv) == 0 {
			continue // a zombie, or gone
		}
		out = append(out, guest.BackgroundProcess{Pid: pid, Argv: argv})
	}
	return out
}

// Lives reports whether a process is there and has not ended: a zombie has.
func Lives(pid int) bool {
	f := stat(pid)
	return len(f) > 0 && f[0] != "Z" && f[0] != "X"
}

// Argv reads the words of a process, at most 32 of 256 bytes.
func Argv(pid int) []string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 16<<10)
	n, _ := f.Read(b)
	if n <= 0 {
		return nil
	}
	var out []string
	for _, w := range bytes.SplitN(bytes.TrimSuffix(b[:n], []byte{0}), []byte{0}, 33) {
		if len(out) == 32 {
			break
		}
		if len(w) > 256 {
			w = w[:256]
		}
		out = append(out, string(w))
	}
	return out
}

// pids are all processes of the tree but ourselves; t.mu is held.
func (t *Tree) pids() []int {
	all := procs()
	var out []int
	if t.self == 1 {
		for pid := range all {
			if pid != 1 {
				out = append(out, pid)
			}
		}
		return out
	}
	seen := map[int]bool{t.self: true}
	out = descend(all, seen)
	if t.cgroup != "" {
		for _, pid := range cgroupPids(t.cgroup, 0) {
			if !seen[pid] {
				seen[pid] = true
				out = append(out, pid)
			}
		}
	}
	return out
}

// Descendants lists every process below pid.
func Descendants(pid int) []int { return descend(procs(), map[int]bool{pid: true}) }

func descend(all map[int]int, seen map[int]bool) (out []int) {
	for grew := true; grew; {
		grew = false
		for pid, parent := range all {
			if !seen[pid] && seen[parent] {
				seen[pid], grew = true, true
				out = append(out, pid)
			}
		}
	}
	return out
}

// procs maps every process to its parent.
func procs() map[int]int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	out := make(map[int]int, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if pp, ok := Parent(pid); ok {
			out[pid] = pp
		}
	}
	return out
}

// Parent reads a process's parent.
func Parent(pid int) (int, bool) {
	f := stat(pid)
	if len(f) < 2 {
		return 0, false
	}
	pp, err := strconv.Atoi(f[1])
	return pp, err == nil
}

// stat reads what the kernel says of a process, from its state on; nil when it is gone.
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	i := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if i < 0 {
		return nil
	}
	return strings.Fields(string(b[i+1:]))
}

func cgroupPids(dir string, depth int) (out []int) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, w := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(w); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	if depth < 8 {
		ents, _ := os.ReadDir(dir)
		for _, e := range ents {
			if e.IsDir() {
				out = append(out, cgroupPids(filepath.Join(dir, e.Name()), depth+1)...)
			}
		}
	}
	return out
}
