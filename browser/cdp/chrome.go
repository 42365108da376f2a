// Package cdp drives a Chromium over its DevTools pipe.
//
// It has its own multiplexer and uses the typed commands of cdproto on it, not
// chromedp's targets: those mirror the DOM of every page and dereference what
// events claim (one DOM event before the first document panics the process),
// which is no match for a hostile guest. All element work is ours and strict:
// see package browser.
//
// Every wait has a deadline on this side, so a silent pipe or a hung page ends a
// call with an error and never blocks it.
package cdp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"

	"glasshouse/browser"
)

// Options of New. Zero values mean the defaults.
type Options struct {
	Width, Height int           // viewport in CSS pixels; 1280x800
	CallTimeout   time.Duration // one DevTools command; 10 s
	ActionTimeout time.Duration // how long an element may stay not actionable; 5 s
	NavTimeout    time.Duration // a navigation until it is loaded; 30 s
	SettleTimeout time.Duration // what follows an action, without a navigation; 3 s
	MaxMessage    int           // bytes of one DevTools message; 64 MiB
}

func (o *Options) defaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.Width <= 0 || o.Width > 8192 {
		o.Width = 1280
	}
	if o.Height <= 0 || o.Height > 8192 {
		o.Height = 800
	}
	def(&o.CallTimeout, 10*time.Second)
	def(&o.ActionTimeout, 5*time.Second)
	def(&o.NavTimeout, 30*time.Second)
	def(&o.SettleTimeout, 3*time.Second)
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
}

const (
	openTimeout = 90 * time.Second // Chromium starts slowly in an emulated machine
	maxTabs     = 40
	maxRefs     = 20_000
)

// chrome is one Chromium.
type chrome struct {
	opt  Options
	m    *mux
	root *sess
	gate chan struct{} // holds one token: one operation at a time
	cast *cast         // for those who look

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever the state below changes
	sessions map[string]*sess
	tabs     []*tab
	active   *tab
	nextTab  int
	acted    *browser.Press // where the last press landed

	refs    map[string]*ref
	refOrd  []string
	refKey  map[refKey]string
	nextRef int
	docs    map[string]*doc // by frame id
	nextDoc int
	ords    map[string]int // frame id -> number in refs
}

// New starts Chromium through opener and attaches to it. ctx bounds the start
// only; the browser lives until Close or until its pipe ends.
func New(ctx context.Context, opener browser.Opener, opt Options) (browser.Browser, error) {
	opt.defaults()
	rw, err := open(ctx, opener, opt)
	if err != nil {
		return nil, err
	}
	b := newChrome(opt)
	b.m = newMux(rw, opt.MaxMessage, opt.CallTimeout, b.event)
	b.root = &sess{m: b.m}
	b.m.start()
	if err := b.setUp(ctx); err != nil {
		b.m.fail(err)
		b.m.wg.Wait()
		return nil, fmt.Errorf("attaching to the browser: %w", err)
	}
	return b, nil
}

func newChrome(opt Options) *chrome {
	b := &chrome{
		opt: opt, gate: make(chan struct{}, 1), changed: make(chan struct{}),
		sessions: map[string]*sess{}, refs: map[string]*ref{}, refKey: map[refKey]string{},
		docs: map[string]*doc{}, ords: map[string]int{},
	}
	b.gate <- struct{}{}
	b.cast = newCast(b)
	return b
}

// open runs the opener with a deadline; a pipe that comes too late is closed.
func open(ctx context.Context, opener browser.Opener, opt Options) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	type got struct {
		rw  io.ReadWriteCloser
		err error
	}
	ch := make(chan got, 1)
	go func() {
		rw, err := opener(context.WithoutCancel(ctx), opt.Width, opt.Height)
		ch <- got{rw, err}
	}()
	select {
	case g := <-ch:
		if g.err != nil {
			return nil, fmt.Errorf("starting the browser: %w", g.err)
		}
		return g.rw, nil
	case <-ctx.Done():
		go func() {
			if g := <-ch; g.rw != nil {
				g.rw.Close()
			}
		}()
		return nil, fmt.Errorf("starting the browser: %w", ctx.Err())
	}
}

