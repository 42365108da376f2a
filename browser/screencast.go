package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"time"
)

// Screencast is a Browser that can be watched while others act on it. Watching
// never holds an action up and an action never holds watching up.
type Screencast interface {
	// Frames subscribes to pictures of the current tab, whichever that is. Pictures
	// are taken from the first open subscription to the end of the last.
	Frames() (Frames, error)
	// State says what is known of the browser now, without asking any page. The
	// channel is closed when it may have changed; Done tells of the end.
	State() (State, <-chan struct{})
}

// Frames is one viewer. It has no queue: who is slow misses pictures and gets the
// newest. It may be used from several goroutines.
type Frames interface {
	// Next returns the newest frame whose number is not after; it waits until there
	// is one. A new viewer gives 0.
	Next(ctx context.Context, after uint64) (Frame, error)
	Close() error
}

// Limits of a frame.
const (
	MaxFrameBytes = 4 << 20
	MaxFrameSide  = 8192 // pixels
	// MaxFramePixels bounds what a frame takes once it is unpacked, four bytes a pixel.
	MaxFramePixels = 16 << 20
	// FramesPerSecond is at most how many frames are taken.
	FramesPerSecond = 15
)

// Frame is a picture of a page as it was at a time.
type Frame struct {
	Seq           uint64 // grows with every frame of a browser; it may jump
	At            time.Time
	JPEG          []byte // checked with CheckJPEG; not to be changed
	Width, Height int    // of the picture, in pixels
	Page          Page
	View          Viewport
}

// Viewport is the part of the page that a frame shows, in CSS pixels.
type Viewport struct {
	Width   float64 `json:"width"`
	Height  float64 `json:"height"`
	ScrollX float64 `json:"scroll_x"`
	ScrollY float64 `json:"scroll_y"`
	Scale   float64 `json:"scale"` // 1: not zoomed
}

// State of a browser as a person sees it. Every string is the page's own claim.
type State struct {
	Tabs          []Page
	Width, Height int // of every page, in CSS pixels
	// Dialog is what the page in the current tab asked or said last, since the last
	// action. It was dismissed at once: no dialog stays open.
	Dialog string
	// Crashed: the current tab's process died. The next action opens its address again.
	Crashed bool
	// Silent: the current tab's page does not answer, the browser does.
	Silent bool
	// Acted is where the last press landed; nil before the first.
	Acted *Press
}

// Press is a press with the pointer, in CSS pixels of the viewport. N counts them.
type Press struct {
	N    int
	X, Y float64
	Tab  string
}

// Active is the current tab.
func (s State) Active() (Page, bool) {
	for _, p := range s.Tabs {
		if p.Active {
			return p, true
		}
	}
	return Page{}, false
}

// CheckJPEG says whether bytes are a JPEG picture that may be shown, and which size
// it has. It reads the header only.
func CheckJPEG(b []byte) (width, height int, err error) {
	if len(b) > MaxFrameBytes {
		return 0, 0, fmt.Errorf("the picture has %d bytes, more than %d", len(b), MaxFrameBytes)
	}
	if !bytes.HasPrefix(b, []byte("\xff\xd8\xff")) {
		return 0, 0, errors.New("it is no JPEG")
	}
	c, err := jpeg.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return 0, 0, fmt.Errorf("it is no JPEG that can be read: %w", err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > MaxFrameSide || c.Height > MaxFrameSide {
		return 0, 0, fmt.Errorf("the picture is %d x %d pixels large, more than %d a side or nothing", c.Width, c.Height, MaxFrameSide)
	}
	if c.Width*c.Height > MaxFramePixels {
		return 0, 0, fmt.Errorf("the picture is %d x %d pixels large, more than %d in all", c.Width, c.Height, MaxFramePixels)
	}
	if !sequential(b) {
		return 0, 0, errors.New("it is a JPEG in many scans, which a browser does not send")
	}
	return c.Width, c.Height, nil
}

// sequential says whether a JPEG is decoded in one pass. A progressive one can hold
// thousands of passes over all its pixels in a few bytes each.
func sequential(b []byte) bool {
	for i := 2; i+4 <= len(b) && b[i] == 0xff; {
		m := b[i+1]
		switch {
		case m == 0xff: // filling
			i++
			continue
		case m == 0xc0 || m == 0xc1:
			return true
		case m >= 0xc2 && m <= 0xcf && m != 0xc4 && m != 0xc8 && m != 0xcc:
			return false
		}
		i += 2 + int(b[i+2])<<8 + int(b[i+3])
	}
	return false
}
