package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

const secretWord = "the-right-token"

// guarded is a listener with a guard before a handler that records what reaches it.
type guarded struct {
	*httptest.Server
	host    string
	reached []string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.host = l.Addr().String()
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.reached = append(g.reached, r.Method+" "+r.URL.Path)
		fmt.Fprint(w, "inside")
	})
	g.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: Guard(secretWord, l.Addr(), inner)}}
	g.Start()
	t.Cleanup(g.Close)
	return g
}

// send makes one request without following redirects.
func (g *guarded) send(t *testing.T, method, path, body string, set func(r *http.Request)) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+g.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(r)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func bearer(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secretWord) }

func TestGuardLetsTheOwnerIn(t *testing.T) {
	g := newGuarded(t)
	with := func(kv ...string) func(*http.Request) {
		return func(r *http.Request) {
			bearer(r)
			for i := 0; i < len(kv); i += 2 {
				r.Header.Set(kv[i], kv[i+1])
			}
		}
	}
	for name, c := range map[string]struct {
		method, body string
		set          func(*http.Request)
	}{
		"a program":                {"GET", "", bearer},
		"a post of JSON":           {"POST", "{}", with("Content-Type", "application/json")},
		"JSON with its charset":    {"POST", "{}", with("Content-Type", "application/json; charset=utf-8")},
		"a post of nothing":        {"POST", "", bearer},
		"the page itself":          {"POST", "{}", with("Content-Type", "application/json", "Origin", "http://"+g.host, "Sec-Fetch-Site", "same-origin")},
		"an address that is typed": {"GET", "", with("Sec-Fetch-Site", "none")},
		"localhost": {"GET", "", func(r *http.Request) {
			bearer(r)
			r.Host = "localhost:" + g.host[strings.LastIndex(g.host, ":")+1:]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if resp := g.send(t, c.method, "/v1/info", c.body, c.set); resp.StatusCode != 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
}

func TestGuardKeepsOthersOut(t *testing.T) {
	g := newGuarded(t)
	port := g.host[strings.LastIndex(g.host, ":")+1:]
	// Each case is the owner's good request with one thing wrong.
	for name, wrong := range map[string]func(r *http.Request){
		"no token":            func(r *http.Request) { r.Header.Del("Authorization") },
		"another token":       func(r *http.Request) { r.Header.Set("Authorization", "Bearer the-wrong-token") },
		"an empty token":      func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
		"a part of the token": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secretWord[:5]) },
		"the token as Basic":  func(r *http.Request) { r.Header.Set("Authorization", "Basic "+secretWord) },
		"the token elsewhere": func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "token=" + secretWord },
		"a cookie that is wrong": func(r *http.Request) {
			r.Header.Del("Authorization")
			r.AddCookie(&http.Cookie{Name: cookieName(g.host), Value: "x"})
		},
		"a cookie of another port": func(r *http.Request) {
			r.Header.Del("Authorization")
			r.AddCookie(&http.Cookie{Name: cookieName("127.0.0.1:1"), Value: secretWord})
		},
		"another host name":              func(r *http.Request) { r.Host = "attacker.example:" + port },
		"a name that rebinds":            func(r *http.Request) { r.Host = "127.0.0.1.attacker.example:" + port },
		"the host without its port":      func(r *http.Request) { r.Host = "127.0.0.1" },
		"another port":                   func(r *http.Request) { r.Host = "127.0.0.1:1" },
		"another origin":                 func(r *http.Request) { r.Header.Set("Origin", "http://attacker.example") },
		"an origin that begins alike":    func(r *http.Request) { r.Header.Set("Origin", "http://"+g.host+".attacker.example") },
		"the own origin over TLS":        func(r *http.Request) { r.Header.Set("Origin", "https://"+g.host) },
		"another port's page":            func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
		"the null origin":                func(r *http.Request) { r.Header.Set("Origin", "null") },
		"another site":                   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another site of the same owner": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"a form":                         func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
		"text/plain":                     func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"no type":                        func(r *http.Request) { r.Header.Del("Content-Type") },
		"a body without a length":        func(r *http.Request) { r.Header.Set("Content-Type", "text/plain"); r.ContentLength = -1 },
		"a web socket of another site": func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Origin", "http://attacker.example")
		},
		"a web socket without a token": func(r *http.Request) {
			r.Header.Del("Authorization")
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Origin", "http://"+g.host)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g.reached = nil
			resp := g.send(t, "POST", "/v1/quit", "{}", func(r *http.Request) {
				bearer(r)
				r.Header.Set("Content-Type", "application/json")
				wrong(r)
			})
			if resp.StatusCode != http.StatusForbidden || len(g.reached) > 0 {
				t.Errorf("status %d, reached %v", resp.StatusCode, g.reached)
			}
			if v := resp.Header.Get("Access-Control-Allow-Origin"); v != "" {
				t.Errorf("it allows the origin %q", v)
			}
			b, _ := io.ReadAll(resp.Body)
			if strings.Contains(string(b), secretWord) || !strings.Contains(string(b), `"hint"`) {
				t.Errorf("answer %s", b)
			}
		})
	}
	if resp := g.send(t, "OPTIONS", "/v1/quit", "", func(r *http.Request) {
		r.Header.Set("Origin", "http://attacker.example")
		r.Header.Set("Access-Control-Request-Method", "POST")
	}); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a preflight of another site: %d", resp.StatusCode)
	}
}

