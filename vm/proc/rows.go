package proc

import (
	"fmt"
	"path/filepath"
	"time"
)

// Row is one place on the host that starts a process.
type Row struct {
	Role     string
	Programs []string // base names that may be started; "self" = Glasshouse's own binary
	Timeout  time.Duration
	Why      string
	Hint     string // what to do when the program is missing
}

// Rows is the complete list. A new place needs a row here, with its reason.
var Rows = []Row{
	{"limactl", []string{"limactl"}, 10 * time.Minute, "starts, stops and lists Lima machines", "build it with 'make limactl'"},
	{"qemu-probe", []string{"qemu-system-x86_64", "qemu-system-aarch64"}, time.Minute, "boots a tiny guest to see which accelerator works", "install qemu-system-x86"},
	{"qemu-img", []string{"qemu-img"}, 10 * time.Minute, "makes machine disks over a shared base", "install qemu-utils"},
	{"netd", []string{"self"}, 0, "the network process of one Lima machine; lives as long as it", ""},
	{"core", []string{"self"}, 0, "the core process, started by the first client", ""},
	{"git-index", []string{"self"}, 5 * time.Minute, "checks and indexes a pack from a guest in a child with limits", ""},
	{"bwrap", []string{"bwrap"}, 0, "the sandbox of one local machine; lives as long as it", "install bubblewrap"},
	{"bwrap-probe", []string{"bwrap"}, time.Minute, "checks that sandboxes work on this host", "install bubblewrap"},
	{"prlimit", []string{"prlimit"}, 10 * time.Second, "limits the processes of a local machine before they run", "install util-linux"},
	{"image", []string{"mmdebstrap", "mke2fs", "debugfs", "qemu-img", "npm", "unshare", "fakeroot", "xz", "lz4", "zstd"}, 40 * time.Minute, "builds the guest image from its recipe", "run 'make setup'"},
	{"git-push", []string{"git"}, 10 * time.Minute, "pushes a reviewed object from the project's own mirror", "install git"},
	{"git-remote", []string{"git"}, 2 * time.Minute, "asks a remote for its refs", "install git"},
	{"git-config", []string{"git"}, 10 * time.Second, "reads the user's global git settings, outside any repository", "install git"},
	{"go-build", []string{"go"}, 20 * time.Minute, "builds limactl and guestd from source during development", "install Go"},
	{"demo", []string{"self", "git"}, 60 * time.Minute, "the demo: itself in a network of its own, and git for its sample and its checks", "install git"},
	{"open", []string{"xdg-open", "open"}, 10 * time.Second, "opens a page or folder the person asked for", ""},
	{"notice", []string{"osascript"}, 10 * time.Second, "macOS: says outside the window that a question waits", ""},
	{"keychain", []string{"security"}, 90 * time.Second, "macOS: keeps the keys of models in the keychain", ""},
	{"bench", []string{"glasshouse", "limactl", "ssh"}, 10 * time.Minute, "the benchmark: a core of its own, and the programs it is compared with", "install openssh-client"},
	{"useradd", []string{"useradd"}, 30 * time.Second, "creates the service user when the core runs as root", "install passwd"},
}

func rowFor(c Cmd) (Row, error) {
	for _, r := range Rows {
		if r.Role != c.Role {
			continue
		}
		base := filepath.Base(c.Path)
		for _, p := range r.Programs {
			if p == base || p == "self" && c.Path == Self() {
				return r, nil
			}
		}
		return Row{}, fmt.Errorf("the process table's row %q does not allow %q (rows: vm/proc/rows.go)", c.Role, base)
	}
	return Row{}, fmt.Errorf("no row %q in the process table (vm/proc/rows.go): every host process needs one", c.Role)
}
