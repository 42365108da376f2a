package wire_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"glasshouse/backend/model"
	"glasshouse/backend/model/wire"
)

// certificates makes an authority and what it signed.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = sign(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func sign(t *testing.T, by *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, signer := c, k
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &k.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out, k
}

// file with its certificate, for SSL_CERT_FILE.
func (a *authority) file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tlsServer shows a certificate and counts what it is asked.
type tlsServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // the key of each request
}

func serveTLS(t *testing.T, by *authority, c *x509.Certificate) *tlsServer {
	t.Helper()
	s := &tlsServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r.Header.Get("Authorization"))
		fmt.Fprint(w, "hello")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	cert, k := sign(t, by, c)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: k}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *tlsServer) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

func leaf(from, to time.Duration, names ...string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "model"}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	return c
}

// ownTrust passes a test over where the authority of a test cannot be trusted.
func ownTrust(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "darwin" {
		t.Skip("macOS looks certificates up in its keychain, not in SSL_CERT_FILE")
	}
}

// child runs one exchange in a process of its own, whose environment is read anew, and
// returns how it ended.
func child(t *testing.T, to string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(hang(t), os.Args[0], "-test.run=^TestExchangeOfAChild$", "-test.v")
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(append(cmd.Env, "GLASSHOUSE_TEST_ASK="+to, "SSL_CERT_DIR="+t.TempDir()), env...)
	out, err := cmd.CombinedOutput()
	_, told, ok := strings.Cut(string(out), "ended: ")
	if err != nil || !ok {
		t.Fatalf("%v: %s", err, out)
	}
	told, _, _ = strings.Cut(told, "\n--- ")
	return told
}

// TestExchangeOfAChild is the other side of child.
func TestExchangeOfAChild(t *testing.T) {
	to := os.Getenv("GLASSHOUSE_TEST_ASK")
	if to == "" {
		t.Skip("only the other tests run it, in a process of its own")
	}
	// No name is known, whatever network there is: none of a real resolver is waited for.
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go knowsNothing(theirs)
		return ours, nil
	}}
	_, body, err := ask(hang(t), wire.NewClient(wire.Options{Key: key}), to)
	var e *model.Error
	switch {
	case err == nil:
		fmt.Printf("ended: ok %s\n", body)
	case errors.As(err, &e):
		fmt.Printf("ended: %s again=%v %s\n", e.Kind, e.Again(), e.Message)
	default:
		fmt.Printf("ended: %T %v\n", err, err)
	}
}

// knowsNothing answers each question for a name, as over TCP, with: there is none.
func knowsNothing(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, q); err != nil || len(q) < 12 {
			return
		}
		q[2], q[3] = q[2]|0x80, q[3]&0xf0|3 // an answer, of the kind NXDOMAIN
		if _, err := c.Write(append(size[:], q...)); err != nil {
			return
		}
	}
}

// Whatever is wrong with a certificate is said, with what to do; the key goes nowhere,
// and it is not tried again.
func TestCertificates(t *testing.T) {
	ownTrust(t)
	ca := newAuthority(t)
	trusted := "SSL_CERT_FILE=" + ca.file(t)
	for name, c := range map[string]struct {
		by    *authority
		cert  *x509.Certificate
		words []string // empty: it is good
	}{
		"good":              {ca, leaf(-time.Hour, time.Hour, "127.0.0.1"), nil},
		"self-signed":       {nil, leaf(-time.Hour, time.Hour, "127.0.0.1"), []string{"not trust", "unknown authority", "if the server is your own"}},
		"unknown authority": {newAuthority(t), leaf(-time.Hour, time.Hour, "127.0.0.1"), []string{"not trust", "unknown authority"}},
		"expired":           {ca, leaf(-2*time.Hour, -time.Hour, "127.0.0.1"), []string{"time is over", "clock"}},
		"of tomorrow":       {ca, leaf(time.Hour, 2*time.Hour, "127.0.0.1"), []string{"has not come", "clock"}},
		"another's":         {ca, leaf(-time.Hour, time.Hour, "other.test"), []string{"another's", "check the address"}},
		"of another use":    {ca, &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, []string{"not trust"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveTLS(t, c.by, c.cert)
			got := child(t, s.URL, trusted)
			if c.words == nil {
				if k := s.keys(); !strings.HasPrefix(got, "ok hello") || len(k) != 1 || k[0] != "Bearer "+key {
					t.Errorf("%s; keys %q", got, k)
				}
				return
			}
			if !strings.HasPrefix(got, "not_found again=false") || !strings.Contains(got, strings.TrimPrefix(s.URL, "https://")) || !strings.Contains(got, "nothing was sent") {
				t.Errorf("ended %s", got)
			}
			for _, w := range c.words {
				if !strings.Contains(got, w) {
					t.Errorf("%s does not say %q", got, w)
				}
			}
			if k := s.keys(); len(k) != 0 {
				t.Errorf("it was asked, with %q", k)
			}
		})
	}
}

