package cdp

import (
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
)

// read decodes an event into its fixed type; one that does not fit is ignored.
func read[T any](params jsonv2.Value) (T, bool) {
	var v T
	return v, len(params) > 0 && jsonv2.Unmarshal(params, &v, jsonRead) == nil
}

// event runs on the reading goroutine: it updates state and queues commands, and
// never waits.
func (b *chrome) event(session, method string, params jsonv2.Value) {
	var s *sess
	if session != "" {
		b.mu.Lock()
		s = b.sessions[session]
		b.mu.Unlock()
		if s == nil {
			return
		}
	}
	switch method {
	case "Target.attachedToTarget":
		if ev, ok := read[target.EventAttachedToTarget](params); ok && ev.TargetInfo != nil && ev.SessionID != "" {
			b.attached(s, string(ev.SessionID), ev.TargetInfo)
		}
		return
	case "Target.detachedFromTarget":
		if ev, ok := read[target.EventDetachedFromTarget](params); ok {
			b.detached(string(ev.SessionID))
		}
		return
	}
	if s == nil {
		b.browserEvent(method, params)
	} else {
		b.tabEvent(s, method, params)
	}
}

func (b *chrome) browserEvent(method string, params jsonv2.Value) {
	switch method {
	case "Target.targetInfoChanged":
		ev, ok := read[target.EventTargetInfoChanged](params)
		if !ok || ev.TargetInfo == nil {
			return
		}
		b.mu.Lock()
		if t := b.byTarget(string(ev.TargetInfo.TargetID)); t != nil && !t.crashed {
			t.title = cut(ev.TargetInfo.Title, 4096)
			if ev.TargetInfo.URL != "" {
				t.url = cut(ev.TargetInfo.URL, maxURL)
			}
			b.signal()
		}
		b.mu.Unlock()
	case "Target.targetDestroyed":
		if ev, ok := read[target.EventTargetDestroyed](params); ok {
			b.mu.Lock()
			if t := b.byTarget(string(ev.TargetID)); t != nil && (!t.crashed || t != b.active) {
				b.drop(t)
				b.signal()
			}
			b.mu.Unlock()
		}
	case "Target.targetCrashed":
		if ev, ok := read[target.EventTargetCrashed](params); ok {
			b.mu.Lock()
			t := b.byTarget(string(ev.TargetID))
			b.mu.Unlock()
			b.crash(t)
		}
	case "Browser.downloadWillBegin":
		if ev, ok := read[cdpbrowser.EventDownloadWillBegin](params); ok {
			b.mu.Lock()
			if t := b.active; t != nil && len(t.downloads) < 20 {
				t.downloads = append(t.downloads, clean(ev.SuggestedFilename, 100))
				t.loading = false
				b.signal()
			}
			b.mu.Unlock()
		}
	}
}

func (b *chrome) firstDocument(t *tab, r reply) {
	if r.err != nil {
		return
	}
	res, ok := read[page.GetFrameTreeResult](r.result)
	if !ok || res.FrameTree == nil || res.FrameTree.Frame == nil {
		return
	}
	f := res.FrameTree.Frame
	b.mu.Lock()
	if t.loader == "" {
		t.frame, t.loader, t.loaded = string(f.ID), string(f.LoaderID), string(f.LoaderID)
		if t.url == "" {
			t.url = cut(f.URL, maxURL)
		}
	}
	b.signal()
	b.mu.Unlock()
}

