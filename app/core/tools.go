package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"glasshouse/app/config"
	"glasshouse/backend/domain"
	"glasshouse/vm/proc"
)

// libexec is where the programs that belong to Glasshouse stand: guestd and
// limactl, beside our own binary unless GLASSHOUSE_LIBEXEC says otherwise.
func libexec() (string, error) {
	if d := os.Getenv("GLASSHOUSE_LIBEXEC"); d != "" {
		return d, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", err
	}
	return filepath.Dir(exe), nil
}

// programs finds what belongs to us, and for a root core puts copies where its
// service user can run them.
type programs struct {
	paths config.Paths
	user  *proc.User
	mu    sync.Mutex
	done  map[string]string
}

// find returns a program of ours by its path below libexec.
func (p *programs) find(rel string) (string, error) {
	dir, err := libexec()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, rel)
	if _, err := os.Stat(path); err != nil {
		return "", domain.E(domain.CodeUnavailable, fmt.Sprintf("Glasshouse's own program %s is missing", rel), "build it with 'make build', or set GLASSHOUSE_LIBEXEC to the folder that holds it", err)
	}
	return p.usable(path)
}

// usable returns path, or a copy of it that the service user can reach.
func (p *programs) usable(path string) (string, error) {
	if p.user == nil {
		return path, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.done[path]; got != "" {
		return got, nil
	}
	sum, err := hashFile(path)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.paths.Tools(), sum[:16])
	dst := filepath.Join(dir, filepath.Base(path))
	if have, err := hashFile(dst); err != nil || have != sum {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		if err := copyFile(path, dst); err != nil {
			return "", err
		}
	}
	if p.done == nil {
		p.done = map[string]string{}
	}
	p.done[path] = dst
	return dst, nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
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

func copyFile(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(dst), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := errors.Join(out.Chmod(0o755), out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), dst)
}

// serviceName is the user that machines run as when the core is root.
const serviceName = "glasshouse"

// serviceUser returns whom machines run as: nil unless the core is root, where
// the user is made if it is missing (limactl refuses root, and a sandbox of
// root's would be root outside).
func serviceUser(ctx context.Context, r *proc.Runner, paths config.Paths) (*proc.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(serviceName)
	// Another core may make it at the same moment, or another program have the list of
	// users locked just then.
	for tries := 0; err != nil; tries++ {
		_, rerr := r.Run(ctx, proc.Cmd{Role: "useradd", Path: "useradd", Args: []string{"--system", "--user-group", "--no-create-home",
			"--home-dir", "/var/lib/glasshouse", "--shell", "/usr/sbin/nologin", serviceName}})
		if u, err = user.Lookup(serviceName); err == nil {
			break
		}
		if rerr == nil {
			return nil, err
		}
		if tries == 5 || ctx.Err() != nil {
			return nil, domain.E(domain.CodeUnavailable, "the service user glasshouse is missing and could not be made", "run 'make setup', or start Glasshouse as an ordinary user", rerr)
		}
		time.Sleep(300 * time.Millisecond)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	su := &proc.User{UID: uint32(uid), GID: uint32(gid), Name: u.Username, Home: filepath.Join(paths.Data, "service")}
	if g, err := user.LookupGroup("kvm"); err == nil {
		if id, err := strconv.ParseUint(g.Gid, 10, 32); err == nil {
			su.Groups = append(su.Groups, uint32(id))
		}
	}
	if err := os.MkdirAll(su.Home, 0o700); err != nil {
		return nil, err
	}
	return su, os.Chown(su.Home, int(uid), int(gid))
}
