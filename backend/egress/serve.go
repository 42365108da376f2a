package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxHead   = 64 << 10
	maxMethod = 32
)

// Serve speaks the proxy protocol on one connection of a guest until it ends. It
// owns conn.
func (g *Gate) Serve(ctx context.Context, s Scope, conn io.ReadWriteCloser) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	// A reader blocked on a silent guest ends when ctx does.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	br := bufio.NewReaderSize(conn, maxHead)
	for {
		again, err := g.one(ctx, s, br, conn)
		if err != nil || !again {
			return
		}
	}
}

// one handles one request; again says whether the connection can carry another.
func (g *Gate) one(ctx context.Context, s Scope, br *bufio.Reader, conn io.ReadWriteCloser) (again bool, err error) {
	head, err := peekHead(br)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return false, err
		}
		answer(conn, 400, err.Error())
		return false, err
	}
	hosts, err := checkHead(head)
	if err != nil {
		answer(conn, 400, err.Error())
		return false, err
	}
	req, err := http.ReadRequest(br)
	if err != nil {
		answer(conn, 400, "the request could not be read: "+cut(err.Error()))
		return false, err
	}
	defer req.Body.Close()
	// It is shown and recorded with every passage and refusal.
	if len(req.Method) > maxMethod {
		err = fmt.Errorf("the method %q is no method", cut(req.Method))
		answer(conn, 400, err.Error())
		g.blocked(ctx, s, Target{}, cut(req.Method), err)
		return false, err
	}
	var t Target
	if req.Method == http.MethodConnect {
		t, err = ParseTarget(req.RequestURI, 0)
	} else if req.URL.Scheme != "http" || req.URL.Host == "" {
		// Origin-form requests come from pages that post to 127.0.0.1, not from proxy clients.
		err = errors.New("this is a proxy: ask for a whole http:// address, or use CONNECT")
	} else if req.URL.User != nil {
		err = errors.New("an address with a user name is refused")
	} else {
		t, err = ParseTarget(req.URL.Host, 80)
	}
	if err == nil && len(hosts) == 1 {
		def := 80
		if req.Method == http.MethodConnect {
			def = t.Port
		}
		h, herr := ParseTarget(hosts[0], def)
		// A CONNECT's Host may leave the port out.
		if herr != nil || h.Host != t.Host || h.Port != t.Port {
			err = fmt.Errorf("the Host line names %s, the request %s", cut(hosts[0]), t)
		}
	}
	if err != nil {
		answer(conn, 400, err.Error())
		g.blocked(ctx, s, t, req.Method, err)
		return false, err
	}
	dctx, decided := ctx, func() {}
	if req.Method == http.MethodConnect {
		dctx, decided = whileThere(ctx, br, conn)
	}
	rule, err := g.decide(dctx, s, t, req.Method)
	decided()
	if err != nil {
		g.refuse(ctx, s, t, req.Method, conn, err)
		return false, err
	}
	if req.Method == http.MethodConnect {
		return false, g.tunnel(ctx, s, t, rule, br, conn)
	}
	return g.forward(ctx, s, t, rule, req, br, conn)
}

func (g *Gate) refuse(ctx context.Context, s Scope, t Target, method string, conn io.Writer, err error) {
	status := 403
	var r *refusal
	if errors.As(err, &r) {
		status = r.status
	}
	g.blocked(ctx, s, t, method, err)
	answer(conn, status, err.Error())
}

// answer writes a plain response of the gate's own.
func answer(w io.Writer, status int, text string) {
	text = "glasshouse: " + text + "\n"
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Glasshouse: gate\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		status, http.StatusText(status), len(text), text)
}

// peekHead waits for a whole request head in the reader's buffer.
func peekHead(br *bufio.Reader) ([]byte, error) {
	for {
		b, _ := br.Peek(br.Buffered())
		if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
			return b[:i], nil
		}
		if len(b) >= maxHead {
			return nil, errors.New("the request's head is larger than 64 KiB")
		}
		if _, err := br.Peek(len(b) + 1); err != nil {
			if len(b) == 0 {
				return nil, io.EOF
			}
			return nil, errors.New("the request ended in its head")
		}
	}
}

