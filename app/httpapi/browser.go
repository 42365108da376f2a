package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/browser"
)

// Browsers shows the browsers of sessions. It starts none.
type Browsers interface {
	View(ctx context.Context, id domain.SessionID) (BrowserView, error)
	// Frame waits for the newest frame whose number is not after.
	Frame(ctx context.Context, id domain.SessionID, after uint64) (browser.Frame, error)
}

// BrowserView is a session's browser as it is now. Strings are the pages' own claims.
type BrowserView struct {
	Open     bool         `json:"open" doc:"false: none was started, it ended, or the core was started anew; the next step that opens a page starts one"`
	Starting bool         `json:"starting,omitempty"`
	Tabs     []BrowserTab `json:"tabs"`
	Width    int          `json:"width" doc:"of every page, in CSS pixels"`
	Height   int          `json:"height"`
	Trouble  string       `json:"trouble,omitempty" enum:"crashed,silent" doc:"crashed: the current page's process died; silent: the page does not answer"`
	Dialog   string       `json:"dialog,omitempty" doc:"what a dialog said since the last action; dialogs are dismissed at once"`
}

// BrowserTab is one tab.
type BrowserTab struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Title  string `json:"title"`
	Active bool   `json:"active,omitempty" doc:"the tab that steps act in and frames are of"`
	Error  string `json:"error,omitempty"`
}

// FramePage says what a frame shows; it comes base64url-coded in a header.
type FramePage struct {
	Tab   string           `json:"tab"`
	URL   string           `json:"url"`
	Title string           `json:"title"`
	At    int64            `json:"at"` // Unix ms
	View  browser.Viewport `json:"view"`
}

const maxFrameHeader = 4096

func framePage(f browser.Frame) string {
	p := FramePage{Tab: f.Page.ID, URL: headBytes(f.Page.URL, 1000), Title: headBytes(f.Page.Title, 300), At: f.At.UnixMilli(), View: f.View}
	for {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(p)
		s := base64.RawURLEncoding.EncodeToString(bytes.TrimSpace(b.Bytes()))
		if len(s) <= maxFrameHeader {
			return s
		}
		p.URL, p.Title, p.Tab = "", "", ""
	}
}

// headBytes is at most max bytes of s, without half a character.
func headBytes(s string, max int) string {
	if len(s) > max {
		s = s[:max]
	}
	return strings.ToValidUTF8(s, "")
}

func (s *server) browsers(api huma.API) {
	type idIn struct {
		ID string `path:"id"`
	}
	huma.Register(api, op("get-browser", http.MethodGet, "/v1/sessions/{id}/browser", "A session's browser as it is now"), func(ctx context.Context, in *idIn) (*body[BrowserView], error) {
		v, err := s.Browsers.View(ctx, domain.SessionID(in.ID))
		return ok(v, err)
	})
	type frameIn struct {
		ID     string `path:"id"`
		After  uint64 `query:"after" doc:"the number of the frame seen last"`
		WaitMS int64  `query:"wait_ms" minimum:"0" maximum:"25000" default:"20000" doc:"how long to wait for a frame with another number"`
	}
	o := op("browser-frame", http.MethodGet, "/v1/sessions/{id}/browser/frame", "The newest picture of the browser's current tab, as image/jpeg")
	o.Description = "Answers when there is a frame other than the one seen last: X-Glasshouse-Frame is its number, X-Glasshouse-Page what it shows (base64url of JSON). " +
		"204: nothing new within wait_ms. 404: the session has no browser open. Frames are taken while somebody asks for them."
	huma.Register(api, o, func(ctx context.Context, in *frameIn) (*huma.StreamResponse, error) {
		wctx, cancel := context.WithTimeout(ctx, time.Duration(in.WaitMS)*time.Millisecond)
		defer cancel()
		f, err := s.Browsers.Frame(wctx, domain.SessionID(in.ID), in.After)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				c.SetHeader("Cache-Control", "no-store")
				c.SetStatus(http.StatusNoContent)
			}}, nil
		}
		if err != nil {
			return nil, fail(err)
		}
		// A guest made it: it leaves as a picture or not at all.
		if _, _, err := browser.CheckJPEG(f.JPEG); err != nil {
			return nil, fail(domain.E(domain.CodeInternal, fmt.Sprintf("the browser sent something that is no picture: %v", err), "it is asked again", nil))
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			c.SetHeader("Content-Type", "image/jpeg")
			c.SetHeader("X-Content-Type-Options", "nosniff")
			c.SetHeader("Content-Security-Policy", "default-src 'none'; sandbox")
			c.SetHeader("Cross-Origin-Resource-Policy", "same-origin")
			c.SetHeader("Cache-Control", "no-store")
			c.SetHeader("Content-Length", strconv.Itoa(len(f.JPEG)))
			c.SetHeader("X-Glasshouse-Frame", strconv.FormatUint(f.Seq, 10))
			c.SetHeader("X-Glasshouse-Page", framePage(f))
			_, _ = c.BodyWriter().Write(f.JPEG)
		}}, nil
	})
}
