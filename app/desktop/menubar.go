//go:build desktop

package desktop

import (
	goruntime "runtime"
	"strings"

	"github.com/wailsapp/wails/v2/pkg/menu"
	"github.com/wailsapp/wails/v2/pkg/menu/keys"
	"github.com/wailsapp/wails/v2/pkg/runtime"
)

// menu makes the menu bar. A Mac has an Edit menu of its own, which its text fields
// need for their keys.
func (n *Native) menu() *menu.Menu {
	bar := menu.NewMenu()
	mac := goruntime.GOOS == "darwin"
	if mac {
		bar.Append(menu.AppMenu())
	}
	for _, m := range menus {
		if mac && m.label == "Edit" {
			bar.Append(menu.EditMenu())
			continue
		}
		sub := bar.AddSubmenu(m.label)
		for _, e := range m.entries {
			if e == line {
				sub.AddSeparator()
				continue
			}
			sub.AddText(e.label, accelerator(e.accel), func(*menu.CallbackData) {
				_ = guarded("the menu entry "+e.label, func() error { n.choose(e); return nil })
			})
		}
	}
	return bar
}

func accelerator(s string) *keys.Accelerator {
	if s == "" {
		return nil
	}
	parts := strings.Split(s, "+")
	a := &keys.Accelerator{Key: parts[len(parts)-1]}
	for _, p := range parts[:len(parts)-1] {
		switch p {
		case "Ctrl":
			a.Modifiers = append(a.Modifiers, keys.CmdOrCtrlKey)
		case "Shift":
			a.Modifiers = append(a.Modifiers, keys.ShiftKey)
		}
	}
	return a
}

// hints shows the page's keys beside the entries.
func (n *Native) hints() {
	for _, m := range menus {
		for _, e := range m.entries {
			if e.key != "" {
				hintView(e.label, strokeOf(e.key))
			}
		}
	}
}

// choose does what a chosen entry says.
func (n *Native) choose(e entry) {
	switch {
	case e.action != "":
		n.emit(eventAction, e.action)
	case edits[e.native]:
		editView(e.native)
	case e.native == "larger":
		zoomView(1)
	case e.native == "smaller":
		zoomView(-1)
	case e.native == "usual":
		zoomView(0)
	case e.native == "fullscreen":
		fullscreenView()
	case e.native == "connect":
		n.link.Ended(false)
		n.emit(eventAction, "retry")
	case e.native == "close":
		n.mu.Lock()
		ctx := n.ctx
		n.mu.Unlock()
		if ctx != nil {
			runtime.Quit(ctx)
		}
	}
}
