package review

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"glasshouse/backend/git/odb"
	"glasshouse/backend/git/packcheck"
)

// Kinds of flags.
const (
	FlagExec        = "exec"         // becomes executable
	FlagModeOnly    = "mode-only"    // nothing but the mode changed
	FlagSymlink     = "symlink"      // a link inside the project
	FlagSymlinkOut  = "symlink-out"  // an absolute link or one that leaves the project
	FlagSubmodule   = "submodule"    // content outside this review
	FlagCI          = "ci"           // runs on a build service
	FlagHook        = "hook"         // runs on a developer's machine
	FlagLockfile    = "lockfile"     // decides which packages are fetched
	FlagInstall     = "install"      // runs when the project is installed or built
	FlagGitFile     = "git-file"     // changes what git ignores, converts or fetches
	FlagGitModules  = "git-modules"  // an address or path in .gitmodules that could harm
	FlagBinary      = "binary"       // bytes that cannot be read
	FlagLarge       = "large"        // more than 1 MiB
	FlagDeletedTest = "deleted-test" // a test is gone
	FlagBidi        = "bidi"         // text that is shown in another order than it is read
	FlagInvisible   = "invisible"    // characters that cannot be seen
	FlagMinified    = "minified"     // lines too long to read
	FlagAgent       = "agent-config" // settings that editors or agents act upon
	FlagShell       = "shell-config" // runs when a shell or tool starts
	FlagName        = "name"         // a file name with hidden or odd characters
	FlagLFS         = "lfs"          // a pointer to content that is kept elsewhere
	FlagCaseTwin    = "case-twin"    // two names that are one on some systems
)

const largeFile = 1 << 20

var agentNames = map[string]bool{
	".mcp.json": true, "mcp.json": true, ".cursorrules": true, ".windsurfrules": true, ".clinerules": true, "claude.md": true, "agents.md": true, "gemini.md": true,
	".aider.conf.yml": true, "copilot-instructions.md": true, ".editorconfig": true,
}

var agentFolders = []string{".vscode", ".idea", ".cursor", ".claude", ".codex", ".gemini", ".zed", ".windsurf", ".devcontainer", ".continue", ".agents", ".fleet"}

var shellNames = map[string]bool{
	".bashrc": true, ".bash_profile": true, ".bash_login": true, ".profile": true, ".zshrc": true, ".zprofile": true, ".zshenv": true, ".zlogin": true, ".envrc": true,
	".gitconfig": true, ".ripgreprc": true, ".npmrc": true, ".yarnrc": true, ".yarnrc.yml": true, ".pypirc": true, "pip.conf": true, ".tool-versions": true, "mise.toml": true, ".inputrc": true, ".vimrc": true, ".exrc": true,
}

var lockNames = map[string]bool{
	"package-lock.json": true, "npm-shrinkwrap.json": true, "yarn.lock": true, "pnpm-lock.yaml": true, "bun.lock": true, "bun.lockb": true, "go.sum": true, "cargo.lock": true,
	"poetry.lock": true, "pipfile.lock": true, "uv.lock": true, "pdm.lock": true, "gemfile.lock": true, "composer.lock": true, "packages.lock.json": true, "flake.lock": true, "mix.lock": true, "gradle.lockfile": true,
}

var ciNames = map[string]bool{
	".gitlab-ci.yml": true, "jenkinsfile": true, "azure-pipelines.yml": true, ".travis.yml": true, ".drone.yml": true, "bitbucket-pipelines.yml": true, "appveyor.yml": true, ".appveyor.yml": true,
	"cloudbuild.yaml": true, ".woodpecker.yml": true, "codefresh.yml": true, "buildspec.yml": true, ".cirrus.yml": true, "wercker.yml": true, "dockerfile": true,
}

var installNames = map[string]bool{
	"setup.py": true, "build.rs": true, "conftest.py": true, "binding.gyp": true, "makefile": true, "gnumakefile": true, "extconf.rb": true, "rakefile": true, "configure": true, "sitecustomize.py": true,
	"build.gradle": true, "build.gradle.kts": true, "gulpfile.js": true, "gruntfile.js": true, "cmakelists.txt": true, "justfile": true, "noxfile.py": true, "tox.ini": true,
}

