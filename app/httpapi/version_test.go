package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDiffer(t *testing.T) {
	own := Program{Version: "v2", API: Generation, Path: "/opt/gh", Build: "b2"}
	for _, c := range []struct {
		name string
		core Info
		fits bool
		says []string // none: they are the same
	}{
		{"the same", Info{Version: "v2", Program: &own}, true, nil},
		{"a copy elsewhere", Info{Version: "v2", Program: &Program{API: Generation, Path: "/else/gh", Build: "b1"}}, true, nil},
		{"built anew in its place", Info{Version: "v2", Program: &Program{API: Generation, Path: "/opt/gh", Build: "b1"}}, true, []string{"before this program (Glasshouse v2) was built anew", "'glasshouse quit'", "when nothing runs", "are kept"}},
		{"its build is not known", Info{Version: "v2", Program: &Program{API: Generation, Path: "/opt/gh"}}, true, nil},
		{"another version", Info{Version: "v1", Program: &Program{API: Generation, Path: "/opt/gh", Build: "b1"}}, true, []string{"Glasshouse v1 and this is v2", "work together", "'glasshouse quit'", "are kept"}},
		{"one that knows of no generations", Info{Version: "v1"}, true, []string{"Glasshouse v1 and this is v2"}},
		{"a later generation", Info{Version: "v9", Program: &Program{API: Generation + 1, Path: "/new/gh"}}, false, []string{"Glasshouse v9 and this is v2", "do not understand each other", "The newer one is /new/gh.", "'glasshouse quit'"}},
		{"a later generation of the same name", Info{Version: "v2", Program: &Program{API: Generation + 1}}, false, []string{"do not understand each other"}},
		{"no answer of a core", Info{}, true, nil},
	} {
		text, fits := Differ(c.core, own)
		if fits != c.fits || (text == "") != (c.says == nil) || strings.Contains(text, "\n") {
			t.Errorf("%s: %v %q", c.name, fits, text)
		}
		for _, s := range c.says {
			if !strings.Contains(text, s) {
				t.Errorf("%s: it lacks %q: %s", c.name, s, text)
			}
		}
	}
}

// Every program that the linker made has an identity, and it stays the same.
func TestBuildIsKnown(t *testing.T) {
	p := ThisProgram("v")
	if len(p.Build) < 20 || p.Build != buildOf(p.Path) || p.API != Generation {
		t.Errorf("%+v, in its file %q", p, buildOf(p.Path))
	}
	if b := buildOf("/nowhere"); b != "" {
		t.Errorf("of no file: %q", b)
	}
}

type answers func(r *http.Request) (int, string, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, text, err := f(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r}, nil
}

func TestThePageIsToldOfAnotherCore(t *testing.T) {
	own := Program{Version: "v2", API: Generation}
	ask := func(status int, text string, err error) (int, string) {
		h := Proxy(Telling(answers(func(*http.Request) (int, string, error) { return status, text, err }), own))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/info", nil))
		return w.Code, w.Body.String()
	}
	decode := func(text string) (in Info, all map[string]any) {
		t.Helper()
		if err := errors.Join(json.Unmarshal([]byte(text), &in), json.Unmarshal([]byte(text), &all)); err != nil {
			t.Fatal(err)
		}
		return in, all
	}
	status, text := ask(200, `{"version":"v1","latest_event_id":7,"of_tomorrow":[1],"differs":"a lie"}`, nil)
	in, all := decode(text)
	if status != 200 || in.Page == nil || *in.Page != own || !strings.Contains(in.Differs, "Glasshouse v1 and this is v2") || in.Latest != 7 || all["of_tomorrow"] == nil {
		t.Errorf("%d %s", status, text)
	}
	if _, text = ask(200, `{"version":"v2","differs":"a lie"}`, nil); strings.Contains(text, "differs") {
		t.Errorf("the same program: %s", text)
	}
	for _, odd := range []string{`no JSON`, `null`, `[]`, `{"version":3}`} {
		if _, text := ask(200, odd, nil); text != odd {
			t.Errorf("%q became %q", odd, text)
		}
	}
	if status, text = ask(503, `{"version":"v1"}`, nil); status != 503 || text != `{"version":"v1"}` {
		t.Errorf("an error: %d %s", status, text)
	}
	if status, _ = ask(200, strings.Repeat("x", infoMost+1), nil); status != http.StatusBadGateway {
		t.Errorf("without an end: %d", status)
	}
	if status, _ = ask(0, "", errors.New("gone")); status != http.StatusBadGateway {
		t.Errorf("no core: %d", status)
	}
}
