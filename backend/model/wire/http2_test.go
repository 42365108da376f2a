package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"glasshouse/backend/model"
)

// http2 serves over TLS and returns a client that trusts it.
func http2(t *testing.T, o Options, h http.HandlerFunc) (*httptest.Server, *http.Client) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	c := NewClient(o)
	c.Transport.(*transport).base.TLSClientConfig = &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	return s, c
}

func get(t *testing.T, c *http.Client, url string) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a guard against hanging alone
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, Error(ctx, err, "")
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Errorf("spoke %s", resp.Proto)
	}
	b, err := io.ReadAll(resp.Body)
	return len(b), Error(ctx, err, "")
}

func TestHTTP2(t *testing.T) {
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	for name, c := range map[string]struct {
		o      Options
		answer http.HandlerFunc
		kind   model.ErrorKind
		read   int
	}{
		"whole":   {Options{}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, "", 5},
		"silence": {Options{FirstByte: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, model.ErrTimeout, 0},
		"silence after the header": {Options{FirstByte: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			flush(w)
			<-r.Context().Done()
		}, model.ErrTimeout, 0},
		"silence in mid-body": {Options{Idle: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "hello")
			flush(w)
			<-r.Context().Done()
		}, model.ErrTimeout, 5},
		"endless body": {Options{MaxBody: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			more := bytes.Repeat([]byte("a"), 64<<10)
			for {
				if _, err := w.Write(more); err != nil {
					return
				}
			}
		}, model.ErrProtocol, 1 << 20},
		"huge header": {Options{}, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 2000 {
				w.Header().Set(fmt.Sprintf("X-More-%d", i), strings.Repeat("a", 1000))
			}
		}, model.ErrProtocol, 0},
		"reset": {Options{}, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "hello")
			flush(w)
			panic(http.ErrAbortHandler)
		}, model.ErrNetwork, 5},
		"redirect": {Options{}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://192.0.2.1/", http.StatusTemporaryRedirect)
		}, model.ErrNotFound, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := http2(t, c.o, c.answer)
			n, err := get(t, client, s.URL)
			if model.KindOf(err) != c.kind || c.kind == "" && err != nil || n != c.read {
				t.Errorf("read %d, %v; want %d, %q", n, err, c.read, c.kind)
			}
		})
	}
}

// A stream that is given up leaves the connection to the others.
func TestHTTP2CancelEndsOneStream(t *testing.T) {
	ended := make(chan struct{})
	s, c := http2(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
		if r.URL.Path == "/stay" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	cause := errors.New("the person said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/go", nil)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if _, err := io.ReadAll(resp.Body); Error(ctx, err, "") != cause {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the server still has its stream")
	}
	if n, err := get(t, c, s.URL+"/stay"); n != 5 || err != nil {
		t.Errorf("the next one: %d, %v", n, err)
	}
}
