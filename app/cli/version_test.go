package cli

import (
	"fmt"
	"strings"
	"testing"

	"glasshouse/app/httpapi"
)

// runs lets the core of a test say what program it runs.
func (d *doors) runs(version string, api int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer["GET /v1/info"] = reply{200, fmt.Sprintf(`{"version":%q,"program":{"api":%d}}`, version, api)}
}

func ofVersion(t *testing.T, v string) {
	old := Version
	Version = v
	t.Cleanup(func() { Version = old })
}

func TestACoreOfAnotherVersionIsTold(t *testing.T) {
	d := newDoors(t)
	ofVersion(t, "v2")
	d.runs("v1", httpapi.Generation)
	for _, args := range [][]string{{"model", "list"}, {"--json", "model", "list"}, {"session", "show", doorSession}} {
		r := line(t, "", args...)
		if r.code != 0 || strings.Count(r.err, "the core that runs is Glasshouse v1 and this is v2") != 1 || strings.Contains(r.out, "Glasshouse v1") {
			t.Errorf("%q: %d\n%s\n%s", args, r.code, r.out, r.err)
		}
		if n := len(strings.Split(strings.TrimSpace(r.err), "\n")); args[0] == "--json" && n != 1 {
			t.Errorf("%q: %d lines beside the answer: %s", args, n, r.err)
		}
	}
	d.runs("v2", httpapi.Generation)
	if r := line(t, "", "model", "list"); r.code != 0 || strings.Contains(r.err, "the core that runs") {
		t.Errorf("of the same version: %d %s", r.code, r.err)
	}
}

func TestACoreThatWouldBeMisunderstoodIsLeftAlone(t *testing.T) {
	d := newDoors(t)
	ofVersion(t, "v2")
	d.runs("v3", httpapi.Generation+1)
	for _, args := range [][]string{{"model", "list"}, {"--json", "session", "end", doorSession}, {"run", "--session", doorSession, "x"}} {
		r := line(t, "", args...)
		if r.code != 1 || r.out != "" || strings.Count(r.err, "do not understand each other") != 1 || !strings.Contains(r.err, "'glasshouse quit'") {
			t.Errorf("%q: %d\n%s\n%s", args, r.code, r.out, r.err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c.path != "/v1/info" {
			t.Errorf("it was called: %s %s", c.method, c.path)
		}
	}
}
