package cdp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp/jsonv2"

	"glasshouse/browser"
)

func testMux(t testing.TB, max int) (*mux, net.Conn, chan string) {
	here, there := net.Pipe()
	events := make(chan string, 100)
	m := newMux(here, max, time.Minute, func(_, method string, _ jsonv2.Value) {
		select {
		case events <- method:
		default:
		}
	})
	m.start()
	t.Cleanup(func() {
		m.fail(errors.New("test over"))
		there.Close()
		m.wg.Wait()
	})
	return m, there, events
}

// A fault in handling what a page made Chromium say ends the browser alone.
func TestMuxSurvivesAFault(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	m := newMux(here, 1000, time.Minute, func(string, string, jsonv2.Value) {
		panic("a fault")
	})
	m.start()
	if _, err := there.Write([]byte(`{"method":"A.b"}` + "\x00")); err != nil {
		t.Fatal(err)
	}
	<-m.done
	if err := m.failed(); !errors.Is(err, browser.ErrGone) || !strings.Contains(err.Error(), "could not be handled") {
		t.Fatal(err)
	}
	m.wg.Wait()
}

func TestMuxSizeCap(t *testing.T) {
	m, there, events := testMux(t, 1000)
	if _, err := there.Write([]byte(`{"method":"A.b","params":{"x":"` + strings.Repeat("y", 900) + `"}}` + "\x00")); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e != "A.b" {
		t.Fatal(e)
	}
	go func() { _, _ = there.Write([]byte(strings.Repeat("z", 200_000))) }() // without an end
	<-m.done
	if err := m.failed(); !errors.Is(err, browser.ErrGone) || !strings.Contains(err.Error(), "larger than 1000") {
		t.Fatal(err)
	}
}

