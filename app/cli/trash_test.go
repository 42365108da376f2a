package cli

import (
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

const twoLeft = `{"dir":"/t","bytes":7340032,"entries":[{"name":"p_1-1700000000000","at":1700000000000,"bytes":1048576},
	{"name":"machine-mabc-20231114T221320.000","at":1700000001000,"bytes":4194304},{"name":"machine-mlost-20231114T221320.000","at":1700000001000,"bytes":2097152}]}`

func deletable(t *testing.T) *doors {
	d := newDoors(t)
	d.answer["GET /v1/projects/shop"] = reply{200, `{"id":"p_1","name":"shop"}`}
	d.answer["GET /v1/projects/gone"] = reply{404, `{"code":"not_found","what":"there is no project \"gone\""}`}
	d.answer["DELETE /v1/projects/p_1"] = reply{200, `{}`}
	d.answer["GET /v1/trash"] = reply{200, twoLeft}
	d.answer["DELETE /v1/trash"] = reply{200, twoLeft}
	return d
}

// What a program deletes goes at once, by the id of what was named, and is named.
func TestDeleteWithoutATerminal(t *testing.T) {
	d := deletable(t)
	for n, args := range [][]string{{}, {"--yes"}} {
		r := line(t, "", append([]string{"project", "delete", "shop"}, args...)...)
		if r.code != 0 || r.out != "deleted project shop, p_1\n" || strings.Contains(r.err, "[y/N]") || len(d.called("DELETE", "/v1/projects/p_1")) != n+1 {
			t.Errorf("%q: %+v", args, r)
		}
		if r := line(t, "", append([]string{"trash", "empty"}, args...)...); r.code != 0 || r.out != "removed 3 entries, 7.0 MiB\n" || len(d.called("DELETE", "/v1/trash")) != n+1 {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := line(t, "", "--json", "project", "delete", "shop"); r.code != 0 || r.out != "{\n  \"id\": \"p_1\",\n  \"name\": \"shop\"\n}\n" || r.err != "" {
		t.Errorf("%+v", r)
	}
	if r := line(t, "", "project", "delete", "gone"); r.code != 1 || !strings.Contains(r.err, "there is no project") {
		t.Errorf("%+v", r)
	}
}

// A person is asked once; all but yes is a no.
func TestDeleteAtATerminal(t *testing.T) {
	for _, c := range []struct {
		args     []string
		question string
		call     string
	}{
		{[]string{"project", "delete", "shop"}, "Delete project shop? Its machine and workspace go to the trash. [y/N]", "/v1/projects/p_1"},
		{[]string{"trash", "empty"}, "Remove what deleted projects left, 7.0 MiB, for good? [y/N]", "/v1/trash"},
	} {
		for keys, code := range map[string]int{"y\n": 0, "YES\n": 0, "n\n": 1, "\n": 1, "shop\n": 1, "\x04": 1, "\x03": 130} {
			d := deletable(t)
			s := sit(t, c.args...)
			s.sees(c.question)
			s.types(keys)
			got := s.ends()
			if gone := len(d.called("DELETE", c.call)) == 1; got != code || gone != (code == 0) || strings.Count(s.text.String(), "[y/N]") != 1 || strings.Contains(s.text.String(), "nothing was deleted") != (code != 0) {
				t.Errorf("%q %q: %d, gone: %v\n%s", c.args, keys, got, gone, s.text.String())
			}
			d.shut()
		}
		d := deletable(t)
		s := sit(t, append(c.args, "--yes")...)
		if code := s.ends(); code != 0 || len(d.called("DELETE", c.call)) != 1 || strings.Contains(s.text.String(), "[y/N]") {
			t.Errorf("%q --yes: %d\n%s", c.args, code, s.text.String())
		}
		d.shut()
	}
	d := deletable(t)
	d.answer["GET /v1/trash"] = reply{200, `{"dir":"/t","entries":[]}`}
	s := sit(t, "trash", "empty")
	if code := s.ends(); code != 0 || strings.Contains(s.text.String(), "[y/N]") {
		t.Errorf("an empty one: %d\n%s", code, s.text.String())
	}
}

// The trash is told by project; a folder that the log knows nothing of by its name.
func TestTrash(t *testing.T) {
	d := deletable(t)
	d.tell(&event.ProjectCreated{Project: domain.Project{ID: "p_1", Name: "sh\x1bop", Machine: "mabc"}}, &event.ProjectCreated{Project: domain.Project{ID: "p_2", Name: "other", Machine: "mabcd"}})
	r := line(t, "", "trash")
	has(t, r.out, `sh\x1bop`, "p_1", "5.0 MiB", "machine-mlost-20231114T221320.000", "2.0 MiB", "7.0 MiB in all, in /t\n")
	if r.code != 0 || strings.Count(r.out, "\n") != 3 || strings.Contains(r.out, "other") {
		t.Errorf("%+v", r)
	}
	if r := line(t, "", "--json", "trash"); r.code != 0 || strings.Count(r.out, `"name"`) != 3 {
		t.Errorf("%+v", r)
	}
	d.answer["GET /v1/trash"] = reply{200, `{"dir":"/t","entries":[]}`}
	if r := line(t, "", "trash"); r.code != 0 || r.out != "nothing is in /t\n" {
		t.Errorf("%+v", r)
	}
}
