//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCgroupName(t *testing.T) {
	for in, want := range map[string]string{
		"0::/glasshouse/x12-3\n":             "x12-3",
		"0::/glasshouse/x12-3/nested/deep\n": "x12-3",
		"1:memory:/a\n0::/glasshouse/b1-1\n": "b1-1",
		"0::/\n":                             "",
		"0::/glasshouse\n":                   "",
		"0::/glasshouse2/x1-1\n":             "",
		"5:glasshouse:/glasshouse/x1\n":      "",
		"0::/../glasshouse/x1-1\n":           "",
		"":                                   "",
	} {
		if got := cgroupName(in, "glasshouse"); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	f := filepath.Join(t.TempDir(), "environment")
	os.WriteFile(f, []byte("# note\nA=\"b c\"\nexport B='x'\n\nbad line\nC=\n D E=1\nF=a=b\n"), 0o644)
	got := readEnvironment(f)
	if len(got) != 4 || got["A"] != "b c" || got["B"] != "x" || got["F"] != "a=b" {
		t.Errorf("%q", got)
	}
	if _, ok := got["C"]; !ok {
		t.Error("an empty variable was lost")
	}
	var vars []string
	for _, e := range environment(Config{Kind: KindDirect, Proxy: "127.0.0.1:3128"}, "/home/agent", "agent", "/bin/bash") {
		vars = append(vars, string(e))
	}
	for _, want := range []string{
		"http_proxy=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "no_proxy=127.0.0.1,localhost,::1", "NODE_USE_ENV_PROXY=1",
		"HOME=/home/agent", "USER=agent", "LANG=C.UTF-8", "SHELL=/bin/bash",
	} {
		if !slices.Contains(vars, want) {
			t.Errorf("%s is missing in %q", want, vars)
		}
	}
}

func TestHostnames(t *testing.T) {
	for _, bad := range []string{"", "a b", "x\n127.0.0.1 evil", "a/b", "-\x00", string(make([]byte, 65))} {
		if SetHostname(bad) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
