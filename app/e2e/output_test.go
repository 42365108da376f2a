package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/creack/pty"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/git/gittest"
	"glasshouse/backend/project"
	"glasshouse/backend/session"
)

// hostileText is what a terminal or a parser would act upon.
const hostileText = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1bPdcs\x1b\\ \u009b31mc1 \u202eevil\u202c \u2066iso\u2069 zero\u200bwidth \b\b\rover\x00nul \xff\xfe\xc3( \U000e0041tag"

// peakRSS is the most memory a process ever had, in KiB.
func peakRSS(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// pty runs a command of the program with a terminal as its output, and returns
// what reached the terminal.
func (w *World) pty(t *testing.T, args ...string) string {
	t.Helper()
	m, s, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := exec.Command(w.Bin, args...)
	c.Env, c.Stdout, c.Stderr = w.Env, s, s
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	var out bytes.Buffer
	_, _ = io.Copy(&out, m) // ends with an error once the last writer is gone
	_ = c.Wait()
	return out.String()
}

// harmless fails when a terminal would act upon something in the text.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "\r\n", "\n") // the terminal's own
	for i, r := range text {
		if r == utf8.RuneError && text[i] != 0xef || unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) {
			t.Errorf("%s: a terminal gets %U in %q", what, r, clipAround(text, i))
			return
		}
	}
}

func clipAround(s string, i int) string { return s[max(0, i-60):min(len(s), i+60)] }

// TestHostileOutput sends all sorts of output and names through the whole stack.
func TestHostileOutput(t *testing.T) {
	eachKind(t, hostileOutput)
}

