package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/vm"
)

func TestCgroupMounts(t *testing.T) {
	v1, v2 := parseMounts(strings.Join([]string{
		"25 23 0:22 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
		"26 23 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
		`27 23 0:24 /docker/abc /sys/fs/cgroup/mem\040ory rw shared:9 - cgroup cgroup rw,memory`,
		"28 23 0:25 / / rw - ext4 /dev/vda rw",
		"garbage", "", " - ",
	}, "\n"))
	if v2.point != "/sys/fs/cgroup/unified" || v1["cpu"].point != "/sys/fs/cgroup/cpu,cpuacct" || v1["pids"].point != "" {
		t.Fatalf("%+v %+v", v1, v2)
	}
	own := parseSelf("4:memory:/docker/abc/x\n1:cpu,cpuacct:/\n0::/user.slice\ngarbage\n")
	if got := v1["memory"].dir(own["memory"]); got != "/sys/fs/cgroup/mem ory/x" {
		t.Errorf("memory: %s", got)
	}
	if got := v1["memory"].dir("/elsewhere"); got != "/sys/fs/cgroup/mem ory" {
		t.Errorf("outside of the mount: %s", got)
	}
	if own["cpu"] != "/" || own[""] != "/user.slice" {
		t.Errorf("%v", own)
	}
}

// fakeUnified is a v2 tree of plain folders: what the kernel makes by itself is
// put there beforehand.
func fakeUnified(t *testing.T, control string) (*cgroups, string) {
	top := t.TempDir()
	slice := filepath.Join(top, "user.slice", "app.slice")
	must(t, os.MkdirAll(filepath.Join(slice, "core.scope"), 0o755))
	must(t, os.WriteFile(filepath.Join(slice, "cgroup.subtree_control"), []byte(control), 0o644))
	g := newCgroups("/data")
	g.mounts, g.self = filepath.Join(top, "mountinfo"), filepath.Join(top, "self")
	must(t, os.WriteFile(g.mounts, []byte("25 23 0:22 / "+top+" rw - cgroup2 cgroup2 rw\n"), 0o644))
	must(t, os.WriteFile(g.self, []byte("0::/user.slice/app.slice/core.scope\n"), 0o644))
	return g, slice
}

func TestCgroupV2Settings(t *testing.T) {
	g, slice := fakeUnified(t, "cpu memory pids\n")
	// A folder does not fill itself with files as the kernel's do, so the probe's answer is set.
	g.once.Do(func() { g.v2, g.bases = true, map[string]string{"memory": slice} })
	dirs, err := g.confine("m1", 4242, vm.Spec{MemoryMiB: 256, CPUs: 3})
	must(t, err)
	if len(dirs) != 1 || filepath.Dir(dirs[0]) != slice || !strings.Contains(dirs[0], "glasshouse-m1-") {
		t.Fatalf("%v", dirs)
	}
	for file, want := range map[string]string{
		"memory.max": "268435456", "memory.swap.max": "0", "pids.max": "4096", "cpu.max": "300000 100000", "cgroup.procs": "4242",
	} {
		b, err := os.ReadFile(filepath.Join(dirs[0], file))
		if err != nil || string(b) != want {
			t.Errorf("%s: %q (%v), want %q", file, b, err, want)
		}
	}
	if text, hard := g.describe(); text != "cgroup v2" || !hard {
		t.Errorf("%s %v", text, hard)
	}
}

// Without controllers that are handed on, or without the right to make groups,
// there are none, and that is said.
func TestCgroupFallback(t *testing.T) {
	for name, control := range map[string]string{"no controllers": "hugetlb\n", "only memory": "memory\n", "a folder that is no cgroup": "memory pids\n"} {
		g, _ := fakeUnified(t, control)
		if text, hard := g.describe(); text != "rlimits" || hard {
			t.Errorf("%s: %s %v", name, text, hard)
		}
		if dirs, err := g.confine("m1", 4242, vm.Spec{MemoryMiB: 256, CPUs: 1}); err != nil || len(dirs) != 0 {
			t.Errorf("%s: %v %v", name, dirs, err)
		}
		must(t, g.remove("m1"))
	}
}