var hookNames = map[string]bool{".pre-commit-config.yaml": true, "lefthook.yml": true, ".lefthook.yml": true, ".lintstagedrc": true, ".huskyrc": true, ".overcommit.yml": true}

// flag marks what a person should look at twice.
func (b *builder) flag(f *File, ot, nt string) {
	add := func(kind, format string, a ...any) {
		f.Flags = append(f.Flags, Flag{kind, fmt.Sprintf(format, a...)})
	}
	b.flagMode(f, nt, add)
	flagPath(f, nt, add)
	switch {
	case f.Binary:
		add(FlagBinary, "its bytes cannot be reviewed as text")
	case f.Op != OpDelete && f.OldOID != f.NewOID:
		if strings.HasPrefix(nt, "version https://git-lfs.github.com/spec/") {
			add(FlagLFS, "a pointer: the content itself is kept elsewhere and is not part of this review")
		}
		flagText(f, ot, nt, add)
	}
	if f.NewSize > largeFile {
		add(FlagLarge, "%d bytes", f.NewSize)
	}
}

func (b *builder) flagMode(f *File, nt string, add func(string, string, ...any)) {
	switch {
	case f.NewMode == odb.ModeExec && f.OldMode != odb.ModeExec:
		add(FlagExec, "the file becomes executable")
	case f.Op == OpMode:
		add(FlagModeOnly, "only the mode changes, %06o to %06o", f.OldMode, f.NewMode)
	}
	switch {
	case f.NewMode == odb.ModeLink && f.OldOID != f.NewOID:
		switch target := nt; {
		case f.Whole != "" && target == "":
			add(FlagSymlinkOut, "a link whose target cannot be shown")
		case strings.HasPrefix(target, "/") || strings.Contains(target, `\`) || len(target) > 1 && target[1] == ':':
			add(FlagSymlinkOut, "an absolute link to %s", Display(clip(target, 200)))
		case leaves(path.Dir(f.Path), target):
			add(FlagSymlinkOut, "the link leaves the project: %s", Display(clip(target, 200)))
		default:
			add(FlagSymlink, "a link to %s", Display(clip(target, 200)))
		}
	case f.NewMode == odb.ModeGitlink:
		add(FlagSubmodule, "a submodule: what commit %s holds is not part of this review", clip(f.NewOID, 12))
	}
}

// leaves reports whether a relative link from dir ends, or passes, outside the project.
func leaves(dir, target string) bool {
	depth := 0
	if dir != "." {
		depth = strings.Count(dir, "/") + 1
	}
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

func flagPath(f *File, nt string, add func(string, string, ...any)) {
	low := strings.ToLower(f.Path)
	name, dir := path.Base(low), path.Dir(low)
	in := func(folder string) bool {
		return strings.HasPrefix(low, folder+"/") || strings.Contains(low, "/"+folder+"/")
	}
	switch {
	case in(".github/workflows"), in(".github/actions"), in(".circleci"), in(".buildkite"), in(".woodpecker"), in(".gitea/workflows"), in(".forgejo/workflows"), in(".gitlab"), ciNames[name]:
		add(FlagCI, "it runs on a build service, with its secrets")
	case in(".husky"), in(".githooks"), in("hooks") && strings.Contains(dir, "git"), hookNames[name]:
		add(FlagHook, "it may run on the machine of whoever commits or checks out")
	case lockNames[name]:
		add(FlagLockfile, "it decides which packages are fetched")
	case installNames[name]:
		add(FlagInstall, "it runs when the project is installed, built or tested")
	}
	switch name {
	case ".gitignore", ".gitattributes", ".lfsconfig":
		add(FlagGitFile, "it changes what git ignores, converts or filters")
	case ".gitmodules":
		add(FlagGitFile, "it names other repositories that are fetched")
		for _, why := range packcheck.CheckModules([]byte(nt)) {
			add(FlagGitModules, "%s", Display(why))
		}
	case "package.json":
		if f.Op != OpDelete && f.OldOID != f.NewOID {
			for _, s := range []string{"preinstall", "install", "postinstall", "prepare", "prepublish", "prepack"} {
				if changedLine(f, `"`+s+`"`) {
					add(FlagInstall, "the script %q runs when the package is installed", s)
				}
			}
		}
	}
	if agentNames[name] {
		add(FlagAgent, "editors or agents act upon it")
	} else {
		for _, d := range agentFolders {
			if in(d) {
				add(FlagAgent, "editors or agents act upon what is in %s", d)
				break
			}
		}
	}
	if shellNames[name] {
		add(FlagShell, "it takes effect when a shell or tool starts")
	}
	if f.Op == OpDelete && isTest(low) {
		add(FlagDeletedTest, "a test is deleted")
	}
	if f.Op == OpRename && isTest(strings.ToLower(f.OldPath)) && !isTest(low) {
		add(FlagDeletedTest, "what was a test is renamed to something that is none")
	}
	switch {
	case f.Display != f.Path:
		add(FlagName, "the name holds characters that hide or mislead")
	case oddSpaces(f.Path):
		add(FlagName, "the name holds spaces that cannot be told apart or seen")
	}
}

// oddSpaces reports spaces at the ends of a part of a path, two in a row, and all
// that look like a space and are none.
func oddSpaces(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if strings.Trim(part, " ") != part || strings.Contains(part, "  ") {
			return true
		}
	}
	return strings.ContainsFunc(p, func(r rune) bool { return r != ' ' && unicode.Is(unicode.Zs, r) })
}

func isTest(low string) bool {
	name := path.Base(low)
	stem := strings.TrimSuffix(name, path.Ext(name))
	for _, p := range []string{"test_", "spec_"} {
		if strings.HasPrefix(stem, p) {
			return true
		}
	}
	for _, s := range []string{"_test", ".test", ".spec", "_spec", "-test", "-spec", "tests"} {
		if strings.HasSuffix(stem, s) {
			return true
		}
	}
	for part := range strings.SplitSeq(path.Dir(low), "/") {
		switch part {
		case "test", "tests", "__tests__", "spec", "specs", "testdata":
			return true
		}
	}
	return false
}

func changedLine(f *File, word string) bool {
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			if l.Op == "+" && strings.Contains(l.Text, word) {
				return true
			}
		}
	}
	return false
}

// flagText looks at the added lines.
func flagText(f *File, ot, nt string, add func(string, string, ...any)) {
	bidi, invisible, longest := 0, 0, 0
	look := func(line string) {
		longest = max(longest, len(line))
		for _, r := range line {
			switch {
			case r < 0x80:
			case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c:
				bidi++
			case r == 0x200b, r == 0x200c, r == 0x200d, r == 0x2060, r == 0xfeff, r == 0x00ad, r == 0x034f, r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, r == 0x180e,
				r >= 0xe0000 && r <= 0xe007f, r >= 0xe0100 && r <= 0xe01ef, r >= 0x2061 && r <= 0x2064:
				invisible++
			}
		}
	}
	if len(f.Hunks) > 0 {
		for _, h := range f.Hunks {
			for _, l := range h.Lines {
				if l.Op == "+" {
					look(l.Text)
				}
			}
		}
	} else if nt != "" {
		for l := range strings.SplitSeq(nt, "\n") {
			look(l)
		}
	}
	if bidi > 0 {
		add(FlagBidi, "%d characters change the order in which text is shown", bidi)
	}
	if invisible > 0 {
		if invisible == 1 {
			add(FlagInvisible, "a character in it cannot be seen")
		} else {
			add(FlagInvisible, "%d characters cannot be seen", invisible)
		}
	}
	if longest > 2000 {
		add(FlagMinified, "a line of %d bytes", longest)
	}
}

// flagTwins marks new names that some file systems take for another one in the review.
func flagTwins(r *Review) {
	seen := map[string]int{}
	for i := range r.Files {
		f := &r.Files[i]
		if f.Op == OpDelete {
			continue
		}
		low := strings.ToLower(f.Path)
		if j, ok := seen[low]; ok && r.Files[j].Path != f.Path {
			f.Flags = append(f.Flags, Flag{FlagCaseTwin, "on some systems it is the same file as " + r.Files[j].Display})
		} else {
			seen[low] = i
		}
	}
}
