package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/model"
)

// Server answers from a script.
type Server struct {
	o    Options
	l    net.Listener
	http *http.Server
	done chan struct{} // closed when the listener's work ended

	mu       sync.Mutex
	script   *Script
	next     int             // of script.Answers
	given    map[*Answer]int // how often
	again    []choice        // taken back: their client left before the end
	whole    map[string]choice
	answers  int // over all
	captured map[string]string
	requests []*Request
	faults   []Fault
	usage    model.Usage
	read     [][]byte // what the simulated cache holds
	conns    map[net.Conn]http.ConnState
}

// Options of a server.
type Options struct {
	// Key that requests must carry; empty = none is needed.
	Key string
	// Record is a folder that gets each request and the answer to it.
	Record string
}

// Request is one that came, in order.
type Request struct {
	Number  int
	Time    time.Time
	Method  string
	Path    string
	Header  http.Header
	Body    []byte
	Format  model.Format // empty: not one that asks a model
	Asked   *Asked       // nil: not understood
	Answer  int          // of the script, from 1; 0 = none was given
	Summary bool         // it may call no tool
	Status  int
	Tokens  int64 // of the request, as counted here
	Whole   bool  // the answer was sent to its end
	Reply   string
}

// Fault is a request that was refused or did not meet the script.
type Fault struct {
	Request int    // its number
	Kind    string // "refused", "expect", "script" (it has no answer), "too_long", "auth"
	Text    string
}

func (f Fault) String() string { return fmt.Sprintf("request %d: %s: %s", f.Request, f.Kind, f.Text) }

// TB is what New needs of a test.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(string, ...any)
}

// New starts a server that ends with the test.
func New(t TB, s *Script, o ...Options) *Server {
	t.Helper()
	var opt Options
	if len(o) > 0 {
		opt = o[0]
	}
	srv, err := Start("127.0.0.1:0", s, opt)
	if err != nil {
		t.Fatalf("the model server: %v", err)
	}
	t.Cleanup(srv.Close)
	return srv
}

// Text is New with a script in YAML.
func Text(t TB, script string, o ...Options) *Server {
	t.Helper()
	s, err := Parse("script", []byte(script))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return New(t, s, o...)
}

// Start starts a server; Close ends it.
func Start(addr string, s *Script, o Options) (*Server, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if o.Record != "" {
		if err := os.MkdirAll(o.Record, 0o700); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	srv := &Server{o: o, l: l, script: s, done: make(chan struct{}), given: map[*Answer]int{}, whole: map[string]choice{}, captured: map[string]string{}, conns: map[net.Conn]http.ConnState{}}
	// No limit for a request's head: a connection that was opened and not used yet would be
	// closed just when it is, and the attempt would fail.
	srv.http = &http.Server{Handler: srv, ConnState: srv.state} //nolint:gosec // see above
	go func() { defer close(srv.done); _ = srv.http.Serve(l) }()
	return srv, nil
}

// Close ends the server and every connection.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.done
}

// Addr is host:port.
func (s *Server) Addr() string { return s.l.Addr().String() }

// URL is the address that a model's base_url takes, for every format.
func (s *Server) URL() string { return "http://" + s.Addr() + "/v1" }

// Requests that came so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// Faults so far.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// Usage is the sum of what whole answers reported.
func (s *Server) Usage() model.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage
}

// Left is how many entries of the script were not given yet, the keyed ones not counted.
func (s *Server) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.script.Answers) - s.next + len(s.again)
}

// Captured returns what a capture of the script found; "" = nothing yet.
func (s *Server) Captured(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.captured[name]
}

// Conns counts connections that carry a request just now.
func (s *Server) Conns() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.conns {
		if st == http.StateActive {
			n++
		}
	}
	return n
}

func (s *Server) state(c net.Conn, st http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st == http.StateClosed || st == http.StateHijacked {
		delete(s.conns, c)
		return
	}
	s.conns[c] = st
}

func (s *Server) fault(r *Request, kind, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, Fault{r.Number, kind, text})
}

const maxBody = 64 << 20

func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	r := &Request{Time: time.Now(), Method: req.Method, Path: req.URL.Path, Header: req.Header.Clone(), Body: body}
	s.mu.Lock()
	r.Number = len(s.requests) + 1
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	x := &exchange{Server: s, r: r, w: w, ctx: req.Context(), face: s.faceOf(req), sent: &bytes.Buffer{}}
	defer x.end()
	if err != nil {
		x.fail(failure{kind: "invalid", message: "the request could not be read"})
		return
	}
	if s.o.Key != "" && x.face.key(req.Header) != s.o.Key {
		s.fault(r, "auth", "the request carries another key or none")
		x.fail(failure{kind: "auth"})
		return
	}
	switch p := strings.TrimSuffix(req.URL.Path, "/"); {
	case req.Method == http.MethodGet && (strings.HasSuffix(p, "/models") || strings.Contains(p, "/models/")):
		x.models(p)
	case req.Method == http.MethodPost && strings.HasSuffix(p, "/messages/count_tokens"):
		x.count()
	case req.Method == http.MethodPost && (strings.HasSuffix(p, "/chat/completions") || strings.HasSuffix(p, "/responses") || strings.HasSuffix(p, "/messages")):
		x.ask()
	default:
		s.fault(r, "refused", "there is no "+req.Method+" "+req.URL.Path)
		x.fail(failure{kind: "not_found", message: "Invalid URL (" + req.Method + " " + req.URL.Path + ")"})
	}
}

