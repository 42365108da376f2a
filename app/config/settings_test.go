package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"glasshouse/backend/domain"
)

func TestSaveKeepsWhatIsNotChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		before string
		to     Settings
		after  string
	}{
		"no file":       {"", Settings{CPUs: 4, Machine: "lima"}, "machine = \"lima\"\ncpus = 4\n"},
		"comments":      {"# mine\n\n  cpus = 2   # two\n'memory_mib' = 2048\n# end\n", Settings{CPUs: 8, Memory: 2048, Limactl: `/o"pt/li\ma`}, "# mine\n\ncpus = 8   # two\n'memory_mib' = 2048\n# end\nlimactl = \"/o\\\"pt/li\\\\ma\"\n"},
		"back to usual": {"cpus = 2\nresolver = \"192.0.2.1:53\" # ours\nhold_seconds = 9", Settings{HoldSeconds: 9}, "hold_seconds = 9\n"},
		"all gone":      {"cpus = 2\n", Settings{}, ""},
		"line ends":     {"# a\r\ncpus = 2\r\n", Settings{CPUs: 3}, "# a\r\ncpus = 3\r\n"},
		"as it is":      {"cpus = 0x10 # sixteen\n", Settings{CPUs: 16}, "cpus = 0x10 # sixteen\n"},
		"hash in text":  {"limactl = \"/a#b\" # c\n", Settings{Limactl: "/x#y"}, "limactl = \"/x#y\" # c\n"},
	} {
		p := Paths{Config: filepath.Join(t.TempDir(), "conf")}
		if tc.before != "" {
			if err := errors.Join(os.MkdirAll(p.Config, 0o700), os.WriteFile(p.ConfigFile(), []byte(tc.before), 0o640)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Save(tc.to); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(p.ConfigFile())
		if err != nil || string(got) != tc.after {
			t.Errorf("%s: %q, not %q (%v)", name, got, tc.after, err)
		}
		if s, err := p.Load(); err != nil || s != tc.to {
			t.Errorf("%s: read back %+v %v", name, s, err)
		}
		fi, err := os.Stat(p.ConfigFile())
		if want := map[bool]os.FileMode{true: 0o640, false: 0o600}[tc.before != ""]; err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: mode %v", name, fi.Mode())
		}
		if left, _ := filepath.Glob(filepath.Join(p.Config, ".config-*")); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	for at, s := range map[string]Settings{
		"/machine": {Machine: "cloud"}, "/cpus": {CPUs: -1}, "/memory_mib": {Memory: 5}, "/disk_gib": {Disk: 1 << 30}, "/question_minutes": {QuestionMinutes: -5},
		"/hold_seconds": {HoldSeconds: 1 << 30}, "/resolver": {Resolver: "192.0.2.1"}, "/limactl": {Limactl: "limactl"},
	} {
		p := Paths{Config: t.TempDir()}
		var e *domain.Error
		if err := p.Save(s); !errors.As(err, &e) || e.Code != domain.CodeInvalid || e.Pointer != at || e.Hint == "" {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := os.Stat(p.ConfigFile()); !os.IsNotExist(err) {
			t.Errorf("%s: it was written", at)
		}
	}
	if err := (Settings{Resolver: "a:0"}).Check(); err == nil {
		t.Error("port 0")
	}
	// What cannot be read is not written over; what cannot be edited by line is left.
	for name, text := range map[string]string{"broken": "cpus = \n", "unknown": "colour = 1\n", "many lines": "limactl = \"\"\"\n/opt/x\"\"\"\n"} {
		p := Paths{Config: t.TempDir()}
		if err := os.WriteFile(p.ConfigFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Save(Settings{Limactl: "/opt/y"}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got, _ := os.ReadFile(p.ConfigFile()); string(got) != text {
			t.Errorf("%s: it became %q", name, got)
		}
	}
	// A folder nobody can write to.
	p := Paths{Config: "/proc/none"}
	if err := p.Save(Settings{CPUs: 2}); domain.CodeOf(err) != domain.CodeUnavailable {
		t.Errorf("%v", err)
	}
	// A link to a file elsewhere stays one.
	dir := t.TempDir()
	p = Paths{Config: filepath.Join(dir, "c")}
	real := filepath.Join(dir, "real.toml")
	if err := errors.Join(os.Mkdir(p.Config, 0o700), os.WriteFile(real, []byte("cpus = 1\n"), 0o600), os.Symlink(real, p.ConfigFile())); err != nil {
		t.Fatal(err)
	}
	if err := p.Save(Settings{CPUs: 2}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(real); string(got) != "cpus = 2\n" {
		t.Errorf("%q", got)
	}
	if fi, err := os.Lstat(p.ConfigFile()); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
}
