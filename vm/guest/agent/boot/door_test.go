//go:build linux

package boot_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/vm/guest"
)

// freeAddr is an address of the loopback that nobody else uses: one of its own, for a port
// that was free a moment ago may be somebody's by the time it is wanted.
func freeAddr(t *testing.T) string {
	t.Helper()
	seq++
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff, 20000+seq%5000)
}

// gate is a host's side of the door made of a function.
type gate func(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser)

func (g gate) ServeEgress(ctx context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
	g(ctx, c, conn)
}

func dialDoor(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp4", addr)
		if err == nil {
			c.SetDeadline(time.Now().Add(hang))
			t.Cleanup(func() { c.Close() })
			return c.(*net.TCPConn)
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestDoorWithoutCore(t *testing.T) {
	addr := freeAddr(t)
	h := newHouse(t, "--proxy", addr)
	h.open(nil).Close()
	// The request is large and unread, yet the answer arrives whole.
	c := dialDoor(t, addr)
	go io.WriteString(c, "POST http://x/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 100000))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if r.StatusCode != 503 || err != nil || !strings.Contains(string(b), "core is not connected") {
		t.Fatalf("%d %q %v", r.StatusCode, b, err)
	}
	// A core that has no gate shuts the door.
	h.open(nil)
	c = dialDoor(t, addr)
	io.WriteString(c, "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if r, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 503 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestDoorClaim(t *testing.T) {
	addr := freeAddr(t)
	h := newHouse(t, "--proxy", addr)
	claims := make(chan guest.EgressClaim, 4)
	g := h.open(gate(func(_ context.Context, c guest.EgressClaim, conn io.ReadWriteCloser) {
		claims <- c
		io.WriteString(conn, "hello from outside")
		conn.Close()
	}))
	host, port, _ := net.SplitHostPort(addr)
	id := newID()
	r := h.run(g, guest.ExecSpec{ID: id, Session: "se", Step: "st", Argv: []string{"bash", "-c", `exec 3<>"/dev/tcp/$1/$2"; IFS= read -r -d "" x <&3; printf %s "$x"`, "name", host, port}})
	if r.out != "hello from outside" || r.exit.Code != 0 {
		t.Fatalf("got %+v", r)
	}
	c := <-claims
	if c.Exec != id || c.Session != "se" || c.Step != "st" || c.Pid <= 0 || c.Browser || len(c.Argv) == 0 || c.Argv[0] != "bash" {
		t.Fatalf("claim %+v", c)
	}
	// Who is no execution has no claim to be one.
	conn := dialDoor(t, addr)
	b, _ := io.ReadAll(conn)
	c = <-claims
	if string(b) != "hello from outside" || c.Exec != "" || c.Session != "" {
		t.Fatalf("%q %+v", b, c)
	}
	// Programs find the door by their environment.
	if r := h.run(g, sh("echo $http_proxy $HTTPS_PROXY; echo $NO_PROXY; echo $NODE_USE_ENV_PROXY")); r.out != "http://"+addr+" http://"+addr+"\n127.0.0.1,localhost,::1\n1\n" {
		t.Fatalf("got %q", r.out)
	}
}

func TestDoorHalfClose(t *testing.T) {
	addr := freeAddr(t)
	h := newHouse(t, "--proxy", addr)
	h.open(gate(func(_ context.Context, _ guest.EgressClaim, conn io.ReadWriteCloser) {
		defer conn.Close()
		br := bufio.NewReader(conn)
		mode, _ := br.ReadString('\n')
		switch mode {
		case "guest first\n": // answer after the guest ended its half
			b, err := io.ReadAll(br)
			fmt.Fprintf(conn, "%d bytes %v %s", len(b), err, sha(b))
		case "host first\n": // end our half, go on reading
			io.WriteString(conn, "done talking")
			conn.(interface{ CloseWrite() error }).CloseWrite()
			b, _ := io.ReadAll(br)
			os.WriteFile(h.work+"/heard", b, 0o644)
		case "cut\n":
			io.WriteString(conn, "abc")
		}
	}))
	data := make([]byte, 5<<20)
	rand.Read(data)
	c := dialDoor(t, addr)
	go func() {
		io.WriteString(c, "guest first\n")
		c.Write(data)
		c.CloseWrite()
	}()
	if b, err := io.ReadAll(c); err != nil || string(b) != fmt.Sprintf("%d bytes <nil> %s", len(data), sha(data)) {
		t.Fatalf("%q %v", b, err)
	}
	c = dialDoor(t, addr)
	io.WriteString(c, "host first\n")
	if b, err := io.ReadAll(c); err != nil || string(b) != "done talking" {
		t.Fatalf("%q %v", b, err)
	}
	io.WriteString(c, "still talking")
	c.CloseWrite()
	for end := time.Now().Add(hang); waitFile(t, h.work+"/heard") != "still talking"; {
		if time.Now().After(end) {
			t.Fatal("the second half was lost")
		}
	}
	c = dialDoor(t, addr)
	io.WriteString(c, "cut\n")
	if b, _ := io.ReadAll(c); string(b) != "abc" {
		t.Fatalf("%q", b)
	}
}

// Many connections at once, each with its own bytes, and a host that reads none of one.
func TestDoorMany(t *testing.T) {
	addr := freeAddr(t)
	h := newHouse(t, "--proxy", addr)
	stuck := make(chan struct{})
	h.open(gate(func(ctx context.Context, _ guest.EgressClaim, conn io.ReadWriteCloser) {
		defer conn.Close()
		br := bufio.NewReader(conn)
		line, _ := br.ReadString('\n')
		if line == "stuck\n" {
			close(stuck)
			<-ctx.Done()
			return
		}
		io.Copy(conn, io.MultiReader(strings.NewReader(line), br))
	}))
	s := dialDoor(t, addr)
	io.WriteString(s, "stuck\n")
	<-stuck
	go s.Write(make([]byte, 64<<20))
	var wg sync.WaitGroup
	for n := 0; n < 60; n++ {
		data := bytes.Repeat([]byte(fmt.Sprintf("%d\n", n)), 50_000)
		c := dialDoor(t, addr)
		wg.Add(1)
		go func() {
			defer wg.Done()
			go func() {
				c.Write(data)
				c.CloseWrite()
			}()
			if b, err := io.ReadAll(c); err != nil || !bytes.Equal(b, data) {
				t.Errorf("%d: %d bytes, want %d: %v", n, len(b), len(data), err)
			}
		}()
	}
	wg.Wait()
}

// When the core goes, relayed connections end; and its handlers are told.
func TestDoorCoreGone(t *testing.T) {
	addr := freeAddr(t)
	h := newHouse(t, "--proxy", addr)
	in, out := make(chan struct{}), make(chan error, 1)
	g := h.open(gate(func(ctx context.Context, _ guest.EgressClaim, conn io.ReadWriteCloser) {
		close(in)
		_, err := conn.Read(make([]byte, 1))
		out <- err
	}))
	c := dialDoor(t, addr)
	<-in
	g.Close()
	if err := <-out; err == nil {
		t.Error("the handler read on")
	}
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection outlived its core")
	}
}

func TestDoorDeadlines(t *testing.T) {
	addr := freeAddr(t)
	h := newHouse(t, "--proxy", addr)
	res := make(chan error, 1)
	h.open(gate(func(ctx context.Context, _ guest.EgressClaim, conn io.ReadWriteCloser) {
		c := conn.(net.Conn)
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			res <- fmt.Errorf("read: %v", err)
			return
		}
		c.SetReadDeadline(time.Time{})
		io.WriteString(c, "go")
		b := make([]byte, 4)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "well" {
			res <- fmt.Errorf("read after the deadline was lifted: %q %v", b, err)
			return
		}
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			if _, err = c.Write(make([]byte, 1<<20)); err != nil {
				res <- nil // nobody reads: the write gave up
				return
			}
		}
		res <- err
	}))
	c := dialDoor(t, addr)
	b := make([]byte, 2)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "well")
	select {
	case err := <-res:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(hang):
		t.Fatal("a deadline did not fire")
	}
}
