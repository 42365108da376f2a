// Package lima makes machines that are virtual machines, run by Lima and QEMU.
//
// Each machine has a Lima home of its own, so that Lima never touches another
// instance's network, and a hand-written instance folder: its disk is a small
// overlay over the image's frozen one. Of Lima only the start is used. The
// network is Glasshouse's own process (package netd), the way in is the channel
// through it, and a stop goes through guestd; Lima's own notion of being ready,
// its ssh and its guest agent are not used.
package lima

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"glasshouse/vm"
	"glasshouse/vm/proc"
)

// Image is a guest image on this host. All files are shared and never written.
type Image struct {
	Hash   string
	Disk   string // qcow2
	Kernel string
	Initrd string

	Args         string // kernel arguments that every machine gets
	ArgsEmulated string // added when the processor is emulated
	ProbeArg     string // makes the initrd print ProbeLine and power off
	ProbeLine    string
}

func (i Image) args(accel string) string {
	if accel == "tcg" && i.ArgsEmulated != "" {
		return i.Args + " " + i.ArgsEmulated
	}
	return i.Args
}

// Options of a manager.
type Options struct {
	Root  string // folder of the machines, made when missing
	Trash string // where destroyed machines go; default: "trash" beside Root
	// Short is a folder for machines whose sockets' paths would be too long
	// below Root; default: ".glasshouse" in the user's home.
	Short string
	// Image finds an image by hash, or the current one for "". It may build it.
	Image   func(ctx context.Context, hash string, progress func(vm.Progress)) (Image, error)
	Limactl string // path of limactl
	Self    string // Glasshouse's own program, for netd and QEMU's wrapper; default proc.Self()
	Runner  *proc.Runner
	// User runs limactl, QEMU and netd; nil = the current user. Needed by root.
	User *proc.User
	Log  *slog.Logger
	// BootTimeout is how long a start may take; default 3 minutes.
	BootTimeout time.Duration
}

// Limits and defaults of a machine's size.
const (
	defaultCPUs   = 2
	defaultMemory = 2048
	minMemory     = 512
	maxMemory     = 256 << 10
	maxDisk       = 4096
)

// Manager is the vm.Manager of Lima machines.
type Manager struct {
	opt Options
	log *slog.Logger

	hangAfter  time.Duration // see the constants
	stillAfter time.Duration
	probeMu    sync.Mutex
	versionMu  sync.Mutex
	version    *version

	mu       sync.Mutex
	machines map[string]*Machine
}

var _ vm.Manager = (*Manager)(nil)