func (b *chrome) tabEvent(s *sess, method string, params jsonv2.Value) {
	t := s.tab
	top := s.kind == "page"
	switch method {
	case "Page.javascriptDialogOpening":
		if ev, ok := read[page.EventJavascriptDialogOpening](params); ok {
			b.dialog(s, ev)
		}
		return
	case "Page.screencastFrame":
		b.cast.frame(s, params)
		return
	case "Inspector.targetCrashed":
		if top {
			b.crash(t)
		}
		return
	case "Inspector.targetReloadedAfterCrash":
		return
	case "Page.domContentEventFired", "Page.loadEventFired", "Page.navigatedWithinDocument":
		if top {
			defer b.askTitle(t, 100*time.Millisecond) // when b.mu is free again
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	switch method {
	case "Page.frameNavigated":
		ev, ok := read[page.EventFrameNavigated](params)
		if !ok || ev.Frame == nil || !top || ev.Frame.ParentID != "" {
			return
		}
		t.frame, t.loader = string(ev.Frame.ID), string(ev.Frame.LoaderID)
		t.url = cut(ev.Frame.URL+ev.Frame.URLFragment, maxURL)
		t.failedURL = cut(ev.Frame.UnreachableURL, maxURL)
		if t.failedURL != "" {
			t.url = t.failedURL
		}
		t.docs++
		t.loading = true
		if ev.Type == page.NavigationTypeBackForwardCacheRestore {
			t.loaded, t.loading = t.loader, false
		}
		clear(t.inflight)
	case "Page.navigatedWithinDocument":
		ev, ok := read[page.EventNavigatedWithinDocument](params)
		if !ok || !top || string(ev.FrameID) != t.frame {
			return
		}
		t.url = cut(ev.URL, maxURL)
		t.moves++
	case "Page.frameStartedNavigating":
		ev, ok := read[page.EventFrameStartedNavigating](params)
		if !ok || !top || string(ev.FrameID) != t.frame {
			return
		}
		switch ev.NavigationType {
		case page.FrameStartedNavigatingNavigationTypeSameDocument, page.FrameStartedNavigatingNavigationTypeHistorySameDocument:
			return
		}
		t.loading = true
	case "Page.frameStoppedLoading":
		ev, ok := read[page.EventFrameStoppedLoading](params)
		if !ok || !top || string(ev.FrameID) != t.frame {
			return
		}
		t.loading = false
	case "Page.lifecycleEvent":
		ev, ok := read[page.EventLifecycleEvent](params)
		if !ok || !top || string(ev.FrameID) != t.frame {
			return
		}
		switch ev.Name {
		case "DOMContentLoaded":
			t.parsed = string(ev.LoaderID)
		case "load":
			t.loaded = string(ev.LoaderID)
		default:
			return
		}
	case "Page.fileChooserOpened":
		t.fileAsked = true
	case "Network.requestWillBeSent":
		ev, ok := read[network.EventRequestWillBeSent](params)
		if !ok || t.inflight == nil || len(t.inflight) > 10_000 {
			return
		}
		switch ev.Type {
		case network.ResourceTypeMedia, network.ResourceTypeEventSource, network.ResourceTypeWebSocket, network.ResourceTypePing, network.ResourceTypeDocument:
			return
		}
		t.requests++
		t.inflight[string(ev.RequestID)] = struct{}{}
	case "Network.loadingFinished":
		ev, ok := read[network.EventLoadingFinished](params)
		if !ok {
			return
		}
		delete(t.inflight, string(ev.RequestID))
	case "Network.loadingFailed":
		ev, ok := read[network.EventLoadingFailed](params)
		if !ok {
			return
		}
		delete(t.inflight, string(ev.RequestID))
	default:
		return
	}
	b.signal()
}

// dialog answers at once, so that no dialog ever blocks a call: everything is
// dismissed, but a page cannot hold on to a tab that we navigate or close.
func (b *chrome) dialog(s *sess, ev page.EventJavascriptDialogOpening) {
	b.mu.Lock()
	t := s.tab
	accept := ev.Type == page.DialogTypeBeforeunload && t.leave
	if len(t.dialogs) < 20 && !accept {
		t.dialogs = append(t.dialogs, clean(string(ev.Type), 20)+" "+quote(ev.Message, 1000))
	}
	if ev.Type == page.DialogTypeBeforeunload && !accept {
		t.loading = false
	}
	b.signal()
	b.mu.Unlock()
	s.post("Page.handleJavaScriptDialog", page.HandleJavaScriptDialogParams{Accept: accept})
}
