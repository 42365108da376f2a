//go:build amd64 || arm64

package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"glasshouse/vm"
)

const (
	markerName    = "machine.json"
	runName       = "run.json"
	socketName    = "chan.sock"
	markerVersion = 1
)

var (
	// diskDirs are the machine's disk: without one of them it does not exist.
	diskDirs = []string{"workspace", "home", "var"}
	// guestDirs are written by the sandbox and owned by the user it runs as.
	guestDirs = append(append([]string(nil), diskDirs...), "chan")
)

// marker is machine.json. Only a folder that has it is ever started, stopped or moved.
type marker struct {
	Version int       `json:"version"`
	Kind    vm.Kind   `json:"kind"`
	ID      string    `json:"id"`
	Spec    vm.Spec   `json:"spec"`
	Created time.Time `json:"created"`
}

func readMarker(dir, id string) (marker, error) {
	var mk marker
	path := filepath.Join(dir, markerName)
	err := readJSON(path, &mk)
	if errors.Is(err, os.ErrNotExist) {
		return mk, fmt.Errorf("%w: no %s", vm.ErrNotExist, path)
	}
	if err != nil {
		return mk, fmt.Errorf("cannot read %s (restore it from a backup, or forget the machine): %w", path, err)
	}
	switch {
	case mk.Kind != vm.KindLocal:
		return mk, fmt.Errorf("%s is of a machine of kind %q, not %q", path, mk.Kind, vm.KindLocal)
	case mk.ID != id:
		return mk, fmt.Errorf("%s is of machine %q; the folder was renamed or copied", path, mk.ID)
	case mk.Version != markerVersion:
		return mk, fmt.Errorf("%s has version %d and this Glasshouse knows %d; use the one that made it", path, mk.Version, markerVersion)
	}
	return mk, nil
}

// readJSON reads a small file of ours; links are not followed and unknown
// fields are refused.
func readJSON(path string, v any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a plain file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// writeJSON replaces path atomically and durably.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(b, '\n'), 0o600)
}

func writeFile(path string, b []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("cannot write %s: %w", path, err)
		}
	}()
	if _, err = f.Write(b); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}

// renameNew renames a folder and refuses to replace anything.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system without it
		if _, e := os.Lstat(to); e == nil {
			return unix.EEXIST
		}
		err = os.Rename(from, to)
	}
	return err
}
