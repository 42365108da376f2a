package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/tool"
	"glasshouse/browser"
	"glasshouse/vm/guest"
)

type noRoom struct{ event.BlobStore }

func (noRoom) CreateBlob(int64, string, string) (event.BlobWriter, error) {
	return nil, domain.E(domain.CodeUnavailable, "The artefact cannot be written: the disk is full", "free some space", nil)
}
func (noRoom) PutBlob(context.Context, io.Reader, int64) (event.Blob, error) {
	return event.Blob{}, domain.E(domain.CodeUnavailable, "The artefact cannot be written: the disk is full", "free some space", nil)
}

// Every schema is strict, every tool says what it is for, and none takes what it does not know.
func TestSchemas(t *testing.T) {
	r := newRig(t)
	for _, tl := range All() {
		var s struct {
			AdditionalProperties *bool
			Properties           map[string]json.RawMessage
		}
		if err := json.Unmarshal(tl.Schema, &s); err != nil || s.AdditionalProperties == nil || *s.AdditionalProperties {
			t.Errorf("%s is not strict", tl.Name)
		}
		if len(tl.Description) < 50 || tl.Title == nil {
			t.Errorf("%s has no good description or title", tl.Name)
		}
		if tl.Changes && tl.Reach == domain.ReachRead {
			t.Errorf("%s changes things and says it reads", tl.Name)
		}
		if _, err := r.reg.Prepare(tl.Name, json.RawMessage(`{"zzz":1}`)); err == nil || !strings.Contains(err.Error(), "no such property") {
			t.Errorf("%s: %v", tl.Name, err)
		}
	}
}

type readAnswer struct {
	Path, Text, Sha256, Note string
	FirstLine                int `json:"first_line"`
	LastLine                 int `json:"last_line"`
	Lines                    int
	More, Binary             bool
}

func TestRead(t *testing.T) {
	r := newRig(t)
	var long strings.Builder
	for i := 1; i <= 20000; i++ {
		fmt.Fprintf(&long, "line %d <&>\x01\n", i)
	}
	r.guest.files = newFiles("/workspace/a", "one\ntwo\nthree", "/workspace/empty", "", "/workspace/bin", "a\x00b", "/workspace/long", long.String(),
		"/workspace/wide", strings.Repeat("w", 100000), "/workspace/bad", "a\xffb\n", "/tmp/x", "tmp\n")
	var a readAnswer
	if r.ok("read", `{"path":"a"}`, &a); a.Text != "one\ntwo\nthree" || a.FirstLine != 1 || a.LastLine != 3 || a.Lines != 3 || a.More || a.Sha256 != sha("one\ntwo\nthree") || a.Path != "/workspace/a" {
		t.Errorf("%+v", a)
	}
	a = readAnswer{}
	if r.ok("read", `{"path":"./sub/../a","offset":2,"limit":1}`, &a); a.Text != "two\n" || a.FirstLine != 2 || a.LastLine != 2 || !a.More {
		t.Errorf("%+v", a)
	}
	a = readAnswer{}
	if r.ok("read", `{"path":"empty"}`, &a); a.Text != "" || a.Lines != 0 || a.More {
		t.Errorf("%+v", a)
	}
	a = readAnswer{}
	if r.ok("read", `{"path":"bin"}`, &a); !a.Binary || a.Text != "" {
		t.Errorf("%+v", a)
	}
	a = readAnswer{}
	if r.ok("read", `{"path":"bad"}`, &a); a.Text != "a\uFFFDb\n" {
		t.Errorf("%+v", a)
	}
	a = readAnswer{}
	if r.ok("read", `{"path":"wide"}`, &a); !a.More || len(a.Text) < 10000 || a.Note == "" {
		t.Errorf("%d %+v", len(a.Text), a.Note)
	}
	// Page by page the whole file comes back.
	var all strings.Builder
	for from := 1; ; {
		a = readAnswer{}
		r.ok("read", fmt.Sprintf(`{"path":"long","offset":%d}`, from), &a)
		all.WriteString(a.Text)
		if from = a.LastLine + 1; !a.More {
			break
		}
	}
	if all.String() != long.String() {
		t.Errorf("%d bytes of %d", all.Len(), long.Len())
	}
	r.fails("read", `{"path":"nope\u001b[2J"}`, domain.CodeNotFound, "nope<U+001B>")
	r.fails("read", `{"path":"a","offset":9}`, domain.CodeInvalid, "3 lines")
	r.fails("read", `{"path":"a\u0000"}`, domain.CodeInvalid)
	for err, code := range map[error]domain.ErrorCode{guest.ErrRefused: domain.CodeDenied, guest.ErrGone: domain.CodeUnavailable, guest.ErrTooLarge: domain.CodeTooLarge, errors.New("boom"): domain.CodeInternal} {
		r.guest.files.err = fmt.Errorf("files: %w", err)
		r.fails("read", `{"path":"a"}`, code)
		r.fails("write", `{"path":"a","content":""}`, code)
	}
}

