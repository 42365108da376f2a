package image

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// buildSmall builds the small recipe into a folder whose name is not plain.
func buildSmall(t *testing.T, h *fakeHost, r Recipe, guestd string) *Image {
	t.Helper()
	img, err := r.Build(context.Background(), Options{
		CacheDir: filepath.Join(t.TempDir(), "my images 图像"), Run: h.run, Guestd: guestd, DiskSize: 64 << 20,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func guestdFile(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "guest d")
	must(t, os.WriteFile(name, []byte(text), 0o755))
	return name
}

func TestBuildTreeAndDisk(t *testing.T) {
	h, r := newFakeHost(t)
	defer syscall.Umask(syscall.Umask(0o077)) // a strict umask must not reach the image
	img := buildSmall(t, h, r, guestdFile(t, "guestd one"))

	err := filepath.WalkDir(img.RootFS, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		m := info.Mode()
		if m&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
			t.Errorf("%s is %v", name, m)
		}
		if m&fs.ModeSymlink == 0 && (m&0o444 != 0o444 || d.IsDir() && m&0o111 != 0o111) {
			t.Errorf("%s cannot be read by everyone: %v", name, m)
		}
		return nil
	})
	must(t, err)
	for _, name := range []string{"tmp/rest", "var/cache/apt/big.deb", "boot/config", "usr/local/lib/node_modules/tool/docs/long.md"} {
		if _, err := os.Lstat(filepath.Join(img.RootFS, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s should be left out: %v", name, err)
		}
	}
	st, err := os.Stat(filepath.Join(img.RootFS, "usr/local/bin/tool"))
	if err != nil || st.Mode()&0o111 == 0 {
		t.Errorf("the npm package's program: %v, %v", st, err)
	}
	if got, err := os.Readlink(filepath.Join(img.RootFS, "usr/sbin/init")); err != nil || got != GuestdPath {
		t.Errorf("init is %q, %v", got, err)
	}

	raw := filepath.Join(t.TempDir(), "raw")
	qemuImg, err := findTool("qemu-img")
	must(t, err)
	must(t, hostRun(context.Background(), qemuImg, []string{"convert", "-O", "raw", img.QCOW2, raw}, RunOptions{}))
	for name, want := range map[string][]string{
		"/usr/bin/sudo":          {"Mode:  04755", "User:     0", "Group:     0", "Links: 2"},
		"/usr/bin/wall":          {"Mode:  02755", "User:     0", "Group:     5"},
		"/etc/shadow":            {"Mode:  0640", "User:     0", "Group:    42"},
		"/etc/with space":        {"Mode:  0600", "Group:    42"},
		"/etc/日本語":               {"Mode:  0600", "Group:    42"},
		"/home/agent":            {"Type: directory", "Mode:  0750", "User:  1000", "Group:  1000"},
		"/home/agent/.profile":   {"Mode:  0644", "User:  1000", "Group:  1000"},
		"/home/agent/.cache":     {"Type: directory", "Mode:  0755", "User:  1000", "Group:  1000"},
		"/home/agent/.cache/x/y": {"Mode:  0644", "User:  1000", "Group:  1000"},
		"/etc/sudoers.d/90-test": {"Mode:  0440", "User:     0"},
		"/usr":                   {"User:     0", "Group:     0"},
		GuestdPath:               {"Mode:  0755", "User:     0", "Size: 10"},
	} {
		out := debugfsOf(t, raw, `stat "`+name+`"`)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s on the disk lacks %q:\n%s", name, w, out)
			}
		}
	}
	if e2fsck, err := findTool("e2fsck"); err == nil {
		var out bytes.Buffer
		if err := hostRun(context.Background(), e2fsck, []string{"-fn", raw}, RunOptions{Stdout: &out, Stderr: &out}); err != nil {
			t.Errorf("the file system is not clean: %v\n%s", err, &out)
		}
	}
	m := img.Manifest
	if !slices.Equal(m.Packages, []Package{{"git", "1:2.39"}}) || m.KernelRelease != testRelease || m.KernelPackage != (Package{"linux-test", "9.9-1"}) {
		t.Errorf("manifest %+v", m)
	}
	kernel, err := os.ReadFile(img.Kernel)
	if err != nil || !bytes.Equal(kernel, testELF(true)) {
		t.Errorf("kernel: %d bytes, %v", len(kernel), err)
	}
	args := h.argv.Load().([]string)
	for _, want := range []string{"--include=git,curl", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-include=/usr/share/man/keep"} {
		if !slices.Contains(args, want) {
			t.Errorf("mmdebstrap was not given %s: %q", want, args)
		}
	}
}

