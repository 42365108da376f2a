package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// makeDisk writes the tree as ext4 without partitions into a qcow2 file.
func (b *build) makeDisk(ctx context.Context, t *tree, rootfs, out string) error {
	raw := filepath.Join(b.dir, "disk.raw")
	script := filepath.Join(b.dir, "owners.debugfs")
	defer os.Remove(raw)
	defer os.Remove(script)
	text, err := t.debugfsScript()
	if err != nil {
		return err
	}
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return err
	}
	f, err := os.Create(raw)
	if err != nil {
		return err
	}
	size := b.opts.DiskSize
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return fmt.Errorf("make a sparse file for the disk: %w", err)
	}
	b.report(PhaseDisk, 0, 3, "file system")
	// Inode tables are written now, as holes, because the kernel would otherwise do it inside every machine.
	mke2fs := []string{"-q", "-F", "-t", "ext4", "-L", "glasshouse", "-m", "0", "-i", "32768",
		"-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0", "-d", rootfs, raw}
	if err := b.runAsOwner(ctx, "mke2fs", mke2fs); err != nil {
		return fmt.Errorf("make the disk's file system: %w", err)
	}
	b.report(PhaseDisk, 1, 3, "owners")
	if err := b.debugfs(ctx, script, raw); err != nil {
		return fmt.Errorf("set owners on the disk: %w", err)
	}
	b.report(PhaseDisk, 2, 3, "qcow2")
	// zstd takes a second longer than no compression and a third of the space.
	args := []string{"convert", "-O", "qcow2", "-c", "-o", "compression_type=zstd", "-m", "16", "-W", raw, out}
	if err := b.runTool(ctx, "qemu-img", args...); err != nil {
		return fmt.Errorf("turn the disk into qcow2: %w", err)
	}
	return nil
}

// runAsOwner runs a tool that must see the tree as root's: mke2fs copies owners. Root sees it so; others do within a
// user namespace in which they are root alone, or, where that is forbidden, under fakeroot.
func (b *build) runAsOwner(ctx context.Context, tool string, args []string) error {
	if os.Geteuid() == 0 {
		return b.runTool(ctx, tool, args...)
	}
	path, err := findTool(tool)
	if err != nil {
		return err
	}
	if b.runTool(ctx, "unshare", "--map-root-user", "true") == nil {
		return b.runTool(ctx, "unshare", append([]string{"--map-root-user", path}, args...)...)
	}
	if _, err := findTool("fakeroot"); err != nil {
		return fmt.Errorf("this host forbids user namespaces and has no fakeroot; install fakeroot: %w", err)
	}
	return b.runTool(ctx, "fakeroot", append([]string{path}, args...)...)
}

func (b *build) runTool(ctx context.Context, tool string, args ...string) error {
	path, err := findTool(tool)
	if err != nil {
		return err
	}
	errs := &tail{}
	if err := b.opts.Run(ctx, path, args, RunOptions{Env: []string{"LC_ALL=C.UTF-8", "PATH=" + searchPath()}, Stderr: errs}); err != nil {
		return fmt.Errorf("%s: %w\n%s", tool, err, errs)
	}
	return nil
}

// debugfs runs a script of commands. It ends with 0 whatever happens, so what it complains about is the result.
func (b *build) debugfs(ctx context.Context, script, raw string) error {
	path, err := findTool("debugfs")
	if err != nil {
		return err
	}
	errs := &limitedBuffer{max: 64 << 10}
	err = b.opts.Run(ctx, path, []string{"-w", "-f", script, raw}, RunOptions{Env: []string{"LC_ALL=C.UTF-8"}, Stderr: errs})
	if err != nil {
		return fmt.Errorf("debugfs: %w\n%s", err, errs.Bytes())
	}
	for line := range strings.Lines(errs.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "debugfs ") {
			return fmt.Errorf("debugfs: %s", line)
		}
	}
	return nil
}
