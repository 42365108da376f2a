package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// doors answers on a core's socket as a core does, from what a test puts in: a log that
// grows, questions, and one session. Every call is kept.
type doors struct {
	t    *testing.T
	dir  string
	turn func(d *doors) // called when a turn begins; goes on by itself

	mu     sync.Mutex
	moved  *sync.Cond
	log    []event.Envelope // transient ones have no id
	cuts   int              // streams that began before this end
	told   int              // events that went out
	calls  []doorCall
	asked  map[domain.ApprovalID]approval.Approval
	answer map[string]reply // by "METHOD path", before the usual answer
	srv    *http.Server
}

// set is passed at the begin of every command and of every call: what a test has set
// before a command is seen by the calls that come of it.
var set sync.Mutex

func pass() { set.Lock(); defer set.Unlock() }

type doorCall struct {
	method, path, query string
	body                string
	escaped             string // the path as it came
}

type reply struct {
	status int
	body   string
}

const (
	doorSession = "s_1"
	doorTurn    = "t_1"
	doorModels  = `{"default":"big","file":"models.toml","models":[
		{"name":"big","format":"anthropic","model":"big-1","key":"keychain","price":{"input":3,"output":15,"cache_read":0.3}},
		{"name":"home","format":"openai-chat","model":"small:8b","base_url":"http://127.0.0.1:11434/v1","key":"none"},
		{"name":"keyless","format":"openai-responses","model":"x","key_env":"NO_SUCH_KEY","key":"missing"}]}`
)

func newDoors(t *testing.T) *doors {
	t.Helper()
	dir, err := os.MkdirTemp("", "gh-doors-") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("GLASSHOUSE_DATA", dir)
	t.Setenv("GLASSHOUSE_CONFIG", filepath.Join(dir, "c"))
	d := &doors{t: t, dir: dir, asked: map[domain.ApprovalID]approval.Approval{}, answer: map[string]reply{}}
	d.moved = sync.NewCond(&d.mu)
	d.open()
	t.Cleanup(func() { d.shut() })
	return d
}

// open takes calls; shut ends every one and leaves the socket, as a core does that dies.
func (d *doors) open() {
	l := d.listen()
	d.srv = &http.Server{Handler: http.HandlerFunc(d.serve)}
	go func(s *http.Server) { _ = s.Serve(l) }(d.srv)
}

// listen puts a socket in the place of the one that is there, so that there is always one.
func (d *doors) listen() net.Listener {
	at := filepath.Join(d.dir, "core.sock")
	l, err := net.Listen("unix", at+".new")
	if err != nil {
		d.t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Rename(at+".new", at); err != nil {
		d.t.Fatal(err)
	}
	return l
}

func (d *doors) shut() { d.cut(); d.srv.Close() }

func (d *doors) cut() {
	d.mu.Lock()
	d.cuts++
	d.moved.Broadcast()
	d.mu.Unlock()
}

// tell appends events of the session.
func (d *doors) tell(ps ...event.Payload) { d.tellStep("", ps...) }

func (d *doors) tellStep(step domain.StepID, ps ...event.Payload) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range ps {
		b, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		e := event.Envelope{Type: p.EventType(), SessionID: doorSession, StepID: step, Actor: "person", At: time.Now().UnixMilli(), Data: b}
		if !event.Transient(e.Type) {
			for _, o := range d.log {
				e.ID = max(e.ID, o.ID)
			}
			e.ID++
		}
		if r, is := p.(*event.ApprovalRequested); is {
			d.asked[r.Approval] = approval.Approval{ID: r.Approval, Session: doorSession, Step: step, Asked: *r, Outcome: approval.Outcome{State: approval.Pending}}
		}
		d.log = append(d.log, e)
	}
	d.moved.Broadcast()
}

func (d *doors) latest() (id int64) {
	for _, e := range d.log {
		id = max(id, e.ID)
	}
	return id
}

// until waits for what the command does.
func (d *doors) until(what string, ok func() bool) {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Errorf("it never came: %s", what)
			return
		}
	}
}

// says waits until the command of line has said something on its error output.
func (d *doors) says(text string) {
	d.until(text, func() bool { return strings.Contains(says.Load().String(), text) })
}

// says is what the newest command of line says on its error output.
var says atomic.Pointer[heard]

// heard is an output that is read while it is written.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.b.Write(p) }
func (h *heard) String() string              { h.mu.Lock(); defer h.mu.Unlock(); return h.b.String() }