func TestWrite(t *testing.T) {
	r := newRig(t)
	f := r.guest.files
	var a struct{ Path, Sha256 string }
	r.ok("write", `{"path":"d/a.txt","content":"hé\n","executable":true}`, &a)
	if f.data["/workspace/d/a.txt"] != "hé\n" || a.Sha256 != sha("hé\n") || f.modes["/workspace/d/a.txt"] != 0o755 {
		t.Errorf("%+v %+v", a, f)
	}
	r.fails("write", `{"path":"d/a.txt","content":"x","expect":"absent"}`, domain.CodeConflict, "exists already")
	r.fails("write", `{"path":"d/a.txt","content":"x","expect":"`+sha("other")+`"}`, domain.CodeConflict, "changed since")
	r.fails("write", `{"path":"d/a.txt","content":"x","expect":"latest"}`, domain.CodeInvalid)
	if f.data["/workspace/d/a.txt"] != "hé\n" {
		t.Error("written all the same")
	}
	r.ok("write", `{"path":"d/a.txt","content":"new","expect":"`+a.Sha256+`"}`, nil)
	r.ok("write", `{"path":"b","content":"","expect":"absent"}`, nil)
	big, _ := json.Marshal(map[string]string{"path": "big", "content": strings.Repeat("x", maxContent+1)})
	r.fails("write", string(big), domain.CodeTooLarge)
	p, _ := r.reg.Prepare("write", json.RawMessage(`{"path":"../etc/passwd","content":"x"}`))
	if p.Action.Paths[0] != "/etc/passwd" || !p.Action.Write || p.Title != "Write /etc/passwd" {
		t.Errorf("the policy sees %+v", p.Action)
	}
}

func TestEdit(t *testing.T) {
	const src = "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 1\n}\n"
	r := newRig(t)
	reset := func() *fakeFiles {
		r.guest.files = newFiles("/workspace/a.go", src, "/workspace/win", "one\r\ntwo\r\n", "/workspace/bin", "a\x00b", "/workspace/bad", "a\xffb")
		return r.guest.files
	}
	call := func(old, new, more string) string {
		o, _ := json.Marshal(old)
		n, _ := json.Marshal(new)
		return fmt.Sprintf(`{"path":"a.go","old":%s,"new":%s%s}`, o, n, more)
	}
	f := reset()
	var a struct {
		Replaced, Line int
		Sha256         string
	}
	r.ok("edit", call("func b() {\n\treturn 1", "func b() {\n\treturn 2", ""), &a)
	if want := strings.Replace(src, "b() {\n\treturn 1", "b() {\n\treturn 2", 1); f.data["/workspace/a.go"] != want || a.Replaced != 1 || a.Line != 5 || a.Sha256 != sha(want) {
		t.Errorf("%+v %q", a, f.data["/workspace/a.go"])
	}
	f = reset()
	r.ok("edit", call("return 1", "return 3", `,"all":true`), &a)
	if strings.Count(f.data["/workspace/a.go"], "return 3") != 2 || a.Replaced != 2 {
		t.Errorf("%+v", a)
	}
	f = reset()
	r.fails("edit", call("return 1", "return 3", ""), domain.CodeInvalid, "2 times, at lines 2, 6", "set all")
	r.fails("edit", call("func b() {\n    return 1", "x", ""), domain.CodeInvalid, "only spaces, tabs", "5: func b() {", "6: \treturn 1")
	r.fails("edit", call("func bee() {", "x", ""), domain.CodeInvalid, "nearest lines", "5: func b() {")
	r.fails("edit", call("something else entirely, 42 zebras", "x", ""), domain.CodeInvalid, "nothing in the file looks like it")
	r.fails("edit", call("return 1", "return 1", ""), domain.CodeInvalid, "the same")
	r.fails("edit", call("", "x", ""), domain.CodeInvalid)
	r.fails("edit", call("func b", "func c", `,"expect":"`+sha("old")+`"`), domain.CodeConflict, "read it again")
	r.fails("edit", `{"path":"win","old":"one\ntwo","new":"x"}`, domain.CodeInvalid, "Windows line ends")
	r.fails("edit", `{"path":"bin","old":"a","new":"x"}`, domain.CodeInvalid, "no UTF-8 text")
	r.fails("edit", `{"path":"bad","old":"a","new":"x"}`, domain.CodeInvalid, "no UTF-8 text")
	r.fails("edit", `{"path":"nope","old":"a","new":"x"}`, domain.CodeNotFound)
	if f.data["/workspace/a.go"] != src {
		t.Error("a refused edit changed the file")
	}
	// Somebody writes between our read and our write: their text stays.
	f.race = func(f *fakeFiles) { f.data["/workspace/a.go"] = "theirs" }
	r.fails("edit", call("func b", "func c", ""), domain.CodeConflict, "changed since")
	if f.data["/workspace/a.go"] != "theirs" {
		t.Errorf("%q was overwritten", f.data["/workspace/a.go"])
	}
	// A file too large to be seen whole is not edited in part.
	r.guest.files = newFiles("/workspace/a.go", "x"+strings.Repeat("y\n", maxFile/2+1))
	r.fails("edit", call("x", "z", ""), domain.CodeTooLarge)
}

