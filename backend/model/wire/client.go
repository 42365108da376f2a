// Package wire is how models are reached over HTTP: one client for every wire format,
// with a bound on everything a server can draw out, and with the key kept to the one
// address it was given for. What fails becomes a *model.Error without the key in it.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"glasshouse/backend/model"
)

// Options of a client; zero values mean the usual.
type Options struct {
	// Key is taken out of what errors say. The client sends it nowhere by itself.
	Key string
	// FirstByte bounds the time from the last byte sent to the first byte of the
	// answer's body. 0 = 5 min: a local model reads a long prompt for minutes.
	FirstByte time.Duration
	// Idle bounds the time without a byte after the first. 0 = 3 min.
	Idle time.Duration
	// Whole bounds an exchange from its beginning to the end of its body, however
	// steadily bytes drip. 0 = 2 h.
	Whole time.Duration
	// MaxBody is the most bytes of a body. 0 = 64 MiB.
	MaxBody int64
}

const (
	usualFirstByte = 5 * time.Minute
	usualIdle      = 3 * time.Minute
	usualWhole     = 2 * time.Hour
	usualMaxBody   = 64 << 20

	dialTimeout = 15 * time.Second
	maxHeader   = 256 << 10
	// maxRefusal is how much is read of a body that says why nothing was answered;
	// the rest is left out, so that the beginning can still be shown.
	maxRefusal = 256 << 10
)

// NewClient makes a client with connections of its own. It follows no redirect, keeps
// no cookie and sends no word about this machine. Proxies of the environment count.
func NewClient(o Options) *http.Client {
	or := func(d, usual time.Duration) time.Duration {
		if d <= 0 {
			return usual
		}
		return d
	}
	o.FirstByte, o.Idle, o.Whole = or(o.FirstByte, usualFirstByte), or(o.Idle, usualIdle), or(o.Whole, usualWhole)
	if o.MaxBody <= 0 {
		o.MaxBody = usualMaxBody
	}
	return &http.Client{
		Transport: &transport{o: o, base: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			OnProxyConnectResponse: proxyAnswered,
			DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			ExpectContinueTimeout:  time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConnsPerHost:    4,
			MaxResponseHeaderBytes: maxHeader,
			ForceAttemptHTTP2:      true,
			// A connection that died in silence is found out, and not used again.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 30 * time.Second},
			// Streams gain nothing from it, and so nothing can swell here.
			DisableCompression: true,
		}},
		// The transport has made an error of it already.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type transport struct {
	o    Options
	base *http.Transport
}

// CloseIdleConnections is what http.Client looks for.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	host := req.URL.Host
	w := &watch{}
	w.whole = time.AfterFunc(t.o.Whole, func() {
		cancel(&model.Error{Kind: model.ErrTimeout, Message: fmt.Sprintf("%s took more than %s for one answer", host, t.o.Whole)})
	})
	w.quiet = time.AfterFunc(t.o.FirstByte, func() {
		cancel(&model.Error{Kind: model.ErrTimeout, Message: w.what(host, t.o)})
	})

	r := req.Clone(ctx)
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Stainless-") { // what the libraries say about this machine
			r.Header.Del(name)
		}
	}
	r.Header.Del("Cookie")
	r.Header.Set("User-Agent", "glasshouse")
	if req.Body != nil && req.Body != http.NoBody {
		beat := func() { w.sent(t.o.FirstByte) }
		r.Body = &upload{req.Body, beat}
		if get := req.GetBody; get != nil {
			r.GetBody = func() (io.ReadCloser, error) {
				b, err := get()
				if err != nil {
					return nil, err
				}
				return &upload{b, beat}, nil
			}
		}
	}

	resp, err := t.base.RoundTrip(r)
	if err == nil {
		err = t.unfit(resp)
		if err != nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		w.end()
		err = own(ctx, err)
		cancel(nil)
		return nil, err
	}
	b := &body{rc: resp.Body, ctx: ctx, cancel: cancel, watch: w, o: t.o, left: t.o.MaxBody, host: host}
	if resp.StatusCode >= 400 {
		b.left, b.cut = min(maxRefusal, t.o.MaxBody), true
	}
	resp.Body = b
	return resp, nil
}

