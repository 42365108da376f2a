package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A question of an earlier gate is waited for, not put again, and an answer that
// nobody waits for lets the next connection through.
func TestRejoin(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "ok") }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	r := newRig(t, map[string]string{"old.example": "127.0.0.1"})
	defer r.gate.Close()
	addr := r.proxy(t)
	target, err := ParseTarget("old.example:"+port, 0)
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan Verdict)
	rejoin := func() {
		// The scope that the rig's connections have.
		r.gate.Rejoin(t.Context(), Scope{Project: "p", Session: "s", Step: "old"}, target, func(ctx context.Context) (Verdict, error) {
			select {
			case v := <-answers:
				return v, nil
			case <-ctx.Done():
				return Verdict{}, ctx.Err()
			}
		})
	}
	rejoin()
	rejoin() // twice changes nothing
	req := "GET http://old.example:" + port + "/ HTTP/1.1\r\nHost: old.example:" + port + "\r\nConnection: close\r\n\r\n"
	got := make(chan string, 1)
	go func() { got <- raw(t, addr, req) }()
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		r.gate.mu.Lock()
		for _, w := range r.gate.wait {
			waiting = w.n
		}
		r.gate.mu.Unlock()
	}
	answers <- Verdict{Allow: true, Rule: "once"}
	if g := <-got; !strings.HasPrefix(g, "HTTP/1.1 200") {
		t.Errorf("a connection that waited: %q", g)
	}
	rejoin()
	answers <- Verdict{Allow: true, Rule: "once"}
	for range 200 {
		r.gate.mu.Lock()
		n := len(r.gate.wait)
		r.gate.mu.Unlock()
		if n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if g := raw(t, addr, req); !strings.HasPrefix(g, "HTTP/1.1 200") {
		t.Errorf("the connection after the answer: %q", g)
	}
	if r.asks != 0 {
		t.Errorf("the host was asked about %d times", r.asks)
	}
}
