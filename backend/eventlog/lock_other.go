//go:build !unix

package eventlog

import "os"

// lockFile: no advisory locks here; the core's own lock is the only one.
func lockFile(*os.File) (bool, error) { return true, nil }

func unlockFile(*os.File) {}