func debugfsOf(t *testing.T, raw, command string) string {
	t.Helper()
	debugfs, err := findTool("debugfs")
	must(t, err)
	var out bytes.Buffer
	must(t, hostRun(context.Background(), debugfs, []string{"-R", command, raw}, RunOptions{Stdout: &out}))
	return out.String()
}

func TestInitrdCarriesGuestd(t *testing.T) {
	h, r := newFakeHost(t)
	one := buildSmall(t, h, r, guestdFile(t, "guestd one"))
	base := readCPIO(t, one.InitrdBase)
	if string(base["bin/busybox"]) != "BUSYBOX" || string(base["modules"]) != "virtio_ring.ko\nvirtio_blk.ko\n" || string(base["lib/modules/virtio_ring.ko"]) != "RING" {
		t.Errorf("base initrd holds %q", base)
	}
	if _, ok := base["late/guestd"]; ok {
		t.Error("the base initrd holds a guestd")
	}
	// Another guestd: the same image, no new bootstrap, another initrd.
	cache := filepath.Dir(one.Dir)
	other := guestdFile(t, "guestd number two")
	two, err := r.Build(context.Background(), Options{CacheDir: cache, Run: h.run, Guestd: other}, nil)
	must(t, err)
	if two.Dir != one.Dir || h.bootstraps.Load() != 1 {
		t.Errorf("a new guestd made a new image: %s, %d bootstraps", two.Dir, h.bootstraps.Load())
	}
	sum, err := fileSHA256(other)
	must(t, err)
	got := readCPIO(t, two.Initrd)
	if string(got["late/guestd"]) != "guestd number two" || string(got["late/guestd.sha256"]) != sum+"\n" || string(got["bin/busybox"]) != "BUSYBOX" {
		t.Errorf("initrd holds %q", got)
	}
	if old := readCPIO(t, one.Initrd); string(old["late/guestd"]) != "guestd one" {
		t.Error("the older initrd changed")
	}
	bare, err := r.Open(cache, "")
	must(t, err)
	if bare.Initrd != bare.InitrdBase {
		t.Errorf("without a guestd the initrd is %s", bare.Initrd)
	}
}

func TestTwoBuildersBuildOnce(t *testing.T) {
	h, r := newFakeHost(t)
	h.hold, h.reached = make(chan struct{}), make(chan struct{})
	cache := t.TempDir()
	waited := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	dirs := make([]string, 2)
	start := func(i int) {
		wg.Go(func() {
			img, err := r.Build(context.Background(), Options{CacheDir: cache, Run: h.run, DiskSize: 64 << 20}, func(p Progress) {
				if p.Phase == PhaseWait {
					once.Do(func() { close(waited) })
				}
			})
			if err != nil {
				t.Error(err)
				return
			}
			dirs[i] = img.Dir
		})
	}
	start(0)
	<-h.reached
	start(1)
	<-waited
	close(h.hold)
	wg.Wait()
	if h.bootstraps.Load() != 1 || dirs[0] != dirs[1] || dirs[0] == "" {
		t.Errorf("%d bootstraps, images %q", h.bootstraps.Load(), dirs)
	}
}

