package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

const buildSteps = 5

var stepOf = map[Phase]int{PhaseWait: 0, PhaseDownload: 1, PhasePackages: 2, PhaseTree: 3, PhaseBoot: 4, PhaseDisk: 5, PhaseDone: 5}

// build is one run of Build.
type build struct {
	recipe   Recipe
	opts     Options
	dir      string // of this build; becomes the image
	tempDir  string
	progress func(Progress)
	manifest Manifest

	mu      sync.Mutex // progress comes from the unpacking and from mmdebstrap's messages at once
	started time.Time
	phase   Phase
}

// Build returns the finished image of the embedded recipe; see Recipe.Build.
func Build(ctx context.Context, opts Options, progress func(Progress)) (*Image, error) {
	r, err := Default()
	if err != nil {
		return nil, err
	}
	return r.Build(ctx, opts, progress)
}

// Build returns the finished image of this recipe: the one in the cache if it is there, else a new one. progress may
// be nil; it is called from one goroutine at a time and must not block for long. When ctx ends, the half-made image is
// removed. Errors wrap ErrTools when the host lacks programs.
func (r Recipe) Build(ctx context.Context, opts Options, progress func(Progress)) (*Image, error) {
	if opts.Run == nil || opts.CacheDir == "" {
		return nil, errors.New("image: Options need CacheDir and Run")
	}
	if opts.DiskSize == 0 {
		opts.DiskSize = DefaultDiskSize
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	hash, err := r.Hash()
	if err != nil {
		return nil, err
	}
	if opts.CacheDir, err = filepath.Abs(opts.CacheDir); err != nil {
		return nil, err
	}
	if img, err := r.Open(opts.CacheDir, opts.Guestd); !errors.Is(err, ErrNotBuilt) {
		return img, err
	}
	if r.pins.Arch != runtime.GOARCH {
		return nil, fmt.Errorf("the guest image can be built for %s only, and this host is %s", r.pins.Arch, runtime.GOARCH)
	}
	if missing := MissingTools(); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s; install them (build/setup/apt.sh does)", ErrTools, strings.Join(missing, ", "))
	}
	if err := os.MkdirAll(opts.CacheDir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockFile(ctx, filepath.Join(opts.CacheDir, "."+hash+".lock"), func() {
		progress(Progress{Phase: PhaseWait, Steps: buildSteps, Message: "another build of the same image is running"})
	})
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The other builder may have finished it meanwhile.
	if img, err := r.Open(opts.CacheDir, opts.Guestd); !errors.Is(err, ErrNotBuilt) {
		return img, err
	}
	final := filepath.Join(opts.CacheDir, hash)
	// Under the lock, whatever of this hash is left is an interrupted or damaged build.
	prefix := ".build-" + hash[:16] + "-"
	removeLeftovers(opts.CacheDir, prefix)
	dir, err := os.MkdirTemp(opts.CacheDir, prefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &build{recipe: r, opts: opts, dir: dir, progress: progress, started: time.Now()}
	b.manifest = Manifest{Format: manifestFormat, Hash: hash, Suite: r.pins.Suite, Arch: r.pins.Arch, BuildMillis: map[Phase]int64{}}
	removeTemp, err := b.makeTemp(ctx)
	if err != nil {
		return nil, err
	}
	defer removeTemp()
	for dir, need := range map[string]int64{opts.CacheDir: cacheRoom, b.tempDir: tempRoom} {
		if free, ok := freeSpace(dir); ok && free < need {
			return nil, fmt.Errorf("%w: %s has %d MB free and the build takes %d MB there", ErrNoSpace, dir, free>>20, need>>20)
		}
	}
	if err := b.all(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the image build was stopped: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("build the guest image: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(final); err == nil { // damaged, or Open would have taken it
		if err := os.Rename(final, dir+"-old"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir + "-old")
	}
	if err := os.Rename(dir, final); err != nil {
		return nil, err
	}
	b.report(PhaseDone, 1, 1, final)
	return OpenDir(final, opts.Guestd)
}

// Room a build takes while it runs, in bytes: tree, raw disk and qcow2 in the cache, the root file system in TempDir.
var (
	cacheRoom int64 = 4 << 30
	tempRoom  int64 = 2 << 30
)

// makeTemp makes the folder in which mmdebstrap works and returns what removes it. mmdebstrap cleans up after itself
// unless it is killed; then the files may belong to users of its namespace, and only such a namespace can remove them.
func (b *build) makeTemp(ctx context.Context) (func(), error) {
	parent := b.opts.TempDir
	if parent == "" {
		if parent = os.Getenv("TMPDIR"); parent == "" {
			parent = "/var/tmp"
		}
	}
	ctx = context.WithoutCancel(ctx)
	prefix := "glasshouse-image-" + b.manifest.Hash[:16] + "-"
	remove := func(dir string) {
		if os.RemoveAll(dir) != nil && os.Geteuid() != 0 {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			// What stays is tried again by the next build.
			_ = b.runTool(ctx, "unshare", "--map-root-user", "--map-auto", "rm", "-rf", dir)
		}
	}
	stale, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, dir := range stale {
		// Held ones belong to a build for another cache.
		if release, ok := holdDir(dir); ok {
			remove(dir)
			release()
		}
	}
	for tries := 0; ; tries++ {
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, fmt.Errorf("make a folder for the root file system: %w", err)
		}
		release, ok := holdDir(dir)
		if ok {
			b.tempDir = dir
			return func() { remove(dir); release() }, os.Chmod(dir, 0o755)
		}
		// A build for another cache looked for leftovers before it was held, and removes it.
		if tries == 20 {
			return nil, fmt.Errorf("lock the temporary folder %s: another process holds it", dir)
		}
	}
}

func removeLeftovers(cache, prefix string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			os.RemoveAll(filepath.Join(cache, e.Name()))
		}
	}
}

