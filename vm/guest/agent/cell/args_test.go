//go:build linux

package cell

import (
	"strings"
	"testing"
)

func TestArgs(t *testing.T) {
	c := Config{UID: 1000, GID: 1001, Workspace: "/workspace", Home: "/home/agent", Self: "/usr/lib/glasshouse/guestd"}
	got := strings.Join(Args(c), " ")
	const want = "--unshare-user --uid 1000 --gid 1001 --unshare-pid --unshare-ipc --cap-drop ALL --ro-bind /usr /usr " +
		"--symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib32 /lib32 --symlink usr/lib64 /lib64 " +
		"--ro-bind /etc /etc --ro-bind-try /opt /opt --proc /proc --dev /dev --bind /tmp /tmp --tmpfs /run --tmpfs /var --dir /var/tmp --dir /var/lib --dir /var/cache " +
		"--symlink /run /var/run --ro-bind-try /var/lib/dpkg /var/lib/dpkg --ro-bind-try /var/cache/fontconfig /var/cache/fontconfig " +
		"--bind /home/agent /home/agent --bind /workspace /workspace --as-pid-1 --chdir / -- /usr/lib/glasshouse/guestd cell"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// One command alone ends with who started it and never becomes pid 1, which must reap.
	got = strings.Join(CommandArgs(c, "/workspace/x", []string{"git", "--as-pid-1"}), " ")
	if !strings.HasSuffix(got, " --die-with-parent --chdir /workspace/x -- git --as-pid-1") || strings.Count(got, "--as-pid-1") != 1 {
		t.Errorf("got %s", got)
	}
	// Nothing of guestd's own is let in, whatever else changes.
	for _, a := range append(Args(c), CommandArgs(c, "/", []string{"x"})...) {
		if strings.HasPrefix(a, "/var/lib/glasshouse") || strings.HasPrefix(a, "/run/glasshouse") || a == "--unshare-net" || a == "--disable-userns" {
			t.Errorf("the command line holds %s", a)
		}
	}
}
