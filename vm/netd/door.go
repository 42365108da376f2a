package netd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// The first line on a connection to the channel's socket.
const (
	lineOK = "ok\n"
	lineNo = "no " // then a reason and a line feed
)

var errNoVM = errors.New("the machine is not connected")

// door serves the channel's socket.
type door struct {
	cfg   *Config
	stack *netstack
	link  *link
}

const (
	maxRelays   = 16
	dialPatient = 15 * time.Second       // for one connection to chan.sock
	dialTry     = 150 * time.Millisecond // one SYN; a booting guest loses it
	dialPause   = 20 * time.Millisecond  // after a refusal
)

func (d *door) serve(ctx context.Context, ln net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxRelays)
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			_, _ = c.Write([]byte(lineNo + "too many connections to the machine are open\n"))
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer c.Close()
			d.connect(ctx, c.(*net.UnixConn))
		})
	}
}

// connect dials the guest until it answers, the client leaves or patience ends.
func (d *door) connect(ctx context.Context, c *net.UnixConn) {
	ctx, cancel := context.WithTimeout(ctx, dialPatient)
	defer cancel()
	// The client may not speak before "ok", so a read that ends means it left.
	left := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			var b [1]byte
			n, err := c.Read(b[:])
			if n > 0 {
				left <- errors.New("it spoke too early")
				cancel()
				return
			}
			if err != nil && !isTimeout(err) {
				left <- err
				cancel()
				return
			}
			select {
			case <-stop:
				left <- nil
				return
			default:
			}
		}
	}()
	g, err := d.dial(ctx)
	close(stop)
	gone := <-left
	_ = c.SetReadDeadline(time.Time{})
	if g != nil && (gone != nil || err != nil) {
		_ = g.Close()
	}
	if gone != nil {
		return
	}
	if err != nil {
		fmt.Fprintf(c, "%s%s\n", lineNo, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	if _, err := io.WriteString(c, lineOK); err != nil {
		_ = g.Close()
		return
	}
	d.relay(c, g.(duplex))
}

func (d *door) dial(ctx context.Context) (net.Conn, error) {
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, dialTry)
		g, err := d.stack.dial(try)
		cancel()
		if err == nil {
			return g, nil
		}
		last = err
		pause := dialPause
		if errors.Is(err, errNoVM) {
			pause = 2 * dialPause
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("guestd does not answer: %w", last)
		case <-d.link.ended:
			return nil, errors.New("the machine ended")
		case <-time.After(pause):
		}
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// duplex is what both ends of a relay can do.
type duplex interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// relay copies both directions until both ended; an end on one side becomes a
// half-close on the other. Each direction holds one buffer, so a reader that
// stops is felt by the writer.
func (d *door) relay(host, guest duplex) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	go func() {
		select {
		case <-d.link.ended:
		case <-d.link.quit:
		case <-done:
			return
		}
		_ = guest.Close()
		_ = host.Close()
	}()
	copyHalf := func(dst, src duplex) {
		_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 256<<10))
		if err != nil {
			// A broken direction cannot be repaired: end both at once.
			_ = dst.Close()
			_ = src.Close()
			return
		}
		_ = dst.CloseWrite()
	}
	wg.Go(func() { copyHalf(guest, host) })
	wg.Go(func() { copyHalf(host, guest) })
	wg.Wait()
	close(done)
	_ = guest.Close()
	_ = host.Close()
}
