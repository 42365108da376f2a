package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Programs of busybox that the initrd's script calls by name.
var initrdApplets = []string{"sh", "cat", "chmod", "cp", "insmod", "ip", "mkdir", "mount", "mv", "poweroff", "rm", "sleep", "switch_root", "sync"}

// writeInitrd makes the base initrd out of the recipe's script and the tree's busybox and kernel modules.
func (r Recipe) writeInitrd(out string, root fs.FS, release string) (err error) {
	script, err := fs.ReadFile(r.files, "initrd/init")
	if err != nil {
		return err
	}
	wanted, err := r.lines("initrd/modules.txt")
	if err != nil {
		return err
	}
	busybox, err := readFirst(root, "usr/bin/busybox", "bin/busybox")
	if err != nil {
		return fmt.Errorf("the image has no static busybox: %w", err)
	}
	modules, err := resolveModules(root, path.Join("usr/lib/modules", release), wanted)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c := &cpioWriter{w: f}
	for _, dir := range []string{"bin", "dev", "late", "lib", "lib/modules", "new", "proc", "sys"} {
		_ = c.add(dir, cpioDir|0o755, 0, nil) // here and below: close repeats the first error
	}
	add := func(name string, mode uint32, data []byte) {
		_ = c.add(name, mode, int64(len(data)), bytes.NewReader(data))
	}
	add("init", cpioFile|0o755, script)
	add("bin/busybox", cpioFile|0o755, busybox)
	for _, a := range initrdApplets {
		add("bin/"+a, cpioLink|0o777, []byte("busybox"))
	}
	var order strings.Builder
	for _, m := range modules {
		data, err := fs.ReadFile(root, m)
		if err != nil {
			return fmt.Errorf("read a kernel module: %w", err)
		}
		add("lib/modules/"+path.Base(m), cpioFile|0o644, data)
		order.WriteString(path.Base(m) + "\n")
	}
	add("modules", cpioFile|0o644, []byte(order.String()))
	return c.close()
}

func readFirst(root fs.FS, names ...string) ([]byte, error) {
	var err error
	for _, name := range names {
		var data []byte
		if data, err = fs.ReadFile(root, name); err == nil {
			return data, nil
		}
	}
	return nil, err
}

// resolveModules returns the files of the wanted modules and of those they need, in the order to load them. Modules
// that are part of the kernel are left out.
func resolveModules(root fs.FS, dir string, wanted []string) ([]string, error) {
	deps, err := fs.ReadFile(root, path.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("read the kernel's module list: %w", err)
	}
	builtin, err := fs.ReadFile(root, path.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("read the kernel's module list: %w", err)
	}
	name := func(file string) string {
		base, _, _ := strings.Cut(path.Base(file), ".")
		return strings.ReplaceAll(base, "-", "_")
	}
	inKernel := map[string]bool{}
	for _, file := range strings.Fields(string(builtin)) {
		inKernel[name(file)] = true
	}
	files, needs := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(string(deps)) {
		file, list, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			files[name(file)] = file
			needs[name(file)] = strings.Fields(list)
		}
	}
	var out []string
	done := map[string]bool{}
	var visit func(m string) error
	visit = func(m string) error {
		if done[m] || inKernel[m] {
			return nil
		}
		done[m] = true
		file, ok := files[m]
		if !ok {
			return fmt.Errorf("the kernel has no module %s", m)
		}
		if path.Ext(file) != ".ko" {
			return fmt.Errorf("the module %s is packed, which the initrd cannot load", file)
		}
		for _, need := range needs[m] {
			if err := visit(name(need)); err != nil {
				return err
			}
		}
		out = append(out, path.Join(dir, file))
		return nil
	}
	for _, m := range wanted {
		if err := visit(strings.ReplaceAll(m, "-", "_")); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// composeInitrd writes the base initrd followed by guestd beside it, once for each guestd.
func composeInitrd(img *Image, guestd string) (string, error) {
	sum, err := fileSHA256(guestd)
	if err != nil {
		return "", fmt.Errorf("read guestd: %w", err)
	}
	out := filepath.Join(img.Dir, "initrd-"+sum[:16]+".img")
	if _, err := os.Stat(out); err == nil {
		return out, nil // it was renamed into place, so it is whole
	}
	if err := writeComposed(out, img.InitrdBase, guestd, sum); err != nil {
		return "", fmt.Errorf("put guestd into the initrd: %w", err)
	}
	return out, nil
}

func writeComposed(out, base, guestd, sum string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(out), ".initrd-")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, tmp.Close())
		if err == nil {
			err = os.Rename(tmp.Name(), out)
		}
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	b, err := os.Open(base)
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := io.Copy(tmp, b); err != nil {
		return err
	}
	g, err := os.Open(guestd)
	if err != nil {
		return err
	}
	defer g.Close()
	st, err := g.Stat()
	if err != nil {
		return err
	}
	c := &cpioWriter{w: tmp}
	h := sha256.New()
	if err := c.add("late/guestd", cpioFile|0o755, st.Size(), io.TeeReader(g, h)); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return errors.New("guestd changed while it was read; try again")
	}
	if err := c.add("late/guestd.sha256", cpioFile|0o644, int64(len(sum)+1), strings.NewReader(sum+"\n")); err != nil {
		return err
	}
	if err := c.close(); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	return tmp.Sync()
}

func fileSHA256(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
