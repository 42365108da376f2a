package image

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// aptSources returns the host's own entries for Debian's suite, its updates and its security fixes, as lines of
// sources.list(5). Other vendors' entries stay out: they are told by their suite, component or key. No entries is no
// error: mmdebstrap then takes its own choice.
func aptSources(root, suite string) ([]string, error) {
	var out []string
	names, err := filepath.Glob(filepath.Join(root, "sources.list.d", "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{filepath.Join(root, "sources.list")}, names...) {
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the host's apt sources: %w", err)
		}
		switch filepath.Ext(name) {
		case ".list":
			out = append(out, oneLineSources(string(data), suite)...)
		case ".sources":
			out = append(out, deb822Sources(string(data), suite)...)
		}
	}
	return out, nil
}

func oneLineSources(text, suite string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		var signedBy string
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			options, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			for _, o := range strings.Fields(options) {
				if v, ok := strings.CutPrefix(o, "signed-by="); ok {
					signedBy = v
				}
			}
			rest = after
		}
		f := strings.Fields(rest)
		if len(f) < 3 {
			continue
		}
		out = append(out, sourceLine(f[0], f[1], f[2:], signedBy, suite)...)
	}
	return out
}

func deb822Sources(text, suite string) []string {
	var out []string
	fields := map[string]string{}
	last := ""
	flush := func() {
		if hasWord(fields["types"], "deb") && !strings.EqualFold(fields["enabled"], "no") {
			for _, uri := range strings.Fields(fields["uris"]) {
				for _, s := range strings.Fields(fields["suites"]) {
					out = append(out, sourceLine(uri, s, strings.Fields(fields["components"]), fields["signed-by"], suite)...)
				}
			}
		}
		fields, last = map[string]string{}, ""
	}
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		line := s.Text()
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case strings.HasPrefix(line, "#"):
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += "\n" + strings.TrimSpace(line)
			}
		default:
			if k, v, ok := strings.Cut(line, ":"); ok {
				last = strings.ToLower(strings.TrimSpace(k))
				fields[last] = strings.TrimSpace(v)
			}
		}
	}
	flush()
	return out
}

func hasWord(list, word string) bool {
	for _, w := range strings.Fields(list) {
		if w == word {
			return true
		}
	}
	return false
}

func sourceLine(uri, suite string, components []string, signedBy, want string) []string {
	switch suite {
	case want, want + "-updates", want + "-security":
	default:
		return nil
	}
	if !hasWord(strings.Join(components, " "), "main") {
		return nil
	}
	// A key of another vendor, or one written into the entry itself, is not Debian's.
	option := ""
	if signedBy != "" {
		if !filepath.IsAbs(signedBy) || !strings.HasPrefix(filepath.Base(signedBy), "debian-archive") {
			return nil
		}
		option = "[signed-by=" + signedBy + "] "
	}
	return []string{"deb " + option + uri + " " + suite + " main"}
}

// mmdebstrapArgs puts the recipe into mmdebstrap's words. The archive comes out on standard output.
func (r Recipe) mmdebstrapArgs(sources []string) ([]string, error) {
	packages, err := r.lines("packages.txt")
	if err != nil {
		return nil, err
	}
	excludes, err := r.lines("exclude.txt")
	if err != nil {
		return nil, err
	}
	hook, err := fs.ReadFile(r.files, "customize.sh")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--variant=minbase", "--format=tar", "--architectures=" + r.pins.Arch,
		`--aptopt=Acquire::Languages "none"`,
		`--aptopt=APT::Install-Recommends "false"`,
		`--aptopt=Acquire::Retries "3"`,
		"--dpkgopt=force-unsafe-io",
	}
	for _, p := range excludes {
		if in, ok := strings.CutPrefix(p, "!"); ok {
			args = append(args, "--dpkgopt=path-include="+in)
		} else {
			args = append(args, "--dpkgopt=path-exclude="+p)
		}
	}
	args = append(args, "--include="+strings.Join(packages, ","), "--customize-hook="+string(hook), r.pins.Suite, "-")
	return append(args, sources...), nil
}

// mmdebstrap's own steps, in order, for the progress.
var mmdebstrapSteps = []string{
	"running apt-get update", "downloading packages", "extracting archives", "installing essential",
	"installing remaining", "running --customize-hook", "cleaning package lists", "creating tarball",
}

// bootstrap runs mmdebstrap and writes its archive to out.
func (b *build) bootstrap(ctx context.Context, out io.Writer) error {
	sources := b.opts.AptSources
	if len(sources) == 0 {
		var err error
		if sources, err = aptSources("/etc/apt", b.recipe.pins.Suite); err != nil {
			return err
		}
	}
	args, err := b.recipe.mmdebstrapArgs(sources)
	if err != nil {
		return err
	}
	tool, err := findTool("mmdebstrap")
	if err != nil {
		return err
	}
	errs := &tail{line: func(line string) {
		for i, s := range mmdebstrapSteps {
			if strings.HasPrefix(line, "I: "+s) {
				b.report(PhasePackages, int64(i), int64(len(mmdebstrapSteps)), s)
			}
		}
	}}
	err = b.opts.Run(ctx, tool, args, RunOptions{
		Dir:    "/", // a folder that the namespace's root can always enter
		Env:    []string{"PATH=" + searchPath(), "TMPDIR=" + b.tempDir, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "HOME=/"},
		Stdout: out,
		Stderr: errs,
	})
	if err != nil {
		return fmt.Errorf("install the Debian packages with mmdebstrap: %w\n%s", err, errs)
	}
	return nil
}
