package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
)

const testRelease = "9.9.9-test"

// smallRecipe is a recipe with one npm package and few files, and that package's archive.
func smallRecipe(t *testing.T) (Recipe, []byte) {
	t.Helper()
	tgz := npmArchive(t, map[string]string{"bin/tool.js": "#!/usr/bin/env node\n", "docs/long.md": "left out", "lib/a.js": "1"})
	sum := sha512.Sum512(tgz)
	p := pins{Suite: "bookworm", Arch: "amd64", NPM: []npmPackage{{
		Name: "tool", Version: "1.2.3", Into: "usr/local/lib/node_modules/tool", Skip: []string{"docs/"},
		Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		Links:     map[string]string{"usr/local/bin/tool": "../lib/node_modules/tool/bin/tool.js"},
	}}}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRecipe(fstest.MapFS{
		"pins.json":                    {Data: data},
		"packages.txt":                 {Data: []byte("# comment\ngit\ncurl # why\n\n")},
		"exclude.txt":                  {Data: []byte("/usr/share/man/*\n!/usr/share/man/keep\n")},
		"customize.sh":                 {Data: []byte("true\n")},
		"initrd/init":                  {Data: []byte("#!/bin/sh\n")},
		"initrd/modules.txt":           {Data: []byte("virtio_blk\n")},
		"root/etc/hosts":               {Data: []byte("127.0.0.1 localhost\n")},
		"root/etc/sudoers.d/90-test":   {Data: []byte("agent ALL=(ALL) NOPASSWD:ALL\n")},
		"root/home/agent/.cache/x/y":   {Data: []byte("1")},
		"root/usr/lib/glasshouse/tool": {Data: []byte("#!/bin/sh\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, tgz
}

func npmArchive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for name, text := range files {
		must(t, w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, w.Close())
	must(t, z.Close())
	return buf.Bytes()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// smallRoot is what a bootstrap of a few files would write.
func smallRoot(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	when := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	dir := func(name string, uid, gid int, mode int64) {
		must(t, w.WriteHeader(&tar.Header{Name: "./" + name + "/", Typeflag: tar.TypeDir, Mode: mode, Uid: uid, Gid: gid, ModTime: when}))
	}
	file := func(name string, uid, gid int, mode int64, text string) {
		must(t, w.WriteHeader(&tar.Header{Name: "./" + name, Typeflag: tar.TypeReg, Mode: mode, Uid: uid, Gid: gid, Size: int64(len(text)), ModTime: when}))
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"boot", "dev", "etc", "home", "tmp", "usr", "usr/bin", "usr/lib", "usr/share", "var", "var/lib", "var/lib/dpkg", "var/cache", "var/cache/apt"} {
		dir(d, 0, 0, 0o755)
	}
	must(t, w.WriteHeader(&tar.Header{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin", ModTime: when}))
	must(t, w.WriteHeader(&tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, ModTime: when}))
	file("boot/vmlinuz-"+testRelease, 0, 0, 0o644, string(testBzImage(lz4Legacy(testELF(true)), uint32(len(testELF(true))))))
	file("boot/config", 0, 0, 0o644, "x")
	file("usr/bin/sudo", 0, 0, 0o4755, "elevate")
	file("usr/bin/wall", 0, 5, 0o2755, "shout")
	file("usr/bin/busybox", 0, 0, 0o755, "BUSYBOX")
	must(t, w.WriteHeader(&tar.Header{Name: "./usr/bin/sudoedit", Typeflag: tar.TypeLink, Linkname: "./usr/bin/sudo", Mode: 0o4755, ModTime: when}))
	file("etc/shadow", 0, 42, 0o640, "root:*::::::")
	file("etc/with space", 0, 42, 0o600, "x")
	file("etc/日本語", 0, 42, 0o600, "x")
	dir("home/agent", 1000, 1000, 0o750)
	file("home/agent/.profile", 1000, 1000, 0o644, "x")
	file("var/cache/apt/big.deb", 0, 0, 0o644, "left out")
	file("tmp/rest", 0, 0, 0o644, "left out")
	file("usr/share/glasshouse-kernel", 0, 0, 0o644, "Package: linux-test\nVersion: 9.9-1\nArchitecture: amd64\n")
	file("var/lib/dpkg/status", 0, 0, 0o644, "Package: git\nStatus: install ok installed\nVersion: 1:2.39\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n")
	mods := "usr/lib/modules/" + testRelease
	dir(mods, 0, 0, 0o755)
	file(mods+"/modules.dep", 0, 0, 0o644, "kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio_ring.ko\nkernel/drivers/virtio/virtio_ring.ko:\n")
	file(mods+"/modules.builtin", 0, 0, 0o644, "kernel/fs/ext4/ext4.ko\n")
	dir(mods+"/kernel/drivers/block", 0, 0, 0o755)
	file(mods+"/kernel/drivers/block/virtio_blk.ko", 0, 0, 0o644, "BLK")
	file(mods+"/kernel/drivers/virtio/virtio_ring.ko", 0, 0, 0o644, "RING")
	must(t, w.Close())
	return buf.Bytes()
}

// fakeHost plays npm and mmdebstrap and runs the other tools for real.
type fakeHost struct {
	root, tgz  []byte
	bootstraps atomic.Int32
	fail       error         // what mmdebstrap ends with
	hold       chan struct{} // mmdebstrap waits for it half way, when set
	reached    chan struct{} // closed by mmdebstrap when it waits
	argv       atomic.Value
}

func newFakeHost(t *testing.T) (*fakeHost, Recipe) {
	t.Helper()
	if missing := MissingTools(); len(missing) > 0 {
		t.Skipf("this host lacks %v; build/setup/apt.sh installs them", missing)
	}
	r, tgz := smallRecipe(t)
	return &fakeHost{root: smallRoot(t), tgz: tgz}, r
}

func (h *fakeHost) run(ctx context.Context, name string, args []string, o RunOptions) error {
	switch filepath.Base(name) {
	case "npm":
		return os.WriteFile(filepath.Join(args[3], "tool-1.2.3.tgz"), h.tgz, 0o644)
	case "mmdebstrap":
		h.bootstraps.Add(1)
		h.argv.Store(args)
		fmt.Fprintln(o.Stderr, "I: downloading packages with apt...")
		work := filepath.Join(tempOf(o.Env), "mmdebstrap.work")
		if err := os.WriteFile(work, nil, 0o600); err != nil {
			return err
		}
		half := len(h.root) / 2
		if _, err := o.Stdout.Write(h.root[:half]); err != nil {
			return err
		}
		if h.hold != nil {
			close(h.reached)
			select {
			case <-h.hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if h.fail != nil {
			fmt.Fprintln(o.Stderr, "E: no such mirror")
			return h.fail
		}
		if _, err := os.Stat(work); err != nil {
			return fmt.Errorf("somebody took the temporary folder away: %w", err)
		}
		_, err := o.Stdout.Write(h.root[half:])
		return err
	}
	return hostRun(ctx, name, args, o)
}

func tempOf(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			return v
		}
	}
	return ""
}

// testELF is the smallest kernel the checks accept, or one without the PVH note.
func testELF(pvh bool) []byte {
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	le := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	le([]uint16{2, 62}) // executable, x86-64
	le(uint32(1))
	le([]uint64{0x100000, 64, 0}) // entry, program headers, no sections
	le(uint32(0))
	le([]uint16{64, 56, 1, 64, 0, 0})
	kind := uint32(18)
	if !pvh {
		kind = 6
	}
	le([]uint32{4, 4}) // note segment
	le([]uint64{120, 0, 0, 20, 20, 4})
	le([]uint32{4, 4, kind})
	b.WriteString("Xen\x00")
	le(uint32(0x100000))
	b.Write(bytes.Repeat([]byte("kernel text "), 1000))
	return b.Bytes()
}

// testBzImage wraps a payload in the header fields that the boot protocol promises.
func testBzImage(payload []byte, size uint32) []byte {
	const sects = 3
	img := make([]byte, (sects+1)*512+64)
	img[0x1f1] = sects
	copy(img[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(img[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(img[0x248:], 64)
	payload = binary.LittleEndian.AppendUint32(bytes.Clone(payload), size)
	binary.LittleEndian.PutUint32(img[0x24c:], uint32(len(payload)))
	return append(append(img, payload...), "signature behind the payload"...)
}

// lz4Legacy packs data as the kernel build does, with a match in every block so that copies are tested too.
func lz4Legacy(data []byte) []byte {
	out := []byte{0x02, 0x21, 0x4c, 0x18}
	for len(data) > 0 {
		n := min(len(data), 8<<20)
		block := lz4Pack(data[:n])
		out = binary.LittleEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		data = data[n:]
	}
	return out
}

// lz4Pack is a plain greedy packer with matches at one distance.
func lz4Pack(src []byte) []byte {
	const distance = 12
	var out []byte
	lit := 0
	emit := func(literals []byte, match int) {
		ext := func(n int) (byte, []byte) {
			if n < 15 {
				return byte(n), nil
			}
			var more []byte
			for n -= 15; n >= 255; n -= 255 {
				more = append(more, 255)
			}
			return 15, append(more, byte(n))
		}
		l, lmore := ext(len(literals))
		m, mmore := byte(0), []byte(nil)
		if match > 0 {
			m, mmore = ext(match - 4)
		}
		out = append(append(append(out, l<<4|m), lmore...), literals...)
		if match > 0 {
			out = append(append(out, distance, 0), mmore...)
		}
	}
	for i := distance; i+12 < len(src); {
		n := 0
		for i+n < len(src)-5 && src[i+n] == src[i+n-distance] {
			n++
		}
		if n < 4 {
			i++
			continue
		}
		emit(src[lit:i], n)
		i += n
		lit = i
	}
	emit(src[lit:], 0)
	return out
}
