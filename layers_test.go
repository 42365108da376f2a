package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// ban says that packages below From import nothing below To, except those below Except.
type ban struct {
	from, to string
	except   []string // importing packages that may
	reason   string
}

var bans = []ban{
	{"glasshouse/backend/domain", "glasshouse/", nil, "nouns stand on the standard library alone"},
	{"glasshouse/backend", "glasshouse/app", nil, "the domain knows no doors"},
	{"glasshouse/backend", "glasshouse/vm/lima", nil, "drivers are chosen in the composition root"},
	{"glasshouse/backend", "glasshouse/vm/local", nil, "drivers are chosen in the composition root"},
	{"glasshouse/backend", "glasshouse/vm/netd", nil, "a driver's own process"},
	{"glasshouse/backend", "glasshouse/browser/cdp", nil, "the browser is reached by its contract"},
	{"glasshouse/backend", "glasshouse/vm/guest/client", nil, "the guest is reached by its contract"},
	{"glasshouse/backend", "glasshouse/vm/guest/agent", nil, "guest code runs in guests"},
	{"glasshouse/vm", "glasshouse/backend", nil, "machines know no projects"},
	{"glasshouse/vm", "glasshouse/app", nil, "machines know no doors"},
	{"glasshouse/vm", "glasshouse/browser", nil, "machines carry a pipe, not a browser"},
	{"glasshouse/browser", "glasshouse/backend", nil, "the browser knows no sessions"},
	{"glasshouse/browser", "glasshouse/vm", nil, "the browser is handed a pipe"},
	{"glasshouse/browser", "glasshouse/app", nil, "the browser knows no doors"},
	{"glasshouse/vm/guest", "glasshouse/vm/proc", nil, "guestd stays small and runs in the guest"},
	{"glasshouse/vm/guest", "glasshouse/vm/lima", nil, "guestd stays small"},
	{"glasshouse/vm/guest", "glasshouse/vm/local", nil, "guestd stays small"},
	{"glasshouse/vm/guest", "glasshouse/vm/image", nil, "guestd stays small"},
	{"glasshouse/vm/lima", "glasshouse/vm/local", nil, "drivers do not know each other"},
	{"glasshouse/vm/local", "glasshouse/vm/lima", nil, "drivers do not know each other"},
	{"glasshouse/app/httpapi", "glasshouse/app/cli", nil, "doors do not import each other"},
	{"glasshouse/app/httpapi", "glasshouse/app/desktop", nil, "doors do not import each other"},
	{"glasshouse/app/desktop", "glasshouse/app/cli", nil, "doors do not import each other"},
	{"glasshouse/app/desktop", "glasshouse/backend", nil, "the window is a client of the core"},
	{"glasshouse", "github.com/wailsapp", []string{"glasshouse/app/desktop", "glasshouse/build/bench/ui/barewindow"}, "one importer of the window toolkit; beside it the bare window that it is measured against"},
	{"glasshouse", "github.com/chromedp", []string{"glasshouse/browser/cdp"}, "one importer of the DevTools protocol"},
	{"glasshouse", "github.com/fsnotify", nil, "the watcher reads inotify itself (docs/adr/0004)"},
	{"glasshouse", "github.com/chromedp/chromedp", nil, "it trusts events of a guest (docs/adr/0001)"},
	{"glasshouse", "github.com/danielgtaylor/huma", []string{"glasshouse/app/httpapi"}, "one importer of the API library"},
	{"glasshouse", "modernc.org/sqlite", []string{"glasshouse/backend/eventlog"}, "one owner of the database"},
	{"glasshouse/backend/model", "glasshouse/backend/session", nil, "models know no sessions"},
	{"glasshouse/backend/model", "glasshouse/backend/event", nil, "models know no log"},
	{"glasshouse/backend/model", "glasshouse/backend/agent", nil, "models know no agents"},
	{"glasshouse/backend/model", "glasshouse/backend/tool", nil, "models know no tools of ours"},
	{"glasshouse/backend/session", "glasshouse/backend/agent", nil, "sessions know no agents"},
	{"glasshouse/backend/session", "glasshouse/backend/model", nil, "sessions know no models"},
	{"glasshouse/backend/agent", "glasshouse/backend/model/openai", nil, "adapters are chosen in the composition root"},
	{"glasshouse/backend/agent", "glasshouse/backend/model/anthropic", nil, "adapters are chosen in the composition root"},
	{"glasshouse", "github.com/openai/openai-go", []string{"glasshouse/backend/model/openai"}, "one importer of the library of OpenAI's formats"},
	{"glasshouse", "github.com/anthropics", []string{"glasshouse/backend/model/anthropic"}, "one importer of the library of Anthropic's format"},
	{"glasshouse", "github.com/zalando/go-keyring", []string{"glasshouse/backend/secret"}, "one owner of the keychain"},
	{"glasshouse", "os/exec", []string{"glasshouse/vm/proc", "glasshouse/vm/guest"}, "host processes start through one runner"},
}

// lookups may import os/exec for LookPath alone; a grep below holds them to it.
var lookups = []string{"glasshouse/vm/lima", "glasshouse/vm/local", "glasshouse/vm/image", "glasshouse/backend/git"}

func under(pkg, root string) bool {
	return pkg == root || strings.HasPrefix(pkg, strings.TrimSuffix(root, "/")+"/")
}

func TestImportsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "-tags", "desktop,production", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pkg := f[0]
		seen[pkg] = true
		for _, imp := range f[1:] {
			for _, b := range bans {
				if !under(pkg, b.from) || !under(imp, b.to) {
					continue
				}
				if imp == pkg || under(imp, b.from) && strings.HasPrefix(b.to, "glasshouse") && under(b.from, b.to) {
					continue
				}
				if slices.ContainsFunc(b.except, func(e string) bool { return under(pkg, e) }) {
					continue
				}
				// Packages of helpers for tests, which the next test holds to that.
				if imp == "os/exec" && strings.HasSuffix(pkg, "test") {
					continue
				}
				if imp == "os/exec" && slices.ContainsFunc(lookups, func(e string) bool { return under(pkg, e) }) {
					onlyLooksUp(t, pkg)
					continue
				}
				t.Errorf("%s imports %s: %s", pkg, imp, b.reason)
			}
		}
	}
	for _, b := range bans {
		if !slices.ContainsFunc(slices.Collect(keys(seen)), func(p string) bool { return under(p, b.from) }) {
			t.Errorf("the ban on %s from %s holds for no package: is the name right?", b.to, b.from)
		}
	}
}

func keys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// onlyLooksUp fails when a package that may look programs up also starts them.
func onlyLooksUp(t *testing.T, pkg string) {
	dir := "./" + strings.TrimPrefix(pkg, "glasshouse/")
	out, _ := exec.Command("grep", "-nE", `exec\.Command(Context)?\(`, "-r", "--include=*.go", "--exclude=*_test.go", dir).Output()
	if len(out) > 0 {
		t.Errorf("%s starts processes past the runner:\n%s", pkg, out)
	}
}

// Packages whose name ends in test are for tests: no program may hold them.
func TestTestHelpersStayInTests(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".", "./vm/guest/cmd/guestd").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(pkg, "glasshouse/") && (strings.HasSuffix(pkg, "test") || pkg == "glasshouse/app/e2e") {
			t.Errorf("the program holds %s", pkg)
		}
	}
}
