package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"glasshouse/vm/proc"
)

// The demo's internet: one name, one server, in the ranges that are reserved for
// documentation.
const (
	demoHost   = "rates.demo.example"
	demoWeb    = "203.0.113.10"
	demoDNS    = "203.0.113.53:53"
	demoDNSIP  = "203.0.113.53"
	demoWebTCP = demoWeb + ":80"
)

// isolate runs the rest of the demo in a network namespace of its own.
func (d *demo) isolate(ctx context.Context) error {
	args := []string{"demo", "--inside", "--machine", d.machine}
	p, err := d.runner.Start(ctx, proc.Cmd{Role: "demo", Path: proc.Self(), Args: args, Env: append(os.Environ(), demoEnv+"="+d.dir),
		Stdout: os.Stdout, Stderr: os.Stderr, OwnNetwork: true})
	if err != nil {
		return fmt.Errorf("the demo needs a network namespace of its own: %w", err)
	}
	if code, err := p.Wait(); err != nil {
		if code > 0 {
			return exitCode(code)
		}
		return err
	}
	return nil
}

// internet brings up loopback with the demo's addresses and serves them.
func (d *demo) internet(ctx context.Context) error {
	if err := address("lo", "127.0.0.1", "255.0.0.0"); err != nil {
		return err
	}
	for i, ip := range []string{demoWeb, demoDNSIP} {
		if err := address(fmt.Sprintf("lo:%d", i+1), ip, "255.255.255.255"); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", demoWebTCP)
	if err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/eur" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, "1.0000")
	})}
	go func() { _ = srv.Serve(l) }()
	u, err := net.ListenPacket("udp", demoDNS)
	if err != nil {
		return err
	}
	go names(u)
	context.AfterFunc(ctx, func() { srv.Close(); u.Close() })
	dropRights()
	return nil
}

// dropRights takes the network rights from this thread, which it keeps for the
// goroutine: what it starts has none of them. A sandbox refuses to start with more.
func dropRights() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

func address(name, ip, mask string) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	for _, step := range []struct {
		op uint
		ip string
	}{{unix.SIOCSIFADDR, ip}, {unix.SIOCSIFNETMASK, mask}} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(net.ParseIP(step.ip).To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(s, step.op, r); err != nil {
			return fmt.Errorf("the address %s could not be set on %s: %w", ip, name, err)
		}
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("the interface %s could not be brought up: %w", name, err)
	}
	return nil
}

// names is a DNS server that knows one name.
func names(c net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		var p dnsmessage.Parser
		h, err := p.Start(buf[:n])
		if err != nil {
			continue
		}
		q, err := p.Question()
		if err != nil {
			continue
		}
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
		if q.Name.String() != demoHost+"." {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			var a [4]byte
			copy(a[:], net.ParseIP(demoWeb).To4())
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: a}}}
		}
		if b, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(b, from)
		}
	}
}