func TestListGlobSearch(t *testing.T) {
	r := newRig(t)
	kv := []string{"/workspace/a.go", "package a // needle", "/workspace/b\x1b\xff.go", "needle\nno\nneedle " + strings.Repeat("n", 5000), "/workspace/sub/c.txt", "needle"}
	for i := range 1500 {
		kv = append(kv, fmt.Sprintf("/workspace/many/%s%04d.txt", strings.Repeat("\x01", 40), i), "needle")
	}
	r.guest.files = newFiles(kv...)
	var l struct {
		Entries []struct{ Name, Type string }
		More    bool
	}
	if r.ok("list", `{}`, &l); len(l.Entries) != 2 || l.Entries[0].Name != "a.go" || l.Entries[1].Name != "b\x1b\uFFFD.go" {
		t.Errorf("%+v", l)
	}
	if r.ok("list", `{"path":"many","limit":1000}`, &l); !l.More || len(l.Entries) == 0 {
		t.Errorf("%d %v", len(l.Entries), l.More)
	}
	var g struct {
		Paths []string
		More  bool
	}
	if r.ok("glob", `{"pattern":"*.go"}`, &g); len(g.Paths) != 2 || g.More {
		t.Errorf("%+v", g)
	}
	if r.ok("glob", `{"pattern":"*.txt","limit":1000}`, &g); !g.More {
		t.Errorf("%d", len(g.Paths))
	}
	if res := r.ok("glob", `{"pattern":"*.zig"}`, &g); string(res.JSON) != `{"paths":[]}` {
		t.Errorf("%s", res.JSON)
	}
	var s struct {
		Matches []struct {
			Path, Text string
			Line       int
		}
		More bool
	}
	if r.ok("search", `{"pattern":"needle","path":"b\u001b\ufffd.go"}`, &s); len(s.Matches) != 0 {
		t.Errorf("%+v", s)
	}
	if r.ok("search", `{"pattern":"needle","limit":3}`, &s); len(s.Matches) != 3 || !s.More || s.Matches[2].Line != 3 || len(s.Matches[2].Text) > 1000 {
		t.Errorf("%+v", s)
	}
	if r.ok("search", `{"pattern":"needle","limit":1000}`, &s); !s.More {
		t.Errorf("%d", len(s.Matches))
	}
}

