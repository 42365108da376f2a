package cdp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"glasshouse/browser"
	"glasshouse/browser/browsertest"
	"glasshouse/browser/cdp"
)

// chromium finds the binary that the guest image has too.
func chromium(t testing.TB) string {
	for _, p := range []string{os.Getenv("GLASSHOUSE_CHROMIUM"), "/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium-headless-shell", "/usr/bin/chromium"} {
		if p == "" {
			continue
		}
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("no Chromium on this host: apt-get install chromium-headless-shell, or set GLASSHOUSE_CHROMIUM")
	return ""
}

// pipe is a Chromium on this host with DevTools on descriptors 3 and 4.
type pipe struct {
	io.Reader
	io.Writer
	once  sync.Once
	close func()
}

func (p *pipe) Close() error {
	p.once.Do(p.close)
	return nil
}

func opener(t testing.TB) browser.Opener {
	path := chromium(t)
	return func(_ context.Context, w, h int) (io.ReadWriteCloser, error) {
		dir, err := os.MkdirTemp("", "glasshouse-chromium")
		if err != nil {
			return nil, err
		}
		args := []string{
			"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--no-first-run", "--disable-gpu",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
			"--disable-dev-shm-usage", "--window-size=" + strconv.Itoa(w) + "," + strconv.Itoa(h), "about:blank",
		}
		if os.Getuid() == 0 { // Chromium's own sandbox refuses root; on this host only
			args = append([]string{"--no-sandbox"}, args...)
		}
		inR, inW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		outR, outW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(path, args...)
		cmd.ExtraFiles = []*os.File{inR, outW}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		inR.Close()
		outW.Close()
		return &pipe{Reader: outR, Writer: inW, close: func() {
			inW.Close()
			outR.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			for range 20 { // its children let go of the profile a moment later
				if os.RemoveAll(dir) == nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}}, nil
	}
}

func site(t testing.TB) *browsertest.Site {
	s := browsertest.NewSite()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the fixture site: %v", err)
		}
	}()
	t.Cleanup(func() { srv.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s.Base, s.Cross = "http://127.0.0.1:"+port, "http://localhost:"+port
	return s
}

// limits are short for what is waited for in vain, and long enough for a computer that
// does nothing for some seconds.
var limits = cdp.Options{ActionTimeout: 2 * time.Second, NavTimeout: 12 * time.Second, CallTimeout: 15 * time.Second, SettleTimeout: 8 * time.Second}

func TestContract(t *testing.T) {
	browsertest.Run(t, func(t *testing.T) browsertest.Env {
		return browsertest.Env{
			Site:   site(t),
			Opener: opener(t),
			New: func(ctx context.Context, open browser.Opener) (browser.Browser, error) {
				return cdp.New(ctx, open, limits)
			},
		}
	})
}
