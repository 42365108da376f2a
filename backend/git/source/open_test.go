package source

import (
	"path/filepath"
	"strings"
	"testing"
)

// An error names what was typed, not the part of it at which the system stopped.
func TestOpenNamesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "such", "folder")
	_, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), "there is no folder "+path) || strings.Contains(err.Error(), "lstat") {
		t.Errorf("%v", err)
	}
}
