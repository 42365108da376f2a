package netd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/vm/netd/netdtest"
)

const guestMAC = "52:55:55:01:02:03"

// hang bounds waits for things that must happen.
const hang = time.Minute

// world is a running netd and the folder of its machine.
type world struct {
	t    *testing.T
	cfg  Config
	log  *lockedBuffer
	done chan error
	stop context.CancelFunc
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(t *testing.T, change func(*Config)) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "nd") // short: socket paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, log: &lockedBuffer{}, done: make(chan error, 1)}
	w.cfg = Config{
		Dir: filepath.Join(dir, "n"), Name: "gh", Chan: filepath.Join(dir, "chan.sock"), MACFile: filepath.Join(dir, "mac"),
		Linger: 20 * time.Millisecond, Check: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	if err := os.WriteFile(w.cfg.MACFile, []byte(guestMAC+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&w.cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.done <- Run(ctx, w.cfg) }()
	t.Cleanup(func() {
		cancel()
		w.wait()
	})
	eventually(t, "netd's sockets", func() bool {
		select {
		case err := <-w.done: // one with little patience has ended before it was looked at
			w.done <- err
			return true
		default:
		}
		_, err := os.Stat(w.cfg.Sock("qemu"))
		return err == nil
	})
	return w
}

func (w *world) wait() error {
	select {
	case err := <-w.done:
		w.done <- err
		return err
	case <-time.After(hang):
		w.t.Fatalf("netd did not end; log:\n%s", w.log)
		return nil
	}
}

func (w *world) status() Status {
	w.t.Helper()
	var s Status
	w.get("/status", &s)
	return s
}

func (w *world) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", w.cfg.Sock("ep"))
	}}}
}

func (w *world) get(path string, v any) {
	w.t.Helper()
	r, err := w.http().Get("http://lima" + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 200 {
		w.t.Fatalf("GET %s: %s", path, r.Status)
	}
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		w.t.Fatal(err)
	}
}

// open dials the channel and returns it behind netd's "ok".
func (w *world) open() (*net.UnixConn, *bufio.Reader, error) {
	c, err := net.Dial("unix", w.cfg.Chan)
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(hang))
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err == nil && line != lineOK {
		err = errors.New(line)
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	_ = c.SetReadDeadline(time.Time{})
	w.t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn), r, nil
}

// wireTo connects to netd as QEMU does.
func (w *world) wireTo() *streamWire {
	w.t.Helper()
	c, err := net.Dial("unix", w.cfg.Sock("qemu"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return &streamWire{Conn: c, r: bufio.NewReader(c)}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// guest attaches a whole guest to netd.
func (w *world) guest() *netdtest.Guest {
	w.t.Helper()
	c, err := net.Dial("unix", w.cfg.Sock("qemu"))
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := netdtest.Attach(c, guestMAC, GuestAddr, GatewayAddr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Close)
	return g
}

// listen is guestd's port in the guest.
func listen(t *testing.T, g *netdtest.Guest, serve func(net.Conn)) {
	t.Helper()
	l, err := g.Listen(DefaultPort)
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
			go serve(c)
		}
	}()
}

func echo(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	_ = c.(duplex).CloseWrite()
}
