package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Install puts a finished image into destDir/HASH and returns it there, with the same guestd in its initrd. Within one
// file system it makes hard links, which take seconds and no space; else it clones where the file system can, and
// copies where not. An image that is already there is kept. Whoever may enter destDir can read the result.
//
// The source must not be changed afterwards, since links share its bytes; nothing in this package does.
func Install(ctx context.Context, built *Image, destDir string) (*Image, error) {
	destDir, err := filepath.Abs(destDir)
	if err != nil {
		return nil, err
	}
	final := filepath.Join(destDir, built.Hash)
	if img, err := OpenDir(final, ""); err == nil {
		return img, img.adoptInitrd(ctx, built)
	} else if !errors.Is(err, ErrNotBuilt) {
		return nil, err
	}
	if err := os.MkdirAll(destDir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockFile(ctx, filepath.Join(destDir, "."+built.Hash+".lock"), func() {})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if img, err := OpenDir(final, ""); err == nil { // another process was faster
		return img, img.adoptInitrd(ctx, built)
	}
	prefix := ".install-" + built.Hash[:16] + "-"
	removeLeftovers(destDir, prefix)
	tmp, err := os.MkdirTemp(destDir, prefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{rootfsName, diskName, kernelName, initrdName, manifestName} {
		if err := transfer(ctx, filepath.Join(built.Dir, name), filepath.Join(tmp, name)); err != nil {
			return nil, fmt.Errorf("install the guest image: %w", err)
		}
	}
	if _, err := os.Lstat(final); err == nil { // damaged, or OpenDir would have taken it
		if err := os.Rename(final, tmp+"-old"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(tmp + "-old")
	}
	if err := os.Rename(tmp, final); err != nil {
		return nil, err
	}
	img, err := OpenDir(final, "")
	if err != nil {
		return nil, err
	}
	return img, img.adoptInitrd(ctx, built)
}

// adoptInitrd brings the initrd of another copy of the same image over.
func (img *Image) adoptInitrd(ctx context.Context, from *Image) error {
	name := filepath.Base(from.Initrd)
	to := filepath.Join(img.Dir, name)
	if _, err := os.Stat(to); err != nil {
		tmp := filepath.Join(img.Dir, fmt.Sprintf(".%s.%d", name, os.Getpid()))
		os.Remove(tmp)
		err := transfer(ctx, from.Initrd, tmp)
		if err == nil {
			err = os.Rename(tmp, to)
		}
		if err != nil {
			os.Remove(tmp)
			return fmt.Errorf("install the initrd: %w", err)
		}
	}
	img.Initrd = to
	return nil
}

// transfer links, clones or copies a file or a tree to a name that does not exist yet.
func transfer(ctx context.Context, from, to string) error {
	type dirTime struct {
		name string
		info fs.FileInfo
	}
	var dirs []dirTime
	linked := map[fileID]string{} // hard links within a copied tree stay hard links
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		dest := filepath.Join(to, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			dirs = append(dirs, dirTime{dest, info})
			return os.Mkdir(dest, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(target, dest)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no file, folder or link", name)
		}
		// A link to another user's file would leave the image in that user's hands.
		if mine(info) && os.Link(name, dest) == nil {
			return nil
		}
		if id, ok := idOf(info); ok {
			if first, ok := linked[id]; ok {
				return os.Link(first, dest)
			}
			linked[id] = dest
		}
		return copyFile(name, dest, info)
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		d := dirs[i]
		if err := errors.Join(os.Chmod(d.name, d.info.Mode().Perm()), os.Chtimes(d.name, d.info.ModTime(), d.info.ModTime())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if !clone(out, in) {
		_, err = io.Copy(out, in)
	}
	err = errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close())
	if err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}
