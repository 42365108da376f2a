package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// fakeCore answers on the socket where a core would.
func fakeCore(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gh-serve-") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("GLASSHOUSE_DATA", dir)
	t.Setenv("GLASSHOUSE_CONFIG", filepath.Join(dir, "c"))
	l, err := net.Listen("unix", filepath.Join(dir, "core.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "core %s %s cookie=%q", r.Method, r.URL.Path, r.Header.Get("Cookie"))
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
}

func built() fs.FS {
	return fstest.MapFS{"dist/index.html": {Data: []byte("the page")}, "dist/assets/a.js": {Data: []byte("js")}}
}

// startServe runs the command and returns the address it printed and a function
// that ends it and returns its exit code.
func startServe(t *testing.T, args ...string) (address string, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	e := &env{out: w, err: &errs, assets: built()}
	go func() {
		code <- e.run(ctx, append([]string{"serve"}, args...))
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		cancel()
		t.Fatalf("no address: %v; it ended with %d: %s", err, <-code, errs.String())
	}
	end = func() int {
		cancel()
		select {
		case c := <-code:
			return c
		case <-time.After(time.Minute):
			t.Fatal("serve does not end")
			return -1
		}
	}
	t.Cleanup(cancel)
	return strings.TrimSpace(line), end
}

func TestServeOpensTheDoorToItsOwnAddress(t *testing.T) {
	fakeCore(t)
	address, end := startServe(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Timeout: time.Minute}
	get := func(url string) (int, string) {
		t.Helper()
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	base, _, found := strings.Cut(address, "?token=")
	if !found || !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Fatalf("it printed %q", address)
	}
	if status, b := get(base); status != http.StatusForbidden {
		t.Errorf("without the token: %d %s", status, b)
	}
	if status, b := get(base + "v1/info"); status != http.StatusForbidden || strings.Contains(b, "core") {
		t.Errorf("the core without the token: %d %s", status, b)
	}
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	key, found := strings.CutPrefix(resp.Request.URL.Fragment, "key=")
	if resp.StatusCode != 200 || string(page) != "the page" || !found {
		t.Errorf("the printed address: %d %s %s", resp.StatusCode, resp.Request.URL, page)
	}
	// Every port of this computer is handed the cookie, so it opens no calls by itself.
	if status, b := get(base + "v1/info"); status != http.StatusForbidden || strings.Contains(b, "core") {
		t.Errorf("with the cookie alone: %d %s", status, b)
	}
	req, err := http.NewRequest(http.MethodGet, base+"v1/info", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Glasshouse-Key", key)
	if resp, err = c.Do(req); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	// The listener's own cookie is nothing to the core.
	if resp.StatusCode != 200 || string(b) != `core GET /v1/info cookie=""` {
		t.Errorf("with the page's key: %d %s", resp.StatusCode, b)
	}
	if code := end(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if _, err := net.DialTimeout("tcp", strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/"), time.Second); err == nil {
		t.Error("it still listens")
	}
}

func TestServeTakesATokenAndMakesNewOnes(t *testing.T) {
	fakeCore(t)
	a, endA := startServe(t)
	b, endB := startServe(t)
	c, endC := startServe(t, "--token", "mine")
	token := func(s string) string { return s[strings.Index(s, "token=")+6:] }
	if token(a) == token(b) || len(token(a)) < 32 || token(c) != "mine" {
		t.Errorf("tokens %q, %q, %q", token(a), token(b), token(c))
	}
	for _, end := range []func() int{endA, endB, endC} {
		end()
	}
}

// Nobody else's computer may reach the agents, whatever is asked for.
func TestServeListensOnLoopbackAlone(t *testing.T) {
	fakeCore(t)
	for _, at := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		var out, errs bytes.Buffer
		e := &env{out: &out, err: &errs, assets: built()}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		code := e.run(ctx, []string{"serve", "--listen", at})
		cancel()
		if code != 2 || !strings.Contains(errs.String(), "loopback") || out.Len() > 0 {
			t.Errorf("--listen %s: exit %d, %q, %q", at, code, out.String(), errs.String())
		}
	}
}
