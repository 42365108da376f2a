package desktop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// The core is followed from where it is now, over a cut, and by events of its own
// making alone.
func TestWatcherFollowsTheCore(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	lines := make(chan string)
	mux := http.NewServeMux()
	latest := 40
	mux.HandleFunc("/v1/info", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"latest_event_id":%d,"other":[1]}`, latest)
		latest += 10
	})
	mux.HandleFunc("/v1/projects", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"id":"p1","name":"shop"},{"id":"p2","name":"site"}]`)
	})
	mux.HandleFunc("/v1/events", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Query().Get("after"))
		mu.Unlock()
		w.(http.Flusher).Flush()
		for {
			select {
			case l := <-lines:
				if l == "cut" {
					return
				}
				_, _ = io.WriteString(w, l+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	b := &wall{}
	n := newNotices(b, func() bool { return true })
	defer n.Close()
	ended := make(chan bool, 16)
	w := &watcher{notices: n, ended: func(v bool) {
		select {
		case ended <- v:
		default: // more of the same
		}
	}, http: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		r.URL.Host = strings.TrimPrefix(srv.URL, "http://")
		return http.DefaultTransport.RoundTrip(r)
	})}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	lines <- `{"id":41,"type":"approval.requested","project_id":"p2","session_id":"s","data":{"approval_id":"a9","title":"Run curl","detail":[{"name":"command","value":"not to be told"}]}}`
	lines <- ""
	lines <- "cut"
	lines <- `{"id":42,"type":"core.stopped","data":{"reason":"quit"}}`
	lines <- "not json"
	for again := false; !again; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		again = len(asked) == 3
		mu.Unlock()
	}
	// The stream that was cut may take a line with it.
	for len(ended) < 2 {
		select {
		case lines <- `{"id":43,"type":"core.started","data":{}}`:
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	<-done
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(asked, " "); got != "40 41 42" {
		t.Errorf("asked after %s", got)
	}
	var saw []bool
	for len(ended) > 0 {
		saw = append(saw, <-ended)
	}
	if fmt.Sprint(saw[:2]) != "[true false]" {
		t.Errorf("the core's end: %v", saw)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for range 100 {
		if len(b.posted) > 0 || len(n.waits) > 0 {
			break
		}
		n.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		n.mu.Lock()
	}
	all := append(append([]question{}, n.waits...), question{})
	if len(b.posted) > 0 {
		if b.posted[0].Show != "a9" || b.posted[0].Title != "A question waits in site" || strings.Contains(b.posted[0].Body, "not to be told") {
			t.Errorf("%+v", b.posted)
		}
	} else if all[0] != (question{"a9", "site", "Run curl"}) {
		t.Errorf("%+v", all)
	}
}
