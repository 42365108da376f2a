//go:build linux

package agent

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetHostname names the guest, so that it can resolve itself too.
func SetHostname(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return fmt.Errorf("%.70q is no host name", name)
	}
	if now, err := os.Hostname(); err == nil && now == name {
		return nil
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	old, err := os.ReadFile("/etc/hosts")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	out := ""
	for _, line := range strings.SplitAfter(string(old), "\n") {
		if !strings.HasPrefix(line, "127.0.1.1") {
			out += line
		}
	}
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	return os.WriteFile("/etc/hosts", []byte(out+"127.0.1.1 "+name+"\n"), 0o644)
}

// reseed mixes the host's randomness into the kernel's pool and makes the
// kernel draw a new key from it at once: a copied machine must not repeat what
// its original drew.
func reseed(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const (
		addEntropy = 0x40085203 // RNDADDENTROPY
		reseedCRNG = 0x5207     // RNDRESEEDCRNG
	)
	b := make([]byte, 8+(len(seed)+3)/4*4)
	*(*int32)(unsafe.Pointer(&b[0])) = int32(len(seed) * 8)
	*(*int32)(unsafe.Pointer(&b[4])) = int32(len(seed))
	copy(b[8:], seed)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), addEntropy, uintptr(unsafe.Pointer(&b[0]))); e != 0 {
		return e
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), reseedCRNG, 0); e != 0 {
		return e
	}
	return nil
}

func newMachineID() error {
	var b [16]byte
	rand.Read(b[:])
	return os.WriteFile("/etc/machine-id", []byte(hex.EncodeToString(b[:])+"\n"), 0o444)
}
