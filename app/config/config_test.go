package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/domain"
)

func TestDefaultPlaces(t *testing.T) {
	for _, env := range []string{"GLASSHOUSE_DATA", "GLASSHOUSE_CONFIG", "GLASSHOUSE_CACHE", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(env, "")
	}
	t.Setenv("HOME", "/home/pat")
	p, err := Default()
	if err != nil || p.Config != "/home/pat/.config/glasshouse" || p.Cache != "/home/pat/.cache/glasshouse" || !filepath.IsAbs(p.Data) {
		t.Fatalf("%+v %v", p, err)
	}
	t.Setenv("XDG_CONFIG_HOME", "/etc/pat")
	t.Setenv("XDG_CACHE_HOME", "not/absolute") // to be ignored, as the rules for it say
	t.Setenv("GLASSHOUSE_DATA", "/srv/../srv/glass")
	if p, err = Default(); err != nil || p.Config != "/etc/pat/glasshouse" || p.Cache != "/home/pat/.cache/glasshouse" || p.Data != "/srv/glass" {
		t.Errorf("%+v %v", p, err)
	}
	t.Setenv("GLASSHOUSE_CONFIG", "here")
	if _, err = Default(); domain.CodeOf(err) != domain.CodeInvalid || !strings.Contains(err.Error(), "GLASSHOUSE_CONFIG") {
		t.Errorf("%v", err)
	}
	// Without a home folder the places that are given do.
	t.Setenv("HOME", "")
	t.Setenv("GLASSHOUSE_CONFIG", "/c")
	if _, err = Default(); domain.CodeOf(err) != domain.CodeInvalid || !strings.Contains(err.Error(), "set HOME, or GLASSHOUSE_CACHE") {
		t.Errorf("%v", err)
	}
	t.Setenv("GLASSHOUSE_CACHE", "/k")
	if p, err = Default(); err != nil || p != (Paths{Data: "/srv/glass", Config: "/c", Cache: "/k"}) {
		t.Errorf("%+v %v", p, err)
	}
}

func TestLoad(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"machine = \"local\"\ncpus = 4\nresolver = \"192.0.2.53:53\"\nquestion_minutes = 0": "",
		"machine = \"cloud\"":               "cloud",
		"machine = ":                        "cannot be read",
		"machine = 3":                       "cannot be read",
		"cpus = -1":                         "cpus is -1",
		"memory_mib = 99999999999":          "memory_mib",
		"memory_mib = 99999999999999999999": "cannot be read",
		"questionminutes = 3":               "questionminutes",
		"[egress]\nallow = true":            "egress",
		"resolver = \"192.0.2.53\"":         "resolver",
		"limactl = \"limactl\"":             "limactl",
		"cpus = 1\ncpus = 2":                "cannot be read",
		"machine = \"local\xff\"":           "cannot be read",
	} {
		p := Paths{Config: t.TempDir()}
		if err := os.WriteFile(p.ConfigFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := p.Load()
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		var e *domain.Error
		if !errors.As(err, &e) || e.Code != domain.CodeInvalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "config.toml") || e.Hint == "" {
			t.Errorf("%q: %v (%+v)", text, err, s)
		}
	}
	if s, err := (Paths{Config: filepath.Join(t.TempDir(), "none")}).Load(); err != nil || s != (Settings{}) {
		t.Errorf("no file: %+v %v", s, err)
	}
	if _, err := (Paths{Config: t.TempDir()}).Load(); err != nil {
		t.Errorf("no file: %v", err)
	}
	d := Paths{Config: t.TempDir()}
	if err := os.Mkdir(d.ConfigFile(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(); domain.CodeOf(err) != domain.CodeInvalid {
		t.Errorf("a folder: %v", err)
	}
}

func TestPrepare(t *testing.T) {
	p := Paths{Data: filepath.Join(t.TempDir(), "a", "b")}
	for range 2 {
		if err := p.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	for dir, others := range map[string]os.FileMode{p.Data: 0o066, p.Logs(): 0o077, p.Trash(): 0o077, filepath.Dir(p.Project("x")): 0o077} {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() || st.Mode().Perm()&others != 0 {
			t.Errorf("%s: %v %v", dir, st, err)
		}
	}
	// One that was open to others is closed.
	if err := os.Chmod(p.Data, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.Logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.Data, p.Logs()} {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm()&0o066 != 0 {
			t.Errorf("%s: %v %v", dir, st.Mode(), err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Paths{Data: filepath.Join(file, "d")}).Prepare(); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
}
