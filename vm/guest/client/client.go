// Package client is the host's end of the channel to a guestd: it implements
// package guest over yamux and gRPC. Whatever guestd sends is treated as
// hostile: messages, lists and fields are bounded before anything is kept.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/proto"
)

// Options of Open. The zero value leaves the guest as it is.
type Options struct {
	// SetClock sets a VM's clock from the host's when it is off by more than a second.
	SetClock bool
	// Hostname names a VM; empty keeps what it has.
	Hostname string
	// Seed is fresh randomness for a VM that is a copy of another (at most 4 KiB).
	Seed []byte
	// FreshIdentity gives a copied VM a machine id of its own.
	FreshIdentity bool
	// Agent, when set, replaces the guestd of a VM whose hash differs.
	Agent *Agent
}

// Agent is a guestd binary.
type Agent struct {
	Hash string // sha256, hex
	Size int64
	Open func() (io.ReadCloser, error)
}

// ErrUpgraded: guestd was replaced and is starting again. Dial and open once more.
var ErrUpgraded = errors.New("guestd was replaced by a newer one")

const (
	helloWait = 30 * time.Second
	closeWait = 10 * time.Second
)

// Open speaks the hello on conn and returns the guest behind it. It owns conn,
// also when it fails. egress serves the guest's connections to the proxy
// address; nil refuses them all.
func Open(ctx context.Context, conn io.ReadWriteCloser, egress guest.EgressHandler, opts Options) (guest.Guest, error) {
	ys, err := proto.HostSession(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the channel cannot be opened: %w", err)
	}
	c := &client{ys: ys, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if c.cc, err = proto.Dial(ys); err != nil {
		c.cancel()
		ys.Close()
		return nil, fmt.Errorf("the channel cannot be opened: %w", err)
	}
	c.srv = proto.HostServer(grpc.StreamInterceptor(recovered))
	proto.RegisterEgressServer(c.srv, &egressServer{c: c, h: egress})
	c.wg.Add(1)
	go c.serve()
	if err := c.greet(ctx, opts); err != nil {
		c.shut(err)
		c.wg.Wait()
		return nil, err
	}
	return c, nil
}

type client struct {
	ys     *yamux.Session
	cc     *grpc.ClientConn
	srv    *grpc.Server
	hello  guest.Hello
	ctx    context.Context // ends with the channel
	cancel context.CancelFunc
	wg     sync.WaitGroup

	once sync.Once
	done chan struct{}
	err  error // valid once done is closed
}

// serve answers the guest until the session ends, whoever ends it.
func (c *client) serve() {
	defer c.wg.Done()
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		<-c.ys.CloseChan()
		c.shut(guest.ErrGone)
	}()
	_ = c.srv.Serve(proto.Listener(c.ys)) // it ends with the session, which is all there is to say
	c.shut(guest.ErrGone)
}

func (c *client) shut(why error) {
	c.once.Do(func() {
		c.err = why
		close(c.done)
		c.cancel()
		c.ys.Close()
		c.cc.Close()
		c.srv.Stop()
	})
}

func (c *client) greet(ctx context.Context, opts Options) error {
	ctx, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	q := &proto.HelloRequest{Generation: guest.Generation, Hostname: opts.Hostname, Seed: opts.Seed, FreshIdentity: opts.FreshIdentity}
	if opts.SetClock {
		q.Now = time.Now().UnixNano()
	}
	r, err := proto.NewChannelClient(c.cc).Hello(ctx, q)
	if err != nil {
		return fmt.Errorf("guestd did not say hello: %w", c.wrap(ctx, err, nil))
	}
	if c.hello, err = readHello(r); err != nil {
		return err
	}
	if a := opts.Agent; a != nil && c.hello.Kind == "vm" && c.hello.AgentHash != a.Hash {
		if err := c.upgrade(ctx, a); err != nil {
			return fmt.Errorf("guestd cannot be replaced: %w", err)
		}
		return ErrUpgraded
	}
	return nil
}

const maxNotes = 16

