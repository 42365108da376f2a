package core

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/vm/guest"
	"glasshouse/vm/vmtest"
)

// counted is a guest that is asked how it is.
type counted struct {
	guest.Guest
	mu    sync.Mutex
	asked int
	stuck chan struct{} // nil = answers at once
}

func (c *counted) Stats(ctx context.Context) (guest.Stats, error) {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	if c.stuck != nil {
		select {
		case <-c.stuck:
		case <-ctx.Done():
			return guest.Stats{}, ctx.Err()
		}
	}
	return guest.Stats{CPUPercent: 12.5, MemUsedKiB: 3, MemTotalKiB: 4, Procs: 7, Load1: 0.5}, nil
}

func (c *counted) n() int { c.mu.Lock(); defer c.mu.Unlock(); return c.asked }

func TestMachinesAreMeasuredWhileSomebodyLooks(t *testing.T) {
	good, stuck, off := &counted{Guest: vmtest.NewWorld().Open()}, &counted{Guest: vmtest.NewWorld().Open(), stuck: make(chan struct{})}, &counted{Guest: vmtest.NewWorld().Open()}
	w := newWatching()
	said := make(chan event.New, 1000)
	var mu sync.Mutex
	on := map[domain.ProjectID]guest.Guest{"p_good": good, "p_stuck": stuck}
	m := &meter{every: 5 * time.Millisecond, wait: time.Hour, wants: w.wants,
		projects: func() []domain.Project { return []domain.Project{{ID: "p_stuck"}, {ID: "p_good"}, {ID: "p_off"}} },
		running: func(id domain.ProjectID) (guest.Guest, bool) {
			mu.Lock()
			defer mu.Unlock()
			g, ok := on[id]
			if !ok {
				return off, false
			}
			return g, true
		},
		publish: func(n ...event.New) error {
			for _, e := range n {
				said <- e
			}
			return nil
		}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.run(ctx, w.came) }()
	time.Sleep(50 * time.Millisecond)
	if good.n() != 0 {
		t.Fatal("it is asked although nobody looks")
	}
	leave := w.watch("p_good")
	for range 3 {
		e := <-said
		s, ok := e.Payload.(*event.MachineStats)
		if !ok || e.ProjectID != "p_good" || e.Origin != domain.OriginGuest || s.CPUPercent != 12.5 || s.MemTotalKiB != 4 || s.Procs != 7 || s.Load != 0.5 {
			t.Fatalf("%+v", e)
		}
	}
	if stuck.n() != 0 {
		t.Error("a project nobody looks at was asked")
	}
	// One that looks at everything; a machine that does not answer keeps nobody waiting.
	all := w.watch("")
	leave()
	leave() // once is enough
	for before := good.n(); good.n() < before+3; {
		<-said
	}
	for stuck.n() == 0 {
		<-said
	}
	if stuck.n() != 1 || off.n() != 0 {
		t.Errorf("a stuck machine was asked %d times, one that is off %d", stuck.n(), off.n())
	}
	// What comes of a machine that went meanwhile is not told.
	mu.Lock()
	delete(on, "p_stuck")
	mu.Unlock()
	close(stuck.stuck)
	all()
	if w.wants("p_good") || len(w.by) != 0 {
		t.Errorf("somebody is still counted: %v", w.by)
	}
	cancel()
	<-done
	close(said)
	for e := range said {
		if e.ProjectID != "p_good" {
			t.Errorf("%+v", e)
		}
	}
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Who follows transient events of the door is counted while it does; who follows
// something else is not.
func TestFollowersAreCounted(t *testing.T) {
	c, _ := opened(t, paths(t))
	srv := httptest.NewServer(c.Handler())
	defer srv.Close()
	until := func(what string, f func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("waited in vain for " + what)
			}
		}
	}
	for query, wants := range map[string]string{"transient=true": "p_any", "transient=true&project_id=p_1": "p_1", "transient=true&types=machine.stats": "p_any",
		"": "", "transient=true&session_id=s_1": "", "transient=true&types=step.output": ""} {
		ctx, leave := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/v1/events?format=sse&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := res.Body.Read(b); err != nil { // the stream runs
			t.Fatal(err)
		}
		if wants == "" {
			if c.watching.wants("p_any") || c.watching.wants("p_1") {
				t.Errorf("%q is counted", query)
			}
		} else {
			until(query, func() bool { return c.watching.wants(domain.ProjectID(wants)) })
			if wants == "p_1" && c.watching.wants("p_2") {
				t.Errorf("%q: another project is measured for it", query)
			}
		}
		leave()
		res.Body.Close()
		until("the end of "+query, func() bool { return !c.watching.wants("p_any") && !c.watching.wants("p_1") })
	}
}

// A playbook that is refused leaves no session behind.
func TestRefusedInputMakesNoSession(t *testing.T) {
	at := paths(t)
	// A core reads its projects when it opens, before anything of it runs.
	if err := os.MkdirAll(at.Data, 0o711); err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.Open(at.Data, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := domain.Project{ID: "p_1", Name: "one", Kind: "local", Machine: "m1"}
	for _, pl := range []event.Payload{&event.ProjectCreated{Project: p}, &event.ProjectImported{}} {
		if _, err := log.Append(t.Context(), event.New{Stream: event.ProjectStream(p.ID), Origin: domain.OriginHost, Actor: "person", ProjectID: p.ID, Payload: pl}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	_, call := opened(t, at)
	if code := call("POST", "/v1/sessions", `{"project_id":"p_1","agent":"playbook","input":"steps: ["}`, nil); code != 422 {
		t.Errorf("%d", code)
	}
	if code := call("POST", "/v1/sessions", `{"project_id":"p_1","agent":"oracle","input":"x"}`, nil); code != 422 {
		t.Errorf("%d", code)
	}
	var ss []domain.Session
	if call("GET", "/v1/sessions", "", &ss) != 200 || len(ss) != 0 {
		t.Errorf("%+v", ss)
	}
	if code := call("POST", "/v1/sessions", `{"project_id":"p_1","agent":"playbook","input":"name: x\nsteps:\n  - say: hello\n"}`, nil); code != 200 {
		t.Errorf("%d", code)
	}
	if call("GET", "/v1/sessions", "", &ss) != 200 || len(ss) != 1 {
		t.Errorf("%+v", ss)
	}
}