// A server that speaks TLS alone, asked without.
func TestTLSAloneAskedWithout(t *testing.T) {
	url := raw(t, func(c net.Conn) { _, _ = c.Write([]byte{0x15, 3, 1, 0, 2, 2, 70}) })
	_, _, err := ask(hang(t), wire.NewClient(wire.Options{}), url)
	if e := wantKind(t, err, model.ErrNotFound, "https://"); e.Again() {
		t.Error("it would be tried again")
	}
}

// proxy lets through what it is asked for, always to one address, and keeps what it saw.
type proxy struct {
	net.Listener
	mu   sync.Mutex
	seen string
}

func (p *proxy) saw() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func serveProxy(t *testing.T, answer, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c, answer, to)
		}
	}()
	return p
}

func (p *proxy) serve(c net.Conn, answer, to string) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		line, err := br.ReadString('\n')
		p.mu.Lock()
		p.seen += line
		p.mu.Unlock()
		if err != nil || line == "\r\n" {
			break
		}
	}
	fmt.Fprintf(c, "HTTP/1.1 %s\r\n\r\n", answer)
	if to == "" {
		return
	}
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	go func() { _, _ = io.Copy(d, br); d.Close() }()
	_, _ = io.Copy(c, d)
}

// A proxy of the environment is used, but for this very machine and for NO_PROXY. It
// never sees the key, also when it refuses, and errors say that it was the proxy and
// not its password.
func TestProxies(t *testing.T) {
	ownTrust(t)
	ca := newAuthority(t)
	s := serveTLS(t, ca, leaf(-time.Hour, time.Hour, "model.test", "127.0.0.1"))
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	trusted := "SSL_CERT_FILE=" + ca.file(t)
	closed := nobody(t)
	const password = "s3cret-of-proxy"
	through := "https://model.test:" + u.Port()
	for name, c := range map[string]struct {
		ask, answer, to, no string
		want                []string
		used                bool
	}{
		"through":      {through, "200 OK", u.Host, "", []string{"ok hello"}, true},
		"no proxy":     {through, "200 OK", u.Host, "NO_PROXY=.test", []string{"network again=true", "model.test", "not found"}, false},
		"this machine": {s.URL, "200 OK", u.Host, "", []string{"ok hello"}, false},
		"forbidden":    {through, "403 Forbidden", "", "", []string{"network", "the proxy", "model.test", "403 Forbidden", "NO_PROXY"}, true},
		"no password":  {through, "407 Proxy Authentication Required", "", "", []string{"network", "the proxy", "407", "NAME:PASSWORD@"}, true},
		"bad gateway":  {through, "502 Bad Gateway", "", "", []string{"network", "the proxy", "502"}, true},
		"no HTTP":      {through, "\x00\x01", "", "", []string{"protocol"}, true},
		"cut":          {through, "200 OK", "", "", []string{"network again=true", "model.test"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.keys())
			p := serveProxy(t, c.answer, c.to)
			got := child(t, c.ask, trusted, "HTTPS_PROXY=http://name:"+password+"@"+p.Addr().String(), "HTTP_PROXY=http://name:"+password+"@"+p.Addr().String(), c.no)
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%s does not say %q", got, w)
				}
			}
			saw := p.saw()
			if (saw != "") != c.used || c.used && !strings.HasPrefix(saw, "CONNECT model.test:"+u.Port()) {
				t.Errorf("the proxy saw %q", saw)
			}
			if strings.Contains(saw, key) || strings.Contains(got, password) || strings.Contains(got, key) {
				t.Errorf("a secret got out: %s %s", saw, got)
			}
			if asked := len(s.keys()) - before; (asked == 1) != strings.HasPrefix(got, "ok") {
				t.Errorf("the server was asked %d times: %s", asked, got)
			}
		})
	}
	got := child(t, through, trusted, "HTTPS_PROXY=http://name:"+password+"@"+closed)
	for _, w := range []string{"network", "the proxy", closed, "refused", "model.test", "HTTPS_PROXY"} {
		if !strings.Contains(got, w) {
			t.Errorf("%s does not say %q", got, w)
		}
	}
	if strings.Contains(got, password) || strings.Contains(got, "is the server running") {
		t.Error(got)
	}
	// A proxy that ends TLS itself shows a certificate of its own, which is not trusted.
	evil := serveTLS(t, newAuthority(t), leaf(-time.Hour, time.Hour, "model.test"))
	eu, _ := url.Parse(evil.URL)
	p := serveProxy(t, "200 OK", eu.Host)
	if got := child(t, through, trusted, "HTTPS_PROXY=http://"+p.Addr().String()); !strings.HasPrefix(got, "not_found again=false") || !strings.Contains(got, "not trust") || len(evil.keys()) != 0 {
		t.Errorf("%s; it got %q", got, evil.keys())
	}
}
