package proto

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// counted counts the writes on a connection, and can fail them.
type counted struct {
	net.Conn
	writes atomic.Int64
	fail   atomic.Bool
}

func (c *counted) Write(p []byte) (int, error) {
	if c.fail.Load() {
		return 0, errors.New("broken")
	}
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// sessions returns both ends of a session and their counted connections.
func sessions(t *testing.T) (host, guest io.ReadWriteCloser, hc, gc *counted) {
	t.Helper()
	a, b := net.Pipe()
	hc, gc = &counted{Conn: a}, &counted{Conn: b}
	h, err := HostSession(hc)
	if err != nil {
		t.Fatal(err)
	}
	g, err := GuestSession(gc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); g.Close() })
	accepted := make(chan io.ReadWriteCloser, 1)
	go func() {
		s, err := g.Accept()
		if err == nil {
			accepted <- s
		}
	}()
	host, err = h.Open()
	if err != nil {
		t.Fatal(err)
	}
	return host, <-accepted, hc, gc
}

func TestFrameIsOneWrite(t *testing.T) {
	host, guest, hc, gc := sessions(t)
	// A first exchange, after which both ends are through with opening the stream.
	exchange := func() {
		t.Helper()
		for _, d := range []struct{ from, to io.ReadWriter }{{host, guest}, {guest, host}} {
			want := []byte("a small message")
			if _, err := d.from.Write(want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(d.to, got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
	exchange()
	h, g := hc.writes.Load(), gc.writes.Load()
	const n = 50
	for range n {
		exchange()
	}
	if h, g = hc.writes.Load()-h, gc.writes.Load()-g; h != n || g != n {
		t.Errorf("%d messages each way took %d and %d writes", n, h, g)
	}
}

func TestJoinedKeepsBytes(t *testing.T) {
	host, guest, _, _ := sessions(t)
	sizes := []int{1, 11, 12, 13, joinMax - 1, joinMax, joinMax + 1, 300 << 10, 5, 2 << 20, 12}
	var sent bytes.Buffer
	for i, n := range sizes {
		// Bodies that look like headers must not be taken for one.
		sent.Write(bytes.Repeat([]byte{0, 0, 0, byte(i)}, n)[:n])
	}
	all := sent.Bytes()
	go func() {
		rest := all
		for _, n := range sizes {
			if _, err := host.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
	}()
	got := make([]byte, len(all))
	if _, err := io.ReadFull(guest, got); err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(got) != sha256.Sum256(all) {
		t.Error("the bytes arrived changed")
	}
}

func TestJoinedTellsAFailure(t *testing.T) {
	host, _, hc, _ := sessions(t)
	hc.fail.Store(true)
	// yamux gives the error to this write or, at the latest, to the next one.
	for range 3 {
		if _, err := host.Write([]byte("x")); err != nil {
			return
		}
	}
	t.Error("writes on a broken connection succeed")
}