func (b *build) all(ctx context.Context) error {
	downloads := filepath.Join(b.opts.CacheDir, "downloads")
	if err := b.fetchNPM(ctx, downloads); err != nil {
		return err
	}
	b.report(PhasePackages, 0, int64(len(mmdebstrapSteps)), "starting mmdebstrap")
	rootfs := filepath.Join(b.dir, rootfsName)
	t, err := newTree(rootfs)
	if err != nil {
		return err
	}
	defer t.root.Close()
	var bzImage bytes.Buffer
	t.grab = func(name string) io.Writer {
		if strings.HasPrefix(name, "boot/vmlinuz-") {
			b.manifest.KernelRelease = strings.TrimPrefix(name, "boot/vmlinuz-")
			bzImage.Reset()
			return &bzImage
		}
		return nil
	}
	if err := b.bootstrapInto(ctx, t); err != nil {
		return err
	}
	for _, p := range b.recipe.pins.NPM {
		b.report(PhaseTree, t.bytes, 0, p.Name)
		if err := b.unpackNPM(t, p, filepath.Join(downloads, p.fileName())); err != nil {
			return err
		}
		b.manifest.NPM = append(b.manifest.NPM, Package{p.Name, p.Version})
	}
	if err := b.ownFiles(t); err != nil {
		return err
	}
	if err := t.finish(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.manifest.TreeBytes, b.manifest.TreeFiles = t.bytes, t.files
	if b.manifest.Packages, err = dpkgPackages(filepath.Join(rootfs, "var/lib/dpkg/status")); err != nil {
		return err
	}
	b.report(PhaseBoot, 0, 2, "kernel")
	if err := b.boot(ctx, rootfs, bzImage.Bytes()); err != nil {
		return err
	}
	if err := b.makeDisk(ctx, t, rootfs, filepath.Join(b.dir, diskName)); err != nil {
		return err
	}
	b.report(PhaseDisk, 3, 3, "finishing")
	b.manifest.DiskBytes = b.opts.DiskSize
	for name, size := range map[string]*int64{diskName: &b.manifest.QCOW2Bytes, kernelName: &b.manifest.KernelBytes, initrdName: &b.manifest.InitrdBytes} {
		if *size, err = settleFile(filepath.Join(b.dir, name)); err != nil {
			return err
		}
	}
	b.manifest.BuildMillis[PhaseDisk] = time.Since(b.started).Milliseconds()
	return b.manifest.write(b.dir)
}

// bootstrapInto streams mmdebstrap's archive straight into the tree.
func (b *build) bootstrapInto(ctx context.Context, t *tree) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := t.unpack(r, func(n int64) { b.report(PhaseTree, n, 0, "unpacking") })
		r.CloseWithError(err) // the writer learns that nobody reads any more
		done <- err
	}()
	err := b.bootstrap(ctx, w)
	w.CloseWithError(err)
	unpackErr := <-done
	if err != nil && (unpackErr == nil || errors.Is(unpackErr, err)) {
		return err
	}
	return unpackErr
}

// boot makes kernel and initrd.
func (b *build) boot(ctx context.Context, rootfs string, bzImage []byte) error {
	if len(bzImage) == 0 {
		return errors.New("the root file system holds no kernel")
	}
	kernel, err := extractKernel(ctx, b.opts.Run, bzImage)
	if err != nil {
		return err
	}
	if err := writeFileSync(filepath.Join(b.dir, kernelName), kernel); err != nil {
		return err
	}
	b.report(PhaseBoot, 1, 2, "initrd")
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return err
	}
	defer root.Close()
	about, err := root.ReadFile("usr/share/glasshouse-kernel")
	if err != nil {
		return fmt.Errorf("the root file system does not tell its kernel's package: %w", err)
	}
	for line := range strings.Lines(string(about)) {
		switch k, v, _ := strings.Cut(strings.TrimSpace(line), ": "); k {
		case "Package":
			b.manifest.KernelPackage.Name = v
		case "Version":
			b.manifest.KernelPackage.Version = v
		}
	}
	return b.recipe.writeInitrd(filepath.Join(b.dir, initrdName), root.FS(), b.manifest.KernelRelease)
}

// settleFile makes a finished file readable by everyone and safe on disk, and returns its size.
func settleFile(name string) (int64, error) {
	if err := os.Chmod(name, 0o644); err != nil {
		return 0, err
	}
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), f.Sync()
}

// report passes progress on and keeps the time of each phase. mmdebstrap and the unpacking of its archive overlap;
// their reports alternate only while mmdebstrap writes, so a phase once left does not come back.
func (b *build) report(p Phase, done, total int64, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if stepOf[p] < stepOf[b.phase] {
		return
	}
	if p != b.phase {
		now := time.Now()
		if b.phase != "" {
			b.manifest.BuildMillis[b.phase] = now.Sub(b.started).Milliseconds()
		}
		b.phase, b.started = p, now
	}
	b.progress(Progress{Phase: p, Step: stepOf[p], Steps: buildSteps, Done: done, Total: total, Message: message})
}