func TestBrowserTools(t *testing.T) {
	r := newRig(t)
	r.fails("browser_snapshot", `{}`, domain.CodeUnavailable, "no browser")
	b := &fakeBrowser{page: browser.Page{ID: "1", URL: "http://localhost:8080/", Title: "A \xff page", Status: 200}}
	r.call.Browser = provider{b}
	var p browser.Page
	if res := r.ok("browser_open", `{"url":"http://localhost:8080/"}`, &p); p.Title != "A \uFFFD page" || res.Outcome != domain.OutcomeOK || b.did[0] != "open http://localhost:8080/" {
		t.Errorf("%+v %v", p, b.did)
	}
	b.page.Error = "net::ERR_TUNNEL_CONNECTION_FAILED"
	if res := r.ok("browser_open", `{"url":"https://x.example"}`, nil); res.Outcome != domain.OutcomeFailed || !strings.Contains(res.Error, "ERR_TUNNEL") {
		t.Errorf("%+v", res)
	}
	n := len(b.did)
	for _, u := range []string{"javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "file:///workspace/../etc/passwd", "file://host/workspace/x", "chrome://settings", "about:config", "localhost:8080", "http://", "view-source:http://x", "https://user:pw@x.example/", "", "http://%zz"} {
		j, _ := json.Marshal(u)
		r.fails("browser_open", `{"url":`+string(j)+`}`, domain.CodeInvalid)
	}
	if len(b.did) != n {
		t.Error("the browser was sent there:", b.did[n:])
	}
	pr, _ := r.reg.Prepare("browser_open", json.RawMessage(`{"url":"https://Pkg.example:8443/x"}`))
	if pr.Action.Host != "Pkg.example" || pr.Action.Port != 8443 || pr.Action.Reach != domain.ReachNetwork {
		t.Errorf("%+v", pr.Action)
	}

	b.snap = browser.Snapshot{Page: b.page, Text: strings.Repeat("- button \"\x01\" [e1]\n", 3000), Refs: 1}
	var s browser.Snapshot
	if r.ok("browser_snapshot", `{"whole_page":true,"max_chars":20000}`, &s); s.More == 0 || len(s.Text) < 5000 {
		t.Errorf("%d %d", len(s.Text), s.More)
	}
	b.effect = browser.Effect{Page: b.page, Diff: strings.Repeat("+ x\n", 9000), Navigated: true}
	var e browser.Effect
	if r.ok("browser_click", `{"ref":"e12"}`, &e); !e.Navigated || e.Diff == "" {
		t.Errorf("%+v", e)
	}
	r.ok("browser_type", `{"ref":"e3","text":"hello","submit":true}`, nil)
	if b.did[len(b.did)-1] != "type e3 hello" {
		t.Error(b.did)
	}
	r.fails("browser_click", `{"ref":"'; drop"}`, domain.CodeInvalid)
	b.err = &browser.RefError{Ref: "e12", Why: "another document\x1b", Candidates: []string{"- button \"Save\" [e40]"}, Err: browser.ErrStaleRef}
	err := r.fails("browser_click", `{"ref":"e12"}`, domain.CodeConflict, "stale_ref", "new snapshot", "[e40]")
	if !errors.Is(err, browser.ErrStaleRef) {
		t.Error("the cause is lost:", err)
	}
	b.err = fmt.Errorf("click: %w", browser.ErrGone)
	r.fails("browser_click", `{"ref":"e12"}`, domain.CodeUnavailable, "starts a new one")
	b.err = nil

	b.image = append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 100)...)
	res := r.ok("browser_screenshot", `{}`, nil)
	if len(res.Artefacts) != 1 || res.Artefacts[0].Mime != "image/png" || res.Artefacts[0].Size != 108 {
		t.Errorf("%+v", res)
	}
	b.image = []byte("<script>")
	if _, err := r.run(context.Background(), "browser_screenshot", `{}`); err == nil {
		t.Error("something that is no picture was taken for one")
	}
}

type asker struct {
	q tool.Question
	r tool.Reply
}

func (a *asker) AskUser(_ context.Context, q tool.Question) (tool.Reply, error) {
	a.q = q
	return a.r, nil
}

func TestAskUser(t *testing.T) {
	r := newRig(t)
	r.fails("ask_user", `{"question":"which?"}`, domain.CodeUnavailable, "Nobody can be asked")
	a := &asker{r: tool.Reply{State: "answered", Option: "b", Text: "and c"}}
	r.call.Asker = a
	res := r.ok("ask_user", `{"question":"which?","options":["a","b"]}`, nil)
	if res.Outcome != domain.OutcomeOK || string(res.JSON) != `{"state":"answered","option":"b","text":"and c"}` || a.q.FreeText {
		t.Errorf("%+v %s", res, res.JSON)
	}
	r.ok("ask_user", `{"question":"what?"}`, nil)
	if !a.q.FreeText {
		t.Error("a question without options takes no text")
	}
	// Silence is not an answer.
	for state, want := range map[string]domain.Outcome{"expired": domain.OutcomeTimeout, "cancelled": domain.OutcomeCancelled} {
		a.r = tool.Reply{State: state}
		if res := r.ok("ask_user", `{"question":"push?","options":["yes","no"]}`, nil); res.Outcome != want || !strings.Contains(res.Error, "neither a yes nor a no") {
			t.Errorf("%+v", res)
		}
	}
	for _, args := range []string{`{}`, `{"question":""}`, `{"question":" "}`, `{"question":"x","options":[]}`, `{"question":"x","options":["a","a"]}`, `{"question":"x","options":["1","2","3","4","5","6","7","8","9"]}`} {
		r.fails("ask_user", args, domain.CodeInvalid)
	}
}
