package cdp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"net"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp/jsonv2"

	"glasshouse/browser"
)

// watched is a browser without Chromium whose only tab is looked at.
func watched(t testing.TB) (*chrome, *sess, net.Conn) {
	here, there := net.Pipe()
	b := newChrome(Options{Width: 1280, Height: 800})
	b.m = newMux(here, 64<<20, time.Minute, b.event)
	b.root = &sess{m: b.m}
	b.m.start()
	tb := &tab{id: "t1", target: "T", running: true}
	s := &sess{m: b.m, id: "S", target: "T", kind: "page", tab: tb}
	tb.main = s
	b.sessions["S"], b.tabs, b.active = s, []*tab{tb}, tb
	t.Cleanup(func() {
		b.m.fail(io.EOF)
		there.Close()
		b.m.wg.Wait()
		b.cast.wait()
	})
	return b, s, there
}

// Whatever a guest says is a frame: nothing breaks, and only pictures come out.
func FuzzScreencastFrame(f *testing.F) {
	var jpg bytes.Buffer
	if err := jpeg.Encode(&jpg, image.NewRGBA(image.Rect(0, 0, 8, 8)), nil); err != nil {
		f.Fatal(err)
	}
	good := base64.StdEncoding.EncodeToString(jpg.Bytes())
	for _, s := range []string{
		fmt.Sprintf(`{"data":%q,"metadata":{"deviceWidth":1280,"deviceHeight":800,"pageScaleFactor":1,"timestamp":1.5},"sessionId":1}`, good),
		fmt.Sprintf(`{"data":%q,"sessionId":-9223372036854775808}`, good), fmt.Sprintf(`{"data":%q,"metadata":{"timestamp":1e400},"sessionId":1}`, good),
		`{"data":"////","metadata":null}`, `{"data":"!"}`, `{"data":"/9j/"}`, `[]`, `{}`, `null`, `{"metadata":{"deviceWidth":1e308}}`,
	} {
		f.Add([]byte(s))
	}
	b, s, there := watched(f)
	go func() { _, _ = io.Copy(io.Discard, there) }()
	b.cast.on = s.tab
	f.Fuzz(func(t *testing.T, params []byte) {
		before := b.cast.count()
		b.cast.frame(s, jsonv2.Value(params))
		if b.cast.count() == before {
			return
		}
		fr := b.cast.newest
		w, h, err := browser.CheckJPEG(fr.JPEG)
		if err != nil || w != fr.Width || h != fr.Height {
			t.Fatalf("%d x %d, %v", w, h, err)
		}
		if v := fr.View; v.Width < 1 || v.Width > browser.MaxFrameSide || v.Height < 1 || v.Height > browser.MaxFrameSide || v.Scale <= 0 {
			t.Fatalf("%+v", v)
		}
	})
}

// A guest that sends frames without end costs a bounded number of answers.
func TestFramesAreNotOwedAnAnswerEach(t *testing.T) {
	b, s, there := watched(t)
	sent := make(chan string, 10_000)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := there.Read(buf)
			if err != nil {
				return
			}
			sent <- string(buf[:n])
		}
	}()
	b.cast.on = s.tab
	var jpg bytes.Buffer
	_ = jpeg.Encode(&jpg, image.NewRGBA(image.Rect(0, 0, 8, 8)), nil)
	msg := jsonv2.Value(fmt.Sprintf(`{"data":%q,"sessionId":1}`, base64.StdEncoding.EncodeToString(jpg.Bytes())))
	for range 1000 {
		b.cast.frame(s, msg)
	}
	if got := b.cast.count(); got != 1000 {
		t.Fatalf("%d frames were taken", got)
	}
	b.mu.Lock()
	owed := len(s.tab.toAck)
	b.mu.Unlock()
	if owed > 4 {
		t.Fatalf("%d answers are owed", owed)
	}
	for acks := 0; acks < owed; {
		m := <-sent
		acks += bytes.Count([]byte(m), []byte("screencastFrameAck"))
		if acks > 4 {
			t.Fatalf("%d answers were sent", acks)
		}
	}
}
