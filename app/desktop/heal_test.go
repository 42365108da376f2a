package desktop

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// aCore listens on a socket, as a core does, until it is ended.
type aCore struct {
	srv  *http.Server
	path string
}

func startACore(t *testing.T, path string) *aCore {
	t.Helper()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &aCore{path: path, srv: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+string(b))
	})}}
	go func() { _ = c.srv.Serve(l) }()
	t.Cleanup(func() { _ = c.srv.Close() })
	return c
}

// die leaves the socket's file behind, as a core does that is killed.
func (c *aCore) die(t *testing.T) {
	t.Helper()
	_ = c.srv.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func ask(rt http.RoundTripper, method, body string) (string, error) {
	r, _ := http.NewRequest(method, "http://core/v1/x", strings.NewReader(body))
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestLinkStartsTheCoreAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	core := startACore(t, path)
	var mu sync.Mutex
	starts := 0
	ended := errors.New("it was ended")
	l := NewLink(path, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		starts++
		core = startACore(t, path)
		return nil
	}, ended)
	clock := time.Now()
	l.now = func() time.Time { return clock }
	rt := l.Transport()
	if got, err := ask(rt, "POST", "one"); got != "POST one" || err != nil || starts != 0 {
		t.Fatalf("%q %v, %d starts", got, err, starts)
	}
	core.die(t)
	// Many calls at once: one start, and each call gets through with its body.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := ask(rt, "POST", "two"); got != "POST two" || err != nil {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	wg.Wait()
	if starts != 1 {
		t.Errorf("%d starts", starts)
	}
	// Dead again at once: not started in a loop.
	core.die(t)
	if _, err := ask(rt, "GET", ""); err == nil || !strings.Contains(err.Error(), "right after it was started") || starts != 1 {
		t.Errorf("%v, %d starts", err, starts)
	}
	clock = clock.Add(firstPause)
	if _, err := ask(rt, "GET", ""); err != nil || starts != 2 {
		t.Errorf("%v, %d starts", err, starts)
	}
	// It was ended on purpose: following it does not bring it back, doing something does.
	clock = clock.Add(time.Hour)
	l.quit.Store(true) // before its end: a pool of connections may dial for itself
	core.die(t)
	if _, err := l.dial(t.Context(), "", ""); !errors.Is(err, ended) || starts != 2 {
		t.Errorf("%v, %d starts", err, starts)
	}
	if _, err := ask(l.Plain(), "POST", ""); err == nil || starts != 2 {
		t.Errorf("%v, %d starts", err, starts)
	}
	if got, err := ask(rt, "POST", "go on"); got != "POST go on" || err != nil || starts != 3 || l.quit.Load() {
		t.Errorf("%q %v, %d starts", got, err, starts)
	}
}

// A core that ended in good order took its socket away: looking on does not bring it
// back, even to a window that missed its last words; doing something does.
func TestLinkLeavesAnEndedCoreAlone(t *testing.T) {
	starts := 0
	ended := errors.New("it was ended")
	l := NewLink(filepath.Join(t.TempDir(), "s"), func(context.Context) error { starts++; return errors.New("started") }, ended)
	if _, err := l.dial(t.Context(), "", ""); !errors.Is(err, ended) || starts != 0 {
		t.Errorf("%v, %d starts", err, starts)
	}
	if _, err := l.dial(context.WithValue(t.Context(), acts{}, true), "", ""); err == nil || err.Error() != "started" || starts != 1 {
		t.Errorf("%v, %d starts", err, starts)
	}
}

func TestLinkSaysWhyNoCoreStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	tries := 0
	why := errors.New("the database is from a later version")
	l := NewLink(path, func(context.Context) error { tries++; return why }, errors.New("ended"))
	clock := time.Now()
	l.now = func() time.Time { return clock }
	want := 0
	for pause, i := firstPause, 0; i < 8; i++ {
		want++
		for range 3 {
			if _, err := ask(l.Transport(), "POST", "x"); !errors.Is(err, why) {
				t.Fatal(err)
			}
		}
		if tries != want {
			t.Fatalf("after %d pauses %d tries, not %d", i, tries, want)
		}
		clock = clock.Add(pause - time.Millisecond)
		_, _ = ask(l.Transport(), "POST", "x")
		if tries != want {
			t.Fatalf("tried again before its pause of %v was over", pause)
		}
		clock = clock.Add(time.Millisecond)
		pause = min(2*pause, lastPause)
	}
}
