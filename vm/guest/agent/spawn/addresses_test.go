//go:build linux

package spawn

import (
	"os/exec"
	"strings"
	"testing"
)

func TestFixedAddresses(t *testing.T) {
	where := func(fixed bool) string {
		t.Helper()
		// A shell in between: what it starts has them too.
		cmd := exec.Command("sh", "-c", "cat /proc/self/maps; :")
		var out strings.Builder
		cmd.Stdout = &out
		start := cmd.Start
		if fixed {
			start = func() error { return FixedAddresses(cmd.Start) }
		}
		if err := start(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if a, b := where(true), where(true); a == "" || addresses(a) != addresses(b) {
		t.Errorf("two programs have their code at\n%s\nand\n%s", a, b)
	}
	// Afterwards this process starts programs as before.
	if first, second := where(false), where(false); first == second {
		t.Skip("this host gives no random addresses, so nothing shows that they come back")
	}
}

// addresses leaves out what differs for other reasons.
func addresses(maps string) string {
	var out strings.Builder
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		out.WriteString(f[0] + " " + f[1] + "\n")
	}
	return out.String()
}
