// Command standin is a core without machines, for measuring what the window does with
// a flood of events: the real door over a real log on the core's socket. It serves
// beside the door what only a measurement needs:
//
//	POST /v1/standin/start    append a session's events: {"events": 20000, "rate": 2000}
//	GET  /v1/standin/state    {"session", "first_id", "last_id", "events", "steps", "done"}
//	POST /v1/standin/browser  from now on the sessions' browser is open
//	GET  /v1/standin/bare     a page with a bare virtual list that follows the same events
//	GET  /v1/standin/picture  one JPEG, as a live view is sent one
//
// It is no part of the product.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
)

//go:embed bare.html
var bare []byte

func main() {
	data := flag.String("data", "", "data folder that the window is pointed at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *data); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	log, err := eventlog.Open(data, eventlog.Options{})
	if err != nil {
		return err
	}
	defer log.Close()
	path := filepath.Join(data, "core.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := &standin{ctx: ctx, log: log}
	if err := s.project(); err != nil {
		return err
	}
	shot := picture()
	view := &pages{jpeg: shot}
	door := httpapi.Handler(httpapi.Services{Log: log, Version: "standin", Browsers: view})
	mux := http.NewServeMux()
	mux.Handle("/", door)
	// What the window asks a core that has no machines.
	answer := func(path string, v func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v()) })
	}
	answer("/v1/info", func() any {
		return map[string]any{"version": "standin", "machine_kinds": map[string]any{}, "latest_event_id": log.LatestID()}
	})
	answer("/v1/projects", func() any { return []map[string]any{{"id": projectID, "name": "flood", "machine_kind": "local"}} })
	answer("/v1/projects/{id}/rules", func() any { return []any{} })
	mux.HandleFunc("POST /v1/standin/start", s.start)
	mux.HandleFunc("POST /v1/standin/browser", func(http.ResponseWriter, *http.Request) { view.open.Store(true) })
	mux.HandleFunc("GET /v1/standin/state", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.at)
	})
	mux.HandleFunc("GET /v1/standin/bare", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(bare)
	})
	mux.HandleFunc("GET /v1/standin/picture", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/jpeg")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(shot)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { srv.Close() })
	fmt.Println("ready")
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	s.wg.Wait()
	return nil
}

type state struct {
	Session string `json:"session"`
	First   int64  `json:"first_id"`
	Last    int64  `json:"last_id"`
	Events  int    `json:"events"`
	Steps   int    `json:"steps"`
	Rate    int    `json:"rate"` // events a second, as it came out
	Done    bool   `json:"done"`
	Failed  string `json:"failed,omitempty"`
}

type standin struct {
	ctx      context.Context
	log      *eventlog.Log
	wg       sync.WaitGroup
	mu       sync.Mutex
	at       state
	sessions int
}

const projectID = domain.ProjectID("p_standin")

func (s *standin) project() error {
	if s.log.LatestID() > 0 {
		return nil
	}
	p := domain.Project{ID: projectID, Name: "flood", Source: "/src/flood", Machine: "m_standin", Kind: "local", CreatedAt: time.Now().UnixMilli()}
	_, err := s.log.Append(s.ctx, event.New{Stream: event.ProjectStream(p.ID), Origin: domain.OriginHost, Actor: "person", ProjectID: p.ID, Payload: &event.ProjectCreated{Project: p}})
	return err
}

func (s *standin) start(w http.ResponseWriter, r *http.Request) {
	var in struct{ Events, Rate int }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Events < 1 || in.Rate < 1 {
		http.Error(w, "events and rate are numbers of at least 1", http.StatusUnprocessableEntity)
		return
	}
	s.mu.Lock()
	s.sessions++
	id := domain.SessionID(fmt.Sprintf("s_flood%d", s.sessions))
	s.at = state{Session: string(id), First: s.log.LatestID() + 1}
	s.mu.Unlock()
	s.wg.Go(func() {
		err := s.flood(id, in.Events, in.Rate)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.at.Done = true
		if err != nil {
			s.at.Failed = err.Error()
		}
	})
	_ = json.NewEncoder(w).Encode(map[string]string{"session": string(id)})
}

// flood appends exactly n events at a rate, in groups as steps make them.
func (s *standin) flood(id domain.SessionID, n, rate int) error {
	m := &maker{session: id, rnd: rand.New(rand.NewPCG(7, 11))}
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	sent := 0
	for sent < n {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-tick.C:
		}
		due := min(n, int(time.Since(began).Seconds()*float64(rate)))
		// A disk that was slow is made up for in bounded bites.
		take := min(due-sent, 500)
		if take <= 0 {
			continue
		}
		stored, outputs := m.take(take)
		if _, err := s.log.Append(s.ctx, stored...); err != nil {
			return err
		}
		if err := s.log.Publish(outputs...); err != nil {
			return err
		}
		sent += take
		s.mu.Lock()
		s.at.Events, s.at.Last, s.at.Steps = sent, s.log.LatestID(), m.steps
		s.at.Rate = int(float64(sent) / time.Since(began).Seconds())
		s.mu.Unlock()
	}
	return nil
}

