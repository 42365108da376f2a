package cdp

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"

	"glasshouse/browser"
)

const (
	castQuality = 60
	castEvery   = time.Second / browser.FramesPerSecond
	// firstFrame is how long a page may take for a first frame of its own; one that
	// paints nothing is then asked for a picture.
	firstFrame = 400 * time.Millisecond
	// castSilent is how long it may take to give that picture.
	castSilent = 5 * time.Second
)

// cast takes pictures of the current tab while somebody looks. It waits for no
// action: its commands are written without waiting, beside those of the action.
//
// Each frame is acknowledged when the next one is wanted, so that Chromium draws
// and encodes no more than is shown; it keeps the last frame meanwhile, so that
// what a page looks like at rest is never missed.
type cast struct {
	b *chrome

	mu     sync.Mutex
	seq    uint64
	newest *browser.Frame
	fresh  chan struct{} // closed and replaced with every frame
	stop   context.CancelFunc
	ended  chan struct{} // of the running loop
	views  int

	// Guarded by chrome.mu.
	on     *tab // which tab's frames are taken
	silent bool // on was asked for a picture and did not answer
}

func newCast(b *chrome) *cast { return &cast{b: b, fresh: make(chan struct{})} }

type frames struct {
	c    *cast
	once sync.Once
	done chan struct{}
}

// Frames implements browser.Screencast.
func (b *chrome) Frames() (browser.Frames, error) {
	if err := b.m.failed(); err != nil {
		return nil, err
	}
	c := b.cast
	c.mu.Lock()
	defer c.mu.Unlock()
	c.views++
	if c.views == 1 {
		last := c.ended
		ctx, cancel := context.WithCancel(context.Background())
		c.stop, c.ended = cancel, make(chan struct{})
		c.newest = nil // what was seen before nobody looked is old
		go c.run(ctx, last, c.ended)
	}
	return &frames{c: c, done: make(chan struct{})}, nil
}

func (f *frames) Close() error {
	f.once.Do(func() {
		close(f.done)
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		if f.c.views--; f.c.views == 0 {
			f.c.stop()
		}
	})
	return nil
}

func (f *frames) Next(ctx context.Context, after uint64) (browser.Frame, error) {
	for {
		f.c.mu.Lock()
		newest, fresh := f.c.newest, f.c.fresh
		f.c.mu.Unlock()
		if newest != nil && newest.Seq != after {
			return *newest, nil
		}
		select {
		case <-fresh:
		case <-f.done:
			return browser.Frame{}, context.Canceled
		case <-ctx.Done():
			return browser.Frame{}, ctx.Err()
		case <-f.c.b.m.done:
			return browser.Frame{}, f.c.b.m.failed()
		}
	}
}

// run follows the current tab until nobody looks. One runs at a time.
func (c *cast) run(ctx context.Context, last, ended chan struct{}) {
	defer close(ended)
	if last != nil {
		<-last
	}
	b := c.b
	var late *time.Timer
	for {
		b.mu.Lock()
		t, changed := b.active, b.changed
		if t != nil && (t.crashed || t.closed || !t.running) {
			t = nil
		}
		old := c.on
		if ctx.Err() != nil {
			t = nil
		}
		c.on = t
		if t != old {
			c.silent = false
		}
		b.mu.Unlock()
		if t != old {
			if late != nil {
				late.Stop()
			}
			if old != nil {
				old.main.post(page.CommandStopScreencast, nil)
			}
			if t != nil {
				quality, yes := int64(castQuality), true
				t.main.post(page.CommandStartScreencast, page.StartScreencastParams{
					Format: page.StartScreencastFormatJpeg, Quality: &quality, EveryNthFrame: 1,
					MaxWidth: int64(b.opt.Width), MaxHeight: int64(b.opt.Height), MaxFramesInFlight: 1, SendLastFrame: &yes,
				})
				at := c.count()
				late = time.AfterFunc(firstFrame, func() { c.askFor(ctx, t, at) })
			}
		}
		if ctx.Err() != nil {
			return
		}
		if t != nil && t == old {
			c.rename(t)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-b.m.done:
			return
		}
	}
}

func (c *cast) count() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seq
}

// askFor asks a page that paints nothing for one picture.
func (c *cast) askFor(ctx context.Context, t *tab, at uint64) {
	if ctx.Err() != nil || c.count() != at || !c.sees(t) {
		return
	}
	mute := time.AfterFunc(castSilent, func() {
		if c.count() == at {
			c.setSilent(t, true)
		}
	})
	quality, fast := int64(castQuality), true
	_, err := c.b.m.send(t.main.id, page.CommandCaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatJpeg, Quality: &quality, OptimizeForSpeed: &fast,
	}, func(r reply) {
		mute.Stop()
		if r.err != nil || len(r.result) > browser.MaxFrameBytes/3*4+4096 {
			return
		}
		if res, ok := read[page.CaptureScreenshotResult](r.result); ok && c.count() == at {
			c.take(t, res.Data, nil)
		}
	})
	if err != nil {
		mute.Stop()
	}
}

func (c *cast) sees(t *tab) bool {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.on == t
}

func (c *cast) setSilent(t *tab, v bool) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.on == t && c.silent != v {
		c.silent = v
		c.b.signal()
	}
}

