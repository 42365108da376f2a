package cdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"glasshouse/browser"
)

// Limits of a full-page screenshot, in pixels. What lies further down is left out.
const (
	maxShotHeight = 16_384
	maxShotPixels = 24 << 20
)

// Screenshot implements browser.Browser.
func (b *chrome) Screenshot(ctx context.Context, opt browser.ScreenshotOptions) (browser.Image, error) {
	var img browser.Image
	err := b.op(ctx, "taking a screenshot", 3*b.opt.CallTimeout, func(ctx context.Context) error {
		t, err := b.tabFor()
		if err != nil {
			return err
		}
		p := page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}
		img.Mime = "image/png"
		if opt.JPEG {
			p.Format, img.Mime = page.CaptureScreenshotFormatJpeg, "image/jpeg"
			q := int64(opt.Quality)
			if q <= 0 || q > 100 {
				q = 80
			}
			p.Quality = &q
		}
		if opt.FullPage {
			w, h, err := b.size(ctx, t)
			if err != nil {
				return err
			}
			yes := true
			p.CaptureBeyondViewport = &yes
			p.Clip = &page.Viewport{Width: float64(w), Height: float64(h), Scale: 1}
		}
		res, err := cdp.Call(ctx, t.main, page.CaptureScreenshot, p)
		if err != nil {
			return err
		}
		cfg, format, err := image.DecodeConfig(bytes.NewReader(res.Data))
		if err != nil || "image/"+format != img.Mime {
			return errors.New("the browser sent something that is no picture")
		}
		img.Data, img.Width, img.Height = res.Data, cfg.Width, cfg.Height
		return nil
	})
	if err != nil {
		return browser.Image{}, err
	}
	return img, nil
}

// size is the whole page's, within what one picture may hold.
func (b *chrome) size(ctx context.Context, t *tab) (w, h int, err error) {
	for range 3 {
		var root *frame
		if root, _, err = b.frames(ctx, t); err != nil {
			return 0, 0, err
		}
		var d *doc
		if d, err = b.enter(ctx, root); err == nil {
			var s struct {
				W float64 `json:"w"`
				H float64 `json:"h"`
			}
			if err = b.run(ctx, d, &s, "size"); err == nil {
				w = int(min(max(s.W, 1), 8192))
				h = int(min(max(s.H, 1), maxShotHeight))
				return w, min(h, maxShotPixels/w), nil
			}
		}
		if !errors.Is(err, errDocGone) {
			return 0, 0, err
		}
	}
	return 0, 0, fmt.Errorf("measuring the page: %w", err)
}
