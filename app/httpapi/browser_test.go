package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/browser"
)

// screen is a made-up set of browsers: one session has a page.
type screen struct {
	frame   atomic.Pointer[browser.Frame]
	waiting atomic.Int32
}

func (s *screen) View(_ context.Context, id domain.SessionID) (BrowserView, error) {
	if id != "s1" {
		return BrowserView{}, domain.E(domain.CodeNotFound, "there is no session", "", nil)
	}
	return BrowserView{Open: true, Tabs: []BrowserTab{{ID: "t1", URL: "http://localhost/", Title: "Shop", Active: true}}, Width: 1280, Height: 800}, nil
}

func (s *screen) Frame(ctx context.Context, id domain.SessionID, after uint64) (browser.Frame, error) {
	if id != "s1" {
		return browser.Frame{}, domain.E(domain.CodeNotFound, "this session has no browser open", "the next step that opens a page starts one", nil)
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	for {
		if f := s.frame.Load(); f != nil && f.Seq != after {
			return *f, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return browser.Frame{}, ctx.Err()
		}
	}
}

func picture(t *testing.T, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewRGBA(image.Rect(0, 0, w, h)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ask(t *testing.T, srv *httptest.Server, path string) (*http.Response, []byte) {
	t.Helper()
	res, err := srv.Client().Get(srv.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, b
}

func TestBrowserFrame(t *testing.T) {
	s := &screen{}
	srv := httptest.NewServer(Handler(Services{Browsers: s}))
	defer srv.Close()

	res, b := ask(t, srv, "/v1/sessions/s1/browser")
	var v BrowserView
	if err := json.Unmarshal(b, &v); err != nil || res.StatusCode != 200 || !v.Open || len(v.Tabs) != 1 || v.Tabs[0].Title != "Shop" {
		t.Fatalf("%d %s", res.StatusCode, b)
	}
	for _, path := range []string{"/v1/sessions/other/browser", "/v1/sessions/other/browser/frame"} {
		if res, b := ask(t, srv, path); res.StatusCode != 404 || !strings.Contains(string(b), "there is no session") && !strings.Contains(string(b), "next step that opens a page") {
			t.Errorf("%s answers %d %s", path, res.StatusCode, b)
		}
	}
	if res, b := ask(t, srv, "/v1/sessions/s1/browser/frame?wait_ms=1"); res.StatusCode != 204 || len(b) != 0 {
		t.Errorf("without a frame it answers %d, %d bytes", res.StatusCode, len(b))
	}
	if res, _ := ask(t, srv, "/v1/sessions/s1/browser/frame?wait_ms=25001"); res.StatusCode != 422 {
		t.Errorf("too long a wait answers %d", res.StatusCode)
	}
	if res, _ := ask(t, srv, "/v1/sessions/s1/browser/frame?after=-1"); res.StatusCode != 422 {
		t.Errorf("a number below nothing answers %d", res.StatusCode)
	}

	jpg := picture(t, 1280, 800)
	s.frame.Store(&browser.Frame{Seq: 7, At: time.UnixMilli(1000), JPEG: jpg, Width: 1280, Height: 800,
		Page: browser.Page{ID: "t1", URL: "http://localhost/", Title: `Möbel "und" <b>`}, View: browser.Viewport{Width: 1280, Height: 800, ScrollY: 12, Scale: 1}})
	res, b = ask(t, srv, "/v1/sessions/s1/browser/frame")
	if res.StatusCode != 200 || !bytes.Equal(b, jpg) {
		t.Fatalf("%d, %d bytes", res.StatusCode, len(b))
	}
	for k, want := range map[string]string{"Content-Type": "image/jpeg", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Glasshouse-Frame": "7"} {
		if got := res.Header.Get(k); got != want {
			t.Errorf("%s is %q", k, got)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(res.Header.Get("X-Glasshouse-Page"))
	var p FramePage
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Title != `Möbel "und" <b>` || p.View.ScrollY != 12 || p.At != 1000 || p.Tab != "t1" {
		t.Errorf("the page is %s, %v", raw, err)
	}

	// The same one is waited behind; the next one is answered at once.
	if res, _ := ask(t, srv, "/v1/sessions/s1/browser/frame?after=7&wait_ms=20"); res.StatusCode != 204 {
		t.Errorf("a frame that was seen answers %d", res.StatusCode)
	}
	go func() {
		for s.waiting.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		s.frame.Store(&browser.Frame{Seq: 9, JPEG: jpg})
	}()
	if res, _ := ask(t, srv, "/v1/sessions/s1/browser/frame?after=7&wait_ms=25000"); res.StatusCode != 200 || res.Header.Get("X-Glasshouse-Frame") != "9" {
		t.Errorf("the next frame answers %d, %s", res.StatusCode, res.Header.Get("X-Glasshouse-Frame"))
	}
}

// Nothing but a picture leaves as one, and no page fills the headers.
func TestBrowserFrameIsAPicture(t *testing.T) {
	s := &screen{}
	srv := httptest.NewServer(Handler(Services{Browsers: s}))
	defer srv.Close()
	for name, bad := range map[string][]byte{
		"html": []byte("<script>alert(1)</script>"), "nothing": nil, "a start only": []byte("\xff\xd8\xff"),
		"too large": append(picture(t, 8, 8), make([]byte, browser.MaxFrameBytes)...),
	} {
		s.frame.Store(&browser.Frame{Seq: 1, JPEG: bad})
		res, b := ask(t, srv, "/v1/sessions/s1/browser/frame")
		if res.StatusCode != 500 || strings.HasPrefix(res.Header.Get("Content-Type"), "image/") || bytes.Contains(b, []byte("<script>")) {
			t.Errorf("%s answers %d %s", name, res.StatusCode, res.Header.Get("Content-Type"))
		}
	}
	s.frame.Store(&browser.Frame{Seq: 2, JPEG: picture(t, 8, 8), Page: browser.Page{
		URL: "http://x/" + strings.Repeat("\"\\\x01", 100_000), Title: strings.Repeat("\xff\u0000日", 100_000), ID: strings.Repeat("t", 9000)}})
	res, _ := ask(t, srv, "/v1/sessions/s1/browser/frame")
	if h := res.Header.Get("X-Glasshouse-Page"); res.StatusCode != 200 || len(h) == 0 || len(h) > maxFrameHeader {
		t.Errorf("%d with a header of %d bytes", res.StatusCode, len(h))
	}
}

// A viewer that leaves is not waited for.
func TestBrowserFrameViewerLeaves(t *testing.T) {
	s := &screen{}
	srv := httptest.NewServer(Handler(Services{Browsers: s}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	q, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/sessions/s1/browser/frame?wait_ms=25000", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := srv.Client().Do(q); err == nil {
			res.Body.Close()
		}
	}()
	for s.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	for end := time.Now().Add(time.Minute); s.waiting.Load() != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the core still looks for a viewer that left")
		}
	}
}
