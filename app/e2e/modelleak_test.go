package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"glasshouse/app/httpapi"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/model/modeltest"
)

// keyForms are a key in the forms in which it could lie somewhere. Of base64 there are
// three, for a text begins at one of three places in it; what depends on its
// neighbours is left out.
func keyForms(key string) map[string][]byte {
	out := map[string][]byte{"plain": []byte(key), "hex": []byte(hex.EncodeToString([]byte(key))), "HEX": []byte(strings.ToUpper(hex.EncodeToString([]byte(key))))}
	for at := range 3 {
		padded := append(make([]byte, at), key...)
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64 of addresses": base64.RawURLEncoding} {
			s := enc.EncodeToString(padded)
			from, to := (at*8+5)/6, len(padded)*8/6
			out[fmt.Sprintf("%s at %d", name, at)] = []byte(s[from:to])
		}
	}
	for name, s := range map[string]string{"query": url.QueryEscape(key), "path": url.PathEscape(key)} {
		out[name], out[name+", small"] = []byte(s), []byte(strings.ReplaceAll(strings.ToLower(s), strings.ToLower(key), key))
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(key)
	escaped, _ := json.Marshal(key)
	out["json"], out["json for pages"] = bytes.Trim(plain.Bytes(), "\"\n"), bytes.Trim(escaped, `"`)
	return out
}

// leaks looks for a key in all that is kept and shown.
type leaks struct {
	w     *modelWorld
	forms map[string][]byte
	bytes int64
	files int
	found []string
}

func (l *leaks) text(where string, b []byte) {
	l.bytes += int64(len(b))
	for name, f := range l.forms {
		if bytes.Contains(b, f) {
			l.found = append(l.found, where+" ("+name+")")
		}
	}
}

// file reads what of a file is no hole, with pieces that overlap.
func (l *leaks) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	l.files++
	const piece, overlap = 8 << 20, 4 << 10
	buf := make([]byte, piece+overlap)
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			from = at
		}
		n, err := f.ReadAt(buf, from)
		l.text(path, buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at = from + piece
	}
}

// tree reads every file below a folder.
func (l *leaks) tree(root string) {
	l.w.t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			if to, err := os.Readlink(path); err == nil {
				l.text(path, []byte(to))
			}
		case d.Type().IsRegular():
			l.text("the name of "+path, []byte(d.Name()))
			if err := l.file(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.w.t.Error(err)
	}
}

// environments of all processes of this computer but the core, which reads the key. Those
// of a sandbox are among them.
func (l *leaks) environments() {
	for _, pid := range l.w.programs() {
		for _, name := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name)); err == nil {
				l.text(fmt.Sprintf("%s of process %d", name, pid), b)
			}
		}
	}
}

// lookInside looks at every environment and every file in a machine for the texts that
// stand reversed in a file, so that it does not find itself.
const lookInside = `import os, stat
forms = [line[::-1] for line in open("/tmp/back", "rb").read().split(b"\n") if line]
os.remove("/tmp/back")
def look(where, data):
    if any(f in data for f in forms):
        print(where)
def read(path):
    try:
        with open(path, "rb") as f:
            while True:
                piece = f.read(64 << 20)
                yield piece
                if len(piece) < 64 << 20:
                    return
                f.seek(-4096, 1)
    except OSError:
        return
seen = 0
for p in os.listdir("/proc"):
    if p.isdigit():
        for name in ("environ", "cmdline"):
            for piece in read("/proc/%s/%s" % (p, name)):
                seen += len(piece) > 0
                look("%s of process %s" % (name, p), piece)
print("environments %d" % seen)
seen = 0
for root, dirs, files in os.walk("ROOT"):
    if root == "/":
        dirs[:] = [d for d in dirs if d not in ("proc", "sys", "dev")]
    for name in files:
        path = os.path.join(root, name)
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                continue
        except OSError:
            continue
        seen += 1
        for piece in read(path):
            look("file " + path, piece)
print("files %d" % seen)
`

// inside looks from within the machine, at the files below a folder.
func (l *leaks) inside(session, root string) {
	l.w.t.Helper()
	var back []string
	for _, f := range l.forms {
		back = append(back, reversed(string(f)))
	}
	slices.Sort(back)
	for path, text := range map[string]string{"/tmp/back": strings.Join(back, "\n"), "/tmp/look.py": strings.Replace(lookInside, "ROOT", root, 1)} {
		l.w.Call("POST", "/v1/sessions/"+session+"/calls?wait=sealed", map[string]any{"tool": "write", "args": map[string]string{"path": path, "content": text}}, nil)
	}
	argv := []string{"python3", "/tmp/look.py"}
	if l.w.Kind == "lima" {
		argv = append([]string{"sudo", "-n"}, argv...)
	}
	// It reads all that is in the machine: an emulated one takes its time.
	var a httpapi.ExecAnswer
	l.w.Call("POST", "/v1/sessions/"+session+"/exec?wait=sealed", map[string]any{"argv": argv, "timeout_ms": 3600000}, &a)
	environments, files := 0, 0
	for line := range strings.Lines(a.Stdout) {
		line = strings.TrimSpace(line)
		if n, err := fmt.Sscanf(line, "environments %d", &environments); n == 1 && err == nil {
			continue
		}
		if n, err := fmt.Sscanf(line, "files %d", &files); n == 1 && err == nil {
			continue
		}
		l.found = append(l.found, "inside: "+line)
	}
	if environments == 0 || files == 0 || root == "/" && files < 1000 {
		l.w.t.Fatalf("the search inside: %+v", a)
	}
}