func cookieName(host string) string { return "glasshouse-" + short(host) }

// The token is spent once in an address and then lives in a cookie that scripts
// cannot read and other sites do not send.
func TestGuardTurnsTheTokenIntoACookie(t *testing.T) {
	g := newGuarded(t)
	resp := g.send(t, "GET", "/?token="+secretWord, "", nil)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/#key="+pageKey(secretWord) || len(g.reached) > 0 {
		t.Fatalf("status %d to %q, reached %v", resp.StatusCode, resp.Header.Get("Location"), g.reached)
	}
	cs := resp.Cookies()
	if len(cs) != 1 || !cs[0].HttpOnly || cs[0].SameSite != http.SameSiteStrictMode || cs[0].Domain != "" {
		t.Fatalf("cookies %+v", cs)
	}
	if resp := g.send(t, "GET", "/v1/info", "", func(r *http.Request) {
		r.AddCookie(cs[0])
		r.Header.Set("X-Glasshouse-Key", pageKey(secretWord))
	}); resp.StatusCode != 200 {
		t.Errorf("with the cookie and the page's key: %d", resp.StatusCode)
	}
	// Browsers hand the cookie to every port of the host: it must be worth nothing there.
	if strings.Contains(cs[0].Value, secretWord) || cs[0].Value == pageKey(secretWord) {
		t.Errorf("the cookie holds the token or the key: %q", cs[0].Value)
	}
	before := len(g.reached)
	for name, set := range map[string]func(*http.Request){
		"alone":            func(r *http.Request) { r.AddCookie(cs[0]) },
		"with a wrong key": func(r *http.Request) { r.AddCookie(cs[0]); r.Header.Set("X-Glasshouse-Key", cs[0].Value) },
		"as the token":     func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+cs[0].Value) },
		"as both":          func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+pageKey(secretWord)) },
		"the key alone":    func(r *http.Request) { r.Header.Set("X-Glasshouse-Key", pageKey(secretWord)) },
	} {
		for _, path := range []string{"/v1/info", "/v1/approvals", "/openapi.json", "/v1/../v1/info"} {
			if resp := g.send(t, "GET", path, "", set); resp.StatusCode != http.StatusForbidden {
				t.Errorf("the cookie %s: %s gives %d", name, path, resp.StatusCode)
			}
		}
	}
	if len(g.reached) != before {
		t.Errorf("reached %v", g.reached[before:])
	}
	if resp := g.send(t, "GET", "/assets/x.js", "", func(r *http.Request) { r.AddCookie(cs[0]) }); resp.StatusCode != 200 {
		t.Errorf("the page's files with the cookie: %d", resp.StatusCode)
	}
	// A cookie alone does not make another site's page the person.
	if resp := g.send(t, "POST", "/v1/quit", "{}", func(r *http.Request) {
		r.AddCookie(cs[0])
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://attacker.example")
	}); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site with the cookie: %d", resp.StatusCode)
	}
	if resp := g.send(t, "GET", "/?token=guessed", "", nil); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) > 0 {
		t.Errorf("a guessed token: %d %v", resp.StatusCode, resp.Cookies())
	}
	if other := cookieName("127.0.0.1:9"); other == cs[0].Name {
		t.Error("two listeners share a cookie name")
	}
}

func TestTokensAreLongAndNew(t *testing.T) {
	a, b := NewToken(), NewToken()
	if len(a) < 32 || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

func page() fstest.MapFS {
	return fstest.MapFS{
		"index.html":            {Data: []byte("<!doctype html>page")},
		"assets/index-ab.js":    {Data: []byte("js")},
		"assets/index-ab.css":   {Data: []byte("css")},
		"assets/inter-ab.woff2": {Data: []byte("font")},
		"assets/odd.unknown":    {Data: []byte("<script>")},
	}
}

func serveFront(t *testing.T, h http.Handler, method, target string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "/", nil)
	// As it came over the wire: nothing in between cleans a path.
	r.URL = &url.URL{Path: target}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFrontServesThePage(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "api ", r.URL.Path) })
	h := Front(page(), api)
	for target, want := range map[string][2]string{
		"/":                      {"text/html; charset=utf-8", "<!doctype html>page"},
		"/index.html":            {"text/html; charset=utf-8", "<!doctype html>page"},
		"/projects/p1":           {"text/html; charset=utf-8", "<!doctype html>page"}, // the page routes by itself
		"/assets":                {"text/html; charset=utf-8", ""},
		"/assets/index-ab.js":    {"text/javascript; charset=utf-8", "js"},
		"/assets/index-ab.css":   {"text/css; charset=utf-8", "css"},
		"/assets/inter-ab.woff2": {"font/woff2", "font"},
		"/assets/odd.unknown":    {"application/octet-stream", "<script>"},
		"/v1/info":               {"", "api /v1/info"},
		"/openapi.json":          {"", "api /openapi.json"},
		"/v1":                    {"text/html; charset=utf-8", "<!doctype html>page"},
	} {
		resp := serveFront(t, h, "GET", target)
		if target == "/assets" {
			// A folder is not listed.
			if b := text(t, resp); strings.Contains(b, "index-ab") {
				t.Errorf("%s: %s", target, b)
			}
			continue
		}
		if b := text(t, resp); b != want[1] || resp.StatusCode != 200 {
			t.Errorf("%s: %d %q", target, resp.StatusCode, b)
		}
		if want[0] != "" && resp.Header.Get("Content-Type") != want[0] {
			t.Errorf("%s: type %q", target, resp.Header.Get("Content-Type"))
		}
	}
	for _, m := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		if resp := serveFront(t, h, m, "/"); resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", m, resp.StatusCode)
		}
	}
	if resp := serveFront(t, Front(fstest.MapFS{".keep": {}}, api), "GET", "/"); resp.StatusCode != 404 || !strings.Contains(text(t, resp), "make frontend") {
		t.Error("a program without its page does not say how to build it")
	}
}

