package lima

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"glasshouse/vm"
)

const (
	markerFile   = "machine.json"
	markerFormat = 1
)

// marker is the record that makes a folder a machine of this manager.
type marker struct {
	Format    int       `json:"format"`
	Kind      vm.Kind   `json:"kind"`
	ID        string    `json:"id"`
	Spec      vm.Spec   `json:"spec"`
	ImageHash string    `json:"image_hash"`
	BaseDisk  string    `json:"base_disk"` // the frozen disk below the machine's own
	Created   time.Time `json:"created"`
}

func readMarker(dir, id string) (marker, error) {
	var m marker
	b, err := readSmall(filepath.Join(dir, markerFile), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Lstat(dir); statErr == nil {
			return m, fmt.Errorf("%s has no %s: %w; look into it and move it away by hand", dir, markerFile, errNotOurs)
		}
		return m, vm.ErrNotExist
	}
	if err != nil {
		return m, fmt.Errorf("the machine's record cannot be read: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("the machine's record %s is damaged (%w): %w", filepath.Join(dir, markerFile), err, errNotOurs)
	}
	if m.Format != markerFormat || m.Kind != vm.KindLima || m.ID != id {
		return m, fmt.Errorf("the record %s speaks of machine %q, kind %q, format %d: %w", filepath.Join(dir, markerFile), m.ID, m.Kind, m.Format, errNotOurs)
	}
	return m, nil
}

func (m marker) write(path string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeDurably(path, append(b, '\n'), 0o600)
}

// readSmall reads a regular file of at most max bytes, not through a link. It
// does not wait, whatever stands in the file's place.
func readSmall(path string, max int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > max {
		return nil, fmt.Errorf("%s is no plain file of at most %d bytes", path, max)
	}
	return io.ReadAll(io.LimitReader(f, max))
}

// writeDurably replaces a file in one step and waits until it is on disk.
func writeDurably(path string, data []byte, mode os.FileMode) error {
	tmp := path + ".tmp"
	_ = os.Remove(tmp)
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}
