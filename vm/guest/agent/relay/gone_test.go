//go:build linux

package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest/proto"
)

// ended is a door whose every relay has ended already.
type ended struct {
	grpc.BidiStreamingClient[proto.EgressFrame, proto.EgressFrame]
	err error
}

func (e ended) Relay(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[proto.EgressFrame, proto.EgressFrame], error) {
	return e, nil
}
func (e ended) Send(*proto.EgressFrame) error     { return io.EOF }
func (e ended) Recv() (*proto.EgressFrame, error) { return nil, e.err }
func (e ended) CloseSend() error                  { return nil }
func (e ended) Context() context.Context          { return context.Background() }
func (e ended) SendMsg(any) error                 { return io.EOF }
func (e ended) RecvMsg(any) error                 { return e.err }

// Who asks in the moment in which the core goes is told what one asks a moment later is.
func TestCoreGoesWhileItIsAsked(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // "" = cut
	}{
		{status.Error(codes.Unavailable, "error reading from server: EOF"), "core is not connected"},
		{status.Error(codes.Canceled, "grpc: the client connection is closing"), "core is not connected"},
		{status.Error(codes.Unavailable, proto.DoorShut), "the door is shut"},
		{status.Error(codes.ResourceExhausted, "too many connections at once"), ""},
		{errors.New("something else"), ""},
	} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := &Relay{Door: func() proto.EgressClient { return ended{err: c.err} }}
		done := make(chan struct{})
		go func() { defer close(done); r.serve(t.Context(), in.(*net.TCPConn)) }()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%v: it is answered with %d", c.err, res.StatusCode)
		case c.want != "" && err != nil:
			t.Errorf("%v: %v", c.err, err)
		case c.want != "":
			if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 503 || !strings.Contains(string(b), c.want) {
				t.Errorf("%v: %d %q %v", c.err, res.StatusCode, b, err)
			}
		}
		conn.Close()
		<-done
	}
}
