package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"glasshouse/backend/event"
)

// selfEnv makes this test's own program the command line.
const selfEnv = "GLASSHOUSE_CLI_SELF"

func TestMain(m *testing.M) {
	if os.Getenv(selfEnv) != "" {
		os.Exit(Main(nil, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// seat is a command at a terminal.
type seat struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	got  chan []byte
	text bytes.Buffer
}

func sit(t *testing.T, args ...string) *seat {
	t.Helper()
	pass()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a hang guard
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), selfEnv+"=1", "TERM=xterm")
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s := &seat{t: t, cmd: cmd, tty: f, got: make(chan []byte, 1000)}
	go func() {
		defer close(s.got)
		for {
			b := make([]byte, 4096)
			n, err := f.Read(b)
			if n > 0 {
				s.got <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// sees waits for text on the terminal.
func (s *seat) sees(text string) { s.t.Helper(); s.seesTimes(text, 1) }

// stated is what stood on the last line for the time being and was wiped away: it comes
// where nothing came for two seconds, which is any time on a busy computer.
var stated = regexp.MustCompile("(\x1b\\[2m)?    … [^\r\n\x1b]*(\x1b\\[0m)?\r\x1b\\[K")

// lasting is what the terminal showed for more than a time.
func (s *seat) lasting() string { return stated.ReplaceAllString(s.text.String(), "") }

func (s *seat) seesTimes(text string, times int) {
	s.t.Helper()
	for strings.Count(s.lasting(), text) < times {
		select {
		case b, ok := <-s.got:
			if !ok {
				s.t.Fatalf("it ended without %q:\n%s", text, s.text.String())
			}
			s.text.Write(b)
		case <-time.After(time.Minute):
			s.t.Fatalf("%q does not come:\n%s", text, s.text.String())
		}
	}
}

func (s *seat) types(keys string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the command's end and returns its exit code.
func (s *seat) ends() int {
	s.t.Helper()
	for b := range s.got {
		s.text.Write(b)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

const aKey = "sk-th1s-1s-a-k3y"

func TestAKeyIsSeenByNobody(t *testing.T) {
	d := newDoors(t)
	putKey := func() string { return strings.Join(d.called("PUT", "/v1/models/big/key"), "") }
	s := sit(t, "model", "key", "big")
	s.sees("key of big (it is not shown): ")
	s.types(aKey + "\n")
	if code := s.ends(); code != 0 || strings.Contains(s.text.String(), aKey) || putKey() != `{"key":"`+aKey+`"}` {
		t.Errorf("%d %q %q", code, s.text.String(), putKey())
	}
	d.calls = nil
	r := line(t, aKey+"\n", "model", "key", "big")
	if r.code != 0 || strings.Contains(r.out+r.err, aKey) || putKey() != `{"key":"`+aKey+`"}` {
		t.Errorf("from a pipe: %+v %q", r, putKey())
	}
	// In the wrong place it is an error, and is not repeated. Nothing was sent.
	d.calls = nil
	for _, args := range [][]string{{"model", "key", aKey}, {"model", "key", "big", aKey}, {"model", "key", "big", "--key=" + aKey}} {
		if r := line(t, "", args...); r.code == 0 || strings.Contains(r.out+r.err, aKey) || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	for _, in := range []string{"", "\n", "two words\n", "two\nlines\n", "t\u00e4st", strings.Repeat("k", keyMost+1)} {
		if r := line(t, in, "model", "key", "big"); r.code != 1 || !strings.Contains(r.err, "nothing was changed") {
			t.Errorf("%.20q: %+v", in, r)
		}
	}
	for _, c := range d.calls {
		if c.method != "GET" || strings.Contains(c.path+c.query, aKey) {
			t.Errorf("sent: %+v", c)
		}
	}
	// The core's refusal may repeat it.
	d.answer["PUT /v1/models/big/key"] = reply{422, `{"code":"invalid","what":"the key ` + aKey + ` is odd","details":["/key: ` + aKey + `"]}`}
	if r := line(t, aKey, "model", "key", "big"); r.code != 1 || strings.Contains(r.err, aKey) || !strings.Contains(r.err, "is odd") {
		t.Errorf("%+v", r)
	}
	if r := line(t, "", "model", "key", "big", "--delete"); r.code != 0 || len(d.called("DELETE", "/v1/models/big/key")) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestModels(t *testing.T) {
	d := newDoors(t)
	r := line(t, "", "model", "list")
	has(t, r.out, "* big", "big-1", "its provider", "key in the keychain", "$3 in, $15 out", "  home", "127.0.0.1:11434", "no key", "price not known", "keyless", "key missing: NO_SUCH_KEY is not set")
	r = line(t, "", "--json", "model", "list")
	if json.Unmarshal([]byte(r.out), &map[string]any{}) != nil || r.err != "" {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		args   []string
		method string
		path   string
		body   string
	}{
		{[]string{"add", "new", "--format", "anthropic", "--model", "m", "--key-env", "K", "--context", "200000", "--max-output", "9000", "--effort", "high", "--price-input", "3", "--price-output", "15", "--price-cache-read", "0.3", "--price-cache-write", "3.75", "--text-only"},
			"PUT", "/v1/models/new", `{"name":"new","format":"anthropic","model":"m","key_env":"K","context":200000,"max_output":9000,"effort":"high","text_only":true,"price":{"input":3,"cache_read":0.3,"cache_write":3.75,"output":15}}`},
		{[]string{"edit", "big", "--model", "big-2", "--price-output", "20"}, "PUT", "/v1/models/big", `{"name":"big","format":"anthropic","model":"big-2","price":{"input":3,"cache_read":0.3,"output":20}}`},
		{[]string{"edit", "home", "--price-input", "0", "--price-output", "0"}, "PUT", "/v1/models/home", `{"name":"home","format":"openai-chat","model":"small:8b","base_url":"http://127.0.0.1:11434/v1","price":{"input":0,"output":0}}`},
		{[]string{"edit", "big", "--no-price"}, "PUT", "/v1/models/big", `{"name":"big","format":"anthropic","model":"big-1"}`},
		{[]string{"edit", "home", "--base-url", ""}, "PUT", "/v1/models/home", `{"name":"home","format":"openai-chat","model":"small:8b"}`},
		{[]string{"remove", "home"}, "DELETE", "/v1/models/home", ``},
		{[]string{"default", "home"}, "POST", "/v1/default-model", `{"name":"home"}`},
	} {
		d.calls = nil
		r := line(t, "", append([]string{"model"}, c.args...)...)
		if got := d.called(c.method, c.path); len(got) != 1 || got[0] != c.body || r.code != 0 && c.args[0] != "add" {
			t.Errorf("%q: %+v\n%q", c.args, r, d.calls)
		}
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "--format and --model", []string{"add", "x"}},
		{2, "both --price-input and --price-output", []string{"add", "x", "--format", "anthropic", "--model", "m", "--price-input", "1"}},
		{1, "model edit big", []string{"add", "big", "--format", "anthropic", "--model", "m"}},
		{2, "what should change", []string{"edit", "big"}},
		{2, "leave out the other", []string{"edit", "big", "--no-price", "--price-input", "1"}},
		{1, "there are: big, home, keyless", []string{"edit", "nope", "--model", "m"}},
		{1, "there are: big, home, keyless", []string{"remove", "nope"}},
		{1, "there are: big, home, keyless", []string{"try", "nope"}},
	} {
		d.calls = nil
		r := line(t, "", append([]string{"model"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: %+v", c.args, r)
		}
		for _, call := range d.calls {
			if call.method != "GET" {
				t.Errorf("%q: %+v", c.args, call)
			}
		}
	}
	d.answer["GET /v1/models"] = reply{200, `{"default":"","models":[],"file":"f"}`}
	if r := line(t, "", "model", "list"); r.code != 0 || !strings.Contains(r.err, "model add --help") {
		t.Errorf("%+v", r)
	}
}

func TestTryAModel(t *testing.T) {
	d := newDoors(t)
	d.answer["POST /v1/models/big/try"] = reply{200, `{"ok":true,"text":"Hello\u001b[2J","usage":{"input":12,"output":3},"took_ms":1234}`}
	r := line(t, "", "model", "try", "big")
	has(t, r.out, `Hello\x1b[2J`)
	has(t, r.err, "12 in, 3 out, 1.2 s, <$0.0001", "counts in no session")
	if r.code != 0 {
		t.Error(r.code)
	}
	d.answer["POST /v1/models/big/try"] = reply{200, `{"ok":false,"kind":"auth","error":"auth (HTTP 401): no such key\u001b","usage":{"input":0,"output":0},"took_ms":1}`}
	r = line(t, "", "model", "try", "big")
	if r.code != 1 || r.out != "" {
		t.Errorf("%+v", r)
	}
	has(t, r.err, `HTTP 401): no such key\x1b`, "glasshouse model key big")
	if r = line(t, "", "--json", "model", "try", "big"); r.code != 1 || json.Unmarshal([]byte(r.out), &map[string]any{}) != nil {
		t.Errorf("%+v", r)
	}
}

func begins(d *doors) {
	d.tell(&event.TurnStarted{Turn: doorTurn, Agent: "model", Prompt: "hi"}, delta("a", "text", 0, "I look at the"))
}

// Ctrl-C at a terminal: first what can be done, then the turn is stopped; its true end
// is what counts.
func TestCtrlCTwiceStopsATurn(t *testing.T) {
	d := newDoors(t)
	d.turn = begins
	s := sit(t, "run", "--project", "shop", "hi")
	s.sees("I look at the")
	s.types("\x03")
	s.sees("Ctrl-C again: stop the turn")
	if len(d.called("POST", "/v1/sessions/"+doorSession+"/cancel")) != 0 {
		t.Error("the first one stops it already")
	}
	d.tell(delta("a", "text", 13, " file now"))
	s.sees("\n  |  file now") // on a line of its own, set in
	s.types("\n")
	s.sees("watching on.")
	s.types("\x03")
	s.seesTimes("Ctrl-C again: stop the turn", 2)
	if len(d.called("POST", "/v1/sessions/"+doorSession+"/cancel")) != 0 {
		t.Error("a first one after watching on stops it")
	}
	s.types("\x03")
	s.sees("stopping the turn")
	for len(d.called("POST", "/v1/sessions/"+doorSession+"/cancel")) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	d.tell(answered("a", 1, text("text", "I look at the file now.")), ended("cancelled"))
	if code := s.ends(); code != 4 || !strings.Contains(s.text.String(), "turn cancelled") {
		t.Errorf("%d %q", code, s.text.String())
	}
}

func TestCtrlCThenLeave(t *testing.T) {
	d := newDoors(t)
	d.turn = begins
	s := sit(t, "run", "--project", "shop", "hi")
	s.sees("I look at the")
	s.types("\x03")
	s.sees("d and Enter: leave it working")
	s.types("d\n")
	if code := s.ends(); code != 130 || !strings.Contains(s.text.String(), "the agent goes on in session "+doorSession) || d.called("POST", "/v1/sessions/"+doorSession+"/cancel") != nil {
		t.Errorf("%d %q", code, s.text.String())
	}
}

// A prompt is written at a terminal too; Ctrl-C gives it up.
func TestAPromptIsTyped(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) { d.tell(ended("ok")) }
	s := sit(t, "run", "--project", "shop", "-")
	s.sees("Ctrl-D on a line of its own")
	s.types("mend it\nall of it\n\x04")
	if code := s.ends(); code != 0 || strings.Join(d.called("POST", "/v1/sessions/"+doorSession+"/turns"), "") != `{"agent":"model","prompt":"mend it\nall of it\n"}` {
		t.Errorf("%d %q", code, d.calls)
	}
	s = sit(t, "run", "--project", "shop", "-")
	s.sees("Ctrl-D on a line of its own")
	s.types("mend\x03")
	if code := s.ends(); code != 130 || len(d.called("POST", "/v1/sessions/"+doorSession+"/turns")) != 1 {
		t.Errorf("%d %q", code, s.text.String())
	}
}

// Without a terminal a signal leaves the agent at work.
func TestASignalLeavesTheAgentAtWork(t *testing.T) {
	d := newDoors(t)
	d.turn = begins
	cmd := exec.Command(os.Args[0], "run", "--project", "shop", "hi")
	cmd.Env = append(os.Environ(), selfEnv+"=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	pass()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, _ := out.Read(b)
	if !strings.Contains(string(b[:n]), "turn by") {
		t.Errorf("%q", b[:n])
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(errs.String(), "the agent goes on in session "+doorSession) || d.called("POST", "/v1/sessions/"+doorSession+"/cancel") != nil {
		t.Errorf("%d %q", code, errs.String())
	}
}

// A question at a terminal takes a word, and a text after it; the text that the model
// was writing is not torn.
func TestAQuestionIsAnsweredAtTheTerminal(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) {
		begins(d)
		d.tell(&event.ApprovalRequested{Approval: "ap_1", Kind: "loop", Title: "exec was called three times alike", Digest: "d", FreeText: true,
			Choices: []event.Choice{{ID: "go_on", Label: "Go on"}, {ID: "stop", Label: "Stop"}}})
	}
	s := sit(t, "run", "--project", "shop", "hi")
	s.sees("answer: ")
	d.tell(&event.PlanUpdated{Turn: doorTurn, Items: []event.PlanItem{{Text: "meanwhile", State: "open"}}})
	s.sees("[ ] meanwhile")
	s.types("go on: use the other file\n")
	for d.called("POST", "/v1/approvals/ap_1/answer") == nil {
		time.Sleep(10 * time.Millisecond)
	}
	d.tell(&event.ApprovalAnswered{Approval: "ap_1", Choice: "go_on", By: "person"}, ended("ok"))
	if code := s.ends(); code != 0 {
		t.Errorf("%d", code)
	}
	got := strings.ReplaceAll(s.lasting(), "\r\n", "\n")
	has(t, got, "I look at the\n", "ap_1  exec was called three times alike\n", "[go_on] Go on\n", "answer: \n", "[ ] meanwhile\n", "answer: ", "answered \"go_on\" by person", "turn ok")
	if got := d.called("POST", "/v1/approvals/ap_1/answer"); got[0] != `{"choice":"go_on","digest":"d","text":"use the other file"}` {
		t.Errorf("%q", got)
	}
	if strings.Count(got, "three times alike") != 1 {
		t.Errorf("it is asked twice:\n%s", got)
	}
}

// Colours are for terminals, and for people who want them.
func TestColours(t *testing.T) {
	d := newDoors(t)
	d.turn = func(d *doors) { d.tell(&event.CheckRan{Name: "test", OK: true}, ended("ok")) }
	s := sit(t, "run", "--project", "shop", "hi")
	s.ends()
	if !strings.Contains(s.text.String(), "\x1b[32m✓\x1b[0m") {
		t.Errorf("no colour: %q", s.text.String())
	}
	t.Setenv("NO_COLOR", "1")
	s = sit(t, "run", "--project", "shop", "hi")
	s.ends()
	if strings.Contains(s.text.String(), "\x1b") || !strings.Contains(s.text.String(), "✓") {
		t.Errorf("colours: %q", s.text.String())
	}
}