// maker makes the events of an agent at work: turns of forty steps, each step with
// its decision, output, result and checkpoint; messages, and connections among them.
type maker struct {
	session domain.SessionID
	rnd     *rand.Rand
	queue   []event.New
	out     []event.New
	steps   int
	turn    int
	begun   bool
}

func (m *maker) take(n int) (stored, outputs []event.New) {
	for len(m.queue) < n {
		m.step()
	}
	stored, m.queue = m.queue[:n:n], m.queue[n:]
	outputs, m.out = m.out, nil
	return stored, outputs
}

func (m *maker) event(step domain.StepID, p event.Payload) event.New {
	return event.New{Stream: event.SessionStream(m.session), Origin: domain.OriginHost, Actor: "agent", ProjectID: projectID, SessionID: m.session, StepID: step, Payload: p}
}

var files = []string{"cart/total.ts", "cart/total.test.ts", "src/checkout/page.tsx", "server/prices.go", "docs/notes.md", "lib/round.py"}

func (m *maker) step() {
	put := func(step domain.StepID, p event.Payload) { m.queue = append(m.queue, m.event(step, p)) }
	if !m.begun {
		m.begun = true
		put("", &event.SessionCreated{Session: domain.Session{ID: m.session, ProjectID: projectID, Title: "Flood " + string(m.session), Class: domain.ClassTask, Agent: "playbook", State: domain.SessionIdle}})
	}
	if m.steps%40 == 0 {
		if m.turn > 0 {
			put("", &event.TurnEnded{Turn: m.turnID(), Result: "ok"})
		}
		m.turn++
		put("", &event.TurnStarted{Turn: m.turnID(), Prompt: "The checkout test fails. Find out why and mend it."})
	}
	m.steps++
	id := domain.StepID(fmt.Sprintf("%s_%d", m.session, m.steps))
	tool, title, args := "exec", "npm test -- checkout", json.RawMessage(`{"argv":["npm","test","--","checkout"]}`)
	file := files[m.rnd.IntN(len(files))]
	if m.steps%3 == 0 {
		tool, title, args = "edit", file, json.RawMessage(fmt.Sprintf(`{"path":%q,"old":"a","new":"b"}`, file))
	}
	if m.steps%9 == 0 {
		put("", &event.Message{Turn: m.turnID(), Role: "agent", Text: "The total is rounded twice: once for each line and once at the end. It is rounded once now, in cents."})
	}
	put(id, &event.StepRequested{Number: m.steps, Turn: m.turnID(), Tool: tool, Title: title, Args: args, Reach: "machine", Digest: fmt.Sprintf("%064x", m.steps)})
	put(id, &event.StepDecided{Decision: "allow", Rule: "auto", Reason: "inside the machine"})
	put(id, &event.StepStarted{Exec: fmt.Sprintf("x%d", m.steps)})
	if tool == "exec" {
		m.out = append(m.out, m.event(id, &event.StepOutput{Text: fmt.Sprintf("ok %d - total of three lines\n", m.steps)}))
	}
	if m.steps%11 == 0 {
		put(id, &event.EgressOpened{Conn: fmt.Sprintf("c%d", m.steps), Host: "registry.example.test", Port: 443, Addr: "192.0.2.7", Rule: "project"})
	}
	code := 0
	if m.rnd.IntN(8) == 0 {
		code = 1
	}
	outcome := domain.Outcome("ok")
	if code != 0 {
		outcome = "failed"
	}
	text := fmt.Sprintf("Tests: %d passed, %d total\n", m.steps%97, m.steps%97+code)
	put(id, &event.StepEnded{Outcome: outcome, ExitCode: &code, DurationMS: int64(m.rnd.IntN(4000)), Stdout: &event.OutputStream{Total: int64(len(text)), Head: text}})
	sealed := &event.StepSealed{Commit: fmt.Sprintf("%040x", m.steps), Tree: fmt.Sprintf("%040x", m.steps), Same: tool != "edit"}
	if tool == "edit" {
		sealed.Changes = []event.FileChange{{Path: file, Op: "modify", Added: m.rnd.IntN(40), Deleted: m.rnd.IntN(12)}}
	}
	put(id, sealed)
}

func (m *maker) turnID() domain.TurnID {
	return domain.TurnID(fmt.Sprintf("%s_t%d", m.session, m.turn))
}
