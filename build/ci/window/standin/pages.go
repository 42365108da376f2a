package main

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/browser"
)

// pages is a browser whose page has changed whenever it is asked, once it is open.
type pages struct {
	jpeg []byte
	seq  atomic.Uint64
	open atomic.Bool
}

var _ httpapi.Browsers = (*pages)(nil)

func (p *pages) View(context.Context, domain.SessionID) (httpapi.BrowserView, error) {
	if !p.open.Load() {
		return httpapi.BrowserView{Width: 1280, Height: 800, Tabs: []httpapi.BrowserTab{}}, nil
	}
	return httpapi.BrowserView{Open: true, Width: 1280, Height: 800, Tabs: []httpapi.BrowserTab{{ID: "t1", URL: "http://127.0.0.1:8000/", Title: "A page", Active: true}}}, nil
}

func (p *pages) Frame(context.Context, domain.SessionID, uint64) (browser.Frame, error) {
	if !p.open.Load() {
		return browser.Frame{}, domain.E(domain.CodeNotFound, "the session has no browser open", "", nil)
	}
	return browser.Frame{Seq: p.seq.Add(1), At: time.Now(), JPEG: p.jpeg, Width: 1280, Height: 800, Page: browser.Page{ID: "t1", URL: "http://127.0.0.1:8000/", Title: "A page"}, View: browser.Viewport{Width: 1280, Height: 800, Scale: 1}}, nil
}

// picture is of the size and grain of a page's: about 100 KB.
func picture() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	img := image.NewRGBA(image.Rect(0, 0, 1280, 800))
	for y := range 800 {
		for x := range 1280 {
			v := uint8(235)
			if y/10%2 == 0 && x%320 < 40+r.IntN(260) {
				v = uint8(40 + r.IntN(150))
			}
			img.SetRGBA(x, y, color.RGBA{v, v, uint8(min(255, int(v)+10)), 255})
		}
	}
	for q := 80; ; q -= 10 {
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: max(q, 5)}); err != nil || b.Len() < 130<<10 || q <= 10 {
			return b.Bytes()
		}
	}
}
