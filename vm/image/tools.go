package image

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// toolPackages are the programs a build starts and the Debian packages that hold them.
var toolPackages = []struct{ tool, pkg string }{
	{"mmdebstrap", "mmdebstrap"},
	{"mke2fs", "e2fsprogs"},
	{"debugfs", "e2fsprogs"},
	{"qemu-img", "qemu-utils"},
	{"npm", "npm"},
}

// MissingTools lists what a build lacks on this host, each as "program (package)".
func MissingTools() []string {
	tools := toolPackages
	if os.Geteuid() != 0 {
		tools = append(tools[:len(tools):len(tools)], struct{ tool, pkg string }{"newuidmap", "uidmap"})
	}
	var out []string
	for _, t := range tools {
		if _, err := findTool(t.tool); err != nil {
			out = append(out, fmt.Sprintf("%s (%s)", t.tool, t.pkg))
		}
	}
	return out
}

// Programs of the system administrator are outside an ordinary user's PATH on Debian.
const toolPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p + ":" + toolPath
	}
	return toolPath
}

func findTool(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath()) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrTools)
}

// limitedBuffer keeps the first max bytes and drops the rest.
type limitedBuffer struct {
	bytes.Buffer
	max int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.max - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// tail keeps the last lines a program wrote, for the error message.
type tail struct {
	line  func(string)
	part  []byte
	lines []string
}

func (t *tail) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' && c != '\r' {
			if len(t.part) < 1000 {
				t.part = append(t.part, c)
			}
			continue
		}
		line := strings.TrimSpace(string(t.part))
		t.part = t.part[:0]
		if line == "" {
			continue
		}
		if t.lines = append(t.lines, line); len(t.lines) > 15 {
			t.lines = t.lines[1:]
		}
		if t.line != nil {
			t.line(line)
		}
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.Join(append(t.lines, string(t.part)), "\n") }
