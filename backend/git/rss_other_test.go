//go:build !linux

package git_test

func maxRSS() int64 { return 0 }
