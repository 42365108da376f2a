package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAddressesAreNoFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, a := range []string{"https://user:secret@example.com/x.git", "file://localhost/x", "ssh://x/y", "git@example.com:x/y.git", "example.com:x", "ext::sh -c x"} {
		if got, err := sourcePath(a); err != nil || got != a {
			t.Errorf("%q became %q (%v)", a, got, err)
		}
	}
	if err := os.Mkdir("a:b", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"x", "./x", "/x/y", "a:b", "./host:path"} {
		if got, err := sourcePath(p); err != nil || !filepath.IsAbs(got) {
			t.Errorf("%q became %q (%v)", p, got, err)
		}
	}
}
