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
	if git.IsAddress(s) {
		if _, err := os.Stat(s); err != nil || strings.Contains(s, "://") {
			return s, nil
		}
	}
	return filepath.Abs(s)
}
