package e2e

import (
	"strings"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/project"
)

// An agent that destroys all of the workspace, the repository with it, costs the person
// nothing: the files come back to the byte, the changes can be reviewed again, and what
// was put back can be taken back itself. It also holds when the core dies in the middle.
func TestRestore(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		src := gittest.Init(t)
		src.Write("a.txt", "one\n")
		src.Write("dir/b.sh", "#!/bin/sh\n")
		src.Write(".gitignore", "left\n")
		src.Commit("first")
		p := w.Project(src.Dir)
		s := w.Session(p)
		// All that is there, with kinds, modes and what it holds, but the repository.
		const look = `cd /workspace && find . -path ./.git -prune -o -printf '%y %m %p -> %l\n' | LC_ALL=C sort; find . -path ./.git -prune -o -type f -print | LC_ALL=C sort | xargs sha256sum`
		work := w.Bash(s, `echo two >>a.txt; chmod +x dir/b.sh; ln -s a.txt link; printf '\000\377' >"odd
name"; git add -A; git commit -qm own; echo three >>a.txt; touch left`)
		was := w.Bash(s, look).Stdout
		gone := w.Bash(s, `find /workspace -mindepth 1 -delete; mkdir -p /workspace/a.txt/x; echo y >/workspace/a.txt/x/y; ls -A /workspace`)
		if gone.Stdout != "a.txt\n" {
			t.Fatalf("it is not gone: %q", gone.Stdout)
		}
		var v project.ReviewView
		if err := w.Try("POST", "/v1/projects/"+string(p.ID)+"/reviews", map[string]any{}, &v); err == nil || !strings.Contains(err.Error(), "restore") {
			t.Errorf("a review of a workspace without a repository: %v", err)
		}
		restore := "/v1/projects/" + string(p.ID) + "/restore"
		var plan httpapi.RestoreView
		w.Call("GET", restore+"?side=before&step="+string(gone.ExecutionID), nil, &plan)
		if plan.Checkpoint != work.Checkpoint || len(plan.Changes) < 5 || string(plan.Session) != s {
			t.Errorf("%+v, not %s", plan, work.Checkpoint)
		}
		var a httpapi.RestoreAnswer
		w.Call("POST", restore, map[string]any{"step": gone.ExecutionID, "side": "before"}, &a)
		if a.State != "sealed" || a.Outcome != "ok" || a.Before != gone.Checkpoint || a.Repository != "made anew" || string(a.Session) != s {
			t.Fatalf("%+v", a)
		}
		// What is ignored is in no checkpoint.
		want := strings.ReplaceAll(was, "f 644 ./left -> \n", "")
		want = strings.ReplaceAll(want, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  ./left\n", "")
		if got := w.Bash(s, look).Stdout; got != want {
			t.Errorf("the workspace is\n%s\nnot\n%s", got, want)
		}
		w.Call("POST", "/v1/projects/"+string(p.ID)+"/reviews", map[string]any{}, &v)
		if len(v.Files) != 4 {
			t.Errorf("the review has %+v", v.Files)
		}
		w.Call("POST", restore, map[string]any{"checkpoint": a.Before, "session_id": s}, &a)
		if got := w.Bash(s, "cat /workspace/a.txt/x/y; git -C /workspace log --format=%s; ls -A /workspace").Stdout; got != "y\nfirst\n.git\na.txt\n" {
			t.Errorf("undone it is %q", got)
		}

		// Begun, and the core dies: whatever it had come to, the next one ends it.
		for range seeds(2) {
			// It is answered once the start is recorded.
			w.Call("POST", restore+"?wait=started", map[string]any{"checkpoint": work.Checkpoint, "session_id": s}, &a)
			w.KillCore()
			w.Start()
			var b httpapi.ExecAnswer
			w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(a.ExecutionID)+"/exec?wait=sealed", nil, &b)
			if b.Outcome != "ok" {
				t.Fatalf("%+v", b)
			}
			if got := w.Bash(s, look).Stdout; got != want {
				t.Errorf("after a kill the workspace is\n%s\nnot\n%s", got, want)
			}
			w.Bash(s, "rm -rf /workspace/*")
		}
	})
}