// TestTwoCachesOneTemp: builds for two caches are held apart by no common lock and must not take each other's
// temporary folder for a killed build's remains, which they do remove.
func TestTwoCachesOneTemp(t *testing.T) {
	slow, r := newFakeHost(t)
	slow.hold, slow.reached = make(chan struct{}), make(chan struct{})
	hash, err := r.Hash()
	must(t, err)
	temp := t.TempDir()
	stale := filepath.Join(temp, "glasshouse-image-"+hash[:16]+"-1")
	must(t, os.MkdirAll(filepath.Join(stale, "mmdebstrap.x"), 0o755))
	ended := make(chan error, 1)
	go func() {
		_, err := r.Build(context.Background(), Options{CacheDir: t.TempDir(), Run: slow.run, DiskSize: 64 << 20, TempDir: temp}, nil)
		ended <- err
	}()
	select {
	case <-slow.reached:
	case err := <-ended:
		t.Fatalf("the slow build ended early: %v", err)
	}
	quick := &fakeHost{root: slow.root, tgz: slow.tgz}
	_, err = r.Build(context.Background(), Options{CacheDir: t.TempDir(), Run: quick.run, DiskSize: 64 << 20, TempDir: temp}, nil)
	close(slow.hold)
	if err := errors.Join(err, <-ended); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestManyTempFolders: who looks for leftovers takes nobody's folder that was only just made, or it is made again.
func TestManyTempFolders(t *testing.T) {
	parent := t.TempDir()
	hash := strings.Repeat("a", 64)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				b := &build{opts: Options{TempDir: parent}, manifest: Manifest{Hash: hash}}
				remove, err := b.makeTemp(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(b.tempDir, "x"), nil, 0o600); err != nil {
					t.Error(err)
				}
				remove()
			}
		})
	}
	wg.Wait()
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStoppedBuildLeavesNothing(t *testing.T) {
	for name, spoil := range map[string]func(h *fakeHost, cancel context.CancelFunc){
		"cancelled": func(h *fakeHost, cancel context.CancelFunc) {
			h.hold, h.reached = make(chan struct{}), make(chan struct{})
			go func() { <-h.reached; cancel() }()
		},
		"failed":    func(h *fakeHost, _ context.CancelFunc) { h.fail = errors.New("exit status 25") },
		"cut short": func(h *fakeHost, _ context.CancelFunc) { h.root = h.root[:len(h.root)-3000] },
		"no kernel": func(h *fakeHost, _ context.CancelFunc) {
			h.root = bytes.ReplaceAll(h.root, []byte("./boot/vmlinuz-"), []byte("./boot/vmlinux_"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := newFakeHost(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			spoil(h, cancel)
			cache, temp := t.TempDir(), t.TempDir()
			_, err := r.Build(ctx, Options{CacheDir: cache, Run: h.run, DiskSize: 64 << 20, TempDir: temp}, nil)
			if err == nil {
				t.Fatal("the build succeeded")
			}
			if name == "failed" && (!strings.Contains(err.Error(), "no such mirror") || !errors.Is(err, h.fail)) {
				t.Errorf("the error hides the cause: %v", err)
			}
			if name == "cancelled" && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
				t.Errorf("left behind in the temporary folder: %v, %v", left, err)
			}
			entries, err := os.ReadDir(cache)
			must(t, err)
			for _, e := range entries {
				if e.IsDir() && e.Name() != "downloads" {
					t.Errorf("left behind: %s", e.Name())
				}
			}
			if _, err := r.Open(cache, ""); !errors.Is(err, ErrNotBuilt) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

func TestDamagedImageIsBuiltAgain(t *testing.T) {
	for name, damage := range map[string]func(img *Image) error{
		"disk cut":      func(img *Image) error { return os.Truncate(img.QCOW2, 100) },
		"kernel gone":   func(img *Image) error { return os.Remove(img.Kernel) },
		"manifest cut":  func(img *Image) error { return os.Truncate(filepath.Join(img.Dir, manifestName), 40) },
		"manifest gone": func(img *Image) error { return os.Remove(filepath.Join(img.Dir, manifestName)) },
		"tree gone":     func(img *Image) error { return os.RemoveAll(img.RootFS) },
		"another's name": func(img *Image) error {
			return os.WriteFile(filepath.Join(img.Dir, manifestName), []byte(`{"format":1,"hash":"x"}`), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := newFakeHost(t)
			img := buildSmall(t, h, r, "")
			cache := filepath.Dir(img.Dir)
			must(t, damage(img))
			if _, err := r.Open(cache, ""); !errors.Is(err, ErrNotBuilt) {
				t.Fatalf("Open took a damaged image: %v", err)
			}
			// What a killed build leaves is removed by the next one.
			hash, err := r.Hash()
			must(t, err)
			stale := filepath.Join(cache, ".build-"+hash[:16]+"-1", "rootfs")
			must(t, os.MkdirAll(stale, 0o755))
			_, err = r.Build(context.Background(), Options{CacheDir: cache, Run: h.run, DiskSize: 64 << 20}, nil)
			must(t, err)
			if h.bootstraps.Load() != 2 {
				t.Errorf("%d bootstraps", h.bootstraps.Load())
			}
			if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the stale build is still there: %v", err)
			}
		})
	}
}

func TestFullDiskIsToldBefore(t *testing.T) {
	h, r := newFakeHost(t)
	temp := t.TempDir()
	for _, room := range []*int64{&cacheRoom, &tempRoom} {
		was := *room
		*room = 1 << 60
		_, err := r.Build(context.Background(), Options{CacheDir: t.TempDir(), Run: h.run, TempDir: temp}, nil)
		*room = was
		if !errors.Is(err, ErrNoSpace) || h.bootstraps.Load() != 0 {
			t.Errorf("error %v after %d bootstraps", err, h.bootstraps.Load())
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWrongDownloadIsRefused(t *testing.T) {
	h, r := newFakeHost(t)
	h.tgz = append(bytes.Clone(h.tgz), 'x')
	_, err := r.Build(context.Background(), Options{CacheDir: t.TempDir(), Run: h.run}, nil)
	if err == nil || !strings.Contains(err.Error(), "not what the recipe pins") || h.bootstraps.Load() != 0 {
		t.Fatalf("error %v after %d bootstraps", err, h.bootstraps.Load())
	}
}

func TestInstall(t *testing.T) {
	h, r := newFakeHost(t)
	img := buildSmall(t, h, r, guestdFile(t, "guestd one"))
	dest := filepath.Join(t.TempDir(), "service images 図")
	got, err := Install(context.Background(), img, dest)
	must(t, err)
	if got.Dir != filepath.Join(dest, img.Hash) || filepath.Base(got.Initrd) != filepath.Base(img.Initrd) {
		t.Errorf("installed as %+v", got)
	}
	if string(readCPIO(t, got.Initrd)["late/guestd"]) != "guestd one" {
		t.Error("the installed initrd lacks guestd")
	}
	for _, name := range []string{"rootfs/usr/bin/sudo", "rootfs/etc/日本語", "disk.qcow2", "vmlinux", "manifest.json"} {
		a, err := os.ReadFile(filepath.Join(img.Dir, name))
		must(t, err)
		b, err := os.ReadFile(filepath.Join(got.Dir, name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	// Again, with another guestd: only the initrd is new.
	again, err := OpenDir(img.Dir, guestdFile(t, "guestd three"))
	must(t, err)
	got, err = Install(context.Background(), again, dest)
	must(t, err)
	if string(readCPIO(t, got.Initrd)["late/guestd"]) != "guestd three" {
		t.Error("the new guestd was not installed")
	}
	// A damaged installation is replaced.
	must(t, os.Remove(filepath.Join(got.Dir, manifestName)))
	if _, err = Install(context.Background(), img, dest); err != nil {
		t.Fatal(err)
	}
}

// TestCopyKeepsLinksAndTimes covers the way between two file systems, where no hard link can be made.
func TestCopyKeepsLinksAndTimes(t *testing.T) {
	from, to := t.TempDir(), "/dev/shm"
	dir, err := os.MkdirTemp(to, "glasshouse-image-test-")
	if err != nil {
		t.Skipf("no second file system to copy to: %v", err)
	}
	defer os.RemoveAll(dir)
	must(t, os.WriteFile(filepath.Join(from, "a"), []byte("text"), 0o640))
	must(t, os.Link(filepath.Join(from, "a"), filepath.Join(from, "b")))
	must(t, os.Symlink("a", filepath.Join(from, "c")))
	dest := filepath.Join(dir, "copy")
	must(t, transfer(context.Background(), from, dest))
	a, err := os.Stat(filepath.Join(dest, "a"))
	must(t, err)
	b, err := os.Stat(filepath.Join(dest, "b"))
	must(t, err)
	if !os.SameFile(a, b) || a.Mode().Perm() != 0o640 {
		t.Errorf("a and b: same %v, mode %v", os.SameFile(a, b), a.Mode())
	}
	was, err := os.Stat(filepath.Join(from, "a"))
	must(t, err)
	if !was.ModTime().Equal(a.ModTime()) {
		t.Errorf("time %v became %v", was.ModTime(), a.ModTime())
	}
	if l, err := os.Readlink(filepath.Join(dest, "c")); err != nil || l != "a" {
		t.Errorf("link %q, %v", l, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := transfer(ctx, from, filepath.Join(dir, "stopped")); !errors.Is(err, context.Canceled) {
		t.Errorf("a stopped copy: %v", err)
	}
}
