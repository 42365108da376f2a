//go:build amd64 || arm64

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"glasshouse/vm"
)

// New returns the manager of local machines. It touches nothing; problems show
// in Check and in the call that meets them.
func New(o Options) vm.Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Trash == "" {
		o.Trash = filepath.Join(filepath.Dir(filepath.Clean(o.Root)), "trash")
	}
	return &manager{o: o, groups: newCgroups(o.Root), locks: map[string]chan struct{}{}}
}

type manager struct {
	o      Options
	groups *cgroups

	mu    sync.Mutex
	locks map[string]chan struct{}
}

func (m *manager) Kind() vm.Kind { return vm.KindLocal }

func (m *manager) Features() vm.Features {
	limits, hard := m.groups.describe()
	return vm.Features{HardLimits: hard, Limits: limits, Missing: append([]string(nil), missing...)}
}

var idPattern = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

func (m *manager) dir(id string) (string, error) {
	if !idPattern.MatchString(id) {
		return "", fmt.Errorf("%q is no machine id: use up to 64 of a-z and 0-9", id)
	}
	root, err := filepath.Abs(m.o.Root)
	if err != nil {
		return "", fmt.Errorf("the machines' folder %s: %w", m.o.Root, err)
	}
	return filepath.Join(root, id), nil
}

// lock makes Start, Stop and Destroy of one machine exclude each other,
// whichever Machine value they are called on.
func (m *manager) lock(ctx context.Context, id string) (unlock func(), err error) {
	m.mu.Lock()
	ch := m.locks[id]
	if ch == nil {
		ch = make(chan struct{}, 1)
		m.locks[id] = ch
	}
	m.mu.Unlock()
	unlock = func() { <-ch }
	select { // a free lock is taken even when ctx is done: Stop with such a context means "now"
	case ch <- struct{}{}:
		return unlock, nil
	default:
	}
	select {
	case ch <- struct{}{}:
		return unlock, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another start or stop of machine %s: %w", id, context.Cause(ctx))
	}
}

// rootRefusal is the error of a core that would run the sandbox as uid 0.
func (m *manager) rootRefusal() error {
	if os.Geteuid() != 0 {
		return nil
	}
	if m.o.User == nil || m.o.User.UID == 0 {
		return errors.New("a local machine must not run as root: its processes would be the host's root; name a service user (or run Glasshouse as an ordinary user)")
	}
	return nil
}

