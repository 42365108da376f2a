package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

func TestParseTarget(t *testing.T) {
	good := map[string]string{
		"Example.COM:443": "example.com:443", "example.com.:443": "example.com:443", "bücher.example:80": "xn--bcher-kva.example:80",
		"93.184.216.34:80": "93.184.216.34:80", "[2001:db8::1]:443": "[2001:db8::1]:443", "[::ffff:1.2.3.4]:1": "1.2.3.4:1", "a_b.example:1": "a_b.example:1",
	}
	for in, want := range good {
		got, err := ParseTarget(in, 0)
		if err != nil || got.String() != want {
			t.Errorf("ParseTarget(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	bad := []string{"", ":443", "example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:+80", "example.com:080", "a b:1", "a\x00.google.com:443",
		"user@example.com:1", "a%2e.com:1", "a..b:1", "-a.com:1", "a-.com:1", "2130706433:80", "0x7f.1:80", "127.1:80", "017700000001:80", "1.2.3.4.5:80", "::1:80", "[::1:80", "[fe80::1%25eth0]:80",
		"[1.2.3.4]:80", "a/b:1", "a?b:1", "a#b:1", "a\\b:1", strings.Repeat("a", 64) + ".com:1", strings.Repeat("a.", 150) + "com:1", "a\r\nb:1", "example.com:443:80", "[::1]x:1"}
	for _, in := range bad {
		if got, err := ParseTarget(in, 0); err == nil {
			t.Errorf("ParseTarget(%q) = %v, want an error", in, got)
		}
	}
}

func TestCheckPublic(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.5.2", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1",
		"::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:0:1::1", "::7f00:1", "192.88.99.1"} {
		if CheckPublic(netip.MustParseAddr(a)) == nil {
			t.Errorf("%s passed as public", a)
		}
	}
	for _, a := range []string{"93.184.216.34", "8.8.8.8", "203.0.113.10", "192.0.2.1", "198.51.100.9", "2001:db8::5", "2606:4700::1111", "172.32.0.1", "100.63.255.255"} {
		if err := CheckPublic(netip.MustParseAddr(a)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// rig is a gate whose "internet" is loopback: names resolve to it and the
// address check is told that it is public.
type rig struct {
	gate  *Gate
	rules map[string]Rule
	mu    sync.Mutex
	evs   []event.New
	asks  int
	reply chan Verdict
}

func newRig(t *testing.T, hosts map[string]string) *rig {
	r := &rig{rules: map[string]Rule{}, reply: make(chan Verdict, 10)}
	r.gate = New(Config{Match: func(_ Scope, t Target) (Rule, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		x, ok := r.rules[t.Host]
		return x, ok
	}, Hold: time.Hour, // no answer comes late here
		Ask: func(ctx context.Context, s Scope, tg Target, m string) (Verdict, error) {
			r.mu.Lock()
			r.asks++
			r.mu.Unlock()
			select {
			case v := <-r.reply:
				return v, nil
			case <-ctx.Done():
				return Verdict{}, ctx.Err()
			}
		},
		Record: func(_ context.Context, n event.New) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.evs = append(r.evs, n)
			return nil
		},
		Resolve: func(_ context.Context, h string) ([]netip.Addr, error) {
			if a, ok := hosts[h]; ok {
				return []netip.Addr{netip.MustParseAddr(a)}, nil
			}
			return nil, fmt.Errorf("no such name")
		},
		CheckPublic: func(a netip.Addr) error {
			if a == netip.MustParseAddr("127.0.0.1") {
				return nil
			}
			return CheckPublic(a)
		},
	})
	r.gate.Open()
	return r
}

func (r *rig) allow(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules[host] = Rule{Name: "grant:" + host, Decision: domain.Allow, Text: "allow " + host}
}

// proxy lets a net/http client use the gate as its proxy.
func (r *rig) proxy(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.gate.Serve(ctx, Scope{Project: "p", Session: "s"}, c)
		}
	}()
	return l.Addr().String()
}

func (r *rig) types() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.evs {
		out = append(out, string(e.Payload.EventType()))
	}
	return
}

