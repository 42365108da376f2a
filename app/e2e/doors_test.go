package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/eventlog"
)

// operation is one route as the door describes it.
type operation struct {
	method, path string
	body         map[string]any // the schema of its body; nil = none
	query        map[string]map[string]any
}

// operations reads the door's own description, so that a new route is tested too.
func operations(t *testing.T, w *World) (out []operation) {
	t.Helper()
	var api struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string         `json:"name"`
				In     string         `json:"in"`
				Schema map[string]any `json:"schema"`
			} `json:"parameters"`
			RequestBody *struct {
				Content map[string]struct {
					Schema map[string]any `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	w.Call("GET", "/openapi.json", nil, &api)
	for path, methods := range api.Paths {
		for method, op := range methods {
			o := operation{method: strings.ToUpper(method), path: path, query: map[string]map[string]any{}}
			for _, p := range op.Parameters {
				if p.In == "query" {
					o.query[p.Name] = p.Schema
				}
			}
			if op.RequestBody != nil {
				o.body = op.RequestBody.Content["application/json"].Schema
				if ref, ok := o.body["$ref"].(string); ok {
					o.body = api.Components.Schemas[ref[strings.LastIndex(ref, "/")+1:]]
				}
				if o.body == nil {
					t.Fatalf("%s %s: its body has no schema", method, path)
				}
			}
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	if len(out) < 40 {
		t.Fatalf("the door describes %d routes", len(out))
	}
	return out
}

// raw sends any bytes and returns the answer.
func (w *World) raw(t *testing.T, method, path, kind string, body io.Reader) (int, http.Header, []byte) {
	t.Helper()
	status, h, b, err := w.sent(method, path, kind, body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return status, h, b
}

func (w *World) sent(method, path, kind string, body io.Reader) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://core"+path, body)
	if err != nil {
		return 0, http.Header{}, nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, http.Header{}, nil, err
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, resp.Header, b, nil
}

// shaped checks that an answer is an error of the one shape.
func shaped(t *testing.T, what string, status int, h http.Header, b []byte, codes ...string) (e apiErr) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Errorf("%s: %d, no JSON: %.200q", what, status, b)
		return e
	}
	_ = json.Unmarshal(b, &e)
	if status < 400 || status >= 500 || e.What == "" || e.Hint == "" || !slices.Contains(codes, e.Code) || !strings.HasPrefix(h.Get("Content-Type"), "application/json") && !strings.HasPrefix(h.Get("Content-Type"), "application/problem+json") {
		t.Errorf("%s: %d %s %.400s; want %v", what, status, h.Get("Content-Type"), b, codes)
	}
	for name := range fields {
		if !slices.Contains([]string{"code", "what", "hint", "pointer", "details", "$schema"}, name) {
			t.Errorf("%s: the error has a field %q", what, name)
		}
	}
	return e
}

var params = regexp.MustCompile(`\{[a-z0-9]+\}`)

// TestBadInput sends nonsense to every route.
func TestBadInput(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	w.Start()
	pid := w.core.Process.Pid
	ops := operations(t, w)
	zeros := strings.Repeat("0", 64)
	bodies := 0
	for _, o := range ops {
		path := params.ReplaceAllString(o.path, zeros)
		name := o.method + " " + o.path
		for q, schema := range o.query {
			var bad string
			switch {
			case schema["type"] == "integer", schema["type"] == "number", schema["type"] == "boolean":
				bad = "x"
			case schema["enum"] != nil:
				bad = "nonsense"
			case schema["maxLength"] != nil:
				bad = strings.Repeat("x", 5000)
			default:
				continue
			}
			status, h, b := w.raw(t, o.method, path+"?"+q+"="+bad, "application/json", strings.NewReader("{}"))
			e := shaped(t, name+" ?"+q, status, h, b, "invalid")
			if !strings.Contains(e.Pointer+fmt.Sprint(e.Details), q) {
				t.Errorf("%s: nothing says that %s is wrong: %s", name, q, b)
			}
		}
		if o.body == nil {
			continue
		}
		bodies++
		for what, body := range map[string]string{"nothing": "", "no JSON": "{", "a list": "[]", "null": "null", "a text": `"x"`, "a number": "7", "two": "{}{\"x\":1}x",
			"deep": strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), "a stray byte": "{\"\xff\":1}"} {
			codes := []string{"invalid"}
			if what == "deep" && strings.Contains(o.path, "model") {
				codes = append(codes, "too_large") // they take little
			}
			status, h, b := w.raw(t, o.method, path, "application/json", strings.NewReader(body))
			shaped(t, name+" with "+what, status, h, b, codes...)
		}
		status, h, b := w.raw(t, o.method, path, "application/json", strings.NewReader(`{"no_such_field":1}`))
		// What stands in the body of a key is never said again, for it may be the key.
		if e := shaped(t, name+" with an unknown field", status, h, b, "invalid"); !strings.Contains(e.Pointer+fmt.Sprint(e.Details), "/no_such_field") && o.path != "/v1/models/{name}/key" {
			t.Errorf("%s: nothing says which field is unknown: %s", name, b)
		}
		status, h, b = w.raw(t, o.method, path, "application/xml", strings.NewReader(`<x/>`))
		shaped(t, name+" with another type", status, h, b, "invalid")
		props, _ := o.body["properties"].(map[string]any)
		for p, s := range props {
			schema, _ := s.(map[string]any)
			typ, _ := schema["type"].(string)
			if list, ok := schema["type"].([]any); ok {
				typ, _ = list[0].(string)
			}
			wrong, ok := map[string]string{"string": "7", "integer": `"x"`, "number": `"x"`, "boolean": `"x"`, "array": `{"x":1}`, "object": `[1]`}[typ]
			if !ok || p == "$schema" {
				continue
			}
			status, h, b := w.raw(t, o.method, path, "application/json", strings.NewReader(fmt.Sprintf(`{%q:%s}`, p, wrong)))
			if e := shaped(t, name+" with a wrong "+p, status, h, b, "invalid"); !strings.Contains(e.Pointer+fmt.Sprint(e.Details), "/"+p) {
				t.Errorf("%s: nothing says that %s is wrong: %s", name, p, b)
			}
		}
		for again := true; again; {
			big := io.MultiReader(strings.NewReader(`{"x":"`), io.LimitReader(endless{}, 17<<20), strings.NewReader(`"}`))
			var err error
			status, h, b, err = w.sent(o.method, path, "application/json", big)
			if again = cut(err); err != nil && !again {
				t.Errorf("%s with 17 MiB: %v", name, err)
			}
		}
		shaped(t, name+" with 17 MiB", status, h, b, "too_large")
	}
	if bodies < 12 {
		t.Errorf("only %d routes take a body", bodies)
	}
	for _, c := range [][2]string{{"GET", "/v1/nothing"}, {"POST", "/nothing"}, {"GET", "/v1/sessions/x/y/z"}, {"DELETE", "/v1/info"}, {"PATCH", "/v1/projects"}, {"GET", "/v1/quit"}} {
		status, h, b := w.raw(t, c[0], c[1], "", nil)
		shaped(t, c[0]+" "+c[1], status, h, b, "not_found", "invalid")
	}
	t.Logf("%d routes, %d of them with a body", len(ops), bodies)
	if w.core.Process.Pid != pid || w.Try("GET", "/v1/info", nil, nil) != nil {
		t.Error("the core did not stand it")
	}
	for _, e := range w.Log(nil) {
		if e.Type != "core.started" {
			t.Errorf("nonsense made an event: %s %s", e.Type, e.Data)
		}
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// TestUnknownIDs asks every route for what is not there.
func TestUnknownIDs(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	w.Start()
	p := w.Project("")
	s := w.Session(p)
	latest := func() int64 {
		var i httpapi.Info
		w.Call("GET", "/v1/info", nil, &i)
		return i.Latest
	}
	before := latest()
	bodies := map[string]any{
		"POST /v1/approvals/{id}/answer":      map[string]any{"digest": "x", "choice": "once"},
		"POST /v1/projects/{project}/restore": map[string]any{"step": "x"},
		"POST /v1/projects/{project}/reviews": map[string]any{},
		"POST /v1/projects/{project}/rules":   map[string]any{"host": "example.com", "decision": "allow"},
		"POST /v1/reviews/{id}/decisions":     map[string]any{"decision": "accept"},
		"POST /v1/reviews/{id}/plan":          map[string]any{"remote": "/tmp/x", "ref": "x"},
		"POST /v1/reviews/{id}/push":          map[string]any{"remote": "/tmp/x", "ref": "x"},
		"POST /v1/sessions/{id}/calls":        map[string]any{"tool": "list", "args": map[string]any{"path": "."}},
		"POST /v1/sessions/{id}/cancel":       map[string]any{},
		"POST /v1/sessions/{id}/exec":         map[string]any{"argv": []string{"true"}},
		"POST /v1/sessions/{id}/messages":     map[string]any{"text": "x"},
		"POST /v1/sessions/{id}/turns":        map[string]any{"agent": "playbook", "input": "name: x\nsteps:\n  - say: hi\n"},
		"PUT /v1/sessions/{id}/file":          map[string]any{"path": "x", "content": "x"},
		"PATCH /v1/sessions/{id}":             map[string]any{"mode": "ask"},
		"PUT /v1/models/{name}/key":           map[string]any{"key": "sk-0123456789"},

		"POST /v1/projects/{project}/terminals":   map[string]any{"rows": 24, "cols": 80},
		"POST /v1/terminals/{id}/input":           map[string]any{"data": "eA=="},
		"POST /v1/terminals/{id}/size":            map[string]any{"rows": 24, "cols": 80},
		"POST /v1/reviews/{id}/viewed":            map[string]any{"file": "f", "viewed": true},
		"POST /v1/reviews/{id}/comments":          map[string]any{"file": "f", "text": "x"},
		"PUT /v1/reviews/{id}/comments/{comment}": map[string]any{"text": "x"},
		"POST /v1/reviews/{id}/comments/send":     map[string]any{"session_id": "nope"},
	}
	queries := map[string]string{
		"GET /v1/projects/{project}/find":         "?pattern=x",
		"GET /v1/sessions/{id}/steps/{step}/diff": "?path=x",
		"GET /v1/reviews/{id}/files/{file}/lines": "?side=new&from=1&to=2",
	}
	n := 0
	for _, o := range operations(t, w) {
		if !strings.Contains(o.path, "{") {
			continue
		}
		key := o.method + " " + o.path
		if key == "PUT /v1/models/{name}" {
			continue // it makes what it names
		}
		in, given := bodies[key]
		if o.body != nil && !given {
			t.Errorf("%s is not in this test's table", key)
			continue
		}
		for _, id := range []string{strings.Repeat("0", 64), "..%2f..%2fetc", "%ff%00"} {
			if o.path == "/v1/blobs/{sha256}" && id[0] != '0' {
				continue
			}
			path := params.ReplaceAllString(o.path, id)
			if strings.HasSuffix(o.path, "/file") && o.method == "GET" {
				path += "?path=x"
			}
			path += queries[key]
			err := w.Try(o.method, path, in, nil)
			if e, ok := err.(*apiErr); !ok || e.Status != 404 || e.Code != "not_found" || e.Hint == "" {
				t.Errorf("%s of %q: %v", key, id, err)
			}
			n++
		}
	}
	for _, c := range []struct {
		method, path string
		in           any
		code         string
	}{
		{"GET", "/v1/sessions/" + s + "/steps/nope", nil, "not_found"},
		{"GET", "/v1/sessions/" + s + "/steps/nope/exec?wait=sealed", nil, "not_found"},
		{"POST", "/v1/sessions/" + s + "/cancel", map[string]any{"step_id": "nope"}, "not_found"},
		{"POST", "/v1/sessions", map[string]any{"project_id": "nope"}, "not_found"},
		{"DELETE", "/v1/projects/" + string(p.ID) + "/rules/nope", nil, "not_found"},
		{"POST", "/v1/sessions/" + s + "/calls", map[string]any{"tool": "nope", "args": map[string]any{}}, "not_found"},
		{"GET", "/v1/sessions/" + s + "/file?path=nope", nil, "not_found"},
		{"GET", "/v1/sessions/" + s + "/files?path=nope", nil, "not_found"},
		{"GET", "/v1/sessions/" + s + "/files?path=/nope", nil, "denied"},
	} {
		if err := w.Try(c.method, c.path, c.in, nil); code(err) != c.code {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
		n++
	}
	t.Logf("%d questions about what is not there", n)
	if after := latest(); after != before {
		t.Errorf("%d events came of it", after-before)
	}
}

// TestOneCore starts a second core over the data of the first.
func TestOneCore(t *testing.T) {
	onKind(t, "local")
	w := NewWorld(t, "local")
	w.Start()
	pid := fmt.Sprint(w.core.Process.Pid)
	for range 3 {
		out, err := w.CLI("core")
		if err == nil || !strings.Contains(out, "a core is running already (process "+pid+")") || !strings.Contains(out, "glasshouse quit") {
			t.Errorf("a second core: %v %s", err, out)
		}
	}
	if err := w.Try("GET", "/v1/info", nil, nil); err != nil {
		t.Errorf("the first core: %v", err)
	}
	// Many commands at once, with no core there: one starts.
	if out, err := w.CLI("quit"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var cs []*exec.Cmd
	var outs []*bytes.Buffer
	for range 6 {
		c, out := exec.Command(w.Bin, "--json", "project", "list"), new(bytes.Buffer)
		c.Env, c.Stdout, c.Stderr = w.Env, out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cs, outs = append(cs, c), append(outs, out)
	}
	for i, c := range cs {
		if err := c.Wait(); err != nil || strings.TrimSpace(outs[i].String()) != "[]" {
			t.Errorf("a command that found no core: %v %s", err, outs[i])
		}
	}
	// None that found the place taken is left half begun: it would take it after a quit.
	if cores := w.cores(); len(cores) != 1 {
		t.Errorf("the commands are done and there are %d cores: %v", len(cores), cores)
	}
	n := 0
	for _, e := range w.Log(nil) {
		if e.Type == "core.started" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d cores were started", n)
	}
}

// TestDatabases starts a core over files that are no log of ours, or half of one.
func TestDatabases(t *testing.T) {
	onKind(t, "local")
	good := NewWorld(t, "local")
	prefill(t, good, 3000)
	good.Start()
	if out, err := good.CLI("quit"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	good.core = nil
	db := filepath.Join(good.Data, eventlog.FileName)
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(whole)) }
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	other, err := sql.Open("sqlite", foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec("CREATE TABLE event(id INTEGER PRIMARY KEY, x TEXT); INSERT INTO event VALUES(1,'theirs')"); err != nil {
		t.Fatal(err)
	}
	other.Close()
	theirs, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"another program's database": theirs,
		"no database":                []byte(strings.Repeat("this is a letter\n", 1000)),
		"a short file":               []byte("SQLite"),
		"half of it":                 whole[:len(whole)/2/4096*4096],
		"cut within a page":          whole[:len(whole)/3/4096*4096+100],
		"the head alone":             whole[:100],
		"of a newer version":         change(func(b []byte) []byte { b[63] = 99; return b }),
		"a head of zeros":            change(func(b []byte) []byte { clear(b[:100]); return b }),
	} {
		w := NewWorld(t, "local")
		if err := os.MkdirAll(w.Data, 0o711); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(w.Data, eventlog.FileName)
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
		before := fingerprint(t, at)
		for range 2 {
			out, err := w.CLI("core")
			if err == nil || !strings.Contains(out, "(") || strings.Contains(out, "goroutine") {
				t.Errorf("%s: %v %s", name, err, out)
			}
		}
		if fingerprint(t, at) != before {
			t.Errorf("%s: the file was changed", name)
		}
		for _, side := range []string{"-wal", "-journal", "-shm"} {
			if _, err := os.Stat(at + side); err == nil {
				t.Errorf("%s: a file %s was left beside it", name, side)
			}
		}
	}
	// One that was changed from outside is read, and verify says where.
	mine, err := sql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Exec(`UPDATE event SET data = replace(data, 'plain', 'PLAIN') WHERE id = (SELECT min(id) FROM event WHERE data LIKE '%plain%')`); err != nil {
		t.Fatal(err)
	}
	var id int64
	if err := mine.QueryRow(`SELECT id FROM event WHERE data LIKE '%PLAIN%' COLLATE BINARY AND instr(data, 'PLAIN') > 0`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	mine.Close()
	good.Start()
	if out, err := good.CLI("log", "verify"); err == nil || !strings.Contains(out, fmt.Sprintf("event %d:", id)) {
		t.Errorf("a changed row: %v %s", err, out)
	}
}

// TestClientsDie kills commands in the middle of their work.
func TestClientsDie(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		p := w.Project("")
		s := w.Session(p)
		var dead []*exec.Cmd
		for i, args := range [][]string{
			{"exec", "--session", s}, {"--json", "exec", "--session", s}, {"exec", "--project", string(p.ID)},
		} {
			args = append(args, "--", "bash", "-c", fmt.Sprintf("touch begun-%d; sleep 3; echo done >done-%d; echo out; echo err >&2; exit %d", i, i, i))
			c := exec.Command(w.Bin, args...)
			c.Env = w.Env
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			dead = append(dead, c)
			look := w.Session(p)
			w.Until("the begin of the command", func() bool {
				var list struct {
					Entries []httpapi.FileEntry `json:"entries"`
				}
				w.Call("GET", "/v1/sessions/"+look+"/files", nil, &list)
				return slices.ContainsFunc(list.Entries, func(e httpapi.FileEntry) bool { return strings.HasSuffix(e.Path, fmt.Sprintf("begun-%d", i)) })
			})
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
		}
		follower := exec.Command(w.Bin, "log", "-f")
		follower.Env, follower.Stdout = w.Env, io.Discard
		if err := follower.Start(); err != nil {
			t.Fatal(err)
		}
		var steps []domain.StepID
		w.Until("the end of the commands", func() bool {
			steps = steps[:0]
			sealed := 0
			for _, e := range w.Log(nil) {
				switch e.Type {
				case "step.ended":
					steps = append(steps, e.StepID)
				case "step.sealed":
					sealed++
				}
			}
			return sealed == len(dead)
		})
		_ = follower.Process.Kill()
		_ = follower.Wait()
		codes := map[int]bool{}
		changed := map[string]bool{}
		for _, e := range w.Log(nil) {
			if e.Type != "step.ended" {
				continue
			}
			var a httpapi.ExecAnswer
			w.Call("GET", "/v1/sessions/"+string(e.SessionID)+"/steps/"+string(e.StepID)+"/exec", nil, &a)
			if a.ExitCode == nil || a.Stdout != "out\n" || a.Stderr != "err\n" {
				t.Errorf("a step whose caller died: %+v", a)
				continue
			}
			for _, c := range a.FileChanges {
				changed[c.Path] = true
			}
			codes[*a.ExitCode] = true
		}
		if len(steps) != 3 || len(codes) != 3 {
			t.Errorf("steps %v ended with %v", steps, codes)
		}
		// Sessions share the workspace: where steps end together, the checkpoint of one
		// holds what both changed.
		for i := range dead {
			if !changed[fmt.Sprintf("done-%d", i)] {
				t.Errorf("no checkpoint names done-%d: %v", i, changed)
			}
		}
		if a := w.Bash(s, "cat done-0 done-1 done-2"); a.Stdout != "done\ndone\ndone\n" {
			t.Errorf("%+v", a)
		}
	})
}
