//go:build !linux

package proc

func boundMemory(int, int64) {}
