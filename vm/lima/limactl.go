package lima

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"glasshouse/vm/proc"
)

// version of limactl. What differs between versions is decided here and in
// instance.go's writeYAML, nowhere else.
type version struct{ major, minor, patch int }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

// cpuTypeInVMOpts: from 2.0 on the processor model stands under vmOpts.qemu.
func (v version) cpuTypeInVMOpts() bool { return v.major >= 2 }

var versionPattern = regexp.MustCompile(`\bv?([0-9]+)\.([0-9]+)\.([0-9]+)`)

// parseVersion reads what "limactl --version" prints. A development build that
// names no version counts as the bundled one.
func parseVersion(out string) (version, error) {
	g := versionPattern.FindStringSubmatch(out)
	if g == nil {
		if regexp.MustCompile(`^limactl version \S`).MatchString(out) {
			return version{1, 2, 2}, nil
		}
		return version{}, fmt.Errorf("limactl's version cannot be read from %q", printable(out))
	}
	var v version
	for i, p := range []*int{&v.major, &v.minor, &v.patch} {
		n, err := strconv.Atoi(g[i+1])
		if err != nil {
			return version{}, fmt.Errorf("limactl's version cannot be read from %q", printable(out))
		}
		*p = n
	}
	if v.major < 1 || v.major == 1 && v.minor < 1 {
		return v, fmt.Errorf("limactl %s is too old; Glasshouse comes with 1.2.2 and works with that or a later one", v)
	}
	return v, nil
}

// limactlVersion asks limactl once.
func (m *Manager) limactlVersion(ctx context.Context) (version, error) {
	m.versionMu.Lock()
	defer m.versionMu.Unlock()
	if m.version != nil {
		return *m.version, nil
	}
	res, err := m.opt.Runner.Run(ctx, proc.Cmd{Role: "limactl", Path: m.opt.Limactl, Args: []string{"--version"}, Dir: "/", User: m.opt.User})
	if err != nil {
		return version{}, fmt.Errorf("limactl (%s) does not work: %w", m.opt.Limactl, err)
	}
	v, err := parseVersion(string(res.Stdout))
	if err != nil {
		return version{}, err
	}
	m.version = &v
	return v, nil
}
