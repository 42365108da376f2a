// Package browser is the contract for driving the Chromium inside a machine.
// browser/cdp implements it over a DevTools pipe. Element work is strict: a ref
// that no longer names the very same element fails as ErrStaleRef, an element
// that is covered, disabled or moving is waited for and then ErrNotActionable;
// nothing is ever clicked by guess.
//
// The package imports only the standard library.
package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Opener starts (or joins) Chromium in a machine and returns its DevTools pipe.
type Opener func(ctx context.Context, width, height int) (io.ReadWriteCloser, error)

// Browser is one Chromium.
type Browser interface {
	// Open navigates the current tab (making it when there is none) and waits for the load, bounded.
	Open(ctx context.Context, url string) (Page, error)
	// Snapshot describes what is in view, with refs.
	Snapshot(ctx context.Context, opt SnapshotOptions) (Snapshot, error)
	Click(ctx context.Context, ref string) (Effect, error)
	// Type replaces the content of an editable element (or adds to it) and may press Enter.
	Type(ctx context.Context, ref, text string, opt TypeOptions) (Effect, error)
	Screenshot(ctx context.Context, opt ScreenshotOptions) (Image, error)
	Tabs(ctx context.Context) ([]Page, error)
	// Done is closed when Chromium or its pipe is gone.
	Done() <-chan struct{}
	Close() error
}

// Tabber is a Browser that can switch between tabs. Ids are those of Tabs.
type Tabber interface {
	// Activate makes a tab the current one.
	Activate(ctx context.Context, id string) (Page, error)
	// CloseTab closes a tab; the next one (or none) becomes current.
	CloseTab(ctx context.Context, id string) error
}

// Controls is a Browser with more hands than Click and Type.
type Controls interface {
	// Select picks an option of a drop-down list, by its label or else its value,
	// with the keyboard, as a person would.
	Select(ctx context.Context, ref, option string) (Effect, error)
	// Press presses a key in what has the focus: Enter, Tab, Escape, Backspace,
	// Delete, Home, End, PageUp, PageDown, Space or an arrow (ArrowUp …).
	Press(ctx context.Context, key string) (Effect, error)
	// Back goes one page back in the tab's history.
	Back(ctx context.Context) (Page, error)
}

// Page is one tab. Every string is the page's own claim.
type Page struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Title  string `json:"title"`
	Status int    `json:"status,omitempty"` // HTTP status of the document, 0 unknown
	Error  string `json:"error,omitempty"`  // why the navigation failed
	Active bool   `json:"active,omitempty"`
	// Dialog is the text of a dialog that opened while the page was opened (and was dismissed).
	Dialog string `json:"dialog,omitempty"`
}

// SnapshotOptions of Snapshot. MaxChars 0 = 8,000.
type SnapshotOptions struct {
	WholePage bool
	MaxChars  int
}

// Snapshot is a text picture of a page: one element a line, `- button "Save" [e12]`.
type Snapshot struct {
	Page Page   `json:"page"`
	Text string `json:"text"`
	Refs int    `json:"refs"`
	More int    `json:"more,omitempty"` // elements left out
}

// TypeOptions of Type.
type TypeOptions struct {
	Append bool
	Submit bool // press Enter afterwards
}

// Effect is what was seen to happen after an action.
type Effect struct {
	Page      Page   `json:"page"`
	Navigated bool   `json:"navigated,omitempty"`
	Dialog    string `json:"dialog,omitempty"` // text of a dialog that opened (and was dismissed)
	Diff      string `json:"diff,omitempty"`   // lines of the snapshot that came (+) and went (-)
	None      bool   `json:"none,omitempty"`   // no effect was seen
}

// ScreenshotOptions of Screenshot.
type ScreenshotOptions struct {
	FullPage bool
	JPEG     bool
	Quality  int
}

// Image is a screenshot.
type Image struct {
	Mime          string
	Data          []byte
	Width, Height int
}

// RefError carries what a failed ref needs to be mended: the ref and the nearest candidates.
type RefError struct {
	Ref        string
	Why        string
	Candidates []string // snapshot lines
	Err        error    // ErrStaleRef or ErrNotActionable
}

func (e *RefError) Error() string { return fmt.Sprintf("%v: %s: %s", e.Err, e.Ref, e.Why) }
func (e *RefError) Unwrap() error { return e.Err }

var (
	// ErrStaleRef: the ref's element is gone or another document was loaded. Take a new snapshot.
	ErrStaleRef = errors.New("stale_ref")
	// ErrNotActionable: the element stayed hidden, covered, moving or disabled until the deadline.
	ErrNotActionable = errors.New("not_actionable")
	// ErrCrashed: the page's process died. Its address was opened again in a new
	// document; take a new snapshot.
	ErrCrashed = errors.New("the page crashed")
	// ErrUnresponsive: the page does not answer, the browser does. Opening a page
	// replaces the tab.
	ErrUnresponsive = errors.New("the page does not respond")
	// ErrGone: Chromium ended. The next call starts a new one.
	ErrGone = errors.New("the browser ended")
)
