// Package config knows every name Glasshouse uses on disk and reads the settings
// a person can change. Nothing else spells a path.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/BurntSushi/toml"

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

// Settings a person can change in config.toml.
type Settings struct {
	// Machine is the kind new projects get: "lima" or "local". Empty = local on
	// Linux, lima elsewhere.
	Machine string `toml:"machine"`
	CPUs    int    `toml:"cpus"`
	Memory  int    `toml:"memory_mib"`
	Disk    int    `toml:"disk_gib"`
	// Resolver is a DNS server host:port for the egress gate; empty = the system's.
	Resolver string `toml:"resolver"`
	// QuestionMinutes is how long a question waits before it expires; 0 = for ever.
	QuestionMinutes int `toml:"question_minutes"`
	// HoldSeconds is how long a connection waits for an answer; 0 = 300.
	HoldSeconds int    `toml:"hold_seconds"`
	Limactl     string `toml:"limactl"` // path of a limactl to use instead of the bundled one
}

// Load reads config.toml. A missing file is fine; a broken or unknown line is an
// error, for a setting that is silently ignored protects nobody.
func (p Paths) Load() (Settings, error) {
	var s Settings
	meta, err := toml.DecodeFile(p.ConfigFile(), &s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, domain.E(domain.CodeInvalid, "the settings in "+p.ConfigFile()+" cannot be read", "mend the file or move it away", err)
	}
	if un := meta.Undecoded(); len(un) > 0 {
		return s, domain.E(domain.CodeInvalid, fmt.Sprintf("%s has an unknown setting %q", p.ConfigFile(), un[0]), "remove it, or check its spelling", nil)
	}
	if s.Machine != "" && s.Machine != "lima" && s.Machine != "local" {
		return s, domain.E(domain.CodeInvalid, fmt.Sprintf("%s: machine is %q", p.ConfigFile(), s.Machine), "use lima or local", nil)
	}
	for name, v := range map[string]int{"cpus": s.CPUs, "memory_mib": s.Memory, "disk_gib": s.Disk, "question_minutes": s.QuestionMinutes, "hold_seconds": s.HoldSeconds} {
		if v < 0 || v > 1<<20 {
			return s, domain.E(domain.CodeInvalid, fmt.Sprintf("%s: %s is %d", p.ConfigFile(), name, v), "give a number of at least 0", nil)
		}
	}
	if s.Resolver != "" {
		if host, port, err := net.SplitHostPort(s.Resolver); err != nil || host == "" || port == "" {
			return s, domain.E(domain.CodeInvalid, fmt.Sprintf("%s: resolver is %q", p.ConfigFile(), s.Resolver), "give an address and a port, such as 192.0.2.53:53", err)
		}
	}
	if s.Limactl != "" && !filepath.IsAbs(s.Limactl) {
		return s, domain.E(domain.CodeInvalid, fmt.Sprintf("%s: limactl is %q", p.ConfigFile(), s.Limactl), "give an absolute path", nil)
	}
	return s, nil
}

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
