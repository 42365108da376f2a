package cdp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/chromedp/cdproto/page"

	"glasshouse/browser"
)

// checkURL lets through what a person would type into an address bar and that
// loads a document. Schemes that run code or reach into the browser are refused.
func checkURL(s string) error {
	if len(s) > maxURL {
		return fmt.Errorf("the address is %d bytes long; at most %d are taken", len(s), maxURL)
	}
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil {
		return fmt.Errorf("%s is no address: give one like https://example.org/", quote(s, 100))
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		if u.Host == "" {
			return fmt.Errorf("%s names no host", quote(s, 100))
		}
		return nil
	case "file", "data", "about", "blob":
		return nil
	case "":
		return fmt.Errorf("%s has no scheme: write https:// or http:// in front", quote(s, 100))
	}
	if u.Opaque != "" && u.Host == "" && !strings.Contains(u.Scheme, "-") && isPort(u.Opaque) {
		return fmt.Errorf("%s has no scheme: write https:// or http:// in front", quote(s, 100))
	}
	return fmt.Errorf("addresses with the scheme %s are not opened; http, https, file, data and about are", quote(u.Scheme, 30))
}

func isPort(s string) bool {
	p, _, _ := strings.Cut(s, "/")
	return p != "" && strings.Trim(p, "0123456789") == ""
}

func openable(s string) bool { return checkURL(s) == nil }

// Open implements browser.Browser.
func (b *chrome) Open(ctx context.Context, address string) (browser.Page, error) {
	if err := checkURL(address); err != nil {
		return browser.Page{}, err
	}
	var p browser.Page
	err := b.op(ctx, "opening a page", b.opt.NavTimeout+4*b.opt.CallTimeout, func(ctx context.Context) error {
		b.mu.Lock()
		t := b.active
		hung := t != nil && t.hung
		b.mu.Unlock()
		if t == nil || hung {
			var err error
			if t, err = b.newTab(ctx, t); err != nil {
				return err
			}
		}
		b.mu.Lock()
		t.dialogs, t.downloads = nil, nil
		b.mu.Unlock()
		if err := b.navigate(ctx, t, strings.TrimSpace(address), b.opt.NavTimeout); err != nil {
			var nav *navError
			if !errors.As(err, &nav) {
				return err
			}
			p = b.page(ctx, t)
			p.Error = nav.why
		} else {
			p = b.page(ctx, t)
		}
		b.mu.Lock()
		p.Dialog = strings.Join(t.dialogs, "; ")
		b.mu.Unlock()
		return nil
	})
	return p, err
}

// navError is a navigation that did not give the page: the browser is well.
type navError struct{ why string }

func (e *navError) Error() string { return e.why }

// navigate loads an address in a tab and waits for its load event, at most max.
func (b *chrome) navigate(ctx context.Context, t *tab, address string, max time.Duration) error {
	if err := b.awake(ctx, t); err != nil {
		return err
	}
	b.mu.Lock()
	t.leave = true // the tab is ours to navigate; a page cannot hold it with a dialog
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		t.leave = false
		b.mu.Unlock()
	}()
	start := time.Now()
	ch := make(chan reply, 1)
	if _, err := b.m.send(t.main.id, page.CommandNavigate, page.NavigateParams{URL: address}, func(r reply) { ch <- r }); err != nil {
		return err
	}
	late := func() error {
		// A page that is silent may still be a browser that is well.
		if err := b.ping(); err != nil {
			return fmt.Errorf("opening a page: %w", errSilent)
		}
		t.main.post("Page.stopLoading", nil)
		return &navError{fmt.Sprintf("it did not load within %v", max)}
	}
	timer := time.NewTimer(max)
	defer timer.Stop()
	var r reply
	select {
	case r = <-ch:
	case <-timer.C:
		return late()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.err != nil {
		var w *wireError
		if errors.As(r.err, &w) {
			return &navError{w.Error()}
		}
		return r.err
	}
	res, ok := read[page.NavigateResult](r.result)
	if !ok {
		return errors.New("opening a page: unreadable answer")
	}
	if res.IsDownload {
		return &navError{"the address is a download, and downloads are refused"}
	}
	if res.ErrorText != "" {
		b.mu.Lock()
		saved := len(t.downloads) > 0
		b.mu.Unlock()
		if saved {
			return &navError{"the address is a download, and downloads are refused"}
		}
		return &navError{clean(res.ErrorText, 200)}
	}
	if res.LoaderID == "" {
		return nil // within the same document
	}
	want := string(res.LoaderID)
	left := max - time.Since(start)
	if left < time.Second {
		left = time.Second
	}
	// Another navigation may take over (a redirect by script): any loaded document ends the wait.
	begun := func() bool { return t.loader == want }
	if !b.loadedEnough(ctx, left, t, begun, func() bool {
		return t.loaded == want || (t.loaded != "" && t.loaded == t.loader && t.loader != want && !t.loading)
	}) {
		if err := b.m.failed(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return late()
	}
	if b.isCrashed(t) {
		return errCrashed
	}
	return nil
}

// loadGrace is how long a document that is read to its end may go on loading
// pictures and the like before it is taken as it is.
const loadGrace = 3 * time.Second

// loadedEnough waits until done, or until the document that begun tells of has
// been read for loadGrace without it, or until the tab is dead. Both functions
// are called with b.mu held.
func (b *chrome) loadedEnough(ctx context.Context, max time.Duration, t *tab, begun, done func() bool) bool {
	start := time.Now()
	over := func() bool { return t.crashed || t.closed || done() }
	if !b.until(ctx, max, func() bool { return over() || (begun() && t.parsed == t.loader) }) {
		return false
	}
	if b.until(ctx, min(loadGrace, max-time.Since(start)), over) {
		return true
	}
	return b.slow(t)
}

// slow says that a document is there but still loads things.
func (b *chrome) slow(t *tab) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !t.closed && !t.crashed && t.parsed == t.loader && t.loaded != t.loader
}

// page describes a tab, asking the document itself for what events do not carry.
func (b *chrome) page(ctx context.Context, t *tab) browser.Page {
	b.mu.Lock()
	p := b.pageOf(t)
	bad := t.crashed || t.closed || t.failedURL != ""
	b.mu.Unlock()
	if bad {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, min(b.opt.CallTimeout, 3*time.Second))
	defer cancel()
	for range 3 {
		root, _, err := b.frames(ctx, t)
		if err != nil {
			return p
		}
		d, err := b.enter(ctx, root)
		if err == nil {
			var info struct {
				URL    string `json:"url"`
				Title  string `json:"title"`
				Status int    `json:"status"`
			}
			if err = b.run(ctx, d, &info, "info"); err == nil {
				p.URL, p.Title, p.Status = clean(info.URL, 2000), clean(info.Title, 300), info.Status
				return p
			}
		}
		if !errors.Is(err, errDocGone) {
			return p
		}
	}
	return p
}
