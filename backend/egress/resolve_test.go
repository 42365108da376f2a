package egress

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestHostsFile(t *testing.T) {
	const file = "# a comment\n127.0.0.1 localhost localhost.localdomain # localhosts\n\n::1\tlocalhost\n192.0.2.7  Pinned.example. other\nfe80::1%lo0 localhost\nnonsense pinned.example\n192.0.2.9\n"
	for host, want := range map[string]string{
		"localhost": "[127.0.0.1 ::1 fe80::1]", "pinned.example": "[192.0.2.7]", "other": "[192.0.2.7]",
		"example": "[]", "a": "[]", "localhosts": "[]", "192.0.2.9": "[]", "": "[]",
	} {
		if got := fmt.Sprint(inHosts(strings.NewReader(file), host)); got != want {
			t.Errorf("%q: %s, want %s", host, got, want)
		}
	}
}

// What the computer's own file calls by a name stays refused when it is not public.
func TestSystemResolver(t *testing.T) {
	f, err := os.Open(hostsFile)
	if err != nil {
		t.Skipf("this computer has no %s: %v", hostsFile, err)
	}
	defer f.Close()
	if len(inHosts(f, "localhost")) == 0 {
		t.Skipf("%s does not name localhost", hostsFile)
	}
	addrs, err := New(Config{}).cfg.Resolve(t.Context(), "localhost")
	if err != nil || len(addrs) == 0 {
		t.Fatalf("%v %v", addrs, err)
	}
	for _, a := range addrs {
		if CheckPublic(a) == nil {
			t.Errorf("%s passed as public", a)
		}
	}
}