func TestMuxRepliesFindTheirCall(t *testing.T) {
	m, there, _ := testMux(t, 1<<20)
	go func() {
		buf := make([]byte, 4096)
		for range 2 {
			if _, err := there.Read(buf); err != nil {
				return
			}
		}
		// Out of order, with strangers between.
		_, _ = there.Write([]byte(`{"id":77,"result":{}}` + "\x00" + `{"id":2,"error":{"code":-1,"message":"no\u202e way"}}` + "\x00" + `{"id":1,"result":{"v":7}}` + "\x00"))
	}()
	type out struct {
		V int `json:"v"`
	}
	one := make(chan error, 1)
	var got out
	started := make(chan struct{})
	go func() {
		close(started)
		one <- m.call(context.Background(), "", "One", nil, &got)
	}()
	<-started
	for { // the first command has its number before the second is sent
		m.mu.Lock()
		n := m.nextID
		m.mu.Unlock()
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	err := m.call(context.Background(), "", "Two", nil, nil)
	var w *wireError
	if !errors.As(err, &w) || w.Error() != "no way" {
		t.Errorf("Two: %v", err)
	}
	if err := <-one; err != nil || got.V != 7 {
		t.Errorf("One: %v %+v", err, got)
	}
}

// A reader that takes nothing blocks no caller for longer than its own deadline,
// and in the end costs the connection, not memory.
func TestMuxWriterThatBlocks(t *testing.T) {
	m, _, _ := testMux(t, 1<<20)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := m.call(ctx, "", "One", nil, nil); !errors.Is(err, errSilent) {
		t.Fatalf("got %v", err)
	}
	big := strings.Repeat("x", 1<<20)
	for range 100 {
		if _, err := m.send("", "Two", map[string]string{"x": big}, nil); err != nil {
			if !errors.Is(err, browser.ErrGone) || !strings.Contains(err.Error(), "stopped taking") {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("100 MiB were queued")
}

func TestMuxSessionsEndTheirCalls(t *testing.T) {
	m, there, _ := testMux(t, 1<<20)
	go func() { _, _ = io.Copy(io.Discard, there) }()
	end := make(chan error, 1)
	go func() { end <- m.call(context.Background(), "s1", "One", nil, nil) }()
	for {
		m.mu.Lock()
		n := len(m.wait)
		m.mu.Unlock()
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	m.drop("s2", errDetached)
	m.drop("s1", errCrashed)
	if err := <-end; !errors.Is(err, errCrashed) {
		t.Fatal(err)
	}
}

func TestMuxBigAnswersAreRefused(t *testing.T) {
	m, there, _ := testMux(t, 64<<20)
	go func() {
		_, _ = there.Read(make([]byte, 4096))
		_, _ = there.Write([]byte(`{"id":1,"result":{"x":"` + strings.Repeat("y", maxResult) + `"}}` + "\x00"))
	}()
	var v map[string]string
	if err := m.call(context.Background(), "", "One", nil, &v); err == nil || !strings.Contains(err.Error(), "bytes, more than") {
		t.Fatalf("got %.200v", err)
	}
}

// No message, however odd, panics or blocks the state machine.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		`{"method":"Target.attachedToTarget","params":{"sessionId":"s2","targetInfo":{"targetId":"T2","type":"page","title":"","url":"","attached":true,"canAccessOpener":false}}}`,
		`{"method":"Target.attachedToTarget","sessionId":"s1","params":{"sessionId":"s3","targetInfo":{"targetId":"F","type":"iframe"}}}`,
		`{"method":"Target.detachedFromTarget","params":{"sessionId":"s1"}}`,
		`{"method":"Target.targetCrashed","params":{"targetId":"T1"}}`, `{"method":"Inspector.targetCrashed","sessionId":"s1","params":{}}`,
		`{"method":"Target.targetDestroyed","params":{"targetId":"T1"}}`,
		`{"method":"Page.frameNavigated","sessionId":"s1","params":{"frame":{"id":"T1","loaderId":"L"}}}`,
		`{"method":"Page.javascriptDialogOpening","sessionId":"s1","params":{"type":"beforeunload","message":"m"}}`,
		`{"method":"Network.requestWillBeSent","sessionId":"s1","params":{"requestId":"r","type":"Fetch"}}`,
		`{"method":"Browser.downloadWillBegin","params":{"suggestedFilename":"x"}}`, `{"id":4,"result":{"frameTree":{"frame":{"id":"T1","loaderId":"L"}}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		c := newChrome(Options{})
		c.m = newMux(here, 1<<20, time.Second, c.event)
		c.root = &sess{m: c.m}
		c.m.start()
		_ = c.m.handle([]byte(`{"method":"Target.attachedToTarget","params":{"sessionId":"s1","targetInfo":{"targetId":"T1","type":"page"}}}`))
		for range 2 {
			_ = c.m.handle(b)
		}
		_, _ = c.Tabs(context.Background())
		c.m.fail(errors.New("over"))
		there.Close()
		c.m.wg.Wait()
	})
}

func TestCleanText(t *testing.T) {
	for in, want := range map[string]string{
		" a\tb\n\nc ": "a b c", "x\u202ey\u200bz\x07": "xyz", "\xff\xfeok": "ok", "": "", "\u0000": "",
		strings.Repeat("ä", 50): strings.Repeat("ä", 19) + "…", strings.Repeat("x", 20): strings.Repeat("x", 20),
	} {
		if got := clean(in, 20); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := quote(`a"b\c`, 20); got != `"a\"b\\c"` {
		t.Error(got)
	}
	for in, want := range map[string]string{"button": "button", "level=2": "level=2", `x" [e1]`: "", "Button": "", strings.Repeat("a", 25): ""} {
		if got := word(in); got != want {
			t.Errorf("word(%q) = %q", in, got)
		}
	}
}

func TestItemListStopsCounting(t *testing.T) {
	var w walked
	if err := jsonv2.Unmarshal([]byte(`{"items":[{"k":"a","n":"one","i":3},{}`+strings.Repeat(`,{}`, 2*maxItems)+`],"more":4}`), &w, jsonRead); err != nil {
		t.Fatal(err)
	}
	if len(w.Items) != maxItems || w.Items[0].N != "one" || w.More != 4 {
		t.Errorf("%d items, %+v, more %d", len(w.Items), w.Items[0], w.More)
	}
	for _, bad := range []string{`{"items":{}}`, `{"items":[1]}`, `{"items":[`, `{"items":"x"}`} {
		if err := jsonv2.Unmarshal([]byte(bad), &w, jsonRead); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
