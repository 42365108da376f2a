package httpapi

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/machine"
	"glasshouse/backend/project"
	"glasshouse/vm"
)

// A name that comes escaped in a path means the project that is called exactly so, be it
// made of characters that a path knows or of what looks escaped itself.
func TestNamesInPaths(t *testing.T) {
	log, err := eventlog.Open(t.TempDir(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	names := []string{"x", "x?y", "x#y", "50%", "%73hop", "shop", "a b/c", "shop/rules", "%2e%2e", "ü;v=1", "a+b", "a%2Fb"}
	id := func(i int) domain.ProjectID { return domain.ProjectID("p_" + string(rune('a'+i))) }
	for i, name := range names {
		if _, err := log.Append(t.Context(), event.New{Stream: event.ProjectStream(id(i)), Origin: domain.OriginHost, Actor: "person", ProjectID: id(i),
			Payload: &event.ProjectCreated{Project: domain.Project{ID: id(i), Name: name, Kind: "local", Machine: domain.MachineID("m" + string(rune('a'+i)))}}}); err != nil {
			t.Fatal(err)
		}
	}
	fleet := machine.New(machine.Config{Managers: map[string]vm.Manager{}})
	projects := project.New(project.Config{Log: log, Ledger: approval.New(log, nil), Fleet: fleet})
	if err := projects.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := Handler(Services{Projects: projects, Fleet: fleet})
	get := func(part string) (int, ProjectView) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://core/v1/projects/"+part, nil))
		var p ProjectView
		_ = json.Unmarshal(w.Body.Bytes(), &p)
		return w.Code, p
	}
	for i, name := range names {
		if code, p := get(url.PathEscape(name)); code != 200 || p.ID != id(i) || p.Name != name {
			t.Errorf("%q: %d %+v", name, code, p.Project)
		}
	}
	for _, name := range []string{"x?z", "x%y", "%73", "a b", "shop/none"} {
		if code, p := get(url.PathEscape(name)); code != 404 || slices.Contains(names, p.Name) {
			t.Errorf("%q: %d %+v", name, code, p.Project)
		}
	}
}
