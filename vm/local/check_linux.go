//go:build amd64 || arm64

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"glasshouse/vm/proc"
)

// Check makes a sandbox within a sandbox over the host's own files, as a machine
// with its cells does, and explains what keeps it from working.
func (m *manager) Check(ctx context.Context) error {
	if err := m.rootRefusal(); err != nil {
		return err
	}
	sealDescriptors()
	bind := []string{"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"}
	outer := append([]string{"--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-ipc", "--unshare-pid",
		"--unshare-net", "--unshare-uts", "--unshare-cgroup", "--new-session", "--die-with-parent", "--cap-drop", "ALL"}, bind...)
	if err := m.probe(ctx, append(outer, "--", "true")); err != nil {
		return explain("a sandbox cannot be made on this host", err)
	}
	inner := append([]string{"--", "bwrap", "--unshare-user", "--unshare-pid", "--unshare-net"}, bind...)
	if err := m.probe(ctx, append(append(outer, inner...), "--", "true")); err != nil {
		return explain("a sandbox can be made on this host, but not a cell inside it (every command runs in one)", err)
	}
	return nil
}

func (m *manager) probe(ctx context.Context, args []string) error {
	_, err := m.o.Runner.Run(ctx, proc.Cmd{Role: "bwrap-probe", Path: "bwrap", Args: args, Dir: "/", User: m.o.User})
	return err
}

// explain adds what to do, from the host's own settings.
func explain(what string, err error) error {
	var exit *proc.ExitError
	if !errors.As(err, &exit) {
		return err // bwrap is missing, or the context ended: said already
	}
	return fmt.Errorf("%s: %w. %s", what, err, advice(func(path string) string {
		b, _ := os.ReadFile(path)
		return strings.TrimSpace(string(b))
	}))
}

func advice(read func(path string) string) string {
	switch {
	case read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor keeps programs from making user namespaces (Ubuntu since 23.10 does this). " +
			"Either allow bubblewrap alone, with a profile /etc/apparmor.d/bwrap holding " +
			"'abi <abi/4.0>, include <tunables/global> profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }' " +
			"and 'sudo apparmor_parser -r /etc/apparmor.d/bwrap'; or switch the rule off for all programs: " +
			"'sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0'. Or use a virtual machine instead."
	case read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return "User namespaces are switched off for ordinary users: 'sudo sysctl kernel.unprivileged_userns_clone=1', or use a virtual machine instead."
	case read("/proc/sys/user/max_user_namespaces") == "0":
		return "User namespaces are switched off: 'sudo sysctl user.max_user_namespaces=15000', or use a virtual machine instead."
	}
	return "User namespaces must be allowed; inside a container they often are not. Allow them, or use a virtual machine instead."
}