// sent is how many events went out, over all streams.
func (d *doors) sent() int { d.mu.Lock(); defer d.mu.Unlock(); return d.told }

// called returns the bodies of calls.
func (d *doors) called(method, path string) (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c.method == method && c.path == path {
			out = append(out, c.body)
		}
	}
	return out
}

func (d *doors) serve(w http.ResponseWriter, r *http.Request) {
	pass()
	b, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.calls = append(d.calls, doorCall{r.Method, r.URL.Path, r.URL.RawQuery, string(b), r.URL.EscapedPath()})
	own, is := d.answer[r.Method+" "+r.URL.Path]
	d.mu.Unlock()
	say := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	session := map[string]any{"id": doorSession, "project_id": "p_1", "agent": "model", "state": "idle", "mode": "auto", "model": "big", "limit_nanos": 2_500_000_000,
		"title": "t", "spent": map[string]any{"usage": map[string]any{"input": 1000, "cache_read": 200, "output": 34}, "cost_nanos": 41_200_000, "priced": true, "answers": 3}}
	switch at := r.Method + " " + r.URL.Path; {
	case is:
		w.WriteHeader(own.status)
		_, _ = io.WriteString(w, own.body)
	case at == "GET /v1/info":
		d.mu.Lock()
		id := d.latest()
		d.mu.Unlock()
		say(map[string]any{"latest_event_id": id})
	case at == "GET /v1/models", strings.HasPrefix(r.URL.Path, "/v1/models/"), at == "POST /v1/default-model":
		_, _ = io.WriteString(w, doorModels)
	case at == "POST /v1/sessions", at == "GET /v1/sessions/"+doorSession, at == "PATCH /v1/sessions/"+doorSession:
		say(session)
	case at == "POST /v1/sessions/"+doorSession+"/turns":
		// Who asked has its answer, whole, before anything of the turn happens.
		b, _ := json.Marshal(map[string]any{"turn_id": doorTurn})
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b)
		w.(http.Flusher).Flush()
		if d.turn != nil {
			go d.turn(d)
		}
	case at == "GET /v1/events":
		d.stream(w, r)
	case at == "GET /v1/log":
		d.mu.Lock()
		defer d.mu.Unlock()
		say(d.log)
	case strings.HasPrefix(at, "GET /v1/approvals/"):
		d.mu.Lock()
		defer d.mu.Unlock()
		say(d.asked[domain.ApprovalID(strings.TrimPrefix(r.URL.Path, "/v1/approvals/"))])
	case strings.HasPrefix(at, "POST /v1/approvals/"), strings.HasPrefix(at, "POST /v1/sessions/"+doorSession):
		say(struct{}{})
	default:
		w.WriteHeader(http.StatusNotFound)
		say(map[string]any{"code": "not_found", "what": "there is no " + at})
	}
}

func (d *doors) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var after int64
	fmt.Sscan(q.Get("after"), &after)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := false
	stop := context.AfterFunc(r.Context(), func() { d.mu.Lock(); gone = true; d.moved.Broadcast(); d.mu.Unlock() })
	defer stop()
	i, began := 0, d.cuts
	for i < len(d.log) && (d.log[i].ID == 0 || d.log[i].ID <= after) {
		i++
	}
	for {
		for ; i < len(d.log); i++ {
			e := d.log[i]
			if e.ID == 0 && q.Get("transient") != "true" {
				continue
			}
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
			w.(http.Flusher).Flush()
			d.told++
		}
		if gone || d.cuts != began || q.Get("follow") == "false" {
			return
		}
		d.moved.Wait()
	}
}

// ran is what came of a command line.
type ran struct {
	code     int
	out, err string
}

// line runs a command line to its end.
func line(t *testing.T, in string, args ...string) ran {
	t.Helper()
	pass()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a hang guard
	defer cancel()
	var out bytes.Buffer
	errs := &heard{}
	says.Store(errs)
	e := &env{out: &out, err: errs, in: strings.NewReader(in)}
	code := e.run(ctx, args)
	if ctx.Err() != nil {
		t.Fatalf("%q hangs: %s %s", args, out.String(), errs.String())
	}
	return ran{code, out.String(), errs.String()}
}

// has fails when a text lacks one of the parts, in their order.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, p := range parts {
		_, after, found := strings.Cut(rest, p)
		if !found {
			t.Errorf("it lacks %q (here, in this order):\n%s", p, text)
			return
		}
		rest = after
	}
}
