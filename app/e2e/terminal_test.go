package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/event"
)

// screen follows a terminal's output.
type screen struct {
	w     *World
	id    string
	guard *time.Timer // ends a stream on which nothing comes
	sc    *bufio.Scanner

	epoch string
	out   []byte // the newest of it
	end   int64
	lost  int64
	notes []string
	exit  *event.TerminalExit
}

func (w *World) openTerminal(project string, argv ...string) httpapi.TerminalView {
	w.t.Helper()
	var v httpapi.TerminalView
	w.Call("POST", "/v1/projects/"+project+"/terminals", map[string]any{"rows": 24, "cols": 80, "command": argv}, &v)
	return v
}

func (w *World) screen(id string, from int64) *screen {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &screen{w: w, id: id, guard: time.AfterFunc(screenWait, cancel), end: from}
	req, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://core/v1/terminals/%s/output?from=%d", id, from), nil)
	resp, err := w.http.Do(req)
	if err != nil || resp.StatusCode != 200 {
		w.t.Fatalf("output of %s: %v %v", id, err, resp)
	}
	w.t.Cleanup(func() { s.guard.Stop(); cancel(); resp.Body.Close() })
	s.sc = bufio.NewScanner(resp.Body)
	s.sc.Buffer(nil, 1<<20)
	s.guard.Stop() // who does not read waits for nothing
	return s
}

// screenWait is how long nothing but signs of life may come on a stream that is read.
const screenWait = 5 * time.Minute

// next takes a line; false at the end of the stream.
func (s *screen) next() bool {
	s.w.t.Helper()
	s.guard.Reset(screenWait)
	defer s.guard.Stop()
	for s.sc.Scan() {
		if len(s.sc.Bytes()) == 0 {
			continue
		}
		var l httpapi.TerminalLine
		if err := json.Unmarshal(s.sc.Bytes(), &l); err != nil {
			s.w.t.Fatalf("a line of output: %v", err)
		}
		if l.Epoch != "" {
			s.epoch = l.Epoch
			continue
		}
		if l.Note != "" {
			s.notes = append(s.notes, l.Note)
		}
		if len(l.Data) > 0 {
			if l.Offset != s.end+l.Lost {
				s.w.t.Fatalf("a piece at %d after %d with %d lost", l.Offset, s.end, l.Lost)
			}
			s.lost += l.Lost
			s.end = l.Offset + int64(len(l.Data))
			s.out = append(s.out, l.Data...)
			s.out = s.out[max(0, len(s.out)-(2<<20)):]
		}
		if l.Exit != nil {
			s.exit = l.Exit
		}
		return true
	}
	return false
}

func (s *screen) until(text string) {
	s.w.t.Helper()
	for !bytes.Contains(s.out, []byte(text)) {
		if !s.next() {
			s.w.t.Fatalf("before %q came the stream ended; the last of it: %q", text, last(s.out, 500))
		}
	}
}

func (s *screen) ended() event.TerminalExit {
	s.w.t.Helper()
	for s.exit == nil {
		if !s.next() {
			s.w.t.Fatalf("the stream ended without an exit; the last of it: %q", last(s.out, 500))
		}
	}
	return *s.exit
}

func (s *screen) input(more map[string]any) error {
	return s.w.Try("POST", "/v1/terminals/"+s.id+"/input", more, nil)
}

func (s *screen) typed(text string) {
	s.w.t.Helper()
	s.out = s.out[:0]
	if err := s.input(map[string]any{"data": []byte(text)}); err != nil {
		s.w.t.Fatal(err)
	}
}

// closedTerminals are the recorded ends.
func (w *World) closedTerminals() map[string]event.TerminalExit {
	w.t.Helper()
	out := map[string]event.TerminalExit{}
	for _, e := range w.Log(url.Values{}) {
		if e.Type != "terminal.closed" {
			continue
		}
		v, err := event.Decode(e)
		if err != nil {
			w.t.Fatal(err)
		}
		c := v.(*event.TerminalClosed)
		if _, twice := out[c.Terminal]; twice {
			w.t.Errorf("%s was closed twice", c.Terminal)
		}
		out[c.Terminal] = c.Exit
	}
	return out
}

