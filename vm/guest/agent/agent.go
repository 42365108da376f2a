//go:build linux

// Package agent is guestd's worker: it serves the channel's gRPC services and
// keeps what they need. The tiny parent (agent/boot) owns the listener and
// starts it again when it dies.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"glasshouse/vm/guest/agent/chromium"
	"glasshouse/vm/guest/agent/execs"
	"glasshouse/vm/guest/agent/relay"
	"glasshouse/vm/guest/proto"
)

// Kinds of guest.
const (
	KindVM      = "vm"
	KindSandbox = "sandbox"
	KindDirect  = "direct" // tests: no privilege change, no cells
)

// Exit codes by which the worker tells its parent what is wanted.
const (
	ExitPowerOff = 80
	ExitRestart  = 81
)

// Config is what the parent tells the worker.
type Config struct {
	Kind      string
	State     string // kept over reboots: journal and shadow store
	Run       string // gone at reboot: sockets
	BootID    string
	Peer      string // the only address that may connect over TCP; empty = any
	Workspace string
	Home      string
	Proxy     string // where the door is offered; empty = nowhere
	Cgroups   string // parent of the executions' cgroups; empty = none
	Notes     []string
}

type server struct {
	cfg   Config
	hash  func() (string, error)
	execs *execs.Manager
	parts parts
	stats *meter

	browsers *chromium.Launcher

	// entering is held by who makes an execution known, and alone by a new host that
	// takes the place of the one before.
	entering sync.RWMutex

	mu      sync.Mutex
	current *session
	pending int
	leaving atomic.Bool
}

const (
	helloWait  = 20 * time.Second
	maxPending = 8
)

// Serve is `guestd serve CONFIG`: descriptor 3 is the listener. It returns the
// exit code the parent acts on.
func Serve(config string) (int, error) {
	var cfg Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return 1, fmt.Errorf("worker config: %w", err)
	}
	syscall.CloseOnExec(3)
	f := os.NewFile(3, "listener")
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return 1, fmt.Errorf("descriptor 3 is no listener: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	s, err := newServer(ctx, cfg)
	if err != nil {
		return 1, err
	}
	if cfg.Kind == KindVM {
		if err := s.serveLocal(ctx); err != nil {
			log.Printf("connect will not work: %v", err)
		}
	}
	log.Print("listening")
	go func() {
		<-ctx.Done()
		l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				s.end()
				return ExitPowerOff, nil
			}
			if errors.Is(err, net.ErrClosed) {
				return 1, err
			}
			time.Sleep(50 * time.Millisecond) // out of descriptors, most likely
			continue
		}
		go s.serve(ctx, c)
	}
}

// LocalSocket is where `guestd connect` reaches the worker of a VM.
const LocalSocket = "/run/glasshouse/chan.sock"

// serveLocal accepts root's own connections.
func (s *server) serveLocal(ctx context.Context) error {
	os.Remove(LocalSocket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: LocalSocket, Net: "unix"})
	if err != nil {
		return err
	}
	if err := os.Chmod(LocalSocket, 0o600); err != nil {
		l.Close()
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if !fromRoot(c) {
				c.Close()
				continue
			}
			go s.serve(ctx, c)
		}
	}()
	return nil
}

func fromRoot(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	root := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		root = err == nil && cred.Uid == 0
	})
	return err == nil && root
}

func newServer(ctx context.Context, cfg Config) (*server, error) {
	s := &server{cfg: cfg, stats: newMeter(cfg.Workspace), hash: sync.OnceValues(selfHash)}
	go func() { _, _ = s.hash() }() // ahead of the first hello, which gets its error too
	ecfg, err := execsConfig(cfg)
	if err != nil {
		return nil, err
	}
	if s.execs, err = execs.New(ctx, ecfg); err != nil {
		return nil, err
	}
	s.browsers = chromium.New(browserConfig(cfg, ecfg))
	s.parts = newParts(ctx, cfg, ecfg.Env)
	if cfg.Proxy != "" {
		r := &relay.Relay{Door: s.door, Owner: s.owner}
		if err := r.Listen(ctx, cfg.Proxy); err != nil {
			log.Printf("the door cannot be offered at %s: %v", cfg.Proxy, err)
			s.cfg.Notes = append(s.cfg.Notes, "the door cannot be offered: "+err.Error())
		}
	}
	return s, nil
}

