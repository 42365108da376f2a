package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

const restoreDoor = "/v1/projects/p_1/restore"

var (
	keptBefore = strings.Repeat("a1", 20)
	someState  = strings.Repeat("b2", 20)
)

// restores lets the doors of a test answer a restore.
func (d *doors) restores(status int, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer["POST "+restoreDoor] = reply{status, body}
	d.answer["GET /v1/projects/shop"] = reply{200, `{"id":"p_1","name":"shop"}`}
	d.answer["GET /v1/projects/gone"] = reply{404, `{"code":"not_found","what":"there is no project \"gone\""}`}
}

// restorable is a session with two steps.
func restorable(t *testing.T) *doors {
	d := newDoors(t)
	d.tellStep("st_a", &event.StepRequested{Number: 1, Tool: "exec"})
	d.tellStep("st_b", &event.StepRequested{Number: 2, Tool: "exec"}, &event.StepStarted{})
	d.mu.Lock()
	for i := range d.log {
		d.log[i].ProjectID = "p_1"
	}
	d.mu.Unlock()
	return d
}

func restoreBody(t *testing.T, outcome domain.Outcome, files int, logs ...string) string {
	changes := []event.FileChange{{Path: "a\x1b[31m", Op: "modify"}, {Path: "new", OldPath: "old", Op: "rename"}}
	for i := len(changes); i < files; i++ {
		changes = append(changes, event.FileChange{Path: fmt.Sprintf("f%d", i), Op: "add"})
	}
	b, err := json.Marshal(map[string]any{"session_id": "s_9", "execution_id": "st_9", "state": "sealed", "outcome": outcome, "file_changes": changes, "before": keptBefore, "files": files, "logs": logs})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRestore(t *testing.T) {
	d := restorable(t)
	d.restores(200, restoreBody(t, domain.OutcomeOK, 1234))
	for _, c := range []struct {
		says, sent string
		args       []string
	}{
		{"as it was after step 2; 1,234 files changed\n", `{"step":"st_b","side":"after"}`, []string{"--session", doorSession, "2"}},
		{"as it was before step 1; 1,234 files changed\n", `{"step":"st_a","side":"before"}`, []string{"--session", doorSession, "--before", "1"}},
		{"as it was after step 2; 1,234 files changed\n", `{"step":"st_b","side":"after"}`, []string{"st_b"}},
		{"as it was after step 1; 1,234 files changed\n", `{"step":"st_a","side":"after"}`, []string{"--session", doorSession, "st_a"}},
		{"as it was in checkpoint b2b2b2b2b2b2…; 1,234 files changed\n", `{"checkpoint":"` + someState + `"}`, []string{"--project", "shop", "--checkpoint", someState}},
		{"as it was in checkpoint b2b2b2b2b2b2…; 1,234 files changed\n", `{"checkpoint":"` + someState + `","session_id":"` + doorSession + `"}`, []string{"--session", doorSession, "--checkpoint", someState}},
	} {
		before := len(d.called("POST", restoreDoor))
		r := line(t, "", append([]string{"restore"}, c.args...)...)
		sent := d.called("POST", restoreDoor)
		if r.code != 0 || len(sent) != before+1 || sent[before] != c.sent {
			t.Errorf("%q: %d %s, sent %q", c.args, r.code, r.err, sent[before:])
		}
		has(t, r.out, c.says, "  modify   a\\x1b[31m\n", "  rename   old → new\n", "  add      f99\n", "  and 1,134 more\n", "kept in checkpoint "+keptBefore, "\n  glasshouse restore --session s_9 --checkpoint "+keptBefore+"\n")
		if strings.Contains(r.out, "f100") {
			t.Errorf("too much is named: %s", r.out)
		}
	}
	// One that has ended takes nothing more: what undoes a restore still goes.
	d.answer["GET /v1/sessions/s_9"] = reply{200, `{"id":"s_9","project_id":"p_1","state":"ended"}`}
	before := len(d.called("POST", restoreDoor))
	if r := line(t, "", "restore", "--session", "s_9", "--checkpoint", keptBefore); r.code != 0 || !strings.Contains(r.err, "s_9 has ended; the restore stands in a new one") ||
		d.called("POST", restoreDoor)[before] != `{"checkpoint":"`+keptBefore+`"}` {
		t.Errorf("%+v %q", r, d.called("POST", restoreDoor)[before:])
	}
	// The help's own words are no example that is refused.
	if h := line(t, "", "restore", "--help"); strings.Contains(h.out, "4f6e") || !strings.Contains(h.out, "all of its 40 digits, as 'glasshouse log' shows it") {
		t.Errorf("%+v", h)
	}
	r := line(t, "", "--json", "restore", "st_b")
	var a struct {
		Before string
		Files  int
	}
	if r.code != 0 || r.err != "" || json.Unmarshal([]byte(r.out), &a) != nil || a.Before != keptBefore || a.Files != 1234 {
		t.Errorf("%+v", r)
	}
	d.restores(200, restoreBody(t, domain.OutcomeOK, 0))
	if r := line(t, "", "restore", "st_b"); r.code != 0 || r.out != "no file had to change: the workspace is as it was after step 2\n" {
		t.Errorf("%+v", r)
	}
}

// A repository that was destroyed is told of, whatever else there was to do.
func TestRestoreOfARepository(t *testing.T) {
	d := restorable(t)
	for _, files := range []int{0, 2} {
		d.restores(200, strings.Replace(restoreBody(t, domain.OutcomeOK, files), "{", `{"repository":"made\u001b anew",`, 1))
		if r := line(t, "", "restore", "st_b"); r.code != 0 || !strings.HasPrefix(r.out, "the repository, .git, was destroyed: made\\x1b anew\n") {
			t.Errorf("%+v", r)
		}
	}
}

func TestRestoreThatCannotBe(t *testing.T) {
	d := restorable(t)
	d.restores(200, "{}")
	for _, c := range []struct {
		code int
		says string
		args string
	}{
		{2, "either a STEP or a --checkpoint", ""},
		{2, "either a STEP or a --checkpoint", "st_a --checkpoint " + someState},
		{2, "it takes STEP", "st_a st_b"},
		{2, "--before is for a STEP", "--before --project shop --checkpoint " + someState},
		{2, "40 or 64", "--project shop --checkpoint beef"},
		{2, "40 or 64", "--project shop --checkpoint " + strings.ToUpper(someState)},
		{2, "--project with --checkpoint", "--checkpoint " + someState},
		{2, "--project with --checkpoint", "--project shop --session s_1 --checkpoint " + someState},
		{2, "--project is for --checkpoint", "--project shop st_a"},
		{2, "give --session too", "12"},
		{1, "has no step 3", "--session " + doorSession + " 3"},
		{1, "has no step 0", "--session " + doorSession + " 0"},
		{1, "has no step st_z", "--session " + doorSession + " st_z"},
		{1, "there is no step st_z", "st_z"},
		{2, "no step 99999999999999999999", "--session " + doorSession + " 99999999999999999999"},
		{1, "no project", "--project gone --checkpoint " + someState},
		{1, "there is no GET /v1/sessions/s_none", "--session s_none 1"},
	} {
		r := line(t, "", append([]string{"restore"}, strings.Fields(c.args)...)...)
		if r.code != c.code || r.out != "" || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	if n := len(d.called("POST", restoreDoor)); n != 0 {
		t.Errorf("%d restores", n)
	}
	d.restores(409, `{"code":"conflict","what":"step 7 (Run sleep) is at work in session s_2 of this project; nothing was restored","hint":"stop it, or wait for its end, and restore then"}`)
	if r := line(t, "", "restore", "st_a"); r.code != 1 || !strings.Contains(r.err, "is at work in session s_2") || !strings.Contains(r.err, "stop it, or wait") {
		t.Errorf("%+v", r)
	}
	// A step that did not go through is no success, and what was there can be had back.
	d.restores(200, restoreBody(t, domain.OutcomeUnknown, 3, "the connection broke"))
	r := line(t, "", "restore", "st_a")
	if r.code != 1 || r.out != "" {
		t.Errorf("%+v", r)
	}
	has(t, r.err, "the restore ended unknown: the connection broke", "glasshouse restore --session s_9 --checkpoint "+keptBefore)
	d.restores(200, `{"session_id":"s_9","state":"denied","logs":["step 3 of session s_2 is at work in the workspace"]}`)
	if r := line(t, "", "restore", "st_a"); r.code != 1 || !strings.Contains(r.err, "nothing was restored: step 3 of session s_2 is at work") {
		t.Errorf("%+v", r)
	}
	if r := line(t, "", "--json", "restore", "st_a"); r.code != 1 || !strings.Contains(r.out, `"denied"`) {
		t.Errorf("%+v", r)
	}
}
