package image

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Manifest says what an image holds. It is written last, so its presence means that the image is whole.
type Manifest struct {
	Format        int       `json:"format"`
	Hash          string    `json:"hash"`
	Suite         string    `json:"suite"`
	Arch          string    `json:"arch"`
	KernelRelease string    `json:"kernel_release"`
	KernelPackage Package   `json:"kernel_package"`
	Packages      []Package `json:"packages"`
	NPM           []Package `json:"npm"`
	// SeededGuestd is the SHA-256 of the guestd on the disk, or empty. The initrd's wins.
	SeededGuestd string `json:"seeded_guestd,omitempty"`
	// CreatedAt is in Unix milliseconds.
	CreatedAt int64 `json:"created_at"`
	// Sizes in bytes: of the tree's files, the virtual disk, and the files of the image.
	TreeBytes   int64 `json:"tree_bytes"`
	TreeFiles   int64 `json:"tree_files"`
	DiskBytes   int64 `json:"disk_bytes"`
	QCOW2Bytes  int64 `json:"qcow2_bytes"`
	KernelBytes int64 `json:"kernel_bytes"`
	InitrdBytes int64 `json:"initrd_bytes"`
	// BuildMillis is how long each phase took.
	BuildMillis map[Phase]int64 `json:"build_millis"`
}

// Package is one installed package.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

const manifestFormat = 1

// Open returns the finished image of this recipe in cacheDir, or ErrNotBuilt. With a guestd it makes Initrd for it.
func (r Recipe) Open(cacheDir, guestd string) (*Image, error) {
	hash, err := r.Hash()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(cacheDir, hash))
	if err != nil {
		return nil, err
	}
	return OpenDir(dir, guestd)
}

// OpenDir returns the finished image that stands in dir, or ErrNotBuilt. With a guestd it makes Initrd for it.
func OpenDir(dir, guestd string) (*Image, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNotBuilt)
	}
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): %w", filepath.Join(dir, manifestName), err, ErrNotBuilt)
	}
	if m.Format != manifestFormat || m.Hash != filepath.Base(dir) {
		return nil, fmt.Errorf("%s belongs to another image: %w", filepath.Join(dir, manifestName), ErrNotBuilt)
	}
	img := at(dir, m.Hash)
	img.Manifest = m
	for path, size := range map[string]int64{img.QCOW2: m.QCOW2Bytes, img.Kernel: m.KernelBytes, img.InitrdBase: m.InitrdBytes} {
		st, err := os.Stat(path)
		if err != nil || st.Size() != size {
			return nil, fmt.Errorf("%s is missing or cut short: %w", path, ErrNotBuilt)
		}
	}
	if st, err := os.Stat(filepath.Join(img.RootFS, "usr", "bin")); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("%s is missing: %w", img.RootFS, ErrNotBuilt)
	}
	if guestd != "" {
		if img.Initrd, err = composeInitrd(img, guestd); err != nil {
			return nil, err
		}
	}
	return img, nil
}

func (m Manifest) write(dir string) error {
	m.CreatedAt = time.Now().UnixMilli()
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeFileSync(filepath.Join(dir, manifestName), append(data, '\n'))
}

func writeFileSync(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// dpkgPackages reads the installed packages out of dpkg's status file.
func dpkgPackages(statusFile string) ([]Package, error) {
	f, err := os.Open(statusFile)
	if err != nil {
		return nil, fmt.Errorf("read the image's package list: %w", err)
	}
	defer f.Close()
	var out []Package
	var p Package
	installed := false
	flush := func() {
		if p.Name != "" && installed {
			out = append(out, p)
		}
		p, installed = Package{}, false
	}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		switch {
		case line == "":
			flush()
		case strings.HasPrefix(line, "Package: "):
			p.Name = strings.TrimPrefix(line, "Package: ")
		case strings.HasPrefix(line, "Version: "):
			p.Version = strings.TrimPrefix(line, "Version: ")
		case strings.HasPrefix(line, "Status: "):
			installed = strings.HasSuffix(line, " installed")
		}
	}
	flush()
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read the image's package list: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("the image's package list is empty")
	}
	return out, nil
}
