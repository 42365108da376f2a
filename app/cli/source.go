package cli

import (
	"path/filepath"
	"strings"
)

// sourcePath makes a folder's path whole. An address is handed on as it is, so that
// it is refused as one: made into a path, what it may hold of credentials would be
// taken for a folder's name and recorded.
func sourcePath(s string) (string, error) {
	if strings.Contains(s, "://") {
		return s, nil
	}
	return filepath.Abs(s)
}