func (s *Server) faceOf(req *http.Request) face {
	switch p := req.URL.Path; {
	case strings.Contains(p, "/messages") || req.Header.Get("Anthropic-Version") != "":
		return messages{}
	case strings.HasSuffix(strings.TrimSuffix(p, "/"), "/responses"):
		return responses{}
	}
	return chat{like: s.script.Like}
}

// exchange is one request and its answer.
type exchange struct {
	*Server
	r    *Request
	w    http.ResponseWriter
	ctx  context.Context
	face face
	sent *bytes.Buffer // what went out, for the record
}

// end keeps the exchange where that is wanted.
func (x *exchange) end() {
	x.mu.Lock()
	x.r.Reply = x.sent.String()
	x.mu.Unlock()
	if x.o.Record == "" {
		return
	}
	var body any = string(x.r.Body)
	if json.Valid(x.r.Body) && len(x.r.Body) > 0 {
		body = json.RawMessage(x.r.Body)
	}
	var in bytes.Buffer
	_ = json.Indent(&in, js(m{"method": x.r.Method, "path": x.r.Path, "header": x.r.Header, "tokens": x.r.Tokens, "answer": x.r.Answer, "status": x.r.Status, "whole": x.r.Whole, "body": body}), "", " ")
	name := filepath.Join(x.o.Record, fmt.Sprintf("%04d", x.r.Number))
	if err := errors.Join(os.WriteFile(name+".request.json", in.Bytes(), 0o600), os.WriteFile(name+".reply.txt", x.sent.Bytes(), 0o600)); err != nil {
		x.fault(x.r, "script", "the record could not be kept: "+err.Error())
	}
}

func (x *exchange) header(status int, typ string) {
	x.w.Header().Set("Content-Type", typ)
	x.w.Header().Set(x.requestHeader(), x.requestID())
	x.mu.Lock()
	x.r.Status = status
	x.mu.Unlock()
	x.w.WriteHeader(status)
}

func (x *exchange) requestID() string { return fmt.Sprintf("req_%04d", x.r.Number) }

func (x *exchange) requestHeader() string {
	if x.face.format() == model.FormatMessages {
		return "Request-Id"
	}
	return "X-Request-Id"
}

func (x *exchange) json(status int, body []byte) {
	x.header(status, "application/json")
	x.sent.Write(body)
	_, _ = x.w.Write(body)
}

// fail answers with an error in the format's words.
func (x *exchange) fail(f failure) {
	f = x.told(f)
	status, body := x.face.failure(f)
	x.json(status, body)
}

// told fills in what an error says of the request.
func (x *exchange) told(f failure) failure {
	f.key, f.request, f.tokens, f.limit = x.face.key(x.r.Header), x.requestID(), x.r.Tokens, x.script.Context
	if x.r.Asked != nil {
		f.model = x.r.Asked.Model
	}
	if f.limit == 0 {
		f.limit = max(1, f.tokens-1)
	}
	return f
}

func (x *exchange) refuse(bad *refusal) {
	x.fault(x.r, "refused", bad.message)
	x.fail(failure{kind: bad.kind, message: bad.message, param: bad.param, code: bad.code})
}

func (x *exchange) models(path string) {
	name := x.script.Model
	if name == "" {
		name = "fake-1"
	}
	one := m{"id": name, "object": "model", "created": created, "owned_by": "modeltest"}
	if x.face.format() == model.FormatMessages {
		one = m{"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
	}
	if i := strings.Index(path, "/models/"); i >= 0 {
		if path[i+len("/models/"):] != name {
			x.fail(failure{kind: "not_found"})
			return
		}
		x.json(200, js(one))
		return
	}
	if x.face.format() == model.FormatMessages {
		x.json(200, js(m{"data": []m{one}, "has_more": false, "first_id": name, "last_id": name}))
		return
	}
	x.json(200, js(m{"object": "list", "data": []m{one}}))
}

func (x *exchange) count() {
	a, bad := messages{}.read(x.r.Header, x.r.Body, false)
	if bad != nil {
		x.refuse(bad)
		return
	}
	x.json(200, js(m{"input_tokens": a.Tokens()}))
}
