//go:build desktop && linux && windowfault

package desktop

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fall is a fault as a handler or a bound method may have one.
func fall() error {
	var p *struct{ x int }
	p.x = 1
	return nil
}

// With the signal handlers as the web view leaves them a nil dereference ends the whole
// process. Each way into the window's Go code repairs them first, and turns the fault
// into an error. The test runs itself, for the first case cannot be outlived.
func TestFaults(t *testing.T) {
	if how := os.Getenv("WINDOW_FAULT"); how != "" {
		if !breakSignals() {
			t.Fatal("the handlers could not be changed")
		}
		switch how {
		case "bare":
			func() {
				defer func() { _ = recover() }()
				_ = fall()
			}()
		case "method":
			if err := guarded("fall", fall); err == nil || !strings.Contains(err.Error(), "fall") {
				t.Fatal(err)
			}
		case "handler":
			w := httptest.NewRecorder()
			recovered(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { _ = fall() })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/x", nil))
			if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "a fault inside the window") {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		return
	}
	for how, lives := range map[string]bool{"bare": false, "method": true, "handler": true} {
		c := exec.Command(os.Args[0], "-test.run", "^TestFaults$")
		c.Env = append(os.Environ(), "WINDOW_FAULT="+how)
		out, err := c.CombinedOutput()
		if (err == nil) != lives {
			t.Errorf("%s: %v\n%.2000s", how, err, out)
		}
		if !lives && !strings.Contains(string(out), "signal") {
			t.Errorf("%s ended by something else: %.2000s", how, out)
		}
	}
}
