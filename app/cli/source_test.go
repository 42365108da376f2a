package cli

import (
	"path/filepath"
	"testing"
)

func TestAddressesAreNoFolders(t *testing.T) {
	for _, a := range []string{"https://user:secret@example.com/x.git", "file://localhost/x", "ssh://x/y"} {
		if got, err := sourcePath(a); err != nil || got != a {
			t.Errorf("%q became %q (%v)", a, got, err)
		}
	}
	for _, p := range []string{"x", "./x", "/x/y", "a:b"} {
		if got, err := sourcePath(p); err != nil || !filepath.IsAbs(got) {
			t.Errorf("%q became %q (%v)", p, got, err)
		}
	}
}