// checkHead refuses what two HTTP parsers could read differently, and returns the Host lines.
func checkHead(head []byte) (hosts []string, err error) {
	var length, encoding bool
	for i, line := range strings.Split(string(head), "\r\n") {
		if strings.ContainsAny(line, "\x00\r\n") {
			return nil, errors.New("the request's head holds a bare line break or a NUL")
		}
		if i == 0 {
			continue
		}
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			return nil, errors.New("the request's head holds a folded line")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(name, " \t") {
			return nil, errors.New("the request's head holds a malformed line")
		}
		switch strings.ToLower(name) {
		case "host":
			hosts = append(hosts, strings.TrimSpace(value))
		case "content-length":
			length = true
		case "transfer-encoding":
			encoding = true
		}
	}
	if len(hosts) > 1 {
		return nil, errors.New("the request has two Host lines")
	}
	if length && encoding {
		return nil, errors.New("the request has both a Content-Length and a Transfer-Encoding")
	}
	return hosts, nil
}

// tunnel carries a CONNECT. On port 443 it must begin with a TLS hello for the
// very host that was approved.
func (g *Gate) tunnel(ctx context.Context, s Scope, t Target, rule string, br *bufio.Reader, conn io.ReadWriteCloser) error {
	up, err := g.dial(ctx, s, t)
	if err != nil {
		g.refuse(ctx, s, t, "CONNECT", conn, err)
		return err
	}
	defer up.Close()
	p, err := g.begin(ctx, s, t, "CONNECT", rule, up.RemoteAddr())
	if err != nil {
		g.refuse(ctx, s, t, "CONNECT", conn, err)
		return err
	}
	if _, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		p.end(ctx, err)
		return err
	}
	var first []byte
	if t.Port == 443 {
		// A guest that never says hello holds no connection to a server.
		patient := patience(conn, helloWait)
		name, seen, err := readHello(br)
		patient()
		first = seen
		if err == nil && name != t.Host && !(t.IP.IsValid() && name == "") {
			err = fmt.Errorf("the TLS hello names %q, the approved host is %s", cut(name), t.Host)
		}
		if err != nil {
			g.blocked(ctx, s, t, "CONNECT", err)
			p.end(ctx, err)
			return err
		}
	}
	err = splice(ctx, p, io.MultiReader(bytes.NewReader(first), br), conn, up)
	p.end(ctx, err)
	return err
}

// helloWait is how long a guest may take for its TLS hello.
const helloWait = 2 * time.Minute

// patience sets a deadline for reading where conn knows such; the function it
// returns lifts it.
func patience(conn io.ReadWriteCloser, d time.Duration) func() {
	c, ok := conn.(interface{ SetReadDeadline(time.Time) error })
	if !ok {
		return func() {}
	}
	_ = c.SetReadDeadline(time.Now().Add(d))
	return func() { _ = c.SetReadDeadline(time.Time{}) }
}

// whileThere returns a context that ends when the guest's program hangs up. Before
// its CONNECT is answered it has nothing to say, so the end of its data is its end:
// programs that try again and again must not keep all relays of their machine
// waiting for one answer. The function that is returned ends the watch; until then
// br is not to be read.
func whileThere(ctx context.Context, br *bufio.Reader, conn io.ReadWriteCloser) (context.Context, func()) {
	c, ok := conn.(interface{ SetReadDeadline(time.Time) error })
	if !ok || br.Buffered() > 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := br.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.SetReadDeadline(time.Time{})
		cancel()
	}
}

// readHello reads a TLS ClientHello and returns its server name and the bytes read.
func readHello(r io.Reader) (string, []byte, error) {
	rec := &helloConn{r: io.LimitReader(r, 64<<10)}
	name, got := "", false
	err := tls.Server(rec, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, got = strings.ToLower(strings.TrimSuffix(h.ServerName, ".")), true
		return nil, errors.New("seen")
	}}).Handshake()
	if !got {
		return "", rec.seen.Bytes(), fmt.Errorf("port 443 carries TLS only: %w", err)
	}
	return name, rec.seen.Bytes(), nil
}

// helloConn lets crypto/tls read and keeps what it read; it never answers.
type helloConn struct {
	net.Conn
	r    io.Reader
	seen bytes.Buffer
}

func (c *helloConn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.seen.Write(p[:n])
	return n, err
}
func (c *helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *helloConn) Close() error                     { return nil }
func (c *helloConn) SetDeadline(time.Time) error      { return nil }
func (c *helloConn) SetReadDeadline(time.Time) error  { return nil }
func (c *helloConn) SetWriteDeadline(time.Time) error { return nil }

type closeWriter interface{ CloseWrite() error }

