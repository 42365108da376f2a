package core

import (
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glasshouse/app/config"
	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

// opened is a core that nobody serves, and its door.
func opened(t *testing.T, p config.Paths) (*Core, func(method, path, body string, out any, head ...string) int) {
	t.Helper()
	c, err := open(context.Background(), Options{Paths: p, Version: "test", Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	h := c.Handler()
	return c, func(method, path, body string, out any, head ...string) int {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if out != nil {
			if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
				t.Fatalf("%s %s: %v: %s", method, path, err, w.Body.String())
			}
		}
		return w.Code
	}
}

func TestSettingsByTheDoor(t *testing.T) {
	p := paths(t)
	write(t, p.ConfigFile(), "# mine\nquestion_minutes = 5 # short\n")
	c, call := opened(t, p)
	// An editor wrote it while the core runs.
	write(t, p.ConfigFile(), "# mine\nquestion_minutes = 5 # short\nlimactl = \"/opt/limactl\"\n")
	var v httpapi.SettingsView
	if call("GET", "/v1/settings", "", &v) != 200 || v.Settings.QuestionMinutes != 5 || v.Usual.HoldSeconds != 300 || v.Usual.Machine == "" || !slices.Equal(v.Waiting, []string{"limactl"}) || v.Problem != "" {
		t.Fatalf("%+v", v)
	}
	if v.Paths.Data != p.Data || v.Paths.Settings != p.ConfigFile() || v.Paths.Policy != p.PolicyFile() || v.Paths.Logs != p.Logs() {
		t.Errorf("%+v", v.Paths)
	}
	body := func(s config.Settings) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	s := config.Settings{Machine: "lima", CPUs: 3, Memory: 1024, Disk: 20, QuestionMinutes: 7, HoldSeconds: 11, Resolver: "192.0.2.7:53", Limactl: "/opt/limactl"}
	if code := call("PUT", "/v1/settings", body(s), &v); code != 200 || v.Settings != s || !slices.Equal(v.Waiting, []string{"limactl"}) || v.Applies["limactl"] != "restart" {
		t.Fatalf("%d %+v", code, v)
	}
	if text, _ := os.ReadFile(p.ConfigFile()); !strings.HasPrefix(string(text), "# mine\nquestion_minutes = 7 # short\n") {
		t.Errorf("%s", text)
	}
	// What counts at once counts.
	if c.questionLife().Minutes() != 7 || c.hold().Seconds() != 11 || c.projects.DefaultKind() != "lima" || c.set.get().Limactl != "" {
		t.Errorf("%+v", c.set.get())
	}
	evs, err := c.events.Read(t.Context(), eventlog.Filter{Types: []event.Type{"settings.changed"}})
	if err != nil || len(evs) != 1 || evs[0].Actor != "person" || !strings.Contains(string(evs[0].Data), "hold_seconds") {
		t.Errorf("%+v %v", evs, err)
	}
	// Saved again as it is: nothing changed, so nothing is told.
	if call("PUT", "/v1/settings", body(s), &v) != 200 {
		t.Error("refused")
	}
	if evs, _ = c.events.Read(t.Context(), eventlog.Filter{Types: []event.Type{"settings.changed"}}); len(evs) != 1 {
		t.Errorf("%d events", len(evs))
	}
	before, _ := os.ReadFile(p.ConfigFile())
	for at, edit := range map[string]func(*config.Settings){
		"/cpus": func(s *config.Settings) { s.CPUs = 9999 }, "/memory_mib": func(s *config.Settings) { s.Memory = -1 }, "/machine": func(s *config.Settings) { s.Machine = "cloud" },
		"/resolver": func(s *config.Settings) { s.Resolver = "nowhere" }, "/hold_seconds": func(s *config.Settings) { s.HoldSeconds = -3 },
	} {
		bad := s
		edit(&bad)
		var e struct{ Code, Pointer, Hint string }
		if code := call("PUT", "/v1/settings", body(bad), &e); code != 422 || e.Pointer != at || e.Hint == "" {
			t.Errorf("%s: %d %+v", at, code, e)
		}
	}
	if code := call("PUT", "/v1/settings", body(config.Settings{}), nil, "X-Glasshouse-Actor", "agent"); code != 403 {
		t.Errorf("an agent: %d", code)
	}
	// Whoever reaches the door may not say which program runs on this computer.
	for _, other := range []string{"/tmp/evil", "rel"} {
		bad, e := s, struct{ Code, Pointer, Hint string }{}
		bad.Limactl = other
		if code := call("PUT", "/v1/settings", body(bad), &e); code != 403 || e.Pointer != "/limactl" || !strings.Contains(e.Hint, p.ConfigFile()) {
			t.Errorf("limactl %q: %d %+v", other, code, e)
		}
	}
	if after, _ := os.ReadFile(p.ConfigFile()); string(after) != string(before) {
		t.Error("something refused was written")
	}
	bundled := s
	bundled.Limactl = ""
	if code := call("PUT", "/v1/settings", body(bundled), &v); code != 200 || v.Settings != bundled {
		t.Errorf("back to the bundled one: %d %+v", code, v)
	}
	// A file somebody broke meanwhile is shown as broken, and not written over.
	write(t, p.ConfigFile(), "cpus = \"many\"\n")
	if call("GET", "/v1/settings", "", &v) != 200 || v.Problem == "" || v.Settings.CPUs != 3 {
		t.Errorf("%+v", v)
	}
	if code := call("PUT", "/v1/settings", body(s), nil); code != 422 {
		t.Errorf("%d", code)
	}
	// One somebody changed by hand waits.
	write(t, p.ConfigFile(), "cpus = 5\n")
	v = httpapi.SettingsView{}
	if call("GET", "/v1/settings", "", &v) != 200 || v.Settings.CPUs != 5 || !slices.Contains(v.Waiting, "cpus") {
		t.Errorf("%+v", v)
	}
}

func TestRulesFilesDecideAtTheGate(t *testing.T) {
	p := paths(t)
	c, call := opened(t, p)
	says := func(host string) string {
		t.Helper()
		to, err := egress.ParseTarget(host+":443", 0)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := c.matchEgress(egress.Scope{Project: "p_1"}, to)
		if !ok {
			return "ask"
		}
		return string(r.Decision) + " " + r.Name
	}
	if got := says("a.example"); got != "ask" {
		t.Fatal(got)
	}
	write(t, p.PolicyFile(), "[[rule]]\nid = \"good\"\ndecision = \"allow\"\nhost = [\"a.example\"]\n[[rule]]\nid = \"bad\"\ndecision = \"deny\"\nhost = [\"b.example\"]\nreason = \"We do not go there.\"\n")
	if a, b, o := says("a.example"), says("b.example"), says("c.example"); a != "allow user:good" || b != "deny user:bad" || o != "ask" {
		t.Fatalf("%s, %s, %s", a, b, o)
	}
	grant := func(host string, d domain.Decision) {
		t.Helper()
		if _, err := c.ledger.AddGrant(t.Context(), "p_1", "", event.RuleAdded{Kind: "egress", Scope: "project", Decision: d, Host: host, Port: 443, Text: host}, "person"); err != nil {
			t.Fatal(err)
		}
	}
	grant("a.example", domain.Deny)
	grant("b.example", domain.Allow)
	if a, b := says("a.example"), says("b.example"); !strings.HasPrefix(a, "deny ") || a == "deny user:bad" || b != "deny user:bad" {
		t.Errorf("the stricter holds: %s, %s", a, b)
	}
	var v httpapi.PolicyView
	if call("GET", "/v1/policy", "", &v) != 200 || v.Fault != "" || len(v.Files) != 2 || v.Files[1].Path != p.PolicyFile() || !strings.Contains(v.Files[1].Text, "good") {
		t.Errorf("%+v", v)
	}
	if i := slices.IndexFunc(v.Rules, func(r httpapi.PolicyRule) bool { return r.ID == "user:bad" }); i < 0 || v.Rules[i].Text != "deny: host b.example" || v.Rules[i].Reason == "" {
		t.Errorf("%+v", v.Rules)
	}
	version := v.Version
	write(t, p.PolicyFile(), "[[rule]]\nid = \"good\"\ndecision = \"alow\"\n")
	v = httpapi.PolicyView{}
	if call("POST", "/v1/policy/reload", "", &v) != 200 || v.Fault == "" || v.Files[1].Fault == "" || v.Version != version {
		t.Errorf("%+v", v)
	}
	if got := says("b.example"); got != "deny user:bad" {
		t.Errorf("a file that went bad opens nothing: %s", got)
	}
	var e struct{ Code string }
	if code := call("GET", "/v1/policy?project_id=nobody", "", &e); code != 404 {
		t.Errorf("%d %+v", code, e)
	}
}

func TestDoctorSaysWhatToDo(t *testing.T) {
	p := paths(t)
	t.Setenv("GLASSHOUSE_LIBEXEC", t.TempDir()) // nothing of ours is there
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	_, call := opened(t, p)
	write(t, p.PolicyFile(), "nonsense")
	write(t, p.ConfigFile(), "cpus = -1\n")
	var d httpapi.Doctor
	if call("GET", "/v1/doctor", "", &d) != 200 || d.OK {
		t.Fatalf("%+v", d)
	}
	lines := map[string]httpapi.DoctorLine{}
	for _, l := range d.Lines {
		lines[l.Name] = l
		if l.Text == "" || l.OK != (l.Fix == "") {
			t.Errorf("%+v", l)
		}
	}
	for name, ok := range map[string]bool{"guestd": false, "policy": false, "settings": false, "log": true, "git": true} {
		if l, there := lines[name]; !there || l.OK != ok {
			t.Errorf("%s: %+v", name, l)
		}
	}
	for _, name := range []string{"machine lima", "guest image", "disk for data", "disk for images", "image tools", "window"} {
		if _, there := lines[name]; !there {
			t.Errorf("no line about %s", name)
		}
	}
	dir := t.TempDir()
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if l := window("linux", env(map[string]string{"DISPLAY": ":1"}), []string{dir}); l.OK || !strings.Contains(l.Fix, "webkit") {
		t.Errorf("%+v", l)
	}
	write(t, filepath.Join(dir, "libwebkit2gtk-4.1.so.0"), "")
	if l := window("linux", env(map[string]string{"DISPLAY": ":1"}), []string{dir}); !l.OK || !strings.Contains(l.Text, "webkit2gtk-4.1 found, display :1") {
		t.Errorf("%+v", l)
	}
	if l := window("linux", env(nil), []string{dir}); !l.OK || !strings.Contains(l.Text, "without a display") {
		t.Errorf("%+v", l)
	}
	if l := window("darwin", env(nil), nil); !l.OK {
		t.Errorf("%+v", l)
	}
	if l := space("disk", filepath.Join(dir, "not", "there", "yet")); !strings.Contains(l.Text, "GiB are free") {
		t.Errorf("%+v", l)
	}
}
