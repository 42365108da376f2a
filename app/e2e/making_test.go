package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/event"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/project"
)

// follow reads transient events until the test ends.
func (w *World) follow() <-chan event.Envelope {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://core/v1/events?format=ndjson&transient=true", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	out := make(chan event.Envelope, 10_000)
	go func() {
		defer resp.Body.Close()
		defer close(out)
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(make([]byte, 64<<10), 4<<20)
		for sc.Scan() {
			var e event.Envelope
			if json.Unmarshal(sc.Bytes(), &e) == nil && e.Type != "" {
				out <- e
			}
		}
	}()
	return out
}

// A project begins at an address and its changes go back there.
func TestProjectFromAnAddress(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		src := gittest.Init(t)
		src.Write("a.txt", "from afar\n")
		src.Commit("base")
		bare := gittest.InitBare(t)
		src.Git("push", "-q", bare.Dir, "main:trunk")
		bare.Git("symbolic-ref", "HEAD", "refs/heads/trunk")
		w.Start()
		var p httpapi.ProjectView
		w.Call("POST", "/v1/projects", httpapi.NewProject{Source: "file://" + bare.Dir, Kind: kind}, &p)
		if p.Name != "remote" || p.Imported == nil || p.Imported.Branch != "trunk" || p.Imported.Remote != "file://"+bare.Dir || p.Progress != nil {
			t.Fatalf("%+v %+v", p, p.Imported)
		}
		s := w.Session(p)
		if a := w.Bash(s, "cat a.txt; git branch --show-current; echo more >b.txt"); a.Stdout != "from afar\ntrunk\n" {
			t.Fatalf("%+v", a)
		}
		if err := w.Try("POST", "/v1/projects", httpapi.NewProject{Name: "remote", Kind: kind}, nil); code(err) != "conflict" || !strings.Contains(err.Error(), `"remote-2"`) {
			t.Errorf("a name twice: %v", err)
		}
		var rv project.ReviewView
		w.Call("POST", "/v1/projects/"+string(p.ID)+"/reviews", map[string]any{}, &rv)
		if rv.Remote != "file://"+bare.Dir || rv.Ref != "refs/heads/trunk" {
			t.Fatalf("%+v", rv)
		}
		w.Call("POST", "/v1/reviews/"+string(rv.ID)+"/decisions", map[string]any{"decision": "accept"}, &rv)
		var pv project.PushView
		w.Call("POST", "/v1/reviews/"+string(rv.ID)+"/push", map[string]any{"remote": rv.Remote, "ref": rv.Ref}, &pv)
		if pv.State != "ok" || bare.Git("show", "trunk:b.txt") != "more" {
			t.Errorf("%+v", pv)
		}
	})
}

