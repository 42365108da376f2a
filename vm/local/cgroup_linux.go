//go:build amd64 || arm64

package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm"
)

// cgroups makes one control group per machine, below the core's own (v1), or
// below the nearest folder above it that may be written and hands controllers
// on (v2). Where neither can be had, machines live with limits per process.
type cgroups struct {
	suffix string // tells machines of two data folders apart
	mounts string // /proc/self/mountinfo, replaced in tests
	self   string // /proc/self/cgroup

	once  sync.Once
	v2    bool
	bases map[string]string // controller → folder to make groups in; v2: one folder under "memory"
}

func newCgroups(root string) *cgroups {
	abs, _ := filepath.Abs(root)
	sum := sha256.Sum256([]byte(abs))
	return &cgroups{suffix: hex.EncodeToString(sum[:4]), mounts: "/proc/self/mountinfo", self: "/proc/self/cgroup"}
}

var controllers = []string{"memory", "pids", "cpu"}

// find looks once for folders that groups can be made in, by making one.
func (g *cgroups) find() {
	g.once.Do(func() {
		mounts, err := os.ReadFile(g.mounts)
		if err != nil {
			return
		}
		own, err := os.ReadFile(g.self)
		if err != nil {
			return
		}
		paths := parseSelf(string(own))
		v1, unified := parseMounts(string(mounts))
		bases := map[string]string{}
		for _, c := range controllers {
			mnt, ok := v1[c]
			if !ok {
				continue
			}
			dir := mnt.dir(paths[c])
			if writable(dir, g.suffix) {
				bases[c] = dir
			}
		}
		if bases["memory"] != "" && bases["pids"] != "" {
			g.bases = bases
			return
		}
		if unified.point == "" {
			return
		}
		// The core's own group has processes, so it cannot hand controllers on; one above may.
		top := unified.point
		for dir := filepath.Dir(unified.dir(paths[""])); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			if err == nil {
				have := strings.Fields(string(b))
				if slices.Contains(have, "memory") && slices.Contains(have, "pids") && writable(dir, g.suffix) {
					g.v2, g.bases = true, map[string]string{"memory": dir}
					return
				}
			}
			if dir == top {
				return
			}
		}
	})
}

type cgroupMount struct{ point, root string }

// dir is where the group path of /proc/self/cgroup shows in the file system.
func (m cgroupMount) dir(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = "."
	}
	return filepath.Join(m.point, rel)
}

func parseMounts(text string) (v1 map[string]cgroupMount, v2 cgroupMount) {
	v1 = map[string]cgroupMount{}
	for _, line := range strings.Split(text, "\n") {
		left, right, ok := strings.Cut(line, " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			continue
		}
		m := cgroupMount{point: unescape(l[4]), root: unescape(l[3])}
		switch r[0] {
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				if slices.Contains(controllers, o) {
					v1[o] = m
				}
			}
		case "cgroup2":
			v2 = m
		}
	}
	return v1, v2
}

func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// parseSelf maps controllers to the process's group; "" is v2's.
func parseSelf(text string) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out
}

// writable tries what it asks: rights alone do not say it (a read-only mount).
func writable(dir, suffix string) bool {
	probe := filepath.Join(dir, fmt.Sprintf("glasshouse-probe-%s-%d", suffix, os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(probe, "cgroup.procs"))
	_ = os.Remove(probe)
	return err == nil
}

func (g *cgroups) describe() (text string, hard bool) {
	g.find()
	switch {
	case g.bases == nil:
		return "rlimits", false
	case g.v2:
		return "cgroup v2", true
	}
	return "cgroup v1", true
}

// paths of a machine's groups by controller.
func (g *cgroups) paths(id string) map[string]string {
	g.find()
	out := map[string]string{}
	for c, base := range g.bases {
		out[c] = filepath.Join(base, "glasshouse-"+id+"-"+g.suffix)
	}
	return out
}

// confine puts a process into groups of its own with the spec's limits and
// returns their folders. An error leaves it where it is, with the groups gone.
func (g *cgroups) confine(id string, pid int, spec vm.Spec) (dirs []string, err error) {
	paths := g.paths(id)
	if len(paths) == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			dirs = nil
			_ = g.remove(id)
		}
	}()
	for _, p := range paths {
		if err := os.Mkdir(p, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("cannot make the control group %s: %w", p, err)
		}
		dirs = append(dirs, p)
	}
	slices.Sort(dirs)
	memory := strconv.FormatInt(int64(spec.MemoryMiB)<<20, 10)
	const period = 100_000 // µs
	type setting struct {
		controller, file, value string
		must                    bool
	}
	settings := []setting{
		{"memory", "memory.limit_in_bytes", memory, true},
		{"memory", "memory.swappiness", "0", false},
		{"pids", "pids.max", strconv.Itoa(MaxPids), true},
		{"cpu", "cpu.cfs_period_us", strconv.Itoa(period), false},
		{"cpu", "cpu.cfs_quota_us", strconv.Itoa(period * spec.CPUs), false},
	}
	if g.v2 {
		settings = []setting{
			{"memory", "memory.max", memory, true},
			{"memory", "memory.swap.max", "0", false},
			{"memory", "pids.max", strconv.Itoa(MaxPids), true},
			{"memory", "cpu.max", fmt.Sprintf("%d %d", period*spec.CPUs, period), false},
		}
	}
	for _, s := range settings {
		dir, ok := paths[s.controller]
		if !ok {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0o644); err != nil && s.must {
			return nil, fmt.Errorf("cannot set %s of the control group: %w", s.file, err)
		}
	}
	for _, p := range dirs {
		if err := os.WriteFile(filepath.Join(p, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return nil, fmt.Errorf("cannot move the sandbox into %s: %w", p, err)
		}
	}
	return dirs, nil
}

// remove ends what is left in a machine's groups and removes them.
func (g *cgroups) remove(id string) error {
	deadline := time.Now().Add(killPatience)
	for _, dir := range g.paths(id) {
		for {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return err
			}
			_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644) // v2
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}
