package proto

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Sizes of the wire. A message is at most MaxMessage both ways; a data chunk
// is at most MaxChunk, so that a message with its other fields always fits.
const (
	MaxMessage = 1 << 20
	MaxChunk   = 256 << 10
	maxHeaders = 64 << 10

	streamWindow = 4 << 20   // of bulk streams the host asked for
	relayWindow  = 256 << 10 // of each relayed connection: many at once, so a small one
	connWindow   = 8 << 20
	buffers      = 256 << 10

	// DoorShut is what a host without a gate answers to a relay, as Unavailable.
	DoorShut = "the door is shut"

	// MaxRelays is how many connections are relayed at once.
	MaxRelays = 256
	// RelayChunk is the largest piece of a relayed connection in one frame. With
	// its frame it fits the 32 KiB buffers that gRPC pools; the next size is 1 MiB.
	RelayChunk = 32<<10 - 512
	// What the guest may send the host in one message: a chunk, or a claim.
	maxRelayMessage = 64 << 10
)

// Liveness of the byte stream: a peer that answers nothing for about a minute
// is gone. A guest whose CPUs the host stopped for less than that stays connected.
var (
	pingEvery = 20 * time.Second
	pingWait  = 45 * time.Second
)

func yamuxConfig(backlog int) *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.MaxStreamWindowSize = streamWindow
	c.EnableKeepAlive = true
	c.KeepAliveInterval = pingEvery
	c.ConnectionWriteTimeout = pingWait
	c.StreamOpenTimeout = pingWait
	c.StreamCloseTimeout = 10 * time.Second
	c.LogOutput = io.Discard
	return c
}

// maxStreams is how many yamux streams (each one an HTTP/2 connection) a peer
// may open in a session's life; one is needed, a few more pay for retries.
const maxStreams = 16

// HostSession starts the host's end of the session on conn.
func HostSession(conn io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Client(&joined{ReadWriteCloser: conn}, yamuxConfig(4))
}

// GuestSession starts the guest's end of the session on conn.
func GuestSession(conn io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Server(&joined{ReadWriteCloser: conn}, yamuxConfig(4))
}

// Listener hands the peer's yamux streams to a gRPC server. A peer that opens
// more streams than any honest one needs loses the whole session, because each
// stream could pin a window of memory.
func Listener(s *yamux.Session) net.Listener { return &listener{Session: s} }

type listener struct {
	*yamux.Session
	n int
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Session.Accept()
	if err != nil {
		return nil, err
	}
	if l.n++; l.n > maxStreams {
		l.Session.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Dial makes the gRPC client connection that opens streams of s.
func Dial(s *yamux.Session, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.Open() }),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(buffers),
		grpc.WithWriteBufferSize(buffers),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
	}, opts...)
	return grpc.NewClient("passthrough:///channel", opts...)
}

// DialRelay is Dial with the small windows that relayed connections get.
func DialRelay(s *yamux.Session) (*grpc.ClientConn, error) {
	return Dial(s, grpc.WithInitialWindowSize(relayWindow))
}

func serverOptions(window int32, streams uint32) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(streams),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(buffers),
		grpc.WriteBufferSize(buffers),
		grpc.ConnectionTimeout(pingWait),
	}
}

// GuestServer makes the gRPC server of guestd.
func GuestServer(opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(serverOptions(streamWindow, 4096), opts...)...)
}

// HostServer makes the host's gRPC server, which faces the hostile guest.
func HostServer(opts ...grpc.ServerOption) *grpc.Server {
	opts = append(serverOptions(relayWindow, MaxRelays), opts...)
	return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(maxRelayMessage))...)
}
