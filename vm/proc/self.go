package proc

import (
	"os"
	"sync"
)

var self = sync.OnceValue(func() string {
	p, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return p
})

var installed string

// UseSelf names a copy of the running binary that other users can execute; a root
// core installs one for its service user. Call it before anything is started.
func UseSelf(path string) { installed = path }

// Self is the path of the running binary, for commands that start another
// command of Glasshouse's own.
func Self() string {
	if installed != "" {
		return installed
	}
	return self()
}