// end closes everything before a power-off.
func (s *server) end() {
	s.leaving.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.browsers.EndSession(ctx, "")
	}()
	s.execs.Close(ctx, 500*time.Millisecond)
	<-done
	syscall.Sync()
}

// session is one connection of a host.
type session struct {
	s     *server
	ys    *yamux.Session
	hello atomic.Bool
	host  proto.EgressClient
}

func (s *server) serve(ctx context.Context, c net.Conn) {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok && s.cfg.Peer != "" && a.IP.String() != s.cfg.Peer {
		log.Printf("refused a connection from %s", a.IP)
		c.Close()
		return
	}
	s.mu.Lock()
	crowded := s.pending >= maxPending
	if !crowded {
		s.pending++
	}
	s.mu.Unlock()
	if crowded {
		c.Close()
		return
	}
	s.session(ctx, c)
}

// session serves one byte stream until it ends.
func (s *server) session(ctx context.Context, c io.ReadWriteCloser) {
	defer c.Close()
	n := &session{s: s}
	counted := true
	uncount := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if counted {
			counted = false
			s.pending--
		}
	}
	defer uncount()
	ys, err := proto.GuestSession(c)
	if err != nil {
		log.Printf("channel: %v", err)
		return
	}
	defer ys.Close()
	n.ys = ys
	cc, err := proto.DialRelay(ys)
	if err != nil {
		log.Printf("channel: %v", err)
		return
	}
	defer cc.Close()
	n.host = proto.NewEgressClient(cc)
	timer := time.AfterFunc(helloWait, func() {
		if !n.hello.Load() {
			ys.Close()
		}
	})
	defer timer.Stop()
	g := proto.GuestServer(grpc.UnaryInterceptor(n.unary), grpc.StreamInterceptor(n.stream))
	s.register(g, n, uncount)
	_ = g.Serve(proto.Listener(ys)) // it ends with the session, whose end needs no words
	g.Stop()
	s.mu.Lock()
	if s.current == n {
		s.current = nil
	}
	s.mu.Unlock()
}

// promote makes n the connection; the one before it is closed. What its host still
// wanted to start is known by the time this returns, or never will be.
func (s *server) promote(n *session) {
	s.entering.Lock()
	s.mu.Lock()
	old := s.current
	s.current = n
	s.mu.Unlock()
	s.entering.Unlock()
	if old != nil && old != n {
		old.ys.Close()
	}
}

// mayEnter reports whether n's host is the newest that came, or was until it left.
func (s *server) mayEnter(n *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current == nil || s.current == n
}

// door returns the host's side of the egress relay; nil while no core is connected.
func (s *server) door() proto.EgressClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	return s.current.host
}

func (n *session) gate(method string) error {
	if !n.hello.Load() && method != proto.Channel_Hello_FullMethodName {
		return status.Error(codes.FailedPrecondition, "the first call must be Hello")
	}
	if n.s.leaving.Load() {
		return status.Error(codes.Unavailable, "the machine is powering off")
	}
	return nil
}

func (n *session) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
	defer recovered(info.FullMethod, &err)
	if err := n.gate(info.FullMethod); err != nil {
		return nil, err
	}
	rep, err := h(ctx, req)
	return rep, proto.ToStatus(err)
}

func (n *session) stream(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	defer recovered(info.FullMethod, &err)
	if err := n.gate(info.FullMethod); err != nil {
		return err
	}
	return proto.ToStatus(h(srv, st))
}

// recovered keeps a fault in one call from ending the others.
func recovered(method string, err *error) {
	if p := recover(); p != nil {
		log.Printf("fault in %s: %v", method, p)
		*err = status.Errorf(codes.Internal, "guestd has a fault in %s: %v", method, p)
	}
}
