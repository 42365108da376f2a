package client

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// maxOpen leaves room for relays of an honest guest's one connection that end here a
// moment after they ended there.
const maxOpen = 2 * proto.MaxRelays

type egressServer struct {
	proto.UnimplementedEgressServer
	c *client
	h guest.EgressHandler
	// open counts relays over all of the guest's connections: the limit of streams
	// holds for each of these alone, and a hostile guest opens several.
	open atomic.Int64
}

func (e *egressServer) Relay(st grpc.BidiStreamingServer[proto.EgressFrame, proto.EgressFrame]) error {
	if e.h == nil {
		return status.Error(codes.Unavailable, proto.DoorShut)
	}
	defer e.open.Add(-1)
	if e.open.Add(1) > maxOpen {
		return status.Error(codes.ResourceExhausted, "too many connections at once")
	}
	first, err := st.Recv()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	r := &relayConn{st: st, ctx: ctx, cancel: cancel, frames: make(chan []byte)}
	e.c.wg.Add(1) // this handler is counted by the server, which is stopped before Close waits
	go func() {
		defer e.c.wg.Done()
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				log.Printf("egress: fault while serving a connection: %v", p)
			}
		}()
		e.h.ServeEgress(ctx, readClaim(first.Claim), r)
	}()
	go r.receive(first)
	// Returning ends the stream, which is what frees a Write that waits for the guest.
	<-ctx.Done()
	return nil
}

func readClaim(m *proto.EgressClaim) guest.EgressClaim {
	c := guest.EgressClaim{Pid: int(m.GetPid()), Argv: proto.Strings(m.GetArgv(), 32, 256), Browser: m.GetBrowser()}
	for _, f := range []struct {
		from string
		to   *string
	}{{m.GetSession(), &c.Session}, {m.GetStep(), &c.Step}, {m.GetExec(), &c.Exec}} {
		if proto.CheckID("claim", f.from) == nil {
			*f.to = f.from
		}
	}
	return c
}

// relayConn is one relayed connection as a net.Conn, so that TLS can be spoken
// on it. CloseWrite ends one direction.
type relayConn struct {
	st     grpc.BidiStreamingServer[proto.EgressFrame, proto.EgressFrame]
	ctx    context.Context
	cancel context.CancelFunc
	frames chan []byte // closed at the guest's end of data
	rest   []byte

	rd, wr   deadline
	wmu      sync.Mutex
	finished bool
}

// receive takes frames in the order of their coming; flow control of the
// stream bounds what waits.
func (r *relayConn) receive(m *proto.EgressFrame) {
	for {
		if len(m.Data) > 0 {
			select {
			case r.frames <- m.Data:
			case <-r.ctx.Done():
				return
			}
		}
		if m.Fin {
			close(r.frames)
			<-r.ctx.Done()
			return
		}
		var err error
		if m, err = r.st.Recv(); err != nil {
			r.cancel()
			return
		}
	}
}

func (r *relayConn) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case d, ok := <-r.frames:
			if !ok {
				return 0, io.EOF
			}
			r.rest = d
		case <-r.ctx.Done():
			return 0, net.ErrClosed
		case <-r.rd.wait():
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *relayConn) Write(p []byte) (int, error) {
	r.wmu.Lock()
	defer r.wmu.Unlock()
	if r.finished {
		return 0, io.ErrClosedPipe
	}
	n := 0
	for len(p) > 0 {
		k := min(len(p), proto.RelayChunk)
		if err := r.send(&proto.EgressFrame{Data: p[:k]}); err != nil {
			return n, err
		}
		n, p = n+k, p[k:]
	}
	return n, nil
}

// send gives up when the connection is closed or the deadline passes; the
// stream is then of no more use.
func (r *relayConn) send(m *proto.EgressFrame) error {
	select {
	case <-r.ctx.Done():
		return net.ErrClosed
	case <-r.wr.wait():
		return os.ErrDeadlineExceeded
	default:
	}
	if r.wr.armed() {
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			select {
			case <-r.wr.wait():
				r.cancel()
			case <-stop:
			}
		}()
	}
	return r.st.Send(m)
}

// CloseWrite tells the guest that no more data comes.
func (r *relayConn) CloseWrite() error {
	r.wmu.Lock()
	defer r.wmu.Unlock()
	if r.finished {
		return nil
	}
	r.finished = true
	return r.send(&proto.EgressFrame{Fin: true})
}

func (r *relayConn) Close() error {
	r.cancel()
	return nil
}

type relayAddr struct{}

func (relayAddr) Network() string { return "guest" }
func (relayAddr) String() string  { return "guest" }

func (r *relayConn) LocalAddr() net.Addr  { return relayAddr{} }
func (r *relayConn) RemoteAddr() net.Addr { return relayAddr{} }

func (r *relayConn) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

func (r *relayConn) SetReadDeadline(t time.Time) error {
	r.rd.set(t)
	return nil
}

func (r *relayConn) SetWriteDeadline(t time.Time) error {
	r.wr.set(t)
	return nil
}

// deadline is a channel that closes at a time that can be moved.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

func (d *deadline) armed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.timer != nil
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.ch != nil {
		select {
		case <-d.ch:
			d.ch = nil
		default:
		}
	}
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	ch := d.ch
	left := time.Until(t)
	if left <= 0 {
		close(ch)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // not moved in the meantime
			close(ch)
			d.timer = nil
		}
	})
	d.timer = timer
}
