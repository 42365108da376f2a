package httpapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"

	"glasshouse/backend/domain"
)

// csp lets the page run its own scripts and nothing else; nothing a guest wrote
// is ever a document of this origin.
const csp = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Front serves the built page and passes /v1 on to api.
func Front(assets fs.FS, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isPage(r.URL.Path) {
			api.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only reading is possible here", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
		if name == "" {
			name = "index.html"
		}
		if _, err := fs.Stat(assets, name); err != nil {
			name = "index.html" // the page routes by itself
		}
		b, err := fs.ReadFile(assets, name)
		if err != nil {
			http.Error(w, "the page is not built: run 'make frontend' and build again", http.StatusNotFound)
			return
		}
		h.Set("Content-Type", contentType(name))
		_, _ = w.Write(b)
	})
}

// contentType knows the kinds of files the page is built from; the system's
// table of types is not asked, for it differs between computers.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".woff2":
		return "font/woff2"
	case ".json", ".map":
		return "application/json"
	}
	return "application/octet-stream"
}

// Proxy passes calls on to the core over a transport that reaches its socket.
func Proxy(t http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "core"})
			p.Out.Host = "core"
			p.Out.Header.Del("Cookie")
			p.Out.Header.Del("Origin")
		},
		Transport:     t,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			say := &apiError{Code: domain.CodeUnavailable, What: "the core does not answer", Hint: "it is started again by the next command or window"}
			// A transport that knows why says so.
			if de := (*domain.Error)(nil); errors.As(err, &de) {
				say = &apiError{Code: de.Code, What: de.What, Hint: de.Hint}
			}
			refuse(w, http.StatusBadGateway, say)
		},
	}
}

// NewToken returns a random word that opens a loopback listener.
func NewToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Guard lets only the person who knows the token through to next, on a listener
// that any page and any program of this computer can reach. Host and Origin must
// be the listener's own, so that no other site's page can speak for the person.
//
// A browser sends cookies to every port of a host name, so any program that
// listens on this computer can come to hold the cookie. It opens the page's files
// alone; calls need the page's key too, which the address hands to the page in its
// fragment and which the page keeps in the storage of its own origin.
func Guard(token string, addr net.Addr, next http.Handler) http.Handler {
	host := addr.String()
	cookie := "glasshouse-" + short(host)
	key := pageKey(token)
	good := func(got, want string) bool {
		a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
		return got != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
	}
	_, port, _ := net.SplitHostPort(host)
	deny := func(w http.ResponseWriter, why string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"code":"denied","what":"` + why + `","hint":"open the address that 'glasshouse serve' printed"}`))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host && r.Host != "localhost:"+port {
			deny(w, "this address is not served under that host name")
			return
		}
		if o := r.Header.Get("Origin"); o != "" && o != "http://"+r.Host {
			deny(w, "another site may not call here")
			return
		}
		if s := r.Header.Get("Sec-Fetch-Site"); s != "" && s != "same-origin" && s != "none" {
			deny(w, "another site may not call here")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.ContentLength != 0 &&
			!strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			deny(w, "calls carry JSON")
			return
		}
		if t := r.URL.Query().Get("token"); r.URL.Path == "/" && good(t, token) {
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: pageCookie(token), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, "/#key="+key, http.StatusSeeOther)
			return
		}
		if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && good(t, token) {
			next.ServeHTTP(w, r)
			return
		}
		if c, err := r.Cookie(cookie); err == nil && good(c.Value, pageCookie(token)) {
			if isPage(r.URL.Path) || good(r.Header.Get("X-Glasshouse-Key"), key) {
				next.ServeHTTP(w, r)
				return
			}
			deny(w, "this page does not hold the key of this address")
			return
		}
		deny(w, "the token is missing or wrong")
	})
}

// pageKey and pageCookie are made of the token, so that a listener that is started
// again with the same one knows its pages, and tell nothing of it or each other.
func pageKey(token string) string    { return derived(token, "key") }
func pageCookie(token string) string { return derived(token, "cookie") }

func derived(token, of string) string {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte(of))
	return hex.EncodeToString(m.Sum(nil)[:20])
}

// isPage: the path is one of the page's own files and not a call.
func isPage(p string) bool { return !strings.HasPrefix(p, "/v1/") && p != "/openapi.json" }

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
