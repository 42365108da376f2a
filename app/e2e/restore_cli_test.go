package e2e

import (
	"encoding/json"
	"errors"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// workspaceOf names everything in the workspace but .git, with its kind, mode, target
// and bytes.
func (w *World) workspaceOf(session string) string {
	w.t.Helper()
	a := w.Bash(session, `cd /workspace && all() {
			find . -path ./.git -prune -o '(' -type f -o -type l ')' -printf '%P\t%y\t%m\t%l\n' | sort
			find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0r sha256sum
		}
		all | grep -v 'src/n[0-9]'; echo "$(all | wc -l) lines, $(all | sha256sum)"`)
	if a.Outcome != domain.OutcomeOK {
		w.t.Fatalf("the workspace cannot be looked at: %+v", a)
	}
	return a.Stdout
}

// without returns the first lines of a text that another has not.
func without(text, other string) string {
	var out []string
	for _, l := range strings.Split(text, "\n") {
		if !strings.Contains("\n"+other, "\n"+l+"\n") && len(out) < 20 {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// fails runs a command that ends with a code and says some words.
func (w *World) fails(code int, words string, args ...string) {
	w.t.Helper()
	out, err := w.CLI(args...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code || !strings.Contains(out, words) {
		w.t.Errorf("%q: %v, not %d with %q\n%s", args, err, code, words, out)
	}
}

const restoreMake = `cd /workspace && umask 022 && mkdir -p src/deep/er bin 'a folder' &&
printf 'one\r\ntwo\r\n' >src/crlf.txt && printf '*.txt text eol=lf\n' >.gitattributes &&
head -c 300000 /dev/urandom >src/deep/er/bytes.bin && printf '\000\377\376' >src/nul && : >empty &&
printf '#!/bin/sh\necho hi\n' >bin/run && chmod 755 bin/run &&
printf x >'a folder/with "quotes" and ümlaut' && printf y >"a folder/$(printf 'line\nend')" && printf z >-dash &&
ln -s src/deep links-to-a-folder && ln -s nowhere/at/all dangling && ln -s ../bin/run src/run &&
for i in $(seq 150); do echo $i >src/n$i; done`

// TestRestoreByCommand: what a step threw away comes back whole by a command, and what
// came back goes again by the command that it printed.
func TestRestoreByCommand(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		p := w.Project("")
		s := w.Session(p)
		looks := w.Session(p) // looking is a step too
		if a := w.Bash(s, restoreMake); a.Outcome != domain.OutcomeOK {
			t.Fatalf("%+v", a)
		}
		whole := w.workspaceOf(looks)
		if a := w.Bash(s, "rm -rf /workspace/* && echo only >/workspace/later"); a.Outcome != domain.OutcomeOK {
			t.Fatalf("%+v", a)
		}
		emptied := w.workspaceOf(looks)
		if whole == emptied || !strings.Contains(whole, "32") {
			t.Fatalf("%s\n%s", whole, emptied)
		}
		is := func(what, want string) {
			t.Helper()
			if got := w.workspaceOf(looks); got != want {
				t.Errorf("%s: it lacks\n%s\nand has\n%s", what, without(want, got), without(got, want))
			}
		}
		// restore runs the command and returns the one that undoes it.
		restore := func(says string, args ...string) (undo []string) {
			t.Helper()
			out, err := w.CLI(append([]string{"restore"}, args...)...)
			if err != nil || !strings.Contains(out, says) {
				t.Fatalf("%q: %v, without %q\n%s", args, err, says, out)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if len(lines) > 110 {
				t.Errorf("%d lines", len(lines))
			}
			undo = strings.Fields(lines[len(lines)-1])
			if len(undo) != 6 || undo[0] != "glasshouse" || undo[1] != "restore" {
				t.Fatalf("no command that undoes it:\n%s", out)
			}
			return undo[2:]
		}
		undo := restore("the workspace is as it was after step 1; 16", "--session", s, "1")
		is("restored", whole)
		again := restore("the workspace is as it was in checkpoint "+undo[3][:12], undo...)
		is("undone", emptied)
		restore("the workspace is as it was in checkpoint", again...)
		is("the undoing undone", whole)
		out, err := w.CLI("restore", "--session", s, "1")
		if err != nil || !strings.Contains(out, "no file had to change") {
			t.Errorf("%v\n%s", err, out)
		}

		// Of a session that has ended: it stands in a new one.
		if a := w.Bash(s, "rm -rf /workspace/*"); a.Outcome != domain.OutcomeOK {
			t.Fatalf("%+v", a)
		}
		var last domain.StepID
		for _, e := range w.Log(url.Values{"session_id": {s}}) {
			if e.Type == "step.requested" {
				last = e.StepID
			}
		}
		if out, err := w.CLI("session", "end", s); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		undo = restore("files changed\n", "--before", string(last))
		is("restored from an ended session", whole)
		restore("", undo...)
		if got := w.workspaceOf(looks); strings.Contains(got, "src/") {
			t.Errorf("undone from an ended session:\n%s", got)
		}
		out, err = w.CLI("--json", "restore", "--session", s, "1")
		var a httpapi.RestoreAnswer
		if err != nil || json.Unmarshal([]byte(out), &a) != nil || a.Outcome != domain.OutcomeOK || len(a.Before) < 40 || a.Files < 160 || string(a.Session) == s || a.State != domain.StepSealed {
			t.Errorf("%v\n%s", err, out)
		}
		is("restored as JSON says", whole)
		var v httpapi.SessionAnswer
		w.Call("GET", "/v1/sessions/"+string(a.Session), nil, &v)
		if v.Title != "Restore" || v.ProjectID != p.ID {
			t.Errorf("%+v", v)
		}
		// With the one before, and what undid that: restores that belong to no session stand together.
		if titles := payloads[*event.StepRequested](w, string(a.Session)); len(titles) != 3 || titles[2].Title != "Restore to after step 1 of session "+s {
			t.Errorf("%d steps, the last %+v", len(titles), titles[len(titles)-1])
		}

		// What cannot be.
		w.fails(1, "has no step 99", "restore", "--session", s, "99")
		w.fails(1, "there is no step st_none", "restore", "st_none")
		w.fails(1, "no session", "restore", "--session", "s_none", "1")
		w.fails(1, "nothing was restored", "restore", "--project", string(p.ID), "--checkpoint", strings.Repeat("a", 40))
		w.Call("POST", "/v1/sessions/"+looks+"/calls?wait=ended", map[string]any{"tool": "list", "args": map[string]any{}}, nil)
		reads := ""
		for _, e := range w.Log(url.Values{"session_id": {looks}}) {
			if e.Type == "step.requested" {
				reads = string(e.StepID)
			}
		}
		w.fails(1, "has no checkpoint", "restore", reads)
		var at httpapi.ExecAnswer
		w.Call("POST", "/v1/sessions/"+looks+"/exec", map[string]any{"argv": []string{"sleep", "600"}}, &at)
		w.fails(1, "is at work in session "+looks, "restore", "--session", s, "1")
		w.Call("POST", "/v1/sessions/"+looks+"/cancel", map[string]any{"step_id": at.ExecutionID}, nil)
		w.Call("GET", "/v1/sessions/"+looks+"/steps/"+string(at.ExecutionID)+"?wait=sealed", nil, nil)
		is("after what could not be", whole)
	})
}
