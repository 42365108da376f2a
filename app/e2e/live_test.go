package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/jpeg"
	"net/http"
	"strconv"
	"testing"

	"glasshouse/app/httpapi"
)

// frame asks for a frame other than the one seen last.
func (w *World) frame(t *testing.T, session string, after uint64) (code int, seq uint64, pic image.Image, page httpapi.FramePage) {
	t.Helper()
	code, head, b := w.raw(t, "GET", "/v1/sessions/"+session+"/browser/frame?wait_ms=20000&after="+strconv.FormatUint(after, 10), "", nil)
	if code != http.StatusOK {
		return code, 0, nil, page
	}
	if head.Get("Content-Type") != "image/jpeg" || head.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%v", head)
	}
	pic, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	seq, err = strconv.ParseUint(head.Get("X-Glasshouse-Frame"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(head.Get("X-Glasshouse-Page"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		t.Fatal(err)
	}
	return code, seq, pic, page
}

// What a step shows in the browser is seen outside while it is there, as it is.
func TestLiveView(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := NewWorld(t, kind)
		w.Start()
		p := w.Project("")
		s := w.Session(p)
		if code, _, _, _ := w.frame(t, s, 0); code != http.StatusNotFound {
			t.Fatalf("a session without a browser answers %d", code)
		}
		w.Bash(s, `mkdir -p /tmp/site && cd /tmp/site && for c in red lime; do echo "<!doctype html><title>$c page</title><body style='margin:0;background:$c'>" >$c.html; done
			setsid python3 -m http.server -b 127.0.0.1 8123 >/dev/null 2>&1 & for i in $(seq 1000); do curl -fsS -o /dev/null http://127.0.0.1:8123/red.html && exit 0; sleep 0.1; done; exit 1`)
		open := func(url string) {
			t.Helper()
			var st struct {
				State string `json:"state"`
			}
			w.Call("POST", "/v1/sessions/"+s+"/calls?wait=ended", map[string]any{"tool": "browser_open", "args": map[string]string{"url": url}}, &st)
		}
		var after uint64
		until := func(want color.RGBA, title string) {
			t.Helper()
			w.Until("the view shows "+title, func() bool {
				code, seq, pic, page := w.frame(t, s, after)
				if code != http.StatusOK {
					return false
				}
				if seq <= after {
					t.Fatalf("frame %d came after %d", seq, after)
				}
				after = seq
				b := pic.Bounds()
				r, g, bl, _ := pic.At(b.Dx()/2, b.Dy()/2).RGBA()
				near := func(have uint32, want uint8) bool { d := int(have>>8) - int(want); return d > -24 && d < 24 }
				return page.Title == title && near(r, want.R) && near(g, want.G) && near(bl, want.B)
			})
		}
		open("http://127.0.0.1:8123/red.html")
		until(color.RGBA{255, 0, 0, 255}, "red page")
		open("http://127.0.0.1:8123/lime.html")
		until(color.RGBA{0, 255, 0, 255}, "lime page")
		var v httpapi.BrowserView
		w.Call("GET", "/v1/sessions/"+s+"/browser", nil, &v)
		if !v.Open || len(v.Tabs) != 1 || v.Tabs[0].URL != "http://127.0.0.1:8123/lime.html" || !v.Tabs[0].Active {
			t.Errorf("%+v", v)
		}

		// A core that comes after a crash says that the browser is gone; the next page opens another.
		w.KillCore()
		w.Start()
		w.Call("GET", "/v1/sessions/"+s+"/browser", nil, &v)
		if v.Open {
			t.Errorf("after a crash of the core: %+v", v)
		}
		open("http://127.0.0.1:8123/red.html")
		until(color.RGBA{255, 0, 0, 255}, "red page")
	})
}
