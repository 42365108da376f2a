package image

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func (p npmPackage) fileName() string {
	return strings.ReplaceAll(strings.TrimPrefix(p.Name, "@"), "/", "-") + "-" + p.Version + ".tgz"
}

// fetchNPM brings the pinned packages into the download folder with the host's npm client, and checks them against
// the recipe. A file that is there and right is not fetched again.
func (b *build) fetchNPM(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, p := range b.recipe.pins.NPM {
		b.report(PhaseDownload, int64(i), int64(len(b.recipe.pins.NPM)), p.Name+" "+p.Version)
		file := filepath.Join(dir, p.fileName())
		if checkIntegrity(file, p.Integrity) == nil {
			continue
		}
		tool, err := findTool("npm")
		if err != nil {
			return err
		}
		// Into a folder of its own, so that two builders never write one file.
		tmp, err := os.MkdirTemp(dir, ".npm-")
		if err != nil {
			return err
		}
		errs := &tail{}
		err = b.opts.Run(ctx, tool, []string{"pack", "--silent", "--pack-destination", tmp, p.Name + "@" + p.Version},
			RunOptions{Dir: tmp, Env: []string{"PATH=" + searchPath()}, Stderr: errs})
		got := filepath.Join(tmp, p.fileName())
		if err != nil {
			err = fmt.Errorf("fetch %s %s with npm: %w\n%s", p.Name, p.Version, err, errs)
		} else if err = checkIntegrity(got, p.Integrity); err == nil {
			err = os.Rename(got, file)
		}
		os.RemoveAll(tmp)
		if err != nil {
			return err
		}
	}
	return nil
}

// checkIntegrity compares a file with an npm integrity value.
func checkIntegrity(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s is not what the recipe pins: it has %s, the recipe says %s", filepath.Base(file), got, want)
	}
	return nil
}

// unpackNPM lays a package into the tree as npm would, without running anything of it.
func (b *build) unpackNPM(t *tree, p npmPackage, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(file), err)
	}
	in := tar.NewReader(z)
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(file), err)
		}
		// npm's archives hold everything in one folder, whatever its name.
		_, name, ok := strings.Cut(path.Clean(h.Name), "/")
		if !ok || h.Typeflag != tar.TypeReg || p.skips(name) {
			continue
		}
		mode := int64(0o644)
		if h.Mode&0o111 != 0 {
			mode = 0o755
		}
		entry := &tar.Header{Name: path.Join(p.Into, name), Typeflag: tar.TypeReg, Mode: mode, ModTime: h.ModTime}
		if err := t.add(entry, in); err != nil {
			return fmt.Errorf("unpack %s: %w", entry.Name, err)
		}
	}
	for link, target := range p.Links {
		if err := t.symlink(target, link); err != nil {
			return err
		}
		if path.IsAbs(target) { // a place, not one of the package's programs
			continue
		}
		script := path.Join(path.Dir(link), target)
		st, err := t.root.Stat(script)
		if err != nil {
			return fmt.Errorf("%s %s lacks %s: %w", p.Name, p.Version, script, err)
		}
		if err := t.root.Chmod(script, st.Mode().Perm()|0o111); err != nil {
			return err
		}
	}
	return nil
}

func (p npmPackage) skips(name string) bool {
	for _, s := range p.Skip {
		if name == s || strings.HasSuffix(s, "/") && strings.HasPrefix(name, s) {
			return true
		}
	}
	return false
}

// ownFiles adds the recipe's files, the seed of guestd and what makes it PID 1.
func (b *build) ownFiles(t *tree) error {
	files, err := b.recipe.overlay()
	if err != nil {
		return err
	}
	now := time.Now()
	for _, f := range files {
		if err := t.put(f.name, f.data, f.mode, now); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if err := t.giveHome(f.name); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	guestd := strings.TrimPrefix(GuestdPath, "/")
	if b.opts.Guestd == "" {
		if err := t.put(guestd, nil, 0o755, now); err != nil {
			return err
		}
	} else {
		sum, err := fileSHA256(b.opts.Guestd)
		if err != nil {
			return fmt.Errorf("read guestd: %w", err)
		}
		f, err := os.Open(b.opts.Guestd)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := t.file(guestd, f, now, owner{mode: modeRegular | 0o755}); err != nil {
			return err
		}
		if err := t.put(guestd+".sha256", []byte(sum+"\n"), 0o644, now); err != nil {
			return err
		}
		b.manifest.SeededGuestd = sum
	}
	for _, name := range []string{"poweroff", "halt", "shutdown"} {
		if err := t.symlink("/usr/lib/glasshouse/power-off", "usr/sbin/"+name); err != nil {
			return err
		}
	}
	return t.symlink(GuestdPath, "usr/sbin/init")
}
