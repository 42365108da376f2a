//go:build !linux

package git_test

import "os"

func maxRSS() int64 { return 0 }

func inodeOf(os.FileInfo) string { return "" }