// A terminal goes on over what happens around it: windows that come and go, a core
// that is killed. It ends with the machine, with the project and with a quit, and
// each end is recorded once.
func TestTerminals(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		p := w.Project("")
		project := string(p.ID)
		sub := func(name string, f func(t *testing.T)) {
			t.Run(name, func(t *testing.T) {
				old := w.t
				w.t = t
				defer func() { w.t = old }()
				f(t)
			})
		}
		sub("type", func(t *testing.T) {
			s := w.screen(w.openTerminal(project).ID, 0)
			s.typed("stty size; pwd; echo $((6*7))-$TERM\n")
			s.until("42-xterm-256color")
			s.until("24 80")
			s.until("/workspace")
			w.Call("POST", "/v1/terminals/"+s.id+"/size", map[string]int{"rows": 31, "cols": 99}, nil)
			s.typed("stty size\n")
			s.until("31 99")
			for _, bad := range []map[string]int{{"rows": 0, "cols": 80}, {"rows": 24, "cols": 70000}} {
				if err := w.Try("POST", "/v1/terminals/"+s.id+"/size", bad, nil); code(err) != "invalid" {
					t.Errorf("size %v: %v", bad, err)
				}
			}
			// Sent twice, it is typed once; one that is ahead is refused.
			for range 2 {
				if err := s.input(map[string]any{"data": []byte("echo one-$((40+1))\n"), "writer": "w", "seq": 1, "epoch": s.epoch}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.input(map[string]any{"data": []byte("x"), "writer": "w", "seq": 3}); code(err) != "conflict" {
				t.Errorf("a number ahead: %v", err)
			}
			if err := s.input(map[string]any{"data": []byte("x"), "epoch": "another"}); code(err) != "conflict" {
				t.Errorf("another core's epoch: %v", err)
			}
			s.typed("echo the-$((1+1))nd\n")
			s.until("the-2nd")
			if n := bytes.Count(s.out, []byte("one-41")); n != 1 {
				t.Errorf("it was run %d times", n)
			}
			if err := s.input(map[string]any{"data": bytes.Repeat([]byte("x"), 65<<10)}); code(err) != "too_large" {
				t.Errorf("a huge input: %v", err)
			}
			s.typed("exit 7\n")
			if x := s.ended(); x.Code != 7 || x.Unknown || x.Reason != "" {
				t.Errorf("exit %+v", x)
			}
			if err := s.input(map[string]any{"data": []byte("x")}); code(err) != "conflict" {
				t.Errorf("typing into one that ended: %v", err)
			}
			// What it showed can still be read, until it is closed.
			again := w.screen(s.id, 0)
			again.until("the-2nd")
			if x := again.ended(); x.Code != 7 {
				t.Errorf("exit read again: %+v", x)
			}
			w.Call("DELETE", "/v1/terminals/"+s.id, nil, nil)
			if err := w.Try("DELETE", "/v1/terminals/"+s.id, nil, nil); code(err) != "not_found" {
				t.Errorf("closed twice: %v", err)
			}
		})
		sub("flood", func(t *testing.T) {
			// A reader that does not read holds up neither the program nor another reader.
			v := w.openTerminal(project, "/bin/bash", "-c", "read x; yes 0123456789012345678901234567890123456789 | head -c 80000000; echo; echo all-$((1+1)); read x")
			stuck, s := w.screen(v.ID, 0), w.screen(v.ID, 0)
			s.typed("\n")
			s.until("all-2")
			if s.end < 80_000_000 {
				t.Errorf("%d bytes of output are known", s.end)
			}
			t.Logf("%d bytes, of which %d were missed", s.end, s.lost)
			stuck.until("all-2")
			if stuck.lost == 0 {
				t.Error("a reader that did not read missed nothing of 80 MB")
			}
			w.Call("DELETE", "/v1/terminals/"+v.ID, nil, nil)
			if x := s.ended(); x.Reason != "closed by the person" {
				t.Errorf("exit %+v", x)
			}
		})
		sub("kill", func(t *testing.T) {
			// What it left in the background ends with it: nothing beats any more.
			s := w.screen(w.openTerminal(project).ID, 0)
			s.typed("(trap '' HUP TERM; while :; do echo >> /workspace/beat; sleep 0.05; done) & disown; echo up-$((1+1))\n")
			s.until("up-2")
			se := w.Session(p)
			w.Until("the first beat", func() bool { return w.Bash(se, "test -s /workspace/beat && echo yes").Stdout == "yes\n" })
			w.Call("DELETE", "/v1/terminals/"+s.id, nil, nil)
			// It grows and is never made empty: a file that each beat writes anew can be met between the two by the kill.
			if a := w.Bash(se, "wc -c < /workspace/beat; sleep 1; wc -c < /workspace/beat"); len(strings.Fields(a.Stdout)) != 2 || strings.Fields(a.Stdout)[0] != strings.Fields(a.Stdout)[1] {
				t.Errorf("it goes on: %q", a.Stdout)
			}
		})
		sub("core", func(t *testing.T) {
			s := w.screen(w.openTerminal(project).ID, 0)
			s.typed("marker=$((20+3)); echo set-$marker\n")
			s.until("set-23")
			at, epoch := s.end, s.epoch
			w.KillCore()
			w.Start()
			s2 := w.screen(s.id, at)
			if err := s2.input(map[string]any{"data": []byte("x"), "epoch": epoch}); code(err) != "conflict" {
				t.Errorf("input for the core that died: %v", err)
			}
			s2.typed("echo still-$marker\n")
			s2.until("still-23")
			whole := w.screen(s.id, 0)
			whole.until("set-23")
			whole.until("still-23")
			w.Call("DELETE", "/v1/terminals/"+s.id, nil, nil)
		})
		sub("most", func(t *testing.T) {
			var ids []string
			for range 16 {
				ids = append(ids, w.openTerminal(project, "cat").ID)
			}
			if err := w.Try("POST", "/v1/projects/"+project+"/terminals", map[string]any{"rows": 24, "cols": 80}, nil); code(err) != "conflict" {
				t.Errorf("a seventeenth: %v", err)
			}
			// They hold up no step and no seal.
			se := w.Session(p)
			if a := w.Bash(se, "echo hi > /workspace/f"); a.State != "sealed" {
				t.Errorf("a step beside them is %s", a.State)
			}
			for _, id := range ids {
				w.Call("DELETE", "/v1/terminals/"+id, nil, nil)
			}
		})
		sub("machine", func(t *testing.T) {
			s := w.screen(w.openTerminal(project).ID, 0)
			s.typed("echo up-$((1+1))\n")
			s.until("up-2")
			w.Call("POST", "/v1/projects/"+project+"/machine/stop", map[string]any{}, nil)
			if x := s.ended(); x.Reason != "the machine was stopped" {
				t.Errorf("exit %+v", x)
			}
			// Opening one starts the machine.
			s = w.screen(w.openTerminal(project, "cat").ID, 0)
			s.typed("hello\n")
			s.until("hello")
		})
		sub("quit", func(t *testing.T) {
			s := w.screen(w.openTerminal(project).ID, 0)
			s.typed("echo up-$((1+1))\n")
			s.until("up-2")
			if out, err := w.CLI("quit"); err != nil {
				t.Fatalf("a quit asks about terminals: %v %s", err, out)
			}
			w.Start()
			if x, ok := w.closedTerminals()[s.id]; !ok || x.Reason != "Glasshouse was quit" {
				t.Errorf("its end is %+v (there: %v)", x, ok)
			}
			var left []httpapi.TerminalView
			w.Call("GET", "/v1/projects/"+project+"/terminals", nil, &left)
			if len(left) > 0 {
				t.Errorf("after a quit there are %+v", left)
			}
		})
		opened := 0
		for _, e := range w.Log(url.Values{}) {
			if e.Type == "terminal.opened" {
				opened++
			}
		}
		if n := len(w.closedTerminals()); n != opened {
			t.Errorf("%d were opened, %d ends are recorded", opened, n)
		}
	})
}
