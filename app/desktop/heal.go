package desktop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Link is the window's way to the core's socket. When nobody listens there any more
// it starts the core again, so that a page that reconnects finds one.
type Link struct {
	socket string
	start  func(context.Context) error
	// Ended is what a call gets after the person ended the core elsewhere.
	ended error
	// quit: the core said that it was asked to end. Then only what a person does
	// starts it again, not a page that follows it.
	quit atomic.Bool

	mu     sync.Mutex
	failed error
	next   time.Time // no start before
	wait   time.Duration
	now    func() time.Time
}

// Pauses between starts, which double while it does not help.
const (
	firstPause = 2 * time.Second
	lastPause  = time.Minute
	// A core that lived this long did not die of being started.
	livedLong = time.Minute
)

// NewLink makes a way to socket. start starts a core and returns when it answers;
// ended is the error of calls after the core was ended on purpose.
func NewLink(socket string, start func(context.Context) error, ended error) *Link {
	return &Link{socket: socket, start: start, ended: ended, now: time.Now}
}

// acts marks the context of a request by which a person does something.
type acts struct{}

// Ended says whether the core was asked to end by the person, elsewhere.
func (l *Link) Ended(v bool) { l.quit.Store(v) }

// Transport carries calls to the core, and starts it where that is called for.
func (l *Link) Transport() http.RoundTripper {
	t := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 8, DisableCompression: true}
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			r = r.WithContext(context.WithValue(r.Context(), acts{}, true))
		}
		return t.RoundTrip(r)
	})
}

// Plain reaches the socket without ever starting a core.
func (l *Link) Plain() http.RoundTripper {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.reach(ctx) }, MaxIdleConnsPerHost: 2, DisableCompression: true}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (l *Link) reach(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", l.socket)
}

func (l *Link) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := l.reach(ctx)
	if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
		return c, err
	}
	// A core that ends in good order takes its socket away, one that crashes leaves it.
	if ctx.Value(acts{}) == nil && (l.quit.Load() || errors.Is(err, syscall.ENOENT)) {
		return nil, l.ended
	}
	if err := l.again(ctx); err != nil {
		return nil, err
	}
	return l.reach(ctx)
}

// again starts the core, one caller at a time, and not more often than helps. A
// start goes on when the call that wanted it is given up.
func (l *Link) again(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, err := l.reach(ctx); err == nil { // somebody else was quicker
		c.Close()
		return nil
	}
	now := l.now()
	if now.Before(l.next) {
		if l.failed != nil {
			return l.failed
		}
		return fmt.Errorf("the core ended right after it was started; it is tried again in %d seconds", int(l.next.Sub(now)/time.Second)+1)
	}
	if now.Sub(l.next) > livedLong {
		l.wait = 0
	}
	l.wait = min(max(2*l.wait, firstPause), lastPause)
	l.failed = l.start(context.WithoutCancel(ctx))
	l.next = l.now().Add(l.wait)
	if l.failed == nil {
		l.quit.Store(false)
	}
	return l.failed
}
