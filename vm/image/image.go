// Package image builds the guest image: one recipe gives the root file system directory of the local machine, and
// the disk, kernel and initrd of the virtual machine.
//
// A recipe is a set of embedded files plus pinned versions; its hash names the finished image:
//
//	CACHE/HASH/rootfs/           directory tree, no setuid bits, no device nodes, readable by everyone
//	CACHE/HASH/disk.qcow2        ext4 without partitions, right owners and modes
//	CACHE/HASH/vmlinux           uncompressed ELF kernel with a PVH entry
//	CACHE/HASH/initrd-base.img   busybox, modules and the first program
//	CACHE/HASH/initrd-ID.img     the same followed by one guestd; ID is the start of guestd's SHA-256
//	CACHE/HASH/manifest.json     what is inside; written last
//
// guestd is no part of the hash. It travels in the initrd, which puts it on the disk when the disk's differs, so a new
// guestd costs one concatenation of files and not a new image.
//
// A build happens in a folder of its own beside the finished one and is renamed at its end, under a lock file, so two
// builders at once are safe and an interrupted build never looks finished.
package image

import (
	"context"
	"errors"
	"io"
	"path/filepath"
)

// Kernel command lines that fit the image. A caller adds the address (gh.ip, gh.gw, gh.mtu) or gh.probe=1.
const (
	// KernelArgs is what every machine gets.
	KernelArgs = "console=ttyS0 root=/dev/vda rw random.trust_cpu=on audit=0 nowatchdog net.ifnames=0 quiet loglevel=3 panic=-1"
	// KernelArgsEmulated is added when the processor is emulated: there, mitigations, clock checks and self-tests of
	// ciphers only cost time. lpj spares the second processor from measuring its delay loop, which takes a quarter of
	// the kernel's start and fails where the host is busy; the value is that of a 6 GHz clock, so that on every slower
	// one the kernel's short waits are longer than asked for, never shorter.
	KernelArgsEmulated = "mitigations=off tsc=reliable no_timer_check nokaslr lpj=24000000 cryptomgr.notests"
	// ProbeArg makes the initrd print ProbeLine on the console and power off.
	ProbeArg = "gh.probe=1"
	// ProbeLine is that line.
	ProbeLine = "GLASSHOUSE-PROBE-OK"
	// GuestdPath is where guestd stands in the guest, in the disk and in the tree (there it is an empty file to bind over
	// when the build was given no guestd).
	GuestdPath = "/usr/lib/glasshouse/guestd"
)

// ErrNotBuilt: there is no finished image of this recipe in the cache. Build one.
var ErrNotBuilt = errors.New("the guest image is not built yet; build it with: glasshouse image build")

// ErrTools: programs that the build needs are missing. The wrapping error lists them with the packages that hold them.
var ErrTools = errors.New("programs needed to build the guest image are missing")

// ErrNoSpace: a disk has too little room for the build. The wrapping error names it.
var ErrNoSpace = errors.New("too little disk space to build the guest image")

// RunOptions say how a program is started. Env is added to the environment of the host. Nil writers discard.
type RunOptions struct {
	Dir    string
	Env    []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// RunFunc starts one host program, waits for it and returns an error unless it ended with 0. It ends the program and
// its children when ctx ends.
type RunFunc func(ctx context.Context, name string, args []string, opts RunOptions) error

// Options of a build. CacheDir and Run are required.
type Options struct {
	// CacheDir holds finished images, downloads and lock files. Any path will do, with spaces too.
	CacheDir string
	// Run starts host programs.
	Run RunFunc
	// Guestd is the path of guestd's static binary. Empty: an image without one (Image.Initrd is then the base).
	Guestd string
	// AptSources are lines in the form of sources.list(5). Empty: the host's own entries for the recipe's suite, and
	// where the host has none, mmdebstrap's own choice.
	AptSources []string
	// TempDir takes the root file system while packages are installed (2 GB). Empty: $TMPDIR, else /var/tmp.
	// Where the build is not run by root, others must be able to pass through it.
	TempDir string
	// DiskSize is the size of the virtual disk in bytes; 0 means DefaultDiskSize. The file is sparse.
	DiskSize int64
}

// DefaultDiskSize of the virtual disk: 16 GiB, of which the image fills about one.
const DefaultDiskSize = 16 << 30

// Phase of a build.
type Phase string

// The phases in their order.
const (
	PhaseWait     Phase = "wait"     // another builder holds the lock
	PhaseDownload Phase = "download" // pinned npm packages
	PhasePackages Phase = "packages" // Debian packages into a root file system
	PhaseTree     Phase = "tree"     // that file system into the directory tree
	PhaseBoot     Phase = "boot"     // kernel and initrd
	PhaseDisk     Phase = "disk"     // ext4 and qcow2
	PhaseDone     Phase = "done"
)

// Progress tells how far a build is. Step counts phases from 1 to Steps; Done and Total count within the phase, in
// bytes or parts; Total 0 means unknown.
type Progress struct {
	Phase   Phase
	Step    int
	Steps   int
	Done    int64
	Total   int64
	Message string
}

// Image is a finished image on this host. All paths are absolute.
type Image struct {
	Hash   string
	Dir    string
	RootFS string
	QCOW2  string
	Kernel string
	// Initrd carries the guestd that the build or Open was given; without one it is InitrdBase.
	Initrd     string
	InitrdBase string
	Manifest   Manifest
}

const (
	rootfsName   = "rootfs"
	diskName     = "disk.qcow2"
	kernelName   = "vmlinux"
	initrdName   = "initrd-base.img"
	manifestName = "manifest.json"
)

func at(dir, hash string) *Image {
	return &Image{
		Hash:       hash,
		Dir:        dir,
		RootFS:     filepath.Join(dir, rootfsName),
		QCOW2:      filepath.Join(dir, diskName),
		Kernel:     filepath.Join(dir, kernelName),
		Initrd:     filepath.Join(dir, initrdName),
		InitrdBase: filepath.Join(dir, initrdName),
	}
}