// A making is given up by somebody else, who came in the middle and learnt what is
// going on.
func TestMakingIsGivenUp(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	reached := make(chan struct{}, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	w.Start()
	made := make(chan error, 1)
	go func() {
		made <- w.Try("POST", "/v1/projects", httpapi.NewProject{Source: srv.URL + "/shop.git", Kind: "local"}, nil)
	}()
	<-reached
	var ps []httpapi.ProjectView
	w.Call("GET", "/v1/projects", nil, &ps)
	if len(ps) != 1 || ps[0].Progress == nil || ps[0].Progress.Phase != "fetch" || ps[0].Progress.Work != "create" || ps[0].Progress.Since == 0 {
		t.Fatalf("%+v", ps)
	}
	told := false
	for e := range w.follow() {
		if e.Type == "machine.progress" && e.ProjectID == ps[0].ID {
			told = strings.Contains(string(e.Data), `"fetch"`)
			break
		}
	}
	if !told {
		t.Error("who came in the middle is not told")
	}
	var c httpapi.Cancelled
	w.Call("POST", "/v1/projects/shop/cancel", map[string]any{}, &c)
	if c.What != "create" {
		t.Errorf("%+v", c)
	}
	if err := <-made; code(err) != "conflict" || !strings.Contains(err.Error(), "given up by person") {
		t.Errorf("%v", err)
	}
	w.Call("GET", "/v1/projects", nil, &ps)
	if len(ps) != 0 {
		t.Errorf("%+v", ps)
	}
	for _, dir := range []string{"projects", "m", "trash"} {
		if left, err := os.ReadDir(filepath.Join(w.Data, dir)); err != nil || len(left) != 0 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
	var procs []httpapi.ProcessRecord
	w.Call("GET", "/v1/processes", nil, &procs)
	for _, p := range procs {
		if p.Running {
			t.Errorf("still running: %+v", p)
		}
	}
	if err := w.Try("POST", "/v1/projects/shop/cancel", map[string]any{}, nil); code(err) != "not_found" {
		t.Errorf("%v", err)
	}
}

// A start is given up, or was quicker; and while somebody looks, the machine's numbers come.
func TestStartIsGivenUpAndMachineIsMeasured(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	w.Start()
	p := w.Project("")
	path := "/v1/projects/" + string(p.ID)
	w.Call("POST", path+"/machine/stop", map[string]any{}, nil)
	for range 5 {
		started := make(chan error, 1)
		go func() { started <- w.Try("POST", path+"/machine/start", map[string]any{}, nil) }()
		var c httpapi.Cancelled
		var err error
		for {
			if err = w.Try("POST", path+"/cancel", map[string]any{}, &c); err == nil {
				break
			}
			var v httpapi.ProjectView
			if w.Call("GET", path, nil, &v); v.State == "ready" {
				break
			}
		}
		serr := <-started
		var v httpapi.ProjectView
		w.Call("GET", path, nil, &v)
		if v.Progress != nil {
			t.Errorf("progress of nothing: %+v", v.Progress)
		}
		if err == nil && (c.What != "start" || code(serr) != "conflict" || v.State != "off") {
			t.Errorf("given up: %+v, the start says %v, the machine is %s", c, serr, v.State)
		}
		if err != nil && (serr != nil || v.State != "ready") {
			t.Errorf("too late: %v, the start says %v, the machine is %s", err, serr, v.State)
		}
		w.Call("POST", path+"/machine/stop", map[string]any{}, nil)
	}
	w.Call("POST", path+"/machine/start", map[string]any{}, nil)
	n := 0
	for e := range w.follow() {
		if e.Type != "machine.stats" {
			continue
		}
		var s event.MachineStats
		if err := json.Unmarshal(e.Data, &s); err != nil || e.ProjectID != p.ID || e.Origin != "guest" || s.MemTotalKiB == 0 || s.Procs == 0 {
			t.Fatalf("%+v %s", e, e.Data)
		}
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d measurements", n)
	}
}

// A quit asks about a making, and with --now leaves nothing of it.
func TestQuitDuringAMaking(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	reached := make(chan struct{}, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	w.Start()
	made := make(chan error, 1)
	go func() {
		made <- w.Try("POST", "/v1/projects", httpapi.NewProject{Source: srv.URL + "/shop.git", Kind: "local"}, nil)
	}()
	<-reached
	if out, err := w.CLI("quit"); err == nil || !strings.Contains(out, "project shop is being made") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := w.CLI("quit", "--now"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if err := <-made; err == nil {
		t.Error("no error")
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("%v", left)
	}
	for _, dir := range []string{"projects", "m"} {
		if left, err := os.ReadDir(filepath.Join(w.Data, dir)); err != nil || len(left) != 0 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
	w.Start()
	var ps []httpapi.ProjectView
	w.Call("GET", "/v1/projects", nil, &ps)
	if len(ps) != 0 {
		t.Errorf("%+v", ps)
	}
}

// A making is given up at each of its parts: it is whole or nothing of it is left.
func TestMakingIsGivenUpAnywhere(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	src := gittest.Init(t)
	src.Write("a.txt", "a\n")
	src.Commit("base")
	w.Start()
	events := w.follow()
	gone, whole := 0, 0
	for n := 1; n <= 12; n++ {
		made := make(chan error, 1)
		var p httpapi.ProjectView
		go func() {
			made <- w.Try("POST", "/v1/projects", httpapi.NewProject{Name: "one", Source: src.Dir, Kind: "local"}, &p)
		}()
		// Its own events say how far it is; its answer may overtake them.
		told, id, over, answer := 0, "", false, made
		for id == "" || told < n && !over {
			select {
			case merr := <-answer:
				if answer = nil; merr != nil {
					t.Fatalf("after %d: %v", n, merr)
				}
				made <- merr // looked at below
			case e, ok := <-events:
				switch {
				case !ok:
					t.Fatal("the stream ended")
				case e.Type == "project.created":
					id = string(e.ProjectID)
				case string(e.ProjectID) != id:
					// of the round before
				case e.Type == "machine.progress":
					told++
				case e.Type == "project.imported":
					over = true // whole before it was told of so often
				}
			}
		}
		var err error
		if !over {
			err = w.Try("POST", "/v1/projects/"+id+"/cancel", map[string]any{}, nil)
		}
		merr := <-made
		var ps []httpapi.ProjectView
		w.Call("GET", "/v1/projects", nil, &ps)
		if merr == nil {
			whole++
			if len(ps) != 1 || ps[0].Imported == nil || ps[0].Progress != nil {
				t.Fatalf("after %d: made, and the projects are %+v", n, ps)
			}
			if a := w.Bash(w.Session(p), "cat a.txt"); a.Stdout != "a\n" {
				t.Errorf("%+v", a)
			}
			w.Call("DELETE", "/v1/projects/"+id, nil, nil)
			continue
		}
		gone++
		if code(merr) != "conflict" || err != nil || len(ps) != 0 {
			t.Fatalf("after %d: %v, the cancel says %v, the projects are %+v", n, merr, err, ps)
		}
		dirs := []string{"projects", "m"}
		if whole == 0 { // else the trash holds what was deleted
			dirs = append(dirs, "trash")
		}
		for _, dir := range dirs {
			if left, err := os.ReadDir(filepath.Join(w.Data, dir)); err != nil || len(left) != 0 {
				t.Errorf("after %d: %s holds %v (%v)", n, dir, left, err)
			}
		}
	}
	if gone < 3 {
		t.Errorf("%d were given up, %d made", gone, whole)
	}
	t.Logf("%d given up, %d made", gone, whole)
}
