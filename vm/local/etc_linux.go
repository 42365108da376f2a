//go:build amd64 || arm64

package local

import (
	"fmt"
	"os"
	"path/filepath"
)

// etcFiles are the files of /etc that are the machine's own. %s is its host name.
var etcFiles = []struct{ name, text string }{
	{"passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
	{"group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"},
	{"hostname", "%s\n"},
	{"hosts", "127.0.0.1 localhost %[1]s\n::1 localhost ip6-localhost ip6-loopback\n"},
	// There is no resolver inside: names are resolved by the gate, outside.
	{"resolv.conf", "# names are resolved outside, by the gate\n"},
	{"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n"},
}

// writeEtc writes the machine's own files of /etc. bwrap can only bind over what
// the image has, so what is missing there is said clearly.
func (mc *machine) writeEtc(rootfs string) error {
	for _, d := range []string{"usr", "etc"} {
		if fi, err := os.Stat(filepath.Join(rootfs, d)); err != nil || !fi.IsDir() {
			return fmt.Errorf("the image's root file system %s has no folder %q; build the image again", rootfs, d)
		}
	}
	if fi, err := os.Lstat(filepath.Join(rootfs, GuestdPath)); err != nil || !fi.Mode().IsRegular() {
		return fmt.Errorf("the image's root file system %s has no file %s to put guestd on; build the image again", rootfs, GuestdPath)
	}
	dir := filepath.Join(mc.dir, "etc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot set up the machine's /etc: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask took away
		return fmt.Errorf("cannot set up the machine's /etc: %w", err)
	}
	for _, f := range etcFiles {
		if fi, err := os.Lstat(filepath.Join(rootfs, "etc", f.name)); err != nil || !fi.Mode().IsRegular() {
			return fmt.Errorf("the image's root file system %s has no plain file /etc/%s to bind over; build the image again", rootfs, f.name)
		}
		text := f.text
		if f.name == "hostname" || f.name == "hosts" {
			text = fmt.Sprintf(f.text, mc.spec.Hostname)
		}
		if err := writeFile(filepath.Join(dir, f.name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
