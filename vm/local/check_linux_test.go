package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/vm/proc"
	"glasshouse/vm/vmtest"
)

func TestAdvice(t *testing.T) {
	for path, c := range map[string]struct{ value, want string }{
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": {"1", "AppArmor"},
		"/proc/sys/kernel/unprivileged_userns_clone":             {"0", "unprivileged_userns_clone=1"},
		"/proc/sys/user/max_user_namespaces":                     {"0", "max_user_namespaces="},
		"/none":                                                  {"", "User namespaces must be allowed"},
	} {
		got := advice(func(p string) string {
			if p == path {
				return c.value
			}
			return ""
		})
		if !strings.Contains(got, c.want) || !strings.Contains(got, "virtual machine") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// What a host without usable namespaces answers is passed on with advice. A
// program named bwrap that fails as bubblewrap does there plays that host.
func TestCheckExplains(t *testing.T) {
	dir := vmtest.TempDir(t)
	m := New(Options{Root: filepath.Join(dir, "m"), Runner: &proc.Runner{}, User: testUser()})
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for pattern, want := range map[string]string{"*": "a sandbox cannot be made", `*" bwrap "*`: "not a cell inside it"} {
		script := "#!/bin/sh\ncase \" $* \" in " + pattern + ") echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1;; esac\n"
		must(t, os.WriteFile(filepath.Join(dir, "bwrap"), []byte(script), 0o755))
		err := m.Check(ctx(t))
		var exit *proc.ExitError
		if err == nil || !errors.As(err, &exit) {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, w := range []string{want, "uid map", "virtual machine"} {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", pattern, w, err)
			}
		}
	}
	t.Setenv("PATH", filepath.Join(dir, "empty"))
	if err := m.Check(ctx(t)); err == nil || !strings.Contains(err.Error(), "install bubblewrap") {
		t.Fatalf("without bwrap: %v", err)
	}
	c, cancel := context.WithCancel(context.Background())
	cancel()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	if err := m.Check(c); err == nil {
		t.Fatal("a check that was cancelled found nothing")
	}
}