// New makes a manager. It touches nothing yet.
func New(o Options) *Manager {
	if o.Self == "" {
		o.Self = proc.Self()
	}
	if o.Trash == "" {
		o.Trash = filepath.Join(filepath.Dir(o.Root), "trash")
	}
	if o.Short == "" {
		home, _ := os.UserHomeDir()
		if o.User != nil {
			home = o.User.Home
		}
		if home != "" {
			o.Short = filepath.Join(home, ".glasshouse")
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Runner == nil {
		o.Runner = &proc.Runner{}
	}
	if o.BootTimeout == 0 {
		o.BootTimeout = 3 * time.Minute
	}
	return &Manager{opt: o, log: o.Log, hangAfter: hangAfter, stillAfter: stillAfter, machines: map[string]*Machine{}}
}

// Kind implements vm.Manager.
func (m *Manager) Kind() vm.Kind { return vm.KindLima }

// Features implements vm.Manager. The accelerator is empty until a probe was
// made on this host since it started.
func (m *Manager) Features() vm.Features {
	f := vm.Features{VM: true, HardLimits: true, Limits: "guest cgroups"}
	if a, ok := m.cachedAccel(); ok {
		f.Accelerator = a.Name
	}
	return f
}

func (m *Manager) qemuPath() (string, error) {
	p, err := proc.Look(qemuName())
	if err != nil {
		return "", fmt.Errorf("%s is not installed, and machines need it: install QEMU (Debian: apt install qemu-system-x86; macOS: brew install qemu)", qemuName())
	}
	return p, nil
}

// Check implements vm.Manager. It starts nothing but limactl --version.
func (m *Manager) Check(ctx context.Context) error {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		return fmt.Errorf("Lima machines need Linux or macOS, this is %s; use another kind of machine", runtime.GOOS)
	}
	if os.Geteuid() == 0 && m.opt.User == nil {
		return errors.New("limactl refuses to run as root, and no service user is set up: create one with 'useradd --system --home-dir /var/lib/glasshouse --create-home glasshouse'")
	}
	if m.opt.Image == nil {
		return errors.New("no guest image is configured for Lima machines; build one with: glasshouse image build")
	}
	for what, p := range map[string]string{"the data folder": m.opt.Root, "Glasshouse's program": m.opt.Self, "limactl": m.opt.Limactl} {
		if err := checkPath(what, p); err != nil {
			return err
		}
	}
	if _, err := lay(m.opt.Root, m.opt.Short, "abcdefghij"); err != nil {
		return err
	}
	if _, err := m.qemuPath(); err != nil {
		return err
	}
	if _, err := proc.Look("qemu-img"); err != nil {
		return errors.New("qemu-img is not installed, and machines' disks are made with it (Debian: apt install qemu-utils; macOS: brew install qemu)")
	}
	if _, err := os.Stat(m.opt.Limactl); err != nil {
		return fmt.Errorf("limactl is missing at %s; build it with 'make limactl' or name another in the settings: %w", m.opt.Limactl, err)
	}
	for what, p := range map[string]string{"Glasshouse's program": m.opt.Self, "limactl": m.opt.Limactl} {
		if err := reachable(p, m.opt.User); err != nil {
			return fmt.Errorf("%s cannot be used by the service user: %w", what, err)
		}
	}
	_, err := m.limactlVersion(ctx)
	return err
}

// reachable says whether user can get to a file through all its folders, and through
// those of a link to it.
func reachable(path string, user *proc.User) error {
	if user == nil {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if real != path {
		if err := reachableBy(filepath.Dir(path), "", user); err != nil {
			return err
		}
	}
	return reachableBy(real, real, user)
}

// reachableBy looks at real, which is a file or "" for none, and at all folders from from up.
func reachableBy(from, real string, user *proc.User) error {
	for d := from; ; d = filepath.Dir(d) {
		fi, err := os.Stat(d)
		if err != nil {
			return err
		}
		bits := fi.Mode().Perm() & 7
		if uid, gid, ok := ownerOf(fi); ok {
			switch {
			case uid == user.UID:
				bits = fi.Mode().Perm() >> 6 & 7
			case gid == user.GID || slices.Contains(user.Groups, gid):
				bits = fi.Mode().Perm() >> 3 & 7
			}
		}
		need := fs.FileMode(1)
		if d == real && !fi.IsDir() && fi.Mode().Perm()&0o111 == 0 {
			need = 4 // a file to read, not a program
		}
		if bits&need != need {
			return fmt.Errorf("user %q may not enter or read %s (mode %v); move the file or open that folder with 'chmod o+x'", user.Name, d, fi.Mode().Perm())
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}

// get returns the one Machine of an id, so that its lock is the only one.
func (m *Manager) get(l layout, mk marker) *Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.machines[l.id]
	if x == nil {
		x = &Machine{m: m, l: l}
		m.machines[l.id] = x
	}
	x.setMarker(mk)
	return x
}

// fill completes and checks a spec.
func fill(s vm.Spec, baseGiB int) (vm.Spec, error) {
	if s.Hostname == "" {
		s.Hostname = s.ID
	}
	if s.CPUs == 0 {
		s.CPUs = min(defaultCPUs, runtime.NumCPU())
	}
	if s.MemoryMiB == 0 {
		s.MemoryMiB = defaultMemory
	}
	if s.DiskGiB == 0 {
		s.DiskGiB = baseGiB
	}
	switch {
	case !hostPattern.MatchString(s.Hostname):
		return s, fmt.Errorf("%q cannot be a machine's host name: use a-z, 0-9 and inner hyphens, at most 63", s.Hostname)
	case s.CPUs < 1 || s.CPUs > 64:
		return s, fmt.Errorf("a machine cannot have %d processors; choose 1 to 64", s.CPUs)
	case s.MemoryMiB < minMemory || s.MemoryMiB > maxMemory:
		return s, fmt.Errorf("a machine cannot have %d MiB of memory; choose %d to %d", s.MemoryMiB, minMemory, maxMemory)
	case s.DiskGiB < baseGiB || s.DiskGiB > maxDisk:
		return s, fmt.Errorf("a machine's disk cannot have %d GiB; choose %d (the image's own size) to %d", s.DiskGiB, baseGiB, maxDisk)
	}
	return s, nil
}

// Create implements vm.Manager. The folder appears whole or not at all.
func (m *Manager) Create(ctx context.Context, spec vm.Spec, progress func(vm.Progress)) (vm.Machine, error) {
	say := reporter(progress)
	l, err := lay(m.opt.Root, m.opt.Short, spec.ID)
	if err != nil {
		return nil, err
	}
	if err := checkPath("the data folder", m.opt.Root); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(l.dir); err == nil {
		return nil, fmt.Errorf("machine %q: %w", spec.ID, vm.ErrExists)
	}
	if m.opt.Image == nil {
		return nil, errors.New("no guest image is configured for Lima machines; build one with: glasshouse image build")
	}
	say("image", "Looking for the guest image")
	img, err := m.opt.Image(ctx, spec.ImageHash, progress)
	if err != nil {
		return nil, err
	}
	for what, p := range map[string]string{"the image's disk": img.Disk, "the image's kernel": img.Kernel, "the image's initrd": img.Initrd} {
		if err := checkPath(what, p); err != nil {
			return nil, err
		}
		if err := reachable(p, m.opt.User); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	base, err := diskGiB(img.Disk)
	if err != nil {
		return nil, err
	}
	if spec, err = fill(spec, base); err != nil {
		return nil, err
	}
	spec.ImageHash = img.Hash
	say("disk", "Making the disk")
	if err := os.MkdirAll(m.opt.Root, 0o755); err != nil {
		return nil, fmt.Errorf("the data folder cannot be made: %w", err)
	}
	if err := reachable(m.opt.Root, m.opt.User); err != nil {
		return nil, err
	}
	tmp := filepath.Join(m.opt.Root, ".new-"+spec.ID)
	if err := os.RemoveAll(tmp); err != nil {
		return nil, fmt.Errorf("the rest of an interrupted creation cannot be removed: %w", err)
	}
	if err := m.mkdirOwned(tmp); err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			_ = os.RemoveAll(tmp)
		}
	}()
	if _, err := m.opt.Runner.Run(ctx, proc.Cmd{Role: "qemu-img", Path: "qemu-img", Dir: tmp, User: m.opt.User,
		Args: []string{"create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", img.Disk, diskFile, fmt.Sprintf("%dG", spec.DiskGiB)}}); err != nil {
		return nil, fmt.Errorf("the machine's disk cannot be made: %w", err)
	}
	mk := marker{Format: markerFormat, Kind: vm.KindLima, ID: spec.ID, Spec: spec, ImageHash: img.Hash, BaseDisk: img.Disk, Created: time.Now()}
	if err := mk.write(filepath.Join(tmp, markerFile)); err != nil {
		return nil, fmt.Errorf("the machine's record cannot be written: %w", err)
	}
	if err := os.Rename(tmp, l.dir); err != nil {
		return nil, fmt.Errorf("the machine's folder cannot be put in place: %w", err)
	}
	done = true
	return m.get(l, mk), nil
}

// mkdirOwned makes a folder for the service user alone.
func (m *Manager) mkdirOwned(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("the machine's folder cannot be made: %w", err)
	}
	if u := m.opt.User; u != nil {
		if err := os.Lchown(dir, int(u.UID), int(u.GID)); err != nil {
			return fmt.Errorf("the machine's folder cannot be given to user %q: %w", u.Name, err)
		}
	}
	return nil
}

// diskGiB reads a qcow2 disk's size from its header, rounded up.
func diskGiB(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("the image's disk cannot be read; build the image again: %w", err)
	}
	defer f.Close()
	var h [32]byte
	if _, err := f.ReadAt(h[:], 0); err != nil || string(h[:4]) != "QFI\xfb" {
		return 0, fmt.Errorf("the image's disk %s is no qcow2 disk; build the image again", path)
	}
	n := binary.BigEndian.Uint64(h[24:])
	if n == 0 || n > maxDisk<<30 {
		return 0, fmt.Errorf("the image's disk %s has an impossible size of %d bytes; build the image again", path, n)
	}
	return int((n + 1<<30 - 1) >> 30), nil
}

