package egress

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// A program that makes up host names must not drown the person in questions, nor
// may one machine take the questions of another.
func TestQuestionsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	addr := r.proxy(t)
	const tries = 200
	began := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	ctx, cancel := context.WithCancel(t.Context())
	for i := range tries {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			fmt.Fprintf(c, "CONNECT h%d.example:443 HTTP/1.1\r\n\r\n", i)
			b, _ := io.ReadAll(c)
			if strings.Contains(string(b), "questions about hosts wait") {
				mu.Lock()
				refused++
				n := refused
				mu.Unlock()
				if n == tries-32 {
					cancel() // the others wait for their answer
				}
			}
		})
	}
	hang := time.AfterFunc(time.Minute, cancel)
	defer hang.Stop()
	wg.Wait()
	cancel()
	// A question has its place from the moment it is begun, and is put a moment later.
	asked := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			r.mu.Lock()
			asks := r.asks
			r.mu.Unlock()
			if asks == n {
				return
			}
			if asks > n || time.Now().After(end) {
				t.Fatalf("%d questions, want %d", asks, n)
			}
		}
	}
	asked(32)
	if refused != tries-32 {
		t.Fatalf("%d refusals of %d", refused, tries)
	}
	// One record in five seconds, and those that wait may add their own when they are given up.
	blocked, most := 0, 1+int(time.Since(began)/(5*time.Second))
	r.mu.Lock()
	for _, e := range r.evs {
		if b, ok := e.Payload.(*event.EgressBlocked); ok && strings.Contains(b.Reason, "questions about hosts wait") {
			blocked++
		}
	}
	r.mu.Unlock()
	if blocked < 1 || blocked > most {
		t.Errorf("%d records of refusals, at most %d can be", blocked, most)
	}
	// Another project still asks.
	mine, theirs := net.Pipe()
	defer mine.Close()
	go r.gate.Serve(t.Context(), Scope{Project: "other"}, theirs)
	fmt.Fprintf(mine, "CONNECT x.example:443 HTTP/1.1\r\n\r\n")
	asked(33)
}

func TestRefusalsOfProjectsAreApart(t *testing.T) {
	var l limiters
	now := time.Now()
	for i := range 1000 {
		l.take("noisy", fmt.Sprint(i), now)
	}
	if _, ok := l.take("quiet", "x", now); !ok {
		t.Error("one machine's noise hid another's refusal")
	}
	if dropped, ok := l.take("quiet", "y", now.Add(2*time.Minute)); !ok || dropped != 0 {
		t.Errorf("the quiet one is told of %d dropped records", dropped)
	}
}

// A server that sends a head without end is given up, not read into memory.
func TestEndlessHeads(t *testing.T) {
	for name, piece := range map[string]string{
		"headers": "X-%d: " + strings.Repeat("a", 1000) + "\r\n",
		"interim": "HTTP/1.1 103 Early Hints\r\nLink: %d\r\n\r\n",
		"line":    "%d" + strings.Repeat("a", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			sent := make(chan int, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if name == "headers" {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
				}
				n := 0
				for i := 0; n < 64<<20; i++ {
					k, err := fmt.Fprintf(c, piece, i)
					if err != nil {
						break
					}
					n += k
				}
				sent <- n
			}()
			r := newRig(t, map[string]string{"big.example": "127.0.0.1"})
			r.allow("big.example")
			port := l.Addr().(*net.TCPAddr).Port
			got := raw(t, r.proxy(t), fmt.Sprintf("GET http://big.example:%d/ HTTP/1.1\r\nHost: big.example:%d\r\n\r\n", port, port))
			if !strings.HasPrefix(got, "HTTP/1.1 502 ") {
				t.Errorf("%.200q", got)
			}
			select {
			case n := <-sent:
				if n > 32<<20 { // what sockets hold in between
					t.Errorf("%d bytes were taken", n)
				}
			case <-time.After(time.Minute):
				t.Error("the server is still read")
			}
		})
	}
}