func (m *manager) Create(ctx context.Context, spec vm.Spec, progress func(vm.Progress)) (vm.Machine, error) {
	dir, err := m.dir(spec.ID)
	if err != nil {
		return nil, err
	}
	if err := m.rootRefusal(); err != nil {
		return nil, err
	}
	if spec, err = complete(spec); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("%w: %s", vm.ErrExists, dir)
	}
	report(progress, "image", "Looking for the guest image")
	_, hash, err := m.o.RootFS(ctx, spec.ImageHash, progress)
	if err != nil {
		return nil, fmt.Errorf("cannot make machine %s without its image: %w", spec.ID, err)
	}
	spec.ImageHash = hash
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return nil, fmt.Errorf("cannot make the machines' folder: %w", err)
	}
	if err := m.passable(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	report(progress, "disk", "Making the machine's folder")
	// Made under another name and renamed, so that a half-made machine is never found.
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-"+spec.ID+"-")
	if err != nil {
		return nil, fmt.Errorf("cannot make the machine's folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := m.fill(tmp, spec); err != nil {
		return nil, err
	}
	if err := renameNew(tmp, dir); err != nil {
		if errors.Is(err, syscall.EEXIST) {
			return nil, fmt.Errorf("%w: %s", vm.ErrExists, dir)
		}
		return nil, fmt.Errorf("cannot make the machine's folder: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	m.o.Log.Info("local machine made", "id", spec.ID, "dir", dir, "image", hash)
	return m.Open(ctx, spec.ID)
}

// fill makes everything a machine's folder holds.
func (m *manager) fill(dir string, spec vm.Spec) error {
	// The folder itself stays the core's; only what the sandbox writes is given away.
	mode := os.FileMode(0o700)
	if m.o.User != nil {
		mode = 0o711
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("cannot set up %s: %w", dir, err)
	}
	for _, name := range guestDirs {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o700); err != nil {
			return fmt.Errorf("cannot set up the machine: %w", err)
		}
		if u := m.o.User; u != nil {
			if err := os.Lchown(p, int(u.UID), int(u.GID)); err != nil {
				return fmt.Errorf("cannot give %s to the service user %s: %w", p, u.Name, err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		return fmt.Errorf("cannot set up the machine: %w", err)
	}
	return writeJSON(filepath.Join(dir, markerName), marker{
		Version: markerVersion, Kind: vm.KindLocal, ID: spec.ID, Spec: spec, Created: time.Now().UTC(),
	})
}

func (m *manager) Open(_ context.Context, id string) (vm.Machine, error) {
	dir, err := m.dir(id)
	if err != nil {
		return nil, err
	}
	mk, err := readMarker(dir, id)
	if err != nil {
		return nil, err
	}
	for _, name := range diskDirs {
		fi, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || !fi.IsDir() {
			return nil, fmt.Errorf("%w: the machine's folder %s has lost its %q; restore it from a backup or forget the machine",
				vm.ErrNotExist, dir, name)
		}
	}
	return &machine{m: m, id: id, dir: dir, spec: mk.Spec}, nil
}

func (m *manager) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(m.o.Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the machines: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if !e.IsDir() || !idPattern.MatchString(e.Name()) {
			continue
		}
		if _, err := readMarker(filepath.Join(m.o.Root, e.Name()), e.Name()); err == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

func (m *manager) Destroy(ctx context.Context, id string) error {
	dir, err := m.dir(id)
	if err != nil {
		return err
	}
	fi, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s", vm.ErrNotExist, dir)
	}
	if err != nil {
		return fmt.Errorf("cannot destroy machine %s: %w", id, err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a folder made by Glasshouse; it is left alone", dir)
	}
	if _, err := readMarker(dir, id); err != nil {
		return fmt.Errorf("%s is not a machine of this driver and is left alone: %w", dir, err)
	}
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	mc := &machine{m: m, id: id, dir: dir}
	now, cancel := context.WithCancel(ctx)
	cancel() // what is destroyed is not waited for
	if err := mc.stopLocked(now); err != nil {
		return fmt.Errorf("machine %s cannot be stopped, so it is not destroyed: %w", id, err)
	}
	if err := os.MkdirAll(m.o.Trash, 0o700); err != nil {
		return fmt.Errorf("cannot make the trash: %w", err)
	}
	to := filepath.Join(m.o.Trash, fmt.Sprintf("machine-%s-%s", id, time.Now().UTC().Format("20060102T150405.000000000")))
	if err := renameNew(dir, to); err != nil {
		return fmt.Errorf("cannot move machine %s to the trash (it is untouched): %w", id, err)
	}
	m.o.Log.Info("local machine moved to trash", "id", id, "to", to)
	return syncDir(filepath.Dir(dir))
}

// complete fills a spec's zero limits and refuses what cannot be.
func complete(s vm.Spec) (vm.Spec, error) {
	if s.CPUs < 0 || s.MemoryMiB < 0 || s.DiskGiB < 0 {
		return s, fmt.Errorf("machine %s: limits cannot be negative", s.ID)
	}
	if s.CPUs == 0 {
		s.CPUs = DefaultCPUs
	}
	if s.MemoryMiB == 0 {
		s.MemoryMiB = DefaultMemoryMiB
	}
	if s.MemoryMiB < 128 {
		return s, fmt.Errorf("machine %s: %d MiB of memory are too few to work in; give at least 128", s.ID, s.MemoryMiB)
	}
	if s.DiskGiB == 0 {
		s.DiskGiB = DefaultDiskGiB
	}
	if s.Hostname == "" {
		s.Hostname = s.ID
	}
	if !hostPattern.MatchString(s.Hostname) {
		return s, fmt.Errorf("machine %s: %q is no host name: use up to 63 of a-z, 0-9 and -", s.ID, s.Hostname)
	}
	return s, nil
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// passable says which folder keeps the service user from reaching dir.
func (m *manager) passable(dir string) error {
	u := m.o.User
	if u == nil {
		return nil
	}
	for p := dir; ; p = filepath.Dir(p) {
		fi, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("the machines' folder: %w", err)
		}
		st := fi.Sys().(*syscall.Stat_t)
		bit := os.FileMode(0o001)
		switch {
		case st.Uid == u.UID:
			bit = 0o100
		case st.Gid == u.GID || slices.Contains(u.Groups, st.Gid):
			bit = 0o010
		}
		if fi.Mode()&bit == 0 {
			return fmt.Errorf("the service user %s cannot pass through %s, so the sandbox could not reach its own files; run: chmod o+x '%s'", u.Name, p, p)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

func report(progress func(vm.Progress), phase, text string) {
	if progress != nil {
		progress(vm.Progress{Phase: phase, Text: text})
	}
}