// splice copies both ways, passing on half-closes, until both ends are done.
func splice(ctx context.Context, p *passage, fromGuest io.Reader, guest io.WriteCloser, up net.Conn) error {
	stop := context.AfterFunc(ctx, func() { up.Close() })
	defer stop()
	var wg sync.WaitGroup
	var upErr error
	wg.Go(func() {
		_, upErr = io.Copy(count{up, &p.out}, fromGuest)
		if c, ok := up.(closeWriter); ok {
			_ = c.CloseWrite()
		} else {
			up.Close()
		}
	})
	_, err := io.Copy(count{guest, &p.in}, up)
	if c, ok := guest.(closeWriter); ok && err == nil {
		_ = c.CloseWrite()
	} else {
		guest.Close()
	}
	if err != nil {
		up.Close()
	}
	wg.Wait()
	if err == nil {
		err = upErr
	}
	return err
}

type count struct {
	w io.Writer
	n *atomic.Int64
}

func (c count) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// Headers that belong to one hop.
var hop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// forward carries one plain HTTP request on a connection of its own. Redirects
// are the guest's to follow: it asks again.
func (g *Gate) forward(ctx context.Context, s Scope, t Target, rule string, req *http.Request, br *bufio.Reader, conn io.ReadWriteCloser) (bool, error) {
	up, err := g.dial(ctx, s, t)
	if err != nil {
		g.refuse(ctx, s, t, req.Method, conn, err)
		return false, err
	}
	defer up.Close()
	p, err := g.begin(ctx, s, t, req.Method, rule, up.RemoteAddr())
	if err != nil {
		g.refuse(ctx, s, t, req.Method, conn, err)
		return false, err
	}
	upgrade := req.Header.Get("Upgrade")
	isUpgrade := upgrade != "" && strings.Contains(strings.ToLower(req.Header.Get("Connection")), "upgrade")
	for _, f := range strings.Split(req.Header.Get("Connection"), ",") {
		req.Header.Del(strings.TrimSpace(f))
	}
	for _, h := range hop {
		req.Header.Del(h)
	}
	keep := !req.Close && req.ProtoAtLeast(1, 1)
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		req.Header.Del("Expect")
		_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	req.Host, req.Close = hostLine(t), !isUpgrade
	if isUpgrade {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", upgrade)
	}
	stop := context.AfterFunc(ctx, func() { up.Close() })
	defer stop()
	if isUpgrade {
		if err = req.Write(count{up, &p.out}); err == nil {
			err = splice(ctx, p, br, conn, up)
		}
		p.end(ctx, err)
		return false, err
	}
	// The request is sent while the answer is read: a server may answer early.
	sent := make(chan error, 1)
	go func() { sent <- req.Write(count{up, &p.out}) }()
	resp, err := readAnswer(up, req)
	if err != nil {
		up.Close()
		answer(conn, 502, "the server's answer could not be read: "+cut(err.Error()))
		conn.Close() // ends a body that is still being read
		<-sent       //nolint:errcheck // of a request without an answer: what the answer said is told
		p.end(ctx, err)
		return false, err
	}
	for _, h := range hop {
		resp.Header.Del(h)
	}
	resp.Close = !keep
	if resp.ContentLength < 0 && keep && req.Method != http.MethodHead {
		resp.TransferEncoding = []string{"chunked"}
	}
	err = resp.Write(count{conn, &p.in})
	resp.Body.Close()
	up.Close()
	if req.Body == http.NoBody {
		keep = keep && <-sent == nil // nothing of the guest's is waited for
	} else {
		select {
		case serr := <-sent:
			keep = keep && serr == nil
		case <-time.After(time.Second):
			// The server answered without reading the guest's body to its end.
			keep = false
			conn.Close()
			<-sent //nolint:errcheck // it was cut just now
		}
	}
	p.end(ctx, err)
	return keep && err == nil, err
}

// readAnswer reads the head of the server's answer. Interim answers are passed
// over: the guest's client needs none of them to go on.
func readAnswer(up io.Reader, req *http.Request) (*http.Response, error) {
	head := newHeadLimit(up)
	br := bufio.NewReaderSize(head, maxHead)
	for {
		resp, err := http.ReadResponse(br, req)
		if err != nil {
			return nil, err
		}
		switch {
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server changed the protocol without being asked to")
		case resp.StatusCode >= 200:
			head.lift()
			return resp, nil
		}
	}
}

func hostLine(t Target) string {
	if t.Port == 80 {
		return strings.TrimSuffix(t.String(), ":"+strconv.Itoa(t.Port))
	}
	return t.String()
}