func TestFrontHeaders(t *testing.T) {
	h := serveFront(t, Front(page(), http.NotFoundHandler()), "GET", "/").Header
	rules := map[string][]string{}
	for _, r := range strings.Split(h.Get("Content-Security-Policy"), ";") {
		f := strings.Fields(r)
		rules[f[0]] = f[1:]
	}
	for name, want := range map[string][]string{
		"default-src": {"'none'"}, "script-src": {"'self'"}, "connect-src": {"'self'"}, "base-uri": {"'none'"}, "form-action": {"'none'"}, "frame-ancestors": {"'none'"},
	} {
		if !slices.Equal(rules[name], want) {
			t.Errorf("%s is %q", name, rules[name])
		}
	}
	for _, name := range []string{"object-src", "frame-src", "worker-src"} {
		if _, widened := rules[name]; widened {
			t.Errorf("%s is opened", name)
		}
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"} {
		if h.Get(name) != want {
			t.Errorf("%s is %q", name, h.Get(name))
		}
	}
}

func TestFrontDoesNotLeaveItsFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) {
		t.Helper()
		if err := writeFile(dir, name, data); err != nil {
			t.Fatal(err)
		}
	}
	write("secret.txt", "outside")
	write("dist/index.html", "page")
	h := Front(subFS(t, dir, "dist"), http.NotFoundHandler())
	for _, target := range []string{"/../secret.txt", "/..%2fsecret.txt", "/./../secret.txt", "//secret.txt", "/assets/../../secret.txt", `/..\secret.txt`, "/\x00", "/.../secret.txt", dir + "/secret.txt", "//" + dir + "/secret.txt"} {
		if b := text(t, serveFront(t, h, "GET", target)); strings.Contains(b, "outside") {
			t.Errorf("%q left the folder", target)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestProxyKeepsWhatIsTheBrowsers(t *testing.T) {
	var got *http.Request
	h := Proxy(roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}, Request: r}, nil
	}))
	r := httptest.NewRequest("GET", "http://127.0.0.1:9/v1/events?after=3&format=ndjson", nil)
	r.Header.Set("Cookie", "glasshouse=secret")
	r.Header.Set("Origin", "http://127.0.0.1:9")
	r.Header.Set("Last-Event-ID", "7")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if got.URL.String() != "http://core/v1/events?after=3&format=ndjson" || got.Host != "core" || got.Header.Get("Cookie") != "" || got.Header.Get("Origin") != "" || got.Header.Get("Last-Event-ID") != "7" {
		t.Errorf("%s host %s headers %v", got.URL, got.Host, got.Header)
	}
}

func TestProxySaysThatNobodyAnswers(t *testing.T) {
	h := Proxy(roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("no such socket") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/info", nil))
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), `"code":"unavailable"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Each piece of a stream goes on at once, and a page that leaves ends it upstream.
func TestProxyStreams(t *testing.T) {
	next := make(chan string)
	left := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for {
			select {
			case s := <-next:
				fmt.Fprintln(w, s)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				close(left)
				return
			}
		}
	}))
	defer up.Close()
	addr := up.Listener.Addr().String()
	front := httptest.NewServer(Proxy(&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}}))
	defer front.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", front.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 64)
	for _, s := range []string{"one", "two", "three"} {
		next <- s
		n, err := io.ReadAtLeast(resp.Body, buf, len(s)+1)
		if err != nil || string(buf[:n]) != s+"\n" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	cancel()
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Fatal("the stream goes on though nobody reads it")
	}
}

func writeFile(dir, name, data string) error {
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	return os.WriteFile(at, []byte(data), 0o600)
}

func subFS(t *testing.T, dir, name string) fs.FS {
	t.Helper()
	sub, err := fs.Sub(os.DirFS(dir), name)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}
