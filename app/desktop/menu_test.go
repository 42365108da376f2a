package desktop

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// An entry that names no action of the page would do nothing, and one that shows
// another key than the page answers to would mislead.
func TestMenusNameThePagesActions(t *testing.T) {
	id := regexp.MustCompile(`\{\s*id: '([a-z.:-]+)'[^\n]*`)
	key := regexp.MustCompile(`key: '([^']+)'`)
	keys := map[string]string{}
	err := filepath.WalkDir(filepath.Join("..", "..", "frontend", "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".svelte") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range id.FindAllStringSubmatch(string(b), -1) {
			keys[m[1]] = ""
			if k := key.FindStringSubmatch(m[0]); k != nil {
				keys[m[1]] = k[1]
			}
		}
		return nil
	})
	if err != nil || len(keys) < 10 {
		t.Fatalf("%d actions, %v", len(keys), err)
	}
	native := map[string]bool{"close": true, "larger": true, "smaller": true, "usual": true, "fullscreen": true, "connect": true}
	seen := map[string]bool{}
	for _, m := range menus {
		for _, e := range m.entries {
			if e == line {
				continue
			}
			if (e.action == "") == (e.native == "") || seen[e.label] {
				t.Errorf("%s: %+v", m.label, e)
			}
			seen[e.label] = true
			if e.native != "" && !native[e.native] && !edits[e.native] {
				t.Errorf("nobody does %q", e.native)
			}
			if e.action == "" {
				continue
			}
			k, there := keys[e.action]
			if !there {
				t.Errorf("%s: the page has no action %q", e.label, e.action)
			}
			if k != e.key {
				t.Errorf("%s shows %q; the page answers to %q", e.label, e.key, k)
			}
			// A key that both answered to would do it twice.
			if e.key != "" && (strokeOf(e.key).code == 0 || e.accel != "") {
				t.Errorf("%s: key %q, accelerator %q", e.label, e.key, e.accel)
			}
		}
	}
}

func TestStrokes(t *testing.T) {
	for in, want := range map[string]stroke{"n": {code: 'n'}, "Mod+,": {code: ',', control: true}, "Mod+Shift+z": {code: 'z', control: true, shift: true},
		"Escape": {code: 0xff1b}, "": {}, "Mod+Nonsense": {}} {
		if got := strokeOf(in); got != want {
			t.Errorf("%q: %+v", in, got)
		}
	}
}
