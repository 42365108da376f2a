//go:build linux

// Package relay is the guest's side of the only door: it takes connections made
// to the proxy address and passes each on as it is, with a claim of who made
// it. It decides nothing and reads nothing.
package relay

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest/proto"
)

const (
	closedText = "no one is at the door: Glasshouse's core is not connected to this machine\n"
	manyText   = "too many connections are open at the door\n"
	lingerFor  = time.Second
)

// Relay serves the proxy address.
type Relay struct {
	Door  func() proto.EgressClient // nil while no core is connected
	Owner func(pid int) *proto.EgressClaim

	slots chan struct{}
}

// Listen offers the door at addr (and at the same port of the IPv6 loopback,
// where there is one) until ctx ends.
func (r *Relay) Listen(ctx context.Context, addr string) error {
	r.slots = make(chan struct{}, proto.MaxRelays)
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	go r.accept(ctx, l)
	if a, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
		if l6, err := net.ListenTCP("tcp6", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv6Loopback(), a.Port()))); err == nil {
			go r.accept(ctx, l6)
		}
	}
	return nil
}

func (r *Relay) accept(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			log.Printf("relay: %v", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		select {
		case r.slots <- struct{}{}:
			go func() {
				defer func() { <-r.slots }()
				r.serve(ctx, c.(*net.TCPConn))
			}()
		default:
			go refuse(c.(*net.TCPConn), manyText)
		}
	}
}

// refuse answers in the proxy's language, which is the only one a client of
// this address can expect.
func refuse(c *net.TCPConn, text string) {
	defer c.Close()
	// A client that is gone needs no answer.
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+text)
	linger(c)
}

// linger lets the peer read what was written: closing with unread input would
// reset the connection.
func linger(c *net.TCPConn) {
	c.CloseWrite()
	if c.SetReadDeadline(time.Now().Add(lingerFor)) == nil {
		_, _ = io.CopyN(io.Discard, c, 1<<20) // however the peer ends it
	}
}

// gone reports whether err says that the core went while it was asked: the client gets
// the answer that it would have got a moment later.
func gone(ctx context.Context, err error) bool {
	code := status.Code(err)
	return ctx.Err() == nil && (code == codes.Unavailable || code == codes.Canceled)
}

func (r *Relay) serve(ctx context.Context, c *net.TCPConn) {
	door := r.Door()
	if door == nil {
		refuse(c, closedText)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	claim := &proto.EgressClaim{}
	if pid := owner(c); pid > 0 {
		claim = r.Owner(pid)
	}
	st, err := door.Relay(ctx)
	if err == nil {
		err = st.Send(&proto.EgressFrame{Claim: claim})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		refuse(c, closedText)
		return
	}
	defer c.Close()
	go func() {
		buf := make([]byte, proto.RelayChunk)
		for {
			n, err := c.Read(buf)
			if n > 0 {
				if st.Send(&proto.EgressFrame{Data: buf[:n]}) != nil {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				// Should the stream have ended, its Recv says so.
				_ = st.Send(&proto.EgressFrame{Fin: true})
				_ = st.CloseSend()
				return
			}
			if err != nil {
				cancel()
				return
			}
		}
	}()
	answered := false
	for {
		m, err := st.Recv()
		if err != nil {
			switch {
			case errors.Is(err, io.EOF):
				linger(c)
			case !answered && status.Code(err) == codes.Unavailable && status.Convert(err).Message() == proto.DoorShut:
				refuse(c, proto.DoorShut+"\n")
			case !answered && gone(ctx, err):
				refuse(c, closedText)
			default:
				_ = c.SetLinger(0) // cut, not ended
			}
			return
		}
		if len(m.Data) > 0 {
			answered = true
			if _, err := c.Write(m.Data); err != nil {
				return
			}
		}
		if m.Fin {
			c.CloseWrite()
		}
	}
}
