package vmtest

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

// browser: Chromium answers on its pipe.
func (s *suite) browser(t *testing.T) {
	s.can(t)
	g := s.open(t)
	for _, profile := range []string{"one", "two"} {
		pipe, err := g.Browser(s.ctx(t), guest.BrowserSpec{Profile: profile, Width: 800, Height: 600, Session: "suite"})
		must(t, err)
		_, err = pipe.Write([]byte("{\"id\":1,\"method\":\"Browser.getVersion\"}\x00"))
		must(t, err)
		line, err := bufio.NewReader(pipe).ReadBytes(0)
		must(t, err)
		var reply struct {
			ID     int
			Result struct{ Product, UserAgent string }
		}
		if err := json.Unmarshal(line[:len(line)-1], &reply); err != nil || reply.ID != 1 || !strings.Contains(reply.Result.Product, "Chrome/") {
			t.Errorf("Browser.getVersion: %q %v", line, err)
		}
		must(t, pipe.Close())
	}
	if _, err := g.Browser(s.ctx(t), guest.BrowserSpec{Profile: "../x"}); err == nil {
		t.Error("a path was taken for a profile")
	}
}
