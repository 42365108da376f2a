package event

func init() { reg[BrowserChanged]() }

// BrowserChanged is transient: what a session's browser shows now. Strings are the
// page's own claims, cleaned.
type BrowserChanged struct {
	Open     bool   `json:"open"`
	Starting bool   `json:"starting,omitempty"`
	URL      string `json:"url,omitempty"`   // of the current tab
	Title    string `json:"title,omitempty"` // of the current tab
	Tabs     int    `json:"tabs"`
	// Trouble is "crashed" or "silent"; empty: none.
	Trouble string `json:"trouble,omitempty"`
	// Dialog is what a dialog said that was dismissed, since the last action.
	Dialog string `json:"dialog,omitempty"`
	// Acted is where the last press landed.
	Acted *BrowserPress `json:"acted,omitempty"`
}

// BrowserPress is a press with the pointer, in CSS pixels of the viewport. N counts them.
type BrowserPress struct {
	N int     `json:"n"`
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

func (*BrowserChanged) EventType() Type { return "browser.changed" }