// proxyAnswered says what a proxy answered that does not let us through. Nothing of the
// request has left by then: the way to the server is asked for first.
func proxyAnswered(_ context.Context, proxy *url.URL, to *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	what := fmt.Sprintf("the proxy %s does not let us through to %s (it answered %d %s)", proxy.Host, to.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	hint := "see HTTPS_PROXY and NO_PROXY in the environment in which Glasshouse was started"
	if resp.StatusCode == http.StatusProxyAuthRequired {
		hint = "it wants a name and a password, which HTTPS_PROXY can hold, as in http://NAME:PASSWORD@" + proxy.Host
	}
	return &model.Error{Kind: model.ErrNetwork, Message: what + "; " + hint}
}

// unfit says why a response is not read at all.
func (t *transport) unfit(resp *http.Response) error {
	host := resp.Request.URL.Host
	switch resp.StatusCode {
	case 301, 302, 303, 307, 308:
		to := "nowhere"
		if u, err := resp.Location(); err == nil {
			to = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
		}
		return &model.Error{Kind: model.ErrNotFound, Status: resp.StatusCode, RequestID: requestID(resp.Header, t.o.Key), Message: Message(fmt.Sprintf(
			"%s sends us on to %s; that is not followed, for the key is meant for no other address: set base_url to it if it is right", host, to), t.o.Key)}
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return &model.Error{Kind: model.ErrProtocol, Status: resp.StatusCode, RequestID: requestID(resp.Header, t.o.Key),
			Message: Message(fmt.Sprintf("%s answers in the encoding %q, which was not asked for", host, e), t.o.Key)}
	}
	return nil
}

// own is the watch's reason when it was that which ended ctx, else err.
func own(ctx context.Context, err error) error {
	var e *model.Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	return err
}

// watch ends an exchange in which nothing moves.
type watch struct {
	whole *time.Timer
	quiet *time.Timer

	mu   sync.Mutex
	got  bool // the first byte of the answer's body is there
	over bool
}

func (w *watch) what(host string, o Options) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.got {
		return fmt.Sprintf("nothing came from %s for %s in the middle of an answer", host, o.Idle)
	}
	return fmt.Sprintf("%s did not begin to answer within %s", host, o.FirstByte)
}

// sent: a piece of the request went out.
func (w *watch) sent(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.got && !w.over {
		w.quiet.Reset(d)
	}
}

// reading begins a wait for bytes after the first; what the caller does between two
// reads is not the server's silence.
func (w *watch) reading(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.got && !w.over {
		w.quiet.Reset(d)
	}
}

func (w *watch) read(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > 0 {
		w.got = true
	}
	if w.got {
		w.quiet.Stop()
	}
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.whole.Stop()
	w.quiet.Stop()
}

type upload struct {
	io.ReadCloser
	beat func()
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.beat()
	return n, err
}

// body of an answer, watched and capped.
type body struct {
	rc     io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	watch  *watch
	o      Options
	host   string
	left   int64
	cut    bool // what is too much is left out, not an error
	err    error
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 { // one more than allowed tells a full body from a longer one
		p = p[:b.left+1]
	}
	b.watch.reading(b.o.Idle)
	n, err := b.rc.Read(p)
	b.watch.read(n)
	if int64(n) > b.left {
		n = int(b.left)
		err = io.EOF
		if !b.cut {
			err = &model.Error{Kind: model.ErrProtocol, Message: fmt.Sprintf("%s answered more than %d bytes", b.host, b.o.MaxBody)}
		}
	}
	b.left -= int64(n)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = own(b.ctx, err)
		}
		b.err = err
		b.watch.end()
	}
	return n, err
}

func (b *body) Close() error {
	b.watch.end()
	b.cancel(nil)
	return b.rc.Close()
}
