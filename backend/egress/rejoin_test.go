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
	// until looks at the questions that are waited for.
	until := func(ok func(all map[waitKey]*waiting) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			r.gate.mu.Lock()
			done := ok(r.gate.wait)
			r.gate.mu.Unlock()
			if done {
				return
			}
			if time.Now().After(end) {
				t.Fatal("it never came to that")
			}
		}
	}
	until(func(all map[waitKey]*waiting) bool {
		for _, w := range all {
			return w.n > 0
		}
		return false
	})
	answers <- Verdict{Allow: true, Rule: "once"}
	if g := <-got; !strings.HasPrefix(g, "HTTP/1.1 200") {
		t.Errorf("a connection that waited: %q", g)
	}
	rejoin()
	answers <- Verdict{Allow: true, Rule: "once"}
	until(func(all map[waitKey]*waiting) bool { return len(all) == 0 })
	if g := raw(t, addr, req); !strings.HasPrefix(g, "HTTP/1.1 200") {
		t.Errorf("the connection after the answer: %q", g)
	}
	if r.asks != 0 {
		t.Errorf("the host was asked about %d times", r.asks)
	}
}
