//go:build linux

package agent

import "testing"

func TestEmulatedCPU(t *testing.T) {
	for text, want := range map[string]bool{
		"processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: QEMU TCG CPU version 2.5+\n":    true,
		"processor\t: 0\nmodel name\t: AMD EPYC 7543 32-Core Processor\nflags\t: QEMU TCG\n":      false,
		"processor\t: 0\nmodel name\t: QEMU Virtual CPU version 2.5+\n\nmodel name\t: QEMU TCG\n": false,
		"": false,
	} {
		if emulatedCPU(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
