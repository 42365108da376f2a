package cli

import (
	"os"
	"path/filepath"
	"strings"

	"glasshouse/backend/git"
)

// sourcePath makes a folder's path whole. An address is handed on as it is: made into
// a path, what it may hold of credentials would be taken for a folder's name and
// recorded. A folder that is there is one, whatever its name looks like.
func sourcePath(s string) (string, error) {
	if git.IsAddress(s) && (strings.Contains(s, "://") || !there(s)) {
		return s, nil
	}
	return filepath.Abs(s)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
