package wire_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

const key = "sk-test-0123456789abcdef"

// hang is only there so that a broken bound fails instead of hanging.
func hang(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// raw is a server that answers every connection by itself, after it got a request.
func raw(t *testing.T, answer func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, 0, 4096)
				one := make([]byte, 1)
				for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
					if _, err := c.Read(one); err != nil {
						return
					}
					head = append(head, one[0])
				}
				// A body that is not read may break the connection before the answer is seen.
				if bytes.Contains(head, []byte("\r\nContent-Length: 7\r\n")) {
					if _, err := io.CopyN(io.Discard, c, 7); err != nil {
						return
					}
				}
				answer(c)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// nobody is an address at which nobody listens, and nobody else can: it is that of one
// end of a connection.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return c.LocalAddr().String()
}

// gone blocks until the client has closed its end.
func gone(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// ask makes one exchange and returns what was read and how it ended.
func ask(ctx context.Context, c *http.Client, url string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"a":1}`))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.Do(req)
	if err != nil {
		return nil, nil, wire.Error(ctx, err, key)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, b, wire.Error(ctx, err, key)
}

func wantKind(t *testing.T, err error, kind model.ErrorKind, words ...string) *model.Error {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of kind %s", err, kind)
	}
	if e.Kind != kind {
		t.Errorf("got kind %s (%v), want %s", e.Kind, e, kind)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			t.Errorf("%q does not say %q", e.Error(), w)
		}
	}
	if strings.Contains(fmt.Sprintf("%+v %v", *e, e.Err), key) {
		t.Errorf("the error holds the key: %+v", *e)
	}
	return e
}

func TestEndlessHeader(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
		line := []byte("X-More: " + strings.Repeat("a", 1000) + "\r\n")
		for {
			if _, err := c.Write(line); err != nil {
				return
			}
		}
	})
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{Key: key}), url)
	wantKind(t, err, model.ErrProtocol)
}

func TestEndlessBody(t *testing.T) {
	var sent atomic.Int64
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		more := bytes.Repeat([]byte("a"), 64<<10)
		for {
			n, err := c.Write(more)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	_, b, err := ask(hang(t), wire.NewClient(wire.Options{Key: key, MaxBody: 1 << 20}), url)
	wantKind(t, err, model.ErrProtocol, "1048576")
	if len(b) != 1<<20 {
		t.Errorf("read %d bytes", len(b))
	}
}

func TestBodyAtTheCapIsWhole(t *testing.T) {
	for size, ok := range map[int]bool{1000: true, 1001: false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("a"), size))
		}))
		defer s.Close()
		_, b, err := ask(hang(t), wire.NewClient(wire.Options{MaxBody: 1000}), s.URL)
		if (err == nil) != ok || len(b) != 1000 {
			t.Errorf("%d bytes: read %d, %v", size, len(b), err)
		}
	}
}

// What is too much of a refusal is left out: its beginning says why.
func TestLongRefusalKeepsItsStatus(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		for range 8 {
			_, _ = w.Write(bytes.Repeat([]byte("a"), 1<<20))
		}
	}))
	defer s.Close()
	resp, b, err := ask(hang(t), wire.NewClient(wire.Options{}), s.URL)
	if err != nil || resp.StatusCode != 400 || len(b) == 0 || len(b) > 1<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestSilentServer(t *testing.T) {
	url := raw(t, gone)
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{Key: key, FirstByte: 50 * time.Millisecond}), url)
	wantKind(t, err, model.ErrTimeout, "50ms", "did not begin")
}

// Some servers send the header at once and the first byte much later: that counts as
// the time before the first byte, which is the longer one.
func TestHeaderAloneIsNoFirstByte(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		gone(c)
	})
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{FirstByte: 100 * time.Millisecond, Idle: time.Nanosecond}), url)
	wantKind(t, err, model.ErrTimeout, "100ms", "did not begin")
}

func TestSilenceInMidBody(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\nhello")
		gone(c)
	})
	_, b, err := ask(hang(t), wire.NewClient(wire.Options{Idle: 50 * time.Millisecond}), url)
	wantKind(t, err, model.ErrTimeout, "50ms", "middle")
	if string(b) != "hello" {
		t.Errorf("read %q", b)
	}
}

func drip(c net.Conn, text string) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := c.Write([]byte(text)); err != nil {
			return
		}
		<-tick.C
	}
}

func TestSlowLorisInTheHeader(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nX-More: ")
		drip(c, "a")
	})
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{FirstByte: 100 * time.Millisecond}), url)
	wantKind(t, err, model.ErrTimeout, "did not begin")
}

func TestSlowLorisInTheBody(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		drip(c, "a")
	})
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{Whole: 100 * time.Millisecond}), url)
	wantKind(t, err, model.ErrTimeout, "100ms", "one answer")
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "req_1")
			http.Redirect(w, r, other.URL+"/taken?k="+key, status)
		}))
		defer s.Close()
		_, _, err := ask(hang(t), wire.NewClient(wire.Options{Key: key}), s.URL)
		e := wantKind(t, err, model.ErrNotFound, other.URL+"/taken", "base_url")
		if e.Again() || e.Status != status || e.RequestID != "req_1" {
			t.Errorf("%+v", e)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the other server was asked %d times", asked.Load())
	}
}

func TestResetInMidBody(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{}), url)
	wantKind(t, err, model.ErrNetwork)
}

func TestEndInMidBody(t *testing.T) {
	for name, answer := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"header": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
		"no":     "",
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, func(c net.Conn) { fmt.Fprint(c, answer) })
			_, _, err := ask(hang(t), wire.NewClient(wire.Options{}), url)
			wantKind(t, err, model.ErrNetwork)
		})
	}
}

func TestNoHTTP(t *testing.T) {
	for name, answer := range map[string]string{
		"line":  "SSH-2.0-OpenSSH_9.2 " + key + "\r\n\r\n",
		"chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, func(c net.Conn) { fmt.Fprint(c, answer) })
			_, _, err := ask(hang(t), wire.NewClient(wire.Options{Key: key}), url)
			wantKind(t, err, model.ErrProtocol)
		})
	}
}

func TestGzipBomb(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	z.Close()
	var accepts atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepts.Store(r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	}))
	defer s.Close()
	_, b, err := ask(hang(t), wire.NewClient(wire.Options{}), s.URL)
	wantKind(t, err, model.ErrProtocol, "gzip")
	if len(b) != 0 || accepts.Load() != "" {
		t.Errorf("%d bytes were unpacked; asked for %q", len(b), accepts.Load())
	}
}

func TestNothingListens(t *testing.T) {
	addr := nobody(t)
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{}), "http://"+addr)
	wantKind(t, err, model.ErrNetwork, "refused", addr, "running")
}

func TestTLSThatIsNotTrusted(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it says what the test wants
	s.StartTLS()
	defer s.Close()
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{}), s.URL)
	if e := wantKind(t, err, model.ErrNotFound, "certificate"); e.Again() {
		t.Error("it would be tried again")
	}
}

func TestTLSWhereThereIsNone(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{}), strings.Replace(s.URL, "http:", "https:", 1))
	wantKind(t, err, model.ErrNotFound, "http://")
}

func TestCancelEndsTheConnection(t *testing.T) {
	ended := make(chan struct{})
	url := raw(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\nhello")
		gone(c)
		close(ended)
	})
	cause := errors.New("the person said stop")
	ctx, cancel := context.WithCancelCause(hang(t))
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	resp, err := wire.NewClient(wire.Options{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	_, err = io.ReadAll(resp.Body)
	if got := wire.Error(ctx, err, ""); got != cause {
		t.Errorf("got %v", got)
	}
	select {
	case <-ended:
	case <-hang(t).Done():
		t.Error("the server still has its connection")
	}
}

func TestNoCookiesAndNoWordAboutThisMachine(t *testing.T) {
	var last atomic.Pointer[http.Request]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r)
		http.SetCookie(w, &http.Cookie{Name: "who", Value: "you"})
	}))
	defer s.Close()
	c := wire.NewClient(wire.Options{})
	for range 2 {
		req, _ := http.NewRequestWithContext(hang(t), http.MethodPost, s.URL, strings.NewReader("{}"))
		req.Header.Set("X-Stainless-Os", "Linux")
		req.Header.Set("User-Agent", "some library 1.2")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	h := last.Load().Header
	if h.Get("User-Agent") != "glasshouse" || h.Get("Cookie") != "" || h.Get("X-Stainless-Os") != "" {
		t.Errorf("sent %v", h)
	}
}
