//go:build linux

package agent

import (
	"os"
	"strings"
)

// emulated reports whether this machine's processor is QEMU's emulated one.
func emulated() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && emulatedCPU(string(b))
}

func emulatedCPU(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.Contains(v, "QEMU TCG")
		}
	}
	return false
}
