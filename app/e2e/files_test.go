package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/event"
	"glasshouse/backend/review"
)

// touchedFeed records files.touched as a client sees it.
type touchedFeed struct {
	mu  sync.Mutex
	all []event.Envelope
}

func (w *World) touched() *touchedFeed {
	f := &touchedFeed{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	req, err := http.NewRequestWithContext(ctx, "GET", "http://core/v1/events?format=ndjson&transient=true&types=files.touched", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(done)
		defer resp.Body.Close()
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			var e event.Envelope
			if len(sc.Bytes()) > 0 && json.Unmarshal(sc.Bytes(), &e) == nil {
				f.mu.Lock()
				f.all = append(f.all, e)
				f.mu.Unlock()
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	return f
}

// saw finds a change of a path.
func (f *touchedFeed) saw(path, op string) (event.Envelope, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.all {
		p, err := event.Decode(e)
		if err != nil {
			continue
		}
		if slices.ContainsFunc(p.(*event.FilesTouched).Changes, func(c event.FileChange) bool { return c.Path == path && c.Op == op }) {
			return e, true
		}
	}
	return event.Envelope{}, false
}

func (w *World) stepDiff(session, step, path string) httpapi.StepDiff {
	w.t.Helper()
	var d httpapi.StepDiff
	w.Call("GET", "/v1/sessions/"+session+"/steps/"+step+"/diff?path="+url.QueryEscape(path), nil, &d)
	return d
}

func TestLiveFilesAndWhatAStepDid(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		p := w.Project("")
		s := w.Session(p)
		feed := w.touched()
		one := w.Bash(s, `printf 'one\ntwo\n' >a.txt; head -c 5000 /dev/zero >zeros; mkdir -p node_modules; echo 'node_modules/' >.gitignore; echo x >node_modules/m`)
		two := w.Bash(s, `printf 'one\n2\n' >a.txt; chmod +x a.txt; rm zeros; printf 'odd\n' >"$(printf 'w\377 \342\200\256:HEAD')"`)

		// What each step did, from the checkpoint before it to its own.
		if d := w.stepDiff(s, string(one.ExecutionID), "a.txt"); d.Op != review.OpAdd || d.Added != 2 || d.Deleted != 0 {
			t.Errorf("%+v", d)
		}
		d := w.stepDiff(s, string(two.ExecutionID), "a.txt")
		if d.Op != review.OpModify || d.Added != 1 || d.Deleted != 1 || d.NewMode != 0o100755 || d.Hunks[0].Lines[2].Text != "2" {
			t.Errorf("%+v", d)
		}
		if d := w.stepDiff(s, string(two.ExecutionID), "zeros"); d.Op != review.OpDelete || !d.Binary || d.OldSize != 5000 || len(d.Hunks) != 0 {
			t.Errorf("%+v", d)
		}
		odd := "w\uFFFD \u202e:HEAD"
		if !slices.ContainsFunc(two.FileChanges, func(c event.FileChange) bool { return c.Path == odd }) {
			t.Errorf("%+v", two.FileChanges)
		}
		if d := w.stepDiff(s, string(two.ExecutionID), odd); d.Op != review.OpAdd || d.Added != 1 {
			t.Errorf("%+v", d)
		}
		for path, want := range map[string]string{"never": "not_found", "../etc/passwd": "denied", "node_modules/m": "not_found"} {
			err := w.Try("GET", "/v1/sessions/"+s+"/steps/"+string(two.ExecutionID)+"/diff?path="+url.QueryEscape(path), nil, nil)
			if code(err) != want {
				t.Errorf("%s: %v", path, err)
			}
		}

		// The feed: while a step runs, with the step it most likely comes from. It begins
		// soon after somebody looks; what happened before is in the steps.
		w.Until("the feed", func() bool {
			w.Bash(s, "date >>warm.txt")
			feed.mu.Lock()
			defer feed.mu.Unlock()
			return len(feed.all) > 0
		})
		var running httpapi.ExecAnswer
		w.Call("POST", "/v1/sessions/"+s+"/exec", map[string]any{"argv": []string{"bash", "-c", "echo 1 >live.txt; echo 1 >node_modules/silent; echo 2 >>a.txt; sleep 3000"}}, &running)
		w.Until("the live change", func() bool { _, ok := feed.saw("live.txt", "add"); return ok })
		if e, _ := feed.saw("live.txt", "add"); e.ID != 0 || string(e.StepID) != string(running.ExecutionID) || string(e.SessionID) != s || e.ProjectID != p.ID || e.Origin != "guest" {
			t.Errorf("%+v", e)
		}
		w.Until("the live change of a file that was there", func() bool { _, ok := feed.saw("a.txt", "modify"); return ok })
		var file httpapi.FileContent
		w.Call("GET", "/v1/projects/"+string(p.ID)+"/file?path=a.txt", nil, &file)
		if file.Text != "one\n2\n2\n" {
			t.Errorf("the file now: %+v", file)
		}
		w.Call("POST", "/v1/sessions/"+s+"/cancel", map[string]any{}, nil)
		if _, ok := feed.saw("node_modules/silent", "add"); ok {
			t.Error("an ignored file was told of")
		}
		var list httpapi.FileList
		w.Call("GET", "/v1/projects/"+string(p.ID)+"/files", nil, &list)
		ignored := map[string]bool{}
		for _, e := range list.Entries {
			ignored[e.Path] = e.Ignored
		}
		if !ignored["node_modules"] || ignored["a.txt"] {
			t.Errorf("%+v", list.Entries)
		}

		// After a crash of the core the same is told, and the feed goes on.
		w.KillCore()
		w.Start()
		if again := w.stepDiff(s, string(two.ExecutionID), "a.txt"); again.Hunks[0].ID != d.Hunks[0].ID {
			t.Errorf("another diff after a restart: %+v", again)
		}
		feed = w.touched()
		n := 0
		w.Until("a change after the restart", func() bool {
			n++
			w.Bash(s, "date >>after.txt")
			_, ok := feed.saw("after.txt", "modify")
			return ok
		})

		// To look boots nothing.
		w.Call("POST", "/v1/projects/"+string(p.ID)+"/machine/stop", nil, nil)
		for _, path := range []string{"/v1/projects/" + string(p.ID) + "/files", "/v1/projects/" + string(p.ID) + "/file?path=a.txt", "/v1/projects/" + string(p.ID) + "/find?pattern=*",
			"/v1/sessions/" + s + "/steps/" + string(two.ExecutionID) + "/diff?path=a.txt"} {
			if err := w.Try("GET", path, nil, nil); code(err) != "unavailable" {
				t.Errorf("%s: %v", path, err)
			}
		}
		var view httpapi.ProjectView
		w.Call("GET", "/v1/projects/"+string(p.ID), nil, &view)
		if view.State != "off" {
			t.Errorf("looking started the machine: %s", view.State)
		}
		w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(two.ExecutionID)+"/diff?path=a.txt&start=true", nil, &d)
		if d.Added != 1 {
			t.Errorf("%+v", d)
		}
	})
}
