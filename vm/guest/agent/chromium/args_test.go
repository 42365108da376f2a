//go:build linux

package chromium

import (
	"slices"
	"strings"
	"testing"

	"glasshouse/vm/guest"
)

func TestArgs(t *testing.T) {
	a := Args(Config{Home: "/home/agent", Proxy: "127.0.0.1:3128"}, guest.BrowserSpec{Profile: "p", Width: 800, Height: 600}, false)
	for _, want := range []string{
		"--remote-debugging-pipe", "--user-data-dir=/home/agent/.cache/glasshouse/browser/p", "--window-size=800,600",
		"--proxy-server=http://127.0.0.1:3128", "--proxy-bypass-list=127.0.0.1;localhost;[::1]", "--disable-quic", "--disable-sync",
		"--disable-component-update", "--disable-background-networking",
	} {
		if !slices.Contains(a, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if a[len(a)-1] != "about:blank" { // without a page the pipe says nothing
		t.Errorf("the last word is %s", a[len(a)-1])
	}
	if s := strings.Join(a, " "); strings.Contains(s, "--no-sandbox") || strings.Contains(s, "debugging-port") {
		t.Errorf("got %s", s)
	}
	a = Args(Config{Home: "/h"}, guest.BrowserSpec{Profile: "p"}, true)
	if s := strings.Join(a, " "); !strings.Contains(s, "--no-sandbox") || !strings.Contains(s, "--window-size=1280,800") || strings.Contains(s, "--proxy-server") {
		t.Errorf("got %s", s)
	}
}