func (b *chrome) setUp(ctx context.Context) error {
	yes := true
	only := func(kind string) target.Filter {
		return target.Filter{{Type: kind}, {Exclude: true}}
	}
	start, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	// The first answer may take as long as Chromium takes to start.
	for {
		_, err := cdp.Call(start, b.root, cdpbrowser.GetVersion, cdp.Empty{})
		if err == nil {
			break
		}
		if !errors.Is(err, errSilent) || start.Err() != nil {
			return err
		}
	}
	if _, err := cdp.Call(start, b.root, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorDeny, EventsEnabled: &yes,
	}); err != nil {
		return err
	}
	// Granting an empty list refuses every permission without a prompt.
	if err := b.root.Call(start, "Browser.grantPermissions", struct {
		Permissions []string `json:"permissions"`
	}{[]string{}}, nil); err != nil {
		return err
	}
	if _, err := cdp.Call(start, b.root, target.SetDiscoverTargets, target.SetDiscoverTargetsParams{Discover: true, Filter: only("page")}); err != nil {
		return err
	}
	// At browser level, so that tabs without an opener are seen too.
	_, err := cdp.Call(start, b.root, target.SetAutoAttach, target.SetAutoAttachParams{
		AutoAttach: true, WaitForDebuggerOnStart: true, Flatten: &yes, Filter: only("page"),
	})
	return err
}

// Done implements browser.Browser.
func (b *chrome) Done() <-chan struct{} { return b.m.done }

// Close asks Chromium to end, so that it can write its profile, and closes the pipe.
func (b *chrome) Close() error {
	if b.m.failed() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_ = b.root.Call(ctx, cdpbrowser.CommandClose, nil, nil)
		select {
		case <-b.m.done:
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
		cancel()
		b.m.fail(errors.New("closed"))
	}
	b.m.wg.Wait()
	b.cast.wait()
	return nil
}

// op runs one operation alone, bounded by max, and turns what went wrong into
// something a caller can act on.
func (b *chrome) op(ctx context.Context, what string, max time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, max)
	defer cancel()
	select {
	case <-b.gate:
		defer func() { b.gate <- struct{}{} }()
	case <-b.m.done:
		return b.m.failed()
	case <-ctx.Done():
		return fmt.Errorf("%s: another browser action is still running: %w", what, ctx.Err())
	}
	if err := b.m.failed(); err != nil {
		return err
	}
	b.revive(ctx)
	err := f(ctx)
	if gone := b.m.failed(); gone != nil {
		return gone
	}
	if t := b.current(); t != nil && b.isCrashed(t) {
		url := b.revive(context.WithoutCancel(ctx))
		return fmt.Errorf("%s: %w: %s was opened again in a new tab; take a new snapshot", what, browser.ErrCrashed, clean(url, 200))
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errSilent) {
		if perr := b.ping(); perr != nil {
			b.m.fail(fmt.Errorf("it stopped answering (%s)", what))
			return b.m.failed()
		}
		if t := b.current(); t != nil {
			b.mu.Lock()
			t.hung = true
			b.mu.Unlock()
		}
		return fmt.Errorf("%s: %w: it may be busy in a loop of its own; open a page again to replace the tab", what, browser.ErrUnresponsive)
	}
	return err
}

// ping asks the browser process itself, which answers even when a page hangs.
func (b *chrome) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), b.opt.CallTimeout)
	defer cancel()
	_, err := cdp.Call(ctx, b.root, cdpbrowser.GetVersion, cdp.Empty{})
	return err
}

// signal wakes everything that waits for a change of state. b.mu is held.
func (b *chrome) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// until waits until cond holds (it is called with b.mu held) and reports whether it did.
func (b *chrome) until(ctx context.Context, max time.Duration, cond func() bool) bool {
	t := time.NewTimer(max)
	defer t.Stop()
	for {
		b.mu.Lock()
		ok, ch := cond(), b.changed
		b.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ch:
		case <-t.C:
			return false
		case <-ctx.Done():
			return false
		case <-b.m.done:
			return false
		}
	}
}