func raw(t *testing.T, addr, req string) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, req)
	b, _ := io.ReadAll(io.LimitReader(c, 1<<20))
	return string(b)
}

func TestPlainHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Proxy-Authorization") != "" {
			t.Error("a proxy header reached the server")
		}
		b, _ := io.ReadAll(q.Body)
		fmt.Fprintf(w, "%s %s %s %s", q.Method, q.Host, q.URL, b)
	}))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	r := newRig(t, map[string]string{"site.example": "127.0.0.1", "evil.example": "10.0.0.1"})
	r.allow("site.example")
	addr := r.proxy(t)
	got := raw(t, addr, "POST http://site.example:"+port+"/a?b=1 HTTP/1.1\r\nHost: site.example:"+port+"\r\nProxy-Authorization: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
	if !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.HasSuffix(got, "POST site.example:"+port+" /a?b=1 hi") {
		t.Fatalf("got %q", got)
	}
	// Two requests on one connection.
	one := "GET http://site.example:" + port + "/x HTTP/1.1\r\nHost: site.example:" + port + "\r\n\r\n"
	last := strings.Replace(one, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
	if got := raw(t, addr, one+last); strings.Count(got, "HTTP/1.1 200") != 2 {
		t.Fatalf("keep-alive: %q", got)
	}
	for name, req := range map[string]string{
		"host differs":   "GET http://site.example:" + port + "/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
		"two hosts":      "GET http://site.example:" + port + "/ HTTP/1.1\r\nHost: site.example:" + port + "\r\nHost: b\r\n\r\n",
		"origin form":    "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n",
		"cl and te":      "POST http://site.example:" + port + "/ HTTP/1.1\r\nHost: site.example:" + port + "\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"folded":         "GET http://site.example:" + port + "/ HTTP/1.1\r\nHost: site.example:" + port + "\r\nX: a\r\n b\r\n\r\n",
		"space in name":  "GET http://site.example:" + port + "/ HTTP/1.1\r\nHost : site.example:" + port + "\r\n\r\n",
		"userinfo":       "GET http://a@site.example:" + port + "/ HTTP/1.1\r\nHost: site.example:" + port + "\r\n\r\n",
		"https absolute": "GET https://site.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n",
		"nul":            "GET http://site.example:" + port + "/ HTTP/1.1\r\nHost: site.example:" + port + "\r\nX: a\x00b\r\n\r\n",
	} {
		if got := raw(t, addr, req); !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// A name that resolves to a private address is refused although a rule allows it.
	r.allow("evil.example")
	if got := raw(t, addr, "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "private network") {
		t.Errorf("rebinding: %q", got)
	}
	if got := raw(t, addr, "GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("metadata: %q", got)
	}
	if r.asks != 0 {
		t.Errorf("asked %d times about things that need no question", r.asks)
	}
}

func TestAskOnceAndAgain(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "ok") }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	r := newRig(t, map[string]string{"new.example": "127.0.0.1"})
	addr := r.proxy(t)
	req := "GET http://new.example:" + port + "/ HTTP/1.1\r\nHost: new.example:" + port + "\r\nConnection: close\r\n\r\n"
	got := make(chan string, 3)
	for range 3 {
		go func() { got <- raw(t, addr, req) }()
	}
	deadline := time.Now().Add(time.Minute)
	for {
		r.gate.mu.Lock()
		n := 0
		for _, w := range r.gate.wait {
			n = w.n
		}
		r.gate.mu.Unlock()
		if n == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("three connections never waited together")
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.reply <- Verdict{Allow: true, Rule: "once"}
	for range 3 {
		if g := <-got; !strings.HasPrefix(g, "HTTP/1.1 200") {
			t.Errorf("after once: %q", g)
		}
	}
	r.reply <- Verdict{Allow: false}
	if g := raw(t, addr, req); !strings.HasPrefix(g, "HTTP/1.1 403") || !strings.Contains(g, "said no") {
		t.Errorf("once must not last: %q", g)
	}
	if r.asks != 2 {
		t.Errorf("asked %d times, want 2", r.asks)
	}
	// The program gives up, the person answers afterwards: the next try passes, the one after asks.
	c, _ := net.Dial("tcp", addr)
	io.WriteString(c, req)
	for {
		r.mu.Lock()
		n := r.asks
		r.mu.Unlock()
		if n == 3 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.Close()
	r.gate.mu.Lock()
	for _, w := range r.gate.wait {
		w.n = 0 // the guest's end of a raw stream is seen only when it is read; force it here
	}
	r.gate.mu.Unlock()
	r.reply <- Verdict{Allow: true, Rule: "once"}
	for {
		r.gate.mu.Lock()
		n := len(r.gate.wait)
		r.gate.mu.Unlock()
		if n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if g := raw(t, addr, req); !strings.HasPrefix(g, "HTTP/1.1 200") {
		t.Errorf("late answer: %q", g)
	}
	r.gate.Shut()
	if g := raw(t, addr, req); !strings.HasPrefix(g, "HTTP/1.1 503") {
		t.Errorf("shut gate: %q", g)
	}
}

func TestTunnelNeedsMatchingSNI(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "secret") }))
	srv.StartTLS()
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	var p int
	fmt.Sscan(port, &p)
	// Other ports are opaque tunnels.
	r := newRig(t, map[string]string{"api.example": "127.0.0.1"})
	r.allow("api.example")
	addr := r.proxy(t)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT api.example:%d HTTP/1.1\r\nHost: api.example:%d\r\n\r\n", p, p)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "api.example"})
	fmt.Fprintf(tc, "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
	b, _ := io.ReadAll(tc)
	if !strings.HasSuffix(string(b), "secret") {
		t.Fatalf("%q", b)
	}
	for sni, want := range map[string]bool{"api.example": true, "evil.example": false, "": false} {
		client, server := net.Pipe()
		go func() {
			_ = tls.Client(client, &tls.Config{InsecureSkipVerify: true, ServerName: sni}).Handshake()
			client.Close()
		}()
		name, seen, err := readHello(server)
		server.Close()
		if err != nil || len(seen) == 0 {
			t.Fatalf("%s: %v", sni, err)
		}
		if (name == "api.example") != want {
			t.Errorf("sni %q read as %q", sni, name)
		}
	}
	if _, _, err := readHello(strings.NewReader("SSH-2.0-OpenSSH\r\n")); err == nil {
		t.Error("ssh passed as TLS")
	}
}

func TestRefusalsAreLimited(t *testing.T) {
	l := limiter{seen: map[string]time.Time{}}
	now := time.Now()
	n := 0
	for i := range 10_000 {
		if _, ok := l.take(fmt.Sprint("k", i), now); ok {
			n++
		}
	}
	if n != 300 {
		t.Errorf("%d recorded in a minute, want 300", n)
	}
	if dropped, ok := l.take("x", now.Add(2*time.Minute)); !ok || dropped != 9_700 {
		t.Errorf("dropped %d %v", dropped, ok)
	}
}

func TestDeniedByRule(t *testing.T) {
	r := newRig(t, nil)
	r.rules["bad.example"] = Rule{Name: "grant:1", Decision: domain.Deny, Text: "never bad.example"}
	got := raw(t, r.proxy(t), "GET http://bad.example/ HTTP/1.1\r\nHost: bad.example\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "never bad.example") || r.asks != 0 {
		t.Errorf("%q, %d asks", got, r.asks)
	}
	if ty := r.types(); len(ty) != 1 || ty[0] != "egress.blocked" {
		t.Errorf("recorded %v", ty)
	}
}