// frame takes an event of the screencast. It runs on the reading goroutine.
func (c *cast) frame(s *sess, params jsonv2.Value) {
	if s.kind != "page" || !c.sees(s.tab) {
		return // nobody looks, or it comes from a tab that was left
	}
	ev, ok := read[page.EventScreencastFrame](params)
	if !ok {
		return
	}
	if c.take(s.tab, ev.Data, ev.Metadata) {
		c.ackLater(s, ev.SessionID)
	}
}

// ackLater acknowledges a frame when the next one is wanted. One is in flight at a
// time, but a new document begins to count anew: its first frame may come before
// the last one's turn. More than that is not owed an answer.
func (c *cast) ackLater(s *sess, number int64) {
	t := s.tab
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if len(t.toAck) >= 4 {
		return
	}
	t.toAck = append(t.toAck, number)
	if len(t.toAck) > 1 {
		return // the timer runs
	}
	time.AfterFunc(castEvery, func() {
		c.b.mu.Lock()
		all := t.toAck
		t.toAck = nil
		c.b.mu.Unlock()
		for _, n := range all {
			s.post(page.CommandScreencastFrameAck, page.ScreencastFrameAckParams{SessionID: n})
		}
	})
}

// take keeps a picture as the newest one, if it is a picture.
func (c *cast) take(t *tab, data []byte, meta *page.ScreencastFrameMetadata) bool {
	w, h, err := browser.CheckJPEG(data)
	if err != nil {
		return false
	}
	b := c.b
	b.mu.Lock()
	p := b.pageOf(t)
	b.mu.Unlock()
	v := browser.Viewport{Width: float64(b.opt.Width), Height: float64(b.opt.Height), Scale: 1}
	if meta != nil {
		v = browser.Viewport{
			Width: within(meta.DeviceWidth, 1, browser.MaxFrameSide), Height: within(meta.DeviceHeight, 1, browser.MaxFrameSide),
			ScrollX: within(meta.ScrollOffsetX, -1e8, 1e8), ScrollY: within(meta.ScrollOffsetY, -1e8, 1e8), Scale: within(meta.PageScaleFactor, 0.01, 100),
		}
	}
	c.setSilent(t, false)
	b.askTitle(t, time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.newest = &browser.Frame{Seq: c.seq, At: time.Now(), JPEG: data, Width: w, Height: h, Page: p, View: v}
	close(c.fresh)
	c.fresh = make(chan struct{})
	return true
}

// rename gives the newest frame again when only what is known of its page changed,
// such as a title that came after the picture: a page at rest sends no other frame.
func (c *cast) rename(t *tab) {
	c.b.mu.Lock()
	p := c.b.pageOf(t)
	c.b.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newest
	if n == nil || n.Page == p || n.Page.ID != p.ID || n.Page.URL != p.URL {
		return
	}
	again := *n
	c.seq++
	again.Seq, again.Page = c.seq, p
	c.newest = &again
	close(c.fresh)
	c.fresh = make(chan struct{})
}

func within(v, low, high float64) float64 {
	if math.IsNaN(v) {
		return low
	}
	return min(max(v, low), high)
}

// State implements browser.Screencast.
func (b *chrome) State() (browser.State, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := browser.State{Width: b.opt.Width, Height: b.opt.Height, Acted: b.acted}
	for _, t := range b.tabs {
		s.Tabs = append(s.Tabs, b.pageOf(t))
	}
	if t := b.active; t != nil {
		s.Crashed, s.Silent = t.crashed, t.hung || (b.cast.silent && b.cast.on == t)
		if n := len(t.dialogs); n > 0 {
			s.Dialog = t.dialogs[n-1]
		}
	}
	return s, b.changed
}

// wait ends with the loop; the pipe is gone by then.
func (c *cast) wait() {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// landed notes where a press lands, for those who look.
func (b *chrome) landed(t *tab, x, y float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 1
	if b.acted != nil {
		n = b.acted.N + 1
	}
	b.acted = &browser.Press{N: n, X: within(x, 0, browser.MaxFrameSide), Y: within(y, 0, browser.MaxFrameSide), Tab: t.id}
	b.signal()
}

// askTitle asks the browser for a tab's title, at most once in every and once more
// afterwards when it was asked too soon: it tells of a new title by itself only when
// the address changes with it.
func (b *chrome) askTitle(t *tab, every time.Duration) {
	b.mu.Lock()
	now := time.Now()
	wait := every - now.Sub(t.titled)
	due := !t.closed && wait <= 0
	if due {
		t.titled = now
	} else if !t.closed && !t.titleLater {
		t.titleLater = true
		time.AfterFunc(wait, func() {
			b.mu.Lock()
			t.titleLater = false
			b.mu.Unlock()
			b.askTitle(t, 0)
		})
	}
	b.mu.Unlock()
	if !due {
		return
	}
	_, _ = b.m.send("", target.CommandGetTargetInfo, target.GetTargetInfoParams{TargetID: target.ID(t.target)}, func(r reply) {
		if r.err != nil || len(r.result) > maxEvent {
			return
		}
		res, ok := read[target.GetTargetInfoResult](r.result)
		if !ok || res.TargetInfo == nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if title := cut(res.TargetInfo.Title, 4096); title != t.title && string(res.TargetInfo.TargetID) == t.target {
			t.title = title
			b.signal()
		}
	})
}