// doors reads what the API shows.
func (l *leaks) doors(sessions ...string) {
	l.w.t.Helper()
	paths := []string{"/v1/sessions", "/v1/approvals", "/v1/processes", "/v1/projects", "/v1/models", "/v1/doctor", "/v1/info", "/v1/settings", "/openapi.json"}
	for _, s := range sessions {
		paths = append(paths, "/v1/sessions/"+s)
		for _, e := range l.w.Log(url.Values{"session_id": {s}}) {
			if e.Type == "step.requested" {
				paths = append(paths, "/v1/sessions/"+s+"/steps/"+string(e.StepID))
			}
		}
	}
	for _, p := range paths {
		status, _, b := l.w.raw(l.w.t, "GET", p, "", nil)
		if status == 200 && len(b) == 0 {
			l.w.t.Errorf("%s says nothing", p)
		}
		l.text("the answer of "+p, b)
	}
	b, err := json.Marshal(l.w.Log(nil))
	if err != nil {
		l.w.t.Error(err)
	}
	l.text("the log as it is shown", b)
}

// everywhere looks at all there is. The images that machines are made from are looked at
// from inside only.
func (l *leaks) everywhere(manual string, sessions ...string) {
	l.doors(sessions...)
	l.inside(manual, "/")
	l.environments()
	ents, err := os.ReadDir(l.w.Data)
	if err != nil {
		l.w.t.Error(err)
	}
	for _, e := range ents {
		if e.Name() != "images" {
			l.tree(filepath.Join(l.w.Data, e.Name()))
		}
	}
	l.tree(filepath.Join(l.w.Dir, "c"))
	if err := l.file(l.w.log); err != nil {
		l.w.t.Error(err)
	}
}

// TestModelKey lets a model do the whole job, with a server that quotes the key in its
// errors and a model that says it, and looks for the key everywhere but in the core.
func TestModelKey(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		all := formats(kind)
		if os.Getenv("GLASSHOUSE_E2E_FORMATS") != "all" {
			all = all[len(all)-1:] // the search takes its time; the adapters' own tests look at each format
		}
		for _, f := range all {
			t.Run(string(f), func(t *testing.T) { modelKeyLeaks(t, kind, f) })
		}
	})
}

func modelKeyLeaks(t *testing.T, kind string, f model.Format) {
	s, err := modeltest.Load("../../backend/model/modeltest/testdata/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The answers are put in once the key is known.
	failures := []modeltest.Answer{{Fail: &modeltest.Fail{Kind: "auth"}}, {Fail: &modeltest.Fail{Status: 400}}, {}}
	s.Answers = append(failures, s.Answers...)
	w := newModelWorld(t, kind, f, s, "", approvalPolicy)
	encoded := base64.StdEncoding.EncodeToString([]byte(w.key))
	s.Answers[1].Fail.Body = fmt.Sprintf(`{"type":"error","error":{"type":"invalid_request_error","message":"what is %s, %s or %s?","code":null,"param":null}}`, w.key, encoded, url.QueryEscape(w.key))
	s.Answers[2].Say = "I was given " + w.key + ", which is " + encoded + "."
	w.p = w.Project(sample(t).Dir)
	ses, manual := w.modelSession(nil), w.Session(w.p)
	for i, want := range []string{"failed", "failed", "unchecked"} {
		end := w.ended(ses, w.prompt(ses, "Begin."))
		if end.Result != want || want == "failed" && !strings.Contains(end.Reason, "[key]") {
			t.Errorf("turn %d ended %s: %s", i, end.Result, end.Reason)
		}
	}
	asked := w.answering(ses, func(*event.ApprovalRequested) (string, string) { return "once", "" })
	if end := w.ended(ses, w.prompt(ses, "Mend the failing test and see that the form works.")); end.Result != "unchecked" {
		t.Errorf("the job ended %s: %s", end.Result, end.Reason)
	}
	asked()
	w.faultless()
	for _, r := range w.srv.Requests() {
		if !strings.Contains(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), w.key) || bytes.Contains(r.Body, []byte(w.key)) {
			t.Errorf("request %d: the key belongs into its header, and nowhere else", r.Number)
		}
	}
	l := &leaks{w: w, forms: keyForms(w.key)}
	l.everywhere(manual, ses, manual)
	slices.Sort(l.found)
	for _, where := range l.found {
		t.Errorf("the key is in %s", where)
	}
	t.Logf("the key was looked for in %d forms, %d files, %d MiB; found %d times", len(l.forms), l.files, l.bytes>>20, len(l.found))

	// The search finds what is there: in the machine, and beside the log.
	w.Bash(manual, "printf 'k=%s' \"$(echo '"+reversed(encoded)+"' | rev)\" >/home/agent/planted; sync")
	planted := filepath.Join(w.Data, "logs", "planted")
	if err := errors.Join(os.MkdirAll(filepath.Dir(planted), 0o700), os.WriteFile(planted, []byte("k="+w.key), 0o600)); err != nil {
		t.Fatal(err)
	}
	again := &leaks{w: w, forms: l.forms}
	again.inside(manual, "/home")
	again.tree(filepath.Join(w.Data, "m"))
	again.tree(filepath.Dir(planted))
	for _, want := range []string{"inside: file /home/agent/planted", planted + " (plain)", filepath.Join(w.Data, "m") + "/"} {
		if !slices.ContainsFunc(again.found, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("what was planted is not found in %s, only in %q", want, again.found)
		}
	}
	if err := os.Remove(planted); err != nil {
		t.Fatal(err)
	}
}