func hostileOutput(t *testing.T, kind string) {
	size, unit := int64(1<<30), "1G"
	if kind == "lima" {
		size, unit = 1<<27, "128M" // where a VM is emulated, a gigabyte takes its time
	}
	w := NewWorld(t, kind)
	w.Start()
	p := w.Project("")
	s := w.Session(p)
	w.Bash(s, "true")
	before := peakRSS(t, w.core.Process.Pid)
	run := func(body map[string]any) session.StepView {
		t.Helper()
		var v session.StepView
		w.Call("POST", "/v1/sessions/"+s+"/calls?wait=sealed", map[string]any{"tool": "exec", "args": body}, &v)
		if v.Ended == nil {
			t.Fatalf("%+v", v)
		}
		return v
	}

	t.Run("a line without an end", func(t *testing.T) {
		v := run(map[string]any{"code": "head -c " + unit + ` /dev/zero | tr '\0' x; exit 7`, "timeout_ms": 900000})
		o := v.Ended.Stdout
		if v.Ended.ExitCode == nil || *v.Ended.ExitCode != 7 || v.Ended.Outcome != domain.OutcomeFailed || o == nil {
			t.Fatalf("%+v", v.Ended)
		}
		if o.Total != size || o.Blob == nil || o.Blob.Size+o.Dropped != o.Total || o.Blob.Size > 64<<20 || o.Blob.Size < 1<<20 {
			t.Fatalf("total %d, dropped %d, artefact %+v", o.Total, o.Dropped, o.Blob)
		}
		if strings.Trim(o.Head+o.Tail, "x") != "" || o.Head == "" || o.Tail == "" {
			t.Errorf("head %q tail %q", o.Head, o.Tail)
		}
		resp, err := w.http.Get("http://core/v1/blobs/" + o.Blob.Sha256)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		h := sha256.New()
		b := make([]byte, 1<<20)
		var size int64
		for {
			n, err := resp.Body.Read(b)
			h.Write(b[:n])
			size += int64(n)
			if len(bytes.Trim(b[:n], "x")) > 0 {
				t.Fatal("the artefact holds something else")
			}
			if err != nil {
				break
			}
		}
		if size != o.Blob.Size || hex.EncodeToString(h.Sum(nil)) != o.Blob.Sha256 {
			t.Errorf("%d bytes of the artefact came, %d were kept", size, o.Blob.Size)
		}
		t.Logf("%s in %d ms: %d kept, %d dropped; the core's peak memory grew by %d KiB", unit, v.Ended.DurationMS, o.Blob.Size, o.Dropped, peakRSS(t, w.core.Process.Pid)-before)
	})

	t.Run("yes for ever", func(t *testing.T) {
		v := run(map[string]any{"argv": []string{"yes"}, "timeout_ms": 2000})
		o := v.Ended.Stdout
		if v.Ended.Outcome != domain.OutcomeTimeout || v.Ended.ExitCode != nil || o == nil || !strings.HasPrefix(o.Head, "y\ny\n") || o.Blob == nil || o.Blob.Size+o.Dropped != o.Total {
			t.Errorf("%s %v: total %d, dropped %d, artefact %+v, head %.20q", v.Ended.Outcome, v.Ended.ExitCode, o.Total, o.Dropped, o.Blob, o.Head)
		}
		var a struct {
			ExitCode *int     `json:"exit_code"`
			Logs     []string `json:"logs"`
		}
		w.Call("GET", "/v1/sessions/"+s+"/steps/"+string(v.ID)+"/exec", nil, &a)
		if a.ExitCode != nil || !strings.Contains(strings.Join(a.Logs, "\n"), "did not end within") {
			t.Errorf("%+v", a)
		}
	})

	t.Run("exit codes", func(t *testing.T) {
		for script, want := range map[string]int{"exit 0": 0, "exit 1": 1, "exit 255": 255, "kill -9 $$": -9, "kill -SEGV $$": -11, "nosuchcommand": 127, "/etc/passwd": 126} {
			v := run(map[string]any{"code": script})
			switch {
			case want >= 0 && (v.Ended.ExitCode == nil || *v.Ended.ExitCode != want):
				t.Errorf("%s: %+v", script, v.Ended)
			case want < 0 && (v.Ended.ExitCode != nil || v.Ended.Signal == ""):
				t.Errorf("%s: %+v", script, v.Ended)
			}
		}
	})

	enc := base64.StdEncoding.EncodeToString([]byte(hostileText))
	t.Run("what a terminal acts upon", func(t *testing.T) {
		script := "echo " + enc + " | base64 -d; echo " + enc + " | base64 -d >&2; exit 3"
		v := run(map[string]any{"code": script})
		if *v.Ended.ExitCode != 3 || v.Ended.Stdout.Total != int64(len(hostileText)) || !v.Ended.Stdout.Binary {
			t.Errorf("%+v", v.Ended.Stdout)
		}
		noNUL := "echo " + enc + ` | base64 -d | tr -d '\0'; echo ` + enc + ` | base64 -d | tr -d '\0' >&2; exit 3`
		v = run(map[string]any{"code": noNUL})
		if !strings.Contains(v.Ended.Stdout.Head, "red") || !utf8.ValidString(v.Ended.Stdout.Head) {
			t.Errorf("%+v", v.Ended.Stdout)
		}
		for what, args := range map[string][]string{
			"exec":         {"exec", "--session", s, "--", "bash", "-c", noNUL},
			"exec argv":    {"exec", "--session", s, "--", "printf", "%b", `\033[31m\u202e\u009b`},
			"log":          {"log", "--session", s},
			"exec --json":  {"--json", "exec", "--session", s, "--", "bash", "-c", noNUL},
			"log --json":   {"--json", "log", "--session", s},
			"a bad file":   {"file", "read", s, "/workspace/\x1b[31m\u202e\u009b0m"},
			"a bad folder": {"file", "list", s, "/workspace/\x1b]0;x\x07"},
			"a bad name":   {"session", "list", "--project", "\x1b[31m"},
			"a bad flag":   {"exec", "--\x1b[31m"},
		} {
			out := w.pty(t, args...)
			if out == "" && what != "a bad name" {
				t.Errorf("%s prints nothing", what)
			}
			harmless(t, what, out)
		}
		// A pipe gets what the command wrote, byte for byte where it is text.
		out, _ := w.CLI("exec", "--session", s, "--", "printf", "%b", `\033[31mred`)
		if out != "\x1b[31mred" {
			t.Errorf("a pipe gets %q", out)
		}
	})

	t.Run("names", func(t *testing.T) { hostileNames(t, w, string(p.ID), s) })

	for _, e := range w.Log(url.Values{}) {
		if !json.Valid(e.Data) || !utf8.Valid(e.Data) {
			t.Errorf("event %d is no JSON text", e.ID)
		}
		if _, err := event.Decode(e); err != nil {
			t.Error(err)
		}
	}
	if grown := peakRSS(t, w.core.Process.Pid) - before; grown > 80<<10 {
		t.Errorf("the core's peak memory grew by %d KiB over %d", grown, before)
	} else {
		t.Logf("the core's peak memory grew by %d KiB over %d", grown, before)
	}
}

