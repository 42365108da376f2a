package image

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestHashCoversEveryFile(t *testing.T) {
	files := fstest.MapFS{
		"pins.json":    {Data: []byte(`{"suite":"bookworm","arch":"amd64"}`)},
		"packages.txt": {Data: []byte("git\n")},
		"root/a":       {Data: []byte("1")},
	}
	hash := func(f fstest.MapFS) string {
		t.Helper()
		r, err := newRecipe(f)
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := hash(files)
	if again := hash(maps.Clone(files)); again != base {
		t.Fatalf("the same files hash to %s and %s", base, again)
	}
	seen := map[string]string{base: "the recipe itself"}
	for name, change := range map[string]func(fstest.MapFS){
		"content":  func(f fstest.MapFS) { f["root/a"] = &fstest.MapFile{Data: []byte("2")} },
		"name":     func(f fstest.MapFS) { f["root/b"] = f["root/a"]; delete(f, "root/a") },
		"one more": func(f fstest.MapFS) { f["root/c"] = &fstest.MapFile{} },
		"one less": func(f fstest.MapFS) { delete(f, "root/a") },
		"moved content": func(f fstest.MapFS) {
			f["root/a"] = &fstest.MapFile{}
			f["packages.txt"] = &fstest.MapFile{Data: []byte("git\n1")}
		},
		"pins": func(f fstest.MapFS) {
			f["pins.json"] = &fstest.MapFile{Data: []byte(`{"suite":"trixie","arch":"amd64"}`)}
		},
	} {
		f := maps.Clone(files)
		change(f)
		h := hash(f)
		if other, dup := seen[h]; dup {
			t.Errorf("%s hashes like %s", name, other)
		}
		seen[h] = name
	}
}

// TestDefaultRecipe checks what the rest of the product counts on.
func TestDefaultRecipe(t *testing.T) {
	r, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	packages, err := r.lines("packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"git", "python3", "ripgrep", "openssh-server", "sudo", "bubblewrap", "chromium-headless-shell", "busybox-static"} {
		if !slices.Contains(packages, want) {
			t.Errorf("no package %s", want)
		}
	}
	for _, p := range packages {
		if strings.ContainsAny(p, " ,") {
			t.Errorf("the package line %q is not one name", p)
		}
		if p == "systemd-sysv" || strings.HasPrefix(p, "linux-image") {
			t.Errorf("the image must not install %s", p)
		}
	}
	files, err := r.overlay()
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]fs.FileMode{}
	for _, f := range files {
		modes[f.name] = f.mode
	}
	for name, mode := range map[string]fs.FileMode{
		"usr/lib/glasshouse/lima-init":    0o755,
		"usr/lib/glasshouse/lima-dhcp":    0o755,
		"etc/sudoers.d/90-glasshouse":     0o440,
		"etc/environment":                 0o644,
		"etc/apt/apt.conf.d/30glasshouse": 0o644,
		"etc/sysctl.d/60-glasshouse.conf": 0o644,
		"usr/local/etc/npmrc":             0o644,
	} {
		if got, ok := modes[name]; !ok || got != mode {
			t.Errorf("%s: mode %o, there %v", name, got, ok)
		}
	}
	// The image names no registry: every tool goes to the door inside, the rest is the host's configuration.
	err = fs.WalkDir(r.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(r.files, name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			for _, scheme := range []string{"http://", "https://"} {
				if _, after, ok := strings.Cut(line, scheme); ok && !strings.HasPrefix(after, "127.0.0.1:3128") {
					t.Errorf("%s names a host: %s", name, strings.TrimSpace(line))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAptSourcesTakesOnlyDebian(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("sources.list", `# deb http://comment.example bookworm main
deb http://a.example/debian bookworm main contrib
deb-src http://a.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://b.example/debian bookworm-updates main # why
deb http://other.example/debian trixie main
deb [broken http://a.example bookworm main
`)
	write("sources.list.d/vendor.list", `deb [signed-by=/usr/share/keyrings/vendor.gpg] http://vendor.example/x bookworm main
deb http://vendor.example/y bookworm stable
deb http://vendor.example/z vendor-bookworm main
`)
	write("sources.list.d/debian.sources", `Types: deb deb-src
# a comment
URIs: http://c.example/debian
 http://d.example/debian
Suites: bookworm
Components: main non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://c.example/security
Suites: bookworm-security
Components: main
Enabled: no

Types: deb
URIs: http://vendor.example/k
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
`)
	write("sources.list.d/old.save", "deb http://old.example bookworm main\n")
	got, err := aptSources(dir, "bookworm")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"deb http://a.example/debian bookworm main",
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://b.example/debian bookworm-updates main",
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://c.example/debian bookworm main",
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://d.example/debian bookworm main",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, err := aptSources(t.TempDir(), "bookworm"); err != nil || got != nil {
		t.Errorf("no sources at all: %q, %v", got, err)
	}
}

func TestResolveModules(t *testing.T) {
	root := fstest.MapFS{
		"m/modules.dep":     {Data: []byte("kernel/a.ko: kernel/b-x.ko kernel/c.ko\nkernel/b-x.ko: kernel/c.ko\nkernel/c.ko:\nkernel/z.ko.xz:\n")},
		"m/modules.builtin": {Data: []byte("kernel/fs/ext4/ext4.ko\n")},
	}
	got, err := resolveModules(root, "m", []string{"ext4", "a", "b_x"})
	if want := []string{"m/kernel/c.ko", "m/kernel/b-x.ko", "m/kernel/a.ko"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"missing", "z"} {
		if got, err := resolveModules(root, "m", []string{bad}); err == nil {
			t.Errorf("%s resolved to %q", bad, got)
		}
	}
}

// TestNodeHeadersAreOfTheNode: node-gyp takes the headers in the agent's cache for exactly one version.
func TestNodeHeadersAreOfTheNode(t *testing.T) {
	r, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.pins.NPM {
		if !strings.HasPrefix(p.Name, "node-linux-") {
			continue
		}
		dir := "home/agent/.cache/node-gyp/" + p.Version
		if p.Links[dir+"/include"] != "/usr/local/include" {
			t.Errorf("no link %s/include", dir)
		}
		if _, err := fs.Stat(r.files, "root/"+dir+"/installVersion"); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("the recipe pins no Node")
}
