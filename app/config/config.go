// Package config knows every name Glasshouse uses on disk and reads the settings
// a person can change. Nothing else spells a path.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"glasshouse/backend/domain"
)

// Paths of one installation.
type Paths struct {
	Data   string // database, machines, images, mirrors
	Config string // config.toml, policy.toml
	Cache  string // image build cache
}

// Default returns the usual places, which the environment may move:
// GLASSHOUSE_DATA, GLASSHOUSE_CONFIG and GLASSHOUSE_CACHE, else the platform's. A
// home folder is only needed for places that are not given.
func Default() (Paths, error) {
	home, herr := os.UserHomeDir()
	if herr == nil && !filepath.IsAbs(home) {
		herr = fmt.Errorf("HOME is %q, not an absolute path", home)
	}
	var p Paths
	for _, place := range []struct {
		env   string
		at    *string
		usual func() (string, error)
	}{
		{"GLASSHOUSE_DATA", &p.Data, func() (string, error) {
			switch {
			case runtime.GOOS == "darwin":
				return filepath.Join(home, "Library", "Application Support", "Glasshouse"), herr
			case os.Geteuid() == 0:
				// Machines of a root core run as a service user, which cannot enter /root.
				return "/var/lib/glasshouse", nil
			}
			return xdg("XDG_DATA_HOME", home, ".local/share", herr)
		}},
		{"GLASSHOUSE_CONFIG", &p.Config, func() (string, error) { return xdg("XDG_CONFIG_HOME", home, ".config", herr) }},
		{"GLASSHOUSE_CACHE", &p.Cache, func() (string, error) { return xdg("XDG_CACHE_HOME", home, ".cache", herr) }},
	} {
		if v := os.Getenv(place.env); v != "" {
			if !filepath.IsAbs(v) {
				return Paths{}, domain.E(domain.CodeInvalid, fmt.Sprintf("%s is %q", place.env, v), "give an absolute path", nil)
			}
			*place.at = filepath.Clean(v)
			continue
		}
		v, err := place.usual()
		if err != nil {
			return Paths{}, domain.E(domain.CodeInvalid, "there is no home folder", "set HOME, or "+place.env, err)
		}
		*place.at = v
	}
	return p, nil
}

// xdg is our folder in one of the platform's usual places; herr is why there is no home.
func xdg(env, home, rest string, herr error) (string, error) {
	if v := os.Getenv(env); filepath.IsAbs(v) {
		return filepath.Join(v, "glasshouse"), nil
	}
	return filepath.Join(home, rest, "glasshouse"), herr
}

func (p Paths) Socket() string           { return filepath.Join(p.Data, "core.sock") }
func (p Paths) Lock() string             { return filepath.Join(p.Data, "core.lock") }
func (p Paths) WindowLock() string       { return filepath.Join(p.Data, "window.lock") }
func (p Paths) WindowSocket() string     { return filepath.Join(p.Data, "win.sock") }
func (p Paths) WindowState() string      { return filepath.Join(p.Config, "window.json") }
func (p Paths) Machines() string         { return filepath.Join(p.Data, "m") }
func (p Paths) Images() string           { return filepath.Join(p.Data, "images") }
func (p Paths) Trash() string            { return filepath.Join(p.Data, "trash") }
func (p Paths) Logs() string             { return filepath.Join(p.Data, "logs") }
func (p Paths) Tools() string            { return filepath.Join(p.Data, "tools") }
func (p Paths) Project(id string) string { return filepath.Join(p.Data, "projects", id) }
func (p Paths) Mirror(id string) string  { return filepath.Join(p.Project(id), "mirror.git") }
func (p Paths) PolicyFile() string       { return filepath.Join(p.Config, "policy.toml") }
func (p Paths) ConfigFile() string       { return filepath.Join(p.Config, "config.toml") }
func (p Paths) ModelsFile() string       { return filepath.Join(p.Config, "models.toml") }

// Prepare makes the data folder: private to the user, and readable by nobody else
// but the service user's own part of it when the core runs as root.
func (p Paths) Prepare() error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the service user passes through to m/ and images/
	}
	if err := os.MkdirAll(p.Data, mode); err != nil {
		return domain.E(domain.CodeUnavailable, "the data folder cannot be made", "check the permissions of its parent, or set GLASSHOUSE_DATA", err)
	}
	if err := os.Chmod(p.Data, mode); err != nil {
		return domain.E(domain.CodeUnavailable, "the data folder "+p.Data+" belongs to somebody else", "set GLASSHOUSE_DATA to a folder of your own", err)
	}
	for _, d := range []string{p.Logs(), p.Trash(), filepath.Join(p.Data, "projects")} {
		if err := errors.Join(os.MkdirAll(d, 0o700), os.Chmod(d, 0o700)); err != nil {
			return domain.E(domain.CodeUnavailable, "the folder "+d+" cannot be used", "check its permissions", err)
		}
	}
	for _, d := range []string{p.Tools(), p.Images(), p.Machines()} {
		if err := os.MkdirAll(d, mode); err != nil {
			return err
		}
	}
	return nil
}
