package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glasshouse/vm/proc"
)

// setting is one key of a person's git configuration.
type setting struct {
	key      string // section and name in lower case, subsection as it is
	val      string
	implicit bool // a key without a value, which means true
}

// userConfig is what is taken from the person's own settings.
type userConfig struct {
	allowed              []setting // passed on to pushes
	name, email          string
	excludes, attributes string
}

// passedOn reports whether a key travels into a push's configuration: how to
// authenticate, how to reach the network, how addresses are rewritten, who the
// person is. Everything else stays behind: hooks, aliases, filters, editors,
// signing programs, protocol rules, and redirects, which could move a push.
func passedOn(key string) bool {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return false
	}
	section, name := key[:first], key[last+1:]
	switch section {
	case "credential", "http", "user":
		return name != "followredirects"
	case "core":
		return name == "sshcommand" && first == last
	case "ssh":
		return name == "variant" && first == last
	case "url":
		return name == "insteadof" || name == "pushinsteadof"
	case "safe":
		return name == "directory"
	}
	return false
}

// userConfig reads the person's settings outside any repository.
func (m *Mirror) userConfig(ctx context.Context) (userConfig, error) {
	home := m.opt.Getenv("HOME")
	if m.opt.Invoker != nil {
		home = m.opt.Invoker.Home
	}
	xdg := m.opt.Getenv("XDG_CONFIG_HOME")
	if xdg == "" && home != "" {
		xdg = filepath.Join(home, ".config")
	}
	uc := userConfig{}
	if xdg != "" {
		uc.excludes, uc.attributes = filepath.Join(xdg, "git", "ignore"), filepath.Join(xdg, "git", "attributes")
	}
	dir, err := m.scratch()
	if err != nil {
		return uc, err
	}
	defer os.RemoveAll(dir)
	env := append(m.baseEnv(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if v := m.opt.Getenv("GIT_CONFIG_GLOBAL"); v != "" {
		env = append(env, "GIT_CONFIG_GLOBAL="+v)
	}
	res, err := m.opt.Runner.Run(ctx, proc.Cmd{
		Role: "git-config", Path: m.opt.Git, Args: []string{"config", "--list", "-z", "--includes", "--show-scope"},
		Dir: dir, Env: env, User: m.opt.Invoker,
	})
	if err != nil {
		return uc, err
	}
	fields := strings.Split(string(res.Stdout), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if scope := fields[i]; scope != "system" && scope != "global" {
			continue
		}
		key, val, has := strings.Cut(fields[i+1], "\n")
		switch key {
		case "user.name":
			uc.name = val
		case "user.email":
			uc.email = val
		case "core.excludesfile":
			uc.excludes = expandHome(val, home)
		case "core.attributesfile":
			uc.attributes = expandHome(val, home)
		}
		if passedOn(key) {
			uc.allowed = append(uc.allowed, setting{key, val, !has})
		}
	}
	return uc, nil
}

// Identity returns the name and address the person commits with; empty when none is set.
func (m *Mirror) Identity(ctx context.Context) (name, email string, err error) {
	uc, err := m.userConfig(ctx)
	return uc.name, uc.email, err
}

func expandHome(p, home string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return p
}

// scratch makes an empty folder that the person git runs as may use.
func (m *Mirror) scratch() (string, error) {
	dir, err := os.MkdirTemp("", "glasshouse-git-")
	if err != nil {
		return "", fmt.Errorf("making a folder for git: %w", err)
	}
	return dir, m.own(dir)
}

func (m *Mirror) own(path string) error {
	if u := m.opt.Invoker; u != nil {
		return os.Lchown(path, int(u.UID), int(u.GID))
	}
	return nil
}

// passedEnv is what of the person's environment reaches git and the programs it
// starts for them: agents, key rings and proxies.
var passedEnv = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY",
	"GNUPGHOME", "KRB5CCNAME", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
}

func (m *Mirror) baseEnv() []string {
	path := m.opt.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	env := []string{"PATH=" + path, "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
	if m.opt.Invoker == nil {
		env = append(env, "HOME="+m.opt.Getenv("HOME"))
		for _, k := range []string{"USER", "LOGNAME"} {
			if v := m.opt.Getenv(k); v != "" {
				env = append(env, k+"="+v)
			}
		}
	}
	for _, k := range passedEnv {
		if v := m.opt.Getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// writeSetting appends one setting in the form git reads back as the same bytes.
func writeSetting(b *strings.Builder, s setting) {
	first, last := strings.IndexByte(s.key, '.'), strings.LastIndexByte(s.key, '.')
	if first < 0 || strings.ContainsAny(s.key, "\x00\n") {
		return
	}
	b.WriteString("[" + s.key[:first])
	if last > first {
		sub := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s.key[first+1 : last])
		b.WriteString(` "` + sub + `"`)
	}
	b.WriteString("]\n\t" + s.key[last+1:])
	if !s.implicit {
		val := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(s.val)
		b.WriteString(` = "` + val + `"`)
	}
	b.WriteByte('\n')
}