// hostileNames makes files of odd names and looks at them through every door.
func hostileNames(t *testing.T, w *World, project_, s string) {
	script := "import base64,os\nos.makedirs('/workspace/odd')\nfor n in '''"
	for _, n := range gittest.OddNames {
		script += base64.StdEncoding.EncodeToString([]byte(n)) + " "
	}
	script += "'''.split():\n  p=b'/workspace/odd/'+base64.b64decode(n)\n  open(p,'wb').write(b'content of '+base64.b64decode(n)+b'\\n')\n"
	var v session.StepView
	w.Call("POST", "/v1/sessions/"+s+"/calls?wait=sealed", map[string]any{"tool": "exec", "args": map[string]any{"code": script, "lang": "python"}}, &v)
	if v.Ended == nil || v.Ended.Outcome != domain.OutcomeOK || v.Sealed == nil || len(v.Sealed.Changes) != len(gittest.OddNames) {
		t.Fatalf("%+v %+v", v.Ended, v.Sealed)
	}
	seen := map[string]bool{}
	for _, c := range v.Sealed.Changes {
		if !utf8.ValidString(c.Path) || c.Op != "add" {
			t.Errorf("%q %s", c.Path, c.Op)
		}
		seen[strings.TrimPrefix(c.Path, "odd/")] = true
	}
	for _, n := range gittest.OddNames {
		if !seen[strings.ToValidUTF8(n, "\uFFFD")] {
			t.Errorf("the checkpoint does not tell of %q", n)
		}
	}
	var list struct {
		Entries []struct {
			Path string `json:"path"`
			Type string `json:"type"`
		} `json:"entries"`
	}
	w.Call("GET", "/v1/sessions/"+s+"/files?path=/workspace/odd", nil, &list)
	if len(list.Entries) != len(gittest.OddNames) {
		t.Errorf("%d files are listed", len(list.Entries))
	}
	for tool, args := range map[string]map[string]any{"glob": {"pattern": "odd/*"}, "list": {"path": "odd"}, "search": {"pattern": "content of"}} {
		var r session.StepView
		w.Call("POST", "/v1/sessions/"+s+"/calls?wait=ended", map[string]any{"tool": tool, "args": args}, &r)
		if r.Ended == nil || r.Ended.Outcome != domain.OutcomeOK || !json.Valid(r.Ended.Result) || !utf8.Valid(r.Ended.Result) || !bytes.Contains(r.Ended.Result, []byte("aux.txt")) {
			t.Errorf("%s: %+v", tool, r.Ended)
		}
	}
	for _, f := range list.Entries {
		var c struct {
			Text string `json:"text"`
		}
		// A name of bytes that are no text cannot be asked for by a text.
		if err := w.Try("GET", "/v1/sessions/"+s+"/file?path="+url.QueryEscape("/workspace/"+strings.TrimPrefix(f.Path, "/workspace/")), nil, &c); err != nil && !strings.Contains(f.Path, "\uFFFD") {
			t.Errorf("%q: %v", f.Path, err)
		}
	}
	var rv project.ReviewView
	w.Call("POST", "/v1/projects/"+project_+"/reviews", map[string]any{}, &rv)
	if len(rv.Files) != len(gittest.OddNames) {
		t.Fatalf("the review has %d files", len(rv.Files))
	}
	for _, f := range rv.Files {
		harmless(t, "a review's name", f.Display)
	}
	for what, args := range map[string][]string{
		"file list": {"file", "list", s, "/workspace/odd"}, "review show": {"review", "show", string(rv.ID)}, "review list": {"review", "list"},
		"log": {"log", "--session", s}, "exec": {"exec", "--session", s, "--", "ls", "/workspace/odd"},
		"review accept": {"review", "accept", string(rv.ID)},
	} {
		out := w.pty(t, args...)
		if out == "" {
			t.Errorf("%s prints nothing", what)
		}
		harmless(t, what, out)
	}
	// All of it goes out as it is.
	remote := gittest.InitBare(t)
	var pv project.PushView
	w.Call("POST", "/v1/reviews/"+string(rv.ID)+"/push", map[string]any{"remote": remote.Dir, "ref": "refs/heads/odd"}, &pv)
	if pv.State != "ok" {
		t.Fatalf("%+v", pv)
	}
	got := strings.Split(strings.TrimSuffix(remote.Git("ls-tree", "-r", "-z", "--name-only", "refs/heads/odd"), "\x00"), "\x00")
	var want []string
	for _, n := range gittest.OddNames {
		want = append(want, "odd/"+n)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("pushed are %q", got)
	}
	remote.Git("fsck", "--strict", "--no-dangling")
	for _, n := range gittest.OddNames {
		if got := remote.Git("cat-file", "blob", "refs/heads/odd:odd/"+n); got != "content of "+n {
			t.Errorf("%q holds %q", n, got)
		}
	}
}
