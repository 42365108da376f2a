package core

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/backend/secret"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// keyVariables are how keys usually come into an environment.
func keyVariables(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_MODEL", "npm_config_key", "GIT_KEY", "LIMA_KEY", "GLASSHOUSE_KEY"} {
		t.Setenv(name, canary)
	}
}

// What the core starts outside machines gets none of the keys in its environment: it
// is seen from inside of the programs, stand-ins that write down what they were given.
func TestChildrenSeeNoKeys(t *testing.T) {
	p := paths(t)
	bin, seen := t.TempDir(), t.TempDir()
	for _, name := range []string{"git", "bwrap", "limactl", "qemu-img", "prlimit", "useradd", "qemu-system-x86_64", "mke2fs"} {
		real, err := exec.LookPath(name)
		if err != nil {
			real = "false"
		}
		script := "#!/bin/sh\n/usr/bin/env >" + seen + "/" + name + ".$$\ncat /proc/$$/environ >>" + seen + "/" + name + ".$$\nexec " + real + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for dir := bin; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) { // others may start them too
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(seen, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("HTTPS_PROXY", "http://proxy.example:8080")
	keyVariables(t)
	c, call, _ := modelCore(t, p, &secret.Memory{})
	call("GET", "/v1/doctor", "", nil)
	c.author(t.Context())
	if _, err := c.lookAt(t.Context(), t.TempDir()); err != nil {
		t.Error(err)
	}
	m, err := c.mirror("p_env")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.RemoteRefs(t.Context(), "file://"+t.TempDir()+"/none.git"); err == nil {
		t.Error("there is no such remote")
	}
	var out bytes.Buffer
	if err := c.imageRun(t.Context(), "mke2fs", []string{"-V"}, image.RunOptions{Stderr: &out, Env: []string{"LC_ALL=C.UTF-8"}}); err != nil {
		t.Logf("mke2fs: %v", err)
	}
	files, err := os.ReadDir(seen)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, f := range files {
		name, _, _ := strings.Cut(f.Name(), ".")
		kinds[name] = true
		b, err := os.ReadFile(filepath.Join(seen, f.Name()))
		if err != nil || len(b) == 0 {
			t.Errorf("%s: %v", f.Name(), err)
		}
		if bytes.Contains(b, []byte(canary)) {
			t.Errorf("%s was given a key:\n%s", name, b)
		}
		if name == "mke2fs" && !bytes.Contains(b, []byte("HTTPS_PROXY=http://proxy.example:8080")) {
			t.Errorf("the way to packages is not told to %s:\n%s", name, b)
		}
	}
	for _, want := range []string{"git", "mke2fs"} {
		if !kinds[want] {
			t.Errorf("%s was not started", want)
		}
	}
	if len(kinds) < 3 {
		t.Errorf("only %v were started", kinds)
	}
	for _, r := range c.runner.Records() {
		if strings.Contains(strings.Join(r.Argv, " "), canary) {
			t.Errorf("arguments with a key: %v", r.Argv)
		}
	}
}

func TestOwnChildrenSeeNoKeys(t *testing.T) {
	keyVariables(t)
	old := proc.Rows
	proc.Rows = append(append([]proc.Row{}, old...), proc.Row{Role: "environ", Programs: []string{"env"}, Why: "a test"})
	t.Cleanup(func() { proc.Rows = old })
	res, err := (&proc.Runner{}).Run(t.Context(), proc.Cmd{Role: "environ", Path: "env", User: &proc.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Name: "x", Home: "/"}})
	if os.Getuid() != 0 && err != nil {
		t.Skipf("only root starts programs as somebody else: %v", err)
	}
	if err != nil || len(res.Stdout) == 0 || bytes.Contains(res.Stdout, []byte(canary)) {
		t.Errorf("%v\n%s", err, res.Stdout)
	}
	for _, program := range []string{"npm", "mmdebstrap"} {
		got := strings.Join(buildEnv(program, append(os.Environ(), "NPM_CONFIG_REGISTRY=https://npm.example", "SSL_CERT_FILE=/x", "no_proxy=h", "BASH_FUNC_x%%=() {}")), "\n")
		if strings.Contains(got, "API_KEY") || strings.Contains(got, "AWS_") || strings.Contains(got, "BASH_FUNC") || !strings.Contains(got, "SSL_CERT_FILE=/x") || !strings.Contains(got, "no_proxy=h") {
			t.Errorf("%s: %s", program, got)
		}
		if strings.Contains(got, "NPM_CONFIG_REGISTRY") != (program == "npm") {
			t.Errorf("%s: %s", program, got)
		}
	}
}
