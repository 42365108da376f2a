package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"

	"glasshouse/browser"
)

// Tap stands between a driver and Chromium: it can put commands of its own on
// the pipe, fall silent, break, and send the driver whatever a hostile guest might.
type Tap struct {
	inner io.ReadWriteCloser

	wmu sync.Mutex // writes to Chromium

	mu     sync.Mutex
	cond   *sync.Cond
	out    bytes.Buffer // for the driver
	closed bool
	silent bool
	frames int
	pages  []string // sessions of pages, in the order of their attachment
}

// Tapped wraps an opener; the tap of the browser it starts is sent to the channel.
func Tapped(open browser.Opener) (browser.Opener, <-chan *Tap) {
	ch := make(chan *Tap, 1)
	return func(ctx context.Context, w, h int) (io.ReadWriteCloser, error) {
		inner, err := open(ctx, w, h)
		if err != nil {
			return nil, err
		}
		t := &Tap{inner: inner}
		t.cond = sync.NewCond(&t.mu)
		go t.pump()
		ch <- t
		return t, nil
	}, ch
}

func (t *Tap) pump() {
	r := bufio.NewReaderSize(t.inner, 1<<16)
	for {
		msg, err := r.ReadBytes(0)
		if err != nil {
			t.Close()
			return
		}
		var ev struct {
			ID     int64  `json:"id"`
			Method string `json:"method"`
			Params struct {
				SessionID  string `json:"sessionId"`
				TargetInfo struct {
					Type string `json:"type"`
				} `json:"targetInfo"`
			} `json:"params"`
		}
		if len(msg) < 1<<16 {
			_ = json.Unmarshal(msg[:len(msg)-1], &ev)
		}
		t.mu.Lock()
		if bytes.Contains(msg[:min(len(msg), 100)], []byte(`"Page.screencastFrame"`)) {
			t.frames++
		}
		if ev.Method == "Target.attachedToTarget" && ev.Params.TargetInfo.Type == "page" {
			t.pages = append(t.pages, ev.Params.SessionID)
		}
		if ev.ID < 2_000_000_000 && !t.silent { // replies to our own commands stay here
			t.out.Write(msg)
			t.cond.Broadcast()
		}
		t.mu.Unlock()
	}
}

// Crash kills the renderer of the page attached last.
func (t *Tap) Crash() {
	t.mu.Lock()
	s := t.pages[len(t.pages)-1]
	t.mu.Unlock()
	b, _ := json.Marshal(map[string]any{"id": 2_000_000_001, "sessionId": s, "method": "Page.crash"})
	t.wmu.Lock()
	defer t.wmu.Unlock()
	_, _ = t.inner.Write(append(b, 0))
}

// Silence makes the pipe say nothing more, without closing it.
func (t *Tap) Silence() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silent = true
}

// Say sends the driver raw bytes, as a hostile guest would.
func (t *Tap) Say(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out.Write(b)
	t.cond.Broadcast()
}

// Frames is how many frames of a screencast Chromium sent.
func (t *Tap) Frames() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.frames
}

// LastPage is the session of the page attached last.
func (t *Tap) LastPage() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pages[len(t.pages)-1]
}

func (t *Tap) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.out.Len() == 0 {
		if t.closed {
			return 0, io.EOF
		}
		t.cond.Wait()
	}
	return t.out.Read(p)
}

func (t *Tap) Write(p []byte) (int, error) {
	t.wmu.Lock()
	defer t.wmu.Unlock()
	return t.inner.Write(p)
}

// Close ends the pipe on both sides.
func (t *Tap) Close() error {
	t.mu.Lock()
	done := t.closed
	t.closed = true
	t.cond.Broadcast()
	t.mu.Unlock()
	if done {
		return nil
	}
	return t.inner.Close()
}
