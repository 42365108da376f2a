//go:build !unix

package eventlog

import "os"

// lockFile: no advisory locks here; the core's own lock is the only one.
func lockFile(*os.File) (bool, error) { return true, nil }

func freeBytes(string) int64 { return -1 }
