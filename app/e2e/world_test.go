package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// World is one installation with a core of its own, below a short folder.
type World struct {
	t    *testing.T
	Dir  string // short; sockets live below it
	Data string
	Kind string // "local" or "lima"
	Bin  string // the program
	Env  []string
	http *http.Client
	core *exec.Cmd
	log  string
}

// eachKind runs f once per machine kind that this run has.
func eachKind(t *testing.T, f func(t *testing.T, kind string)) {
	kinds := os.Getenv("GLASSHOUSE_E2E")
	if kinds == "" {
		t.Skip("skipped: GLASSHOUSE_E2E names no machine kinds; 'make test' runs these with real machines")
	}
	for _, k := range strings.Split(kinds, ",") {
		t.Run(k, func(t *testing.T) { f(t, k) })
	}
}

// onKind runs a test on one kind only.
func onKind(t *testing.T, kind string) {
	if !slices.Contains(strings.Split(os.Getenv("GLASSHOUSE_E2E"), ","), kind) {
		t.Skipf("skipped: GLASSHOUSE_E2E does not name %q; 'make test' runs this with real machines", kind)
	}
}

// NewWorld makes an installation; its core is not started yet. At the end of the
// test everything is powered off and no process of it may be left.
func NewWorld(t *testing.T, kind string) *World {
	t.Helper()
	bin := os.Getenv("GLASSHOUSE_BIN")
	if bin == "" {
		abs, err := filepath.Abs("../../build/bin")
		if err != nil {
			t.Fatal(err)
		}
		bin = abs
	}
	dir, err := os.MkdirTemp("", "ghe-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	w := &World{t: t, Dir: dir, Data: filepath.Join(dir, "d"), Kind: kind, Bin: filepath.Join(bin, "glasshouse"), log: filepath.Join(dir, "core.log")}
	if _, err := os.Stat(w.Bin); err != nil {
		t.Fatalf("the program is not built: %v (run 'make build')", err)
	}
	w.Env = append(os.Environ(), "GLASSHOUSE_DATA="+w.Data, "GLASSHOUSE_CONFIG="+filepath.Join(dir, "c"))
	w.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(w.Data, "core.sock"))
	}}}
	t.Cleanup(w.end)
	return w
}

func (w *World) end() {
	if w.core != nil {
		out, err := w.CLI("quit", "--now")
		if err != nil {
			w.t.Errorf("quit: %v\n%s", err, out)
		}
	}
	if left := w.left(); len(left) > 0 {
		w.t.Errorf("processes left after quit:\n%s", strings.Join(left, "\n"))
		for _, l := range left {
			if pid, err := strconv.Atoi(strings.Fields(l)[0]); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if w.t.Failed() {
		if b, err := os.ReadFile(w.log); err == nil {
			w.t.Logf("core log:\n%s", last(b, 8000))
		}
	}
	if os.Getenv("GLASSHOUSE_KEEP") == "" {
		_ = os.RemoveAll(w.Dir)
	} else {
		w.t.Logf("kept: %s", w.Dir)
	}
}

func last(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// Processes lists every process of this world: those whose command line or
// environment names its folder. Zombies do not count.
func (w *World) Processes() (out []string) {
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		envb, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if len(cmd) == 0 {
			continue
		}
		if bytes.Contains(cmd, []byte(w.Dir)) || bytes.Contains(envb, []byte(w.Dir)) {
			out = append(out, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(last(cmd, 300), []byte{0}, []byte{' '})))
		}
	}
	return out
}

// programs lists all processes of this computer but the core, each as the program that it
// is: a child that the core has only just made looks like the core itself, environment and
// all, until it runs a program of its own.
func (w *World) programs() (pids []int) {
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || w.core != nil && pid == w.core.Process.Pid {
			continue
		}
		if w.core != nil {
			w.Until("a child of the core to run its program", func() bool { return !copies(pid, w.core.Process.Pid) })
		}
		pids = append(pids, pid)
	}
	return pids
}

