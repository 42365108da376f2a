package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"glasshouse/app/httpapi"
)

// look prints every environment that a program in the machine can see.
const look = "env; for f in /proc/[0-9]*/environ; do tr '\\0' '\\n' <$f 2>/dev/null; done; echo looked"

// TestModelKeyStays: the key that a model is asked with is in the core alone. Nothing
// in the machine, nothing else that runs outside and nothing that is kept holds it,
// also when a person pastes it and a program prints it.
func TestModelKeyStays(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		f := formats(kind)[0]
		w := newModelWorld(t, kind, f, script(t, fmt.Sprintf(`
answers:
  - say: I look at the environment.
    calls: [{tool: exec, args: {argv: [bash, -c, %q]}}]
  - expect: {has: ["looked"]}
    capture: {key: "(looked)"}
    say: I saw ${key}.
  - say: Noted.
`, look)), "")
		w.p = w.Project("")
		ses := w.modelSession(nil)
		if end := w.ended(ses, w.prompt(ses, "What do you see? My key is "+w.key+", and in base64 "+base64.StdEncoding.EncodeToString([]byte(w.key))+".")); end.Result != "ok" && end.Result != "unchecked" {
			t.Errorf("%+v", end)
		}
		w.faultless()
		// The server got it where it belongs, and nowhere else.
		for _, r := range w.srv.Requests() {
			if bytes.Contains(r.Body, []byte(w.key)) || !strings.Contains(fmt.Sprint(r.Header), w.key) {
				t.Errorf("request %d: the key is in its body, or not in its header", r.Number)
			}
		}
		if rs := w.srv.Requests(); len(rs) < 2 || !bytes.Contains(rs[0].Body, []byte("[key of model fake]")) || !bytes.Contains(rs[1].Body, []byte("looked")) {
			t.Errorf("%d requests; the first: %.2000s", len(rs), rs[0].Body)
		}
		// A person's own commands print it in other ways.
		manual := w.Session(w.p)
		if a := w.Bash(manual, look); strings.Contains(a.Stdout, w.key) || !strings.Contains(a.Stdout, "looked") {
			t.Errorf("seen in the machine: %s", a.Stdout)
		}
		w.Bash(manual, "printf %s '"+w.key+"' | tee /dev/stderr | base64 -w0; printf %s '"+w.key+"' | od -An -tx1 | tr -d ' \\n'; for i in $(seq 20000); do echo 'the key is "+w.key+"'; done")
		// What the door shows of it all is what is kept.
		for _, path := range []string{"/v1/sessions", "/v1/sessions/" + ses, "/v1/sessions/" + manual, "/v1/approvals", "/v1/processes", "/v1/log?limit=5000", "/v1/projects", "/v1/models", "/v1/doctor"} {
			var raw json.RawMessage
			w.Call("GET", path, nil, &raw)
			if bytes.Contains(raw, []byte(w.key)) {
				t.Errorf("%s shows the key: %.1000s", path, raw)
			}
		}
		// Neither do processes outside have it, the core apart, which reads it.
		seen := 0
		for _, pid := range w.programs() {
			env, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
			line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
			if bytes.Contains(env, []byte(w.key)) {
				t.Errorf("%q has the key in its environment", line)
			}
			if bytes.Contains(append(line, env...), []byte(w.Dir)) {
				seen++
			}
		}
		if seen == 0 {
			t.Error("no process of the machine was looked at")
		}
		var models httpapi.ModelsView
		w.Call("GET", "/v1/models", nil, &models)
		if len(models.Models) != 1 || models.Models[0].Key != "environment" {
			t.Errorf("%+v", models)
		}
		if out, err := w.CLI("quit", "--now"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		w.core = nil
		files, marks := 0, 0
		err := filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (path == filepath.Join(w.Data, "m") || path == filepath.Join(w.Data, "tools") || path == filepath.Join(w.Data, "images")) {
				return fs.SkipDir // the machine itself, in which the person typed it; programs
			}
			if !d.Type().IsRegular() {
				return nil
			}
			b, err := os.ReadFile(path)
			files++
			marks += bytes.Count(b, []byte("[key of model fake]"))
			for _, form := range []string{w.key, base64.RawStdEncoding.EncodeToString([]byte(w.key)), hex.EncodeToString([]byte(w.key))} {
				if bytes.Contains(b, []byte(form)) {
					t.Errorf("%s holds the key as %q", path, form)
				}
			}
			return err
		})
		if err != nil || files < 5 || marks < 1000 {
			t.Errorf("%d files, %d marks, %v", files, marks, err)
		}
	})
}
