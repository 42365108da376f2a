//go:build !desktop

// Package desktop is the window. Without the desktop tag only its parts that need
// no web view are built, so that the program builds and tests where none is
// installed.
package desktop