// cores lists the processes of this world that are its core, or begin as one.
func (w *World) cores() (pids []int) {
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		argv := strings.Split(commandLine(pid), "\x00")
		if len(argv) == 3 && filepath.Base(argv[0]) == filepath.Base(w.Bin) && argv[1] == "core" && bytes.Contains(env, []byte(w.Dir)) {
			if of, alive := parent(pid); alive && !copies(pid, of) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(b)
}

// copies reports whether a process is a child that another has only just made, and runs
// no program of its own yet.
func copies(pid, of int) bool {
	p, alive := parent(pid)
	return alive && p == of && commandLine(pid) == commandLine(of)
}

// parent of a process that is there.
func parent(pid int) (int, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndexByte(b, ')') // a program's name may hold anything
	if err != nil || at < 0 {
		return 0, false
	}
	f := strings.Fields(string(b[at+1:]))
	if len(f) < 2 || f[0] == "Z" {
		return 0, false
	}
	of, err := strconv.Atoi(f[1])
	return of, err == nil
}

// left lists the processes of this world that do not go away.
func (w *World) left() []string {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if out := w.Processes(); len(out) == 0 || time.Now().After(end) {
			return out
		}
	}
}

// Settings writes config.toml before the core starts.
func (w *World) Settings(toml string) {
	w.t.Helper()
	dir := filepath.Join(w.Dir, "c")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.toml"), []byte(toml), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// Start starts the core as a child, so that a test can kill it, and waits until it answers.
func (w *World) Start() {
	w.t.Helper()
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.core = exec.Command(w.Bin, "core")
	w.core.Env, w.core.Stdout, w.core.Stderr = w.Env, log, log
	w.core.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.core.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func(c *exec.Cmd) { done <- c.Wait() }(w.core)
	deadline := time.Now().Add(3 * time.Minute)
	for {
		if err := w.Try("GET", "/v1/info", nil, nil); err == nil {
			return
		}
		select {
		case err := <-done:
			b, _ := os.ReadFile(w.log)
			w.t.Fatalf("the core ended: %v\n%s", err, last(b, 4000))
		default:
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the core does not answer")
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// KillCore ends the core as a crash would.
func (w *World) KillCore() {
	w.t.Helper()
	if err := w.core.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if syscall.Kill(w.core.Process.Pid, 0) != nil {
			w.http.CloseIdleConnections()
			return
		}
	}
	w.t.Fatal("the core survived SIGKILL")
}

// CLI runs a command of the program.
func (w *World) CLI(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, w.Bin, args...)
	c.Env = w.Env
	out, err := c.CombinedOutput()
	return string(out), err
}

// apiErr is an answer that is no success.
type apiErr struct {
	Status int
	Code   string `json:"code"`
	What   string `json:"what"`
	Hint   string `json:"hint"`
	// Pointer into the input, and what else was said.
	Pointer string   `json:"pointer"`
	Details []string `json:"details"`
}

func (e *apiErr) Error() string {
	return fmt.Sprintf("%d %s: %s (%s)", e.Status, e.Code, e.What, e.Hint)
}

// cut reports whether a connection broke while a request was sent: the door answers
// before it has taken all, and soon closes. Who comes too late for the answer asks again.
func cut(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// Try calls the door.
func (w *World) Try(method, path string, in, out any) error {
	return w.TryAs("", method, path, in, out)
}

// TryAs calls the door as somebody.
func (w *World) TryAs(actor, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://core"+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if actor != "" {
		req.Header.Set("X-Glasshouse-Actor", actor)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		e := &apiErr{Status: resp.StatusCode}
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = json.Unmarshal(b, e)
		if e.What == "" {
			e.What = string(b)
		}
		return e
	}
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// code of an error of the door; "" = none.
func code(err error) string {
	if err == nil {
		return ""
	}
	if e := new(apiErr); errors.As(err, &e) {
		return e.Code
	}
	return err.Error()
}

// Call calls the door and fails the test on an error.
func (w *World) Call(method, path string, in, out any) {
	w.t.Helper()
	if err := w.Try(method, path, in, out); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// Project makes a project out of a folder ("" = an empty workspace).
func (w *World) Project(source string) httpapi.ProjectView {
	w.t.Helper()
	var p httpapi.ProjectView
	w.Call("POST", "/v1/projects", httpapi.NewProject{Name: "test", NextName: true, Source: source, Kind: w.Kind}, &p)
	return p
}

// Session starts one in a project.
func (w *World) Session(p httpapi.ProjectView) string {
	w.t.Helper()
	var s httpapi.SessionAnswer
	w.Call("POST", "/v1/sessions", map[string]any{"project_id": p.ID, "title": "test"}, &s)
	return string(s.ID)
}

// Exec runs argv to its seal.
func (w *World) Exec(session string, argv ...string) httpapi.ExecAnswer {
	w.t.Helper()
	var a httpapi.ExecAnswer
	w.Call("POST", "/v1/sessions/"+session+"/exec?wait=sealed", map[string]any{"argv": argv}, &a)
	return a
}

// Bash runs a script to its seal.
func (w *World) Bash(session, code string) httpapi.ExecAnswer {
	w.t.Helper()
	return w.Exec(session, "bash", "-c", code)
}

// Log returns all stored events.
func (w *World) Log(q url.Values) []event.Envelope {
	w.t.Helper()
	var all []event.Envelope
	if q == nil {
		q = url.Values{}
	}
	q.Set("limit", "5000")
	for after := int64(0); ; {
		q.Set("after", strconv.FormatInt(after, 10))
		var page []event.Envelope
		w.Call("GET", "/v1/log?"+q.Encode(), nil, &page)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}

// Answer waits for a question and answers it.
func (w *World) Answer(choice string) {
	w.t.Helper()
	w.Until("a question", func() bool {
		var as []struct {
			ID    domain.ApprovalID `json:"id"`
			Asked struct {
				Digest string `json:"digest"`
			} `json:"asked"`
		}
		w.Call("GET", "/v1/approvals", nil, &as)
		if len(as) == 0 {
			return false
		}
		w.Call("POST", "/v1/approvals/"+string(as[0].ID)+"/answer", map[string]string{"digest": as[0].Asked.Digest, "choice": choice}, nil)
		return true
	})
}

// Until polls until ok, with a generous guard against hanging.
func (w *World) Until(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s never came", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Follower records the raw event stream from outside, as an SSE client, without
// any de-duplication; it reconnects with Last-Event-ID.
type Follower struct {
	Frames []Frame
	stop   context.CancelFunc
	done   chan struct{}
	last   atomic.Int64 // the id of the newest whole frame
}

// Frame is one SSE frame as it came.
type Frame struct {
	ID   int64
	Data string
}

// Follow starts a follower; Stop ends it and makes Frames readable.
func (w *World) Follow() *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://core/v1/events", nil)
			if lastID := f.last.Load(); lastID > 0 {
				req.Header.Set("Last-Event-ID", strconv.FormatInt(lastID, 10))
			}
			resp, err := w.http.Do(req)
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			sc := bufio.NewScanner(resp.Body)
			sc.Buffer(make([]byte, 64<<10), 4<<20)
			var id int64
			for sc.Scan() {
				if v, ok := strings.CutPrefix(sc.Text(), "id: "); ok {
					id, _ = strconv.ParseInt(v, 10, 64)
				} else if v, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
					// Only a whole frame counts: one that is cut before its empty line
					// is dropped by every SSE client.
					if sc.Scan() && sc.Text() == "" && id > 0 {
						f.Frames = append(f.Frames, Frame{id, v})
						f.last.Store(id)
					}
					id = 0
				}
			}
			resp.Body.Close()
		}
	}()
	return f
}

// Stop ends the follower and returns what it saw.
func (f *Follower) Stop() []Frame {
	f.stop()
	<-f.done
	return f.Frames
}
