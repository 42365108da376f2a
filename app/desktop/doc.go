//go:build !desktop

// Package desktop is the window. Without the desktop tag it is empty, so that the
// program builds where no web view is installed.
package desktop
