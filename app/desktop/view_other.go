//go:build desktop && !linux

package desktop

import "sync/atomic"

// Elsewhere the toolkit alone speaks to the system. Unproved: nothing here was seen
// running on a system that is not Linux.

var active atomic.Bool

func openView(Place, func())   { active.Store(true) }
func viewPlace() (Place, bool) { return Place{}, false }
func viewActive() bool         { return active.Load() }
func presentView(string)       {}
func editView(string)          {}
func zoomView(int)             {}
func fullscreenView()          {}
func hintView(string, stroke)  {}
func prepareView() bool        { return false }
