package desktop

import "strings"

// entry is one line of a menu.
type entry struct {
	label string
	// action is the id of an action of the page, which knows whether it can be done now.
	action string
	// native is what the window does by itself.
	native string
	// key of the page, shown beside the entry: the page itself answers to it, so it
	// comes once, and a terminal keeps its keys.
	key string
	// accel is a key that the page has no use for and the window answers to.
	accel string
}

type menuOf struct {
	label   string
	entries []entry
}

var line = entry{}

// menus are the window's menus. On a Mac the system's own come before and among them.
var menus = []menuOf{
	{"File", []entry{
		{label: "New project", action: "project", key: "n"},
		{label: "Start work…", action: "work", key: "p"},
		line,
		{label: "Settings", action: "settings", key: "Mod+,"},
		line,
		{label: "Close the window", native: "close", accel: "Ctrl+Shift+w"},
		{label: "Quit Glasshouse and power machines off…", action: "quit", accel: "Ctrl+Shift+q"},
	}},
	{"Edit", []entry{
		{label: "Undo", native: "Undo", key: "Mod+z"},
		{label: "Redo", native: "Redo", key: "Mod+Shift+z"},
		line,
		{label: "Cut", native: "Cut", key: "Mod+x"},
		{label: "Copy", native: "Copy", key: "Mod+c"},
		{label: "Paste", native: "Paste", key: "Mod+v"},
		{label: "Select all", native: "SelectAll", key: "Mod+a"},
	}},
	{"View", []entry{
		{label: "Commands", action: "palette", key: "Mod+k"},
		{label: "Review and push", action: "review", key: "v"},
		{label: "Back to the session", action: "back", key: "Escape"},
		line,
		{label: "Larger", native: "larger", accel: "Ctrl+="},
		{label: "Smaller", native: "smaller", accel: "Ctrl+-"},
		{label: "Usual size", native: "usual", accel: "Ctrl+0"},
		{label: "Full screen", native: "fullscreen", accel: "f11"},
		line,
		{label: "Notices outside the window", action: "notices"},
	}},
	{"Session", []entry{
		{label: "Go to the question that waits longest", action: "ask", key: "w"},
		{label: "Write a message", action: "say", key: "m"},
		line,
		{label: "Cancel all steps of the session", action: "cancel"},
		{label: "End the session", action: "end"},
		line,
		{label: "Start the machine", action: "start"},
		{label: "Stop the machine", action: "stop"},
		line,
		{label: "Start the core again", native: "connect"},
	}},
	{"Help", []entry{
		{label: "Keys", action: "keys", key: "?"},
		{label: "Doctor: what works on this computer", action: "doctor"},
		line,
		{label: "About Glasshouse", action: "about"},
	}},
}

// edits are the commands that the web view does to the text with the focus.
var edits = map[string]bool{"Undo": true, "Redo": true, "Cut": true, "Copy": true, "Paste": true, "SelectAll": true}

// stroke is a key as the toolkit numbers it.
type stroke struct {
	code           uint32
	control, shift bool
}

// strokeOf reads a key as the page spells it. The zero stroke shows nothing.
func strokeOf(key string) stroke {
	var k stroke
	rest, found := strings.CutPrefix(key, "Mod+")
	k.control = found
	rest, k.shift = strings.CutPrefix(rest, "Shift+")
	switch {
	case rest == "Escape":
		k.code = 0xff1b
	case rest == "Enter":
		k.code = 0xff0d
	case len(rest) == 1:
		k.code = uint32(rest[0])
	default:
		return stroke{}
	}
	return k
}
