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

// Self is the path of the running binary, for commands that start another
// command of Glasshouse's own.
func Self() string { return self() }
