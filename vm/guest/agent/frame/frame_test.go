//go:build linux

package frame

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

func pair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	a, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	b := New(c.(*net.UnixConn))
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestFramesInOneWrite(t *testing.T) {
	a, b := pair(t)
	long := strings.Repeat("x", 100_000)
	sent := make(chan error, 1)
	go func() {
		sent <- a.SendFrames(Frame{'s', []byte("state")}, Frame{'e', nil}, Frame{'x', []byte(long)})
	}()
	for _, want := range []struct {
		typ  byte
		text string
	}{{'s', "state"}, {'e', ""}, {'x', long}} {
		typ, got, _, err := b.Recv()
		if err != nil || typ != want.typ || string(got) != want.text {
			t.Fatalf("%c with %d bytes, %v; want %c with %d", typ, len(got), err, want.typ, len(want.text))
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	// One that is too large sends none of them: half a message would end the connection.
	if err := a.SendFrames(Frame{'s', nil}, Frame{'x', make([]byte, Max+1)}); err == nil {
		t.Error("a frame past the limit was sent")
	}
	a.Close()
	if _, _, _, err := b.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}