// Open implements vm.Manager.
func (m *Manager) Open(_ context.Context, id string) (vm.Machine, error) {
	l, mk, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if err := l.hasDisk(); err != nil {
		return nil, err
	}
	return m.get(l, mk), nil
}

func (m *Manager) find(id string) (layout, marker, error) {
	l, err := lay(m.opt.Root, m.opt.Short, id)
	if err != nil {
		return l, marker{}, err
	}
	mk, err := readMarker(l.dir, id)
	if err != nil {
		return l, mk, fmt.Errorf("machine %q: %w", id, err)
	}
	return l, mk, nil
}

// List implements vm.Manager.
func (m *Manager) List(context.Context) ([]string, error) {
	es, err := os.ReadDir(m.opt.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the machines cannot be listed: %w", err)
	}
	var ids []string
	for _, e := range es {
		if !e.IsDir() || !idPattern.MatchString(e.Name()) {
			continue
		}
		if _, err := readMarker(filepath.Join(m.opt.Root, e.Name()), e.Name()); err == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Destroy implements vm.Manager. A machine without its disk can be destroyed too.
func (m *Manager) Destroy(ctx context.Context, id string) error {
	l, mk, err := m.find(id)
	if err != nil {
		return err
	}
	x := m.get(l, mk)
	// Its work is given up, so there is no reason to wait long for the guest.
	quick, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := x.Stop(quick); err != nil {
		return fmt.Errorf("machine %q is not destroyed, because it cannot be stopped: %w", id, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := os.MkdirAll(m.opt.Trash, 0o755); err != nil {
		return fmt.Errorf("the trash cannot be made: %w", err)
	}
	to := filepath.Join(m.opt.Trash, fmt.Sprintf("machine-%s-%s", id, time.Now().UTC().Format("20060102T150405.000")))
	if err := os.Rename(l.dir, to); err != nil {
		return fmt.Errorf("machine %q cannot be moved to the trash: %w", id, err)
	}
	if l.run != l.dir {
		_ = os.RemoveAll(l.run) // nothing in it but what a start writes
	}
	m.mu.Lock()
	delete(m.machines, id)
	m.mu.Unlock()
	return nil
}

func reporter(progress func(vm.Progress)) func(phase, text string) {
	return func(phase, text string) {
		if progress != nil {
			progress(vm.Progress{Phase: phase, Text: text})
		}
	}
}
