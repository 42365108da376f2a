//go:build linux

package agent

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/agent/execs"
	"glasshouse/vm/guest/agent/shim"
)

// The agent user of every guest.
const (
	agentUID = 1000
	agentGID = 1000
)

func execsConfig(cfg Config) (execs.Config, error) {
	e := execs.Config{
		Journal: filepath.Join(cfg.State, "journal"), Sockets: filepath.Join(cfg.Run, "shims"),
		BootID: cfg.BootID, UID: -1, GID: -1, Dir: cfg.Workspace, Pool: 2,
	}
	user, shell := "agent", "/bin/bash"
	switch cfg.Kind {
	case KindVM:
		e.UID, e.GID, e.Root = agentUID, agentGID, true
		e.Shim = shim.Config{Cgroups: cfg.Cgroups}
		e.FixedAddresses = emulated()
		e.RootEnv = environment(cfg, "/root", "root", shell)
	case KindSandbox:
		e.Shim = shim.Config{Cell: cellConfig(cfg)}
	case KindDirect:
	default:
		return e, fmt.Errorf("kind %q is unknown", cfg.Kind)
	}
	e.Env = environment(cfg, cfg.Home, user, shell)
	return e, nil
}

func cellConfig(cfg Config) *cell.Config {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		self = "/usr/lib/glasshouse/guestd"
	}
	return &cell.Config{
		UID: agentUID, GID: agentGID, Workspace: cfg.Workspace, Home: cfg.Home, Self: self,
	}
}

// environment is the base of every command: what follows from the guest's
// design, then what the image's /etc/environment says.
func environment(cfg Config, home, user, shell string) (out [][]byte) {
	proxy := ""
	if cfg.Proxy != "" {
		proxy = "http://" + cfg.Proxy
	}
	vars := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
		"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell, "TMPDIR": "/tmp",
		"no_proxy": "127.0.0.1,localhost,::1", "NO_PROXY": "127.0.0.1,localhost,::1",
	}
	if proxy != "" {
		for _, k := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
			vars[k] = proxy
		}
		vars["NODE_USE_ENV_PROXY"] = "1"
	}
	if cfg.Kind != KindDirect {
		for k, v := range readEnvironment("/etc/environment") {
			vars[k] = v
		}
	}
	for k, v := range vars {
		out = append(out, []byte(k+"="+v))
	}
	return out
}

// readEnvironment reads NAME="VALUE" lines.
func readEnvironment(path string) map[string]string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	vars := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		k, v, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || k == "" || strings.HasPrefix(k, "#") || strings.ContainsAny(k, " \t\x00") {
			continue
		}
		vars[k] = strings.Trim(v, `"'`)
	}
	return vars
}