func readHello(r *proto.HelloReply) (guest.Hello, error) {
	h := guest.Hello{
		Generation: int(r.Generation), BootID: r.BootId, AgentHash: r.AgentHash,
		Hostname: proto.Text(r.Hostname, 64), Kind: proto.Text(r.Kind, 16), Cgroups: r.Cgroups,
	}
	if h.Generation < 1 || h.Generation > guest.Generation {
		return h, fmt.Errorf("guestd speaks generation %d of the wire, this host speaks 1 to %d: replace one of them", h.Generation, guest.Generation)
	}
	if err := errors.Join(proto.CheckID("boot id", h.BootID), proto.CheckHash("agent hash", h.AgentHash, false)); err != nil {
		return h, fmt.Errorf("guestd's hello is broken: %w", err)
	}
	for i, n := range r.Notes {
		if i == maxNotes {
			break
		}
		h.Notes = append(h.Notes, proto.Text(n, 500))
	}
	return h, nil
}

func (c *client) upgrade(ctx context.Context, a *Agent) error {
	f, err := a.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := proto.NewChannelClient(c.cc).Upgrade(ctx)
	if err != nil {
		return c.wrap(ctx, err, nil)
	}
	m := &proto.UpgradeChunk{Sha256: a.Hash, Size: a.Size}
	buf := make([]byte, proto.MaxChunk)
	for {
		n, rerr := io.ReadFull(f, buf)
		m.Data = buf[:n]
		if err := st.Send(m); err != nil {
			if errors.Is(err, io.EOF) { // the answer says why
				_, err = st.CloseAndRecv()
			}
			return c.wrap(ctx, err, nil)
		}
		m = &proto.UpgradeChunk{}
		if rerr == io.EOF || rerr == io.ErrUnexpectedEOF {
			break
		}
		if rerr != nil {
			return rerr
		}
	}
	_, err = st.CloseAndRecv()
	return c.wrap(ctx, err, nil)
}

func (c *client) Hello() guest.Hello    { return c.hello }
func (c *client) Done() <-chan struct{} { return c.done }

func (c *client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the channel and waits for the connections served on it, which are
// told through their context; one that does not listen is not waited for long.
func (c *client) Close() error {
	c.shut(fmt.Errorf("%w: closed here", guest.ErrGone))
	ended := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(closeWait):
		return errors.New("a connection through the door is still being served")
	}
}

// wrap makes an error of a call one of the contract's. notFound is what "not
// found" means there.
func (c *client) wrap(ctx context.Context, err error, notFound error) error {
	if err == nil {
		return nil
	}
	if e := ctx.Err(); e != nil {
		return e
	}
	gone := c.ys.IsClosed()
	if st, ok := status.FromError(err); ok {
		gone = gone || st.Code() == codes.Unavailable
	} else if errors.Is(err, io.EOF) {
		gone = true
	}
	if gone {
		// In words alone: what a dying connection answered is nobody's "not found" or "cancelled".
		return fmt.Errorf("%w (%s)", guest.ErrGone, proto.FromStatus(err, notFound).Error())
	}
	return proto.FromStatus(err, notFound)
}

func (c *client) Stats(ctx context.Context) (guest.Stats, error) {
	r, err := proto.NewChannelClient(c.cc).Stats(ctx, &proto.StatsRequest{})
	if err != nil {
		return guest.Stats{}, c.wrap(ctx, err, nil)
	}
	return guest.Stats{
		CPUPercent: finite(r.CpuPercent), MemUsedKiB: max(r.MemUsedKib, 0), MemTotalKiB: max(r.MemTotalKib, 0),
		DiskUsedKiB: max(r.DiskUsedKib, 0), DiskTotalKiB: max(r.DiskTotalKib, 0), Procs: int(min(max(r.Procs, 0), 1<<30)),
		Load1: finite(r.Load1), Uptime: time.Duration(max(r.Uptime, 0)),
	}, nil
}

// finite keeps NaN and infinities out of JSON and screens.
func finite(f float64) float64 {
	if f >= 0 && f < 1e9 {
		return f
	}
	return 0
}

func (c *client) Shutdown(ctx context.Context) error {
	_, err := proto.NewChannelClient(c.cc).Shutdown(ctx, &proto.ShutdownRequest{})
	return c.wrap(ctx, err, nil)
}

func recovered(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "fault in %s", info.FullMethod)
		}
	}()
	return h(srv, st)
}