// Hints and the like come before the answer and are no fault.
func TestInterimAnswersArePassedOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}()
	r := newRig(t, map[string]string{"hint.example": "127.0.0.1"})
	r.allow("hint.example")
	port := l.Addr().(*net.TCPAddr).Port
	got := raw(t, r.proxy(t), fmt.Sprintf("GET http://hint.example:%d/ HTTP/1.0\r\nHost: hint.example:%d\r\n\r\n", port, port))
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") && !strings.HasPrefix(got, "HTTP/1.0 200 ") || !strings.HasSuffix(got, "ok") {
		t.Errorf("%q", got)
	}
}

func TestPace(t *testing.T) {
	p := pacer{rate: 1000, burst: 10}
	start := time.Now()
	for range 60 {
		if err := p.wait(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 45*time.Millisecond {
		t.Errorf("60 went through in %s; 50 of them had to wait a millisecond each", took)
	}
	p = pacer{rate: 0.001, burst: 1}
	if err := p.wait(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.wait(ctx, "a") }()
	cancel()
	if err := <-done; err == nil {
		t.Error("a turn came that was not due")
	}
	if err := p.wait(t.Context(), domain.ProjectID("b")); err != nil {
		t.Errorf("another project waits too: %v", err)
	}
}

// Programs that give up and try again do not pile up behind a question, and an
// answer still reaches the one that waits.
func TestThoseWhoHangUpAreLetGo(t *testing.T) {
	r := newRig(t, map[string]string{"slow.example": "127.0.0.1"})
	r.gate.cfg.Hold = time.Hour
	addr := r.proxy(t)
	srv, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	port := srv.Addr().(*net.TCPAddr).Port
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "CONNECT slow.example:%d HTTP/1.1\r\n\r\n", port)
		return c
	}
	waiting := func(want int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			n := 0
			r.gate.mu.Lock()
			for _, w := range r.gate.wait {
				n += w.n
			}
			r.gate.mu.Unlock()
			if n == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d connections wait, want %d", n, want)
			}
		}
	}
	stays := dial()
	defer stays.Close()
	waiting(1)
	var all []net.Conn
	for range 50 {
		all = append(all, dial())
	}
	waiting(51)
	for _, c := range all {
		c.Close()
	}
	waiting(1)
	r.reply <- Verdict{Allow: true, Rule: "once"}
	_ = stays.SetDeadline(time.Now().Add(time.Minute))
	line, err := bufio.NewReader(stays).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		t.Fatalf("%q %v", line, err)
	}
	up, err := srv.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	// What is said from now on goes through whole.
	fmt.Fprint(stays, "hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(up, b); err != nil || string(b) != "hello" {
		t.Fatalf("%q %v", b, err)
	}
	if r.asks != 1 {
		t.Errorf("%d questions", r.asks)
	}
}

// What a guest can put into a record is short, whatever it sends.
func TestRecordsAreShort(t *testing.T) {
	r := newRig(t, map[string]string{"ok.example": "127.0.0.1"})
	r.allow("ok.example")
	addr := r.proxy(t)
	long := strings.Repeat("A", 60_000)
	for _, req := range []string{
		long + " http://ok.example:1/ HTTP/1.1\r\nHost: ok.example:1\r\n\r\n",
		long + " ok.example:1 HTTP/1.1\r\n\r\n",
		"GET http://" + long + "/ HTTP/1.1\r\n\r\n",
		"CONNECT " + long + ":443 HTTP/1.1\r\n\r\n",
		"GET http://ok.example:1/ HTTP/1.1\r\nHost: " + long + "\r\n\r\n",
		"GET http://" + long + "@ok.example:1/ HTTP/1.1\r\n\r\n",
		"GET /" + long + " HTTP/1.1\r\n\r\n",
		"CONNECT ok.example:" + long[:5000] + " HTTP/1.1\r\n\r\n",
	} {
		if got := raw(t, addr, req); !strings.HasPrefix(got, "HTTP/1.1 400 ") || len(got) > 2000 {
			t.Errorf("%.30q: %.200q", req, got)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.evs) == 0 {
		t.Fatal("nothing was recorded")
	}
	for _, e := range r.evs {
		if b, err := json.Marshal(e.Payload); err != nil || len(b) > 2000 {
			t.Errorf("a record of %d bytes (%v): %.200s", len(b), err, b)
		}
	}
}
