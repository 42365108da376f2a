// Package browsertest has the fixture site and the contract suite that every
// driver of a browser passes.
package browsertest

import (
	"embed"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed site
var files embed.FS

// Site serves the fixture pages. Serve it under two addresses of different
// sites and say which they are before the first page is opened.
type Site struct {
	Base, Cross string // without a slash at the end; Cross is another site

	mu    sync.Mutex
	state map[string]string
	hits  map[string]int
}

// NewSite makes a site.
func NewSite() *Site { return &Site{state: map[string]string{}, hits: map[string]int{}} }

// Set changes what pages that poll state?key= read.
func (s *Site) Set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[key] = value
}

// Hits is how often a path was asked for.
func (s *Site) Hits(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[path]
}

func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.hits[r.URL.Path]++
	s.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	html := func(code int, body string) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
	p := r.URL.Path
	switch {
	case p == "/state":
		s.mu.Lock()
		v := s.state[r.URL.Query().Get("key")]
		s.mu.Unlock()
		fmt.Fprint(w, v)
	case p == "/slow":
		ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
		if r.URL.Query().Get("html") != "" {
			html(200, "<!doctype html><title>Slow</title><h1>Slow page</h1>")
			return
		}
		fmt.Fprint(w, "slow")
	case p == "/hang": // never answers
		<-r.Context().Done()
	case p == "/nocontent":
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(p, "/status/"):
		code, _ := strconv.Atoi(path.Base(p))
		html(max(code, 200), fmt.Sprintf("<!doctype html><title>Status</title><h1>Status %d</h1>", code))
	case p == "/file.bin":
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="<b>report</b>.bin"`)
		fmt.Fprint(w, "data")
	case strings.HasPrefix(p, "/color/"):
		html(200, fmt.Sprintf("<!doctype html><title>%[1]s</title><body style='background:%[1]s'>", path.Base(p)))
	case p == "/big.html":
		html(200, bigPage())
	default:
		b, err := files.ReadFile("site" + p)
		if err != nil {
			html(404, "<!doctype html><title>Not found</title><h1>Not found</h1>")
			return
		}
		text := strings.NewReplacer("{{BASE}}", s.Base, "{{CROSS}}", s.Cross).Replace(string(b))
		if path.Ext(p) == ".js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, text)
			return
		}
		html(200, text)
	}
}

// BigElements is how many elements the body of big.html holds.
const BigElements = 5010

func bigPage() string {
	var b strings.Builder
	b.WriteString("<!doctype html><title>Big</title><body><h1>Big page</h1><output id=log></output>")
	n := 2
	for i := 0; n+5 <= BigElements; i++ {
		fmt.Fprintf(&b, "<div><h3>Row %d</h3><p>Some text of row %d</p><button id=b%d>Press %d</button><a href=#r%d>Link %d</a></div>", i, i, i, i, i, i)
		n += 5
	}
	for ; n < BigElements; n++ {
		b.WriteString("<p>more</p>")
	}
	b.WriteString(`<script src=base.js></script>`)
	return b.String()
}
